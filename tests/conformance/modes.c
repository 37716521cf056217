/* modes.c: shared holds, permits, and the order of the queue, where a store declares them. */
#include "suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- shared ---------------------------------------------------------------------------------- */

#define READERS 5

static void readers_share_and_a_writer_does_not(void **state)
{
    struct context *context = *state;
    hf_options shared = options_of(context), exclusive = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *readers[READERS], *writer, *other;
    struct helper *helper;
    uint64_t last = helper_hold(context, "read", "mode=shared", &helper);

    shared.mode = HF_SHARED;
    for (int i = 0; i < READERS; i++) {
        must(HF_OK, try_free(i % 2 ? another : context->store, "read", &shared, &readers[i]));
        assert_int_equal(HF_SHARED, hf_lock_mode(readers[i]));
        assert_true(hf_lock_token(readers[i]) > last);
        last = hf_lock_token(readers[i]);
    }
    must(HF_EBUSY, hf_try(another, "read", &exclusive, &writer));
    assert_int_equal(READERS + 1, count_entries(another, "read", HF_ENTRY_HOLDER));
    for (int i = 0; i < READERS; i++) {
        must(HF_OK, hf_check(another, "read", hf_lock_token(readers[i])));
        must(HF_OK, hf_release(readers[i]));
    }
    must(HF_EBUSY, hf_try(another, "read", &exclusive, &writer)); /* the other process's */
    helper_say(helper, "release");
    assert_string_equal("HF_OK", helper_hear(helper, "released"));
    must(HF_OK, try_free(another, "read", &exclusive, &writer));
    assert_true(hf_lock_token(writer) > last);
    must(HF_EBUSY, hf_try(context->store, "read", &shared, &other));
    must(HF_OK, hf_release(writer));
    hf_close(another);
}

static void readers_wait_for_a_writer_together(void **state)
{
    struct context *context = *state;
    hf_options shared = options_of(context), exclusive = options_of(context);
    hf_lock *writer = must_acquire(context->store, "read", &exclusive);
    struct waiter waiters[READERS];

    shared.mode = HF_SHARED;
    for (int i = 0; i < READERS; i++)
        waiter_start(&waiters[i], context->store, "read", &shared);
    await_waiters(context, "read", READERS);
    must(HF_OK, hf_release(writer));
    for (int i = 0; i < READERS; i++)
        must(HF_OK, waiter_join(&waiters[i])); /* none releases before all have it */
    for (int i = 0; i < READERS; i++)
        must(HF_OK, hf_release(waiters[i].lock));
}

static void a_killed_reader_lets_the_writer_in(void **state)
{
    struct context *context = *state;
    hf_options exclusive = options_of(context);
    struct helper *helper;
    hf_lock *writer;

    helper_hold(context, "read", "mode=shared ttl=600", &helper);
    must(HF_EBUSY, hf_try(context->store, "read", &exclusive, &writer));
    helper_kill(helper);
    writer = must_acquire(context->store, "read", &exclusive);
    must(HF_OK, hf_release(writer));
}

/* Readers who hand a baton on: each stays until another has come after it, so that the name is never
 * free by itself. Only when nobody can follow, because a writer has its turn, does one leave. */
struct relay {
    hf_store *store;
    hf_options options;
    _Atomic bool *stop;
    _Atomic int *wrong, *entered;
};

#define NOBODY_FOLLOWS_MS 300

static void *relay_main(void *arg)
{
    struct relay *relay = arg;

    while (!atomic_load(relay->stop)) {
        int64_t began_ms;
        hf_lock *lock;
        int mine;

        if (hf_acquire(relay->store, "read", &relay->options, &lock) != HF_OK) {
            fprintf(stderr, "a reader: %s\n", hf_error());
            atomic_fetch_add(relay->wrong, 1);
            break;
        }
        mine = atomic_fetch_add(relay->entered, 1) + 1;
        began_ms = now_ms();
        while (atomic_load(relay->entered) == mine && !atomic_load(relay->stop) &&
               now_ms() - began_ms < NOBODY_FOLLOWS_MS)
            sleep_ms(1);
        hf_release(lock);
    }
    return NULL;
}

