/* node.h: a node on a libuv loop: the shell around a replica (src/replica), which decides, but touches nothing. Here are the data
 * directory, the connections with other nodes, and the clock.
 *
 *                 ┌─────────────────────────── node ────────────────────────────┐
 *     server ────▶│ submit, round ──▶ replica ──▶ disk.c (log), snapshot_io.c   │──▶ files
 *            ◀────│ effect, role  ◀──         ──▶ catch_up.c (what others miss) │
 *                 │                           ──▶ links.c ──▶ src/peers         │──▶ other nodes
 *                 └─────────────────────────────────────────────────────────────┘
 *
 * A round of the server: read what clients say, submit it, node_pump, write the answers, node_flush, sleep.
 *
 * Writing to the log is done in the loop itself, and waited for: it takes as long as the disk needs for one block, and nobody could
 * be answered meanwhile. A large write of a leader whose followers write it too is a thread's: the loop reads what comes
 * next. So is all that takes longer: segments, snapshots, and reading for others.
 *
 * Files in the directory (src/journal says what is in them):
 *
 *     node          whose directory it is: see identity.h
 *     restoring     there while a backup is being restored into it: see restore.h
 *     lock          locked by the process that uses the directory; its number inside
 *     term          term and vote
 *     log-N         segments of the log; the last one may be a spare
 *     end           how far the log went, when it was opened or stopped last
 *     snapshot-I    the table, as it was after entry I
 *
 * A process that may run into a limit on the size of files ignores SIGXFSZ. Not for threads: everything happens on the caller's one. */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include "base/histogram.h"
#include "base/note.h"
#include "node/identity.h"
#include "peers/peers.h"
#include "replica/replica.h"

struct node;
struct uv_loop_s;

#define NODE_WORDS_MAX 4095u /* bytes */
#define NODE_MANY 16u        /* expected commands: a leader lets them gather */

#define NODE_LOST                                                                                  \
    "the members of the cluster know this node with other data: its directory was lost or is not " \
    "mounted; mount it, or remove this node and add it under another id (if a majority lost its "  \
    "data: holdfastd --restore-from)"

/* `why` of turned_away, from the node itself: this one says that it is a member that is there, with other data. All other values are
 * the host's. */
#define NODE_IS_STRAY 'S'

struct node_peer { /* what another node says of itself */
    uint64_t id, incarnation;
    uint32_t version;    /* of the formats: the newest that it reads; 0: it does not say */
    const char *client;  /* where clients find it; "": it does not say */
    const char *cluster; /* "": it belongs to none */
    const char *peer;    /* where it came from, by the kernel, or was reached */
};

/* Beside messages of the replica there are words between nodes, short texts of the host's own. They pass between a member and a
 * node that belongs to no cluster yet, too. */
struct node_words {
    uint64_t from;
    uint32_t version;              /* as in node_peer */
    const char *address, *cluster; /* the sender's; cluster "": it belongs to none */
    const char *text;              /* with a NUL; lives during the call */
};

/* effect … note: as in replica_host. They are called from within node_pump, node_flush and node_close, and may submit, nothing else. */
struct node_host {
    void *context;
    void (*effect)(void *context, void *request, const struct core_effect *effect);
    void (*failed)(void *context, void *request, enum replica_failure failure);
    void (*changed)(void *context, void *request, enum replica_change result);
    void (*role)(void *context, enum replica_role role);
    void (*stopped)(void *context, const char *why);
    void (*note)(void *context, int level, const char *text);
    void (*peer_note)(void *context, const struct note *note);
    /* A node has connected, or was connected to. False: it is not let in. */
    bool (*met)(void *context, const struct node_peer *peer);
    char (*why_not)(void *context, uint64_t id); /* `met` was false, see peers.h, as the next */
    void (*turned_away)(void *context, uint64_t by, char why);
    void (*heard)(void *context, const struct node_words *words);
    /* This node belongs to no cluster, and a leader of this one sends to it. It does now if the host has called node_join. */
    void (*adopted)(void *context, uint64_t leader, const char *cluster);
};

struct node_options {
    const char *path; /* of the data directory */
    uint64_t id;      /* of this node */
    const struct replica_member
        *members; /* as it was started with; none: a node alone. By their ids. */
    int member_count;
    const char *address;        /* of this node for its peers; "" for a node alone */
    const char *listen;         /* for peers, see peers.h; "" for a node alone */
    const void *secret, *other; /* see peers.h */
    size_t secret_size, other_size;
    struct peers_tls tls; /* with other nodes, see peers.h */
    const char *client;   /* where clients find this node; "": it does not say */
    uint32_t election_ms; /* 0: as in replica/schedule.c, like the next */
    uint64_t snapshot_bytes;
};

/* Options are copied. HF_EREFUSED, HF_EBUSY: the directory is not this node's, or in use. HF_EIO: damaged data, which is left as it
 * is, or a disk that cannot be used. HF_EINVAL: such addresses cannot be. All in words. */
int node_open(struct uv_loop_s *loop, const struct node_options *options,
              const struct node_host *host, struct node **ret_node, struct error_text *err);
/* Fails what is under way, now. Then calls done, after which nothing of it is left; the loop runs on until then. */
void node_close(struct node *node, void (*done)(void *context), void *context);

