/* replica.h: one node's share in the replicated log. Commands go in; they are packed into entries,
 * committed by libraft and applied to the lock table, and the effects come out.
 *
 *     server ──submit──▶ batch ──pump──▶ in flight ──raft──▶ apply ──▶ host.effect
 *
 * One entry at a time is in flight; what comes meanwhile goes into the next, which takes off before the answers of the one
 * before it are given, if there is much to do: others write it meanwhile. All that decides here
 * (leading, batching, ticking, answering) knows neither sockets nor clocks: time, randomness and the
 * raft_io are handed in, and a simulator drives exactly this code. storage.h makes the
 * real raft_io.
 *
 * [R1] Nothing is answered before it is committed: durable on a majority, and applied here.
 * [R2] A node serves only after the first entry of its term is committed.
 * [R3] An entry brings the time that its leader counted since the one before it, and never more than
 *      CORE_ELAPSED_MAX_MS: the cluster's clock may lag behind, it never runs ahead.
 * [R4] What the disk refuses ends the node: it fails what is under way, says why, and takes no part
 *      in the cluster any more.
 *
 * Not for threads: everything happens on the caller's one. Memory that runs out ends the process. */
#ifndef REPLICA_REPLICA_H
#define REPLICA_REPLICA_H

#include "base/error.h"
#include "core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLICA_BATCH_MAX_BYTES (1u << 20) /* of commands in one entry */
#define REPLICA_BATCH_MAX_COUNT 16384u     /* commands in one entry */
#define REPLICA_GATHER_MAX_US 300          /* how long a batch waits for more, nothing in flight */
#define REPLICA_MANY 16u                   /* expected commands: a cluster waits for more of them */
#define REPLICA_ENOUGH 128u      /* commands in a batch: what an entry costs is shared by enough */
#define REPLICA_TICK_MAX_MS 250  /* between two entries while a deadline is open, at most, */
#define REPLICA_TICK_MIN_MS 10   /* and at least, if nothing else is to be said */
#define REPLICA_MEMBERS_MAX 32u  /* of a cluster */
#define REPLICA_ADDRESS_MAX 271u /* bytes: as in core.h, and as peers can reach */
#define REPLICA_LIFE_MAX 16u     /* bytes */
#define REPLICA_STALL_MS 5000    /* a disk that takes nothing for so long is told of, */
#define REPLICA_STALL_MAX_MS 30000 /* and after so long given up */

struct raft_io;
struct replica;

enum replica_role {
    REPLICA_FOLLOWING = 1, /* or looking for a leader */
    REPLICA_LEADING,       /* and its first entry of this term is committed: it may serve */
    REPLICA_STOPPED        /* of its own accord (host.stopped said why); for good */
};

enum replica_failure {
    REPLICA_NOT_LEADING = 1, /* the command certainly had no effect and never will */
    REPLICA_UNKNOWN          /* it may or may not have taken effect, now or later */
};

enum replica_change {                      /* what became of a change of members or of the leader */
                      REPLICA_CHANGED = 1, /* it is as was asked for */
                      REPLICA_UNCHANGED,   /* it was not possible */
                      REPLICA_PERHAPS      /* nobody here knows */
};

/* What is handed in. All of `effect`, `failed`, `changed`, `role`, `stopped` and `note` are called from within
 * replica_pump, replica_close or a callback of raft_io (`note` from replica_open too); they may
 * submit, not pump or close. */