static void a_stream_of_readers_does_not_starve_a_writer(void **state)
{
    struct context *context = *state;
    _Atomic bool stop = false;
    _Atomic int wrong = 0, entered = 0;
    struct relay relays[2];
    pthread_t threads[2];
    hf_options exclusive = options_of(context);
    int result = HF_OK;

    for (int i = 0; i < 2; i++) {
        relays[i] = (struct relay){context->store, options_of(context), &stop, &wrong, &entered};
        relays[i].options.mode = HF_SHARED;
        assert_int_equal(0, pthread_create(&threads[i], NULL, relay_main, &relays[i]));
    }
    while (atomic_load(&entered) < 4 && atomic_load(&wrong) == 0)
        sleep_ms(1);
    for (int i = 0; i < 3 && result == HF_OK; i++) {
        hf_lock *writer;

        result = hf_acquire(context->store, "read", &exclusive, &writer);
        if (result == HF_OK)
            hf_release(writer);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    must(HF_OK, result);
    assert_int_equal(0, wrong);
}

static void a_writer_that_gives_up_lets_readers_in(void **state)
{
    struct context *context = *state;
    hf_options shared = options_of(context), exclusive = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *first, *second, *writer;

    shared.mode = HF_SHARED;
    exclusive.wait_ms = 200;
    first = must_acquire(context->store, "read", &shared);
    must(HF_EBUSY, hf_acquire(context->store, "read", &exclusive, &writer));
    must(HF_OK, try_free(another, "read", &shared, &second));
    must(HF_OK, hf_release(first));
    must(HF_OK, hf_release(second));
    hf_close(another);
}

/* ---- permits --------------------------------------------------------------------------------- */

static hf_options permit_of(const struct context *context, uint32_t permits)
{
    hf_options options = options_of(context);

    options.mode = HF_PERMIT;
    options.permits = permits;
    return options;
}

static void n_permits_are_n(void **state)
{
    struct context *context = *state;
    hf_options permit = permit_of(context, 3);
    hf_store *another = open_another(context);
    hf_lock *holders[3], *fourth;
    struct helper *helper;
    uint64_t token = helper_hold(context, "pool", "permits=3", &helper);

    for (int i = 0; i < 2; i++) {
        must(HF_OK, try_free(i ? another : context->store, "pool", &permit, &holders[i]));
        assert_int_equal(HF_PERMIT, hf_lock_mode(holders[i]));
        assert_true(hf_lock_token(holders[i]) > token);
        token = hf_lock_token(holders[i]);
    }
    must(HF_EBUSY, hf_try(another, "pool", &permit, &fourth));
    assert_int_equal(3, count_entries(another, "pool", HF_ENTRY_HOLDER));
    must(HF_OK, hf_release(holders[0]));
    must(HF_OK, try_free(another, "pool", &permit, &fourth));
    assert_true(hf_lock_token(fourth) > token);
    must(HF_EBUSY, hf_try(another, "pool", &permit, &holders[0]));
    must(HF_OK, hf_release(fourth));
    must(HF_OK, hf_release(holders[1]));
    hf_close(another);
}

static void another_number_of_permits_is_an_error(void **state)
{
    struct context *context = *state;
    hf_options three = permit_of(context, 3), four = permit_of(context, 4);
    hf_lock *lock = must_acquire(context->store, "pool", &three), *other;

    must(HF_EMODE, hf_try(context->store, "pool", &four, &other));
    must(HF_EMODE, hf_acquire(context->store, "pool", &four, &other));
    must(HF_OK, hf_release(lock));
    /* Nobody uses it any more, so a new number is fine. */
    lock = must_acquire(context->store, "pool", &four);
    must(HF_OK, hf_release(lock));
}

/* Redisson 4462, 2045: permits leak on a crash. */
static void a_killed_holder_of_a_permit_frees_it(void **state)
{
    struct context *context = *state;
    hf_options permit = permit_of(context, 2);
    hf_lock *mine = must_acquire(context->store, "pool", &permit), *other;
    struct helper *helper;

    helper_hold(context, "pool", "permits=2 ttl=600", &helper);
    must(HF_EBUSY, hf_try(context->store, "pool", &permit, &other));
    helper_kill(helper);
    other = must_acquire(context->store, "pool", &permit);
    must(HF_OK, hf_release(other));
    must(HF_OK, hf_release(mine));
}

static void any_freed_permit_serves_a_waiter(void **state)
{
    struct context *context = *state;
    hf_options permit = permit_of(context, 3);
    hf_lock *holders[3];
    struct waiter waiters[2];

    for (int i = 0; i < 3; i++)
        holders[i] = must_acquire(context->store, "pool", &permit);
    for (int i = 0; i < 2; i++)
        waiter_start(&waiters[i], context->store, "pool", &permit);
    await_waiters(context, "pool", 2);
    must(HF_OK, hf_release(holders[2]));
    must(HF_OK, hf_release(holders[0]));
    for (int i = 0; i < 2; i++)
        must(HF_OK, waiter_join(&waiters[i]));
    for (int i = 0; i < 2; i++)
        must(HF_OK, hf_release(waiters[i].lock));
    must(HF_OK, hf_release(holders[1]));
}

#define POOL 2
#define POOL_THREADS 5

struct pooled {
    hf_store *store;
    hf_options options;
    _Atomic int *inside, *wrong;
};

static void *pooled_main(void *arg)
{
    struct pooled *pooled = arg;

    for (int i = 0; i < 20; i++) {
        hf_lock *lock;

        if (hf_acquire(pooled->store, "pool", &pooled->options, &lock) != HF_OK) {
            fprintf(stderr, "in the pool: %s\n", hf_error());
            atomic_fetch_add(pooled->wrong, 1);
            break;
        }
        if (atomic_fetch_add(pooled->inside, 1) >= POOL)
            atomic_fetch_add(pooled->wrong, 1);
        sleep_ms(1);
        atomic_fetch_sub(pooled->inside, 1);
        hf_release(lock);
    }
    return NULL;
}

static void never_more_than_n_are_inside(void **state)
{
    struct context *context = *state;
    hf_store *another = open_another(context);
    _Atomic int inside = 0, wrong = 0;
    struct pooled pooled[POOL_THREADS];
    pthread_t threads[POOL_THREADS];

    for (int i = 0; i < POOL_THREADS; i++) {
        pooled[i] = (struct pooled){i % 2 ? another : context->store, permit_of(context, POOL),
                                    &inside, &wrong};
        assert_int_equal(0, pthread_create(&threads[i], NULL, pooled_main, &pooled[i]));
    }
    for (int i = 0; i < POOL_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, wrong);
    hf_close(another);
}

/* ---- order ----------------------------------------------------------------------------------- */

#define QUEUE 5

static void the_queue_is_served_in_order(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "line", &options);
    struct waiter waiters[QUEUE];
    uint64_t last = hf_lock_token(lock);

    for (int i = 0; i < QUEUE; i++) {
        waiter_start(&waiters[i], i % 2 ? another : context->store, "line", &options);
        await_waiters(context, "line", i + 1);
    }
    must(HF_OK, hf_release(lock));
    for (int i = 0; i < QUEUE; i++) {
        uint64_t token;

        must(HF_OK,
             waiter_join(&waiters[i])); /* the others cannot have it before this one lets go */
        token = hf_lock_token(waiters[i].lock);
        assert_true(token > last);
        last = token;
        must(HF_OK, hf_release(waiters[i].lock));
    }
    hf_close(another);
}

