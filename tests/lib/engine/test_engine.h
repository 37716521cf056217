/* test_engine.h: a store for tests that fails on command.
 *
 *     test:PATH[?push=thread|poll|no][&lost=push][&ttl-min=MS]
 *     testweak:PATH[?...]    the same table, declared best effort, without queue, shared mode or permits
 *
 * PATH is the file that holds the whole store; any process that opens it shares it. `push` says how a
 * waiter hears that its turn may have come: from a thread of the engine (the default), through poll_fd and
 * process, or not at all, so that the client has to poll (observers are told all the same). With lost=push the engine also reports the
 * end of a hold by itself; without, the holder hears of it at its next renewal. With ttl-min a shorter TTL is
 * refused, as by a store that counts whole seconds.
 *
 * A once-record of the key K is known to faults_expire as \1K.
 *
 * A fault names the kind of call it strikes, and how many of those calls. They live in the mapping: a
 * test sets them from its own process or with the program hf-faults. */
#ifndef TESTS_ENGINE_TEST_ENGINE_H
#define TESTS_ENGINE_TEST_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

enum fault_call {
    CALL_ACQUIRE,
    CALL_RENEW,
    CALL_RELEASE,
    CALL_ABANDON,
    CALL_SHOW,
    CALL_LIST,
    CALL_CHECK,
    CALL_BREAK,
    CALL_FLOOR,
    CALL_ID,
    CALL_FINISH,
    CALL_READ,   /* of a once-record */
    FAULT_CALLS, /* how many there are; and, to faults_set, all of them */
};
#define CALL_ANY FAULT_CALLS

enum fault_kind {
    FAULT_LOSE_REPLY,   /* takes effect, answers HF_EUNKNOWN */
    FAULT_LOSE_REQUEST, /* no effect, answers HF_EUNKNOWN */
    FAULT_UNREACHABLE,  /* no effect, answers HF_EUNREACH */
    FAULT_REFUSE,       /* no effect, answers HF_EREFUSED */
    FAULT_HANG,         /* no answer until cleared; at the deadline HF_EUNKNOWN, without effect */
    FAULT_KINDS,
};

#define FAULT_ALWAYS (-1) /* count: until set to 0 */

struct faults;

/* NULL (and errno) on failure. Makes the file if need be, so that faults can be set before the first use. */
struct faults *faults_open(const char *path);
void faults_close(struct faults *faults);

void faults_set(struct faults *faults, enum fault_kind kind, int call, int32_t count);
/* Every such call takes at least so long; 0 clears. */
void faults_delay(struct faults *faults, int call, int64_t delay_ms);
/* Renewals of this name have no effect and are refused, whatever else is in the batch; NULL: none. */
void faults_spoil(struct faults *faults, const char *name);
/* From now on an exclusive hold keeps nobody out: a store that breaks its promise. Also cleared by faults_clear. */
void faults_grant_twice(struct faults *faults, bool twice);
/* Clears all faults and delays; the locks stay. */
void faults_clear(struct faults *faults);
/* The store's clock jumps ahead. */
void faults_advance(struct faults *faults, int64_t ms);
/* Ends the leases that hold or await the name (NULL: every name), as if their TTL had run out now. Returns
 * how many. */
int faults_expire(struct faults *faults, const char *name);
uint64_t faults_count(struct faults *faults, int call);
void faults_reset_counts(struct faults *faults);
/* When (clock_boot_ms) the store will let go of the present holder of the name, 0 if nobody holds it. */
int64_t faults_expiry_ms(struct faults *faults, const char *name);

const char *fault_call_name(int call);

#endif
