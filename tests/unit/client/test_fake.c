/* The test engine itself: a fake that lies by accident would make every other test worthless. */
#include "base/clock.h"
#include "engines/engine.h"
#include "test_engine.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 10000

const struct engine *holdfast_engine(void);

struct fake {
    const struct engine *engine;
    struct engine_host host;
    struct engine_store *store;
    struct faults *faults;
    int nudged_fd;
    char path[64];
};

static void on_nudge(void *context, struct engine_claim *claim)
{
    struct fake *fake = context;

    (void)claim;
    eventfd_write(fake->nudged_fd, 1);
}

static void on_lost(void *context, struct engine_claim *claim, const char *why)
{
    (void)context;
    (void)claim;
    (void)why;
}

static void on_connection(void *context, const char *id)
{
    (void)context;
    (void)id;
}

static void on_reached(void *context)
{
    (void)context;
}

static void on_warning(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "%s\n", text);
}

static int set_up(void **state)
{
    struct fake *fake = calloc(1, sizeof *fake);
    char text[96], where[HF_URL_MAX + 1];
    struct url url;
    int fd;

    if (!fake)
        return -1;
    snprintf(fake->path, sizeof fake->path, "/tmp/holdfast-fake.XXXXXX");
    fd = mkstemp(fake->path);
    if (fd < 0)
        return -1;
    close(fd);
    fake->engine = holdfast_engine();
    fake->host = (struct engine_host){.context = fake,
                                      .nudge = on_nudge,
                                      .lost = on_lost,
                                      .connected = on_connection,
                                      .reached = on_reached,
                                      .trouble = on_warning,
                                      .warn = on_warning};
    fake->nudged_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake->faults = faults_open(fake->path);
    snprintf(text, sizeof text, "test:%s", fake->path);
    *state = fake;
    return url_parse(text, &url, NULL) == HF_OK && fake->faults &&
                   fake->engine->open(&url, &fake->host, &fake->store, where, NULL) == HF_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    struct fake *fake = *state;

    fake->engine->close(fake->store);
    faults_close(fake->faults);
    close(fake->nudged_fd);
    unlink(fake->path);
    free(fake);
    return 0;
}

static struct engine_claim claim_of(const char *name, const char *lease)
{
    return (struct engine_claim){
        .name = name, .lease = lease, .owner = "me", .ttl_ms = 20000, .will_wait = true};
}

static int64_t soon(void)
{
    return clock_boot_ms() + PATIENCE_MS;
}

static int acquire(struct fake *fake, struct engine_claim *claim)
{
    return fake->engine->acquire(fake->store, claim, soon(), NULL);
}

static int64_t renew(struct fake *fake, struct engine_claim *claim)
{
    int64_t left_ms = -2;

    assert_int_equal(HF_OK, fake->engine->renew(fake->store, &claim, 1, &left_ms, soon(), NULL));
    return left_ms;
}

static void await_nudge(struct fake *fake)
{
    struct pollfd pollfd = {.fd = fake->nudged_fd, .events = POLLIN};
    eventfd_t count;

    assert_int_equal(1, poll(&pollfd, 1, PATIENCE_MS));
    eventfd_read(fake->nudged_fd, &count);
}

static void the_same_lease_gets_the_same_token(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a"), b = claim_of("n", "b");

    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(1, a.token);
    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(1, a.token);
    b.will_wait = false;
    assert_int_equal(ENGINE_BUSY, acquire(fake, &b));
    b.will_wait = true;
    assert_int_equal(ENGINE_QUEUED, acquire(fake, &b));
    assert_int_equal(ENGINE_QUEUED, acquire(fake, &b));
    assert_int_equal(HF_OK, fake->engine->release(fake->store, &a, soon(), NULL));
    await_nudge(fake);
    assert_int_equal(ENGINE_HELD, acquire(fake, &b));
    assert_int_equal(2, b.token);
    assert_int_equal(HF_ELOST, fake->engine->release(fake->store, &a, soon(), NULL));
    assert_int_equal(HF_EREFUSED, acquire(fake, &a)); /* an ended lease is remembered */
    fake->engine->dispose(fake->store, &a);
    fake->engine->dispose(fake->store, &b);
}

