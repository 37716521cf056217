/* explore_runs.c: where the explorer begins, what may happen, and what makes two states the same. */
#include "explore.h"

#include "search.h"

#include <string.h>

#define ANY EXPLORE_ANY

const struct explore_run explore_runs[] = {
    {.name = "core",
     .script = "cluster A B C bytes 0 links 1\n",
     .bounds = "3 voters, terms to 3, 1 command, 1 restart, 1 message twice, links 1",
     .terms = 3,
     .log = 4,
     .symmetric = true,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_AGAIN] = 1,
              [STEP_RESTART] = 1,
              [STEP_CAMPAIGN] = ANY,
              [STEP_PROPOSE] = 1,
              [STEP_DOWN] = ANY}},
    {.name = "divided",
     .script = "cluster A B C bytes 0 links 1\nlog A 2 term 3\nlog B 3\nlog C term 3\n",
     .bounds = "3 voters with logs of two terms, terms to 5, links 1",
     .terms = 5,
     .log = 5,
     .states = 500000,
     .most = {[STEP_DELIVER] = ANY, [STEP_CAMPAIGN] = ANY, [STEP_DOWN] = ANY}},
    {.name = "disk",
     .script = "cluster A B links 1\ndisk A waits\ndisk B waits\n",
     .bounds = "2 voters, disks that take their time, terms to 4, 2 commands, 2 crashes with any "
               "part of what waits, links 1",
     .terms = 4,
     .log = 6,
     .symmetric = true,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_AGAIN] = 1,
              [STEP_WRITTEN] = ANY,
              [STEP_RESTART] = 2,
              [STEP_CAMPAIGN] = ANY,
              [STEP_PROPOSE] = 2,
              [STEP_DOWN] = ANY}},
    {.name = "truncated",
     .script =
         "cluster A B C bytes 0 links 1\nlog A 2 term 3\nlog B 3\nlog C term 3\ndisk C waits\n",
     .bounds = "3 voters with logs of two terms, a disk that takes its time, 1 restart, terms to "
               "6, elections in one step, links 1",
     .terms = 6,
     .log = 5,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_EXCHANGE] = ANY,
              [STEP_WRITTEN] = ANY,
              [STEP_RESTART] = 1,
              [STEP_ELECT] = ANY,
              [STEP_DOWN] = ANY}},
    {.name = "members",
     .script = "cluster A B C D links 1\nelect A by B C\nsettle\n",
     .bounds =
         "4 voters with a leader, 2 removals, terms to 4, elections and exchanges in one step",
     .terms = 4,
     .log = 7,
     .states = 300000,
     .most = {[STEP_EXCHANGE] = ANY, [STEP_ELECT] = ANY, [STEP_REMOVE] = 2, [STEP_DOWN] = ANY}},
    {.name = "newcomer",
     .script = "cluster A B links 1\nnode C\n",
     .bounds = "2 voters and a newcomer, 3 changes, terms to 4, elections in one step, links 1",
     .terms = 4,
     .log = 7,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_ELECT] = ANY,
              [STEP_ADD] = 1,
              [STEP_PROMOTE] = 1,
              [STEP_REMOVE] = 1,
              [STEP_DOWN] = ANY}},
    {.name = "pre-vote",
     .script = "cluster A B C links 1\n",
     .bounds = "3 voters, time, 1 transfer, 1 restart, terms to 3, links 1",
     .terms = 3,
     .log = 4,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_TIME] = ANY,
              [STEP_RESTART] = 1,
              [STEP_TRANSFER] = 1,
              [STEP_DOWN] = ANY}},
    /* C has led, and has a change that nobody else has; A leads, and has a snapshot of what it has in its place. */
    {.name = "snapshot",
     .script =
         "cluster A B C window 4 links 1\nelect C by A B\nsettle\nchange C remove B\ndrop all\n"
         "elect A by B\nhold A C\nsettle\nsnapshot A\ndrop all\nrelease A C\ndown A C\n",
     .bounds = "3 voters, one of which needs a snapshot, window 4, 1 command, 2 snapshots, 1 "
               "restart, 1 message twice, terms to 5, elections in one step, links 1",
     .terms = 5,
     .log = 6,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_AGAIN] = 1,
              [STEP_ELECT] = ANY,
              [STEP_PROPOSE] = 1,
              [STEP_RESTART] = 1,
              [STEP_SNAPSHOT] = 2,
              [STEP_DOWN] = ANY}},
    {.name = "wiped",
     .script = "cluster A B C links 1\nelect A by B C\nsettle\n",
     .bounds = "3 voters with a leader, one loses its directory, 1 command, terms to 4, elections "
               "in one step, links 1",
     .terms = 4,
     .log = 5,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_ELECT] = ANY,
              [STEP_PROPOSE] = 1,
              [STEP_WIPE] = 1,
              [STEP_DOWN] = ANY}},
    {.name = "re-added",
     .script =
         "cluster A B C links 1\nelect A by B C\nsettle\nwipe C\nstart C\nchange A remove C\n",
     .bounds =
         "3 voters of which one has lost its directory, is being removed, added and promoted, "
         "terms to 4, elections and exchanges in one step",
     .terms = 4,
     .log = 8,
     .states = 300000,
     .most = {[STEP_DELIVER] = ANY,
              [STEP_EXCHANGE] = ANY,
              [STEP_ELECT] = ANY,
              [STEP_ADD] = 1,
              [STEP_PROMOTE] = 1,
              [STEP_DOWN] = ANY}},
};
const int explore_run_count = (int)(sizeof explore_runs / sizeof *explore_runs);

