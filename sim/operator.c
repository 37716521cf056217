#include "sim/operator.h"

#include "sim/context.h"
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

#define MS 1000
#define PATIENCE_US (5000 * MS) /* then it looks for itself what became of a change */
#define MEMBERS_MANY 5

static const struct replica_member *member_of(const struct replica_config *config, uint64_t id)
{
    for (int i = 0; i < config->count; i++)
        if (config->at[i].id == id)
            return &config->at[i];
    return NULL;
}

static int voters_of(const struct replica_config *config)
{
    int voters = 0;

    for (int i = 0; i < config->count; i++)
        voters += config->at[i].votes;
    return voters;
}

static int64_t some_time(struct sim *sim, uint32_t mean_ms)
{
    if (mean_ms == 0)
        return INT64_MAX;
    return sim->now_us + chance_between(&sim->operator.chance, 1, 2 * (int64_t)mean_ms) * MS;
}

/* A member that moves gets an address that nobody had. */
static void write_address(uint64_t id, uint64_t moves, char ret_address[REPLICA_ADDRESS_MAX + 1])
{
    snprintf(ret_address, REPLICA_ADDRESS_MAX + 1, "node-%d:%d", (int)id, 7421 + (int)moves);
}

/* ---- asking ----------------------------------------------------------------------------------- */

static void asks(struct sim *sim, struct node *leader, enum change_kind change, uint64_t id)
{
    struct operator* operator= & sim->operator;
    struct node *node = sim_node(sim, id);
    struct error_text err = {""};
    int64_t now_us = node_now_us(sim, leader);
    void *request;
    int status;

    operator->number++;
    request = (void *)(uintptr_t) operator->number;
    operator->change = change;
    operator->id = id;
    operator->asked_us = sim->now_us;
    trace(&sim->trace, sim->now_us, TRACE_CHANGE, leader->id, change, id,
          node ? node->incarnation : 0);
    if (change == CHANGE_ADD) {
        struct replica_member member = {.id = id, .incarnation = node->incarnation};

        snprintf(member.address, sizeof member.address, "node-%d:7421", (int)id);
        status = replica_add(leader->replica, &member, request, now_us, &err);
    } else if (change == CHANGE_REMOVE) {
        status = replica_remove(leader->replica, id, request, now_us, &err);
    } else if (change == CHANGE_MOVE) {
        char address[REPLICA_ADDRESS_MAX + 1];

        write_address(id, ++operator->moves, address);
        status = replica_move(leader->replica, id, address, request, now_us, &err);
    } else {
        status = replica_transfer(leader->replica, id, request, now_us, &err);
        sim->counts.transfers++;
    }
    sim->counts.changes += change != CHANGE_TRANSFER;
    if (status != HF_OK)
        operator->change = CHANGE_NONE;
    else if (!sim->healing && chance_happens(&operator->chance, sim->swarm.crash_after_change))
        faults_crash_soon(sim, leader);
    node_fed(sim, leader);
}

/* Nobody else changes members meanwhile. */
static void see_move(struct sim *sim, struct node *leader)
{
    struct operator* operator= & sim->operator;
    const struct replica_member *member = member_of(replica_members(leader->replica), operator->id);
    char address[REPLICA_ADDRESS_MAX + 1];

    write_address(operator->id, operator->moves, address);
    if (!member || strcmp(member->address, address) != 0)
        sim_wrong(sim, "node %d has moved to %s, and is at %s", (int)operator->id, address,
                  member ? member->address : "no place");
}

void operator_changed(void *opaque, void *request, enum replica_change result)
{
    struct node_context *context = opaque;
    struct sim *sim = context->sim;
    struct operator* operator= & sim->operator;

    if ((uint64_t)(uintptr_t)request != operator->number || operator->change == CHANGE_NONE)
        return;
    trace(&sim->trace, sim->now_us, TRACE_CHANGED, operator->number, result, 0, 0);
    if (operator->change == CHANGE_MOVE && result == REPLICA_CHANGED)
        see_move(sim, context->node);
    operator->change = CHANGE_NONE;
}

