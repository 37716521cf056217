/* inside.h: one node, for the files of this room.
 *
 *     node.c         opening, rounds, closing
 *     disk.c         the log: writing it, segments for it, removing what nobody needs
 *     snapshot_io.c  snapshots to the disk
 *     backup_taking.c   a backup, from a snapshot on the disk
 *     catch_up.c     log and snapshots from the disk, for those who miss them
 *     place.c        is the directory still there?
 *     links.c        messages and words to and from other nodes
 *     known.c        what they say of themselves, and where they may be
 *     recovery.c     a replica from what the directory holds
 *     identity.c     whose directory is it?
 *     restore.c      a directory from a backup */
#ifndef NODE_INSIDE_H
#define NODE_INSIDE_H

#include "base/list.h"
#include "journal/snapshot_file.h"
#include "node/node.h"
#include "node/recovery.h"
#include "peers/peers.h"

#include <uv.h>

#define KNOWN_MAX (REPLICA_MEMBERS_MAX + 2) /* others whom the replica may speak of at a time */
#define NEVER_US INT64_MAX
#define ADDRESSES_MAX 4u /* of one node */

/* ---- disk.c ----------------------------------------------------------------------------------- */

struct noted_append { /* by the replica, and not written yet */
    uint64_t number;
    size_t count; /* of records */
};

struct log_writer {
    struct journal_record *records; /* of the appends, one after the other */
    size_t record_count, record_capacity;
    struct noted_append *appends;
    size_t append_count, append_capacity;

    /* Taken from the front of these, and being written, perhaps by a thread, or to be tried again. Nothing is added to it meanwhile. */
    struct journal_record *writing;
    size_t writing_count, writing_capacity;
    uint64_t writing_number; /* of its last append */
    uv_work_t work;
    bool running; /* a thread writes */
    bool waits;   /* for a segment */
    bool over;    /* it was written in the middle of a pump, and the replica has not heard of it */
    bool failed;  /* nothing is written any more: what follows would leave a gap in the log */
    int result;   /* the thread's, */
    uint64_t took_us;
    struct error_text err; /* and these */
    struct node_disk_status status;

    struct journal_spare spare; /* being made */
    uv_work_t spare_work;
    bool spare_running;
    struct error_text spare_failure; /* of the last one; "": there was none */
    int64_t spare_again_us;

    uint64_t trim; /* nobody needs the log up to here; 0: nothing is to be done */
    uv_work_t trim_work;
    bool trim_running;
    uint64_t trim_needed; /* segments before this one go */
    int trim_result;
    bool told_of_syncs;
};

/* ---- snapshot_io.c ---------------------------------------------------------------------------- */

struct snapshot_writer {
    bool wanted; /* by the replica, who has not heard of its end */
    bool running, told;
    struct replica_snapshot snapshot; /* its table is the replica's */
    bool drops_log;
    uv_work_t work;
    int64_t again_us; /* it failed: when it is tried again */
    int result;
    struct error_text err;
};

/* ---- catch_up.c ------------------------------------------------------------------------------- */

struct snapshot_reader { /* for one other node */
    uint64_t to;         /* 0: unused */
    bool busy;
    uint64_t index;
    struct open_snapshot file;
    int64_t used_us;
};

/* ---- place.c ---------------------------------------------------------------------------------- */

struct place {
    /* Of the directory as it was named: there may be a link on the way. */
    char lock[PATH_MAX + sizeof DIRECTORY_LOCK + 1];
    uv_work_t work;
    bool running;
    bool is_lost; /* the thread's: the directory is gone, or another one is in its place */
    int64_t next_us;
};

/* ---- known.c ---------------------------------------------------------------------------------- */

struct known { /* another node that has come here */
    uint64_t id;
    uint64_t incarnation;
    char address[PEERS_ADDRESS_MAX + 1]; /* as it says itself, */
    char in_log[PEERS_ADDRESS_MAX + 1];  /* and where its log has it, by its word; "": there, too */
    int64_t heard_us;
};

struct addresses {
    const char *at[ADDRESSES_MAX];
    unsigned count;
};

/* ---- links.c ---------------------------------------------------------------------------------- */

