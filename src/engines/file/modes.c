/* modes.c: which ranges of a lock file each mode takes.
 *
 *   exclusive  GATE and MAIN, exclusive, in one call
 *   shared     GATE shared for a moment (nobody waits to write), MAIN shared, one SLOT
 *   permit     MAIN shared, one SLOT below N
 *
 * A writer who waits takes GATE first, as soon as it can, so that readers cannot starve it. Readers
 * and permit holders look alike to MAIN, so page->permits says which of the two kinds uses it. It
 * is changed only while having GATE and MAIN exclusively, that is, while nobody holds the name. */
#include "engines/file/store.h"

#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

/* Another process may be within the few microseconds of changing the kind, so that a name in use in
 * another way is believed only after having been seen held so this often, a millisecond apart. */
#define KIND_LOOKS 20

struct looks {
    int made, held; /* in so many of them the name was held */
};

static void look_later(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Somebody is in the way. Who holds the name has a token; who is only about to, or about to change its kind, has none yet. For him a waiter
 * comes again soon (waiting.c), however long he was stopped; to others the name is busy. */
static bool look_again(struct looks *looks, const struct file_claim *own)
{
    bool held = lockfile_locked(&own->file, RANGE_TOKEN, RANGE_TOKENS, NULL);

    looks->made++;
    looks->held += held;
    if (looks->made == KIND_LOOKS || (own->registered && !held))
        return false;
    look_later();
    return true;
}

static int trouble(const struct file_claim *own, int failure, struct error_text *err)
{
    return error_set_errno(err, failure == ENOLCK || failure == ENOMEM ? HF_ENOMEM : HF_EIO,
                           failure, "cannot lock the file of '%s'", own->claim->name);
}

static int in_use_otherwise(const struct file_claim *own, uint32_t permits, struct error_text *err)
{
    if (permits)
        return error_set(err, HF_EMODE, "'%s' is in use with %u permits", own->claim->name,
                         permits);
    return error_set(err, HF_EMODE, "'%s' is in use as a lock, without permits", own->claim->name);
}

static int not_ours(const struct file_claim *own, const struct looks *looks, uint32_t permits,
                    struct error_text *err)
{
    return looks->held < KIND_LOOKS ? ENGINE_BUSY : in_use_otherwise(own, permits, err);
}

static int try_exclusive(struct file_claim *own, struct error_text *err)
{
    const struct lockfile *file = &own->file;
    uint32_t permits = 0;
    int failure;

    for (int look = 0; look < KIND_LOOKS; look++) {
        if (own->has_gate)
            failure = lockfile_lock(file, F_WRLCK, RANGE_MAIN, 1);
        else
            failure = lockfile_lock(file, F_WRLCK, RANGE_GATE, 2);
        if (failure == 0) {
            if (atomic_load(&file->page->permits) != 0)
                atomic_store(&file->page->permits, 0);
            own->has_gate = false;
            return ENGINE_HELD;
        }
        if (failure != EAGAIN)
            return trouble(own, failure, err);
        permits = atomic_load(&file->page->permits);
        if (permits == 0 || !lockfile_locked(file, RANGE_SLOT, LOCKFILE_SLOTS_MAX, NULL)) {
            if (own->registered && !own->has_gate &&
                lockfile_lock(file, F_WRLCK, RANGE_GATE, 1) == 0) {
                own->has_gate = true;
                continue; /* MAIN may have come free meanwhile */
            }
            return ENGINE_BUSY;
        }
        look_later();
    }
    return in_use_otherwise(own, permits, err);
}

/* Takes a SLOT below `limit`. Begins at a place of its own, so that many do not all try the same.
 */
static int take_slot(struct file_claim *own, uint32_t limit, struct error_text *err)
{
    uint32_t first = (uint32_t)(hash_bytes(own->claim->lease, strlen(own->claim->lease)) % limit);

    for (uint32_t i = 0; i < limit; i++) {
        int64_t slot = (first + i) % limit;
        int failure = lockfile_lock(&own->file, F_WRLCK, RANGE_SLOT + slot, 1);

        if (failure == 0) {
            own->slot = slot;
            return ENGINE_HELD;
        }
        if (failure != EAGAIN)
            return trouble(own, failure, err);
    }
    return ENGINE_BUSY;
}

/* Makes the name one of `permits` permits (0: of readers and writers), if nobody uses it now, and
 * leaves us with MAIN shared. EAGAIN if somebody does. */
static int change_kind(const struct file_claim *own, uint32_t permits)
{
    const struct lockfile *file = &own->file;
    int failure = lockfile_lock(file, F_WRLCK, RANGE_GATE, 2);

    if (failure)
        return failure;
    atomic_store(&file->page->permits, permits);
    failure = lockfile_lock(file, F_RDLCK, RANGE_MAIN, 1);
    lockfile_lock(file, F_UNLCK, RANGE_GATE, 1);
    return failure;
}

static int try_shared(struct file_claim *own, struct error_text *err)
{
    const struct lockfile *file = &own->file;
    struct looks looks = {0};
    uint32_t permits = 0;

    do {
        int outcome, failure = lockfile_lock(file, F_RDLCK, RANGE_GATE, 2);

        if (failure == EAGAIN)
            return ENGINE_BUSY;
        if (failure)
            return trouble(own, failure, err);
        permits = atomic_load(&file->page->permits);
        if (permits != 0) {
            lockfile_lock(file, F_UNLCK, RANGE_GATE, 2);
            failure = change_kind(own, 0);
            if (failure == EAGAIN)
                continue;
            if (failure)
                return trouble(own, failure, err);
        }
        outcome = take_slot(own, LOCKFILE_SLOTS_MAX, err);
        if (outcome == ENGINE_HELD) {
            lockfile_lock(file, F_UNLCK, RANGE_GATE, 1);
            return ENGINE_HELD;
        }
        lockfile_lock(file, F_UNLCK, RANGE_GATE, 2);
        if (outcome == ENGINE_BUSY)
            return error_set(err, HF_EREFUSED, "'%s' already has %d readers, the most there can be",
                             own->claim->name, LOCKFILE_SLOTS_MAX);
        return outcome;
    } while (look_again(&looks, own));
    return not_ours(own, &looks, permits, err);
}

static int try_permit(struct file_claim *own, struct error_text *err)
{
    const struct lockfile *file = &own->file;
    uint32_t wanted = own->claim->permits, permits = 0;
    struct looks looks = {0};

    do {
        int outcome, failure = lockfile_lock(file, F_RDLCK, RANGE_MAIN, 1);

        permits = atomic_load(&file->page->permits);
        if (failure == 0 && permits != wanted)
            failure = change_kind(own, wanted);
        if (failure == EAGAIN && permits == wanted)
            return ENGINE_BUSY;
        if (failure == EAGAIN) {
            lockfile_lock(file, F_UNLCK, RANGE_MAIN, 1);
            continue;
        }
        if (failure)
            return trouble(own, failure, err);
        outcome = take_slot(own, wanted, err);
        if (outcome != ENGINE_HELD)
            lockfile_lock(file, F_UNLCK, RANGE_MAIN, 1);
        return outcome;
    } while (look_again(&looks, own));
    return not_ours(own, &looks, permits, err);
}

int modes_try(struct file_claim *own, struct error_text *err)
{
    switch (own->claim->mode) {
    case HF_SHARED:
        return try_shared(own, err);
    case HF_PERMIT:
        return try_permit(own, err);
    default:
        return try_exclusive(own, err);
    }
}
