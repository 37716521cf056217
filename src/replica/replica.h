/* replica.h: one node's share in the replicated log, as a pure state machine: raft, the lock table, and what is between them.
 *
 *                   ┌────────────────────────────── replica ───────────────────────────────┐
 *     submit ──────▶│ batch ──pump──▶ propose ──▶ ┌──────┐ ──▶ commit ──▶ apply ──▶ effects │──▶ host
 *     received ────▶│ message ──────────────────▶ │ raft │ ──▶ entries, acknowledgements ───│──▶ io.send
 *     written ─────▶│ log (bytes of the entries) ▶└──────┘ ──▶ term, vote, entries ─────────│──▶ io.store_term, io.append
 *                   └───────────────────────────────────────────────────────────────────────┘
 *
 * No clock, no sockets, no files, no threads, no randomness but a seed: every call is told the time, and what is to be done
 * outside goes through struct replica_io, whose functions only take note of it and never call back. The node (src/node) does it;
 * so does the simulator, with exactly this code.
 *
 * A round of whoever drives it: feed what has come (received, written, submit, …), then replica_pump, once; carry out what
 * io was told; sleep until the time that pump returned, or something comes.
 *
 * [P1] Nothing is answered before it is committed and applied here.
 * [P2] A node serves only after the first entry of its own term is committed and applied.
 * [P3] An entry brings the time that its leader counted since the one that it proposed before, never more than
 *      CORE_ELAPSED_MAX_MS: the cluster's clock may lag behind, it never runs ahead. What is fixed in its bytes counts; entries that
 *      are lost with a term take their time along.
 * [P4] A request is answered by effects of the entry at the index *and term* at which it was proposed. A leader that is deposed
 *      fails what it has not proposed as certainly without effect, and the rest as unknown.
 * [P5] What the disk refuses, or raft finds fatal, stops the node: what is under way fails, and nothing is sent any more.
 * [P6] The configuration of a snapshot is the one that was *applied* last (raft.h R12), with the addresses that belong to it.
 * [P7] A snapshot is installed after the whole of it was checked against a table of its own; the old table serves until then.
 * [P8] A version of the formats is in effect when all members read it and have agreed on it; then a node that does not read it
 *      stops, or does not start.
 * [P9] A node whose table is another than the majority's, after the same entries, stops.
 *
 * Memory that runs out ends the process. */
#ifndef REPLICA_REPLICA_H
#define REPLICA_REPLICA_H

#include "base/error.h"
#include "base/histogram.h"
#include "core/core.h"
#include "journal/journal.h"
#include "raft/raft.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define REPLICA_MEMBERS_MAX RAFT_MEMBERS_MAX
#define REPLICA_ADDRESS_MAX 271u /* bytes: as in core.h, and as peers can reach */
#define REPLICA_CLUSTER 16u      /* bytes of a cluster's id */
#ifndef REPLICA_VERSION          /* tests build an older and a newer one */
#define REPLICA_VERSION 2u       /* of the formats: the newest that this code reads (version.c) */
#endif
#define REPLICA_VERSION_MAX 255u
#define REPLICA_PIECE_BYTES \
    (256u << 10) /* of a snapshot, or of the log read from disk, in a message */

struct replica;

enum replica_role {
    REPLICA_FOLLOWING = 1, /* or looking for a leader */
    REPLICA_LEADING,       /* and it may serve, see [P2] */
    REPLICA_STOPPED        /* of its own accord (host.stopped said why); for good */
};

enum replica_failure {
    REPLICA_NOT_LEADING = 1, /* the command certainly had no effect and never will */
    REPLICA_UNKNOWN          /* it may or may not have taken effect, now or later */
};

enum replica_change {                      /* what became of a change of members or of the leader */
                      REPLICA_CHANGED = 1, /* it is as was asked for */
                      REPLICA_UNCHANGED,   /* it was not possible, and will not come later */
                      REPLICA_NO_MAJORITY, /* likewise: too few of those who would be left answer */
                      REPLICA_PERHAPS      /* nobody here knows */
};

