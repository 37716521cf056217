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
    FAULT_FLIP,
    FAULT_OLD_COPY,
    FAULT_CRASH_OF,  /* and the number of a node: once */
    FAULT_REPLACE_OF /* the same */
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
    case FAULT_FLIP:
        return sim->swarm.flip_ms;
    case FAULT_OLD_COPY:
        return sim->swarm.copy_ms;
    case FAULT_CRASH_OF:
    case FAULT_REPLACE_OF:
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
    for (enum fault fault = FAULT_CRASH; fault <= FAULT_OLD_COPY; fault++)
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

/* Back before anybody has noticed, or not for some time. */
static int64_t down_us(struct sim *sim)
{
    int64_t most = chance_below(&sim->chance, 2) ? 100 * MS : DOWN_US_MAX;

    return chance_between(&sim->chance, 1, sim->swarm.down_us ? sim->swarm.down_us : most);
}

static void crash(struct sim *sim, struct node *node)
{
    bool kill = chance_happens(&sim->chance, sim->swarm.kills);

    sim->counts.crashes++;
    node_end(sim, node, kill ? ENDING_KILL : ENDING_POWER);
    sim_at(sim, sim->now_us + down_us(sim), EVENT_RESTART, node, 0, NULL);
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
static void change_clock(struct sim *sim, struct node *node, bool stops)
{
    int64_t ppm = chance_between(&sim->chance, -SIM_DRIFT_PPM, SIM_DRIFT_PPM);

    sim->counts.clocks++;
    if (stops) {
        ppm = -1000000;
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 1, STANDS_STILL_US_MAX), EVENT_CLOCK,
               node, 0, NULL);
    }
    clock_change(&node->clock, sim->now_us, ppm);
    trace(&sim->trace, sim->now_us, TRACE_CLOCK, node->id, (uint64_t)(1000000 + ppm), 0, 0);
    node_clock_changed(sim, node);
}

/* kind: for the trace. */
static void harm_disk(struct sim *sim, struct node *node)
{
    uint64_t kind = 1 + chance_below(&sim->chance, 3);

    if (!sim->swarm.disk_fails)
        return;
    sim->counts.disk_faults++;
    if (kind == 1) /* until somebody has mended it: when the process starts again */
        node->disk_bad = true;
    else if (kind == 2)
        node->full_until_us = sim->now_us + chance_between(&sim->chance, 1, DISK_BAD_US_MAX);
    else
        node->reads_fail = true;
    trace(&sim->trace, sim->now_us, TRACE_DISK, node->id, kind, 0, 0);
    if (kind == 3 && chance_below(&sim->chance, 2)) /* is noticed when it starts */
        crash(sim, node);
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

void faults_elected(struct sim *sim, struct node *node)
{
    int64_t most = chance_between(&sim->chance, 1, 8) * sim->swarm.delay_us;

    if (!sim->healing && chance_happens(&sim->chance, sim->swarm.crash_elected))
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 0, most), EVENT_FAULT, NULL,
               FAULT_CRASH_OF << 8 | node->id, NULL);
}

void faults_replace_soon(struct sim *sim, struct node *node, int64_t after_us)
{
    sim_at(sim, sim->now_us + after_us, EVENT_FAULT, NULL, FAULT_REPLACE_OF << 8 | node->id, NULL);
}

void faults_voted(struct sim *sim, struct node *node)
{
    if (!sim->healing && chance_happens(&sim->chance, sim->swarm.crash_voted))
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 100, 10 * MS), EVENT_FAULT, NULL,
               FAULT_CRASH_OF << 8 | node->id, NULL);
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
    if (number >> 8 == FAULT_REPLACE_OF) {
        if (sim_node(sim, number & 0xff)->damaged)
            operator_replace(sim, sim_node(sim, number & 0xff));
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
        if (sim->swarm.stale && sim_leader(sim) == node && node) {
            network_isolate(sim, node->id);
            change_clock(sim, node, true);
        } else if (chance_below(&sim->chance, 2))
            network_cut(sim);
        else
            network_heal(sim);
        break;
    case FAULT_CLOCK:
        if (node)
            change_clock(sim, node, chance_below(&sim->chance, 2));
        break;
    case FAULT_DISK:
        if (node)
            harm_disk(sim, node);
        break;
    case FAULT_WIPE:
        operator_wipe(sim);
        break;
    case FAULT_FLIP:
        damage_flip(sim);
        break;
    case FAULT_OLD_COPY:
        old_copies_event(sim);
        break;
    case FAULT_CRASH_OF:
    case FAULT_REPLACE_OF:
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

        node->disk_bad = node->reads_fail = false;
        node->full_until_us = 0;
        if (node->exists && node->damaged)
            operator_replace(sim, node);
        if (node->exists && !node->up)
            node_start(sim, node);
        if (node->up && node->clock.ppm == -1000000) {
            clock_change(&node->clock, sim->now_us, 0);
            node_clock_changed(sim, node);
        }
    }
}
