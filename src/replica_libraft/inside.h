/* inside.h: one replica, for the files of this room.
 *
 *     opening.c    a replica from its options and what is on disk
 *     replica.c    who leads; batches and ticks; closing
 *     apply.c      what libraft calls when an entry is committed, or a snapshot restored
 *     members.c    who belongs to the cluster, and who is to lead it
 *     identity.c   which data directory is a member
 *     snapshots.c  when a snapshot is taken, and how, in slices
 *     memory.c     how much of the log libraft keeps in memory
 *     late.c       who gets an entry at once, and who later
 *     changes.c    changes of members among the entries from a leader
 *     gate.c       stands between libraft and its raft_io: sees every completion and every failure
 *     consistency.c  messages that contradict what is committed
 *     storage.c    the real raft_io: the disk and the clock; shares nothing with those above (storing.h)
 *     network.c    its messages to and from other nodes, as message.c writes and reads them
 *
 * Leading has three states:
 *
 *     IDLE ──libraft says leader──▶ BEGINNING ──first entry applied──▶ SERVING
 *      ▲                                │                                 │
 *      └────────────────────────────────┴──libraft says otherwise─────────┘
 *
 * libraft does not know what to do when its raft_io fails. So the gate remembers a failure as
 * `trouble`, lets nothing through from then on, in neither direction, and libraft is closed at the
 * next moment when it is not on the stack. */
#ifndef REPLICA_INSIDE_H
#define REPLICA_INSIDE_H

#include "replica_libraft/replica.h"

#include <raft.h>

#define SNAPSHOT_BYTES_DEFAULT (UINT64_C(256) << 20)
#define SNAPSHOT_BYTES_IDLE (UINT64_C(1) << 20) /* enough for one when there is time for it */
#define SNAPSHOT_IDLE_US 10000000               /* nothing but ticks for so long: there is time */
#define SNAPSHOT_ENTRIES_MAX 100000u
#define SNAPSHOT_SLICE_BYTES ((size_t)256 << 10)
#define SNAPSHOT_TRAILING_BYTES (UINT64_C(4) << 20)
#define SNAPSHOT_TRAILING_MIN 128u
#define SNAPSHOT_TRAILING_MAX 8192u
#define MEMORY_BYTES_DEFAULT (UINT64_C(16) << 20) /* of log, before libraft is made to forget it */

/* Commands on their way into the log, and who is to hear of each: requests[number]. */
struct batch {
    struct core_packer packer;
    void **requests;
    uint32_t capacity;
};

/* An entry that this node has proposed, until it is applied. */
struct flight {
    bool active;
    bool first; /* of this node's term: its commands are nobody's */
    uint64_t sequence;
    int64_t since_us;
    bool overdue; /* see late.c */
    void **requests;
    uint32_t count, capacity;
};

struct committed {
    uint64_t index;
    struct raft_buffer buffer;
};

struct put_off { /* committed, and not yet applied: see apply.c */
    struct committed *entries;
    uint32_t first; /* those before it are applied */
    uint32_t count, capacity;
};

struct kept_append { /* an append under way */
    struct raft_io_append ours;
    struct raft_io_append *theirs;
    raft_io_append_cb done;
    struct replica *replica;
    struct kept_append *next; /* among those that failed: they are cancelled when libraft closes */
};

struct kept_put { /* a snapshot on its way to the disk, our own or one from a leader */
    struct raft_io_snapshot_put ours;
    struct raft_io_snapshot_put *theirs;
    raft_io_snapshot_put_cb done;
    struct replica *replica;
    bool own;
    const struct raft_snapshot *snapshot;
    unsigned trailing;
    struct kept_put *next;
};

/* Snapshots on their way to other nodes at a time. Each is in memory as a whole. */
#define HANDINGS_MAX 4

struct handing {             /* a snapshot on its way to another node: see memory.c */
    struct replica *replica; /* NULL: none is */
    uint64_t receiver;       /* 0: not known yet */
    bool waits;              /* for one to be taken */
    struct raft_io_snapshot_get our_get, *get;
    raft_io_snapshot_get_cb get_done;
    raft_term term;
    struct raft_io_send our_send, *send;
    raft_io_send_cb send_done;
};

enum snapshot_state {
    SNAPSHOT_NONE,
    SNAPSHOT_ASKED,  /* libraft has asked for it and will put it at once */
    SNAPSHOT_TOLD,   /* libraft has put it, and there is none: see memory.c */
    SNAPSHOT_TAKING, /* libraft has put it, as it thinks; slices are being taken */
    SNAPSHOT_WRITING /* the raft_io has it */
};

