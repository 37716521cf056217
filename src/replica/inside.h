/* inside.h: one replica, for the files of this room.
 *
 *     lifecycle.c  from what is on disk to its end
 *     replica.c    events, and what raft puts out
 *     schedule.c   all tuning constants; when to propose, apply, and take a snapshot
 *     propose.c    batches, and what is in flight
 *     log.c        the bytes of entries in memory
 *     apply.c      committed entries go into the table
 *     send.c       entries to followers, from memory or from disk
 *     message.c    messages as bytes
 *     snapshots.c  taking a snapshot
 *     install.c    receiving one, and install_send.c sending one
 *     snapshot_format.c      a snapshot as bytes
 *     members.c    configurations, as the log has them
 *     changes.c    how they change, and who leads
 *     config.c     a configuration as bytes
 *     bootstrap.c  the first entry of all
 *     version.c    which version of the formats is in use
 *     divergence.c do all members have the same table?
 *     check.c      does it contradict itself?
 *
 * Leading has four states:
 *
 *     IDLE ──raft says leader──▶ ELECTED ──entry proposed──▶ BEGINNING ──and applied──▶ SERVING
 *      ▲                            │                            │                        │
 *      └────────────────────────────┴──raft says otherwise───────┴────────────────────────┘ */
#ifndef REPLICA_INSIDE_H
#define REPLICA_INSIDE_H

#include "base/switches.h"
#include "replica/message.h"
#include "replica/replica.h"

#include <string.h>

#define NEVER_US INT64_MAX
#define PEERS_MAX (REPLICA_MEMBERS_MAX + 2) /* raft serves two that have left */

/* ---- schedule.c ------------------------------------------------------------------------------- */

struct tuning {
    uint32_t election_ms, heartbeat_ms, window, in_flight_bytes;
    uint32_t batch_commands, batch_bytes;
    uint32_t many, together, enough, depth;
    int64_t gather_us, far_us, far_times;
    int64_t tick_min_ms, tick_max_ms;
    uint64_t apply_backlog;
    size_t apply_bytes;
    uint64_t snapshot_bytes, snapshot_idle_bytes, snapshot_entries;
    int64_t snapshot_idle_us;
    size_t snapshot_slice;
    uint32_t snapshot_trailing;
    uint64_t log_times; /* of snapshot_bytes, kept for followers that are alive */
    uint64_t memory_bytes;
    int64_t snapshot_silence_us, snapshot_again_us;
    uint32_t snapshot_pieces;
    uint64_t snapshot_max;
    int64_t transfer_timeouts, confirm_timeouts;
    uint32_t deferred_entries;
    int64_t deferred_us, quorum_patience_us;
    int64_t version_say_us;
    int64_t digest_us;
};
extern const struct tuning tuning;

struct schedule {
    uint32_t expected;     /* as last said to replica_pump */
    int64_t commit_us;     /* smoothed: from proposal to commit, */
    int64_t write_us;      /* and this node's own part of that */
    int64_t batch_us;      /* when the oldest command of the batch came */
    bool answering;        /* clients are being answered, and it is not known yet */
    int64_t answered_us;   /* when they had their answers: they come back soon, or not at all */
    int64_t counted_us;    /* up to where this term's entries have brought the time [P3] */
    int64_t command_us;    /* when something else than a tick was applied */
    unsigned quorum_first; /* from which of the other voters on they get entries at once */
    uint64_t overdue;      /* the entry for whose sake others came first */
};

/* ---- log.c ------------------------------------------------------------------------------------ */

struct log_entry {
    uint64_t term, chain;
    uint64_t write; /* number of the last append that borrows the bytes; 0: none has */
    uint32_t size, sum;
    uint8_t type;
    unsigned char *bytes;
};

struct unneeded { /* bytes of an entry that was cut off, borrowed by that append */
    uint64_t write;
    unsigned char *bytes;
};

