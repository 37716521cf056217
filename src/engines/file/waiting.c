/* waiting.c: sleeping until it is worth trying again, and waking whom it concerns.
 *
 * The kernel can put a thread to sleep until a range is free, but not with a time limit, not for any
 * of N ranges, and not so that somebody else can call it off, unless by signals, which are not ours.
 * So we sleep on a futex in the lock file's first page, the bell, and whoever lets go rings it:
 *
 *   waiter    shows itself (WAIT), asks for attention, reads `missed`, tries, sleeps on the bell unless
 *             `missed` has changed
 *   releaser  unlocks; if attention is asked for, wakes one who sleeps; if nobody sleeps, says so in
 *             `missed`, changes the bell, and tries once more; if nobody hears that either, asks the
 *             kernel whether anybody waits at all
 *
 * If the releaser did not see the attention, the waiter asked for it after the unlocking, and its try
 * came later still. If he found nobody asleep, those try again who were awake. So no wake-up is lost, and a
 * release that nobody waits for costs one load. Where one was woken nobody else need try: else all who are
 * about to sleep would do so with every release, and of thousands ever more would be awake, and slow each
 * other down, until none of them slept.
 * Attention only grows, until somebody finds that nobody is there and takes back the very number it
 * had seen: so a waiter that comes meanwhile is not overlooked, and a dead one is forgotten.
 *
 * One is woken. Sleepers have a bit of the futex mask for what they are, so that the one who can use
 * the change is chosen: the writer with the gate, else anybody; a reader who got in wakes the next
 * reader. Whoever leaves without the lock passes the wake-up on.
 *
 * A holder that is killed rings nothing. The kernel unlocks its ranges, and tells inotify that the
 * file was closed. One waiter per holder, the HEAD, listens for that. When it becomes the holder or
 * leaves, the waiter that it wakes takes its place. But closing an inotify instance makes the kernel
 * wait for some 10 ms, so a head looks every HEAD_NAP_MS at first, and listens only when its wait has
 * lasted a while; where instances are used up, it goes on looking. If a writer with the gate is asleep when
 * the last holder has died, the head wakes it. Holders hear of `break` in the same
 * way, and look once before they listen. Behind all that everybody who waits looks again every
 * RECHECK_MS, for the case that the one who was woken is killed before it can act. A look costs the kernel
 * time for everybody who waits, since it keeps all ranges of a file in one list. So whoever finds that
 * another has looked within the last RECHECK_APART_MS leaves it at that, and sleeps longer, up to
 * RECHECK_MS_MAX: of a crowd somebody looks all the time, and a lock that is free is found by him. Nobody
 * is counted for this, so that no number can be wrong because of those who were killed. */
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
#define RECHECK_MS_MAX 1600 /* where others look; the jitter is added to it */
#define RECHECK_APART_MS 25 /* 40 looks a second, of all together */
#define RECHECK_SKIPS_MAX \
    16 /* then we look all the same: what we wait for may be of no use to those who look */
#define HEAD_NAP_MS 20
#define HASTY_NAPS 4        /* of 1, 4, 16, 64 ms */
#define LISTEN_AFTER_MS 100 /* of waiting as the head */
#define HELD_CHECK_MS 250
#define REMOVED_CHECK_MS 5000 /* nothing tells us that a held file was removed, but a look */

enum {
    BIT_GATE_WRITER = 1,
    BIT_WRITER = 2,
    BIT_READER = 4,
    BIT_PERMIT = 8,
    BIT_OBSERVER = 16,
    BIT_LISTENER = 32, /* the few who hear of deaths by inotify */
    BITS_WAITERS = BIT_WRITER | BIT_READER | BIT_PERMIT,
};

/* ---- the bell -------------------------------------------------------------------------------- */

/* A hint that nobody heeded: is anybody there at all? `seen` is from before the ringing. */
static void take_back(const struct lockfile *file, _Atomic uint32_t *hint, uint32_t seen,
                      int64_t from)
{
    if (file->fd >= 0 && lockfile_find_lock(file, from, RANGE_SLOT - from, NULL) == 0)
        atomic_compare_exchange_strong(hint, &seen, 0);
}

/* Whoever is awake has to look again; and whoever falls asleep just now does not. */
static void say_missed(const struct lockfile *file)
{
    atomic_fetch_add(&file->page->missed, 1);
    atomic_fetch_add(&file->page->bell, 1);
}

void waiting_forget_the_dead(const struct lockfile *file)
{
    uint32_t attention = atomic_load(&file->page->attention);

    if (attention != 0)
        take_back(file, &file->page->attention, attention, RANGE_WAIT);
}

