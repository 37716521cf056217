/* acquiring.c: exclusion between handles, threads and processes; tokens; what cannot be asked for. */
#include "suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static void an_acquired_lock_says_what_it_is(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "batch/4472", &options);

    assert_string_equal("batch/4472", hf_lock_name(lock));
    assert_int_equal(HF_EXCLUSIVE, hf_lock_mode(lock));
    assert_in_range(strlen(hf_lock_lease(lock)), 1, HF_LEASE_MAX);
    assert_true(hf_lock_left_ms(lock) > 0);
    if (context->features & HF_HAS_TTL)
        assert_true(hf_lock_left_ms(lock) <= LONG_TTL_MS);
    else
        assert_true(hf_lock_left_ms(lock) == HF_UNLIMITED);
    assert_true(hf_lock_lost_fd(lock) >= 0);
    must(HF_OK, hf_release(lock));
}

static void without_options_it_waits_and_holds(void **state)
{
    struct context *context = *state;
    hf_lock *lock = must_acquire(context->store, "plain", NULL);

    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_release(NULL));
}

static void a_held_name_is_busy_on_the_same_handle(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    hf_lock *untouched = (hf_lock *)(void *)context, *other = untouched;

    must_be_busy(context, context->store, "one", &options);
    assert_ptr_equal(untouched, other); /* outputs are written on success only */
    assert_true(strlen(hf_error()) > 0);
    options.wait_ms = 0;
    must(HF_EBUSY, hf_acquire(context->store, "one", &options, &other));
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
}

static void a_held_name_is_busy_on_another_handle(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *other;
    uint64_t token = hf_lock_token(lock);

    must_be_busy(context, another, "one", &options);
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(another, "one", &options, &other));
    assert_true(hf_lock_token(other) > token);
    must(HF_OK, hf_release(other));
    hf_close(another);
}

static void different_names_do_not_meet(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *a = must_acquire(context->store, "a", &options);
    hf_lock *b = must_acquire(context->store, "b", &options);

    must(HF_OK, hf_release(a));
    must(HF_OK, hf_release(b));
}

static void a_name_held_by_another_process_is_busy(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", NULL, &helper);
    hf_lock *lock;

    must_be_busy(context, context->store, "one", &options);
    helper_say(helper, "release");
    assert_string_equal("HF_OK", helper_hear(helper, "released"));
    must(HF_OK, try_free(context->store, "one", &options, &lock));
    assert_true(hf_lock_token(lock) > token);
    must(HF_OK, hf_release(lock));
}

static void tokens_grow_over_handles_and_modes(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *stores[2] = {context->store, open_another(context)};
    uint64_t last = 0;

    for (int i = 0; i < 100; i++) {
        hf_lock *lock;

        options.mode = HF_EXCLUSIVE;
        if ((context->features & HF_HAS_SHARED) && i % 3 == 1)
            options.mode = HF_SHARED;
        if ((context->features & HF_HAS_PERMITS) && i % 3 == 2)
            options.mode = HF_PERMIT;
        options.permits = options.mode == HF_PERMIT ? 2 : 0;
        lock = must_acquire(stores[i % 2], "counted", &options);
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        must(HF_OK, hf_release(lock));
    }
    hf_close(stores[1]);
}

static void tokens_grow_over_processes_and_reopening(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    uint64_t last = 0;

    for (int i = 0; i < 4; i++) {
        struct helper *helper;
        hf_lock *lock;
        uint64_t token = helper_hold(context, "counted", NULL, &helper);

        assert_true(token > last);
        helper_say(helper, "release");
        helper_hear(helper, "released");
        helper_kill(helper);
        hf_close(context->store);
        context->store = open_another(context);
        lock = must_acquire(context->store, "counted", &options);
        assert_true(hf_lock_token(lock) > token);
        last = hf_lock_token(lock);
        must(HF_OK, hf_release(lock));
    }
}

#define CROWD 4
#define CROWD_TURNS 40

struct crowd {
    hf_store *store;
    hf_options options;
    _Atomic int *inside, *wrong;
    _Atomic uint64_t *last;
};

static void *crowd_main(void *arg)
{
    struct crowd *crowd = arg;

    for (int i = 0; i < CROWD_TURNS; i++) {
        hf_lock *lock;

        if (hf_acquire(crowd->store, "crowded", &crowd->options, &lock) != HF_OK) {
            fprintf(stderr, "in the crowd: %s\n", hf_error());
            atomic_fetch_add(crowd->wrong, 1);
            break;
        }
        if (atomic_fetch_add(crowd->inside, 1) != 0)
            atomic_fetch_add(crowd->wrong, 1);
        if (hf_lock_token(lock) <= atomic_load(crowd->last))
            atomic_fetch_add(crowd->wrong, 1);
        atomic_store(crowd->last, hf_lock_token(lock));
        atomic_fetch_sub(crowd->inside, 1);
        if (hf_release(lock) != HF_OK)
            atomic_fetch_add(crowd->wrong, 1);
    }
    return NULL;
}

static void a_crowd_of_threads_enters_one_by_one(void **state)
{
    struct context *context = *state;
    hf_store *another = open_another(context);
    _Atomic int inside = 0, wrong = 0;
    _Atomic uint64_t last = 0;
    struct crowd crowds[CROWD];
    pthread_t threads[CROWD];

    for (int i = 0; i < CROWD; i++) {
        crowds[i] = (struct crowd){.store = i % 2 ? another : context->store,
                                   .options = options_of(context),
                                   .inside = &inside,
                                   .wrong = &wrong,
                                   .last = &last};
        assert_int_equal(0, pthread_create(&threads[i], NULL, crowd_main, &crowds[i]));
    }
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, wrong);
    hf_close(another);
}