struct log {
    struct log_entry *ring; /* by index modulo capacity, a power of two */
    uint64_t capacity;
    struct raft_id before; /* what precedes the first */
    uint64_t last;
    uint64_t bytes;
    uint64_t written; /* the number of the last append that is over */
    struct unneeded *unneeded;
    size_t unneeded_count, unneeded_capacity;
};

void log_reset(struct log *log, const struct raft_id *before);
void log_free(struct log *log);
/* Takes the bytes (malloc'ed; NULL if there are none). */
void log_add(struct log *log, const struct raft_entry *entry, unsigned char *bytes);
struct log_entry *log_at(const struct log *log, uint64_t index);
static inline uint64_t log_first(const struct log *log)
{
    return log->before.index + 1;
}
/* False: it is not in memory. */
bool log_id(const struct log *log, uint64_t index, struct raft_id *ret_id);
/* All from this index on. */
void log_cut(struct log *log, uint64_t index);
/* Drops the oldest up to this index, as long as there are more bytes than that, and nobody borrows them. */
void log_shrink(struct log *log, uint64_t up_to, uint64_t bytes);
void log_written(struct log *log, uint64_t number);

/* ---- propose.c -------------------------------------------------------------------------------- */

struct batch {
    struct core_packer packer;
    void **requests; /* by the command's number */
    uint32_t capacity;
};

/* An entry that this node has proposed, until it is applied. */
struct proposal {
    uint64_t index, term;
    int64_t since_us;
    uint32_t elapsed_ms;
    bool new_term;  /* its commands are nobody's */
    bool committed; /* its time was taken */
    void **requests;
    uint32_t count;
};

struct in_flight {
    struct proposal *at;             /* in the order of their indexes */
    uint32_t first, count, capacity; /* those before first are over */
    uint32_t elapsed_ms;             /* of all of them */
};

/* ---- snapshots -------------------------------------------------------------------------------- */

enum taking { TAKING_NOTHING, TAKING_SLICES, TAKING_WRITE };

struct snapshots {
    enum taking state;
    bool wanted; /* by a follower that needs one */
    struct replica_snapshot snapshot;
    void *bytes;                     /* of its table */
    uint64_t log_bytes, log_entries; /* applied since the last one */
    uint64_t covered_bytes, covered_entries;
    uint64_t kept_bytes;   /* of the log in snapshots, for followers that are slow */
    struct raft_id stored; /* the newest on disk; index 0: none */
    uint64_t before;       /* the index of the one before that */
    uint64_t last_size;
    uint64_t taken, installed;
};

enum receiving { RECEIVING_NOTHING, RECEIVING_PIECES, RECEIVING_WAITS, RECEIVING_WRITE };

struct receiving_snapshot { /* install.c */
    enum receiving state;
    uint64_t from;
    struct raft_id id;
    uint64_t total;
    unsigned char *bytes;
    size_t have, capacity;
    struct replica_snapshot snapshot;
    struct core *table;
    bool keeps_log;
};

/* ---- others ----------------------------------------------------------------------------------- */

struct reading { /* entries from disk for it, send.c */
    bool active;
    uint64_t term; /* in which it was asked for */
    bool one;      /* a single message, of which raft awaits the answer */
    uint64_t first, last, commit;
    int64_t round;
    uint64_t acked, acked_by;
};

struct sending { /* a snapshot to it, install.c */
    bool active;
    struct raft_id id;           /* index 0: it waits for one to be taken */
    bool answered;               /* since it began */
    uint64_t sent, acked, total; /* bytes; total 0: not known yet */
    int64_t heard_us, sent_us;
    bool reads; /* this piece is being read: */
    uint64_t reading_index, reading_at;
};

struct held { /* entries that go out a little later, send.c */
    bool active;
    struct raft_message message;
    int64_t since_us;
    uint32_t messages;
};

