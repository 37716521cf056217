/* inside.h: between the two files of the test engine. */
#ifndef TESTS_ENGINE_INSIDE_H
#define TESTS_ENGINE_INSIDE_H

#include "base/list.h"
#include "engines/engine.h"
#include "table.h"

enum push_way {
    PUSH_THREAD, /* our thread calls host->nudge */
    PUSH_POLL,   /* our thread makes poll_fd readable, process calls host->nudge */
    PUSH_NO      /* waiters hear nothing; observers, who could not do without, are told */
};

struct engine_store {
    struct table *table;
    const struct engine_host *host;
    bool queues; /* false for testweak: waiters have no place, they hear of releases only */
    bool push_lost;
    int push; /* of enum push_way */
    int64_t ttl_min_ms;
    bool forked;
    /* Local things below. Taken after the table's mutex, never before it. */
    pthread_mutex_t mutex;
    struct list locals;
    pthread_t thread;
    bool thread_runs;
    _Atomic bool stop;
    int event_fd;
};

enum local_role {
    LOCAL_IDLE,    /* nothing to tell */
    LOCAL_WAITING, /* nudge when granted or gone (with a queue), or when the name's holders change */
    LOCAL_HELD,    /* with lost=push: say when it is over */
    LOCAL_OBSERVER
};

/* claim->private: what this process must be told about a claim. */
struct local {
    struct list node;
    struct engine_claim *claim;
    int role;
    bool due;
    uint64_t stamp; /* of the name, when last told */
};

/* engine.c: begins a call: after HF_OK the table is locked and settled; and ends it. */
int call_begin(struct engine_store *store, int call, int64_t deadline_ms, bool *ret_lose_reply,
               struct error_text *err);
int call_end(struct engine_store *store, bool lose_reply, int result, struct error_text *err);
/* The claim's name in the table. */
#define TABLE_NAME_SIZE (HF_NAME_MAX + 2)
const char *name_in_table(const struct engine_claim *claim, char scratch[TABLE_NAME_SIZE]);

/* once.c: ENGINE_DONE, ENGINE_DIED, or HF_OK: nothing is known, and it is a claim like any other. With
 * the table's mutex held. */
int once_known(struct engine_store *store, struct engine_claim *claim, struct error_text *err);
int test_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int test_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

/* Notes what to tell the claim's owner from now on; with the table's mutex held, so that no change
 * falls in between. */
int pushing_register(struct engine_store *store, struct engine_claim *claim, int role,
                     struct error_text *err);
void pushing_forget(struct engine_store *store, struct engine_claim *claim);
void pushing_stop(struct engine_store *store);
int pushing_poll_fd(struct engine_store *store);
int64_t pushing_process(struct engine_store *store);

#endif