/* ---- deciding --------------------------------------------------------------------------------- */

/* A node that nobody has used yet, or not for long: a new directory in any case. */
static struct node *make_node(struct sim *sim, const struct replica_config *config)
{
    for (uint64_t id = 1; id <= SIM_NODES; id++) {
        struct node *node = sim_node(sim, id);

        if (!node->exists && !member_of(config, id)) {
            node_make(sim, node);
            node_start(sim, node);
            return node;
        }
    }
    return NULL;
}

/* Who is no member any more goes some time; then its number is free. */
static void clear_away(struct sim *sim, const struct replica_config *config)
{
    for (uint64_t id = 1; id <= SIM_NODES; id++) {
        struct node *node = sim_node(sim, id);

        if (!node->exists || !node->removed || member_of(config, id))
            continue;
        if (!sim->healing && chance_below(&sim->operator.chance, 4))
            continue;
        if (node->up)
            node_end(sim, node, ENDING_KILL);
        store_free(&node->store);
        check_wiped(&node->seen);
        node->exists = false;
    }
}

/* Whose directory is of another incarnation is to be removed, before anybody else; and who was to go. */
static uint64_t to_be_removed(struct sim *sim, const struct replica_config *config)
{
    uint64_t id = 0;

    for (int i = 0; i < config->count; i++) {
        const struct node *node = sim_node(sim, config->at[i].id);

        if (!node->exists || node->incarnation != config->at[i].incarnation)
            return node->id;
        if (node->removed && !sim->operator.wiped)
            id = node->id;
    }
    return id;
}

/* Who has a directory and is no member is to be added. True: something of that is being done. */
static bool mend(struct sim *sim, struct node *leader, const struct replica_config *config)
{
    uint64_t removed = to_be_removed(sim, config);

    if (removed) { /* a leader lets another one lead first */
        asks(sim, leader, removed == leader->id ? CHANGE_TRANSFER : CHANGE_REMOVE,
             removed == leader->id ? 0 : removed);
        return true;
    }
    for (uint64_t id = 1; id <= SIM_NODES; id++) {
        const struct node *node = sim_node(sim, id);

        if (node->exists && !node->removed && !member_of(config, id)) {
            asks(sim, leader, CHANGE_ADD, id);
            return true;
        }
    }
    return false;
}

static void change_something(struct sim *sim, struct node *leader,
                             const struct replica_config *config)
{
    struct chance *chance = &sim->operator.chance;
    struct node *node = sim_node(sim, config->at[chance_below(chance, (uint64_t)config->count)].id);
    bool small = sim->swarm.stays_small;
    bool grows = config->count < (small ? 2 : 3) ||
                 (config->count < (small ? 3 : MEMBERS_MANY) && chance_below(chance, 2));

    if (grows) {
        node = make_node(sim, config);
        if (node)
            asks(sim, leader, CHANGE_ADD, node->id);
    } else if (voters_of(config) > 1) {
        node->removed = true;
        mend(sim, leader, config);
    }
}

