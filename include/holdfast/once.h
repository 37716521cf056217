/* SPDX-License-Identifier: Apache-2.0
 *
 * once.h: something that is to be done once, however often it is asked for: a payment that its caller
 * retries, a cache that a hundred callers find empty. The first one with a key runs it and stores
 * what came out; the others wait, and get that for as long as it is kept.
 *
 *     hf_once *once;
 *     if (hf_once_begin(store, "charge:4711", NULL, &once) != HF_OK) die(hf_error());
 *     if (hf_once_runs(once)) {
 *         charge(hf_once_token(once), receipt);
 *         if (hf_once_finish(once, receipt, strlen(receipt), HF_ONCE_KEEP_MS) != HF_OK) ...
 *     } else {
 *         reply(hf_once_result(once, &size), size);
 *         hf_once_free(once);
 *     }
 *
 * It runs at least once until a result is stored, and there is at most one result: a runner that was
 * stopped for too long is replaced, and is refused when it comes to finish (HF_ESTALE). So what is
 * run must check the token, too: guard.h.
 *
 * Results, threads and fork are as holdfast.h says.
 */
#ifndef HOLDFAST_ONCE_H
#define HOLDFAST_ONCE_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_ONCE_RESULT_MAX 65536           /* bytes of a result */
#define HF_ONCE_KEEP_MS INT64_C(86400000)  /* 24 h: a usual time to keep a result */
#define HF_ONCE_DEATH_MS INT64_C(86400000) /* 24 h: how long a death is known unless one says */

typedef struct hf_once hf_once; /* an answer of hf_once_begin or hf_once_read */

/* What is known of a key. */
enum hf_once_state {
    HF_ONCE_NOTHING = 0, /* nobody runs it, and nothing of an earlier run is known any more */
    HF_ONCE_RUNNING = 1,
    HF_ONCE_DONE = 2, /* its result is kept */
    HF_ONCE_DIED = 3  /* whoever ran it died, and nobody has run it since */
};

typedef struct hf_once_options {
    size_t size;
    int64_t wait_ms;     /* for somebody else's result: HF_FOREVER, 0, or the longest wait */
    int64_t ttl_ms;      /* of the runner's lease; 0: the store's default */
    int fail_if_died;    /* non-zero: never run again what a runner died over (HF_ELOST) */
    int64_t death_ms;    /* how long our own death is known to those who say so; 0: 24 h */
    const char *owner;   /* as in hf_options */
    hf_cancel *cancel;   /* as in hf_options */
    int need_strict;     /* as in hf_options */
    int64_t progress_ms; /* as in hf_options; hf_once_lock is what to report of */
} hf_once_options;

/* clang-format off */
#define HF_ONCE_OPTIONS_INIT { sizeof(hf_once_options), HF_FOREVER, 0, 0, 0, NULL, NULL, 0, 0 }
/* clang-format on */

/* ---- doing it -------------------------------------------------------------------------------- */

/* Ends in one of three ways, never two:
 *
 *     HF_OK         hf_once_runs: nobody has run it, run it now, and finish or release it. Else: it has
 *                   been run, hf_once_result has what came out
 *     an error      neither. HF_EBUSY: somebody runs it, and did not finish in time. HF_ELOST: with
 *                   fail_if_died, whoever ran it died over it
 *     HF_EUNKNOWN   it may have been given to us, and the store could not be asked. Then nothing has
 *                   been run, and others learn that when its TTL has run out
 *
 * A key is a name of its own kind: a lock of that name has nothing to do with it. options NULL: waits as
 * long as it takes, and runs what a runner died over. A store without HF_HAS_ONCE: HF_ENOTSUP. */
HF_API int hf_once_begin(hf_store *store, const char *key, const hf_once_options *options,
                         hf_once **ret_once);

