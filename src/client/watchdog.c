/* watchdog.c: keeps what is held, and says in time what is not.
 *
 * Two threads. The watchdog sleeps in poll() on a CLOCK_BOOTTIME timer, so that waking from a
 * suspend wakes it too; it declares losses when the clock says so and calls nothing that can block
 * on a store. The renewer does block: it renews everything that is due in batches. If a store
 * hangs, or an engine overruns its deadline, the renewer hangs with it and `lost` is still on time.
 *
 *     watchdog:  look at the clock ─▶ losses, owed releases, "a renewal is due" ─▶ sleep until the next
 *     renewer:   wait for "due" ─▶ take a batch, make it busy ─▶ engine->renew ─▶ note the answers
 *
 * Two heaps say what comes next, of the ends and of the renewals. Nothing else is looked at: a lock costs something when it is
 * renewed, and nothing in between, however many there are.
 *
 * A renewal is due a third of the TTL after the send of the last acknowledged request; where there are many, a little earlier, by
 * chance, so that not all come at once (claim.c). Others that would be due soon come along, up to one request full, if their TTL
 * is not quite another one. A failed one is tried again after a pause that doubles, until the store answers or the lock is lost,
 * however many times that is: no error stops this. Claims that wait in a queue are renewed the same way, and are never lost but only found gone, by the store's word.
 * A hold whose owner is to report progress, and does not, is passed over until he does. */
#include "base/clock.h"
#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RENEW_MS_MIN 25   /* the least time for a renewal to be answered in */
#define RENEW_MS_MAX 4000 /* the most: then others have their turn */
#define RETRY_MS_MAX 1000 /* the longest pause between failed renewals */
#define OWE_RETRY_MS 1000 /* when no thread could be started to tell the store */
#define ALIKE_FACTOR 2    /* TTLs that differ by more are not renewed in one request */
#define TOGETHER_PART 16  /* a renewal may come TTL/16 early to go with others */
#define OWE_BATCH_MAX 64  /* handed to tasks per look */
#define PREFETCH_AHEAD 8

/* ---- the clock ------------------------------------------------------------------------------- */

void watchdog_poke(hf_store *store)
{
    pthread_mutex_lock(&store->mutex);
    if (store->poke_fd >= 0)
        eventfd_write(store->poke_fd, 1);
    pthread_mutex_unlock(&store->mutex);
}

void watchdog_schedule(hf_store *store, int64_t when_ms)
{
    if (when_ms >= store->watch_next_ms || store->poke_fd < 0)
        return;
    store->watch_next_ms = when_ms;
    eventfd_write(store->poke_fd, 1);
}

void watchdog_wants_poll(hf_store *store)
{
    if (store->poll_wanted || !store->engine->poll_fd)
        return;
    store->poll_wanted = true;
    watchdog_schedule(store, INT64_MIN);
}

/* Declares what the clock says. What is far from its end is not looked at. */
static void look_at_ends(hf_store *store, int64_t now_ms)
{
    while (heap_first_key(&store->ends) <= now_ms) {
        hf_lock *lock = LIST_ENTRY(heap_first(&store->ends), hf_lock, ending);
        int64_t end_ms;

        if (!claim_look_at_clock(lock, now_ms)) {
            heap_remove(&store->ends, &lock->ending);
            continue;
        }
        end_ms = atomic_load(&lock->end_ms);
        lock->ending_ms = end_ms > now_ms ? end_ms : now_ms + 1;
        heap_set(&store->ends, &lock->ending, lock->ending_ms);
    }
}

/* Tells the renewer, if something is due. When to look again: while the renewer is at work, it sees by itself what is due. */
static int64_t look_at_renewals(hf_store *store, int64_t now_ms)
{
    int64_t next_ms = heap_first_key(&store->renewals);

    if (!store->renewer_waits)
        return CLOCK_NEVER;
    if (next_ms > now_ms)
        return next_ms;
    store->renewer_waits = false;
    pthread_cond_signal(&store->renew_due);
    return CLOCK_NEVER;
}

static int64_t look_at_clock(hf_store *store, int64_t now_ms)
{
    int64_t renew_ms = look_at_renewals(store, now_ms), end_ms;

    look_at_ends(store, now_ms);
    end_ms = heap_first_key(&store->ends);
    return renew_ms < end_ms ? renew_ms : end_ms;
}