static void look(struct sim *sim, struct node *leader)
{
    struct operator* operator= & sim->operator;
    struct replica_config config = *replica_members(leader->replica);
    const struct replica_member *wiped;

    if (!replica_members_agreed(leader->replica))
        return;
    wiped = operator->wiped ? member_of(&config, operator->wiped) : NULL;
    if (wiped && wiped->votes && !sim_node(sim, operator->wiped)->damaged &&
        sim_node(sim, operator->wiped)->incarnation == wiped->incarnation)
        operator->wiped = 0;
    clear_away(sim, &config);
    if (mend(sim, leader, &config) || sim->healing)
        return;
    if (sim->swarm.grows && config.count < 3) {
        struct node *node = make_node(sim, &config);

        if (node)
            asks(sim, leader, CHANGE_ADD, node->id);
    } else if (sim->now_us >= operator->next_change_us && !operator->wiped) {
        operator->next_change_us = some_time(sim, sim->swarm.change_ms);
        change_something(sim, leader, &config);
    } else if (sim->now_us >= operator->next_transfer_us) {
        operator->next_transfer_us = some_time(sim, sim->swarm.transfer_ms);
        asks(sim, leader, CHANGE_TRANSFER, 0);
    } else if (sim->now_us >= operator->next_move_us) {
        operator->next_move_us = some_time(sim, sim->swarm.move_ms);
        asks(sim, leader, CHANGE_MOVE,
             config.at[chance_below(&operator->chance, (uint64_t)config.count)].id);
    }
}

void operator_event(struct sim *sim)
{
    struct operator* operator= & sim->operator;
    struct node *leader = sim_leader(sim);
    int64_t every_ms = sim->healing && sim->swarm.grow_ms > 100 ? 100 : sim->swarm.grow_ms;

    sim_at(sim, sim->now_us + chance_between(&operator->chance, every_ms / 2, every_ms) * MS,
           EVENT_OPERATOR, NULL, 0, NULL);
    if (operator->change && sim->now_us - operator->asked_us> PATIENCE_US)
        operator->change = CHANGE_NONE;
    if (leader && leader->paused_until_us <= sim->now_us && operator->change == CHANGE_NONE)
        look(sim, leader);
}

bool operator_is_content(struct sim *sim)
{
    struct node *leader = sim_leader(sim);
    const struct replica_config *config = leader ? replica_members(leader->replica) : NULL;

    if (!config || !replica_members_agreed(leader->replica))
        return false;
    for (uint64_t id = 1; id <= SIM_NODES; id++) {
        const struct node *node = sim_node(sim, id);
        const struct replica_member *member = member_of(config, id);

        if (member && (!node->exists || node->removed || node->incarnation != member->incarnation))
            return false;
        if (!member && node->exists && !node->removed)
            return false;
    }
    return true;
}

/* One at a time, of a cluster that all agree on: so a majority keeps what it has promised. */
struct node *operator_spares(struct sim *sim)
{
    struct operator* operator= & sim->operator;
    struct node *leader = sim_leader(sim), *node;
    const struct replica_config *config;

    if (!leader || operator->wiped || operator->old.node ||
                   operator->change || !operator_is_content(sim))
        return NULL;
    config = replica_members(leader->replica);
    if (voters_of(config) < 3 || voters_of(config) < config->count)
        return NULL;
    node = sim_node(sim, config->at[chance_below(&operator->chance, (uint64_t)config->count)].id);
    if (node->removed)
        return NULL;
    operator->wiped = node->id;
    return node;
}

void operator_replace(struct sim *sim, struct node *node)
{
    if (node->up)
        node_end(sim, node, ENDING_POWER);
    sim->counts.wipes++;
    node_make(sim, node);
    trace(&sim->trace, sim->now_us, TRACE_WIPED, node->id, node->incarnation, 0, 0);
    sim_at(sim, sim->now_us + chance_between(&sim->operator.chance, 0, 2000) * MS, EVENT_RESTART,
           node, 0, NULL);
}

void operator_wipe(struct sim *sim)
{
    struct node *node = operator_spares(sim);

    if (node)
        operator_replace(sim, node);
}

void operator_begin(struct sim *sim)
{
    sim->operator.chance = chance_new(sim->seed, 4);
    sim->operator.next_change_us = some_time(sim, sim->swarm.change_ms);
    sim->operator.next_transfer_us = some_time(sim, sim->swarm.transfer_ms);
    sim->operator.next_move_us = some_time(sim, sim->swarm.move_ms);
    sim_at(sim, sim->now_us + sim->swarm.grow_ms * MS, EVENT_OPERATOR, NULL, 0, NULL);
}
