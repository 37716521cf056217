/* table.h: the test engine's whole store, as one struct in a file that processes map and share.
 *
 * It behaves as a good TTL store should: leases, one token counter, a queue in order of arrival, lock-delay
 * after an expiry, ended leases remembered for one more TTL. What goes wrong goes wrong on command
 * only, see test_engine.h. Everything is guarded by one robust mutex in the mapping, so that kill -9 of a
 * process costs nobody else anything. Time is clock_boot_ms plus a shift that tests move forward. */
#ifndef TESTS_ENGINE_TABLE_H
#define TESTS_ENGINE_TABLE_H

#include "base/error.h"
#include "test_engine.h"

#include <holdfast/once.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TABLE_CLAIMS_MAX 2048
#define TABLE_NAMES_MAX 1024
#define TABLE_ENDED_MAX 16384 /* ended leases remembered; a full neighbourhood forgets its oldest */
#define TABLE_ENDED_PROBES 16
#define TABLE_ID_SIZE 33
#define TABLE_RECORDS_MAX 32 /* once-records that have a result, or whose runner died */
#define TABLE_ONCE_MARK '\1' /* before the key, in the name of a once-record */

enum claim_state { CLAIM_FREE = 0, CLAIM_QUEUED = 1, CLAIM_HELD = 2 };

struct table_claim {
    int state; /* of enum claim_state; set last, so that a death half-way leaves a free slot */
    int mode;
    uint32_t permits;
    int32_t name; /* index into names */
    char lease[HF_LEASE_MAX + 1];
    char owner[HF_OWNER_MAX + 1];
    int64_t ttl_ms, delay_ms;
    int64_t expires_ms; /* table time */
    int64_t since_ms;   /* of the grant, or of joining the queue */
    int64_t pid;
    uint64_t token; /* 0 while queued */
    uint64_t place; /* order of arrival */
    bool once, no_heir;
    int64_t death_ms;
};

/* What became of a once-record. */
struct table_record {
    bool used, done; /* not done: its runner died */
    uint64_t token;
    int64_t until_ms; /* table time */
    uint32_t size;
    char bytes[HF_ONCE_RESULT_MAX];
};

struct table_name {
    char name[HF_NAME_MAX + 2]; /* "" when the slot is free; with the mark of a once-record */
    int64_t withheld_ms;        /* nobody is granted it before: lock-delay or a break */
    uint64_t stamp;             /* table->stamp when its holders last changed */
    uint32_t claims;            /* in the table, holding or queued */
    bool dirty;                 /* its queue may be able to move */
    int32_t record;             /* 0: none; else index into records, + 1 */
};

struct table_ended {
    char lease[HF_LEASE_MAX + 1];
    int64_t until_ms;
    uint64_t died; /* it waited for a once-record, would not inherit, and this runner died; or 0 */
};

struct table {
    _Atomic uint32_t ready;   /* TABLE_READY once initialised */
    _Atomic uint32_t changes; /* futex word: moved whenever somebody may have to look again */
    pthread_mutex_t mutex;
    char id[TABLE_ID_SIZE];
    int64_t shift_ms;
    uint64_t last_token, last_place, stamp;
    int32_t claims_used; /* one past the highest slot ever taken */
    int32_t names_used;

    int32_t rules[FAULT_KINDS][FAULT_CALLS]; /* so many more calls; FAULT_ALWAYS: until cleared */
    int64_t delay_ms[FAULT_CALLS];
    uint64_t counts[FAULT_CALLS];
    char spoilt[HF_NAME_MAX + 1]; /* a name that is not renewed; "": none */
    bool grants_twice;            /* holds keep nobody out */

    struct table_claim claims[TABLE_CLAIMS_MAX];
    struct table_name names[TABLE_NAMES_MAX];
    struct table_ended ended[TABLE_ENDED_MAX];
    struct table_record records[TABLE_RECORDS_MAX];
};

#define TABLE_READY 0x48465434u /* "HFT4": raised with the layout */

/* Maps the file, making it if it is not there. */
int table_open(const char *path, struct table **ret_table, struct error_text *err);
void table_close(struct table *table);

/* False when the mutex could not be had by the deadline (somebody was stopped while holding it). */
bool table_lock(struct table *table, int64_t deadline_ms);
void table_unlock(struct table *table);
/* Wakes everybody who sleeps on `changes`. */
void table_changed(struct table *table);

/* All below: with the mutex held. */
int64_t table_now_ms(const struct table *table);
/* Ends what has run out and grants what can be granted. */
void table_settle(struct table *table);
/* When (clock_boot_ms) table_settle will next have something to do; CLOCK_NEVER if nothing is open. */
int64_t table_next_ms(const struct table *table);

struct table_claim *table_find(struct table *table, const char *lease);
/* NULL if the table does not know the name. */
struct table_name *table_find_name(struct table *table, const char *name);
/* NULL if there is no room. */
struct table_name *table_take_name(struct table *table, const char *name);
/* NULL if there is no room. Joins at the end of the name's queue, and is granted at once if it can be. */
struct table_claim *table_join(struct table *table, struct table_name *name,
                               const struct table_claim *like);
bool table_could_hold(struct table *table, const struct table_name *name, int mode,
                      uint32_t permits);
bool table_has_waiters(struct table *table, const struct table_name *name);
/* The claim is over and its lease remembered; the slot is free. */
void table_end(struct table *table, struct table_claim *claim);
/* As if the claim's TTL ran out at `at_ms`. */
void table_expire(struct table *table, struct table_claim *claim, int64_t at_ms);
void table_remember(struct table *table, const char *lease, int64_t ttl_ms);
bool table_is_ended(struct table *table, const char *lease);
/* Of an ended lease: the runner that died while it waited, or 0. */
uint64_t table_died_for(struct table *table, const char *lease);

/* NULL if nothing is known. */
struct table_record *table_record_of(struct table *table, const struct table_name *name);
void table_forget_record(struct table *table, struct table_name *name);
/* False if there is no room. bytes NULL: its runner died. */
bool table_set_record(struct table *table, struct table_name *name, uint64_t token,
                      const void *bytes, size_t size, int64_t until_ms);
/* Everybody who waits for the name is sent away, to look. */
void table_end_waiters(struct table *table, const struct table_name *name);

#endif