struct snapshots {
    enum snapshot_state state;
    bool real;                 /* it will be taken, and is not only told of */
    struct raft_buffer buffer; /* what libraft believes to be the snapshot from the beginning */
    struct kept_put *put;
    uint64_t bytes, entries;                 /* applied since the last one */
    uint64_t covered_bytes, covered_entries; /* of these, in the one being taken */
    int64_t last_command_us;                 /* when something else than a tick was applied */
    int64_t writing_us;                      /* how long it has been, as the gate's ticks count */
    bool slow_noted;
    uint64_t taken, last_size;
    uint64_t installed; /* from a leader */
};

struct memory {              /* see memory.c */
    uint64_t bytes, entries; /* of the log, that libraft has in memory, about */
    bool ahead;              /* libraft believes in a later snapshot than there is */
    uint64_t sent_from;      /* the entry before those of the last message from a leader */
    uint64_t speaker;        /* whose message libraft is dealing with; 0: nobody's */
    struct handing handings[HANDINGS_MAX];
    struct handing *got; /* libraft gets this one just now */
};

struct heard { /* when a node last said something, */
    uint64_t id;
    int64_t us;
    /* and how much of the log it has acknowledged to this node, leader of that term */
    raft_term term;
    raft_index index;
    int64_t asked_us; /* whether it still has it */
};

enum change_kind { CHANGE_NONE, CHANGE_MEMBERS, CHANGE_LEADER };

struct change { /* that somebody has asked for and not yet heard of */
    enum change_kind kind;
    void *request;
    int64_t until_us; /* of the leader: given up then */
    uint64_t heir;
    bool particular; /* it is this one or none */
    bool asked;      /* it was told to stand */
    struct raft_change members;
    struct raft_transfer transfer;
};

enum leading { LEAD_IDLE, LEAD_BEGINNING, LEAD_SERVING };

struct replica {
    struct raft raft;
    struct raft_fsm fsm;
    struct raft_apply proposal; /* libraft's note of the entry in flight */
    struct raft_io *io;
    struct raft_io saved; /* the functions of io that the gate replaces */
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;

    struct replica_host host;
    uint64_t id;
    bool waits; /* libraft is not started yet */
    uint64_t snapshot_bytes;
    uint32_t snapshot_trailing;
    uint64_t memory_bytes;
    uint32_t heartbeat_ms;

    struct core *table;
    bool opened; /* replaying is over: effects are of interest */
    enum replica_role role;
    enum leading leading;
    raft_term term; /* in which it leads */
    uint64_t origin, sequence;
    struct batch batch;
    struct flight flight;  /* what is not committed */
    struct flight arrived; /* what is, and is not applied */
    bool landing;          /* it is being applied just now */
    struct put_off put_off;
    bool gathering; /* the batch waits for more, since: */
    int64_t gathering_us;
    int64_t counted_us; /* up to where this term's entries have brought the time */

    struct snapshots snapshots;
    struct memory memory;
    struct change change;
    struct heard heard[REPLICA_MEMBERS_MAX];
    int64_t led_us;                           /* when the leader last sent something */
    struct joined *late[REPLICA_MEMBERS_MAX]; /* messages that wait; NULL: none */
    unsigned prompt;   /* from which of the other members on they are prompt */
    uint32_t expected; /* as last said to replica_pump */
    char about[CORE_ADDRESS_MAX + 1];

    struct error_text trouble; /* "": none */
    unsigned appends;          /* under way */
    int64_t stalled_us;        /* for how long none has ended */
    bool stall_noted;
    int64_t ticked_us; /* when the gate last saw a tick */
    struct kept_append *failed_appends;
    struct kept_put *failed_puts;

    bool closing, closed; /* libraft */
    void (*done)(void *context);
    void *done_context;
    bool abandoned; /* replica_open failed: nobody waits for the end */

    struct replica_status status; /* the counters; and all of it, once libraft is closing */
};

static inline int64_t replica_now(const struct replica *replica)
{
    return replica->host.boot_us(replica->host.context);
}

