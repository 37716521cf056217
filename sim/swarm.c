#include "sim/swarm.h"

#include "sim/chance.h"

#include <string.h>

#define MS 1000

/* A kind is absent in half of the worlds. */
static uint32_t some(struct chance *chance, uint32_t little, uint32_t much)
{
    if (chance_below(chance, 2))
        return 0;
    return (uint32_t)chance_between(chance, little, much);
}

static void draw_nodes(struct chance *chance, struct swarm *swarm)
{
    static const int counts[] = {1, 3, 3, 3, 5};

    swarm->nodes = counts[chance_below(chance, 5)];
    swarm->grows = swarm->nodes == 1 && chance_below(chance, 4) > 0;
    swarm->grow_ms = chance_between(chance, 50, 3000);
    swarm->change_ms = some(chance, 500, 8000);
    swarm->transfer_ms = some(chance, 500, 8000);
    swarm->wipe_ms = swarm->nodes >= 3 ? some(chance, 3000, 20000) : 0;
    swarm->flip_ms = swarm->nodes >= 3 ? some(chance, 1000, 10000) : 0;
    swarm->crash_ms = some(chance, 300, 8000);
    swarm->crash_all = some(chance, 100, 5000);
    swarm->crash_after_change = some(chance, 500, 8000);
    swarm->crash_after_election = some(chance, 200, 4000);
    swarm->stays_small = swarm->nodes == 1 && chance_below(chance, 2);
    if (swarm->stays_small) {
        swarm->grows = false;
        swarm->grow_ms = chance_between(chance, 50, 300);
        swarm->change_ms = (uint32_t)chance_between(chance, 100, 1000);
        swarm->crash_after_change = (uint32_t)chance_between(chance, 1000, 6000);
    }
    swarm->pause_ms = some(chance, 300, 8000);
    swarm->clock_ms = some(chance, 300, 8000);
    swarm->kills = (uint32_t)chance_below(chance, 10001);
    swarm->round_us = chance_below(chance, 4) ? 40 : 3000;
}

static void draw_network(struct chance *chance, struct swarm *swarm)
{
    swarm->datagrams = chance_below(chance, 3) == 0;
    swarm->cut_ms = some(chance, 500, 8000);
    swarm->one_way = (uint32_t)chance_below(chance, 10001);
    swarm->loss = some(chance, 1, swarm->datagrams ? 2000 : 60);
    swarm->repeat = some(chance, 1, 2000);
    swarm->delay_us = chance_between(chance, 50, 2000);
    swarm->delay_max_us =
        chance_below(chance, 2) ? swarm->delay_us * 2 : chance_between(chance, 5000, 400000);
}

static void draw_disks(struct chance *chance, struct swarm *swarm)
{
    static const uint64_t bytes[] = {1, 2000, 20000, 200000};
    static const uint32_t in_flight[] = {1, 200, 5000, 2u << 20};

    swarm->disk_us = chance_between(chance, 20, 3000);
    swarm->disk_slow_us = chance_below(chance, 2) ? 0 : chance_between(chance, 5000, 800000);
    swarm->disk_ms = some(chance, 1000, 10000);
    swarm->disk_fails = chance_below(chance, 2);
    swarm->disks_differ = chance_below(chance, 2);
    swarm->term_crash = some(chance, 10, 1500);
    swarm->snapshot_bytes = bytes[chance_below(chance, 4)];
    swarm->snapshot_trailing = (uint32_t)chance_between(chance, 1, 64);
    swarm->memory_bytes = bytes[chance_below(chance, 4)];
    swarm->window = 16u << chance_below(chance, 7);
    swarm->in_flight_bytes = in_flight[chance_below(chance, 4)];
}

static void draw_clients(struct chance *chance, struct swarm *swarm)
{
    swarm->clients = (int)chance_between(chance, 2, 20);
    swarm->patience_us = 1000 * MS;
    swarm->names = (int)chance_between(chance, 1, 6);
    swarm->think_us = chance_between(chance, 5000, 800000);
    swarm->ttl_ms = chance_between(chance, 100, 2000);
    swarm->ttl_max_ms = swarm->ttl_ms + chance_between(chance, 0, 4000);
    swarm->client_loss = some(chance, 5, 800);
    swarm->once = some(chance, 200, 4000);
    swarm->client_pause = some(chance, 50, 1500);
    swarm->client_death = some(chance, 50, 1500);
    swarm->client_cancel = some(chance, 50, 2500);
    swarm->client_careless = some(chance, 50, 2500);
    swarm->client_end = some(chance, 50, 3000);
    swarm->beside = some(chance, 200, 5000);
    swarm->breaks = some(chance, 200, 5000);
}

/* A leader crashes soon after its election, with entries that hardly anybody else has, and is back before the next one has
 * done more: Figure 8 of the Raft paper needs three of them in a row. The disks are faster than the network, so that each
 * has something that only he has. */
