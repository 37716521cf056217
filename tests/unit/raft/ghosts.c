/* ghosts.c: what sees all nodes, and judges. See cluster.h. */
#include "cluster.h"

#include <stdarg.h>

static int letter(uint64_t id)
{
    return (int)('A' + id - 1);
}

void ghost_wrong(struct cluster *cluster, const char *format, ...)
{
    va_list args;

    if (cluster->wrong[0])
        return;
    va_start(args, format);
    vsnprintf(cluster->wrong, sizeof cluster->wrong, format, args);
    va_end(args);
}

/* R1, R4 */
static void see_leader(struct cluster *cluster, const struct cluster_node *node)
{
    uint64_t term = raft_term(cluster_raft(node));
    uint64_t *leader = &cluster->leaders[term % CLUSTER_TERMS];

    if (*leader == node->id)
        return;
    if (*leader != 0)
        ghost_wrong(cluster, "%c and %c lead in term %d", letter(*leader), letter(node->id),
                    (int)term);
    *leader = node->id;
    for (uint64_t i = node->snapshot.index + 1; i <= cluster->committed_last; i++)
        if (cluster->committed[i] && cluster->committed_term[i] < term &&
            (i > raft_last(cluster_raft(node)) || node->log[i] != cluster->committed[i])) {
            ghost_wrong(cluster, "%c leads in term %d without entry %d, which is committed",
                        letter(node->id), (int)term, (int)i);
            return;
        }
}

/* R7: it is on the follower's disk, and is what the leader has there. */
static void see_acknowledgement(struct cluster *cluster, struct cluster_node *node,
                                const struct raft_message *message)
{
    const struct cluster_node *leader = cluster_node(cluster, message->to);
    uint64_t index = message->index;

    if (node->acked_term != message->term || node->acked < index)
        node->acked = index;
    node->acked_term = message->term;
    if (index > node->disk_last ||
        (index > node->snapshot.index && node->disk[index] != node->log[index]))
        ghost_wrong(cluster, "%c acknowledges %d, which is not on its disk", letter(node->id),
                    (int)index);
    else if (leader && leader->up && raft_role(cluster_raft(leader)) == RAFT_LEADER &&
             raft_term(cluster_raft(leader)) == message->term && index > leader->snapshot.index &&
             index > node->snapshot.index &&
             (index > raft_last(cluster_raft(leader)) || node->disk[index] != leader->log[index]))
        ghost_wrong(cluster, "%c acknowledges %d, of which %c has another", letter(node->id),
                    (int)index, letter(leader->id));
}

/* R7: what a leader commits is on the disks of a majority. Unless one was lost since. */
static void see_disks(struct cluster *cluster, const struct cluster_node *leader, uint64_t index)
{
    struct raft_members members;
    int voters = 0, have = 0;

    raft_members(cluster_raft(leader), &members);
    for (int i = 0; i < members.count; i++) {
        const struct cluster_node *node = cluster_node(cluster, members.at[i].id);

        if (!members.at[i].votes)
            continue;
        if (!node || node->incarnation != members.at[i].incarnation)
            return;
        voters++;
        have += node->snapshot.index >= index ||
                (node->disk_last >= index && node->disk[index] == leader->log[index]);
    }
    if (2 * have <= voters)
        ghost_wrong(cluster, "%c commits %d, which %d of %d disks have", letter(leader->id),
                    (int)index, have, voters);
}

/* R6 */
static void see_message(struct cluster *cluster, struct cluster_node *node,
                        const struct raft_message *message)
{
    uint64_t asked = message->asked_term;

    if (message->type != RAFT_PRE_VOTE && message->term > node->term)
        ghost_wrong(cluster, "%c speaks of term %d, and its disk knows %d", letter(node->id),
                    (int)message->term, (int)node->term);
    if (message->type == RAFT_VOTE_REPLY && message->yes) {
        uint64_t *voted = &node->votes[asked % CLUSTER_TERMS];

        if (*voted != 0 && *voted != message->to)
            ghost_wrong(cluster, "%c votes for %c and %c in term %d", letter(node->id),
                        letter(*voted), letter(message->to), (int)asked);
        *voted = message->to;
        if (node->term != asked || node->vote != message->to)
            ghost_wrong(cluster, "%c votes for %c in term %d, and its disk does not know",
                        letter(node->id), letter(message->to), (int)asked);
    }
    if (message->type == RAFT_VOTE)
        node->votes[message->term % CLUSTER_TERMS] = node->id;
    if (message->type == RAFT_APPEND_REPLY && message->yes)
        see_acknowledgement(cluster, node, message);
}