void *replica_realloc(void *memory, size_t size); /* never NULL */
void replica_note(struct replica *replica, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* replica.c */
/* Has libraft come to lead, or ceased to? Asked after each event that it was given. */
void replica_observe(struct replica *replica);
/* The entry that had arrived has been applied. */
void replica_landed(struct replica *replica);
/* Ends it because of its trouble. Not while libraft is on the stack. */
void replica_stop(struct replica *replica);
/* From now on libraft may not be asked any more. The replica may be gone afterwards. */
void replica_close_raft(struct replica *replica);
/* Nothing of it is left. libraft has been closed, or was never there. */
void replica_finish(struct replica *replica);

/* members.c */
void members_init(struct replica *replica);
/* A message from this node has come. */
struct heard *members_heard(struct replica *replica, uint64_t id);
/* Has a change come to its end? */
void members_observe(struct replica *replica);
/* This node leads no more; for_good: nor does it take part. */
void members_fail(struct replica *replica, bool for_good);
/* Takes nodes that were added further. */
void members_promote(struct replica *replica);
/* Up to here all members have the log, as far as this node has to care. */
uint64_t members_have(const struct replica *replica);
/* Of their ids, roles and addresses. */
uint64_t members_hash(const struct replica *replica);

/* apply.c */
void apply_init(struct replica *replica);
/* Applies what was put off. */
void apply_put_off(struct replica *replica);
/* The first entry of it. */
void apply_next(struct replica *replica);

/* snapshots.c */
void snapshots_init(struct replica *replica);
/* An entry of so many bytes was applied, with so many commands. */
void snapshots_count(struct replica *replica, size_t bytes, uint32_t commands);
void snapshots_restored(struct replica *replica, size_t size);
/* Asks libraft for one if it is time. */
void snapshots_consider(struct replica *replica);
/* Entries that stay for followers which lag behind a little. */
unsigned snapshots_trailing(const struct replica *replica);
/* Takes a slice. True: there is more to take. */
bool snapshots_step(struct replica *replica);
void snapshots_watch(struct replica *replica, int64_t passed_us);
void snapshots_put(struct replica *replica, unsigned trailing, struct raft_io_snapshot_put *req,
                   const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done);
/* libraft is closing: ends what has no other end. */
void snapshots_cancel(struct replica *replica);

/* memory.c */
void memory_count(struct replica *replica, size_t bytes);
/* Libraft has forgotten all entries but the last so many. */
void memory_forgot(struct replica *replica, unsigned trailing);
void memory_restored(struct replica *replica);
/* There is enough to forget. */
bool memory_is_time(const struct replica *replica);
/* So many entries may not be forgotten. */
unsigned memory_trailing(const struct replica *replica);
/* libraft wants a snapshot for another node. */
void memory_get(struct replica *replica, struct raft_io_snapshot_get *req,
                raft_io_snapshot_get_cb done);
/* Somebody waits for a snapshot to be taken. */
bool memory_wants(const struct replica *replica);
/* A snapshot has been taken. */
void memory_taken(struct replica *replica);
/* libraft sends it. */
int memory_send(struct replica *replica, struct raft_io_send *req, struct raft_message *message,
                raft_io_send_cb done);
/* libraft is closing. */
void memory_cancel(struct replica *replica);

/* late.c */
/* True: it goes out later. */
bool late_holds(struct replica *replica, struct raft_io_send *req,
                const struct raft_message *message, raft_io_send_cb done);
void late_flush(struct replica *replica);
/* When to come again, if it is this time otherwise. */
int64_t late_wait(const struct replica *replica, int64_t wait);

/* consistency.c */
/* Of an entry of the log; 0: this node does not know (any more). */
raft_term consistency_term_of(const struct raft *raft, raft_index index);
/* True: it contradicts what is committed here, and has made trouble. */
bool consistency_violated(struct replica *replica, const struct raft_message *message);
/* True: libraft may not see it. */
bool consistency_forgets(struct replica *replica, struct heard *heard,
                         const struct raft_append_entries_result *result);
bool consistency_impossible(const struct raft_message *message);

/* gate.c */
void gate_install(struct replica *replica);
void gate_remove(struct replica *replica);
static inline bool gate_shut(const struct replica *replica)
{
    return replica->trouble.text[0] != '\0';
}
/* The first trouble is the one that is told. */
void gate_trouble(struct replica *replica, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* To libraft, which takes over what it points to. */
void gate_deliver(struct replica *replica, struct raft_message *message);
void gate_free_entries(struct raft_append_entries *append);

/* changes.c */
/* AppendEntries, in parts that libraft understands. */
void changes_deliver(struct replica *replica, struct raft_message *message);

#endif
