/* cluster.c: nodes with disks. See cluster.h. */
#include "cluster_inside.h"

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

    for (uint64_t i = output->taken;
         output->taken && message->entries && i <= raft_last(cluster_raft(node)); i++)
        node->log[i] = entry_of_bytes(message->entries[i - message->id.index - 1].bytes);
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
        node->log[output->index] = entry_keep(&output->made, output->made_bytes, output->made_size);
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
        network_send(cluster, node, &output->messages[i]);
}

/* A stack of outputs, as one leads to another: they are large. Returns the result. */
int cluster_feed(struct cluster *cluster, struct cluster_node *node, struct raft_event *event)
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
    cluster_feed(cluster, node, &event);
}

void cluster_flush(struct cluster *cluster, struct cluster_node *node)
{
    struct raft_event event = {.type = RAFT_ON_FLUSH};

    cluster_feed(cluster, node, &event);
    while (!node->disk_waits && node->write_count > 0) {
        finish_write(cluster, node);
        cluster_feed(cluster, node, &event);
    }
}

void cluster_written(struct cluster *cluster, struct cluster_node *node)
{
    if (node->write_count == 0)
        return;
    finish_write(cluster, node);
    cluster_flush(cluster, node);
}

static void members_of_config(entry_ref config, uint64_t index, struct raft_members *ret_members)
{
    ret_members->count = 0;
    raft_members_read(cluster_entry(config)->bytes, cluster_entry(config)->size, ret_members);
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

void node_set_empty(struct cluster_node *node)
{
    node->term = node->vote = node->config_index = node->acked = 0;
    node->disk_last = node->disk_commit = 0;
    node->config = 0;
    node->snapshot = (struct raft_id){0, 0, 0};
    memset(node->votes, 0, sizeof node->votes);
}

void cluster_wipe(struct cluster *cluster, struct cluster_node *node)
{
    cluster_crash(cluster, node, 0);
    node_set_empty(node);
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

    return cluster_feed(cluster, node, &event) == RAFT_OK && !node->stopped;
}

void cluster_take_snapshot(struct cluster *cluster, struct cluster_node *node,
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
    cluster_feed(cluster, node, &event);
}
