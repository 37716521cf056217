/* node.c: one node: its process, its loop, and what its replica asks for. A round is as in the real one: what has come is fed,
 * then the replica is pumped once. */
#include "base/switches.h"
#include "sim/context.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000
#define LOOKED_AT_EVERY 64  /* rounds: then the whole of a node is looked at */
#define DIGEST_EVERY 8      /* entries: then its table is compared with the others' */
#define RESTART_MS_MAX 3000 /* a process that ended is started again */

static struct node_context contexts[SIM_NODES];

int64_t node_now_us(const struct sim *sim, const struct node *node)
{
    return clock_local_us(&node->clock, sim->now_us);
}

/* ---- what the replica asks for ---------------------------------------------------------------- */

static void io_send(void *opaque, uint64_t to, const char *address, const struct iovec *pieces,
                    unsigned count)
{
    struct node_context *context = opaque;

    (void)address;
    if (!context->node->dying)
        network_send(context->sim, context->node, to, pieces, count);
}

static void host_role(void *opaque, enum replica_role role)
{
    struct node_context *context = opaque;
    struct sim *sim = context->sim;
    struct node *node = context->node;
    struct replica_status status;

    node->role = role;
    service_role(sim, node, role);
    if (!node->replica)
        return; /* it is being made */
    replica_status(node->replica, &status);
    if (role == REPLICA_LEADING) {
        check_leads(&sim->check.log, &sim->check.verdict, node->id, status.term);
        sim->counts.elections++;
        trace(&sim->trace, sim->now_us, TRACE_LEADS, node->id, status.term, 0, 0);
    } else {
        trace(&sim->trace, sim->now_us, TRACE_FOLLOWS, node->id, status.term, 0, 0);
    }
}

static void host_stopped(void *opaque, const char *why)
{
    struct node_context *context = opaque;
    struct node *node = context->node;

    trace_words(&context->sim->trace, context->sim->now_us, TRACE_STOPPED, node->id, why);
    if (!node->dying && old_copies_may_stop(context->sim, node) &&
        strstr(why, "an older copy of itself"))
        node->lost = true;
    else if (!node->dying && !node->seen.disk_failed && !node->damaged &&
             !versions_may_stop(context->sim, node, why))
        sim_wrong(context->sim, "node %d stops: %s", (int)node->id, why);
    node->dying = true;
}

static void host_members(void *opaque)
{
    struct node_context *context = opaque;
    const struct replica_config *config;
    uint64_t voters = 0;

    if (!context->node->replica)
        return;
    config = replica_members(context->node->replica);
    for (int i = 0; i < config->count; i++)
        voters += config->at[i].votes;
    trace(&context->sim->trace, context->sim->now_us, TRACE_MEMBERS, context->node->id,
          config->index, (uint64_t)config->count, voters);
}

static void host_note(void *opaque, int level, const char *text)
{
    struct node_context *context = opaque;

    if (level <= 3)
        trace_words(&context->sim->trace, context->sim->now_us, TRACE_NOTE, context->node->id,
                    text);
}

/* ---- its life --------------------------------------------------------------------------------- */

void node_make(struct sim *sim, struct node *node)
{
    store_make(sim, &node->store);
    check_wiped(&node->seen);
    node->exists = true;
    node->removed = node->lost = node->damaged = node->ran_next = false;
    node->incarnation = ++sim->incarnations;
    node->disk_slower = sim->swarm.disks_differ && chance_below(&sim->chance, 2)
                            ? chance_between(&sim->chance, 2, 60)
                            : 1;
}

void node_end(struct sim *sim, struct node *node, enum ending ending)
{
    bool at_once = ending != ENDING_POWER;

    node->dying = true;
    store_crash(sim, node, ending == ENDING_POWER);
    replica_free(node->replica);
    service_free(node);
    node->replica = NULL;
    node->up = node->dying = false;
    node->life++;
    node->role = 0;
    network_ended(sim, node, at_once);
    clients_node_ended(sim, node, at_once);
}

/* Its process ends because of what has happened in it. */
static void end_and_restart(struct sim *sim, struct node *node)
{
    sim->counts.crashes++;
    node_end(sim, node, ENDING_STOPPED);
    if (node->lost)
        old_copies_replace(sim, node);
    sim_at(sim,
           sim->now_us + chance_between(&sim->chance, 1, sim->healing ? 50 : RESTART_MS_MAX) * MS,
           EVENT_RESTART, node, 0, NULL);
}

static void see_start(struct sim *sim, struct node *node)
{
    struct replica_status status;

    replica_status(node->replica, &status);
    trace(&sim->trace, sim->now_us, TRACE_STARTED, node->id, status.last_index, status.commit_index,
          status.term);
    check_started(&node->seen, &sim->check.verdict, node->id, status.term,
                  node->store.snapshot.index, status.commit_index, status.last_index);
}