struct replica_member {
    uint64_t id, incarnation;
    bool votes;
    char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    uint32_t
        version; /* for replica_add: the newest of the formats that it reads; 0: not known. Not in the log */
};

/* Members as one entry of the log has them. As bytes: raft's part (raft_members_write), then the addresses in the same order,
 * each with its length in two bytes before it. */
struct replica_config {
    uint64_t index; /* of its entry; 0: none */
    int count;
    struct replica_member at[REPLICA_MEMBERS_MAX];
};

/* A snapshot. */
struct replica_snapshot {
    struct raft_id id; /* of the last entry in it; index 0: there is none */
    unsigned char cluster[REPLICA_CLUSTER];
    uint32_t version; /* of the formats, in effect as of its index; 0 is written as 1 */
    struct replica_config config;
    const void *table; /* core_snapshot's bytes */
    size_t table_size;
};

#define REPLICA_CONFIG_BYTES_MAX \
    (RAFT_CONFIG_BYTES_MAX + REPLICA_MEMBERS_MAX * (2 + REPLICA_ADDRESS_MAX))
#define REPLICA_SNAPSHOT_HEAD_MAX (96 + REPLICA_CONFIG_BYTES_MAX)

/* Returns the size. */
size_t replica_config_write(const struct replica_config *config,
                            uint8_t ret_bytes[REPLICA_CONFIG_BYTES_MAX]);
/* False: bytes that are no configuration. index is not touched. */
bool replica_config_read(const void *bytes, size_t size, struct replica_config *ret_config);
/* A snapshot as bytes, on disk and between nodes: what is before the table. Returns its size; the table follows. */
size_t replica_snapshot_encode(const struct replica_snapshot *snapshot,
                               uint8_t ret_head[REPLICA_SNAPSHOT_HEAD_MAX]);
/* False: they are damaged, or no snapshot. The table points into them. */
bool replica_snapshot_decode(const void *bytes, size_t size, struct replica_snapshot *ret_snapshot);

/* ---- what is handed in ------------------------------------------------------------------------ */

/* What is to be done outside. They are called from within the functions below, take note, and return: none of them calls the
 * replica. Bytes are borrowed for as long as is said. */
struct replica_io {
    void *context;
    /* Durable when it returns HF_OK: nothing that depends on it has left before. Anything else stops the node. */
    int (*store_term)(void *context, uint64_t term, uint64_t vote, struct error_text *err);
    /* To be written to the log, behind what was given before; a first index that is not above the last replaces [J4]. When it is
     * durable, replica_written with this number, which grow by one. The records are borrowed for the call, their bytes stay
     * until then. */
    void (*append)(void *context, uint64_t number, const struct journal_record *records,
                   size_t count);
    /* The pieces of one message, borrowed for the call. Whether it arrives is not known. address: NULL if no configuration that
     * this node knows has it; it has asked, so there is a connection, or there is nobody to answer to. */
    void (*send)(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                 unsigned count);
    /* Entries of the log from disk, at most so many bytes but at least one: then replica_log_read. One at a time for each `to`. */
    void (*read_log)(void *context, uint64_t to, uint64_t first, uint64_t last, size_t bytes_max);
    /* The whole log is dropped (journal_reset), and the next append may begin anywhere: what was found on disk does not reach
     * the snapshot, or does not go with it. Durable when it returns HF_OK. Called by replica_start only. */
    int (*reset_log)(void *context, struct error_text *err);
    /* To be stored, instead of an older one: then replica_snapshot_stored. One at a time; the table's bytes stay until then.
     * installs: it came from a leader, and when it is durable the log is dropped (journal_reset), unless keeps_log; no append is
     * under way then, nor comes one before replica_snapshot_stored. */
    void (*store_snapshot)(void *context, const struct replica_snapshot *snapshot, bool installs,
                           bool keeps_log);
    /* A piece of the snapshot with that index that is on disk, as bytes of replica_snapshot_encode and the table behind them: then
     * replica_snapshot_read. One at a time for each `to`. A snapshot that is being read should stay readable though a newer one is
     * stored: else the next one is sent from its beginning. */
    void (*read_snapshot)(void *context, uint64_t to, uint64_t index, uint64_t offset, size_t size);
    /* Nobody needs entries of the log up to this one any more. */
    void (*trim_log)(void *context, uint64_t index);
};