static int wake_observers(const struct lockfile *file)
{
    uint32_t watchers = atomic_load(&file->page->watchers);
    int woken;

    if (watchers == 0)
        return 0;
    say_missed(file);
    woken = futex_wake(&file->page->bell, BIT_OBSERVER, INT_MAX);
    if (woken == 0)
        take_back(file, &file->page->watchers, watchers, RANGE_WATCH);
    return woken;
}

static int wake_sleeper(const struct lockfile *file, int mode)
{
    /* While somebody held it exclusively, no writer could have the gate. */
    if (mode != HF_EXCLUSIVE && futex_wake(&file->page->bell, BIT_GATE_WRITER, 1) > 0)
        return 1;
    return futex_wake(&file->page->bell, BITS_WAITERS, 1);
}

static int wake_one(const struct lockfile *file, int mode)
{
    if (wake_sleeper(file, mode) > 0)
        return 1;
    say_missed(file);
    return wake_sleeper(file, mode);
}

void waiting_ring_released(const struct lockfile *file, int mode)
{
    uint32_t attention = atomic_load(&file->page->attention);

    if (attention == 0)
        return;
    if (wake_one(file, mode) + wake_observers(file) == 0)
        take_back(file, &file->page->attention, attention, RANGE_WAIT);
}

/* A reader lets the next one in; a head appoints its successor, to watch over the new holder: us. */
static void ring_granted(const struct lockfile *file, int mode, bool was_head)
{
    if (atomic_load(&file->page->attention) == 0)
        return;
    wake_observers(file);
    if (mode == HF_SHARED && futex_wake(&file->page->bell, BIT_READER, 1) == 0) {
        say_missed(file);
        futex_wake(&file->page->bell, BIT_READER, 1);
    }
    if (was_head)
        wake_one(file, mode);
}

void waiting_ring_all(const struct lockfile *file)
{
    say_missed(file);
    futex_wake(&file->page->bell, FUTEX_MASK_ALL, INT_MAX);
}

/* ---- being seen to wait ---------------------------------------------------------------------- */

static uint32_t ask_for(_Atomic uint32_t *hint)
{
    uint32_t now = atomic_fetch_add(hint, 1) + 1;

    return now ? now : ask_for(hint); /* 0 would say that nobody is there */
}

