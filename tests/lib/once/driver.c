#include "driver.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

int64_t test_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void test_pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- the store ------------------------------------------------------------------------------- */

static void hear_nudge(void *context, struct engine_claim *claim)
{
    (void)context;
    (void)claim;
}

static void hear_lost(void *context, struct engine_claim *claim, const char *why)
{
    (void)claim;
    (void)why;
    atomic_fetch_add((_Atomic int *)context, 1);
}

static bool never_closing(void *context)
{
    (void)context;
    return false;
}

static void hear_warning(void *context, const char *text)
{
    (void)context;
    (void)text;
}

static void hear_answer(void *context)
{
    (void)context;
}

static void hear_connection(void *context, const char *id)
{
    (void)context;
    (void)id;
}

static int open_engine(struct driver *driver, const char *url_text)
{
    char where[HF_URL_MAX + 1];
    struct url url;
    int result = url_parse(url_text, &url, &driver->err);

    atomic_store(&driver->losses, 0);
    driver->host = (struct engine_host){.context = (void *)&driver->losses,
                                        .nudge = hear_nudge,
                                        .lost = hear_lost,
                                        .connected = hear_connection,
                                        .reached = hear_answer,
                                        .trouble = hear_warning,
                                        .warn = hear_warning,
                                        .closing = never_closing};
    if (result == HF_OK)
        result = engines_find(url.scheme, &driver->engine, &driver->err);
    if (result == HF_OK)
        result = driver->engine->open(&url, &driver->host, &driver->store, where, &driver->err);
    return result;
}

void driver_open(struct driver *driver, const char *url)
{
    if (open_engine(driver, url) != HF_OK)
        fail_msg("%s", driver->err.text);
}

