/* blocking.c: calls that return when they are done. */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int some_section(struct worker *worker)
{
    return (int)below(worker, NAMES);
}

/* What whoever is inside does there. */
static void work(struct worker *worker, hf_store *store, struct hold *hold)
{
    char text[HF_SEQUENCER_MAX];

    nap(worker, 3000);
    switch (below(worker, 8)) {
    case 0:
        doing(worker, "hf_renew");
        expect("hf_renew", hf_renew(hold->lock), hf_error());
        break;
    case 1:
        doing(worker, "hf_check");
        expect("hf_check", hf_check(store, hf_lock_name(hold->lock), hold->token), hf_error());
        break;
    case 2:
        expect("hf_lock_sequencer", hf_lock_sequencer(hold->lock, text, sizeof text), hf_error());
        break;
    case 3:
        if (hf_lock_lost_fd(hold->lock) < 0)
            expect("hf_lock_lost_fd", hf_lock_lost_fd(hold->lock), hf_error());
        break;
    case 4:
        nap(worker, 400000); /* on a store with a TTL it is renewed meanwhile, or lost */
        break;
    default:
        break;
    }
}

/* hold: taken. */
static void held(struct worker *worker, hf_store *store, struct hold *hold, int result,
                 hf_lock *lock)
{
    if (result != HF_OK) {
        expect("an acquisition", result, hf_error());
        hold_over(hold);
        return;
    }
    hold_enter(hold, lock);
    work(worker, store, hold);
    hold_leave(hold);
    give_up(worker, store, hold);
}

void do_acquire(struct worker *worker)
{
    struct hold *hold = hold_new(some_section(worker));
    hf_store *store = some_store(worker);
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    doing(worker, "hf_acquire");
    result = hf_acquire(store, name, &options, &lock);
    held(worker, store, hold, result, lock);
}

void do_try(struct worker *worker)
{
    struct hold *hold = hold_new(some_section(worker));
    hf_store *store = some_store(worker);
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    doing(worker, "hf_try");
    result = hf_try(store, name, &options, &lock);
    held(worker, store, hold, result, lock);
}

/* Somebody else fires it: see main.c. */
void do_cancel(struct worker *worker)
{
    struct hold *hold = hold_new(some_section(worker));
    hf_store *store = some_store(worker);
    hf_cancel *cancel;
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    if (hf_cancel_new(&cancel) != HF_OK)
        violated("no cancel: %s", hf_error());
    pthread_mutex_lock(&worker->mutex);
    worker->cancel = cancel;
    pthread_mutex_unlock(&worker->mutex);
    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    options.wait_ms = HF_FOREVER;
    options.cancel = cancel;
    doing(worker, "hf_acquire until it is cancelled");
    result = hf_acquire(store, name, &options, &lock);
    pthread_mutex_lock(&worker->mutex);
    worker->cancel = NULL;
    pthread_mutex_unlock(&worker->mutex);
    hf_cancel_free(cancel);
    held(worker, store, hold, result, lock);
}

void do_elect(struct worker *worker)
{
    struct hold *hold = hold_new(some_section(worker));
    hf_store *store = some_store(worker);
    hf_lock *mandate = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    options.owner = "a candidate";
    doing(worker, "hf_campaign");
    result = hf_campaign(store, name, &options, &mandate);
    if (result != HF_OK) {
        held(worker, store, hold, result, mandate);
        return;
    }
    count(COUNT_ELECTED);
    hold_enter(hold, mandate);
    work(worker, store, hold);
    hold_leave(hold);
    doing(worker, "hf_resign");
    expect("hf_resign", hf_resign(mandate), hf_error());
    hold_over(hold);
}

/* Readers, or some of three: not exclusive. */
void do_share(struct worker *worker)
{
    struct hold *hold = hold_new(-1);
    hf_store *store = some_store(worker);
    bool permits = below(worker, 2);
    hf_lock *lock = NULL;
    hf_options options;
    int result;

    hold_options(worker, hold, &options);
    options.mode = permits ? HF_PERMIT : HF_SHARED;
    options.permits = permits ? 3 : 0;
    doing(worker, "hf_acquire, not exclusively");
    result = hf_acquire(store, permits ? "stress-permits" : "stress-readers", &options, &lock);
    if (result == HF_OK)
        count(COUNT_SHARED);
    held(worker, store, hold, result, lock);
}

/* ---- once ---------------------------------------------------------------------------------------- */

static void found(hf_once *once)
{
    char text[TEXT_MAX];
    size_t size = 0;
    const char *result = hf_once_result(once, &size);

    snprintf(text, sizeof text, "result of %llu", (unsigned long long)hf_once_token(once));
    if (!result || size != strlen(text) || memcmp(result, text, size) != 0)
        violated("a once-record of token %llu has another result",
                 (unsigned long long)hf_once_token(once));
    count(COUNT_ONCE_FOUND);
    hf_once_free(once);
}