/* Whoever is one of the first members is told so until it has that in its log. */
static void found(struct sim *sim, struct node *node)
{
    struct error_text err = {""};

    for (int i = 0; i < sim->initial.count; i++)
        if (sim->initial.at[i].id == node->id &&
            sim->initial.at[i].incarnation == node->incarnation &&
            !replica_cluster(node->replica) &&
            replica_found(node->replica, &sim->initial, node_now_us(sim, node), &err) != HF_OK &&
            !node->dying)
            sim_wrong(sim, "node %d cannot be founded: %s", (int)node->id, err.text);
}

static void fail_to_start(struct sim *sim, struct node *node, const struct error_text *err)
{
    if (node->replica)
        replica_free(node->replica);
    node->replica = NULL;
    service_free(node);
    node->up = false;
    if (!node->dying && !node->seen.disk_failed && !node->damaged &&
        !versions_may_stop(sim, node, err->text))
        sim_wrong(sim, "node %d does not start: %s", (int)node->id, err->text);
    trace_words(&sim->trace, sim->now_us, TRACE_STOPPED, node->id, err->text);
    if (!node->dying && node->damaged && !node->seen.disk_failed) {
        damage_found(sim, node, err->text);
        return;
    }
    store_crash(sim, node, true);
    sim_at(sim, sim->now_us + 100 * MS, EVENT_RESTART, node, 0, NULL);
}

void node_start(struct sim *sim, struct node *node)
{
    struct node_context *context = &contexts[node->id - 1];
    struct replica_options options = {.id = node->id,
                                      .incarnation = node->incarnation,
                                      .seed = chance_draw(&sim->chance),
                                      .election_ms = SIM_ELECTION_MS,
                                      .heartbeat_ms = SIM_HEARTBEAT_MS,
                                      .snapshot_bytes = sim->swarm.snapshot_bytes,
                                      .snapshot_trailing = sim->swarm.snapshot_trailing,
                                      .memory_bytes = sim->swarm.memory_bytes,
                                      .window = sim->swarm.window,
                                      .in_flight_bytes = sim->swarm.in_flight_bytes,
                                      .version = versions_choose(sim, node)};
    struct replica_io io = {.context = context, .send = io_send};
    struct replica_host host = {.context = context,
                                .effect = service_effect,
                                .failed = service_failed,
                                .changed = operator_changed,
                                .role = host_role,
                                .stopped = host_stopped,
                                .members = host_members,
                                .note = host_note};
    struct error_text err = {""};

    *context = (struct node_context){sim, node};
    service_open(sim, node);
    store_io(&io);
    node->life++;
    node->up = true;
    node->dying = node->disk_bad = false;
    node->round_due = false;
    node->wake_us = 0;
    node->role = 0;
    node->replica = NULL;
    node->paused_until_us = 0;
    /* A machine counts from its own start. */
    node->clock = (struct sim_clock){
        .true_us = sim->now_us,
        .local_us = chance_between(&sim->chance, 1, 100000000),
        .ppm =
            sim->swarm.clock_ms ? chance_between(&sim->chance, -SIM_DRIFT_PPM, SIM_DRIFT_PPM) : 0};
    if (store_open(sim, node, &options, &io, &host, &node->replica, &err) != HF_OK || node->dying) {
        fail_to_start(sim, node, &err);
        return;
    }
    see_start(sim, node);
    found(sim, node);
    if (node->dying)
        end_and_restart(sim, node);
    else
        node_fed(sim, node);
}

/* ---- its loop --------------------------------------------------------------------------------- */

void node_fed(struct sim *sim, struct node *node)
{
    if (node->round_due || !node->up)
        return;
    node->round_due = true;
    sim_at(sim, sim->now_us + chance_between(&sim->chance, 1, sim->swarm.round_us), EVENT_ROUND,
           node, 0, NULL);
}

static void plan_wake(struct sim *sim, struct node *node, int64_t local_us)
{
    int64_t at_us = clock_true_us(&node->clock, local_us);

    if (at_us == INT64_MAX)
        return;
    if (at_us <= sim->now_us)
        at_us = sim->now_us + 1;
    if (node->wake_us > sim->now_us && node->wake_us <= at_us)
        return;
    node->wake_us = at_us;
    sim_at(sim, at_us, EVENT_WAKE, node, 0, NULL);
}

void node_clock_changed(struct sim *sim, struct node *node)
{
    node->wake_us = 0;
    if (node->up)
        node_fed(sim, node);
}

static void see_digest(struct sim *sim, struct node *node)
{
    struct replica_digest digest;
    struct check_digest seen;

    replica_digest(node->replica, &digest);
    seen = (struct check_digest){.table = digest.table,
                                 .chain = digest.chain,
                                 .members = digest.members,
                                 .members_index = digest.members_index,
                                 .version = digest.version};
    if (SWITCHED(SWITCH_TABLE_DIVERGES))
        seen.table = 0; /* the nodes are to find it */
    check_agrees(&sim->check.log, &sim->check.verdict, node->id, digest.index, &seen);
}

