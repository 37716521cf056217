/* cluster.c: see cluster.h. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

#define FOUNDED_CHAIN 77
#define POOL 65536
#define SLOTS (2 * POOL)
#define DELIVERIES_MAX 2000

/* ---- entries --------------------------------------------------------------------------------- */

struct kept_entry {
    uint8_t bytes[2 + CLUSTER_NODES * 17]; /* first: they lead back to it */
    struct raft_entry entry;
};

static struct kept_entry pool[POOL];
static entry_ref pool_count;
static entry_ref slots[SLOTS]; /* by chain, which stands for all of the content */

static entry_ref keep(const struct raft_entry *entry, const void *bytes, size_t size)
{
    uint64_t slot = entry->chain % SLOTS;

    while (slots[slot] && pool[slots[slot]].entry.chain != entry->chain)
        slot = (slot + 1) % SLOTS;
    if (slots[slot])
        return slots[slot];
    if (pool_count == POOL - 1 || size > sizeof pool[0].bytes) {
        fprintf(stderr, "cluster.c: too many entries, or too large ones\n");
        abort();
    }
    slots[slot] = ++pool_count;
    pool[pool_count].entry = *entry;
    pool[pool_count].entry.bytes = pool[pool_count].bytes;
    if (size > 0)
        memcpy(pool[pool_count].bytes, bytes, size);
    return pool_count;
}

