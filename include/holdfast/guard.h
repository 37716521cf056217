/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: the resource's side. A lock is only as safe as the resource that checks its token.
 *
 * A holder may be stopped for a minute and go on as if nothing had happened, while the lock has long
 * been somebody else's. No lock can prevent that; the resource can, if it keeps the greatest token
 * that it has seen for each key, its *mark*, and refuses what comes with a smaller one. Two rules:
 *
 *   Enter before you read.  Raise the mark before the first read, not with the write. Else: A reads,
 *                           pauses; B reads; A writes; B writes, and what A wrote is gone.
 *   Check and write are one step.  One transaction, one script, or the key held across the write.
 *
 * A key belongs to one lock name of one store, for exclusive holds: tokens of two stores, and those
 * of shared holds and permits, cannot be compared. docs/fencing.md has each guard with an example.
 *
 * Results, threads and fork are as holdfast.h says.
 */
#ifndef HOLDFAST_GUARD_H
#define HOLDFAST_GUARD_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_KEY_MAX 400 /* bytes of a guard's key, any but NUL, at least 1 */

/* What a guard accepts. */
enum hf_guard_mode {
    HF_NOT_OLDER = 0, /* token >= mark: a holder may write many times */
    HF_NEWER = 1      /* token > mark: a step that must happen once */
};

/* ---- a fence: marks for any resource ---------------------------------------------------------- */

/* ---- SQL -------------------------------------------------------------------------------------- */

/* ---- Redis ------------------------------------------------------------------------------------ */

/* ---- trying again ----------------------------------------------------------------------------- */

#ifdef __cplusplus
}
#endif

#endif