struct replica_host {
    void *context;
    int64_t (*boot_us)(void *context); /* CLOCK_BOOTTIME */
    /* CLOCK_REALTIME, for what the tokens of a new cluster begin at, and nothing else. NULL: at 1. */
    int64_t (*wall_us)(void *context);
    void (*random)(void *context, void *bytes, size_t size);
    /* An effect of a committed entry. request: as given to replica_submit, for answers and reads of
     * this node's own entries; NULL for effects that are not somebody's answer. Answers to other
     * nodes' commands are not reported, nor is what replica_open replays. */
    void (*effect)(void *context, void *request, const struct core_effect *effect);
    /* There will be no effect for this request. */
    void (*failed)(void *context, void *request, enum replica_failure failure);
    /* What became of replica_add, replica_remove or replica_transfer. */
    void (*changed)(void *context, void *request, enum replica_change result);
    /* A change of role; it begins with FOLLOWING. What was under way has been failed before. */
    void (*role)(void *context, enum replica_role role);
    /* The node cannot go on (disk full or failing, a damaged log): in words. Everything under way
     * has been failed; what is committed is safe on disk. */
    void (*stopped)(void *context, const char *why);
    /* This node leads, and another one may have lost some of the log that it had acknowledged in this term: it is to be asked,
     * which is replica_asked there. May be NULL. */
    void (*doubts)(void *context, uint64_t id, uint64_t term, uint64_t index);
    /* Is there a connection to this node? One that has died is known to be gone by that, before it has been silent for long. NULL:
     * that cannot be told. */
    bool (*connected)(void *context, uint64_t id);
    /* An operator should know: level is of enum log_level by number (1 error … 4 debug). */
    void (*note)(void *context, int level, const char *text);
};

struct replica_options {
    uint64_t id;         /* of this node, from 1 */
    const char *address; /* of this node for its peers; "" for a node alone */
    /* The members that a new log begins with; none: it begins with what a leader sends. */
    const struct replica_member {
        uint64_t id;
        const char *address;
        const char *life; /* see identity.h; NULL: it is not known */
    } * members;
    int member_count;
    bool waits;                         /* it takes no part before replica_begin */
    uint32_t election_ms, heartbeat_ms; /* 0: 500 and 50 */
    const char *about;          /* where clients find this node; "" or NULL: it does not say */
    uint64_t snapshot_bytes;    /* of log before a snapshot is taken; 0: a default */
    uint32_t snapshot_trailing; /* entries kept behind a snapshot; 0: a default */
    uint64_t memory_bytes;      /* of log kept in memory that nobody needs; 0: a default */
};

/* io: borrowed until replica_close's callback, or after a failure until its own close is done. Some
 * of its functions are replaced meanwhile. Options are copied. On HF_OK the node is running, and
 * becomes leader in its own time. HF_EIO with words: damaged data, which is left as it is, or a disk
 * that cannot be used; HF_EINVAL: options that cannot be. */
int replica_open(const struct replica_options *options, struct raft_io *io,
                 const struct replica_host *host, struct replica **ret_replica,
                 struct error_text *err);
/* It was opened to wait. From now on it takes part: as one of these members, with which its log begins, or with none as one that
 * has been added to a cluster. The log is new in both cases. HF_EIO: in words; it cannot go on then. */
int replica_begin(struct replica *replica, const struct replica_member *members, int count,
                  struct error_text *err);
/* It was opened to wait, and what it needs to take part cannot be stored: it stops, as after any failure of the disk. */
void replica_cannot_begin(struct replica *replica, const struct error_text *why);
bool replica_waits(const struct replica *replica);
/* The leader of that term knows that this node had that entry of the log. If it is not there, this node stops. */
void replica_asked(struct replica *replica, uint64_t leader, uint64_t term, uint64_t index);
/* Fails what is under way; then calls done, after which nothing of it is left. That may be before it
 * returns, if the node has stopped. */
void replica_close(struct replica *replica, void (*done)(void *context), void *context);

/* Adds a command to the batch. HF_EUNREACH: this node does not lead (or is stopped), nothing
 * happened. HF_EBUSY: the batch is full; again after the next pump. HF_EINVAL: the command does not
 * obey the table's limits. The command is copied;
 * the request is only a name, never looked into. */
int replica_submit(struct replica *replica, const struct core_command *command, void *request);
/* Proposes what is due: to be called once in each round of the loop, after all its I/O (the
 * raft_io's, too) and all submitting, and when the time that it returns has come: microseconds from
 * now, 0 as soon as possible, -1 not before something happens.
 * expected: how many commands those clients that have sent something lately may send at once, for the size of a batch. */
