/* asking.c: show, list, check, sequencers, and being told of changes. */
#include "suite.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void show_tells_who_holds(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_report *report;
    const hf_entry *entry;
    hf_lock *lock;

    must(HF_OK, hf_show(context->store, "one", &report));
    assert_int_equal(0, hf_report_count(report));
    assert_null(hf_report_entry(report, 0));
    hf_report_free(report);
    options.owner = "the reminder job";
    lock = must_acquire(context->store, "one", &options);
    must(HF_OK, hf_show(context->store, "one", &report));
    assert_int_equal(1, hf_report_count(report));
    entry = hf_report_entry(report, 0);
    assert_int_equal(HF_ENTRY_HOLDER, entry->kind);
    assert_int_equal(HF_EXCLUSIVE, entry->mode);
    assert_string_equal("one", entry->name);
    assert_true(entry->token == hf_lock_token(lock));
    assert_string_equal("the reminder job", entry->owner);
    assert_null(strstr(entry->lease, hf_lock_lease(lock))); /* the lease is the holder's secret */
    assert_true(entry->age_ms >= -1 && entry->age_ms < PATIENCE_MS);
    hf_report_free(report);
    hf_report_free(NULL);
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_HOLDER));
}

static void show_tells_of_other_processes(void **state)
{
    struct context *context = *state;
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", NULL, &helper);
    hf_report *report;
    const hf_entry *entry;

    must(HF_OK, hf_show(context->store, "one", &report));
    assert_int_equal(1, hf_report_count(report));
    entry = hf_report_entry(report, 0);
    assert_true(entry->token == token);
    assert_true(strlen(entry->owner) > 0); /* user, host, program and pid */
    assert_true(entry->pid == 0 || entry->pid == helper->pid);
    hf_report_free(report);
}

/* ---- names ----------------------------------------------------------------------------------- */

static char longest_a[HF_NAME_MAX + 1], longest_b[HF_NAME_MAX + 1];

static const char *const odd_names[] = {
    "a/b",        "a%2fb",       "a%2Fb",       "A/B",
    "..",         ".",           "/",           "with blanks ",
    "two\nlines", "tab\tbell\a", "caf\xc3\xa9", "latin\xe9\xff",
    "\x01",       "-n",          "*",           "[x]",
    "a:b?c=d&e",  "\\",          "~",           "%",
    "x.lock",     longest_a,     longest_b,
};
#define ODD_COUNT (sizeof odd_names / sizeof *odd_names)

static void make_longest(void)
{
    memset(longest_a, 'z', HF_NAME_MAX);
    memset(longest_b, 'z', HF_NAME_MAX);
    longest_b[HF_NAME_MAX - 1] = '/';
}

static int listed(const hf_report *report, const char *name, uint64_t token)
{
    int found = 0;

    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (strcmp(entry->name, name) == 0 && entry->token == token &&
            entry->kind == HF_ENTRY_HOLDER)
            found++;
    }
    return found;
}

static void any_bytes_make_a_name(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *locks[ODD_COUNT];
    hf_report *report;

    make_longest();
    for (size_t i = 0; i < ODD_COUNT; i++) {
        must(HF_OK, try_free(context->store, odd_names[i], &options, &locks[i]));
        assert_string_equal(odd_names[i], hf_lock_name(locks[i]));
        must_be_busy(context, context->store, odd_names[i], &options);
        assert_int_equal(1, count_entries(context->store, odd_names[i], HF_ENTRY_HOLDER));
    }
    must(HF_OK, hf_list(context->store, NULL, &report));
    assert_int_equal(ODD_COUNT, hf_report_count(report));
    for (size_t i = 0; i < ODD_COUNT; i++)
        assert_int_equal(1, listed(report, odd_names[i], hf_lock_token(locks[i])));
    for (size_t i = 1; i < hf_report_count(report); i++)
        assert_true(
            strcmp(hf_report_entry(report, i - 1)->name, hf_report_entry(report, i)->name) <= 0);
    hf_report_free(report);
    for (size_t i = 0; i < ODD_COUNT; i++)
        must(HF_OK, hf_release(locks[i]));
    must(HF_OK, hf_list(context->store, NULL, &report));
    assert_int_equal(0, hf_report_count(report));
    hf_report_free(report);
}