struct links {
    struct peers *peers; /* NULL: a node alone */
    struct known known[KNOWN_MAX];
    uint64_t
        down[KNOWN_MAX]; /* connections that have ended, of which the replica has not been told */
    unsigned down_count;
    int64_t dialled_us;
    int64_t lately_us; /* who was heard so long ago is there, perhaps between two connections */
    bool is_stray;     /* whom `met` has turned away last was one, see NODE_IS_STRAY */
    uint64_t stray_id; /* the last that was noted, */
    int64_t stray_us;  /* and when; 0: none */
    bool is_another;   /* the members know this node with other data, and that was noted */
};

/* ---- the whole -------------------------------------------------------------------------------- */

struct node {
    uv_loop_t *loop;
    struct node_host host;
    uint64_t id;
    char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers, */
    char client[REPLICA_ADDRESS_MAX + 1];  /* and for clients */
    char cluster[CLUSTER_ID_DIGITS + 1];   /* "": none */
    struct identity identity;
    struct recovery recovery;
    struct replica *replica;
    uv_mutex_t journal_mutex; /* the journal is also a thread's */

    struct log_writer log;
    struct snapshot_writer snapshot;
    struct snapshot_reader readers[KNOWN_MAX];
    unsigned reads; /* threads that read for others */
    struct list backups;
    struct place place;
    struct links links;
    bool moves; /* its address in the log is to be changed, see identity.h */

    bool closing;
    void (*done)(void *context);
    void *done_context;
};

int64_t node_now_us(void);
void node_note(const struct node *node, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A thread has ended: perhaps it was the last. */
void node_maybe_finish(struct node *node);
void *node_grown(void *array, size_t *capacity, size_t count, size_t item);

/* disk.c */
int disk_store_term(void *context, uint64_t term, uint64_t vote, struct error_text *err);
void disk_append(void *context, uint64_t number, const struct journal_record *records,
                 size_t count);
int disk_reset_log(void *context, struct error_text *err);
void disk_trim_log(void *context, uint64_t index);
/* Writes what was appended, if no thread does. True: something is durable now, and the replica knows. */
bool disk_flush(struct node *node);
/* Makes a segment if one is wanted. */
void disk_make_spare(struct node *node);
bool disk_is_busy(const struct node *node);

/* snapshot_io.c */
void snapshot_store(void *context, const struct replica_snapshot *snapshot, bool installs,
                    bool keeps_log);
/* Tries again what has failed. Returns when. */
int64_t snapshot_pump(struct node *node, int64_t now_us);

/* backup_taking.c */
/* Before the replica's round: what waits for a snapshot has one taken, or goes on with it. */
void backup_taking_pump(struct node *node);

/* catch_up.c */
void catch_up_read_log(void *context, uint64_t to, uint64_t first, uint64_t last, size_t bytes_max);
void catch_up_read_snapshot(void *context, uint64_t to, uint64_t index, uint64_t offset,
                            size_t size);
/* Closes files that nobody reads any more; all: whoever reads them. */
void catch_up_close(struct node *node, bool all);

/* place.c */
/* path: of the data directory, as it was named. */
void place_open(struct node *node, const char *path);
/* Looks now and then. Returns when to come again. */
int64_t place_pump(struct node *node, int64_t now_us);

/* links.c */
int links_open(struct node *node, const struct node_options *options, struct error_text *err);
void links_send(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                unsigned count);
/* Tells the replica whose connections have ended, and connects with all members. Returns when to come again. */
int64_t links_pump(struct node *node, int64_t now_us);

/* known.c; about: what a node says of itself, "CLIENT/INCARNATION/VERSION" */
uint64_t about_incarnation(const char *about);
/* The newest version of the formats that it reads; 0: it does not say. */
uint32_t about_version(const char *about);
void about_client(const char *about, char ret_client[PEERS_ABOUT_MAX + 1]);
/* NULL: it is none, as this node's log has it. */
const struct replica_member *known_member(const struct node *node, uint64_t id);
/* NULL: it has not come. */
const struct known *known_find(const struct node *node, uint64_t id);
/* It has come, or said something. NULL: it has the id of a member that has been here, and is another one. */
struct known *known_note(struct node *node, uint64_t id, const char *about, const char *address);
/* Whether who says this of himself is the one whose id it is: as the members know it, or, if it is none, as the last that came with that id. */
bool known_is_right(const struct node *node, uint64_t id, const char *about);
/* Where a node may be: as this node's log has it, which may be from before it had an address, or had another one; as its own does, which may be newer;
 * as it says of itself, which need not be right for others. Whichever leads to it is used (peers.h). given: by whoever
 * wants to reach it; NULL: he does not know. */
struct addresses known_addresses(const struct node *node, uint64_t id, const char *given);

#endif
