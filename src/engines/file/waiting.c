/* waiting.c: sleeping until it is worth trying again, and waking whom it concerns.
 *
 * The kernel can put a thread to sleep until a range is free, but not with a time limit, not for
 * any of N ranges, and not so that somebody else can call it off, unless by signals, which are not
 * ours. So we sleep on a futex in the lock file's first page, the bell, and whoever lets go rings
 * it:
 *
 *   waiter    shows itself (WAIT), asks for attention, reads the bell, tries, sleeps while the bell
 *             is unchanged
 *   releaser  unlocks; if attention is asked for, asks the kernel whether anybody does wait; if so,
 * rings
 *
 * If the releaser did not see the waiter, the waiter showed itself after the unlocking, and its try
 * came later still. So no wake-up is lost, and a release that nobody waits for costs one load.
 * Attention only grows, until somebody finds that nobody is there and takes back the very number it
 * had seen: so a waiter that comes meanwhile is not overlooked, and a dead one is forgotten.
 *
 * One is woken. Sleepers have a bit of the futex mask for what they are, so that the one who can
 * use the change is chosen: the writer with the gate, else anybody; a reader who got in wakes the
 * next reader. Whoever leaves without the lock passes the wake-up on.
 *
 * A holder that is killed rings nothing. The kernel unlocks its ranges, and tells inotify that the
 * file was closed. One waiter per name, the HEAD, listens for that. When it becomes the holder or
 * leaves, the next waiter it wakes takes its place. Where inotify is used up, the head looks every
 * HEAD_NAP_MS instead. Behind all that everybody looks again every RECHECK_MS, for the case that
 * the one who was woken is killed before it can act. */
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define RECHECK_MS 400
#define RECHECK_JITTER_MS 200
#define HEAD_NAP_MS 20
#define HASTY_NAPS 4 /* of 1, 4, 16, 64 ms */
#define HELD_CHECK_MS 1000

enum {
    BIT_GATE_WRITER = 1,
    BIT_WRITER = 2,
    BIT_READER = 4,
    BIT_PERMIT = 8,
    BIT_OBSERVER = 16,
    BITS_WAITERS = BIT_WRITER | BIT_READER | BIT_PERMIT,
};

/* ---- the bell -------------------------------------------------------------------------------- */

static bool anybody(const struct lockfile *file)
{
    uint32_t attention = atomic_load(&file->page->attention);

    if (attention == 0)
        return false;
    if (lockfile_locked(file, RANGE_WAIT, RANGE_SLOT - RANGE_WAIT, NULL))
        return true;
    atomic_compare_exchange_strong(&file->page->attention, &attention, 0);
    return false;
}

static void change_bell(const struct lockfile *file)
{
    atomic_fetch_add(&file->page->bell, 1);
}

static void wake_one(const struct lockfile *file)
{
    if (futex_wake(&file->page->bell, BIT_GATE_WRITER, 1) == 0)
        futex_wake(&file->page->bell, BITS_WAITERS, 1);
}

void waiting_ring_released(const struct lockfile *file)
{
    if (!anybody(file))
        return;
    change_bell(file);
    wake_one(file);
    futex_wake(&file->page->bell, BIT_OBSERVER, INT_MAX);
}

void waiting_ring_granted(const struct lockfile *file, int mode, bool was_head)
{
    if (!anybody(file))
        return;
    change_bell(file);
    futex_wake(&file->page->bell, BIT_OBSERVER, INT_MAX);
    if (mode == HF_SHARED)
        futex_wake(&file->page->bell, BIT_READER, 1);
    if (was_head)
        wake_one(file); /* somebody must watch over the new holder: us */
}

void waiting_ring_all(const struct lockfile *file)
{
    change_bell(file);
    futex_wake(&file->page->bell, FUTEX_MASK_ALL, INT_MAX);
}

/* ---- being seen to wait ---------------------------------------------------------------------- */