static void list_takes_a_glob(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_list_options wanted = HF_LIST_OPTIONS_INIT;
    hf_lock *a = must_acquire(context->store, "jobs/a", &options);
    hf_lock *b = must_acquire(context->store, "jobs/b", &options);
    hf_lock *c = must_acquire(context->store, "mail", &options);
    hf_report *report;

    wanted.match = "jobs/*";
    must(HF_OK, hf_list(context->store, &wanted, &report));
    assert_int_equal(2, hf_report_count(report));
    assert_string_equal("jobs/a", hf_report_entry(report, 0)->name);
    assert_string_equal("jobs/b", hf_report_entry(report, 1)->name);
    hf_report_free(report);
    must(HF_OK, hf_release(a));
    must(HF_OK, hf_release(b));
    must(HF_OK, hf_release(c));
    /* With `all`, a name that nobody holds may be told, but never as held. */
    wanted.all = 1;
    must(HF_OK, hf_list(context->store, &wanted, &report));
    for (size_t i = 0; i < hf_report_count(report); i++)
        assert_int_equal(HF_ENTRY_FREE, hf_report_entry(report, i)->kind);
    hf_report_free(report);
}

/* ---- check ----------------------------------------------------------------------------------- */

static void check_knows_alive_from_stale(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    uint64_t token = hf_lock_token(lock);

    must(HF_OK, hf_check(another, "one", token));
    must(HF_ELOST, hf_check(another, "one", token + 1));
    must(HF_ELOST, hf_check(another, "other", token));
    must(HF_OK, hf_release(lock));
    must(HF_ELOST, hf_check(another, "one", token));
    lock = must_acquire(context->store, "one", &options);
    must(HF_ELOST, hf_check(another, "one", token));
    must(HF_OK, hf_check(another, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
    hf_close(another);
}

/* Store, name and token are right, and the mode is not: no such hold. */
static void a_sequencer_of_another_mode_is_stale(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    static const char letters[] = {'x', 's', 'p'};
    char text[HF_SEQUENCER_MAX], *mode;
    hf_lock *lock;

    for (int held = HF_EXCLUSIVE; held <= HF_PERMIT; held++) {
        if ((held == HF_SHARED && !(context->features & HF_HAS_SHARED)) ||
            (held == HF_PERMIT && !(context->features & HF_HAS_PERMITS)))
            continue;
        options.mode = held;
        options.permits = held == HF_PERMIT ? 3 : 0;
        lock = must_acquire(context->store, "one", &options);
        must(HF_OK, hf_lock_sequencer(lock, text, sizeof text));
        mode = strchr(text + 4, '.') + 1; /* behind "hf1." and the store's id */
        assert_int_equal(letters[held], *mode);
        for (int said = HF_EXCLUSIVE; said <= HF_PERMIT; said++) {
            *mode = letters[said];
            must(said == held ? HF_OK : HF_ELOST, hf_check_sequencer(context->store, text));
        }
        must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
        must(HF_OK, hf_release(lock));
    }
}

static void a_sequencer_can_be_checked_by_others(void **state)
{
    struct context *context = *state, elsewhere = *context;
    hf_options options = options_of(context);
    hf_store *another = open_another(context), *foreign;
    hf_lock *lock = must_acquire(context->store, "odd name/\n\xff", &options);
    char text[HF_SEQUENCER_MAX], small[8], dir[sizeof context->dir + 16];

    must(HF_OK, hf_lock_sequencer(lock, text, sizeof text));
    for (const char *at = text; *at; at++)
        assert_true(*at > 0x20 && *at < 0x7f);
    assert_int_not_equal(HF_OK, hf_lock_sequencer(lock, small, sizeof small));
    must(HF_OK, hf_check_sequencer(another, text));
    must(HF_EINVAL, hf_check_sequencer(another, "no sequencer"));
    must(HF_EINVAL, hf_check_sequencer(another, ""));
    snprintf(dir, sizeof dir, "%s/foreign", context->dir);
    assert_int_equal(0, mkdir(dir, 0700));
    assert_int_equal(0, url_in(dir, elsewhere.url));
    foreign = open_another(&elsewhere);
    must(HF_ESTORE, hf_check_sequencer(foreign, text));
    hf_close(foreign);
    must(HF_OK, hf_release(lock));
    must(HF_ELOST, hf_check_sequencer(another, text));
    hf_close(another);
}

/* ---- observing ------------------------------------------------------------------------------- */

struct seen {
    struct tally told;
    pthread_mutex_t mutex;
    uint64_t token; /* of the first holder, 0: nobody */
    uint64_t wanted;
};

static void see(hf_observer *observer, const hf_report *now, void *arg)
{
    struct seen *seen = arg;
    const hf_entry *first = hf_report_entry(now, 0);

    (void)observer;
    pthread_mutex_lock(&seen->mutex);
    seen->token = first && first->kind == HF_ENTRY_HOLDER ? first->token : 0;
    pthread_mutex_unlock(&seen->mutex);
    tally_add(&seen->told, 1);
}

static bool is_seen(void *arg)
{
    struct seen *seen = arg;
    bool yes;

    pthread_mutex_lock(&seen->mutex);
    yes = seen->token == seen->wanted;
    pthread_mutex_unlock(&seen->mutex);
    return yes;
}

static void await_seen(struct seen *seen, uint64_t token)
{
    seen->wanted = token;
    eventually(is_seen, seen,
               token ? "the observer is told of the holder"
                     : "the observer is told that nobody holds it");
}

static void an_observer_is_told_of_every_holder(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER, .token = 77};
    hf_observer *observer;
    struct helper *helper;
    hf_lock *lock;
    int told;

    tally_new(&seen.told);
    must(HF_OK, hf_observe(context->store, "led", see, &seen, &observer));
    tally_await(&seen.told, 1); /* once at the start */
    await_seen(&seen, 0);
    lock = must_acquire(another, "led", &options);
    await_seen(&seen, hf_lock_token(lock));
    must(HF_OK, hf_release(lock));
    await_seen(&seen, 0);
    await_seen(&seen, helper_hold(context, "led", "ttl=600", &helper));
    helper_kill(helper);
    await_seen(&seen, 0);
    hf_observer_stop(observer);
    told = tally_now(&seen.told);
    lock = must_acquire(another, "led", &options);
    must(HF_OK, hf_release(lock));
    sleep_ms(100);
    assert_int_equal(told, tally_now(&seen.told)); /* when stop returns, it runs no more */
    hf_observer_stop(NULL);
    tally_free(&seen.told);
    hf_close(another);
}

#define HASTY_OBSERVERS 100

static void see_nothing(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
}

/* Stopped while its thread begins: both have their hands on it. */
static void observers_may_be_stopped_at_once(void **state)
{
    struct context *context = *state;

    for (int i = 0; i < HASTY_OBSERVERS; i++) {
        hf_observer *observer;

        must(HF_OK, hf_observe(context->store, "led", see_nothing, NULL, &observer));
        hf_observer_stop(observer);
    }
}

static void an_observer_that_comes_later_is_told_the_present_holder(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "led", &options);
    struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    hf_observer *observer;

    tally_new(&seen.told);
    must(HF_OK, hf_observe(context->store, "led", see, &seen, &observer));
    await_seen(&seen, hf_lock_token(lock));
    hf_observer_stop(observer);
    must(HF_OK, hf_release(lock));
    tally_free(&seen.told);
}

