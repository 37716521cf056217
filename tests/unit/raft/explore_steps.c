/* explore_steps.c: what can happen next, how it is done, and how it is said. */
#include "explore.h"

#include <string.h>

#define HEAL_ROUNDS 600
#define HEAL_ROUND_US (CLUSTER_HEARTBEAT_US / 5)

void explore_copy(struct explore_state *to, const struct explore_state *from)
{
    memcpy(to->done, from->done, sizeof to->done);
    cluster_copy(&to->cluster, &from->cluster);
}

/* ---- which ----------------------------------------------------------------------------------- */

struct list {
    const struct explore_run *run;
    struct explore_state *state;
    struct explore_step *steps;
    int count;
};

static void add(struct list *list, uint8_t kind, uint64_t node, uint64_t other, uint64_t number)
{
    uint8_t most = list->run->most[kind];

    if (most != EXPLORE_ANY && list->state->done[kind] >= most)
        return;
    if (list->count < EXPLORE_STEPS_MAX)
        list->steps[list->count++] =
            (struct explore_step){kind, (uint8_t)node, (uint8_t)other, (uint8_t)number};
}

/* Nothing is under way between them: else a message that is lost will do. */
static bool is_quiet(const struct cluster *cluster, uint64_t a, uint64_t b)
{
    for (int i = 0; i < cluster->message_count; i++) {
        const struct raft_message *message = &cluster->messages[i].message;

        if ((message->from == a && message->to == b) || (message->from == b && message->to == a))
            return false;
    }
    return true;
}

static void add_leaders(struct list *list, const struct cluster_node *node)
{
    const struct raft *raft = cluster_raft(node);
    struct raft_members members;

    raft_members(raft, &members);
    if (raft_last(raft) < list->run->log)
        add(list, STEP_PROPOSE, node->id, 0, 0);
    for (uint64_t id = 1; id <= (uint64_t)list->state->cluster.node_count; id++) {
        int place = 0;

        while (place < members.count && members.at[place].id != id)
            place++;
        if (place == members.count && raft_last(raft) < list->run->log)
            add(list, STEP_ADD, node->id, id, 0);
        if (place == members.count)
            continue;
        if (raft_last(raft) < list->run->log)
            add(list, members.at[place].votes ? STEP_REMOVE : STEP_PROMOTE, node->id, id, 0);
        if (id == node->id)
            continue;
        add(list, STEP_TRANSFER, node->id, id, 0);
        if (is_quiet(&list->state->cluster, node->id, id))
            add(list, STEP_DOWN, node->id, id, 0);
    }
}

static int count_bits(uint64_t bits)
{
    int count = 0;

    for (; bits; bits &= bits - 1)
        count++;
    return count;
}

static void add_elections(struct list *list, const struct cluster_node *node)
{
    const struct raft *raft = cluster_raft(node);
    struct raft_members members;
    uint64_t all = 0;
    int itself = 0;

    if (raft_role(raft) == RAFT_LEADER || raft_term(raft) >= list->run->terms)
        return;
    if (list->run->symmetric && node->id != 1 && !list->state->done[0])
        return;
    add(list, STEP_CAMPAIGN, node->id, 0, 0);
    raft_members(raft, &members);
    for (int i = 0; i < members.count; i++)
        if (members.at[i].votes && members.at[i].id != node->id)
            all |= (uint64_t)1 << (members.at[i].id - 1);
        else if (members.at[i].votes)
            itself = 1;
    /* A majority, and no more. */
    for (uint64_t some = all; some > 0; some = (some - 1) & all)
        if (2 * (count_bits(some) + itself) > count_bits(all) + itself &&
            2 * (count_bits(some) + itself - 1) <= count_bits(all) + itself)
            add(list, STEP_ELECT, node->id, some, 0);
}

static void add_of_node(struct list *list, const struct cluster_node *node)
{
    uint64_t waiting = 0;

    add_elections(list, node);
    /* Where nobody may campaign any more, time would only raise terms. */
    if (raft_role(cluster_raft(node)) == RAFT_LEADER ||
        raft_term(cluster_raft(node)) < list->run->terms)
        add(list, STEP_TIME, node->id, 0, 0);
    if (node->write_count > 0)
        add(list, STEP_WRITTEN, node->id, 0, 0);
    for (int i = 0; i < node->write_count; i++)
        waiting += node->writes[i].last - node->writes[i].first + 1;
    for (uint64_t kept = 0; kept <= waiting; kept++)
        add(list, STEP_RESTART, node->id, 0, kept);
    add(list, STEP_WIPE, node->id, 0, 0);
    if (node->commit > node->snapshot.index)
        add(list, STEP_SNAPSHOT, node->id, 0, 0);
    if (raft_role(cluster_raft(node)) == RAFT_LEADER)
        add_leaders(list, node);
}