int waiting_register(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    static _Atomic uint32_t next;
    int64_t range = own->claim->mode == ENGINE_OBSERVE ? RANGE_WATCH : RANGE_WAIT;
    int64_t place =
        (int64_t)store->pid * RANGE_PER_PID + atomic_fetch_add(&next, 1) % RANGE_PER_PID;
    int failure = lockfile_lock(&own->file, F_RDLCK, range + place, 1);

    if (failure)
        return directory_failure(&store->directory, failure, "wait for a lock", err);
    if (atomic_fetch_add(&own->file.page->attention, 1) == UINT32_MAX)
        atomic_fetch_add(&own->file.page->attention, 1); /* 0 would say that nobody is there */
    pthread_mutex_lock(&store->mutex);
    list_append(&store->waiting, &own->link);
    own->registered = true;
    pthread_mutex_unlock(&store->mutex);
    return HF_OK;
}

/* Two claims of this store on one file share the kernel's watch. */
static bool watch_is_shared(struct engine_store *store, const struct file_claim *own)
{
    LIST_EACH(node, &store->waiting)
    {
        const struct file_claim *other = LIST_ENTRY(node, struct file_claim, link);

        if (other != own && other->watch == own->watch)
            return true;
    }
    return false;
}

void waiting_unregister(struct engine_store *store, struct file_claim *own)
{
    if (!own->registered)
        return;
    pthread_mutex_lock(&store->mutex);
    list_remove(&own->link);
    if (own->watch >= 0 && !watch_is_shared(store, own))
        inotify_rm_watch(store->inotify_fd, own->watch);
    own->watch = -1;
    own->registered = false;
    pthread_mutex_unlock(&store->mutex);
    if (own->file.fd >= 0)
        lockfile_lock(&own->file, F_UNLCK, RANGE_HEAD, RANGE_SLOT - RANGE_HEAD);
    own->is_head = false;
}

/* ---- hearing of deaths and of break ---------------------------------------------------------- */

/* With the mutex held. Instances of inotify are few (128 per user by default): one per store, made
 * when it is first needed, and not having one only makes us slower to notice. */
static void open_inotify(struct engine_store *store)
{
    if (store->inotify_fd >= 0 || store->no_inotify)
        return;
    store->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (store->inotify_fd >= 0) {
        store->directory_watch =
            inotify_add_watch(store->inotify_fd, store->directory.locks_path, IN_MOVED_TO);
        if (store->directory_watch >= 0)
            return;
        close(store->inotify_fd);
        store->inotify_fd = -1;
    }
    store->no_inotify = true;
}

static void watch_file(struct engine_store *store, struct file_claim *own)
{
    char path[sizeof store->directory.locks_path + sizeof own->file.file_name + 1];

    snprintf(path, sizeof path, "%s/%s", store->directory.locks_path, own->file.file_name);
    pthread_mutex_lock(&store->mutex);
    open_inotify(store);
    if (store->inotify_fd >= 0)
        own->watch = inotify_add_watch(store->inotify_fd, path, IN_CLOSE_WRITE | IN_DONT_FOLLOW);
    pthread_mutex_unlock(&store->mutex);
    /* The holder may have died before we listened. */
    if (own->watch >= 0)
        atomic_store(&own->hasty, 1);
}

void waiting_watch_holder(struct engine_store *store, struct file_claim *own)
{
    if (own->is_head || lockfile_lock(&own->file, F_WRLCK, RANGE_HEAD, 1) != 0)
        return;
    own->is_head = true;
    watch_file(store, own);
}

/* With the mutex held, so that the page cannot go away. */
static void kick(struct file_claim *own)
{
    atomic_store(&own->woken, true);
    change_bell(&own->file);
    futex_wake(&own->file.page->bell, own->own_bit, INT_MAX);
}

/* With the mutex held. file_name NULL: any. */
static void tell_broken_holders(struct engine_store *store, const char *file_name)
{
    LIST_EACH_SAFE(node, &store->held)
    {
        struct file_claim *own = LIST_ENTRY(node, struct file_claim, link);

        if (file_name && strcmp(file_name, own->file.file_name) != 0)
            continue;
        if (!lockfile_is_current(&store->directory, &own->file))
            store->host.lost(store->host.context, own->claim, "broken by an operator");
    }
}

static void tell_waiters(struct engine_store *store, int watch)
{
    LIST_EACH(node, &store->waiting)
    {
        struct file_claim *own = LIST_ENTRY(node, struct file_claim, link);

        if (watch >= 0 && own->watch != watch)
            continue;
        atomic_store(&own->hasty, HASTY_NAPS);
        kick(own);
    }
}

