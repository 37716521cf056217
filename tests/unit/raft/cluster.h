/* cluster.h: a few nodes of src/raft with disks and a network, moved by hand, one step at a time.
 *
 * For scripts, where a person moves them, and for the explorer, which tries every move: so it is one block without pointers
 * into itself, and small. Each node has its own clock. Every step ends the node's round (RAFT_ON_FLUSH).
 *
 * Ghosts see all nodes, and share no code with what they judge: who led in a term (R1), whom a node voted for in a term and
 * whether its disk knew (R6), which entry is committed at an index (R4, R5, R9), what an acknowledgement stands for (R7), and
 * which configurations a log has (R10, R11). What contradicts them is put into `wrong`. */
#ifndef TESTS_RAFT_CLUSTER_H
#define TESTS_RAFT_CLUSTER_H

#include "raft/raft.h"

#include <stdio.h>

#define CLUSTER_NODES 6
#define CLUSTER_LOG 32
#define CLUSTER_TERMS 32
#define CLUSTER_MESSAGES 64
#define CLUSTER_WRITES 8
#define CLUSTER_ENTRIES 12       /* of a message, or of a write */
#define CLUSTER_BLOCK_BYTES 2560 /* of a node */
#define CLUSTER_ELECTION_US 500000
#define CLUSTER_HEARTBEAT_US 50000

/* An entry is a number: all that there ever were are kept, each once. 0: none. */
typedef uint32_t entry_ref;

struct cluster_write {
    uint64_t first, last, commit, epoch;
    entry_ref entries[CLUSTER_ENTRIES];
};

/* Of type RAFT_SNAPSHOT: the snapshot itself, of `id`, with its configuration. */
struct cluster_message {
    struct raft_message message;
    uint32_t count;
    entry_ref entries[CLUSTER_ENTRIES];
    entry_ref config;
    uint64_t config_index;
};

struct cluster_node {
    uint64_t id, incarnation;
    bool used, up, stopped;
    bool disk_waits; /* for cluster_written; else all is durable at once */

    /* What is durable. */
    uint64_t term, vote;
    struct raft_id snapshot;
    entry_ref config; /* as of the snapshot */
    uint64_t config_index;
    uint64_t disk_last, disk_commit;
    entry_ref disk[CLUSTER_LOG];

    /* In memory. */
    entry_ref log[CLUSTER_LOG];
    uint64_t epoch, commit;
    int64_t now_us;
    int write_count;
    struct cluster_write writes[CLUSTER_WRITES]; /* given to the disk, in order, not done */

    /* Ghosts. */
    uint64_t votes[CLUSTER_TERMS];
    uint64_t acked,
        acked_term; /* the most that it has acknowledged in that term, the last one in which it did */
    struct {
        int role;
        uint64_t leader, term, members;
    } told;
    uint64_t block[CLUSTER_BLOCK_BYTES / 8];
};

struct cluster {
    struct raft_limits limits;
    FILE *tell;   /* what happens, line by line; NULL: silent */
    int link_max; /* messages from one node to another: the oldest are lost; 0: no limit */
    bool held[CLUSTER_NODES][CLUSTER_NODES]; /* from, to: not by cluster_deliver_all */
    uint64_t leaders[CLUSTER_TERMS];
    entry_ref committed[CLUSTER_LOG];
    uint64_t committed_term[CLUSTER_LOG]; /* in which it was, first */
    uint64_t committed_last;
    char wrong[160]; /* "": nothing */
    int node_count;
    struct cluster_node nodes[CLUSTER_NODES];
    int message_count;
    struct cluster_message messages[CLUSTER_MESSAGES];
};

/* Voters 1 to `voters`, whose configuration is entry 1 of term 1: all have a snapshot of that. */
void cluster_begin(struct cluster *cluster, int voters, const struct raft_limits *limits);
void cluster_copy(struct cluster *to, const struct cluster *from);
struct cluster_node *cluster_node(struct cluster *cluster, uint64_t id); /* NULL: no such */
struct raft *cluster_raft(const struct cluster_node *node);
/* An empty node that knows nobody. */
void cluster_add_node(struct cluster *cluster, uint64_t id);
/* Another life of a node, whose disk has commands of these terms behind entry 1; `other` has bits of those that have another
 * content. */
void cluster_set_log(struct cluster *cluster, struct cluster_node *node, const uint64_t *terms,
                     int count, uint64_t other);

const struct raft_entry *cluster_entry(entry_ref ref);
uint64_t cluster_log_term(const struct cluster_node *node, uint64_t index);
/* What its log has there; all 0: nothing, or no more. */
struct raft_id cluster_log_id(const struct cluster_node *node, uint64_t index);

/* ---- steps */

/* To when it is due next, if that is later. */
void cluster_time(struct cluster *cluster, struct cluster_node *node);
void cluster_deliver(struct cluster *cluster, int at, bool keep);
void cluster_drop(struct cluster *cluster, int at);
void cluster_deliver_all(struct cluster *cluster);
/* Messages that can have no effect any more, whatever happens: replies of earlier terms, and votes that were refused. */
void cluster_forget(struct cluster *cluster);
void cluster_written(struct cluster *cluster, struct cluster_node *node);
/* Of the writes that are not done, so many entries are there afterwards. */
void cluster_crash(struct cluster *cluster, struct cluster_node *node, uint64_t kept);
/* Its directory is lost: another incarnation. It is down. */
void cluster_wipe(struct cluster *cluster, struct cluster_node *node);
void cluster_start(struct cluster *cluster, struct cluster_node *node);
void cluster_propose(struct cluster *cluster, struct cluster_node *node, int count, uint32_t size);
void cluster_change(struct cluster *cluster, struct cluster_node *node, uint8_t change,
                    uint64_t member, int64_t since_us);
void cluster_transfer(struct cluster *cluster, struct cluster_node *node, uint64_t to);
void cluster_down(struct cluster *cluster, struct cluster_node *node, uint64_t peer);
/* Of all that it knows to be committed. */
void cluster_snapshot(struct cluster *cluster, struct cluster_node *node);
/* It gets the snapshot that the other one has. */
void cluster_install(struct cluster *cluster, const struct cluster_node *from, uint64_t to);
/* At once and without pre-vote, as if a leader had told it to. */
void cluster_campaign(struct cluster *cluster, struct cluster_node *node);
void cluster_event(struct cluster *cluster, struct cluster_node *node, struct raft_event *event);

/* ---- ghosts.c */

void ghost_wrong(struct cluster *cluster, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Before the output's messages leave. */
void ghost_output(struct cluster *cluster, struct cluster_node *node,
                  const struct raft_output *output);
void ghost_commit(struct cluster *cluster, struct cluster_node *node, uint64_t commit);
/* After the step: what holds between nodes. */
void ghost_logs(struct cluster *cluster);

/* ---- tell.c: 'A' is node 1 */

void tell_message(FILE *out, const struct cluster_message *message);
/* asked: the result is told. */
void tell_output(struct cluster *cluster, struct cluster_node *node,
                 const struct raft_output *output, bool asked);
/* What it is now need not be told. */
void tell_known(struct cluster_node *node);
void tell_state(FILE *out, const struct cluster_node *node);

#endif
