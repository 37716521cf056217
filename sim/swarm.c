#include "sim/swarm.h"

#include "sim/chance.h"

#include <string.h>

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
}

static void draw_clients(struct chance *chance, struct swarm *swarm)
{
    swarm->clients = (int)chance_between(chance, 2, 20);
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
}

void swarm_draw(uint64_t seed, struct swarm *ret_swarm)
{
    struct chance chance = chance_new(seed, 1);

    memset(ret_swarm, 0, sizeof *ret_swarm);
    ret_swarm->fault_ms = chance_between(&chance, 10000, 40000);
    draw_nodes(&chance, ret_swarm);
    draw_network(&chance, ret_swarm);
    draw_disks(&chance, ret_swarm);
    draw_clients(&chance, ret_swarm);
}