/* What was found in the directory. */
const struct identity *node_identity(const struct node *node);
/* To look at; whatever changes something is below. */
const struct replica *node_replica(const struct node *node);
/* It belongs to no cluster yet, and takes no part. */
bool node_waits(const struct node *node);
/* The id of its cluster; "": none. */
const char *node_cluster(const struct node *node);
/* This node waits, and is one of these: they found the cluster with this id (replica_cluster_id). Durable when it returns HF_OK. HF_EIO: in
 * words; it cannot go on then. initial_members: the same as text, see identity.h. */
int node_bootstrap(struct node *node, const struct replica_config *members,
                   const char *initial_members, struct error_text *err);
/* It waits, and has been added to this cluster. As above. */
int node_join(struct node *node, const char *cluster, struct error_text *err);
/* Once there is a log on disk, the directory is to say so. HF_OK also if there is none yet. */
int node_note_log(struct node *node, bool *ret_noted, struct error_text *err);

/* See replica_submit. */
int node_submit(struct node *node, const struct core_command *command, void *request);
/* To be called in each round of the loop, after all its I/O and all submitting, and when the time that it returns has come:
 * microseconds from now, 0 as soon as possible, -1 not before something happens. It sends to others, and answers what is committed. expected:
 * as for replica_pump. */
int64_t node_pump(struct node *node, uint32_t expected);
/* Then what is to be written to the log is written: others write it at the same time, and whoever was answered goes on meanwhile. True:
 * something is durable now, and node_pump has work. */
bool node_flush(struct node *node);
/* Nothing more that is submitted could take off now: until an entry in flight is committed, commands only gather. */
bool node_is_full(const struct node *node);
/* An entry of what has been submitted would be worth its cost, and nothing is in flight: to submit more before the next round
 * would only keep others waiting, who could write it meanwhile. */
bool node_has_enough(const struct node *node);

/* See replica.h. */
int node_add(struct node *node, const struct replica_member *member, void *request,
             struct error_text *err);
/* What node_add would say, without adding: is_there, it is a member already. An incarnation of 0: any. */
int node_may_add(const struct node *node, const struct replica_member *member, bool *ret_is_there,
                 struct error_text *err);
int node_remove(struct node *node, uint64_t id, void *request, struct error_text *err);
int node_transfer(struct node *node, uint64_t to, void *request, struct error_text *err);

/* ---- backups, see backup_taking.c -------------------------------------------------------------- */

#define NODE_BACKUP_PIECE ((size_t)256 << 10)

/* The bytes of a backup are those of a snapshot: replica_snapshot_decode reads them. */
struct node_backup_about {
    uint64_t index, term; /* of the last entry in it */
    uint64_t size;        /* bytes */
    uint32_t sum;         /* their crc32c, as it was when they were found to be what was written */
};

/* Both may call node_backup_end; never called after that, nor from within the functions below. */
struct node_backup_host {
    void *context;
    /* about NULL: there will be none, for this reason. */
    void (*ready)(void *context, const struct node_backup_about *about,
                  const struct error_text *err);
    /* bytes NULL: they cannot be read. */
    void (*piece)(void *context, const void *bytes, size_t size, const struct error_text *err);
};

struct node_backup;

/* Of all that is applied here now, or a little later. The replica is made to take a snapshot. */
struct node_backup *node_backup_begin(struct node *node, const struct node_backup_host *host);
/* When it is ready, and no other piece is being read. At most NODE_BACKUP_PIECE, none of them behind its end. */
void node_backup_read(struct node_backup *backup, uint64_t offset, size_t size);
/* Takes it. Before node_close. */
void node_backup_end(struct node_backup *backup);

/* ---- others ----------------------------------------------------------------------------------- */

/* It has peers, or may get some: it was started with an address for them. */
bool node_has_links(const struct node *node);
/* By the connection that there is. False: there is none yet; one is being made, at this address or others that are known. What is said may get
 * lost. */
bool node_say(struct node *node, uint64_t to, const char *address, const char *text);
/* To whoever has this id at this address, and to nobody at another one. */
bool node_say_there(struct node *node, uint64_t to, const char *address, const char *text);
/* Is there a connection to this node now? That of a process that has died ends at once; one whose machine is gone is there until
 * that is found out. */
bool node_is_connected(const struct node *node, uint64_t id);
/* Why this node could not be reached the last time, in words; "": not known. Lives until the loop goes on. */
const char *node_why(const struct node *node, uint64_t id);
/* Ends all connections with this node; it is not called before it is a member again. */
void node_forget(struct node *node, uint64_t id);
int node_set_secrets(struct node *node, const void *secret, size_t secret_size, const void *other,
                     size_t other_size, struct error_text *err);
/* See peers_set_tls; a node without peers has no use for it. */
void node_set_tls(struct node *node, struct tls_context *context);
/* Milliseconds since it said something to this node; -1: it never did. */
int64_t node_silent_ms(const struct node *node, uint64_t id);

struct node_disk_status { /* of writing to the log, since it was opened */
    uint64_t writes, bytes;
    uint64_t total_us, longest_us; /* in which nothing else was done */
    struct histogram took;
};
void node_disk_status(const struct node *node, struct node_disk_status *ret_status);

#endif
