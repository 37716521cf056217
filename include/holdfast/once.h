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
 *         if (hf_once_finish(once, receipt, strlen(receipt), 24 * 3600 * 1000) != HF_OK) ...
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

#define HF_ONCE_RESULT_MAX 65536 /* bytes of a result */

typedef struct hf_once hf_once; /* an answer of hf_once_begin */

typedef struct hf_once_options {
    size_t size;
    int64_t wait_ms;   /* for somebody else's result: HF_FOREVER, 0, or the longest wait */
    int64_t ttl_ms;    /* of the runner's lease; 0: the store's default */
    int fail_if_died;  /* non-zero: never run again what a runner died over (HF_ELOST) */
    int64_t death_ms;  /* how long our own death is known to those who say so; 0: 24 h */
    const char *owner; /* as in hf_options */
    hf_cancel *cancel; /* as in hf_options */
} hf_once_options;

#ifdef __cplusplus
}
#endif

#endif