static void finish(struct worker *worker, hf_once *once)
{
    char text[TEXT_MAX];

    snprintf(text, sizeof text, "result of %llu", (unsigned long long)hf_once_token(once));
    switch (below(worker, 4)) {
    case 0:
        doing(worker, "hf_once_release");
        expect("hf_once_release", hf_once_release(once), hf_error());
        break;
    case 1:
        doing(worker, "hf_once_abandon");
        hf_once_abandon(once);
        break;
    default:
        doing(worker, "hf_once_finish");
        expect("hf_once_finish",
               hf_once_finish(once, text, strlen(text), 1 + (int64_t)below(worker, 200)),
               hf_error());
        break;
    }
}

void do_once(struct worker *worker)
{
    int section = NAMES + (int)below(worker, KEYS);
    struct hold *hold;
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    hf_once *once = NULL;
    char name[TEXT_MAX];
    int result;

    section_name(section, name);
    options.wait_ms = (int64_t)below(worker, 300);
    options.ttl_ms = stress.has_ttl ? 150 + (int64_t)below(worker, 1500) : 0;
    options.fail_if_died = below(worker, 4) == 0;
    options.death_ms = 1 + (int64_t)below(worker, 200);
    doing(worker, "hf_once_begin");
    result = hf_once_begin(some_store(worker), name, &options, &once);
    if (result != HF_OK) {
        expect("hf_once_begin", result, hf_error());
        return;
    }
    if (!hf_once_runs(once)) {
        found(once);
        return;
    }
    hold = hold_new(section);
    hold_enter(hold, hf_once_lock(once));
    count(COUNT_ONCE_RUN);
    nap(worker, 2000);
    hold_leave(hold);
    hold_over(hold);
    finish(worker, once);
}

/* ---- asking, breaking, handing on ------------------------------------------------------------------ */

void do_ask(struct worker *worker)
{
    hf_report *report = NULL;
    hf_once *once = NULL;
    char name[TEXT_MAX];
    int result;

    section_name((int)below(worker, SECTIONS), name);
    switch (below(worker, 3)) {
    case 0:
        doing(worker, "hf_show");
        result = hf_show(some_store(worker), name, &report);
        break;
    case 1:
        doing(worker, "hf_list");
        result = hf_list(some_store(worker), NULL, &report);
        break;
    default:
        doing(worker, "hf_once_read");
        result = hf_once_read(some_store(worker), name, &once);
        break;
    }
    if (result != HF_OK)
        expect("a question", result, hf_error());
    for (size_t i = 0; result == HF_OK && report && i < hf_report_count(report); i++)
        if (!hf_report_entry(report, i)->name[0])
            violated("an entry without a name");
    hf_report_free(report);
    hf_once_free(once);
}

void do_break(struct worker *worker)
{
    char name[TEXT_MAX];
    uint32_t broken = 0;

    if (below(worker, 8) != 0)
        return;
    section_name(some_section(worker), name);
    doing(worker, "hf_break");
    expect("hf_break", hf_break(some_store(worker), name, 5000, &broken), hf_error());
    for (uint32_t i = 0; i < broken; i++)
        count(COUNT_BROKEN);
}

/* hold: taken. Somebody else, who knows its secret, has the lock afterwards. */
static void hand_on(struct worker *worker, hf_store *store, struct hold *hold, hf_options *options)
{
    struct hold *adopted = hold_new(-1);
    char name[TEXT_MAX], lease[HF_LEASE_MAX + 1];
    uint64_t token = hold->token;
    hf_lock *lock = hold->lock;
    int result;

    snprintf(name, sizeof name, "%s", hf_lock_name(lock));
    snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
    doing(worker, "hf_lock_detach");
    result = hf_lock_detach(lock);
    if (result != HF_OK) { /* it is lost, and still ours */
        expect("hf_lock_detach", result, hf_error());
        expect("hf_release", hf_release(lock), hf_error());
    }
    hold_over(hold);
    options->arg = adopted;
    options->wait_ms = 0;
    doing(worker, "hf_adopt");
    result = hf_adopt(store, name, lease, token, options, &lock);
    if (result != HF_OK) {
        expect("hf_adopt", result, hf_error());
        hold_over(adopted);
        return;
    }
    count(COUNT_ADOPTED);
    hold_enter(adopted, lock);
    give_up(worker, store, adopted);
}

void do_adopt(struct worker *worker)
{
    struct hold *hold;
    hf_store *store = some_store(worker);
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    if (!stress.has_detach)
        return;
    hold = hold_new(some_section(worker));
    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    options.max_hold_ms = 0;
    doing(worker, "hf_acquire, to detach");
    result = hf_acquire(store, name, &options, &lock);
    if (result != HF_OK) {
        expect("hf_acquire", result, hf_error());
        hold_over(hold);
        return;
    }
    hold_enter(hold, lock);
    hold_leave(hold);
    hand_on(worker, store, hold, &options);
}