/* Locks past their maximum, or stalled without a TTL: each is handed to a task, which tells the store. */
static int64_t hand_out_debts(hf_store *store, int64_t now_ms, int64_t next_ms)
{
    int64_t retry_ms = clock_after(now_ms, OWE_RETRY_MS);
    int count = 0;

    LIST_EACH_SAFE(node, &store->owing)
    {
        hf_lock *lock = LIST_ENTRY(node, hf_lock, owe_node);

        if (lock->busy)
            continue;
        if (count++ == OWE_BATCH_MAX)
            return now_ms;
        lock->busy = true;
        list_remove(&lock->owe_node);
        if (task_start_locked(store, lock_pay, lock, NULL) != HF_OK) {
            lock->busy = false;
            list_append(&store->owing, &lock->owe_node);
            return retry_ms < next_ms ? retry_ms : next_ms;
        }
    }
    return next_ms;
}

static void sleep_until(hf_store *store, int64_t next_ms, int engine_fd)
{
    struct pollfd fds[3] = {{.fd = store->poke_fd, .events = POLLIN},
                            {.fd = store->timer_fd, .events = POLLIN},
                            {.fd = engine_fd, .events = POLLIN}};
    struct itimerspec timer = {{0, 0}, {0, 0}};
    int64_t left_ms = next_ms == INT64_MIN ? 0 : next_ms - clock_boot_ms();
    eventfd_t ignored;

    if (next_ms != CLOCK_NEVER) {
        if (left_ms <= 0)
            return;
        timer.it_value.tv_sec = (time_t)(left_ms / 1000);
        timer.it_value.tv_nsec = (long)(left_ms % 1000) * 1000000;
    }
    timerfd_settime(store->timer_fd, 0, &timer, NULL); /* also makes it unreadable */
    poll(fds, engine_fd >= 0 ? 3 : 2, -1);
    if (fds[0].revents)
        eventfd_read(store->poke_fd, &ignored);
}

static void *watchdog_main(void *arg)
{
    hf_store *store = arg;
    const struct engine *engine = store->engine;
    int64_t process_ms = INT64_MIN; /* the first time at once */
    int engine_fd = -1;

    for (;;) {
        int64_t now_ms = clock_boot_ms(), next_ms;
        bool stop, poll_wanted;

        pthread_mutex_lock(&store->mutex);
        stop = store->watch_stop;
        poll_wanted = store->poll_wanted;
        next_ms = hand_out_debts(store, now_ms, look_at_clock(store, now_ms));
        if (poll_wanted && process_ms < next_ms)
            next_ms = process_ms;
        store->watch_next_ms = next_ms;
        pthread_mutex_unlock(&store->mutex);
        if (stop)
            return NULL;
        if (poll_wanted)
            engine_fd = engine->poll_fd(store->engine_store);
        sleep_until(store, next_ms, engine_fd);
        if (poll_wanted && engine->process) {
            struct pollfd ready = {.fd = engine_fd, .events = POLLIN};
            int64_t after_ms;

            if (clock_boot_ms() < process_ms && poll(&ready, 1, 0) <= 0)
                continue;
            after_ms = engine->process(store->engine_store);
            process_ms = after_ms < 0 ? CLOCK_NEVER : clock_after(clock_boot_ms(), after_ms);
        } else if (poll_wanted) {
            process_ms = CLOCK_NEVER;
        }
    }
}

/* ---- renewing -------------------------------------------------------------------------------- */

/* Too large for the renewer's stack. */
struct batch {
    hf_lock *locks[RENEW_BATCH_MAX];
    struct engine_claim *claims[RENEW_BATCH_MAX];
    int64_t left_ms[RENEW_BATCH_MAX];
    int count;
    int64_t span_ms; /* how long the store may take */
};

/* The locks lie anywhere in memory. What comes soon is fetched meanwhile: with many that is most of what a renewal costs. */
static void prefetch(const struct batch *batch, int i)
{
    const hf_lock *lock;

    if (i + PREFETCH_AHEAD >= batch->count)
        return;
    lock = batch->locks[i + PREFETCH_AHEAD];
    __builtin_prefetch(lock, 1);
    __builtin_prefetch(&lock->renewal, 1);
    __builtin_prefetch(&lock->claim.ttl_ms);
}

/* And what the engine will look at. */
static void prefetch_claim(const struct batch *batch, int i)
{
    const hf_lock *lock;

    if (i + PREFETCH_AHEAD >= batch->count)
        return;
    lock = batch->locks[i + PREFETCH_AHEAD];
    __builtin_prefetch(&lock->claim);
    __builtin_prefetch(&lock->claim.private);
    __builtin_prefetch(lock->lease);
}

