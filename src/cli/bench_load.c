/* bench_load.c: a round, from its first thread to what they all counted. */
#include "cli/bench_load.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

void driver_begin(struct driver *driver, struct bench_load *load, uint32_t number)
{
    driver->load = load;
    driver->store = load->target->handles[number % load->target->handle_count];
    driver->fd = load->is_empty || load->plan->is_blocking ? load->stop_fd : hf_fd(driver->store);
    queue_begin(&driver->inside);
    queue_begin(&driver->resting);
    queue_begin(&driver->granted);
    queue_begin(&driver->released);
    for (uint32_t i = 0; i < driver->client_count; i++) {
        struct client *client = &driver->clients[i];

        client->driver = driver;
        client->id = number + i * load->driver_count;
        client->random = UINT64_C(0x9e3779b97f4a7c15) * (client->id + 1);
    }
    driver->live = driver->client_count;
}

void load_free(struct bench_load *load)
{
    for (uint32_t i = 0; load->drivers && i < load->driver_count; i++)
        free(load->drivers[i].clients);
    if (load->stop_fd >= 0)
        close(load->stop_fd);
    hf_cancel_free(load->cancel);
    free(load->drivers);
    free(load->client_cycles);
    free(load);
}

struct bench_load *load_new(const struct bench_plan *plan, struct bench_target *target,
                            enum bench_work work, uint32_t clients)
{
    struct bench_load *load = calloc(1, sizeof *load);
    bool fine;

    if (!load)
        return NULL;
    load->plan = plan;
    load->target = target;
    load->work = work;
    load->clients = clients;
    load->driver_count =
        plan->is_blocking || clients < target->handle_count ? clients : target->handle_count;
    load->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    load->client_cycles = calloc(clients, sizeof *load->client_cycles);
    load->drivers = calloc(load->driver_count, sizeof *load->drivers);
    fine = load->stop_fd >= 0 && load->client_cycles && load->drivers &&
           hf_cancel_new(&load->cancel) == HF_OK;
    for (uint32_t i = 0; fine && i < load->driver_count; i++) {
        struct driver *driver = &load->drivers[i];

        driver->client_count = (clients - i + load->driver_count - 1) / load->driver_count;
        driver->clients = calloc(driver->client_count, sizeof *driver->clients);
        fine = driver->clients != NULL;
    }
    if (fine)
        return load;
    load_free(load);
    errno = ENOMEM;
    return NULL;
}

struct bench_load *bench_load_begin(const struct bench_plan *plan, struct bench_target *target,
                                    enum bench_work work, uint32_t clients)
{
    struct bench_load *load = load_new(plan, target, work, clients);
    void *(*drive)(void *) = plan->is_blocking ? bench_drive_blocking : bench_drive_started;
    int failed = 0;

    if (!load)
        return NULL;
    load->began_ns = clock_boot_ns();
    load->from_ns = load->began_ns + plan->warm_ms * 1000000;
    load->until_ns = load->from_ns + plan->round_ms * 1000000;
    for (uint32_t i = 0; i < load->driver_count; i++)
        driver_begin(&load->drivers[i], load, i);
    atomic_store(&load->running, load->driver_count);
    for (uint32_t i = 0; i < load->driver_count && !failed; i++) {
        failed = pthread_create(&load->drivers[i].thread, NULL, drive, &load->drivers[i]);
        if (failed) {
            bench_load_stop(load);
            for (uint32_t k = 0; k < i; k++)
                pthread_join(load->drivers[k].thread, NULL);
        }
    }
    if (!failed)
        return load;
    load_free(load);
    errno = failed;
    return NULL;
}

int64_t bench_load_from_ns(const struct bench_load *load)
{
    return load->from_ns;
}

int64_t bench_load_until_ns(const struct bench_load *load)
{
    return load->until_ns;
}

void bench_load_stop(struct bench_load *load)
{
    atomic_store(&load->is_stopped, true);
    eventfd_write(load->stop_fd, 1);
    hf_cancel_fire(load->cancel);
}

bool bench_load_is_over(const struct bench_load *load)
{
    return atomic_load(&load->running) == 0;
}

uint64_t bench_load_cycles(const struct bench_load *load)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < load->driver_count; i++)
        sum += atomic_load_explicit(&load->drivers[i].cycles, memory_order_relaxed);
    return sum;
}

uint64_t bench_load_failures(const struct bench_load *load)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < load->driver_count; i++)
        sum += atomic_load_explicit(&load->drivers[i].failures, memory_order_relaxed);
    return sum;
}

void bench_load_end(struct bench_load *load, struct bench_round *ret_round)
{
    for (uint32_t i = 0; i < load->driver_count; i++) {
        pthread_join(load->drivers[i].thread, NULL);
        bench_tally_merge(&ret_round->tally, &load->drivers[i].tally);
    }
    ret_round->fairness = bench_fairness_of(load->client_cycles, load->clients);
    ret_round->took_ns = load->until_ns - load->from_ns;
    load_free(load);
}