/* Called from within the functions below; they may submit, nothing else. */
struct replica_host {
    void *context;
    /* An effect of a committed entry. request: as given to replica_submit, for answers and reads of this node's own entries;
     * NULL for effects that are not somebody's answer. Answers to other nodes' commands are not reported, nor is what is
     * applied while a node starts. */
    void (*effect)(void *context, void *request, const struct core_effect *effect);
    /* There will be no effect for this request. */
    void (*failed)(void *context, void *request, enum replica_failure failure);
    /* What became of replica_add, replica_remove, replica_move or replica_transfer. */
    void (*changed)(void *context, void *request, enum replica_change result);
    /* A change of role; it begins with FOLLOWING. What was under way has been failed before. */
    void (*role)(void *context, enum replica_role role);
    /* The node cannot go on, in words. Everything under way has been failed. */
    void (*stopped)(void *context, const char *why);
    /* The members in effect are others now: who is to be connected to. */
    void (*members)(void *context);
    /* This node was elected, and its first entry is about to be proposed: with what the host packs into it, of which it will hear
     * no more. May be NULL. */
    void (*elected)(void *context, struct core_packer *packer);
    /* An operator should know: level is of enum log_level by number (1 error … 4 debug). */
    void (*note)(void *context, int level, const char *text);
};

struct replica_options {
    uint64_t id, incarnation; /* of this node */
    uint64_t seed; /* for timeouts, and hash tables that nobody outside can make collide */
    uint32_t election_ms, heartbeat_ms; /* 0: as in schedule.c */
    uint64_t
        snapshot_bytes; /* of log before a snapshot is taken; 0: as in schedule.c, like the next */
    uint32_t snapshot_trailing; /* entries kept behind a snapshot, for who is a little behind */
    uint64_t memory_bytes;      /* of entries that are kept in memory though applied */
    uint32_t window;            /* entries that may be above the commit index */
    uint32_t in_flight_bytes;   /* to one follower, not acknowledged; one entry may always be */
    uint32_t version; /* of the formats: the newest that this node reads; 0: REPLICA_VERSION */
    uint32_t
        version_hold; /* none above this comes into effect as long as this node says so; 0: any may */
};

/* What was found on disk. */
struct replica_boot {
    uint64_t term, vote;
    const struct replica_snapshot *snapshot; /* NULL or index 0: none. Borrowed for the call */
    int64_t now_us;
};

/* ---- its life --------------------------------------------------------------------------------- */

/* HF_EIO, in words: what was found cannot be. io and host are copied. */
int replica_new(const struct replica_options *options, const struct replica_io *io,
                const struct replica_host *host, const struct replica_boot *boot,
                struct replica **ret_replica, struct error_text *err);
/* Then each record of the journal, in the order in which they were written ([J4]: one that is not above the last replaces); those up to
 * the snapshot's index are skipped, if they fit. The bytes are copied. */
int replica_recover(struct replica *replica, const struct journal_record *record,
                    struct error_text *err);
/* Before replica_start: the members of the last configuration that was recovered, committed or not, or of the snapshot. count 0: there
 * is neither a log nor a snapshot. */
void replica_members_found(const struct replica *replica, struct replica_config *ret_config);
/* Instead of replica_start, for whoever restores a backup: all that was recovered is applied, committed or not. The table is the
 * caller's then (core_free), and the replica is freed. NULL: an entry cannot be applied. */
