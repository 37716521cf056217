/* claims.c: taking and giving back. The order of an acquisition:
 *
 *   1  the ranges of the mode (modes.c): from here on nobody else has the name
 *   2  the token is drawn, while holding (tokens.c): so tokens grow in the order of the holds
 *   3  the range TOKEN + token: now others can see the hold
 *   4  the file has not been replaced by `break`. If it is from now on, `break` sees us at 3
 *   5  the record, for people
 *
 * A process that dies after any of these leaves nothing: the kernel takes back 1 and 3. */
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/switches.h"
#include "base/text.h"
#include "engines/file/forks.h"
#include "engines/file/withhold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At a key that somebody has whom we do not see run; a millisecond apart. */
#define PASSING_MS 200 /* who only looks is gone by then, also on a busy machine, or was stopped */
#define DRAW_WAIT_MS 1000
#define DRAW_TRY_MS 500 /* of who does not wait: the client tries twice */

struct file_claim *file_claim_of(struct engine_claim *claim)
{
    /* `wake` may look while `acquire` is making it. */
    return __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);
}

struct file_claim *claims_own(struct engine_claim *claim)
{
    static _Atomic uint32_t next_bit;
    struct file_claim *own = file_claim_of(claim);

    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    list_init(&own->link);
    own->claim = claim;
    own->file.fd = -1;
    own->watch = -1;
    own->slot = -1;
    own->own_bit = UINT32_C(1) << (8 + atomic_fetch_add(&next_bit, 1) % 24);
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

/* ---- idle files ------------------------------------------------------------------------------ */

/* Only of locks: a key is seldom used twice. */

static struct lockfile *idle_place(struct engine_store *store, const char *file_name)
{
    return &store->idle[hash_bytes(file_name, strlen(file_name)) % IDLE_FILES_MAX];
}

static int take_file(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    char file_name[sizeof own->file.file_name];
    struct lockfile *idle;
    bool found;

    if (own->claim->once)
        return lockfile_open(&store->keys, own->claim->name, &own->file, err);
    lockfile_encode_name(own->claim->name, file_name);
    idle = idle_place(store, file_name);
    pthread_mutex_lock(&store->mutex);
    found = idle->fd >= 0 && strcmp(idle->file_name, file_name) == 0;
    if (found) {
        own->file = *idle;
        idle->page = NULL;
        idle->fd = -1;
    }
    pthread_mutex_unlock(&store->mutex);
    if (found && !lockfile_is_current(&store->directory, &own->file)) {
        lockfile_close(&own->file);
        found = false;
    }
    return found ? HF_OK : lockfile_open(&store->directory, own->claim->name, &own->file, err);
}

static void put_file_back(struct engine_store *store, struct file_claim *own)
{
    struct lockfile *idle = idle_place(store, own->file.file_name);
    struct lockfile old;

    pthread_mutex_lock(&store->mutex);
    old = *idle;
    *idle = own->file;
    pthread_mutex_unlock(&store->mutex);
    own->file.fd = -1;
    if (old.fd >= 0)
        lockfile_close(&old);
}

/* Closing gives up every range at once. */
static void drop_file(struct engine_store *store, struct file_claim *own)
{
    waiting_unregister(store, own);
    if (own->file.fd >= 0)
        lockfile_close(&own->file);
    own->has_gate = false;
    own->slot = -1;
    own->place = 0;
}

static void unlock_all(struct file_claim *own)
{
    lockfile_lock(&own->file, F_UNLCK, 0, 0);
    own->has_gate = false;
    own->slot = -1;
    own->place = 0;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

/* All but what only a grant brings. */
static void prepare_record(const struct engine_store *store, struct file_claim *own)
{
    const struct engine_claim *claim = own->claim;
    uint64_t digest;

    if (own->record.pid)
        return;
    digest = hash_bytes(claim->lease, strlen(claim->lease));
    own->record.pid = store->pid;
    own->record.mode = (uint32_t)claim->mode;
    own->record.permits = claim->permits;
    text_hex(&digest, sizeof digest, own->record.lease_digest);
    memcpy(own->record.owner, claim->owner, strnlen(claim->owner, HF_OWNER_MAX));
}

/* Those that a grant needs, not those of a waiter. */
static void give_ranges_back(struct file_claim *own)
{
    lockfile_lock(&own->file, F_UNLCK, RANGE_GATE, 2);
    if (own->slot >= 0)
        lockfile_lock(&own->file, F_UNLCK, RANGE_SLOT + own->slot, 1);
    own->slot = -1;
    own->has_gate = false;
}

/* We have the ranges, but may not be meant to. Keys are never broken. */
static int check_withheld(struct engine_store *store, struct file_claim *own,
                          struct error_text *err)
{
    int outcome = withhold_check(store, &own->file, err);

    if (outcome != ENGINE_HELD)
        give_ranges_back(own);
    /* Whoever waits may have descriptors again at the next look. */
    return outcome == HF_ENOMEM && own->claim->will_wait ? ENGINE_BUSY : outcome;
}

/* Step 1. */
static int take_ranges(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    for (;;) {
        int outcome, result;

        if (own->file.fd < 0) {
            result = take_file(store, own, err);
            if (result != HF_OK)
                return result;
        }
        own->seen = atomic_load(&own->file.page->missed);
        outcome = modes_try(own, err);
        if (outcome == ENGINE_HELD && !own->claim->once)
            outcome = check_withheld(store, own, err);
        if (outcome < 0 || outcome == ENGINE_HELD)
            return outcome;
        if (!lockfile_is_current(folder_of(store, own->claim), &own->file)) {
            drop_file(store, own);
            continue;
        }
        if (!own->claim->will_wait)
            return ENGINE_BUSY;
        if (own->registered) {
            waiting_watch_holder(store, own);
            return ENGINE_BUSY;
        }
        /* A release before we are seen to wait rings no bell, so look once more afterwards. */
        prepare_record(store, own);
        result = waiting_register(store, own, err);
        if (result != HF_OK)
            return result;
    }
}

/* Until when to wait for somebody who is raising the tokens. No longer than for a while, since we have the
 * name meanwhile, and cannot be cancelled: the client comes again. */
static int64_t draw_deadline(const struct engine_claim *claim, int64_t deadline_ms)
{
    int64_t while_ms = clock_after(clock_boot_ms(), claim->will_wait ? DRAW_WAIT_MS : DRAW_TRY_MS);

    return deadline_ms < while_ms ? deadline_ms : while_ms;
}

/* Steps 2 to 5. */
static int make_known(struct engine_store *store, struct file_claim *own, int64_t deadline_ms,
                      bool *ret_replaced, struct error_text *err)
{
    struct engine_claim *claim = own->claim;
    uint64_t token;
    int failure, result = file_open_tokens(store, true, err);

    if (result == HF_OK)
        result = tokens_draw(&store->tokens, draw_deadline(claim, deadline_ms), &token, err);
    if (result != HF_OK)
        return result;
    failure = lockfile_lock(&own->file, F_WRLCK, RANGE_TOKEN + (int64_t)token, 1);
    if (failure)
        return directory_failure(&store->directory, failure, "lock a token", err);
    *ret_replaced =
        lockfile_is_replaced(folder_of(store, claim), &own->file) && !SWITCHED(SWITCH_BREAK_UNSEEN);
    if (*ret_replaced)
        return HF_OK;
    claim->token = token;
    prepare_record(store, own);
    own->record.token = token;
    own->record.granted_boot_ms = clock_boot_ms();
    own->record.wait_place = own->place;
    failure = lockfile_write_record(&own->file, (uint32_t)(own->slot + 1), &own->record);
    if (failure)
        return directory_failure(&store->directory, failure, "write a record", err);
    return HF_OK;
}

/* An attempt that failed leaves nothing locked. */
static void undo(struct engine_store *store, struct file_claim *own)
{
    bool was_registered = own->registered;

    waiting_unregister(store, own);
    if (own->file.fd < 0)
        return;
    unlock_all(own);
    if (was_registered || own->claim->once)           /* a wake-up may have been meant for us, */
        waiting_ring_released(&own->file, HF_SHARED); /* or we were in somebody's way */
}

/* Steps 1 to 5, again if the file turns out to be replaced. A key may turn out to be done. */
static int take(struct engine_store *store, struct file_claim *own, int64_t deadline_ms,
                struct error_text *err)
{
    bool replaced = false;
    int outcome;

    do {
        if (replaced)
            drop_file(store, own);
        outcome = take_ranges(store, own, err);
        replaced = false;
        if (outcome == ENGINE_HELD && own->claim->once)
            outcome = file_once_decide(store, own, &replaced, err);
        if (outcome == ENGINE_HELD && !replaced)
            outcome = make_known(store, own, deadline_ms, &replaced, err);
    } while (outcome == ENGINE_HELD && replaced);
    if (outcome == ENGINE_HELD && own->claim->once)
        outcome = file_once_begin(store, own, err);
    return outcome;
}

/* The same for a key, whose record may answer although somebody has the lock. Whoever does not wait
 * shall not hear that it is busy because of somebody who only looks. */
static int take_key(struct engine_store *store, struct file_claim *own, int64_t deadline_ms,
                    struct error_text *err)
{
    int64_t until_ms = clock_after(clock_boot_ms(), PASSING_MS);
    int outcome = file_once_look(store, own->claim, err);

    if (outcome != ENGINE_HELD)
        return outcome;
    outcome = take(store, own, deadline_ms, err);
    while (outcome == ENGINE_BUSY && file_once_is_passing(own) && clock_boot_ms() < until_ms) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        outcome = take(store, own, deadline_ms, err);
    }
    return outcome;
}

int file_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct file_claim *own = claims_own(claim);
    int outcome;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (own->held)
        return ENGINE_HELD; /* the same lease, the same token */
    outcome =
        claim->once ? take_key(store, own, deadline_ms, err) : take(store, own, deadline_ms, err);
    if (outcome < 0 || outcome == ENGINE_DONE || outcome == ENGINE_DIED)
        undo(store, own);
    if (outcome != ENGINE_HELD)
        return outcome;
    own->held = true;
    waiting_granted(store, own);
    return ENGINE_HELD;
}