/* ---- fingerprints ---------------------------------------------------------------------------- */

static uint64_t mix_log(uint64_t hash, const entry_ref *log, uint64_t first, uint64_t last)
{
    hash = search_mix(hash, first << 32 | last);
    for (uint64_t i = first; i <= last; i++)
        hash = search_mix(hash, log[i]);
    return hash;
}

static uint64_t of_node(const struct cluster_node *node)
{
    static uint64_t bytes[CLUSTER_BLOCK_BYTES / 8];
    size_t size = raft_canonical(cluster_raft(node), node->now_us, bytes);
    uint64_t hash = search_mix(node->id, node->term << 16 | node->vote << 8 | node->incarnation);

    for (size_t i = 0; i < size / 8; i++)
        hash = search_mix(hash, bytes[i]);
    hash = search_mix(hash, node->snapshot.index << 32 | node->config_index);
    hash = search_mix(hash, node->snapshot.chain ^ node->disk_commit);
    hash = mix_log(hash, node->disk, node->snapshot.index + 1, node->disk_last);
    for (int i = 0; i < node->write_count; i++) {
        const struct cluster_write *write = &node->writes[i];

        hash = search_mix(hash, write->commit << 8 | (write->epoch == node->epoch));
        hash = search_mix(hash, write->first << 32 | write->last);
        hash = mix_log(hash, write->entries, 0, write->last - write->first);
    }
    hash = search_mix(hash, node->acked << 32 | node->acked_term);
    for (int i = 0; i < CLUSTER_TERMS; i++)
        if (node->votes[i])
            hash = search_mix(hash, (uint64_t)i << 8 | node->votes[i]);
    return hash;
}

static uint64_t of_message(const struct cluster_message *full)
{
    const struct raft_message *message = &full->message;
    uint64_t hash =
        search_mix(message->type, message->from << 24 | message->to << 16 | message->incarnation);

    hash = search_mix(hash, message->term << 32 | message->asked_term);
    hash = search_mix(hash, message->id.index << 32 | message->id.term);
    hash = search_mix(hash, message->id.chain);
    hash = search_mix(hash, message->commit << 32 | message->index);
    hash = search_mix(hash, message->hint_index << 32 | message->hint_term);
    hash = search_mix(hash, message->acked << 32 | message->acked_by);
    hash = search_mix(hash, (uint64_t)message->yes << 1 | message->transfer);
    hash = search_mix(hash, full->config);
    for (uint32_t i = 0; i < full->count; i++)
        hash = search_mix(hash, full->entries[i]);
    return hash;
}

uint64_t explore_fingerprint(const struct explore_state *state)
{
    const struct cluster *cluster = &state->cluster;
    uint64_t hash = 1, network = 0;

    for (int i = 0; i < STEP_KINDS; i++)
        hash = search_mix(hash, state->done[i]);
    for (int i = 0; i < cluster->node_count; i++)
        if (cluster->nodes[i].used)
            hash = search_mix(hash, of_node(&cluster->nodes[i]));
    /* Any of the messages may come next: their order is nothing. */
    for (int i = 0; i < cluster->message_count; i++)
        network += search_mix(of_message(&cluster->messages[i]), 77);
    hash = search_mix(hash, network);
    for (int i = 0; i < CLUSTER_TERMS; i++)
        if (cluster->leaders[i])
            hash = search_mix(hash, (uint64_t)i << 8 | cluster->leaders[i]);
    hash = mix_log(hash, cluster->committed, 2, cluster->committed_last);
    for (uint64_t i = 2; i <= cluster->committed_last; i++)
        hash = search_mix(hash, cluster->committed_term[i]);
    return hash ? hash : 1;
}
