/* world.c: what happens next, and whether it has come to a good end. */
#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000
#define CHECK_EVERY_US (100 * MS)
#define LEADER_WITHIN_US (10 * SIM_ELECTION_MS * MS)
/* After the faults: so long clients go on; then whoever waits must come through, and every lease end. */
#define BUSY_US (3000 * MS)
#define DRAINED_WITHIN_US (30000 * MS)
#define EVENTS_MAX 50000000u

/* ---- clocks ----------------------------------------------------------------------------------- */

int64_t clock_local_us(const struct sim_clock *clock, int64_t true_us)
{
    int64_t span = true_us - clock->true_us;

    return clock->local_us + span + span * clock->ppm / 1000000;
}

int64_t clock_true_us(const struct sim_clock *clock, int64_t local_us)
{
    int64_t span = local_us - clock->local_us, at;

    if (clock->ppm == -1000000)
        return INT64_MAX;
    if (span > INT64_C(1000000000000)) /* it wants nothing */
        return INT64_MAX;
    at = clock->true_us + span * 1000000 / (1000000 + clock->ppm);
    while (clock_local_us(clock, at) < local_us)
        at++;
    return at;
}

void clock_change(struct sim_clock *clock, int64_t true_us, int64_t ppm)
{
    clock->local_us = clock_local_us(clock, true_us);
    clock->true_us = true_us;
    clock->ppm = ppm;
}

/* ---- events ----------------------------------------------------------------------------------- */

void sim_wrong(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (sim->wrong[0])
        return;
    va_start(args, format);
    vsnprintf(sim->wrong, sizeof sim->wrong, format, args);
    va_end(args);
}

void sim_at(struct sim *sim, int64_t at_us, enum event_type type, const struct node *node,
            uint64_t number, void *data)
{
    struct event event = {.at_us = at_us, .type = (uint8_t)type, .number = number, .data = data};

    if (node) {
        event.node = (uint8_t)node->id;
        event.life = node->life;
    }
    queue_push(&sim->queue, &event);
}

struct node *sim_leader(struct sim *sim)
{
    struct node *leader = NULL;
    uint64_t term = 0;

    for (int i = 0; i < SIM_NODES; i++) {
        struct node *node = &sim->nodes[i];
        struct replica_status status;

        if (!node->up || node->role != REPLICA_LEADING)
            continue;
        replica_status(node->replica, &status);
        if (!leader || status.term > term) {
            leader = node;
            term = status.term;
        }
    }
    return leader;
}

static void on_clock(struct sim *sim, struct node *node, const struct event *event)
{
    if (!node->up || event->life != node->life)
        return;
    clock_change(&node->clock, sim->now_us, 0);
    node_clock_changed(sim, node);
}

/* ---- the end ---------------------------------------------------------------------------------- */

struct counting {
    struct sim *sim;
    uint64_t claims;
};

static bool count_lock(void *opaque, const struct core_lock_view *view)
{
    struct counting *counting = opaque;

    counting->claims += view->holds + view->places + view->ghosts;
    return true;
}

static uint64_t claims_of(struct sim *sim, const struct node *node)
{
    struct counting counting = {sim, 0};
    uint32_t cursor = 0;

    do
        cursor = core_list(replica_table(node->replica), cursor, 1000, count_lock, &counting);
    while (cursor);
    return counting.claims;
}

/* NULL: all is well; else what is still awaited. */
static const char *awaited(struct sim *sim)
{
    struct node *leader = sim_leader(sim);
    const struct replica_config *config;
    uint64_t applied;

    if (!leader)
        return "a leader that serves";
    if (!sim->clients.drain || !clients_are_idle(sim))
        return "a client that has asked";
    if (!operator_is_content(sim))
        return "a change of members";
    if (!versions_are_settled(sim, leader))
        return "a version that all members read";
    if (claims_of(sim, leader) > 0)
        return "the end of a lease: holds or places are in the table though nobody is there";
    applied = leader->seen.applied;
    config = replica_members(leader->replica);
    for (int i = 0; i < config->count; i++) {
        const struct node *node = sim_node(sim, config->at[i].id);

        if (!node->up || node->seen.applied + 2 < applied)
            return "a member that has not applied what the leader has";
    }
    return NULL;
}