static void a_lease_runs_out_holding_and_waiting(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a"), b = claim_of("n", "b"), c = claim_of("n", "c");

    c.ttl_ms = 60000;
    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(ENGINE_QUEUED, acquire(fake, &b));
    assert_int_equal(ENGINE_QUEUED, acquire(fake, &c));
    assert_in_range(renew(fake, &a), 19000, 20000);
    faults_advance(fake->faults, 20001);
    assert_int_equal(-1, renew(fake, &a));
    assert_int_equal(-1, renew(fake, &b));
    assert_int_equal(ENGINE_HELD, acquire(fake, &c)); /* over the dead waiter's head */
    assert_int_equal(HF_EREFUSED, acquire(fake, &b));
    faults_advance(fake->faults, 20001);
    b.will_wait = false;
    assert_int_equal(ENGINE_BUSY, acquire(fake, &b)); /* forgotten after one more TTL */
    fake->engine->dispose(fake->store, &a);
    fake->engine->dispose(fake->store, &b);
    fake->engine->dispose(fake->store, &c);
}

static void a_lock_delay_follows_an_expiry_only(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a"), b = claim_of("n", "b"), c = claim_of("n", "c");

    a.delay_ms = b.delay_ms = 5000;
    c.will_wait = false;
    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(HF_OK, fake->engine->release(fake->store, &a, soon(), NULL));
    assert_int_equal(ENGINE_HELD, acquire(fake, &b));
    faults_advance(fake->faults, 20001);
    assert_int_equal(ENGINE_BUSY, acquire(fake, &c));
    faults_advance(fake->faults, 5000);
    assert_int_equal(ENGINE_HELD, acquire(fake, &c));
    fake->engine->dispose(fake->store, &a);
    fake->engine->dispose(fake->store, &b);
    fake->engine->dispose(fake->store, &c);
}

static void faults_do_what_they_say(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a");
    int64_t began_ms;

    faults_set(fake->faults, FAULT_UNREACHABLE, CALL_ACQUIRE, 1);
    assert_int_equal(HF_EUNREACH, acquire(fake, &a));
    faults_set(fake->faults, FAULT_REFUSE, CALL_ACQUIRE, 1);
    assert_int_equal(HF_EREFUSED, acquire(fake, &a));
    faults_set(fake->faults, FAULT_LOSE_REQUEST, CALL_ACQUIRE, 1);
    assert_int_equal(HF_EUNKNOWN, acquire(fake, &a));
    assert_int_equal(0, faults_expiry_ms(fake->faults, "n"));
    faults_set(fake->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 1);
    assert_int_equal(HF_EUNKNOWN, acquire(fake, &a));
    assert_int_equal(0, a.token); /* the client was told nothing */
    assert_int_not_equal(0, faults_expiry_ms(fake->faults, "n"));
    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(5, faults_count(fake->faults, CALL_ACQUIRE));
    faults_set(fake->faults, FAULT_HANG, CALL_ANY, FAULT_ALWAYS);
    began_ms = clock_boot_ms();
    assert_int_equal(HF_EUNKNOWN,
                     fake->engine->acquire(fake->store, &a, clock_boot_ms() + 120, NULL));
    assert_in_range(clock_boot_ms() - began_ms, 110, PATIENCE_MS);
    faults_clear(fake->faults);
    faults_delay(fake->faults, CALL_ACQUIRE, 100);
    began_ms = clock_boot_ms();
    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_in_range(clock_boot_ms() - began_ms, 90, PATIENCE_MS);
    assert_int_equal(HF_EUNKNOWN,
                     fake->engine->acquire(fake->store, &a, clock_boot_ms() + 20, NULL));
    fake->engine->dispose(fake->store, &a);
}

static void an_abandoned_lease_never_returns(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a");

    assert_int_equal(HF_OK, fake->engine->abandon(fake->store, &a, soon(), NULL));
    assert_int_equal(HF_EREFUSED, acquire(fake, &a)); /* the request that was still on its way */
    fake->engine->dispose(fake->store, &a);
}

static void other_processes_see_the_same_store(void **state)
{
    struct fake *fake = *state;
    struct engine_claim a = claim_of("n", "a"), b = claim_of("n", "b");
    pid_t child;
    int status;

    assert_int_equal(ENGINE_HELD, acquire(fake, &a));
    assert_int_equal(ENGINE_QUEUED, acquire(fake, &b));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct faults *theirs = faults_open(fake->path);

        _exit(theirs && faults_expire(theirs, "n") == 2 ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    await_nudge(fake); /* from another process, without polling */
    assert_int_equal(-1, renew(fake, &b));
    fake->engine->dispose(fake->store, &a);
    fake->engine->dispose(fake->store, &b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_lease_gets_the_same_token),  TEST(a_lease_runs_out_holding_and_waiting),
        TEST(a_lock_delay_follows_an_expiry_only), TEST(faults_do_what_they_say),
        TEST(an_abandoned_lease_never_returns),    TEST(other_processes_see_the_same_store),
    };

    alarm(55);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