/* Non-zero: it is ours to run. While it is, it is held like a lock, and renewed by itself. */
HF_API int hf_once_runs(const hf_once *once);
/* The fencing token of whoever ran it, or runs it: of a successor always greater. */
HF_API uint64_t hf_once_token(const hf_once *once);
/* What came out: NULL if nothing has, never if something has, be it of 0 bytes. Lives as long as the
 * answer. ret_size may be NULL; untouched with NULL. */
HF_API const void *hf_once_result(const hf_once *once, size_t *ret_size);
/* While it is ours to run: the hold, for hf_lock_left_ms, hf_lock_lost_fd, hf_lock_name, hf_renew,
 * hf_progress and hf_lock_pass_fd. It is not to be released or detached. Else NULL. */
HF_API hf_lock *hf_once_lock(const hf_once *once);

/* Stores what came out for keep_ms (1 ms to a year), gives it to all who wait, and frees `once`, all of
 * it whatever the answer, but for HF_EINVAL (a result too large): then nothing has happened.
 *
 *     HF_OK         it is stored
 *     HF_ESTALE     it is not: we were lost, or replaced, and what a successor stores is the result
 *     HF_EUNKNOWN   it may or may not be; hf_once_read tells when the store can be reached again
 *     others        it is not. Others run it when our lease has run out
 */
HF_API int hf_once_finish(hf_once *once, const void *bytes, size_t size, int64_t keep_ms);
/* Stores nothing: the key is free again, and the next who waits runs it. Frees `once`, whatever the
 * answer (as of hf_release). NULL, and one that is not ours to run, are fine. */
HF_API int hf_once_release(hf_once *once);
/* The same, for an answer that was only looked at. */
HF_API void hf_once_free(hf_once *once);
/* Gives up as if we had died over it: that is known when our lease has run out, without a TTL at once. For
 * whoever cannot tell what has been done, when it must not be done twice. Frees `once`. NULL is fine. */
HF_API void hf_once_abandon(hf_once *once);

/* ---- asking ---------------------------------------------------------------------------------- */

/* What is known of a key, as of now; free it. */
HF_API int hf_once_read(hf_store *store, const char *key, hf_once **ret_once);
/* Of enum hf_once_state. */
HF_API int hf_once_state(const hf_once *once);
/* 1, with HF_ONCE_NOTHING: nobody gets to run it yet. It was run when the store became another one, by hf_floor or a promotion
 * (PostgreSQL), and its TTL is waited for. */
HF_API int hf_once_withheld(const hf_once *once);
/* Who runs it, "" when not known, and for how long, -1 when not known. */
HF_API const char *hf_once_owner(const hf_once *once);
HF_API int64_t hf_once_age_ms(const hf_once *once);
/* How much longer that is known: the result, the death, or (while it runs) the lease of whoever runs it;
 * when it was asked, but of one that is ours to run as of now. -1 when not known. */
HF_API int64_t hf_once_left_ms(const hf_once *once);

/* ---- started operations ---------------------------------------------------------------------- */

/* As in holdfast.h. What is to be run and is not taken out is released when done returns. */
HF_API int hf_once_begin_start(hf_store *store, const char *key, const hf_once_options *options,
                               hf_done_fn *done, void *arg, hf_op **ret_op);
/* Both consume `once` at once, as hf_release_start does a lock. The bytes are copied. */
HF_API int hf_once_finish_start(hf_once *once, const void *bytes, size_t size, int64_t keep_ms,
                                hf_done_fn *done, void *arg, hf_op **ret_op);
HF_API int hf_once_release_start(hf_once *once, hf_done_fn *done, void *arg, hf_op **ret_op);
HF_API int hf_once_read_start(hf_store *store, const char *key, hf_done_fn *done, void *arg,
                              hf_op **ret_op);
/* Inside done: what a begin or a read brought, yours from then on. */
HF_API hf_once *hf_op_take_once(hf_op *op);

#ifdef __cplusplus
}
#endif

#endif