struct peer {
    uint64_t id;        /* 0: unused */
    int64_t heard_us;   /* -1: never */
    bool gone;          /* raft is to be told that the log does not go back so far */
    bool snapshot_over; /* or that no snapshot is being sent any more */
    uint32_t version;   /* of the formats: what it has said that it reads; 0: nothing */
    int64_t version_us;
    struct digest digest; /* its last answer */
    struct reading reading;
    struct sending sending;
    struct held held;
};

/*     NONE ──add, move──────────────────────────────────────▶ MEMBERS ──applied, or deposed──▶ NONE
 *      │ ──remove──▶ CONFIRMING ──a majority of the rest answers──▲
 *      │                 └──nobody has in time, or deposed: nothing was appended──▶ NONE
 *      └──transfer──▶ LEADER ──another leads, or it has failed──▶ NONE */
enum change_kind { CHANGE_NONE, CHANGE_CONFIRMING, CHANGE_MEMBERS, CHANGE_LEADER };

struct change { /* that somebody has asked for and not yet heard of */
    enum change_kind kind;
    void *request;
    uint64_t index, term; /* MEMBERS: of its entry */
    uint64_t to;          /* LEADER: the next one; CONFIRMING: who is to go */
    bool particular;      /* LEADER: it is this one or none */
    int64_t since_us;     /* CONFIRMING: answers to what was sent later count (R22) */
    int64_t until_us;     /* CONFIRMING, LEADER */
};

struct members {
    struct replica_config latest, previous; /* as raft has them (R11), with addresses */
    struct replica_config applied;          /* [P6] */
    uint64_t version, told; /* grows with each change of `latest`; the host knows of that */
    uint64_t caught_up;     /* a learner that could be promoted, */
    int64_t caught_up_us;   /* and since when that is known */
    struct change change;
};

#define VERSION_FIRST 1u
#define VERSION_USERS 2u /* commands may say whose they are, and the limits of that user */

struct versions { /* version.c */
    uint32_t now;
    uint64_t asked, asked_term; /* the entry that this node has proposed last, */
    uint32_t asked_version;     /* and what it says */
    uint64_t said_to;           /* to this leader was said what this node reads, */
    int64_t said_us;            /* then */
    bool told_of_users;         /* that their limits are not in force yet */
};

#define DIGEST_EVERY 64u /* entries; all nodes of a cluster have the same, like the next */
#define DIGEST_SLOTS 128u
#define DIGESTS_KEPT 16u

struct divergence { /* divergence.c */
    struct digest own[DIGESTS_KEPT];
    uint64_t asked, asked_by; /* this one is to be told that digest when there is one; 0: none */
    struct digest round;      /* LEADER: what the members were asked for */
    int64_t next_us;
};

struct write { /* given to the disk */
    uint64_t number, last, epoch;
    int64_t since_us;
};

enum leading { LEAD_IDLE, LEAD_ELECTED, LEAD_BEGINNING, LEAD_SERVING };

struct replica {
    struct replica_options options;
    struct replica_io io;
    struct replica_host host;
    struct raft_limits limits;
    struct raft *raft; /* NULL until replica_start */
    struct raft_output output;
    struct raft_entry incoming[MESSAGE_ENTRIES_MAX];
    int64_t now_us;

    struct core *table;
    unsigned char hash_seed[16];
    bool live; /* starting is over: effects are of interest */
    enum replica_role role;
    enum leading leading;
    uint64_t term; /* in which it leads */
    uint64_t stored_term, stored_vote;
    struct error_text trouble; /* why it has stopped */
    struct raft_id applied;
    uint64_t known_commit; /* while it recovers */
    bool log_begun;        /* while it recovers: a record has come */
    bool log_fits;         /* while it recovers: the log holds the snapshot's entry */
    bool has_cluster;
    uint64_t bootstrap_append; /* the number of the append that founds it */
    unsigned char cluster[REPLICA_CLUSTER];