struct core *replica_salvage(struct replica *replica, struct raft_id *ret_last,
                             uint32_t *ret_version);
/* And then it takes part: what is known to be committed is applied. A log that does not reach the snapshot or contradicts it is
 * dropped (io.reset_log). A log and snapshot that are both empty: it waits, for replica_found or a leader. */
int replica_start(struct replica *replica, int64_t now_us, struct error_text *err);
/* It takes no part any more: fails what is under way. Only replica_free and looking at it are left. */
void replica_end(struct replica *replica);
/* Something outside has failed that it cannot go on without: it stops, as after any failure of the disk. */
void replica_fail(struct replica *replica, const char *why);
/* What whoever runs a node is to do after a failure of its disk: the end of all words about one. */
#define REPLICA_MEND_DISK \
    "; make room on its disk, or repair it, then restart this node: it does not recover by itself"
/* io and host are not called afterwards, but for what replica_end does, and what io was lent is gone: whoever still writes it has copied
 * it, or ends that first. */
void replica_free(struct replica *replica);

/* An empty node is told the members that a new cluster begins with: entry 1, of term 1, is a function of them alone, in whatever
 * order they are, and so is the cluster's id. It is done when replica_cluster says so: before that it is not durable. HF_OK also if that
 * very cluster was founded already. HF_EBUSY: its log is not empty. HF_EINVAL: such members cannot be, or this node is none of
 * them. */
int replica_found(struct replica *replica, const struct replica_config *config, int64_t now_us,
                  struct error_text *err);
/* The id of the cluster that begins with these. Such as replica_found would refuse have one, too: it says nothing then. */
void replica_cluster_id(const struct replica_config *config, unsigned char ret_id[REPLICA_CLUSTER]);

/* ---- events ----------------------------------------------------------------------------------- */

/* A message of another node, whose incarnation the connection has proved. False: bytes that are no message; the caller ends the
 * connection. Borrowed. */
bool replica_received(struct replica *replica, uint64_t from, uint64_t incarnation,
                      const void *bytes, size_t size, int64_t now_us);
/* Do these bytes say that their sender leads? They may be wrong all the same. */
bool replica_message_is_leaders(const void *bytes, size_t size);
/* The connections with it have ended: it is dead, or cut off. */
void replica_peer_down(struct replica *replica, uint64_t id, int64_t now_us);
/* What io.append was given with this number, and all before, is durable; or not, in words: then the node stops. */
void replica_written(struct replica *replica, uint64_t number, const struct error_text *failure,
                     int64_t now_us);
/* What io.read_log has asked for: the records from `first - 1` on if that is there, else from `first`, borrowed. count 0: the log
 * does not go back so far. */
void replica_log_read(struct replica *replica, uint64_t to, const struct journal_record *records,
                      size_t count, int64_t now_us);
void replica_snapshot_stored(struct replica *replica, const struct error_text *failure,
                             int64_t now_us);
/* bytes NULL: it is not there any more, or cannot be read. total: the size of all of it. */
void replica_snapshot_read(struct replica *replica, uint64_t to, uint64_t index, uint64_t offset,
                           const void *bytes, size_t size, uint64_t total, int64_t now_us);

/* Adds a command to the batch. HF_EUNREACH: this node does not lead (or is stopped), nothing happened. HF_EBUSY: the batch is
 * full; again after the next pump. HF_EINVAL: the command does not obey the table's limits. The command is copied; the request is
 * only a name, never looked into. */
int replica_submit(struct replica *replica, const struct core_command *command, void *request,
                   int64_t now_us);
/* The end of a round: proposes what is due (schedule.c), sends, writes, applies, and takes a step of a snapshot. Returns when it is to be called
 * again at the latest, as now_us counts. expected: how many commands those clients that have sent something lately may send at once. */
int64_t replica_pump(struct replica *replica, uint32_t expected, int64_t now_us);