/* What is due by then, as long as there is room for `most`. */
static void take_due(hf_store *store, int64_t when_ms, int most, struct batch *batch)
{
    while (batch->count < most && heap_first_key(&store->renewals) <= when_ms) {
        struct heap_node *node = heap_pop(&store->renewals);

        batch->locks[batch->count++] = LIST_ENTRY(node, hf_lock, renewal);
    }
}

/* It was taken out of the heap. If it is not to be renewed now, it comes back when that has changed. */
static bool begin_renewal(hf_lock *lock, int64_t now_ms)
{
    heap_popped(&lock->renewal);
    if (lock->busy || lock->gone)
        return false;
    if (claim_is_silent(lock, now_ms)) {
        lock->stalled = lock->renew_ms <= now_ms; /* until a report comes, or the end */
        claim_watch(lock);
        return false;
    }
    if (lock->renew_ms > clock_after(now_ms, lock->claim.ttl_ms / TOGETHER_PART)) {
        claim_watch(lock);
        return false;
    }
    lock->busy = true;
    lock->asked_ms = now_ms;
    return true;
}

/* How long a request may take is a part of the least TTL in it: whoever has a much shorter one leaves the others no time. */
static bool are_alike(const hf_lock *one, const hf_lock *other)
{
    int64_t ttl_ms = one->claim.ttl_ms, other_ms = other->claim.ttl_ms;

    return ttl_ms / ALIKE_FACTOR <= other_ms && other_ms / ALIKE_FACTOR <= ttl_ms;
}

/* Takes what is due and is like the first in its TTL, as much as goes into one request: the others have the next one. Those that
 * are due soon come along, if the request is not large already: in a larger one they have a later one of their own, at their
 * time. */
static void take_batch(hf_store *store, int64_t now_ms, struct batch *batch)
{
    int count = 0;

    batch->count = 0;
    batch->span_ms = RENEW_MS_MAX;
    take_due(store, now_ms, store->renew_batch, batch);
    if (batch->count > 0) /* the others have its TTL, mostly */
        take_due(store, clock_after(now_ms, batch->locks[0]->claim.ttl_ms / TOGETHER_PART),
                 store->renew_early, batch);
    for (int i = 0; i < batch->count; i++) {
        hf_lock *lock = batch->locks[i];
        int64_t part_ms = lock->claim.ttl_ms / 5;

        prefetch(batch, i);
        prefetch_claim(batch, i);
        if (count > 0 && !are_alike(batch->locks[0], lock)) {
            heap_popped(&lock->renewal);
            claim_watch(lock);
            continue;
        }
        if (!begin_renewal(lock, now_ms))
            continue;
        batch->locks[count] = lock;
        batch->claims[count] = &lock->claim;
        batch->left_ms[count++] = ENGINE_NOT_KNOWN;
        if (part_ms < batch->span_ms)
            batch->span_ms = part_ms < RENEW_MS_MIN ? RENEW_MS_MIN : part_ms;
    }
    batch->count = count;
}

static void pause_after_failure(hf_lock *lock, int64_t now_ms)
{
    int64_t most_ms = lock->claim.ttl_ms / 6;

    if (lock->failing_ms == 0)
        lock->failing_ms = now_ms;
    if (most_ms > RETRY_MS_MAX)
        most_ms = RETRY_MS_MAX;
    lock->retry_ms = lock->retry_ms == 0 ? lock->claim.ttl_ms / 20 : lock->retry_ms * 2;
    if (lock->retry_ms > most_ms)
        lock->retry_ms = most_ms;
    lock->renew_ms = clock_after(now_ms, jitter_ms(lock->retry_ms));
}

static void note_answer(hf_lock *lock, int64_t left_ms, int64_t sent_ms, int64_t now_ms)
{
    lock->asked_ms = 0;
    if (left_ms >= 0)
        claim_counts_from(lock, sent_ms, left_ms);
    else if (left_ms == ENGINE_GONE)
        claim_lost(lock, LOSS_TOLD, "the store says that it has ended");
    else
        pause_after_failure(lock, now_ms);
}

/* To each its own answer: those that are not known are tried again within what is left of them. Those that wait in a queue, and
 * are gone, stay busy, and in the batch: returns whether there are any. */
