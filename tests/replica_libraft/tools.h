/* tools.h: what the tests of src/replica_libraft share: a host that remembers what it is told, and a replica
 * on a raft_io in memory whose time is the test's. */
#ifndef TESTS_REPLICA_TOOLS_H
#define TESTS_REPLICA_TOOLS_H

#include "memory_io.h"
#include "replica_libraft/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS_MAX 40000
#define ROLES_MAX 16
#define MS 1000            /* of boot time */
#define START_US 700000000 /* a machine that has been up for a while */

struct heard { /* of one request */
    uint32_t answers, failures;
    enum core_effect_kind kind;
    enum core_answer answer; /* the last one */
    uint64_t number;
    enum replica_failure failure;
};

struct witness {
    int64_t now_us;  /* 0: the machine's own clock */
    int64_t wall_us; /* 0: none; set before it is opened */
    uint64_t random;
    struct heard heard[REQUESTS_MAX]; /* a request is its number here */
    uint32_t answers, failures;       /* of all requests */
    uint32_t changes;                 /* EFFECT_CHANGED, */
    enum core_why why;                /* the last of them */
    enum replica_role roles[ROLES_MAX];
    int role_count;
    int changes_told; /* of members, or of the leader */
    void *changed;    /* the last one's request */
    enum replica_change change;
    char stopped[ERROR_TEXT_MAX];
    int stops;
    char noted[ERROR_TEXT_MAX];
    int notes;
    /* Called with each answer, if set. */
    void (*on_answer)(struct witness *witness, size_t request);
    void *context;
};

void witness_init(struct witness *witness);
struct replica_host witness_host(struct witness *witness);
enum replica_role witness_role(const struct witness *witness);
void *request(size_t number);

/* ---- commands --------------------------------------------------------------------------------- */

struct core_text text(const char *words);
struct core_command acquire(const char *name, const char *lease, uint32_t ttl_ms);
struct core_command read_now(void);
/* Number `number` of many: a name and a lease of its own, written into the buffers. */
struct core_command numbered(size_t number, uint32_t ttl_ms, char ret_name[32], char ret_lease[32]);
void submit_numbered(struct replica *replica, size_t number, uint32_t ttl_ms);

/* ---- a replica in memory ---------------------------------------------------------------------- */

struct rig {
    struct memory_io memory;
    struct witness witness;
    struct replica *replica;
    struct replica_options options; /* may be changed before rig_open */
    bool closed;
};

/* members: 1 or 3; this node is 1. */
void rig_init(struct rig *rig, int members);
/* Opens and nothing more. */
void rig_open(struct rig *rig);
/* Opens, and settles until it serves; with peers, they answer. */
void rig_serve(struct rig *rig);
/* Everything settles and is pumped until nothing is left to do now; no time passes. */
void rig_settle(struct rig *rig);
/* Time passes until `us` later, as the replica wishes to be called and with a tick every 100 ms. */
void rig_pass(struct rig *rig, int64_t us);
/* Bytes of an entry with so many commands, numbered from there on: raft_free. */
struct raft_buffer numbered_entry(size_t number, size_t commands);
/* Node 2 leads in term 2, and sends its entry of this number (from 1; the members are entry 1 of the log), with so many commands,
 * numbered from there on. */
void rig_follow(struct rig *rig, size_t number, size_t commands, raft_index commit);
/* The same with so many entries of one command, in one message. */
void rig_follow_many(struct rig *rig, size_t number, size_t entries, raft_index commit);
void rig_close(struct rig *rig);
/* As a crash would, and opens again. */
void rig_reopen(struct rig *rig);
void rig_free(struct rig *rig);

/* The header of a durable entry. */
struct core_entry_header rig_header(const struct rig *rig, raft_index index);
raft_index rig_last(const struct rig *rig);

#endif
