/* bench_blocking.c: clients that are threads and wait in calls, as most programs do. They share the handles. */
#include "base/clock.h"
#include "cli/bench_load.h"

#include <poll.h>
#include <time.h>

/* Or until the round is over. */
static void stay(const struct bench_load *load, int64_t span_ms)
{
    struct pollfd fd = {.fd = load->stop_fd, .events = POLLIN};
    int64_t left_ns = load->until_ns - clock_boot_ns();
    struct timespec left;

    if (left_ns > span_ms * 1000000)
        left_ns = span_ms * 1000000;
    if (left_ns <= 0)
        return;
    left.tv_sec = left_ns / 1000000000;
    left.tv_nsec = left_ns % 1000000000;
    ppoll(&fd, 1, &left, NULL);
}

static void release(struct client *client)
{
    struct driver *driver = client->driver;
    int result;

    bench_name_leave(client->name, &client->inside, clock_boot_ns());
    result = hf_release(client->inside.lock);
    if (result == HF_OK) {
        client_released(client, clock_boot_ns());
    } else {
        driver_note_failure(driver, result, hf_error());
        stay(driver->load, BENCH_REST_MS);
    }
}

static void cycle(struct client *client)
{
    struct driver *driver = client->driver;
    const struct bench_load *load = driver->load;
    hf_options options = HF_OPTIONS_INIT;
    int64_t now_ns;
    int result;

    options.owner = "holdfast bench";
    options.cancel = load->cancel;
    client_choose(client);
    client->began_ns = clock_boot_ns();
    result = hf_acquire(driver->store, client->name->text, &options, &client->inside.lock);
    now_ns = clock_boot_ns();
    if (result == HF_OK) {
        client->inside.token = hf_lock_token(client->inside.lock);
        client_granted(client, now_ns);
        stay(load, load->plan->hold_ms);
        release(client);
    } else if (result == HF_ECANCELED && load_is_over(load, now_ns)) {
        driver_note_unfinished(driver, client, now_ns);
    } else {
        driver_note_failure(driver, result, hf_error());
        stay(load, BENCH_REST_MS);
    }
}

void *bench_drive_blocking(void *arg)
{
    struct driver *driver = arg;

    while (!load_is_over(driver->load, clock_boot_ns()))
        cycle(driver->clients);
    atomic_fetch_sub(&driver->load->running, 1);
    return NULL;
}
