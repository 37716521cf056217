/* faults.c: what goes wrong, when its time has come: swarm.h lists what is legal. */
#include "sim/sim.h"

#define MS 1000
#define PAUSE_US_MAX (4000 * MS)
#define DOWN_US_MAX (4000 * MS)
#define STANDS_STILL_US_MAX (3000 * MS)
#define DISK_BAD_US_MAX (2000 * MS)

enum fault {
    FAULT_CRASH = 1,
    FAULT_PAUSE,
    FAULT_CUT,
    FAULT_CLOCK,
    FAULT_DISK,
    FAULT_WIPE,
    FAULT_CRASH_OF /* and the number of a node: once */
};

static uint32_t mean_ms(const struct sim *sim, enum fault fault)
{
    switch (fault) {
    case FAULT_CRASH:
        return sim->swarm.crash_ms;
    case FAULT_PAUSE:
        return sim->swarm.pause_ms;
    case FAULT_CUT:
        return sim->swarm.cut_ms;
    case FAULT_CLOCK:
        return sim->swarm.clock_ms;
    case FAULT_DISK:
        return sim->swarm.disk_ms;
    case FAULT_WIPE:
        return sim->swarm.wipe_ms;
    case FAULT_CRASH_OF:
        break;
    }
    return 0;
}

static void plan(struct sim *sim, enum fault fault)
{
    uint32_t mean = mean_ms(sim, fault);

    if (mean)
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 1, 2 * (int64_t)mean) * MS,
               EVENT_FAULT, NULL, fault, NULL);
}

void faults_begin(struct sim *sim)
{
    for (enum fault fault = FAULT_CRASH; fault <= FAULT_WIPE; fault++)
        plan(sim, fault);
}

/* The leader, as often as any of the others together. */
static struct node *some_node(struct sim *sim)
{
    struct node *node = sim_leader(sim);

    if (!node || chance_below(&sim->chance, 2))
        node = sim_node(sim, 1 + chance_below(&sim->chance, SIM_NODES));
    return node->up ? node : NULL;
}

static void crash(struct sim *sim, struct node *node)
{
    bool kill = chance_happens(&sim->chance, sim->swarm.kills);

    sim->counts.crashes++;
    node_end(sim, node, kill ? ENDING_KILL : ENDING_POWER);
    sim_at(sim,
           sim->now_us + chance_between(&sim->chance, 1,
                                        chance_below(&sim->chance, 2) ? 100 * MS : DOWN_US_MAX),
           EVENT_RESTART, node, 0, NULL);
}

static void pause_node(struct sim *sim, struct node *node)
{
    int64_t us = chance_between(&sim->chance, 1, PAUSE_US_MAX);

    if (sim->now_us + us > sim->faults_until_us)
        us = sim->faults_until_us - sim->now_us;
    if (sim->now_us + us <= node->paused_until_us)
        return;
    sim->counts.pauses++;
    node->paused_until_us = sim->now_us + us;
    trace(&sim->trace, sim->now_us, TRACE_PAUSED, node->id, (uint64_t)us, 0, 0);
}

/* It ticks otherwise, or stands still for a while and then goes on: it never shows more than has passed, but for the drift. */
static void change_clock(struct sim *sim, struct node *node)
{
    int64_t ppm = chance_between(&sim->chance, -SIM_DRIFT_PPM, SIM_DRIFT_PPM);

    sim->counts.clocks++;
    if (chance_below(&sim->chance, 2)) {
        ppm = -1000000;
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 1, STANDS_STILL_US_MAX), EVENT_CLOCK,
               node, 0, NULL);
    }
    clock_change(&node->clock, sim->now_us, ppm);
    trace(&sim->trace, sim->now_us, TRACE_CLOCK, node->id, (uint64_t)(1000000 + ppm), 0, 0);
    node_clock_changed(sim, node);
}

static void harm_disk(struct sim *sim, struct node *node)
{
    if (!sim->swarm.disk_fails)
        return;
    sim->counts.disk_faults++;
    node->disk_bad = true; /* until somebody has mended it: when the process starts again */
    trace(&sim->trace, sim->now_us, TRACE_DISK, node->id, 1, 0, 0);
}

/* All machines, each with its time until it is back. */
static void crash_all(struct sim *sim)
{
    for (uint64_t id = 1; id <= SIM_NODES; id++)
        if (sim_node(sim, id)->up)
            crash(sim, sim_node(sim, id));
}

void faults_crash_soon(struct sim *sim, struct node *node)
{
    int64_t us = chance_between(&sim->chance, 0, chance_below(&sim->chance, 2) ? 5 * MS : 60 * MS);

    if (chance_below(&sim->chance, 4) == 0)
        node = sim_node(sim, 1 + chance_below(&sim->chance, SIM_NODES));
    sim_at(sim, sim->now_us + us, EVENT_FAULT, NULL, FAULT_CRASH_OF << 8 | node->id, NULL);
}

void faults_event(struct sim *sim, uint64_t number)
{
    struct node *node = some_node(sim);

    if (sim->healing)
        return;
    if (number >> 8 == FAULT_CRASH_OF) {
        node = sim_node(sim, number & 0xff);
        if (node->up)
            crash(sim, node);
        return;
    }
    plan(sim, (enum fault)number);
    switch ((enum fault)number) {
    case FAULT_CRASH:
        if (chance_happens(&sim->chance, sim->swarm.crash_all))
            crash_all(sim);
        else if (node)
            crash(sim, node);
        break;
    case FAULT_PAUSE:
        if (node)
            pause_node(sim, node);
        break;
    case FAULT_CUT:
        if (chance_below(&sim->chance, 2))
            network_cut(sim);
        else
            network_heal(sim);
        break;
    case FAULT_CLOCK:
        if (node)
            change_clock(sim, node);
        break;
    case FAULT_DISK:
        if (node)
            harm_disk(sim, node);
        break;
    case FAULT_WIPE:
        operator_wipe(sim);
        break;
    case FAULT_CRASH_OF:
        break;
    }
}

void faults_end(struct sim *sim)
{
    trace(&sim->trace, sim->now_us, TRACE_PHASE, 0, 0, 0, 0);
    sim->healing = true;
    network_heal(sim);
    clients_heal(sim);
    for (uint64_t id = 1; id <= SIM_NODES; id++) {
        struct node *node = sim_node(sim, id);

        node->disk_bad = false;
        if (node->exists && !node->up)
            node_start(sim, node);
        if (node->up && node->clock.ppm == -1000000) {
            clock_change(&node->clock, sim->now_us, 0);
            node_clock_changed(sim, node);
        }
    }
}