/* No entry could be proposed now, whatever is submitted: until one in flight is committed, commands only gather. */
bool replica_is_full(const struct replica *replica);
/* An entry of what has been submitted would be worth its cost, and nothing is in flight. */
bool replica_has_enough(const struct replica *replica);

/* The leader's business; one at a time. HF_OK: `changed` will be called, perhaps at once. HF_EUNREACH: this node does not lead.
 * HF_EBUSY: another change is under way, or something would have to be waited for. HF_EINVAL: it cannot be; all in words.
 * A node that is added gets the log first, and votes when it has caught up. */
int replica_add(struct replica *replica, const struct replica_member *member, void *request,
                int64_t now_us, struct error_text *err);
/* What replica_add would say, without adding: is_there, it is a member already. An incarnation of 0: any. */
int replica_may_add(const struct replica *replica, const struct replica_member *member,
                    bool *ret_is_there, struct error_text *err);
/* Of one that votes: when a majority of the others has answered what is sent from now on. If that takes longer than an election
 * timeout, REPLICA_NO_MAJORITY, and nothing was appended. */
int replica_remove(struct replica *replica, uint64_t id, void *request, int64_t now_us,
                   struct error_text *err);
/* From now on a member is at another address. "": it has none, as a node that is alone. */
int replica_move(struct replica *replica, uint64_t id, const char *address, void *request,
                 int64_t now_us, struct error_text *err);
/* to: 0 for the one that is nearest. Nothing is proposed until another leads, or it has failed. */
int replica_transfer(struct replica *replica, uint64_t to, void *request, int64_t now_us,
                     struct error_text *err);

/* A snapshot is to be stored that has this entry, which is applied, though the log is short; replica_status says when it is there
 * (`snapshot`). To ask again does nothing, unless it was given up meanwhile. */
void replica_want_snapshot(struct replica *replica, uint64_t index);

/* ---- looking at it ---------------------------------------------------------------------------- */

const struct core *replica_table(const struct replica *replica);
enum replica_role replica_role(const struct replica *replica);
uint64_t replica_leader(const struct replica *replica); /* 0: not known */
/* The members in effect; lives until the next call that changes something. */
const struct replica_config *replica_members(const struct replica *replica);
bool replica_members_agreed(const struct replica *replica); /* their entry is committed */
/* NULL: it belongs to none yet, or that is not durable. */
const unsigned char *replica_cluster(const struct replica *replica);

/* Of the formats, in effect here. */
uint32_t replica_version(const struct replica *replica);
/* The newest that this code reads. */
uint32_t replica_version_read(void);

struct replica_status {
    uint64_t term, last_index, commit_index, applied_index;
    uint64_t entries, commands, ticks; /* proposed by this node */
    uint64_t log_bytes;                /* since the last snapshot, */
    uint64_t memory_bytes;             /* and in memory */
    uint64_t snapshots, snapshot_bytes, snapshots_installed;
    bool snapshotting;
    struct raft_id snapshot; /* the newest that is on disk; index 0: none */
};
void replica_status(const struct replica *replica, struct replica_status *ret_status);
/* From the proposal of each of this node's entries until it is committed. */
const struct histogram *replica_commits(const struct replica *replica);
/* So much of the log this member has on its disk. False: that is not known; it is to a leader whom the member has answered in its
 * term. */
bool replica_progress(const struct replica *replica, uint64_t id, uint64_t *ret_match);

/* What nodes that have applied the same entries agree on. Takes a look at everything. */
struct replica_digest {
    uint64_t index, table; /* of the last entry that is in the table; core_hash */
    uint64_t chain;        /* raft's, at that index */
    uint64_t members, members_index;
    uint64_t version;
};
void replica_digest(const struct replica *replica, struct replica_digest *ret_digest);

/* Does it contradict itself? NULL: no. Takes a look at everything. */
const char *replica_check(const struct replica *replica);

#endif