static void see_round(struct sim *sim, struct node *node)
{
    struct replica_status status;
    uint64_t before = node->seen.applied;

    replica_status(node->replica, &status);
    if (status.snapshots_installed != node->seen.installs) {
        sim->counts.installs++;
        trace(&sim->trace, sim->now_us, TRACE_INSTALLED, node->id, status.applied_index, 0, 0);
    }
    if (status.applied_index != before || status.commit_index != node->seen.commit) {
        trace(&sim->trace, sim->now_us, TRACE_APPLIED, node->id, status.applied_index,
              status.commit_index, status.last_index);
        check_applied(&sim->check.log, &node->seen, &sim->check.verdict, node->id,
                      status.commit_index, status.applied_index, status.snapshots_installed);
        old_copies_see(sim, node, status.applied_index);
        versions_see(sim, node);
    }
    if (status.applied_index / DIGEST_EVERY != before / DIGEST_EVERY)
        see_digest(sim, node);
    if (++node->rounds % LOOKED_AT_EVERY == 0 && !sim->outside) {
        const char *broken = replica_check(node->replica); /* and with it its table, */
        struct error_text err;

        if (broken)
            sim_wrong(sim, "node %d contradicts itself: %s", (int)node->id, broken);
        else if (node->role == REPLICA_STOPPED && /* unless it has stopped */
                 core_check(replica_table(node->replica), &err) != HF_OK)
            sim_wrong(sim, "node %d: %s", (int)node->id, err.text);
    }
}

static void pump(struct sim *sim, struct node *node)
{
    uint32_t under_way;
    int64_t wake_us;

    node->round_due = false;
    under_way = service_round(sim, node);
    wake_us = replica_pump(node->replica, under_way + 1, node_now_us(sim, node));
    if (node->dying)
        return;
    see_round(sim, node);
    plan_wake(sim, node, wake_us);
}

static void on_message(struct sim *sim, struct node *node, const struct packet *packet)
{
    bool must_stop;

    if (!network_came(sim, node, packet))
        return;
    must_stop = old_copies_must_stop(sim, node, packet);
    trace(&sim->trace, sim->now_us, TRACE_CAME, node->id, packet->from, packet->size,
          packet->size > 1 ? packet->bytes[1] : 0);
    if (!replica_received(node->replica, packet->from, packet->incarnation, packet->bytes,
                          packet->size, node_now_us(sim, node)))
        sim_wrong(sim, "node %d does not understand a message of node %d", (int)node->id,
                  (int)packet->from);
    if (must_stop && !node->dying)
        sim_wrong(sim,
                  "node %d goes on with an older copy of its directory, though it hears node %d, "
                  "which knows what it had",
                  (int)node->id, (int)packet->from);
    node_fed(sim, node);
}

/* The process it was meant for is there. */
static void handle(struct sim *sim, struct node *node, const struct event *event)
{
    switch (event->type) {
    case EVENT_ROUND:
        pump(sim, node);
        break;
    case EVENT_WAKE:
        node->wake_us = 0;
        node_fed(sim, node);
        break;
    case EVENT_MESSAGE:
        on_message(sim, node, event->data);
        break;
    case EVENT_LINK_DOWN:
        replica_peer_down(node->replica, event->number, node_now_us(sim, node));
        node_fed(sim, node);
        break;
    case EVENT_WRITE:
    case EVENT_READ:
        store_event(sim, node, event->type == EVENT_WRITE);
        break;
    case EVENT_REQUEST:
        service_request(sim, node, event->data);
        node_fed(sim, node);
        break;
    case EVENT_HANGUP:
        service_hangup(sim, node, (int)(event->number & 0xff), event->number >> 8);
        node_fed(sim, node);
        break;
    default:
        break;
    }
}

/* A client whose request reaches a machine without a process knows that at once. */
static void refuse(struct sim *sim, const struct node *node, const struct event *event)
{
    const struct request *request = event->data;

    if (event->type == EVENT_REQUEST)
        clients_say(sim, node, request->client,
                    &(struct answer){.say = SAY_MOVED,
                                     .connection = request->connection,
                                     .number = request->number});
}

void node_event(struct sim *sim, struct node *node, const struct event *event)
{
    bool any_life = event->type == EVENT_MESSAGE; /* connections end with a process */

    if (event->type == EVENT_RESTART) {
        if (node->exists && !node->up)
            node_start(sim, node);
        return;
    }
    if (!node->up || (!any_life && event->life != node->life)) {
        refuse(sim, node, event);
        return;
    }
    handle(sim, node, event);
    if (node->dying)
        end_and_restart(sim, node);
    else
        service_flush(sim, node);
}