int explore_steps(const struct explore_run *run, struct explore_state *state,
                  struct explore_step ret_steps[EXPLORE_STEPS_MAX])
{
    struct list list = {.run = run, .state = state, .steps = ret_steps};

    for (int i = 0; i < state->cluster.message_count; i++) {
        add(&list, STEP_DELIVER, 0, 0, (uint64_t)i);
        if (state->cluster.messages[i].message.type == RAFT_APPEND)
            add(&list, STEP_EXCHANGE, 0, 0, (uint64_t)i);
        add(&list, STEP_AGAIN, 0, 0, (uint64_t)i);
        add(&list, STEP_DROP, 0, 0, (uint64_t)i);
    }
    for (int i = 0; i < state->cluster.node_count; i++)
        if (state->cluster.nodes[i].used && !state->cluster.nodes[i].stopped)
            add_of_node(&list, &state->cluster.nodes[i]);
    return list.count;
}

/* ---- how ------------------------------------------------------------------------------------- */

/* The first message from one to another, of a type. */
static int find(const struct cluster *cluster, uint64_t from, uint64_t to, uint8_t type)
{
    for (int i = 0; i < cluster->message_count; i++)
        if (cluster->messages[i].message.from == from && cluster->messages[i].message.to == to &&
            cluster->messages[i].message.type == type)
            return i;
    return -1;
}

static void elect(struct cluster *cluster, struct cluster_node *node, uint64_t some)
{
    for (int i = cluster->message_count - 1; i >= 0; i--)
        if (cluster->messages[i].message.to == node->id &&
            cluster->messages[i].message.type == RAFT_VOTE_REPLY)
            cluster_drop(cluster, i);
    cluster_campaign(cluster, node);
    for (uint64_t id = 1; id <= CLUSTER_NODES; id++) {
        int at = some >> (id - 1) & 1 ? find(cluster, node->id, id, RAFT_VOTE) : -1;

        if (at >= 0)
            cluster_deliver(cluster, at, false);
        at = find(cluster, id, node->id, RAFT_VOTE_REPLY);
        if (at >= 0)
            cluster_deliver(cluster, at, false);
    }
    for (int i = cluster->message_count - 1; i >= 0; i--)
        if (cluster->messages[i].message.from == node->id &&
            cluster->messages[i].message.type == RAFT_VOTE)
            cluster_drop(cluster, i);
}

static void exchange(struct cluster *cluster, int at)
{
    uint64_t from = cluster->messages[at].message.from, to = cluster->messages[at].message.to;

    cluster_deliver(cluster, at, false);
    at = find(cluster, to, from, RAFT_APPEND_REPLY);
    if (at >= 0)
        cluster_deliver(cluster, at, false);
}

static void apply_to_node(struct cluster *cluster, const struct explore_step *step)
{
    struct cluster_node *node = cluster_node(cluster, step->node);

    switch (step->kind) {
    case STEP_WRITTEN:
        cluster_written(cluster, node);
        break;
    case STEP_RESTART:
        cluster_crash(cluster, node, step->number);
        cluster_start(cluster, node);
        break;
    case STEP_WIPE:
        cluster_wipe(cluster, node);
        cluster_start(cluster, node);
        break;
    case STEP_CAMPAIGN:
        cluster_campaign(cluster, node);
        break;
    case STEP_ELECT:
        elect(cluster, node, step->other);
        break;
    case STEP_TIME:
        cluster_time(cluster, node);
        break;
    case STEP_PROPOSE:
        cluster_propose(cluster, node, 1, 8);
        break;
    case STEP_ADD:
    case STEP_PROMOTE:
    case STEP_REMOVE:
        cluster_change(cluster, node, (uint8_t)(RAFT_ADD + (step->kind - STEP_ADD)), step->other,
                       0);
        break;
    case STEP_TRANSFER:
        cluster_transfer(cluster, node, step->other);
        break;
    case STEP_DOWN:
        cluster_down(cluster, node, step->other);
        break;
    case STEP_SNAPSHOT:
        cluster_snapshot(cluster, node);
        break;
    default:
        break;
    }
}