void driver_close(struct driver *driver)
{
    driver->engine->close(driver->store);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static int64_t soon(void)
{
    return clock_after(clock_boot_ms(), PATIENCE_MS);
}

void claimant_begin(struct claimant *claimant, struct driver *driver, const char *key)
{
    unsigned char bytes[16];

    random_fill(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, claimant->lease);
    claimant->driver = driver;
    claimant->claim =
        (struct engine_claim){.name = key,
                              .lease = claimant->lease,
                              .owner = "somebody",
                              .mode = HF_EXCLUSIVE,
                              .ttl_ms = driver->engine->traits.ttl_ms > 0 ? TTL_MS : 0,
                              .once = true,
                              .death_ms = DEATH_MS};
}

void claimant_end(struct claimant *claimant)
{
    struct driver *driver = claimant->driver;

    free(claimant->claim.record.bytes);
    driver->engine->dispose(driver->store, &claimant->claim);
}

int claimant_try(struct claimant *claimant)
{
    struct driver *driver = claimant->driver;

    return driver->engine->acquire(driver->store, &claimant->claim, soon(), &driver->err);
}

int claimant_wait(struct claimant *claimant)
{
    const struct engine *engine = claimant->driver->engine;
    int64_t until_ms = soon();
    struct error_text err = {""};
    int outcome;

    claimant->claim.will_wait = true;
    for (;;) {
        outcome = engine->acquire(claimant->driver->store, &claimant->claim, until_ms, &err);
        if (outcome < 0)
            print_error("%s\n", err.text);
        if ((outcome != ENGINE_BUSY && outcome != ENGINE_QUEUED) || clock_boot_ms() >= until_ms)
            return outcome;
        engine->wait(claimant->driver->store, &claimant->claim, until_ms, &err);
    }
}

int claimant_finish(struct claimant *claimant, const void *bytes, size_t size, int64_t keep_ms)
{
    struct driver *driver = claimant->driver;

    return driver->engine->finish(driver->store, &claimant->claim, bytes, size, keep_ms, soon(),
                                  &driver->err);
}

int claimant_release(struct claimant *claimant)
{
    struct driver *driver = claimant->driver;

    return driver->engine->release(driver->store, &claimant->claim, soon(), &driver->err);
}

uint64_t run_once(struct driver *driver, const char *key, const void *bytes, size_t size,
                  int64_t keep_ms)
{
    struct claimant claimant;
    uint64_t token;

    claimant_begin(&claimant, driver, key);
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    token = claimant.claim.token;
    assert_int_equal(HF_OK, claimant_finish(&claimant, bytes, size, keep_ms));
    claimant_end(&claimant);
    return token;
}

int ask_once(struct driver *driver, const char *key, bool no_heir, uint64_t *ret_token)
{
    struct claimant claimant;
    int outcome;

    claimant_begin(&claimant, driver, key);
    claimant.claim.no_heir = no_heir;
    outcome = claimant_try(&claimant);
    *ret_token = outcome == ENGINE_HELD ? claimant.claim.token : claimant.claim.record.token;
    if (outcome == ENGINE_HELD)
        assert_int_equal(HF_OK, claimant_release(&claimant));
    claimant_end(&claimant);
    return outcome;
}

void assert_done(const struct claimant *claimant, uint64_t token, const void *bytes, size_t size)
{
    assert_int_equal(token, claimant->claim.record.token);
    assert_int_equal(size, claimant->claim.record.size);
    if (size > 0)
        assert_memory_equal(bytes, claimant->claim.record.bytes, size);
}

/* ---- threads that wait ----------------------------------------------------------------------- */

static void *waiter_main(void *arg)
{
    struct waiter *waiter = arg;

    waiter->outcome = claimant_wait(&waiter->claimant);
    atomic_store(&waiter->over, true);
    return NULL;
}

void waiter_start(struct waiter *waiter, struct driver *driver, const char *key, bool no_heir)
{
    claimant_begin(&waiter->claimant, driver, key);
    waiter->claimant.claim.no_heir = no_heir;
    atomic_store(&waiter->over, false);
    assert_int_equal(0, pthread_create(&waiter->thread, NULL, waiter_main, waiter));
}

int waiter_outcome(struct waiter *waiter)
{
    assert_int_equal(0, pthread_join(waiter->thread, NULL));
    return waiter->outcome;
}

/* ---- processes that run ---------------------------------------------------------------------- */

static void run_until_told(const char *url, const char *key, int64_t ttl_ms, int64_t death_ms,
                           int from, int to)
{
    struct claimant claimant;
    struct driver driver;
    char text[256];
    ssize_t size;
    int result;

    if (open_engine(&driver, url) != HF_OK)
        _exit(1);
    claimant_begin(&claimant, &driver, key);
    if (ttl_ms > 0)
        claimant.claim.ttl_ms = ttl_ms;
    claimant.claim.death_ms = death_ms;
    if (claimant_try(&claimant) != ENGINE_HELD ||
        write(to, &claimant.claim.token, sizeof claimant.claim.token) < 0)
        _exit(2);
    size = read(from, text, sizeof text);
    if (size <= 0)
        _exit(3);
    result = claimant_finish(&claimant, text, (size_t)size, KEEP_MS);
    if (write(to, &result, sizeof result) < 0)
        _exit(4);
    _exit(0);
}

void runner_start(struct runner *runner, const char *url, const char *key, int64_t ttl_ms,
                  int64_t death_ms)
{
    pid_t parent = getpid();
    int to[2], from[2];

    assert_int_equal(0, pipe2(to, O_CLOEXEC));
    assert_int_equal(0, pipe2(from, O_CLOEXEC));
    fflush(NULL);
    runner->pid = fork();
    assert_true(runner->pid >= 0);
    if (runner->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(5);
        close(to[1]);
        close(from[0]);
        run_until_told(url, key, ttl_ms, death_ms, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    runner->to = to[1];
    runner->from = from[0];
    assert_int_equal(sizeof runner->token,
                     read(runner->from, &runner->token, sizeof runner->token));
}

int runner_finish(struct runner *runner, const char *text)
{
    int result;

    assert_int_equal(strlen(text), write(runner->to, text, strlen(text)));
    assert_int_equal(sizeof result, read(runner->from, &result, sizeof result));
    return result;
}

void runner_kill(struct runner *runner)
{
    kill(runner->pid, SIGKILL);
    waitpid(runner->pid, NULL, 0);
    close(runner->to);
    close(runner->from);
}