static void nobody_overtakes_the_queue(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "line", &options);
    struct helper *helper = helper_start(context, "line", NULL);

    await_waiters(context, "line", 1);
    must(HF_OK, hf_release(lock));
    /* The name is its already, whether it has heard or not. */
    must_be_busy(context, context->store, "line", &options);
    helper_hear(helper, "held");
}

static void a_reader_does_not_overtake_a_waiting_writer(void **state)
{
    struct context *context = *state;
    hf_options shared = options_of(context), exclusive = options_of(context);
    hf_lock *reader, *other;
    struct waiter writer, second;
    uint64_t token;

    shared.mode = HF_SHARED;
    reader = must_acquire(context->store, "read", &shared);
    waiter_start(&writer, context->store, "read", &exclusive);
    await_waiters(context, "read", 1);
    must(HF_EBUSY, hf_try(context->store, "read", &shared, &other));
    waiter_start(&second, context->store, "read", &shared);
    await_waiters(context, "read", 2);
    must(HF_OK, hf_release(reader));
    must(HF_OK, waiter_join(&writer));
    token = hf_lock_token(writer.lock);
    must(HF_OK, hf_release(writer.lock));
    must(HF_OK, waiter_join(&second));
    assert_true(hf_lock_token(second.lock) > token);
    must(HF_OK, hf_release(second.lock));
}

const struct suite_test mode_tests[] = {
    SUITE_TEST(readers_share_and_a_writer_does_not, .needs = HF_HAS_SHARED),
    SUITE_TEST(readers_wait_for_a_writer_together, .needs = HF_HAS_SHARED),
    SUITE_TEST(a_killed_reader_lets_the_writer_in, .needs = HF_HAS_SHARED),
    SUITE_TEST(a_writer_that_gives_up_lets_readers_in, .needs = HF_HAS_SHARED,
               .fragile = WAITS_BRIEFLY),
    SUITE_TEST(a_stream_of_readers_does_not_starve_a_writer, .needs = HF_HAS_SHARED, .brief = true),
    SUITE_TEST(n_permits_are_n, .needs = HF_HAS_PERMITS),
    SUITE_TEST(another_number_of_permits_is_an_error, .needs = HF_HAS_PERMITS),
    SUITE_TEST(a_killed_holder_of_a_permit_frees_it, .needs = HF_HAS_PERMITS),
    SUITE_TEST(any_freed_permit_serves_a_waiter, .needs = HF_HAS_PERMITS),
    SUITE_TEST(never_more_than_n_are_inside, .needs = HF_HAS_PERMITS, .brief = true),
    SUITE_TEST(the_queue_is_served_in_order, .needs = HF_HAS_FIFO, .brief = true),
    SUITE_TEST(nobody_overtakes_the_queue, .needs = HF_HAS_FIFO, .brief = true),
    SUITE_TEST(a_reader_does_not_overtake_a_waiting_writer, .needs = HF_HAS_FIFO | HF_HAS_SHARED),
    {0},
};