/* ---- giving back ----------------------------------------------------------------------------- */

static void leave_list(struct engine_store *store, struct file_claim *own)
{
    pthread_mutex_lock(&store->mutex);
    list_remove(&own->link);
    pthread_mutex_unlock(&store->mutex);
}

void claims_let_go(struct engine_store *store, struct file_claim *own, bool ring_all)
{
    int mode = own->claim->mode;

    if (own->passed) {
        leave_list(store, own);
        waiting_forget_the_dead(&own->file);
        /* As long as a child has the descriptor, the hold is the child's. The page outlives it. */
        forks_close(own->file.fd);
        own->file.fd = -1;
    } else {
        unlock_all(own);
    }
    if (ring_all)
        waiting_ring_all(&own->file);
    else
        waiting_ring_released(&own->file, mode);
    if (own->passed)
        lockfile_close(&own->file);
    else
        leave_list(store, own);
    own->held = false;
}

int file_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);
    bool replaced;
    int result;

    (void)deadline_ms;
    if (!own || !own->held)
        return error_set(err, HF_ELOST, "'%s' is not held", claim->name);
    replaced = lockfile_is_replaced(folder_of(store, claim), &own->file);
    result = claim->once ? file_once_forget(store, own, err) : HF_OK;
    claims_let_go(store, own, false);
    if (replaced)
        return error_set(err, HF_ELOST, "'%s' had been broken by an operator", claim->name);
    return result;
}