static void a_leader_is_followed_when_it_resigns(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    hf_observer *observer;
    hf_lock *mandate, *next;
    uint64_t first;

    tally_new(&seen.told);
    must(HF_OK, hf_observe(context->store, "service", see, &seen, &observer));
    must(HF_OK, hf_campaign(context->store, "service", &options, &mandate));
    first = hf_lock_token(mandate);
    await_seen(&seen, first);
    options.wait_ms = 50;
    must(HF_EBUSY, hf_campaign(another, "service", &options, &next));
    must(HF_OK, hf_resign(mandate));
    options.wait_ms = PATIENCE_MS;
    must(HF_OK, hf_campaign(another, "service", &options, &next));
    assert_true(hf_lock_token(next) > first);
    await_seen(&seen, hf_lock_token(next));
    must(HF_OK, hf_resign(next));
    hf_observer_stop(observer);
    tally_free(&seen.told);
    hf_close(another);
}

const struct suite_test asking_tests[] = {
    SUITE_TEST(show_tells_who_holds),
    SUITE_TEST(show_tells_of_other_processes),
    SUITE_TEST(any_bytes_make_a_name, .brief = true),
    SUITE_TEST(list_takes_a_glob),
    SUITE_TEST(check_knows_alive_from_stale),
    SUITE_TEST(a_sequencer_can_be_checked_by_others, .brief = true),
    SUITE_TEST(a_sequencer_of_another_mode_is_stale, .brief = true),
    SUITE_TEST(an_observer_is_told_of_every_holder, .brief = true),
    SUITE_TEST(an_observer_that_comes_later_is_told_the_present_holder),
    SUITE_TEST(observers_may_be_stopped_at_once),
    SUITE_TEST(a_leader_is_followed_when_it_resigns, .fragile = WAITS_BRIEFLY),
    {0},
};