int waiting_register(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    static _Atomic uint32_t next;
    int64_t range = own->claim->mode == ENGINE_OBSERVE ? RANGE_WATCH : RANGE_WAIT;
    int64_t place =
        (int64_t)store->pid * RANGE_PER_PID + atomic_fetch_add(&next, 1) % RANGE_PER_PID;
    int failure = lockfile_lock(&own->file, F_RDLCK, range + place, 1);

    if (failure)
        return directory_failure(&store->directory, failure, "wait for a lock", err);
    own->place = range + place;
    if (range == RANGE_WATCH)
        ask_for(&own->file.page->watchers);
    own->attention = ask_for(&own->file.page->attention);
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

/* From the list it is in, if any, to another, if any. */
static void change_list(struct engine_store *store, struct file_claim *own, struct list *to)
{
    pthread_mutex_lock(&store->mutex);
    list_remove(&own->link);
    if (own->watch >= 0 && !watch_is_shared(store, own))
        inotify_rm_watch(store->inotify_fd, own->watch);
    own->watch = -1;
    own->registered = false;
    if (to)
        list_append(to, &own->link);
    pthread_mutex_unlock(&store->mutex);
}

static void leave_head(struct file_claim *own)
{
    if (own->head_token)
        lockfile_lock(&own->file, F_UNLCK, RANGE_HEAD + own->head_token, 1);
    own->head_token = 0;
    own->is_head = false;
}

static void stop_being_shown(struct file_claim *own)
{
    if (own->file.fd >= 0) {
        leave_head(own);
        lockfile_lock(&own->file, F_UNLCK, own->place, 1);
    }
    own->place = 0;
    own->is_head = false;
}

void waiting_unregister(struct engine_store *store, struct file_claim *own)
{
    if (!own->registered)
        return;
    change_list(store, own, NULL);
    stop_being_shown(own);
}

void waiting_granted(struct engine_store *store, struct file_claim *own)
{
    bool was_registered = own->registered, was_head = own->is_head;
    uint32_t first = 1;

    change_list(store, own, &store->held);
    /* If we were the first to ask for attention and nobody has since, there is nobody to ring for. Then
     * our ranges may stay until the release, which takes them all: a system call less on the way of a
     * lock from hand to hand. The record says that we do not wait, and HEAD was for another token. */
    if (was_registered && own->attention == 1 &&
        atomic_compare_exchange_strong(&own->file.page->attention, &first, 0)) {
        own->head_token = 0;
        own->is_head = false;
        return;
    }
    if (was_registered)
        stop_being_shown(own);
    ring_granted(&own->file, own->claim->mode, was_head);
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

static void listen_to_file(struct engine_store *store, struct file_claim *own)
{
    char path[sizeof store->directory.locks_path + sizeof own->file.file_name + 1];

    snprintf(path, sizeof path, "%s/%s", folder_of(store, own->claim)->locks_path,
             own->file.file_name);
    pthread_mutex_lock(&store->mutex);
    open_inotify(store);
    if (store->inotify_fd >= 0)
        own->watch = inotify_add_watch(store->inotify_fd, path, IN_CLOSE_WRITE | IN_DONT_FOLLOW);
    pthread_mutex_unlock(&store->mutex);
    /* The holder may have died before we listened. */
    if (own->watch >= 0)
        atomic_store(&own->hasty, 1);
}

/* Nobody holds it, as far as tokens tell, and yet we did not get it: somebody is about to draw his token. Or
 * the holders have died, we are the one who noticed, and a writer with the gate is asleep. It is the only one
 * who can have the lock, so it is woken. If it was just about to sleep, we do so again after a short nap. */
static void wake_gate_writer(const struct file_claim *own)
{
    if (!own->has_gate && !lockfile_locked(&own->file, RANGE_MAIN, 1, NULL))
        futex_wake(&own->file.page->bell, BIT_GATE_WRITER, 1);
}

void waiting_watch_holder(struct engine_store *store, struct file_claim *own)
{
    int64_t at;

    if (own->head_token && lockfile_locked(&own->file, RANGE_TOKEN + own->head_token, 1, NULL)) {
        if (own->watch < 0 && clock_boot_ms() - own->head_since_ms >= LISTEN_AFTER_MS)
            listen_to_file(store, own);
        return;
    }
    leave_head(own);
    own->head_since_ms = clock_boot_ms();
    if (!lockfile_locked(&own->file, RANGE_TOKEN, RANGE_TOKENS, &at)) {
        own->is_head = true; /* of a holder who is about to draw his token */
        wake_gate_writer(own);
        return;
    }
    at += RANGE_HEAD - RANGE_TOKEN;
    own->is_head = lockfile_lock(&own->file, F_WRLCK, at, 1) == 0;
    own->head_token = own->is_head ? at - RANGE_HEAD : 0;
}

/* With the mutex held, so that the page cannot go away. */
static void kick(struct file_claim *own)
{
    atomic_store(&own->woken, true);
    atomic_fetch_add(&own->file.page->bell, 1);
    /* Others may have the same bit, and will look for nothing; of thousands many have ours. */
    futex_wake(&own->file.page->bell, own->watch >= 0 ? BIT_LISTENER : own->own_bit, INT_MAX);
}

/* With the mutex held. file_name NULL: any. Who removes a lock file has ended the hold, and does not know it; whoever comes next
 * makes another. */
static void tell_lost_holders(struct engine_store *store, const char *file_name)
{
    LIST_EACH_SAFE(node, &store->held)
    {
        struct file_claim *own = LIST_ENTRY(node, struct file_claim, link);

        if (file_name && strcmp(file_name, own->file.file_name) != 0)
            continue;
        if (lockfile_is_displaced(folder_of(store, own->claim), &own->file))
            store->host.lost(store->host.context, own->claim,
                             atomic_load(&own->file.page->replaced) ? "broken by an operator"
                                                                    : "its lock file was removed");
    }
}

/* With the mutex held. A removal is no event for us: we look now and then. */
static void look_for_removals(struct engine_store *store)
{
    int64_t now_ms = clock_boot_ms();

    if (now_ms - store->looked_ms < REMOVED_CHECK_MS)
        return;
    store->looked_ms = now_ms;
    tell_lost_holders(store, NULL);
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
        tell_lost_holders(store, NULL);
        tell_waiters(store, -1);
    } else if (event->wd == store->directory_watch && event->len > 0) {
        tell_lost_holders(store, event->name);
    } else if (event->mask & IN_CLOSE_WRITE) {
        tell_waiters(store, event->wd);
    }
}

int file_poll_fd(struct engine_store *store)
{
    int fd;

    pthread_mutex_lock(&store->mutex);
    fd = store->inotify_fd;
    atomic_store(&store->listening, fd >= 0);
    pthread_mutex_unlock(&store->mutex);
    return fd;
}

int64_t file_process(struct engine_store *store)
{
    _Alignas(struct inotify_event) char events[4096];
    bool listens;
    ssize_t size;

    pthread_mutex_lock(&store->mutex);
    look_for_removals(store);
    if (!atomic_load(&store->listening)) {
        if (store->processed) /* not the first time: this store is in use for long enough */
            open_inotify(store);
        tell_lost_holders(store, NULL); /* after listening: what happened before it */
    }
    store->processed = true;
    while (store->inotify_fd >= 0 && (size = read(store->inotify_fd, events, sizeof events)) > 0) {
        for (char *at = events; at < events + size;) {
            const struct inotify_event *event = (const struct inotify_event *)(void *)at;

            handle_event(store, event);
            at += sizeof *event + event->len;
        }
    }
    listens = store->inotify_fd >= 0;
    pthread_mutex_unlock(&store->mutex);
    return listens ? REMOVED_CHECK_MS : HELD_CHECK_MS;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static uint32_t mask_of(const struct file_claim *own)
{
    uint32_t mask = own->own_bit | (own->watch >= 0 ? BIT_LISTENER : 0);

    switch (own->claim->mode) {
    case ENGINE_OBSERVE:
        return mask | BIT_OBSERVER;
    case HF_SHARED:
        return mask | BIT_READER;
    case HF_PERMIT:
        return mask | BIT_PERMIT;
    default:
        return mask | (own->has_gate ? BIT_GATE_WRITER : BIT_WRITER);
    }
}

/* Of those who expect a change, and do not leave it to others to look: how long until they do? 0: we are
 * none of them. */
static int64_t short_nap_ms(const struct engine_store *store, struct file_claim *own)
{
    int hasty = atomic_load(&own->hasty);

    if (hasty > 0) {
        atomic_store(&own->hasty, hasty - 1);
        return INT64_C(1) << (2 * (HASTY_NAPS - hasty));
    }
    if (own->is_head && !own->head_token)
        return HEAD_NAP_MS; /* nobody's death will tell us */
    if ((own->is_head || own->claim->mode == ENGINE_OBSERVE) &&
        (own->watch < 0 || !atomic_load(&store->listening)))
        return HEAD_NAP_MS;
    return 0;
}

/* Is it for us to look, because nobody has just done so? */
static bool is_our_look(struct lockfile_page *page)
{
    uint32_t now = (uint32_t)clock_boot_ms(), last = atomic_load(&page->looked);

    return now - last >= RECHECK_APART_MS &&
           atomic_compare_exchange_strong(&page->looked, &last, now);
}

/* True: there is reason to look. False: it is just that the time has come. */
static bool sleep_until(struct file_claim *own, int64_t until_ms)
{
    struct lockfile_page *page = own->file.page;
    uint32_t bell;

    do {
        bell = atomic_load(&page->bell); /* first: what is said after this changes it */
        if (atomic_load(&own->woken) || atomic_load(&page->missed) != own->seen)
            return true;
        if (clock_boot_ms() >= until_ms)
            return false;
    } while (!futex_wait(&page->bell, bell, mask_of(own), until_ms));
    return true;
}

static void sleep_on_bell(const struct engine_store *store, struct file_claim *own,
                          int64_t until_ms)
{
    int64_t short_ms = short_nap_ms(store, own), long_ms = RECHECK_MS;

    for (int skips = 0;; skips++) {
        int64_t nap_ms = short_ms ? short_ms : long_ms + (int64_t)random_below(RECHECK_JITTER_MS);
        int64_t end_ms = clock_after(clock_boot_ms(), nap_ms);

        if (sleep_until(own, end_ms < until_ms ? end_ms : until_ms) || end_ms >= until_ms ||
            short_ms || is_our_look(own->file.page) || skips >= RECHECK_SKIPS_MAX)
            break;
        long_ms = long_ms * 2 < RECHECK_MS_MAX ? long_ms * 2 : RECHECK_MS_MAX;
        short_ms = short_nap_ms(store, own); /* a close may have been heard meanwhile */
    }
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
        listen_to_file(store, own);
    own->seen = atomic_load(&own->file.page->missed);
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
            sleep_on_bell(store, own, until_ms);
        return HF_OK;
    }
    own = claims_own(claim);
    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = prepare_observer(store, claim, &fresh, err);
    if (result != HF_OK || fresh)
        return result;
    sleep_on_bell(store, own, until_ms);
    own->seen = atomic_load(&own->file.page->missed);
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