int file_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);

    if (!own || own->file.fd < 0)
        return HF_OK;
    if (own->held) {
        int result = file_release(store, claim, deadline_ms, err);

        return result == HF_ELOST ? HF_OK : result;
    }
    waiting_unregister(store, own);
    unlock_all(own);
    waiting_ring_released(&own->file, HF_SHARED); /* the wake-up that we leave unused */
    return HF_OK;
}

void file_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct file_claim *own = file_claim_of(claim);

    if (!own)
        return;
    if (!store->forked) { /* else closed at the fork, and the page may be unmapped already */
        if (own->registered)
            file_abandon(store, claim, 0, NULL);
        if (own->held)
            leave_list(store, own);
        if (own->file.fd >= 0 && (own->held || claim->once || claim->mode == ENGINE_OBSERVE))
            lockfile_close(&own->file);
        else if (own->file.fd >= 0)
            put_file_back(store, own);
    }
    /* First: a child forked in between must not free it again. */
    __atomic_store_n(&claim->private, NULL, __ATOMIC_RELEASE);
    free(own);
}

int file_pass_fd(struct engine_store *store, struct engine_claim *claim, int *ret_fd,
                 struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);
    int fd;

    if (!own || !own->held)
        return error_set(err, HF_ELOST, "'%s' is not held", claim->name);
    fd = fcntl(own->file.fd, F_DUPFD, 3);
    if (fd < 0)
        return directory_failure(&store->directory, errno, "copy a descriptor", err);
    own->passed = true;
    *ret_fd = fd;
    return HF_OK;
}
