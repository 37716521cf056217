/* steps.c: how a cluster is moved, and how it begins. See cluster.h. */
#include "cluster_inside.h"

#define FOUNDED_CHAIN 77
#define DELIVERIES_MAX 2000

/* ---- steps ----------------------------------------------------------------------------------- */

void cluster_event(struct cluster *cluster, struct cluster_node *node, struct raft_event *event)
{
    if (!node->up)
        return;
    cluster_feed(cluster, node, event);
    cluster_flush(cluster, node);
}

void cluster_time(struct cluster *cluster, struct cluster_node *node)
{
    struct raft_event event = {.type = RAFT_ON_TIME};
    int64_t next_us = raft_next_us(cluster_raft(node));

    if (next_us > node->now_us && next_us != INT64_MAX)
        node->now_us = next_us;
    cluster_event(cluster, node, &event);
}

/* The sender of a snapshot gives up. If it arrives, an acknowledgement says so. */
static void snapshot_lost(struct cluster *cluster, const struct cluster_message *message)
{
    struct cluster_node *sender = cluster_node(cluster, message->message.from);
    struct raft_event sent = {.type = RAFT_ON_SNAPSHOT_SENT, .member.id = message->message.to};

    if (message->message.type == RAFT_SNAPSHOT && sender)
        cluster_event(cluster, sender, &sent);
}

void cluster_deliver(struct cluster *cluster, int at, bool keep_it)
{
    struct cluster_message in = cluster->messages[at];
    struct cluster_node *node = cluster_node(cluster, in.message.to);
    struct raft_entry entries[CLUSTER_ENTRIES];
    struct raft_event event = {.type = RAFT_ON_MESSAGE, .message = in.message};

    if (!keep_it)
        network_take_out(cluster, at);
    if (!node || !node->up)
        return;
    if (in.message.type == RAFT_SNAPSHOT) {
        cluster_take_snapshot(cluster, node, &in);
        cluster_flush(cluster, node);
        return;
    }
    for (uint32_t i = 0; i < in.count; i++)
        entries[i] = *cluster_entry(in.entries[i]);
    event.message.entries = entries;
    event.message.count = in.count;
    cluster_event(cluster, node, &event);
}

void cluster_install(struct cluster *cluster, const struct cluster_node *from, uint64_t to)
{
    struct cluster_message message = {
        .message = {.type = RAFT_SNAPSHOT, .from = from->id, .to = to, .term = from->term}};

    network_add_snapshot(from, &message);
    network_post(cluster, &message);
    cluster_deliver(cluster, cluster->message_count - 1, false);
}

void cluster_drop(struct cluster *cluster, int at)
{
    struct cluster_message out = cluster->messages[at];

    network_take_out(cluster, at);
    snapshot_lost(cluster, &out);
}

static bool is_spent(struct cluster *cluster, const struct raft_message *message)
{
    const struct cluster_node *node = cluster_node(cluster, message->to);

    if (!node)
        return true;
    switch (message->type) {
    case RAFT_VOTE_REPLY:
        return message->term < node->term || (!message->yes && message->term == node->term) ||
               raft_role(cluster_raft(node)) != RAFT_CANDIDATE;
    case RAFT_APPEND_REPLY:
    case RAFT_TIMEOUT_NOW:
        return message->term < node->term;
    default:
        return false;
    }
}

void cluster_forget(struct cluster *cluster)
{
    for (int i = cluster->message_count - 1; i >= 0; i--)
        if (is_spent(cluster, &cluster->messages[i].message))
            network_take_out(cluster, i);
}

void cluster_deliver_all(struct cluster *cluster)
{
    for (int left = DELIVERIES_MAX, at = 0; at < cluster->message_count && left > 0; left--) {
        const struct raft_message *message = &cluster->messages[at].message;

        if (cluster->held[message->from - 1][message->to - 1]) {
            at++;
            continue;
        }
        cluster_deliver(cluster, at, false);
        at = 0;
    }
}

static void propose_one(struct cluster *cluster, struct cluster_node *node, uint32_t size)
{
    struct raft_event event = {
        .type = RAFT_ON_PROPOSE, .now_us = node->now_us, .size = size, .sum = (uint32_t)node->id};
    struct raft_entry entry = {.size = size, .sum = event.sum, .type = RAFT_COMMAND};
    static struct raft_output output;

    raft_step(cluster_raft(node), &event, &output);
    if (cluster->tell)
        tell_output(cluster, node, &output, true);
    if (output.result != RAFT_OK)
        return;
    entry.term = raft_term(cluster_raft(node));
    entry.chain = raft_chain(cluster_log_id(node, output.index - 1).chain, entry.term, entry.type,
                             entry.size, entry.sum);
    node->log[output.index] = entry_keep(&entry, NULL, 0);
}

