/* network.c: entries, and the messages that are under way with them. See cluster.h. */
#include "cluster_inside.h"

#define POOL 65536
#define SLOTS (2 * POOL)

/* ---- entries --------------------------------------------------------------------------------- */

struct kept_entry {
    uint8_t bytes[2 + CLUSTER_NODES * 17]; /* first: they lead back to it */
    struct raft_entry entry;
};

static struct kept_entry pool[POOL];
static entry_ref pool_count;
static entry_ref slots[SLOTS]; /* by chain, which stands for all of the content */

entry_ref entry_keep(const struct raft_entry *entry, const void *bytes, size_t size)
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

entry_ref entry_of_bytes(const void *bytes)
{
    return (entry_ref)((const struct kept_entry *)bytes - pool);
}

const struct raft_entry *cluster_entry(entry_ref ref)
{
    return &pool[ref].entry;
}

/* ---- the network ----------------------------------------------------------------------------- */

void network_take_out(struct cluster *cluster, int at)
{
    cluster->message_count--;
    memmove(&cluster->messages[at], &cluster->messages[at + 1],
            (size_t)(cluster->message_count - at) * sizeof *cluster->messages);
}

/* A snapshot is not one of a link's messages: whoever sends it waits for it. */
void network_post(struct cluster *cluster, const struct cluster_message *message)
{
    int oldest = -1, count = 0;

    for (int i = cluster->message_count - 1; i >= 0; i--)
        if (cluster->messages[i].message.from == message->message.from &&
            cluster->messages[i].message.to == message->message.to &&
            cluster->messages[i].message.type != RAFT_SNAPSHOT) {
            oldest = i;
            count++;
        }
    if (cluster->link_max > 0 && count >= cluster->link_max &&
        message->message.type != RAFT_SNAPSHOT)
        network_take_out(cluster, oldest);
    if (cluster->message_count == CLUSTER_MESSAGES) {
        fprintf(stderr, "cluster.c: too many messages\n");
        abort();
    }
    cluster->messages[cluster->message_count++] = *message;
}

void network_add_snapshot(const struct cluster_node *node, struct cluster_message *message)
{
    message->message.id = node->snapshot;
    message->config = node->config;
    message->config_index = node->config_index;
}

void network_send(struct cluster *cluster, struct cluster_node *node,
                  const struct raft_message *message)
{
    struct cluster_message out = {.message = *message};
    struct raft_event gone = {.type = RAFT_ON_GONE, .member.id = message->to};
    bool entries = message->type == RAFT_APPEND && message->first <= message->last;
    uint64_t floor = node->snapshot.index;

    if (message->type == RAFT_SNAPSHOT)
        network_add_snapshot(node, &out);
    if (message->type == RAFT_APPEND && message->id.index > 0 && message->id.term == 0) {
        if (message->id.index < floor) {
            cluster_feed(cluster, node, &gone);
            return;
        }
        out.message.id.term = cluster_log_term(node, message->id.index);
        out.message.id.chain = cluster_log_id(node, message->id.index).chain;
    }
    if (entries && message->first <= floor) {
        cluster_feed(cluster, node, &gone);
        return;
    }
    for (uint64_t i = message->first; entries && i <= message->last && out.count < CLUSTER_ENTRIES;
         i++)
        out.entries[out.count++] = node->log[i];
    out.message.first = out.message.last = 0;
    if (cluster->tell)
        tell_message(cluster->tell, &out);
    network_post(cluster, &out);
}