static bool note_answers(struct batch *batch, int64_t sent_ms)
{
    int64_t now_ms = clock_boot_ms();
    int gone = 0;

    for (int i = 0; i < batch->count; i++) {
        hf_lock *lock = batch->locks[i];

        prefetch(batch, i);
        note_answer(lock, batch->left_ms[i], sent_ms, now_ms);
        if (lock->gone)
            batch->locks[gone++] = lock;
        else
            claim_leave_quietly(lock);
    }
    batch->count = gone;
    return gone > 0;
}

/* The store says that the lease of a claim in the queue is gone: whoever waits has to start afresh.
 * Not with the mutex held; the claim is still busy, so it stays where it is. */
static void tell_waiters(hf_store *store, struct batch *batch)
{
    pthread_mutex_unlock(&store->mutex);
    for (int i = 0; i < batch->count; i++)
        waiter_interrupt(&batch->locks[i]->waiter);
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < batch->count; i++)
        claim_leave_quietly(batch->locks[i]);
}

/* With the mutex held, which it lets go meanwhile. */
static void renew(hf_store *store, struct batch *batch, int64_t sent_ms)
{
    struct error_text err = {""};
    int result;

    pthread_mutex_unlock(&store->mutex);
    result = store->engine->renew(store->engine_store, batch->claims, batch->count, batch->left_ms,
                                  clock_after(sent_ms, batch->span_ms), &err);
    reach_note(store, result, &err);
    pthread_mutex_lock(&store->mutex);
    if (result != HF_OK)
        store->unrenewed = err;
    if (note_answers(batch, sent_ms))
        tell_waiters(store, batch);
    pthread_cond_broadcast(&store->changed);
}

static void *renewer_main(void *arg)
{
    hf_store *store = arg;
    struct batch *batch = store->batch;

    pthread_mutex_lock(&store->mutex);
    while (!store->watch_stop) {
        int64_t now_ms = clock_boot_ms();

        take_batch(store, now_ms, batch);
        if (batch->count > 0) {
            renew(store, batch, now_ms);
            continue;
        }
        store->renewer_waits = true;
        watchdog_schedule(store, heap_first_key(&store->renewals));
        pthread_cond_wait(&store->renew_due, &store->mutex);
        store->renewer_waits = false;
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static int make_descriptors(hf_store *store, struct error_text *err)
{
    if (store->poke_fd < 0)
        store->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->timer_fd < 0)
        store->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (store->poke_fd < 0 || store->timer_fd < 0)
        return error_set_errno(err, HF_ENOMEM, errno, "cannot make a timer for the watchdog");
    return HF_OK;
}

/* Returns an errno. */
static int start_renewer(hf_store *store)
{
    int failed;

    if (!store->batch && !(store->batch = malloc(sizeof *store->batch)))
        return ENOMEM;
    failed = thread_start(&store->renewer, TASK_STACK_BYTES, renewer_main, store, "holdfast-renew");
    store->renewer_runs = !failed;
    return failed;
}

int watchdog_start(hf_store *store, bool renews, struct error_text *err)
{
    int failed = 0;

    if (store->watchdog_runs && (store->renewer_runs || !renews))
        return HF_OK;
    if (store->closed)
        return error_set(err, HF_ECANCELED, "the store is being closed");
    if (make_descriptors(store, err) != HF_OK)
        return HF_ENOMEM;
    if (!store->watchdog_runs)
        failed = thread_start(&store->watchdog, TASK_STACK_BYTES, watchdog_main, store,
                              "holdfast-watch");
    store->watchdog_runs = store->watchdog_runs || !failed;
    if (!failed && renews)
        failed = start_renewer(store);
    if (failed)
        return error_set_errno(err, HF_ENOMEM, failed, "cannot start the watchdog");
    return HF_OK;
}

void watchdog_stop(hf_store *store)
{
    bool join_watchdog, join_renewer;

    pthread_mutex_lock(&store->mutex);
    store->watch_stop = true;
    join_watchdog = store->watchdog_runs;
    join_renewer = store->renewer_runs;
    store->watchdog_runs = store->renewer_runs = false;
    pthread_cond_broadcast(&store->renew_due);
    pthread_mutex_unlock(&store->mutex);
    watchdog_poke(store);
    if (join_watchdog)
        pthread_join(store->watchdog, NULL);
    if (join_renewer)
        pthread_join(store->renewer, NULL);
}