/* R11: the one before, and an entry of this term, are committed. */
static void see_change(struct cluster *cluster, const struct cluster_node *node,
                       const struct raft_output *output)
{
    uint64_t before = output->index - 1;
    bool own = false;

    while (before > node->snapshot.index && cluster_entry(node->log[before])->type != RAFT_CONFIG)
        before--;
    for (uint64_t i = 1; i <= cluster->committed_last; i++)
        own = own || (cluster->committed[i] &&
                      cluster_entry(cluster->committed[i])->term == output->made.term);
    if (before > cluster->committed_last)
        ghost_wrong(cluster, "%c changes the members of %d, which are not committed",
                    letter(node->id), (int)before);
    if (!own)
        ghost_wrong(cluster, "%c changes the members before anything of term %d is committed",
                    letter(node->id), (int)output->made.term);
}

void ghost_output(struct cluster *cluster, struct cluster_node *node,
                  const struct raft_output *output)
{
    if (raft_role(cluster_raft(node)) == RAFT_LEADER)
        see_leader(cluster, node);
    for (int i = 0; i < output->message_count; i++)
        see_message(cluster, node, &output->messages[i]);
    if (output->made.type == RAFT_CONFIG)
        see_change(cluster, node, output);
}

/* R5, R9 */
void ghost_commit(struct cluster *cluster, struct cluster_node *node, uint64_t commit)
{
    if (commit < node->commit)
        ghost_wrong(cluster, "%c: the commit index goes back from %d to %d", letter(node->id),
                    (int)node->commit, (int)commit);
    for (uint64_t i = node->commit + 1; i <= commit; i++) {
        if (i <= node->snapshot.index)
            continue;
        if (cluster->committed[i] && cluster->committed[i] != node->log[i])
            ghost_wrong(cluster, "%c commits another entry at %d, of term %d and not %d",
                        letter(node->id), (int)i, (int)cluster_entry(node->log[i])->term,
                        (int)cluster_entry(cluster->committed[i])->term);
        if (!cluster->committed[i])
            cluster->committed_term[i] = raft_term(cluster_raft(node));
        cluster->committed[i] = node->log[i];
    }
    if (commit > node->commit && commit > node->snapshot.index &&
        raft_role(cluster_raft(node)) == RAFT_LEADER)
        see_disks(cluster, node, commit);
    if (commit > cluster->committed_last)
        cluster->committed_last = commit;
    node->commit = commit;
}

/* R7: as long as that leader may count on it. */
static void see_acknowledged(struct cluster *cluster, const struct cluster_node *node)
{
    if (node->acked_term == raft_term(cluster_raft(node)) &&
        node->acked > raft_last(cluster_raft(node)))
        ghost_wrong(cluster, "%c has acknowledged %d in this term, and has it no more",
                    letter(node->id), (int)node->acked);
}

/* R10, R12: the last in the log, or the snapshot's. */
static void see_members(struct cluster *cluster, const struct cluster_node *node)
{
    struct raft_members members;
    uint64_t index = raft_last(cluster_raft(node));

    raft_members(cluster_raft(node), &members);
    while (index > node->snapshot.index && cluster_entry(node->log[index])->type != RAFT_CONFIG)
        index--;
    if (index <= node->snapshot.index)
        index = node->config_index;
    if (members.index != index)
        ghost_wrong(cluster, "%c has the members of %d in effect, and %d is the last in its log",
                    letter(node->id), (int)members.index, (int)index);
}

/* R3 */
static void see_pair(struct cluster *cluster, const struct cluster_node *a,
                     const struct cluster_node *b)
{
    uint64_t first = a->snapshot.index > b->snapshot.index ? a->snapshot.index : b->snapshot.index;

    for (uint64_t i = first + 1; i <= raft_last(cluster_raft(a)) && i <= raft_last(cluster_raft(b));
         i++)
        if (a->log[i] != b->log[i] &&
            cluster_entry(a->log[i])->term == cluster_entry(b->log[i])->term)
            ghost_wrong(cluster, "%c and %c have other entries of the same term at %d",
                        letter(a->id), letter(b->id), (int)i);
}

void ghost_logs(struct cluster *cluster)
{
    for (int i = 0; i < cluster->node_count; i++) {
        if (!cluster->nodes[i].used || !cluster->nodes[i].up)
            continue;
        see_members(cluster, &cluster->nodes[i]);
        see_acknowledged(cluster, &cluster->nodes[i]);
        for (int j = 0; j < i; j++)
            if (cluster->nodes[j].used && cluster->nodes[j].up)
                see_pair(cluster, &cluster->nodes[i], &cluster->nodes[j]);
    }
}