void explore_apply(struct explore_state *state, const struct explore_step *step,
                   const struct explore_run *run)
{
    struct cluster *cluster = &state->cluster;

    if (run->most[step->kind] != EXPLORE_ANY)
        state->done[step->kind]++;
    state->done[0] = 1; /* something */
    if (step->kind == STEP_DELIVER || step->kind == STEP_AGAIN)
        cluster_deliver(cluster, step->number, step->kind == STEP_AGAIN);
    else if (step->kind == STEP_EXCHANGE)
        exchange(cluster, step->number);
    else if (step->kind == STEP_DROP)
        cluster_drop(cluster, step->number);
    else
        apply_to_node(cluster, step);
    cluster_forget(cluster);
    ghost_logs(cluster);
    for (int i = 0; i < cluster->node_count; i++)
        if (cluster->nodes[i].stopped)
            ghost_wrong(cluster, "%c has stopped", 'A' + i);
}

/* ---- in words -------------------------------------------------------------------------------- */

static void message_words(FILE *out, const char *what, const struct cluster *cluster, int at)
{
    uint64_t from = cluster->messages[at].message.from, to = cluster->messages[at].message.to;
    int place = 0;

    for (int i = 0; i <= at; i++)
        place += cluster->messages[i].message.from == from && cluster->messages[i].message.to == to;
    fprintf(out, "%s %c %c", what, (int)('A' + from - 1), (int)('A' + to - 1));
    if (place > 1)
        fprintf(out, " %d", place);
    fputc('\n', out);
}

void explore_words(FILE *out, struct explore_state *state, const struct explore_step *step)
{
    static const char *const words[STEP_KINDS] = {
        [STEP_DELIVER] = "deliver",  [STEP_AGAIN] = "again",       [STEP_DROP] = "drop",
        [STEP_WRITTEN] = "written",  [STEP_CAMPAIGN] = "campaign", [STEP_TIME] = "time",
        [STEP_PROPOSE] = "propose",  [STEP_ADD] = "add",           [STEP_PROMOTE] = "promote",
        [STEP_REMOVE] = "remove",    [STEP_TRANSFER] = "transfer", [STEP_DOWN] = "down",
        [STEP_SNAPSHOT] = "snapshot"};
    int me = 'A' + step->node - 1, other = 'A' + step->other - 1;

    switch (step->kind) {
    case STEP_DELIVER:
    case STEP_AGAIN:
    case STEP_DROP:
        message_words(out, words[step->kind], &state->cluster, step->number);
        break;
    case STEP_EXCHANGE:
        message_words(out, "deliver", &state->cluster, step->number);
        fprintf(out, "deliver %c %c\n",
                (int)('A' + state->cluster.messages[step->number].message.to - 1),
                (int)('A' + state->cluster.messages[step->number].message.from - 1));
        break;
    case STEP_RESTART:
        fprintf(out, "crash %c keep %d\nstart %c\n", me, step->number, me);
        break;
    case STEP_WIPE:
        fprintf(out, "wipe %c\nstart %c\n", me, me);
        break;
    case STEP_ELECT:
        fprintf(out, "elect %c by", me);
        for (int i = 0; i < CLUSTER_NODES; i++)
            if (step->other >> i & 1)
                fprintf(out, " %c", 'A' + i);
        fputc('\n', out);
        break;
    case STEP_ADD:
    case STEP_PROMOTE:
    case STEP_REMOVE:
        fprintf(out, "change %c %s %c\n", me, words[step->kind], other);
        break;
    case STEP_TRANSFER:
    case STEP_DOWN:
        fprintf(out, "%s %c %c\n", words[step->kind], me, other);
        break;
    default:
        fprintf(out, "%s %c\n", words[step->kind], me);
        break;
    }
}

/* ---- when all faults end --------------------------------------------------------------------- */

bool explore_heals(const struct explore_state *state, struct explore_state *scratch)
{
    struct cluster *cluster = &scratch->cluster;
    uint64_t goal = state->cluster.committed_last;

    explore_copy(scratch, state);
    cluster->link_max = 0;
    for (int round = 0; round < HEAL_ROUNDS && !cluster->wrong[0]; round++) {
        for (int i = 0; i < cluster->node_count; i++) {
            struct cluster_node *node = &cluster->nodes[i];

            if (!node->used)
                continue;
            node->disk_waits = false;
            cluster_written(cluster, node);
            node->now_us += HEAL_ROUND_US;
            if (raft_next_us(cluster_raft(node)) <= node->now_us)
                cluster_time(cluster, node);
            if (raft_role(cluster_raft(node)) == RAFT_LEADER &&
                raft_last(cluster_raft(node)) == raft_commit(cluster_raft(node)))
                cluster_propose(cluster, node, 1, 8);
        }
        cluster_deliver_all(cluster);
        if (cluster->committed_last > goal)
            return true;
    }
    ghost_wrong(cluster, "nobody gets on after all faults have ended");
    return false;
}