static void handle_event(struct engine_store *store, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW) {
        tell_broken_holders(store, NULL);
        tell_waiters(store, -1);
    } else if (event->wd == store->directory_watch && event->len > 0) {
        tell_broken_holders(store, event->name);
    } else if (event->mask & IN_CLOSE_WRITE) {
        tell_waiters(store, event->wd);
    }
}

int file_poll_fd(struct engine_store *store)
{
    int fd;

    pthread_mutex_lock(&store->mutex);
    open_inotify(store);
    tell_broken_holders(store, NULL); /* what happened before we listened */
    fd = store->inotify_fd;
    pthread_mutex_unlock(&store->mutex);
    return fd;
}

int64_t file_process(struct engine_store *store)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t size;

    pthread_mutex_lock(&store->mutex);
    if (store->inotify_fd < 0)
        tell_broken_holders(store, NULL);
    while (store->inotify_fd >= 0 && (size = read(store->inotify_fd, events, sizeof events)) > 0) {
        for (char *at = events; at < events + size;) {
            const struct inotify_event *event = (const struct inotify_event *)(void *)at;

            handle_event(store, event);
            at += sizeof *event + event->len;
        }
    }
    pthread_mutex_unlock(&store->mutex);
    return store->no_inotify ? HELD_CHECK_MS : -1;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static uint32_t mask_of(const struct file_claim *own)
{
    switch (own->claim->mode) {
    case ENGINE_OBSERVE:
        return own->own_bit | BIT_OBSERVER;
    case HF_SHARED:
        return own->own_bit | BIT_READER;
    case HF_PERMIT:
        return own->own_bit | BIT_PERMIT;
    default:
        return own->own_bit | (own->has_gate ? BIT_GATE_WRITER : BIT_WRITER);
    }
}

/* How long to sleep at most before looking again. */
static int64_t nap_ms(struct file_claim *own)
{
    int hasty = atomic_load(&own->hasty);

    if (hasty > 0) {
        atomic_store(&own->hasty, hasty - 1);
        return INT64_C(1) << (2 * (HASTY_NAPS - hasty));
    }
    if ((own->is_head || own->claim->mode == ENGINE_OBSERVE) && own->watch < 0)
        return HEAD_NAP_MS;
    return RECHECK_MS + (int64_t)random_below(RECHECK_JITTER_MS);
}

static void sleep_on_bell(struct file_claim *own, int64_t until_ms)
{
    int64_t nap_end = clock_after(clock_boot_ms(), nap_ms(own));
    _Atomic uint32_t *bell = &own->file.page->bell;

    if (until_ms > nap_end)
        until_ms = nap_end;
    while (!atomic_load(&own->woken) && atomic_load(bell) == own->seen &&
           clock_boot_ms() < until_ms)
        futex_wait(bell, own->seen, mask_of(own), until_ms);
    atomic_store(&own->woken, false);
}

/* An observer's file: opened at the first call, and again when `break` has replaced it. */
static int prepare_observer(struct engine_store *store, struct engine_claim *claim, bool *ret_fresh,
                            struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);
    int result;

    *ret_fresh = false;
    if (own->file.fd >= 0 && lockfile_is_current(&store->directory, &own->file))
        return HF_OK;
    waiting_unregister(store, own);
    lockfile_close(&own->file);
    result = lockfile_open(&store->directory, claim->name, &own->file, err);
    if (result != HF_OK)
        return result;
    *ret_fresh = true;
    result = waiting_register(store, own, err);
    if (result == HF_OK)
        watch_file(store, own);
    own->seen = atomic_load(&own->file.page->bell);
    return result;
}

int file_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
              struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);
    bool fresh;
    int result;

    if (claim->mode != ENGINE_OBSERVE) {
        if (own && own->file.fd >= 0)
            sleep_on_bell(own, until_ms);
        return HF_OK;
    }
    own = claims_own(claim);
    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = prepare_observer(store, claim, &fresh, err);
    if (result != HF_OK || fresh)
        return result;
    sleep_on_bell(own, until_ms);
    own->seen = atomic_load(&own->file.page->bell);
    return HF_OK;
}

void file_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct file_claim *own = file_claim_of(claim);

    if (!own)
        return;
    atomic_store(&own->woken, true);
    pthread_mutex_lock(&store->mutex);
    if (own->registered)
        kick(own);
    pthread_mutex_unlock(&store->mutex);
}
