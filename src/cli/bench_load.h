/* bench_load.h: inside a round of `holdfast bench`: what its parts share. Two kinds of clients: started operations, many to a thread
 * (bench_started.c), and threads that call and wait (bench_blocking.c). bench_load.c begins and ends them. */
#ifndef CLI_BENCH_LOAD_H
#define CLI_BENCH_LOAD_H

#include "cli/bench_work.h"

#define BENCH_REST_MS \
    10 /* after a failure: a store that refuses at once is not to be asked in a circle */

/*                    ┌──────────── failed ───────────┐
 *                    │                               ▼
 *     ACQUIRING ──granted──▶ INSIDE ──▶ RELEASING  RESTING
 *         ▲                                 │         │
 *         └─────────────────────────────────┴─────────┘      each of them ──▶ ENDED, once the round is over
 */
enum client_state {
    CLIENT_ACQUIRING,
    CLIENT_INSIDE,
    CLIENT_RELEASING,
    CLIENT_RESTING,
    CLIENT_ENDED
};

struct client {
    struct driver *driver;
    enum client_state state;
    uint32_t id;
    uint64_t turn;   /* among its own names */
    uint64_t random; /* never 0 */
    hf_op *op;       /* while ACQUIRING */
    struct bench_name *name;
    struct bench_inside inside;
    int64_t began_ns, due_ns;
    struct client *next; /* in one queue of its driver */
};

/* First in, first out: everybody in it has the same span ahead, so it is in the order of due_ns. */
struct queue {
    struct client *first, **end;
};

struct driver {
    struct bench_load *load;
    hf_store *store;
    int fd;
    pthread_t thread;
    struct client *clients;
    uint32_t client_count, live;
    bool is_stopping;
    struct queue inside, resting;
    struct queue granted, released; /* of the loop that does nothing */
    uint64_t last_token;            /* likewise */
    struct bench_tally tally;
    atomic_uint_fast64_t cycles, failures; /* for the eye: written by this thread alone */
};

struct bench_load {
    const struct bench_plan *plan;
    struct bench_target *target;
    enum bench_work work;
    uint32_t clients;
    int64_t began_ns, from_ns, until_ns;
    int stop_fd;       /* readable from the stop on */
    hf_cancel *cancel; /* of clients that block */
    atomic_bool is_stopped;
    atomic_uint running; /* drivers */
    uint32_t driver_count;
    struct driver *drivers;
    uint64_t *client_cycles; /* by id */
    bool is_empty;           /* the loop that does nothing */
};

/* ---- bench_client.c: what both kinds do ------------------------------------------------------- */

bool load_is_over(const struct bench_load *load, int64_t now_ns);
void client_choose(struct client *client);
/* The lock is client->inside: it is checked, and counted. */
void client_granted(struct client *client, int64_t now_ns);
void client_released(struct client *client, int64_t now_ns);
void driver_note_failure(struct driver *driver, int result, const char *words);
/* Waited when the round ended. */
void driver_note_unfinished(struct driver *driver, const struct client *client, int64_t now_ns);

/* ---- threads --------------------------------------------------------------------------------- */

void *bench_drive_started(void *driver);
void *bench_drive_blocking(void *driver);

/* ---- bench_load.c ---------------------------------------------------------------------------- */

struct bench_load *load_new(const struct bench_plan *plan, struct bench_target *target,
                            enum bench_work work, uint32_t clients);
void load_free(struct bench_load *load);
void driver_begin(struct driver *driver, struct bench_load *load, uint32_t number);
void queue_begin(struct queue *queue);

#endif