/* True: over. */
static bool look(struct sim *sim)
{
    int64_t since_us = sim->now_us - sim->faults_until_us;
    const char *waits;

    sim_at(sim, sim->now_us + CHECK_EVERY_US, EVENT_CHECK, NULL, 0, NULL);
    if (!sim->healing) {
        if (since_us >= 0)
            faults_end(sim);
        return false;
    }
    if (sim_leader(sim))
        sim->healed_us = sim->now_us;
    if (since_us > LEADER_WITHIN_US && !sim->healed_us)
        sim_wrong(sim, "no progress: nobody leads and serves %d ms after the last fault",
                  (int)(since_us / MS));
    sim->clients.drain = since_us > BUSY_US;
    waits = awaited(sim);
    if (waits && since_us > DRAINED_WITHIN_US)
        sim_wrong(sim, "no progress: %d ms after the last fault this is still awaited: %s",
                  (int)(since_us / MS), waits);
    return !waits;
}

/* ---- running ---------------------------------------------------------------------------------- */

static void dispatch(struct sim *sim, const struct event *event)
{
    switch (event->type) {
    case EVENT_ANSWER:
    case EVENT_CLIENT:
        clients_event(sim, event);
        break;
    case EVENT_FAULT:
        faults_event(sim, event->number);
        break;
    case EVENT_OPERATOR:
        operator_event(sim);
        break;
    case EVENT_CLOCK:
        on_clock(sim, sim_node(sim, event->node), event);
        break;
    default:
        node_event(sim, sim_node(sim, event->node), event);
    }
}

/* What is meant for a node that is paused waits for it. */
static bool waits_for_node(struct sim *sim, const struct event *event)
{
    const struct node *node = event->node ? sim_node(sim, event->node) : NULL;

    if (!node || !node->up || node->paused_until_us <= sim->now_us || event->type == EVENT_CLOCK)
        return false;
    queue_postpone(&sim->queue, event, node->paused_until_us);
    return true;
}

static void begin(struct sim *sim)
{
    struct replica_config config = {.index = 0};

    for (int i = 0; i < SIM_NODES; i++)
        sim->nodes[i].id = (uint64_t)i + 1;
    for (int i = 0; i < sim->swarm.nodes; i++) {
        struct replica_member *member = &config.at[config.count++];

        node_make(sim, &sim->nodes[i]);
        *member = (struct replica_member){
            .id = sim->nodes[i].id, .incarnation = sim->nodes[i].incarnation, .votes = true};
        snprintf(member->address, sizeof member->address, "node-%d:7421", i + 1);
    }
    sim->initial = config;
    for (int i = 0; i < sim->swarm.nodes; i++)
        node_start(sim, &sim->nodes[i]);
}

bool sim_run(struct sim *sim, uint64_t seed, const struct run *run)
{
    struct event event;
    bool over = false;

    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->trace.prints = run->trace;
    sim->outside = run->outside;
    sim->chance = chance_new(seed, 0);
    swarm_draw(seed, &sim->swarm);
    sim->now_us = 1000 * MS;
    sim->faults_until_us = sim->now_us + sim->swarm.fault_ms * MS;
    network_begin(sim);
    versions_begin(sim);
    begin(sim);
    clients_begin(sim);
    operator_begin(sim);
    faults_begin(sim);
    sim_at(sim, sim->now_us, EVENT_CHECK, NULL, 0, NULL);
    while (!over && !sim->wrong[0] && queue_pop(&sim->queue, &event)) {
        sim->now_us = event.at_us;
        sim->counts.events++;
        if (event.type == EVENT_CHECK) {
            over = look(sim);
            continue;
        }
        if (waits_for_node(sim, &event))
            continue;
        dispatch(sim, &event);
        free(event.data);
        if (sim->check.verdict.words[0])
            sim_wrong(sim, "%s", sim->check.verdict.words);
        if (sim->counts.events > EVENTS_MAX)
            sim_wrong(sim, "it does not end");
    }
    sim->counts.commits = sim->check.log.last;
    return !sim->wrong[0];
}

void sim_free(struct sim *sim)
{
    for (int i = 0; i < SIM_NODES; i++) {
        struct node *node = &sim->nodes[i];

        node->dying = true;
        if (node->replica)
            replica_free(node->replica);
        service_free(node);
        store_free(&node->store);
        check_wiped(&node->seen);
    }
    old_copies_drop(sim);
    queue_free(&sim->queue);
    tokens_free(&sim->check.tokens);
    ends_free(&sim->check.ends);
    once_free(&sim->check.once);
    check_log_free(&sim->check.log);
}
