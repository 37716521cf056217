/* driver.h: replicas with disks and a network in memory, and a clock that only this moves. No chance but the seed's.
 *
 * Every 100 µs of it the disks do what they were given, messages that were sent before arrive, in their order, and all nodes are
 * pumped; where nothing is under way it goes on at the time that a node has asked for. After each pump a node is checked against itself
 * (replica_check), against all others (what was applied at an index), and against the real time. */
#ifndef TESTS_REPLICA_DRIVER_H
#define TESTS_REPLICA_DRIVER_H

#include "replica/replica.h"

#define NODES 6 /* ids 1 to NODES - 1 */
#define REQUESTS 8192
#define INDEXES 65536
#define STEP_US 100
#define SECOND_US 1000000
#define APPEND_COUNT_AT 74 /* in a message: how many entries it has */

struct stored { /* a record on disk */
    struct journal_record record;
    unsigned char *bytes;
    uint32_t sum; /* of its bytes when they were lent to the disk */
};

struct driver_disk {
    uint64_t incarnation, term, vote;
    unsigned char *snapshot; /* as bytes */
    size_t snapshot_size;
    uint64_t snapshot_index;
    struct stored *log; /* as they were written */
    size_t log_count, log_capacity;
    uint64_t trimmed;
};

struct node_write {
    uint64_t number;
    struct stored *records;
    size_t count;
};

struct node {
    struct driver *driver;
    uint64_t id;
    struct driver_disk disk;
    struct replica *replica; /* NULL: it is down */
    struct replica_options options;
    bool paused, disk_held; /* nothing reaches it; its disk does nothing */
    bool snapshot_held;     /* nor are snapshots stored, */
    bool reads_held;        /* nor is the log read */
    bool fails;             /* its disk fails */
    int64_t skew_us;        /* of its clock */
    int64_t wake_us;
    uint32_t expected;

    struct node_write *writes;
    size_t write_count, write_capacity;
    struct { /* store_snapshot */
        bool active, installs, keeps_log;
        unsigned char *bytes;
        size_t size;
        uint64_t index;
    } storing;
    struct { /* read_log, by its receiver */
        bool active;
        uint64_t first, last;
        size_t bytes_max;
    } log_reads[NODES];
    struct { /* read_snapshot */
        bool active;
        uint64_t index, offset;
        size_t size;
    } snapshot_reads[NODES];

    long io_calls, dies_at; /* 0: never. From that call on nothing is done for it */
    bool dying;
    enum replica_role role;
    char stopped[ERROR_TEXT_MAX];
    char noted[ERROR_TEXT_MAX];
    int granted_leading; /* effects of grants to those who wait, while it was told to lead */
    int roles, members_told, pieces_read, log_reads_done, pieces_sent, snapshots_stored, resets;
    size_t messages_sent, entries_max; /* the most entries in a write */
    uint64_t judged;                   /* up to here */
};

struct outcome {
    int answers;             /* how often it was answered, */
    int failures;            /* or failed */
    int changes;             /* or, of a change, ended */
    enum core_answer answer; /* the last one */
    uint64_t number;
    enum replica_failure failure;
    enum replica_change change;
    int64_t at_us;
    uint64_t node;
};

struct packet {
    uint64_t from, to, incarnation;
    unsigned char *bytes;
    size_t size;
};

struct seen { /* what somebody had applied at an index */
    bool known;
    struct replica_digest digest;
};

struct driver {
    int64_t now_us, began_us;
    uint64_t seed, chance;
    struct node nodes[NODES]; /* by id; 0 is nobody */
    struct packet *packets;
    size_t packet_count, packet_capacity;
    bool cut[NODES][NODES]; /* from, to */
    /* True: it is not delivered. NULL: all are. */
    bool (*drops)(struct driver *driver, const struct packet *packet);
    int loss, doubling, mixing; /* of 1000 messages */
    struct outcome outcomes[REQUESTS];
    int request_count;
    int granted, left; /* effects that are nobody's answer */
    struct seen *seen; /* by index */
    bool checks_time;
    bool may_stop;   /* a node, of its own accord */
    bool may_differ; /* tables are changed behind their replicas' backs */
    long pumps;
    uint32_t trace; /* a sum of all that was sent and written, in order */
};

struct driver *driver_new(uint64_t seed);
void driver_free(struct driver *driver);
uint64_t driver_draw(struct driver *driver, uint64_t below);
/* From what is on its disk. */
void driver_start(struct driver *driver, uint64_t id);
/* It may fail to; in words. */
int driver_try_start(struct driver *driver, uint64_t id, struct error_text *err);
/* kill -9: what was given to the disk is lost, but for so many writes. */
void driver_kill(struct driver *driver, uint64_t id, size_t writes_kept);
/* And those connected to it see that. */
void driver_hang_up(struct driver *driver, uint64_t id);
/* Its directory is lost: it comes back as somebody else. */
void driver_wipe(struct driver *driver, uint64_t id);
/* Nodes 1 to count, started and founded together. */
void driver_cluster(struct driver *driver, int count);
void driver_config(struct driver *driver, int count, struct replica_config *ret_config);
struct replica_member driver_member(struct driver *driver, uint64_t id);

void driver_step(struct driver *driver);
void driver_run(struct driver *driver, int64_t us);
typedef bool driver_condition(struct driver *driver);
/* False: not within that time. */
bool driver_until(struct driver *driver, driver_condition *condition, int64_t us);
/* Who serves; 0: nobody, or more than one. */
uint64_t driver_leader(struct driver *driver);
uint64_t driver_await_leader(struct driver *driver);
/* All that are up have applied the same, and it is all that there is. */
bool driver_agree(struct driver *driver);
void driver_await_agreement(struct driver *driver);
void driver_isolate(struct driver *driver, uint64_t id, bool cut);

/* Returns the number of the request, or -1 if it was not taken. */
int driver_submit(struct driver *driver, uint64_t id, const struct core_command *command);
struct core_command driver_acquire_command(const char *name, const char *lease, uint32_t ttl_ms);
int driver_acquire(struct driver *driver, uint64_t id, const char *name, const char *lease,
                   uint32_t ttl_ms);
int driver_release(struct driver *driver, uint64_t id, const char *name, const char *lease);
/* Until it is answered by anybody who leads; the token. */
uint64_t driver_acquired(struct driver *driver, const char *name, const char *lease,
                         uint32_t ttl_ms);
bool driver_await(struct driver *driver, int request, int64_t us);
/* -1: refused; else the number of the request. */
int driver_add(struct driver *driver, uint64_t leader, uint64_t id);
int driver_remove(struct driver *driver, uint64_t leader, uint64_t id);
int driver_move(struct driver *driver, uint64_t leader, uint64_t id, const char *address);
int driver_transfer(struct driver *driver, uint64_t leader, uint64_t to);
/* With whoever leads, as often as it needs. */
void driver_do_add(struct driver *driver, uint64_t id);
void driver_do_remove(struct driver *driver, uint64_t id);
bool driver_votes(struct driver *driver, uint64_t id);
/* So many names are taken, one by one, and released. */
void driver_work(struct driver *driver, int commands);
struct replica_status driver_status(struct driver *driver, uint64_t id);

#endif