    struct log log;
    struct write *writes; /* under way, in order */
    size_t write_count, write_capacity;
    uint64_t write_number;
    struct journal_record *records;
    size_t record_capacity;

    struct batch batch;
    struct in_flight in_flight;
    uint64_t sequence;
    struct schedule schedule;
    struct snapshots snapshots;
    struct receiving_snapshot receiving;
    struct members members;
    struct versions versions;
    struct divergence divergence;
    struct peer peers[PEERS_MAX];
    unsigned peer_count; /* of them: those from there on were never used */
    uint64_t entries, commands, ticks;
    struct histogram commits;
};

void *replica_realloc(void *memory, size_t size) __attribute__((returns_nonnull));
void replica_note(struct replica *replica, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* replica.c */
static inline bool is_stopped(const struct replica *replica)
{
    return replica->role == REPLICA_STOPPED;
}
static inline bool leads(const struct replica *replica)
{
    return !is_stopped(replica) && raft_role(replica->raft) == RAFT_LEADER;
}
/* An event for raft, and what comes of it. Returns its result. */
int replica_step(struct replica *replica, struct raft_event *event);
/* [P5] */
void replica_stop(struct replica *replica, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void replica_set_role(struct replica *replica, enum replica_role role);
/* NULL: there is no room, which cannot be for somebody whom raft serves. */
struct peer *peer_of(struct replica *replica, uint64_t id, bool makes);
int replica_store_term(struct replica *replica, uint64_t term, uint64_t vote,
                       struct error_text *err);
/* Gives entries of the log to the disk. */
void replica_write(struct replica *replica, uint64_t first, uint64_t last, uint64_t epoch);

/* lifecycle.c */
/* raft from what is applied, and the log above it, which is durable, or being written. False: they do not go together. */
bool replica_boot_raft(struct replica *replica, const struct raft_id *base, uint64_t commit,
                       bool writing);

/* schedule.c */
void schedule_limits(struct replica *replica);
void schedule_elected(struct replica *replica);
/* Milliseconds since the entry that was proposed before, which are taken by this one. */
uint32_t schedule_elapsed(struct replica *replica);
/* When the next entry is to be proposed: now_us or before, at once. */
int64_t schedule_propose_us(const struct replica *replica);
bool schedule_batch_full(const struct replica *replica);
void schedule_committed(struct replica *replica, int64_t took_us);
void schedule_written(struct replica *replica, int64_t took_us);
void schedule_begin(struct replica *replica, uint32_t expected);
/* How many bytes of entries may be applied in this round; 0: it can wait. */
size_t schedule_apply(const struct replica *replica);
bool schedule_snapshot(const struct replica *replica);
/* The log up to here is not kept after a snapshot. */
uint64_t schedule_trim(const struct replica *replica);
/* Does this follower get entries a little later? */
bool schedule_defers(const struct replica *replica, uint64_t id);
int64_t schedule_overdue_us(const struct replica *replica);
/* Then the rest gets it at once, and another majority is served first from now on. */
void schedule_overdue(struct replica *replica);

/* propose.c */
/* Takes the bytes (malloc'ed). raft_may_propose said yes. Returns the index. */
uint64_t propose_entry(struct replica *replica, enum raft_entry_type type, unsigned char *bytes,
                       size_t size);
/* Proposes what is due. */
void propose_due(struct replica *replica);
/* Of those that raft has committed, the time it took is counted. */
void propose_committed(struct replica *replica);
uint32_t in_flight_uncommitted(const struct replica *replica);
/* The first that is not applied; NULL: none. */
struct proposal *in_flight_front(const struct replica *replica);
void in_flight_pop(struct replica *replica);
/* [P4] */
void propose_fail(struct replica *replica);
void propose_free(struct replica *replica);

/* apply.c */
/* Committed entries, as many as have so many bytes, at least one if there is one. */
void apply_some(struct replica *replica, size_t bytes);
/* Those of terms up to this one. */
void apply_terms(struct replica *replica, uint64_t term);
void apply_all(struct replica *replica);

/* send.c */
void send_message(struct replica *replica, const struct raft_message *message);
void send_own(struct replica *replica, const struct message *message);
void send_held(struct replica *replica, bool all);
int64_t send_next_us(const struct replica *replica);

/* snapshots.c */
void snapshots_count(struct replica *replica, size_t bytes);
/* Begins, goes on. True: there is more to do at once. */
bool snapshots_pump(struct replica *replica);
void snapshots_give_up(struct replica *replica);
void snapshots_free(struct replica *replica);
/* Which file the result of store_snapshot belongs to is known by the states. */
void snapshots_stored(struct replica *replica);

/* install_send.c */
void install_send(struct replica *replica, uint64_t to);
void install_on_ack(struct replica *replica, const struct message *message);
void install_send_pump(struct replica *replica);
int64_t install_next_us(const struct replica *replica);

/* install.c */
void install_on_piece(struct replica *replica, const struct message *message);
void install_stored(struct replica *replica);
/* A snapshot may wait for the disk. */
void install_pump(struct replica *replica);
void install_free(struct replica *replica);
/* Entries of the log are not taken now: the log is about to be dropped. */
static inline bool install_blocks(const struct replica *replica)
{
    return replica->receiving.state == RECEIVING_WAITS ||
           replica->receiving.state == RECEIVING_WRITE;
}

/* members.c */
/* Of the latest configuration; NULL: it is none of them. */
const struct replica_member *members_find(const struct replica *replica, uint64_t id);
const char *members_address(const struct replica *replica, uint64_t id);
void members_push(struct replica *replica, uint64_t index, const void *bytes, size_t size);
void members_cut(struct replica *replica, uint64_t index);
void members_set(struct replica *replica, const struct replica_config *config);
void members_applied(struct replica *replica, uint64_t index, const void *bytes, size_t size);
void members_to_raft(const struct replica_config *config, struct raft_members *ret_members);

/* changes.c */
/* The configuration at this index was. */
void changes_applied(struct replica *replica, uint64_t index, uint64_t term);
/* Tells the host, promotes, and looks after a removal and a transfer. */
void changes_pump(struct replica *replica);
int64_t changes_next_us(const struct replica *replica);
/* This node leads no more; for_good: nor does it take part. */
void changes_fail(struct replica *replica, bool for_good);

/* version.c */
int version_begin(struct replica *replica, struct error_text *err);
/* The bytes of a RAFT_VERSION; 0: they are none. */
uint32_t version_of_entry(const void *bytes, size_t size);
/* It is in effect. HF_EIO, in words: this node does not read it. */
int version_use(struct replica *replica, uint32_t version, struct error_text *err);
void version_applied(struct replica *replica, uint64_t index, const void *bytes, size_t size);
/* May a command say whose it is? If not yet, the first time it is noted that limits of users are not in force. */
bool version_has_users(struct replica *replica);
/* To the leader, who was sent an acknowledgement, if there is something to say. */
void version_say(struct replica *replica, uint64_t to);
void version_heard(struct replica *replica, const struct message *message);
/* Proposes what all read. */
void version_pump(struct replica *replica);
/* A message in a version that this node does not read: of a member, it stops. False: it is for somebody else, or of nobody. */
bool version_on_newer(struct replica *replica, uint64_t from, const void *bytes, size_t size);
int version_check_new(const struct replica *replica, const struct replica_member *member,
                      struct error_text *err);

/* divergence.c */
/* An entry has been applied. */
void divergence_applied(struct replica *replica);
/* There is another table. */
void divergence_reset(struct replica *replica);
void divergence_on_message(struct replica *replica, const struct message *message);
void divergence_pump(struct replica *replica);

/* bootstrap.c */
void bootstrap_cluster_id(const void *bytes, size_t size, unsigned char ret_id[REPLICA_CLUSTER]);

#endif
