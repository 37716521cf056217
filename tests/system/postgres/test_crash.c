/* test_crash.c: kill -9 of all of PostgreSQL's processes, under load, again and again: KILLS times, 50 with HF_SOAK (make soak-postgres).
 *
 * Some threads take and give up a few names as fast as they can; one hold stays through all of it. What must be true:
 *
 *     nobody is inside a name while another is who has not been told that it lost it;
 *     the tokens of a name grow in the order in which they are granted;
 *     a hold that was acknowledged is there after the crash, unless its holder was told that it is lost. */
#include "postgres.h"

#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS (getenv("HF_SOAK") ? 50 : 8)
#define THREADS 8
#define NAMES 3
#define TTL_MS 20000
#define APART_MAX_US 700000 /* between two crashes */
#define AWAY_MAX_US 300000
#define WAIT_MS 30000

static struct postgres server;
static char url[256];
static atomic_bool over;

/* Of one name, as those see it who are inside. */
struct section {
    pthread_mutex_t mutex;
    uint64_t token; /* the greatest so far */
    hf_lock *inside;
    int entered;
};

static struct section sections[NAMES];

static unsigned int draw(unsigned int below)
{
    unsigned int random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        abort();
    return random % below;
}

static void fail_in_thread(const char *what, int result)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_result_name(result), hf_error());
    abort();
}

/* Nobody else may be inside whose lock is not over. */
static void enter(struct section *section, hf_lock *lock)
{
    pthread_mutex_lock(&section->mutex);
    if (section->inside && hf_lock_left_ms(section->inside) > 0 && hf_lock_left_ms(lock) > 0) {
        fprintf(stderr, "two are inside: %" PRIu64 " and %" PRIu64 "\n",
                hf_lock_token(section->inside), hf_lock_token(lock));
        abort();
    }
    if (hf_lock_token(lock) <= section->token) {
        fprintf(stderr, "token %" PRIu64 " after %" PRIu64 "\n", hf_lock_token(lock),
                section->token);
        abort();
    }
    section->token = hf_lock_token(lock);
    section->inside = lock;
    section->entered++;
    pthread_mutex_unlock(&section->mutex);
}

static void leave(struct section *section, const hf_lock *lock)
{
    pthread_mutex_lock(&section->mutex);
    if (section->inside == lock)
        section->inside = NULL;
    pthread_mutex_unlock(&section->mutex);
}

static void *work(void *arg)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_store *store;
    hf_lock *lock;

    (void)arg;
    options.ttl_ms = TTL_MS;
    options.wait_ms = WAIT_MS;
    if (hf_open(url, &store) != HF_OK)
        fail_in_thread("open", HF_EUNREACH);
    while (!atomic_load(&over)) {
        int number = (int)draw(NAMES), result;
        char name[16];

        snprintf(name, sizeof name, "n%d", number);
        result = hf_acquire(store, name, &options, &lock);
        if (result == HF_OK) {
            enter(&sections[number], lock);
            usleep(draw(2000));
            leave(&sections[number], lock);
            result = hf_release(lock);
            if (result == HF_ELOST)
                fail_in_thread("a hold was forgotten", result);
        }
        if (result != HF_OK && result != HF_EUNKNOWN && result != HF_EUNREACH && result != HF_EBUSY)
            fail_in_thread("acquire or release", result);
    }
    hf_close(store);
    return NULL;
}

/* The hold that stays is the one of its token, and alive. */
static void look_at(hf_store *store, hf_lock *kept)
{
    int result = HF_EUNREACH;

    for (int i = 0; i < 100 && (result == HF_EUNREACH || result == HF_EUNKNOWN); i++) {
        result = hf_check(store, "kept", hf_lock_token(kept));
        usleep(result == HF_OK ? 0 : 100000);
    }
    assert_int_equal(HF_OK, result);
    assert_true(hf_lock_left_ms(kept) > 0);
}

static void no_acknowledged_hold_is_lost_and_tokens_grow(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    pthread_t threads[THREADS];
    hf_store *store;
    hf_lock *kept;
    int kills = KILLS, entered = 0;

    (void)state;
    options.ttl_ms = TTL_MS;
    assert_int_equal(HF_OK, hf_open(url, &store));
    assert_int_equal(HF_OK, hf_acquire(store, "kept", &options, &kept));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < kills; i++) {
        usleep(draw(APART_MAX_US));
        postgres_kill9(&server);
        usleep(draw(AWAY_MAX_US));
        assert_int_equal(0, postgres_restart(&server));
        look_at(store, kept);
    }
    usleep(APART_MAX_US);
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NAMES; i++)
        entered += sections[i].entered;
    printf("%d crashes, %d holds\n", kills, entered);
    assert_true(entered > kills);
    assert_int_equal(HF_OK, hf_release(kept));
    hf_close(store);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++)
        pthread_mutex_init(&sections[i].mutex, NULL);
    if (postgres_start(&server, NULL) < 0)
        return -1;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres", server.port);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    postgres_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_acknowledged_hold_is_lost_and_tokens_grow),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
