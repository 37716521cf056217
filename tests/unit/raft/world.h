/* world.h: nodes of src/raft with disks, a network and clocks that fail by one seed, and ghosts that see all of them.
 *
 * The ghosts share no code with what they judge: which node led in a term, whom a node voted for in a term, and which entry
 * is committed at an index. What contradicts them ends the world with words. */
#ifndef TESTS_RAFT_WORLD_H
#define TESTS_RAFT_WORLD_H

#include "raft/raft.h"

#define WORLD_NODES 8
#define WORLD_LOG 4096
#define WORLD_TERMS 4096
#define WORLD_MESSAGES 512
#define WORLD_WRITES 256
#define WORLD_ENTRIES 128 /* of a message */

struct world_entry {
    uint8_t bytes[RAFT_CONFIG_BYTES_MAX]; /* first: they lead back to it */
    struct raft_entry entry;
};

struct world_write {
    uint64_t first, last, epoch;
    uint64_t commit; /* known when it was given to the disk, and written with it */
    const struct world_entry *entries[WORLD_ENTRIES];
};

struct world_disk {
    uint64_t incarnation, term, vote;
    struct raft_id snapshot;
    struct raft_members members; /* as of the snapshot */
    uint64_t last, commit;
    const struct world_entry *log[WORLD_LOG];
};

struct world_node {
    uint64_t id;
    bool used, up, paused;
    struct raft *raft;
    struct world_disk disk;
    const struct world_entry *log[WORLD_LOG]; /* in memory */
    int write_count;
    struct world_write writes[WORLD_WRITES]; /* given to the disk, in order, not done */
    int64_t skew_us;                         /* of its clock */
    uint64_t commit;
};

struct world_message {
    bool snapshot; /* of members, id */
    struct raft_message message;
    struct raft_members members;
    uint32_t count;
    const struct world_entry *entries[WORLD_ENTRIES];
};

struct world {
    uint64_t seed, chance;
    struct raft_limits limits;
    int64_t now_us;
    struct world_node nodes[WORLD_NODES];
    int message_count;
    struct world_message *messages;
    struct world_entry *pool; /* all entries there ever were */
    int pool_count;
    /* What may happen, out of 1000 steps each. */
    int drop, duplicate, crash, wipe, change, transfer, snapshot, pause, cut;
    bool cuts[WORLD_NODES][WORLD_NODES]; /* from, to */

    uint64_t leaders[WORLD_TERMS];
    uint64_t votes[WORLD_NODES][WORLD_TERMS];
    const struct world_entry *committed[WORLD_LOG];
    uint64_t committed_last;
    uint64_t next_incarnation, next_command;

    int elections, changes, crashes, installs, transfers, commands, truncations;
    char wrong[256]; /* "": nothing */
};

void world_begin(struct world *world, uint64_t seed);
void world_end(struct world *world);
/* Something happens. False: something is wrong. */
bool world_step(struct world *world);
/* All faults end. False: no entry of a new leader is committed on all members, or something is wrong. */
bool world_heal(struct world *world);
/* What each node is, for a person. */
void world_print(const struct world *world);

#endif