const struct raft_entry *cluster_entry(entry_ref ref)
{
    return &pool[ref].entry;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct cluster_node *cluster_node(struct cluster *cluster, uint64_t id)
{
    return id >= 1 && id <= CLUSTER_NODES && cluster->nodes[id - 1].used ? &cluster->nodes[id - 1]
                                                                         : NULL;
}

struct raft *cluster_raft(const struct cluster_node *node)
{
    return (struct raft *)(uintptr_t)node->block;
}

uint64_t cluster_log_term(const struct cluster_node *node, uint64_t index)
{
    if (index <= node->snapshot.index)
        return index == node->snapshot.index ? node->snapshot.term : 0;
    return cluster_entry(node->log[index])->term;
}

static uint64_t log_chain(const struct cluster_node *node, uint64_t index)
{
    return index == node->snapshot.index ? node->snapshot.chain
                                         : cluster_entry(node->log[index])->chain;
}

struct raft_id cluster_log_id(const struct cluster_node *node, uint64_t index)
{
    if (index == 0 || index < node->snapshot.index || index > raft_last(cluster_raft(node)))
        return (struct raft_id){0, 0, 0};
    return (struct raft_id){index, cluster_log_term(node, index), log_chain(node, index)};
}

void cluster_copy(struct cluster *to, const struct cluster *from)
{
    memcpy(to, from, offsetof(struct cluster, nodes));
    memcpy(to->nodes, from->nodes, (size_t)from->node_count * sizeof *from->nodes);
    to->message_count = from->message_count;
    memcpy(to->messages, from->messages, (size_t)from->message_count * sizeof *from->messages);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void take_out(struct cluster *cluster, int at)
{
    cluster->message_count--;
    memmove(&cluster->messages[at], &cluster->messages[at + 1],
            (size_t)(cluster->message_count - at) * sizeof *cluster->messages);
}

static void post(struct cluster *cluster, const struct cluster_message *message)
{
    int oldest = -1, count = 0;

    for (int i = cluster->message_count - 1; i >= 0; i--)
        if (cluster->messages[i].message.from == message->message.from &&
            cluster->messages[i].message.to == message->message.to) {
            oldest = i;
            count++;
        }
    if (cluster->link_max > 0 && count >= cluster->link_max)
        take_out(cluster, oldest);
    if (cluster->message_count == CLUSTER_MESSAGES) {
        fprintf(stderr, "cluster.c: too many messages\n");
        abort();
    }
    cluster->messages[cluster->message_count++] = *message;
}

static int feed(struct cluster *cluster, struct cluster_node *node, struct raft_event *event);

static void add_snapshot(const struct cluster_node *node, struct cluster_message *message)
{
    message->message.id = node->snapshot;
    message->config = node->config;
    message->config_index = node->config_index;
}

static void send_message(struct cluster *cluster, struct cluster_node *node,
                         const struct raft_message *message)
{
    struct cluster_message out = {.message = *message};
    struct raft_event gone = {.type = RAFT_ON_GONE, .member.id = message->to};
    bool entries = message->type == RAFT_APPEND && message->first <= message->last;
    uint64_t floor = node->snapshot.index;

    if (message->type == RAFT_SNAPSHOT)
        add_snapshot(node, &out);
    if (message->type == RAFT_APPEND && message->id.index > 0 && message->id.term == 0) {
        if (message->id.index < floor) {
            feed(cluster, node, &gone);
            return;
        }
        out.message.id.term = cluster_log_term(node, message->id.index);
        out.message.id.chain = log_chain(node, message->id.index);
    }
    if (entries && message->first <= floor) {
        feed(cluster, node, &gone);
        return;
    }
    for (uint64_t i = message->first; entries && i <= message->last && out.count < CLUSTER_ENTRIES;
         i++)
        out.entries[out.count++] = node->log[i];
    out.message.first = out.message.last = 0;
    if (cluster->tell)
        tell_message(cluster->tell, &out);
    post(cluster, &out);
}

/* ---- what a node puts out -------------------------------------------------------------------- */

static void begin_write(struct cluster_node *node, const struct raft_output *output)
{
    struct cluster_write *write = &node->writes[node->write_count++];

    if (node->write_count > CLUSTER_WRITES ||
        output->append_last - output->append_first >= CLUSTER_ENTRIES) {
        fprintf(stderr, "cluster.c: too many writes, or too large ones\n");
        abort();
    }
    *write = (struct cluster_write){.first = output->append_first,
                                    .last = output->append_last,
                                    .commit = output->commit,
                                    .epoch = output->append_epoch};
    for (uint64_t i = write->first; i <= write->last; i++)
        write->entries[i - write->first] = node->log[i];
    node->epoch = output->append_epoch;
}

static void take_entries(struct cluster_node *node, const struct raft_event *event,
                         const struct raft_output *output)
{
    const struct raft_message *message = &event->message;

    for (uint64_t i = output->taken; output->taken && i <= raft_last(cluster_raft(node)); i++)
        node->log[i] =
            (entry_ref)((const struct kept_entry *)message->entries[i - message->id.index - 1]
                            .bytes -
                        pool);
}

static void carry_out(struct cluster *cluster, struct cluster_node *node,
                      const struct raft_event *event, const struct raft_output *output)
{
    if (output->persist) {
        node->term = output->term;
        node->vote = output->vote;
    }
    if (raft_last(cluster_raft(node)) >= CLUSTER_LOG) {
        fprintf(stderr, "cluster.c: the log is too long\n");
        abort();
    }
    if (output->made.type)
        node->log[output->index] = keep(&output->made, output->made_bytes, output->made_size);
    take_entries(node, event, output);
    node->stopped = node->stopped || output->fatal;
    ghost_output(cluster, node, output);
    if (cluster->tell)
        tell_output(cluster, node, output, event->type != RAFT_ON_MESSAGE);
    if (output->append)
        begin_write(node, output);
    if (output->committed)
        ghost_commit(cluster, node, output->commit);
    for (int i = 0; i < output->message_count; i++)
        send_message(cluster, node, &output->messages[i]);
}

/* A stack of outputs, as one leads to another: they are large. Returns the result. */
static int feed(struct cluster *cluster, struct cluster_node *node, struct raft_event *event)
{
    static struct raft_output outputs[8];
    static int depth;
    const char *broken;

    if (depth == 8)
        abort();
    event->now_us = node->now_us;
    raft_step(cluster_raft(node), event, &outputs[depth]);
    broken = raft_check(cluster_raft(node));
    if (broken && !outputs[depth].fatal)
        ghost_wrong(cluster, "%c: %s", (int)('A' + node->id - 1), broken);
    depth++;
    carry_out(cluster, node, event, &outputs[depth - 1]);
    return outputs[--depth].result;
}

/* ---- disks ----------------------------------------------------------------------------------- */

static void write_some(struct cluster_node *node, const struct cluster_write *write, uint64_t last)
{
    for (uint64_t i = write->first; i <= last; i++)
        node->disk[i] = write->entries[i - write->first];
    node->disk_last = last;
    if (write->commit > node->disk_commit)
        node->disk_commit = write->commit;
}

static void finish_write(struct cluster *cluster, struct cluster_node *node)
{
    struct cluster_write write = node->writes[0];
    struct raft_event event = {
        .type = RAFT_ON_PERSISTED, .epoch = write.epoch, .index = write.last};

    memmove(node->writes, node->writes + 1, (size_t)--node->write_count * sizeof *node->writes);
    write_some(node, &write, write.last);
    feed(cluster, node, &event);
}

static void flush(struct cluster *cluster, struct cluster_node *node)
{
    struct raft_event event = {.type = RAFT_ON_FLUSH};

    feed(cluster, node, &event);
    while (!node->disk_waits && node->write_count > 0) {
        finish_write(cluster, node);
        feed(cluster, node, &event);
    }
}

void cluster_written(struct cluster *cluster, struct cluster_node *node)
{
    if (node->write_count == 0)
        return;
    finish_write(cluster, node);
    flush(cluster, node);
}

static void members_of_config(entry_ref config, uint64_t index, struct raft_members *ret_members)
{
    ret_members->count = 0;
    raft_members_read(pool[config].bytes, pool[config].entry.size, ret_members);
    ret_members->index = index;
}

void cluster_start(struct cluster *cluster, struct cluster_node *node)
{
    struct raft_members members;
    struct raft_boot boot = {.id = node->id,
                             .incarnation = node->incarnation,
                             .term = node->term,
                             .vote = node->vote,
                             .snapshot = node->snapshot,
                             .members = node->config ? &members : NULL,
                             .commit = node->snapshot.index,
                             .seed = node->id,
                             .now_us = node->now_us};

    members_of_config(node->config, node->config_index, &members);
    if (node->disk_commit > boot.commit)
        boot.commit = node->disk_commit < node->disk_last ? node->disk_commit : node->disk_last;
    raft_init(cluster_raft(node), &cluster->limits, &boot);
    for (uint64_t i = node->snapshot.index + 1; i <= node->disk_last; i++) {
        node->log[i] = node->disk[i];
        if (!raft_recover(cluster_raft(node), cluster_entry(node->disk[i])))
            ghost_wrong(cluster, "%c does not recover entry %d", (int)('A' + node->id - 1), (int)i);
    }
    node->write_count = 0;
    node->commit = 0;
    node->epoch = 0;
    node->up = true;
    node->stopped = false;
    tell_known(node);
    ghost_commit(cluster, node, raft_commit(cluster_raft(node)));
}

void cluster_crash(struct cluster *cluster, struct cluster_node *node, uint64_t kept)
{
    for (int i = 0; i < node->write_count && kept > 0; i++) {
        const struct cluster_write *write = &node->writes[i];
        uint64_t count = write->last - write->first + 1;

        if (count > kept)
            count = kept;
        write_some(node, write, write->first - 1 + count);
        kept -= count;
    }
    if (node->disk_last < node->snapshot.index)
        node->disk_last = node->snapshot.index;
    node->write_count = 0;
    node->up = false;
    (void)cluster;
}

static void set_empty(struct cluster_node *node)
{
    node->term = node->vote = node->config_index = 0;
    node->disk_last = node->disk_commit = 0;
    node->config = 0;
    node->snapshot = (struct raft_id){0, 0, 0};
    memset(node->votes, 0, sizeof node->votes);
}

void cluster_wipe(struct cluster *cluster, struct cluster_node *node)
{
    cluster_crash(cluster, node, 0);
    set_empty(node);
    node->incarnation++;
}

void cluster_snapshot(struct cluster *cluster, struct cluster_node *node)
{
    uint64_t index = node->commit;

    (void)cluster;
    if (index <= node->snapshot.index)
        return;
    for (uint64_t i = node->snapshot.index + 1; i <= index; i++)
        if (cluster_entry(node->log[i])->type == RAFT_CONFIG) {
            node->config = node->log[i];
            node->config_index = i;
        }
    node->snapshot = (struct raft_id){index, cluster_log_term(node, index), log_chain(node, index)};
    if (node->disk_last < index) /* it may be durable before the entries in it are */
        node->disk_last = index;
}

/* Does its sender lead, as far as this node knows? */
static bool hears(struct cluster *cluster, struct cluster_node *node,
                  const struct cluster_message *message)
{
    struct raft_event event = {.type = RAFT_ON_MESSAGE, .message = message->message};

    return feed(cluster, node, &event) == RAFT_OK && !node->stopped;
}

static void install(struct cluster *cluster, struct cluster_node *node,
                    const struct cluster_message *message)
{
    const struct raft_id *id = &message->message.id;
    struct raft_members members;
    struct raft_event event = {.type = RAFT_ON_INSTALLED, .id = *id, .members = &members};

    if (!hears(cluster, node, message))
        return;
    members_of_config(message->config, message->config_index, &members);
    if (id->index > node->commit) {
        bool holds = id->index <= raft_last(cluster_raft(node)) &&
                     id->index > node->snapshot.index && log_chain(node, id->index) == id->chain;

        node->snapshot = *id;
        node->config = message->config;
        node->config_index = message->config_index;
        if (!holds)
            node->write_count = 0;
        if (!holds || node->disk_last < id->index)
            node->disk_last = id->index;
    }
    feed(cluster, node, &event);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void cluster_event(struct cluster *cluster, struct cluster_node *node, struct raft_event *event)
{
    if (!node->up)
        return;
    feed(cluster, node, event);
    flush(cluster, node);
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
        take_out(cluster, at);
    if (!node || !node->up)
        return;
    if (in.message.type == RAFT_SNAPSHOT) {
        install(cluster, node, &in);
        flush(cluster, node);
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

    add_snapshot(from, &message);
    post(cluster, &message);
    cluster_deliver(cluster, cluster->message_count - 1, false);
}

void cluster_drop(struct cluster *cluster, int at)
{
    struct cluster_message out = cluster->messages[at];

    take_out(cluster, at);
    snapshot_lost(cluster, &out);
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
    entry.chain = raft_chain(log_chain(node, output.index - 1), entry.term, entry.type, entry.size,
                             entry.sum);
    node->log[output.index] = keep(&entry, NULL, 0);
}

void cluster_propose(struct cluster *cluster, struct cluster_node *node, int count, uint32_t size)
{
    for (int i = 0; i < count; i++)
        propose_one(cluster, node, size);
    flush(cluster, node);
}

void cluster_change(struct cluster *cluster, struct cluster_node *node, uint8_t change,
                    uint64_t member)
{
    const struct cluster_node *target = cluster_node(cluster, member);
    struct raft_event event = {
        .type = RAFT_ON_CHANGE,
        .change = change,
        .member = {.id = member, .incarnation = target ? target->incarnation : 0}};

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

    set_empty(node);
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
    config = keep(&entry, bytes, entry.size);
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
        node->disk[++node->disk_last] = keep(&entry, NULL, 0);
        if (terms[i] > node->term) {
            node->term = terms[i];
            node->vote = 0;
        }
    }
    cluster_start(cluster, node);
}