static void draw_restless(struct chance *chance, struct swarm *swarm)
{
    swarm->restless = swarm->nodes >= 3 && chance_below(chance, 6) == 0;
    if (!swarm->restless)
        return;
    swarm->crash_elected = (uint32_t)chance_between(chance, 5000, 10000);
    swarm->down_us = 1500 * MS;
    swarm->crash_all = 0;
    swarm->cut_ms = swarm->pause_ms = swarm->wipe_ms = 0;
    swarm->delay_us = chance_between(chance, 1000, 20000);
    swarm->delay_max_us = swarm->delay_us * 2;
    swarm->disk_us = chance_between(chance, 20, 300);
    swarm->disk_slow_us = 0;
    swarm->disks_differ = false;
    swarm->window = 1024;
    swarm->in_flight_bytes = 1;
}

/* Two campaign at the same time, and whoever has voted for one of them crashes and is back before the other one asks. */
static void draw_voters(struct chance *chance, struct swarm *swarm)
{
    if (swarm->restless || swarm->stale || swarm->nodes < 3 || chance_below(chance, 10))
        return;
    swarm->crash_elected = (uint32_t)chance_between(chance, 5000, 10000);
    swarm->crash_voted = (uint32_t)chance_between(chance, 5000, 10000);
    swarm->crash_after_election = 0;
    swarm->cut_ms = swarm->pause_ms = swarm->disk_ms = 0;
    swarm->down_us = chance_between(chance, 10, 100) * MS;
    swarm->kills = 0;
    swarm->window = 1024; /* each of those who are elected adds an entry, and nobody commits any */
    swarm->datagrams = true;
    swarm->delay_us = chance_between(chance, 20, 150) * MS;
    swarm->delay_max_us = 2 * swarm->delay_us;
    swarm->disk_us = chance_between(chance, 20, 300);
    swarm->disk_slow_us = 0;
}

/* A lone voter with a learner: what the voter loses in a crash, as its disk was not done with it, the learner has. */
static void draw_lone(struct chance *chance, struct swarm *swarm)
{
    if (!swarm->stays_small || chance_below(chance, 3) == 0)
        return;
    swarm->crash_ms = (uint32_t)chance_between(chance, 200, 1000);
    swarm->disks_differ = true;
    swarm->disk_us = chance_between(chance, 500, 8000);
    swarm->delay_us = chance_between(chance, 50, 300);
    swarm->delay_max_us = swarm->delay_us * 2;
}

/* A leader whose clock stands still, and which is cut off meanwhile, does not know that others have elected another one; and there are
 * clients on both sides. */
static void draw_stale(struct chance *chance, struct swarm *swarm)
{
    if (swarm->restless || swarm->nodes < 3 || chance_below(chance, 8))
        return;
    swarm->stale = true;
    swarm->pause_ms = swarm->crash_ms = swarm->crash_after_election = 0;
    swarm->cut_ms = (uint32_t)chance_between(chance, 500, 2000);
    swarm->client_loss = 0;
    swarm->clients = 20;
    swarm->names = (int)chance_between(chance, 2, 6);
    swarm->think_us = chance_between(chance, 2000, 20000);
    swarm->ttl_ms = chance_between(chance, 100, 500);
    swarm->ttl_max_ms = swarm->ttl_ms + chance_between(chance, 0, 2000);
    swarm->beside = (uint32_t)chance_between(chance, 3000, 8000);
    swarm->patience_us = 300 * MS;
}

/* Rare kinds, each in one of four worlds. They draw from a stream of their own, so that the others stay as they are. */
static uint32_t rare(struct chance *chance, uint32_t little, uint32_t much)
{
    uint32_t value = (uint32_t)chance_between(chance, little, much);

    return chance_below(chance, 4) == 0 ? value : 0;
}

static void draw_rare(struct chance *chance, struct swarm *swarm)
{
    swarm->move_ms = rare(chance, 500, 8000);
    swarm->copy_ms = rare(chance, 500, 4000);
    if (swarm->nodes < 3)
        swarm->copy_ms = 0;
    swarm->versions = rare(chance, 2000, 9500);
}

static void draw_users(struct chance *chance, struct swarm *swarm)
{
    if (chance_below(chance, 12) == 7)
        swarm->holds = (uint32_t)chance_between(chance, 2, 6);
}

void swarm_draw(uint64_t seed, struct swarm *ret_swarm)
{
    struct chance chance = chance_new(seed, 1), rarely = chance_new(seed, 6),
                  users = chance_new(seed, 8);

    memset(ret_swarm, 0, sizeof *ret_swarm);
    ret_swarm->fault_ms = chance_between(&chance, 10000, 40000);
    draw_nodes(&chance, ret_swarm);
    draw_network(&chance, ret_swarm);
    draw_disks(&chance, ret_swarm);
    draw_clients(&chance, ret_swarm);
    draw_restless(&chance, ret_swarm);
    draw_lone(&chance, ret_swarm);
    draw_stale(&chance, ret_swarm);
    draw_voters(&chance, ret_swarm);
    draw_rare(&rarely, ret_swarm);
    draw_users(&users, ret_swarm);
}