static void best_effort_is_refused_where_strict_is_needed(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    const hf_store_info *info = hf_info(context->store);
    bool strict = info->exclusion == HF_STRICT && info->tokens == HF_STRICT;
    hf_lock *lock = NULL;

    options.need_strict = 1;
    must(strict ? HF_OK : HF_EWEAK, try_free(context->store, "one", &options, &lock));
    if (strict)
        must(HF_OK, hf_release(lock));
    else
        assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_HOLDER));
}

static void names_that_cannot_be_are_refused(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    char longest[HF_NAME_MAX + 2];
    hf_lock *lock;

    memset(longest, 'n', sizeof longest);
    longest[HF_NAME_MAX + 1] = '\0';
    must(HF_EINVAL, hf_try(context->store, longest, &options, &lock));
    must(HF_EINVAL, hf_try(context->store, "", &options, &lock));
    must(HF_EINVAL, hf_try(context->store, NULL, &options, &lock));
    longest[HF_NAME_MAX] = '\0';
    must(HF_OK, try_free(context->store, longest, &options, &lock));
    must(HF_OK, hf_release(lock));
}

static void options_that_cannot_be_are_refused(void **state)
{
    struct context *context = *state;
    char owner[HF_OWNER_MAX + 2];
    hf_options options;
    hf_lock *lock;

    memset(owner, 'o', sizeof owner);
    owner[HF_OWNER_MAX + 1] = '\0';
#define REFUSED(...)                                                         \
    do {                                                                     \
        options = options_of(context);                                       \
        __VA_ARGS__;                                                         \
        must(HF_EINVAL, hf_acquire(context->store, "odd", &options, &lock)); \
    } while (0)
    REFUSED(options.wait_ms = -2);
    REFUSED(options.mode = 9);
    REFUSED(options.max_hold_ms = -1);
    REFUSED(options.owner = owner);
    REFUSED(options.size = 0);
    if (context->features & HF_HAS_PERMITS) {
        REFUSED(options.mode = HF_PERMIT);
        REFUSED((options.mode = HF_PERMIT, options.permits = HF_PERMITS_MAX + 1));
    }
#undef REFUSED
    assert_int_equal(0, count_entries(context->store, "odd", HF_ENTRY_HOLDER));
}

static void what_is_not_declared_is_not_supported(void **state)
{
    struct context *context = *state;
    hf_options options;
    hf_lock *lock;

#define UNSUPPORTED(feature, ...)                                                 \
    do {                                                                          \
        options = options_of(context);                                            \
        __VA_ARGS__;                                                              \
        if (!(context->features & (feature)))                                     \
            must(HF_ENOTSUP, hf_acquire(context->store, "odd", &options, &lock)); \
    } while (0)
    UNSUPPORTED(HF_HAS_TTL, options.ttl_ms = 1000);
    UNSUPPORTED(HF_HAS_SHARED, options.mode = HF_SHARED);
    UNSUPPORTED(HF_HAS_PERMITS, (options.mode = HF_PERMIT, options.permits = 2));
    UNSUPPORTED(HF_HAS_DELAY, options.delay_ms = 1000);
#undef UNSUPPORTED
    if (!(context->features & HF_HAS_BREAK))
        must(HF_ENOTSUP, hf_break(context->store, "odd", 0, NULL));
    if (!(context->features & HF_HAS_FLOOR))
        must(HF_ENOTSUP, hf_floor(context->store, 5));
    options = options_of(context);
    lock = must_acquire(context->store, "odd", &options);
    if (!(context->features & HF_HAS_PASS_FD)) {
        int fd;

        must(HF_ENOTSUP, hf_lock_pass_fd(lock, &fd));
    }
    must(HF_OK, hf_release(lock));
}

static void urls_that_cannot_be_are_refused(void **state)
{
    struct context *context = *state;
    hf_store *store = NULL;
    char url[sizeof context->url + 32];

    must(HF_EINVAL, hf_open("nothing-of-the-kind:x", &store));
    must(HF_EINVAL, hf_open("no scheme", &store));
    snprintf(url, sizeof url, "%s%csurely-unknown=1", context->url,
             strchr(context->url, '?') ? '&' : '?');
    must(HF_EINVAL, hf_open(url, &store));
    assert_non_null(strstr(hf_error(), "surely-unknown"));
    assert_null(store);
}

const struct suite_test acquiring_tests[] = {
    SUITE_TEST(an_acquired_lock_says_what_it_is),
    SUITE_TEST(without_options_it_waits_and_holds),
    SUITE_TEST(a_held_name_is_busy_on_the_same_handle),
    SUITE_TEST(a_held_name_is_busy_on_another_handle, .brief = true),
    SUITE_TEST(different_names_do_not_meet),
    SUITE_TEST(a_name_held_by_another_process_is_busy, .brief = true),
    SUITE_TEST(tokens_grow_over_handles_and_modes, .brief = true),
    SUITE_TEST(tokens_grow_over_processes_and_reopening, .brief = true),
    SUITE_TEST(a_crowd_of_threads_enters_one_by_one, .brief = true),
    SUITE_TEST(best_effort_is_refused_where_strict_is_needed),
    SUITE_TEST(names_that_cannot_be_are_refused),
    SUITE_TEST(options_that_cannot_be_are_refused),
    SUITE_TEST(what_is_not_declared_is_not_supported),
    SUITE_TEST(urls_that_cannot_be_are_refused),
    {0},
};
