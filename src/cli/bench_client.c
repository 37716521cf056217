/* bench_client.c: one cycle of a client, whoever drives it: which name, and what is counted. */
#include "cli/bench_load.h"

#include <stdio.h>

#define MIX_HOT_PART 10 /* one of so many cycles of the mix is on a hot name */

bool load_is_over(const struct bench_load *load, int64_t now_ns)
{
    return now_ns >= load->until_ns ||
           atomic_load_explicit(&load->is_stopped, memory_order_relaxed);
}

static bool counts(const struct bench_load *load, int64_t now_ns)
{
    return now_ns >= load->from_ns && now_ns < load->until_ns;
}

static void count_up(atomic_uint_fast64_t *shown)
{
    atomic_store_explicit(shown, atomic_load_explicit(shown, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void driver_note_failure(struct driver *driver, int result, const char *words)
{
    struct bench_tally *tally = &driver->tally;

    if (result == HF_EUNKNOWN)
        tally->unknowns++;
    else if (result == HF_ELOST)
        tally->lost++;
    else
        tally->failures++;
    count_up(&driver->failures);
    snprintf(tally->words, sizeof tally->words, "%s", words);
}

void driver_note_unfinished(struct driver *driver, const struct client *client, int64_t now_ns)
{
    driver->tally.unfinished++;
    if (now_ns - client->began_ns > driver->tally.unfinished_ns)
        driver->tally.unfinished_ns = now_ns - client->began_ns;
}

static uint64_t next_random(struct client *client)
{
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    return client->random;
}

/* Its own are its number and every further one at the distance of all clients: no two share one. */
static struct bench_name *own_name(struct client *client)
{
    const struct bench_load *load = client->driver->load;
    size_t own = load->target->names.count - BENCH_HOT_NAMES;
    size_t mine = (own - client->id + load->clients - 1) / load->clients;

    return &load->target->names
                .all[BENCH_HOT_NAMES + client->id + client->turn++ % mine * load->clients];
}

void client_choose(struct client *client)
{
    const struct bench_load *load = client->driver->load;
    struct bench_name *hot = load->target->names.all;

    if (load->work == BENCH_HOT)
        client->name = hot;
    else if (load->work == BENCH_MIX && next_random(client) % MIX_HOT_PART == 0)
        client->name = &hot[next_random(client) % BENCH_HOT_NAMES];
    else
        client->name = own_name(client);
}

void client_granted(struct client *client, int64_t now_ns)
{
    struct driver *driver = client->driver;
    const struct bench_load *load = driver->load;
    int64_t handover_ns = bench_name_enter(&load->target->names, client->name, &client->inside,
                                           client->began_ns, now_ns);

    if (!counts(load, now_ns))
        return;
    bench_histogram_add(&driver->tally.acquire, now_ns - client->began_ns);
    if (handover_ns >= 0)
        bench_histogram_add(&driver->tally.handover, handover_ns);
}

void client_released(struct client *client, int64_t now_ns)
{
    struct driver *driver = client->driver;

    if (counts(driver->load, now_ns)) {
        driver->tally.cycles++;
        driver->load->client_cycles[client->id]++;
    }
    count_up(&driver->cycles);
}