int64_t replica_pump(struct replica *replica, uint32_t expected);
/* Does what can wait until nothing else is to do: to be called at the end of each round, and every millisecond while an entry is
 * on its way. */
void replica_rest(struct replica *replica);
/* An entry is on its way: until it is committed, commands only gather. */
bool replica_flying(const struct replica *replica);
/* The next entry has taken off before the answers of one that is committed: they are given when it is pumped again. */
bool replica_arrived(const struct replica *replica);
/* What is left to do is for the table of a follower, which nobody waits for, and takes a while: whoever else wants the CPU may go
 * first, its leader perhaps, or a client. */
bool replica_yields(const struct replica *replica);
/* An entry of what has been submitted would be worth its cost, and nothing is in flight: to submit more before the next pump
 * would only keep others waiting, who could write it meanwhile. */
bool replica_has_enough(const struct replica *replica);

const struct core *replica_table(const struct replica *replica);

struct replica_status {
    enum replica_role role;
    uint64_t id, leader_id; /* leader 0: none known */
    uint64_t term, last_index, commit_index, applied_index;
    uint64_t entries, commands, ticks;  /* proposed by this node */
    uint64_t log_bytes;                 /* since the last snapshot, */
    uint64_t memory_bytes;              /* and in memory, about */
    uint64_t snapshots, snapshot_bytes; /* taken; size of the last */
    uint64_t snapshots_installed;       /* that came from a leader */
    bool snapshotting;
};
/* Who leads, as far as this node knows; 0: nobody. */
uint64_t replica_leader(const struct replica *replica);
void replica_status(const struct replica *replica, struct replica_status *ret_status);

/* What nodes that have applied the same entries agree on. Takes a look at everything. */
struct replica_digest {
    uint64_t index;         /* of the last entry that is in the table */
    uint64_t table;         /* core_hash */
    uint64_t members;       /* a hash of their ids, roles, addresses and lives, */
    uint64_t members_index; /* and of which entry they are */
};
void replica_digest(const struct replica *replica, struct replica_digest *ret_digest);

/* ---- members ---------------------------------------------------------------------------------- */

struct replica_seen { /* a member, as this node sees it */
    uint64_t id;
    char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    char life[REPLICA_LIFE_MAX + 1];       /* see identity.h */
    bool votes;                            /* no: it is catching up */
    uint64_t
        match_index;   /* so much of the log it has on its disk; known to the leader only, else 0 */
    int64_t silent_ms; /* since it said something to this node; -1: it never did */
};
/* By their ids. Returns how many there are, at most max. */
unsigned replica_members(const struct replica *replica, struct replica_seen *ret_seen,
                         unsigned max);

/* The life of a member; "": its members have none. NULL: it is no member. Lives until the loop goes on. */
const char *replica_life(const struct replica *replica, uint64_t id);
/* Another number after each change of the members, be it agreed on or not. */
uint64_t replica_members_version(const struct replica *replica);
/* The members as they are known here are agreed on: none of their changes can be taken back. */
bool replica_members_agreed(const struct replica *replica);

/* The leader's business; one at a time. HF_OK: `changed` will be called, perhaps at once. HF_EUNREACH: this
 * node does not lead. HF_EBUSY: another change is under way. HF_EINVAL: it cannot be; all in words.
 * A node that is added gets the log first, and votes when it has caught up: replica_members says when. */
/* What replica_add would say, without adding: is_there, it is a member already. */
int replica_may_add(struct replica *replica, const struct replica_member *member,
                    bool *ret_is_there, struct error_text *err);
int replica_add(struct replica *replica, const struct replica_member *member, void *request,
                struct error_text *err);
int replica_remove(struct replica *replica, uint64_t id, void *request, struct error_text *err);
/* to: 0 for the one that is nearest. Nothing is proposed until another leads, or it has failed. */
int replica_transfer(struct replica *replica, uint64_t to, void *request, struct error_text *err);

#endif