void cluster_propose(struct cluster *cluster, struct cluster_node *node, int count, uint32_t size)
{
    for (int i = 0; i < count; i++)
        propose_one(cluster, node, size);
    cluster_flush(cluster, node);
}

void cluster_change(struct cluster *cluster, struct cluster_node *node, uint8_t change,
                    uint64_t member, int64_t since_us)
{
    const struct cluster_node *target = cluster_node(cluster, member);
    struct raft_event event = {
        .type = RAFT_ON_CHANGE,
        .change = change,
        .member = {.id = member, .incarnation = target ? target->incarnation : 0},
        .since_us = since_us};

    cluster_event(cluster, node, &event);
}

void cluster_transfer(struct cluster *cluster, struct cluster_node *node, uint64_t to)
{
    struct raft_event event = {.type = RAFT_ON_TRANSFER, .member.id = to};

    cluster_event(cluster, node, &event);
}

void cluster_down(struct cluster *cluster, struct cluster_node *node, uint64_t peer)
{
    struct raft_event event = {.type = RAFT_ON_PEER_DOWN, .member.id = peer};

    cluster_event(cluster, node, &event);
}

void cluster_campaign(struct cluster *cluster, struct cluster_node *node)
{
    struct raft *raft = cluster_raft(node);
    uint64_t last = raft_last(raft);
    struct raft_event event = {.type = RAFT_ON_MESSAGE,
                               .message = {.type = RAFT_TIMEOUT_NOW,
                                           .from = node->id % CLUSTER_NODES + 1,
                                           .to = node->id,
                                           .term = raft_term(raft),
                                           .id = cluster_log_id(node, last)}};

    cluster_event(cluster, node, &event);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static struct cluster_node *use_node(struct cluster *cluster, uint64_t id)
{
    struct cluster_node *node = &cluster->nodes[id - 1];

    memset(node, 0, sizeof *node);
    node->id = id;
    node->incarnation = 1;
    node->used = true;
    node->now_us = 1000000;
    if (cluster->node_count < (int)id)
        cluster->node_count = (int)id;
    return node;
}

void cluster_add_node(struct cluster *cluster, uint64_t id)
{
    struct cluster_node *node = use_node(cluster, id);

    node_set_empty(node);
    cluster_start(cluster, node);
}

void cluster_begin(struct cluster *cluster, int voters, const struct raft_limits *limits)
{
    struct raft_members members = {.count = voters};
    uint8_t bytes[RAFT_CONFIG_BYTES_MAX];
    struct raft_entry entry = {
        .term = 1, .chain = FOUNDED_CHAIN + (uint64_t)voters, .type = RAFT_CONFIG};
    entry_ref config;

    memset(cluster, 0, sizeof *cluster);
    cluster->limits = *limits;
    if (raft_size(limits) > CLUSTER_BLOCK_BYTES) {
        fprintf(stderr, "cluster.c: a node needs %d bytes\n", (int)raft_size(limits));
        abort();
    }
    for (int i = 0; i < voters; i++)
        members.at[i] =
            (struct raft_member){.id = (uint64_t)i + 1, .incarnation = 1, .votes = true};
    entry.size = (uint32_t)raft_members_write(&members, bytes);
    config = entry_keep(&entry, bytes, entry.size);
    for (int i = 0; i < voters; i++) {
        struct cluster_node *node = use_node(cluster, (uint64_t)i + 1);

        node->term = 1;
        node->snapshot = (struct raft_id){1, 1, entry.chain};
        node->config = config;
        node->config_index = node->disk_last = node->disk_commit = 1;
        cluster_start(cluster, node);
    }
}

void cluster_set_log(struct cluster *cluster, struct cluster_node *node, const uint64_t *terms,
                     int count, uint64_t other)
{
    uint64_t chain = node->snapshot.chain;

    node->disk_last = node->snapshot.index;
    for (int i = 0; i < count; i++) {
        struct raft_entry entry = {
            .term = terms[i], .size = 8, .sum = other >> i & 1 ? 99 : 9, .type = RAFT_COMMAND};

        entry.chain = chain = raft_chain(chain, entry.term, entry.type, entry.size, entry.sum);
        node->disk[++node->disk_last] = entry_keep(&entry, NULL, 0);
        if (terms[i] > node->term) {
            node->term = terms[i];
            node->vote = 0;
        }
    }
    cluster_start(cluster, node);
}
