/* test_fail_once.c: the client, over a store for tests and over a holdfastd, with each of its allocations and system calls failing once.
 * The server is another process, in which nothing fails. What may have taken effect may be told as unknown; what is told as not held is
 * not held. A client.conf that asks for strict stores is heeded, whatever fails while it is read. */
#include "servers.h"
#include "walk.h"

#include <holdfast/once.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESULT "what came out"
#define PATIENCE_MS 20000
#define TTL_MS 60000

struct life {
    char url[300]; /* of a fresh store each time, where that is a file */
    hf_store *store, *witness;
    uint64_t last;   /* token that was seen */
    unsigned number; /* of this run: it has names of its own */
    bool unknown;    /* something was not known */
};

static struct life life;
static struct holdfastd server;
static char dir[128], url_of_test[256], url_of_server[64];

/* Memory, threads or descriptors are used up; the store cannot be reached, or did not answer. */
static const int usual[] = {HF_ENOMEM, HF_EIO, HF_EUNREACH, HF_EUNKNOWN, HF_OK};

static bool is_told(const char *step, int expected, int result)
{
    life.unknown = life.unknown || result == HF_EUNKNOWN;
    walk_must(result != HF_ENOMEM || !strstr(hf_error(), "is no holdfastd"));
    return told(step, expected, result, usual);
}

/* ---- what a witness sees ----------------------------------------------------------------------- */

static void note_token(uint64_t token)
{
    walk_must(token > life.last);
    life.last = token;
}

static hf_store *witness(void)
{
    if (!life.witness && hf_open(life.url, &life.witness) != HF_OK)
        walk_fail("a witness cannot open it: %s", hf_error());
    return life.witness;
}

static const char *named(const char *name)
{
    static char room[8][64];
    static unsigned next;
    char *one = room[next++ % 8];

    snprintf(one, sizeof room[0], "%s-%u", name, life.number);
    return one;
}

static void must_be(const char *name, int expected)
{
    hf_lock *lock;
    int result;

    failing_pause();
    if (life.unknown && expected == HF_OK)
        hf_break(witness(), name, 0, NULL); /* it may be held; for as long as its TTL */
    result = hf_try(witness(), name, NULL, &lock);
    if (result != expected)
        walk_fail("'%s': %s instead of %s: %s", name, hf_result_name(result),
                  hf_result_name(expected), hf_error());
    if (result == HF_OK) {
        note_token(hf_lock_token(lock));
        walk_must(hf_release(lock) == HF_OK);
    }
    failing_resume();
}

/* ---- steps -------------------------------------------------------------------------------------- */

static hf_options options_of(int64_t wait_ms)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = TTL_MS;
    options.wait_ms = wait_ms;
    return options;
}

static void ignore_loss(hf_lock *lock, void *arg)
{
    (void)lock;
    (void)arg;
}

static hf_lock *take(const char *name, int mode)
{
    hf_options options = options_of(0);
    hf_lock *lock = NULL;

    options.mode = mode;
    options.permits = mode == HF_PERMIT ? 2 : 0;
    options.on_lost = ignore_loss;
    options.max_hold_ms = TTL_MS;
    if (!is_told(name, HF_OK, hf_acquire(life.store, name, &options, &lock))) {
        walk_must(!lock);
        return NULL;
    }
    note_token(hf_lock_token(lock));
    return lock;
}

static void give(const char *name, hf_lock *lock)
{
    if (lock && !is_told(name, HF_OK, hf_release(lock)))
        life.unknown = true; /* a server that could not be told holds it until the TTL is over */
}

static void exclusive(void)
{
    const char *name = named("a");
    hf_lock *lock = take(name, HF_EXCLUSIVE), *other = NULL;
    hf_options options = options_of(3);
    char sequencer[HF_SEQUENCER_MAX];
    int fd;

    if (!lock) {
        must_be(name, HF_OK);
        return;
    }
    must_be(name, HF_EBUSY);
    fd = hf_lock_lost_fd(lock);
    is_told("lost_fd", HF_OK, fd < 0 ? fd : HF_OK);
    is_told("check", HF_OK, hf_check(life.store, name, hf_lock_token(lock)));
    is_told("renew", HF_OK, hf_renew(lock));
    if (is_told("sequencer", HF_OK, hf_lock_sequencer(lock, sequencer, sizeof sequencer)))
        is_told("check of it", HF_OK, hf_check_sequencer(life.store, sequencer));
    is_told("timed wait", HF_EBUSY, hf_acquire(life.store, name, &options, &other));
    walk_must(!other);
    walk_must(hf_lock_left_ms(lock) > 0);
    give("release", lock);
    must_be(name, HF_OK);
}

static void shared_and_permits(void)
{
    for (int mode = HF_SHARED; mode <= HF_PERMIT; mode++) {
        const char *name = named(mode == HF_SHARED ? "s" : "p");
        hf_lock *locks[2];

        for (size_t i = 0; i < 2; i++)
            locks[i] = take(name, mode);
        for (size_t i = 0; i < 2; i++)
            give("release of one of several", locks[i]);
        must_be(name, HF_OK);
    }
}

static size_t holders(const hf_report *report, const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < hf_report_count(report); i++)
        count += hf_report_entry(report, i)->kind == HF_ENTRY_HOLDER &&
                 strcmp(hf_report_entry(report, i)->name, name) == 0;
    return count;
}

static void looking(void)
{
    const char *name = named("seen");
    hf_lock *lock = take(name, HF_EXCLUSIVE);
    hf_list_options options = HF_LIST_OPTIONS_INIT;
    hf_report *report;
    uint64_t at;

    options.match = name;
    if (lock && is_told("show", HF_OK, hf_show(life.store, name, &report))) {
        walk_must(holders(report, name) == 1);
        walk_must(hf_report_entry(report, 0)->token == hf_lock_token(lock));
        hf_report_free(report);
    }
    if (lock && is_told("list", HF_OK, hf_list(life.store, &options, &report))) {
        walk_must(holders(report, name) == 1);
        hf_report_free(report);
    }
    if (is_told("floor", HF_OK, hf_floor_at(life.store, life.last + 10, &at, NULL)))
        walk_must(at >= life.last + 10);
    give("release of what was seen", lock);
    if (is_told("break", HF_OK, hf_break(life.store, name, 0, NULL)))
        must_be(name, HF_OK);
}

/* ---- once-records ------------------------------------------------------------------------------ */

static bool is_result(const hf_once *once)
{
    size_t size = 0;
    const void *bytes = hf_once_result(once, &size);

    return bytes && size == sizeof RESULT && memcmp(bytes, RESULT, size) == 0;
}

static void once_records(void)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    const char *key = named("k");
    hf_once *once = NULL, *seen;

    options.wait_ms = 0;
    options.ttl_ms = TTL_MS;
    if (!is_told("begin", HF_OK, hf_once_begin(life.store, key, &options, &once)))
        return;
    walk_must(hf_once_runs(once));
    if (is_told("read", HF_OK, hf_once_read(life.store, key, &seen))) {
        walk_must(hf_once_state(seen) == HF_ONCE_RUNNING);
        hf_once_free(seen);
    }
    if (!is_told("finish", HF_OK, hf_once_finish(once, RESULT, sizeof RESULT, HF_ONCE_KEEP_MS)))
        return;
    if (is_told("begin of what is done", HF_OK, hf_once_begin(life.store, key, &options, &once))) {
        walk_must(!hf_once_runs(once) && is_result(once));
        hf_once_free(once);
    }
}

/* ---- what is started --------------------------------------------------------------------------- */

struct grant {
    unsigned times;
    hf_lock *lock;
};

static void note_done(hf_op *op, int result, void *arg)
{
    struct grant *grant = arg;

    life.unknown = life.unknown || result == HF_EUNKNOWN;
    told_words("a started operation", HF_OK, result, hf_op_error(op), usual);
    grant->lock = hf_op_take_lock(op);
    grant->times++;
}

static void count_change(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    ++*(unsigned *)arg;
}

static void await(int fd, const unsigned *times)
{
    for (int i = 0; i < PATIENCE_MS / 100 && *times == 0; i++) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        failing_pause();
        poll(&ready, 1, 100);
        failing_resume();
        hf_dispatch(life.store);
    }
    if (*times == 0)
        walk_fail("a callback never came");
}

static void started(void)
{
    const char *name = named("q");
    hf_lock *held = take(name, HF_EXCLUSIVE);
    hf_options options = options_of(HF_FOREVER);
    hf_observer *observer = NULL;
    struct grant grant = {0};
    unsigned changes = 0;
    int fd = hf_fd(life.store);

    if (is_told("fd", HF_OK, fd < 0 ? fd : HF_OK)) {
        if (is_told("observe", HF_OK,
                    hf_observe(life.store, name, count_change, &changes, &observer)))
            await(fd, &changes); /* how it is now */
        if (is_told("start", HF_OK,
                    hf_acquire_start(life.store, name, &options, note_done, &grant, NULL))) {
            give("release for the next", held);
            held = NULL;
            if (!life.unknown) /* else the lock may still be held */
                await(fd, &grant.times);
        }
        if (grant.lock)
            note_token(hf_lock_token(grant.lock));
        give("release of what was started", grant.lock);
        hf_observer_stop(observer);
    }
    give("release", held);
}

/* ---- walks -------------------------------------------------------------------------------------- */

static void (*const steps[])(void) = {exclusive, shared_and_permits, looking, once_records, started,
                                      NULL};

static void run(void *context)
{
    (void)context;
    if (is_told("open", HF_OK, hf_open(life.url, &life.store))) {
        for (size_t i = 0; steps[i]; i++)
            steps[i]();
        hf_close(life.store);
    }
    failing_pause();
    hf_close(life.witness);
    life.witness = NULL;
    failing_resume();
}

static void prepare(void *context)
{
    const char *url = context;

    life.number++;
    life.unknown = false;
    if (url == url_of_test)
        snprintf(life.url, sizeof life.url, "%s-%u", url, life.number);
    else
        snprintf(life.url, sizeof life.url, "%s", url);
    life.last = url == url_of_test ? 0 : life.last;
}

/* The same again, with other names. */
static void judge(void *context)
{
    life.number++;
    life.unknown = false;
    run(context);
}

static void walk_store(const char *name, const char *url, enum failing_whose whose)
{
    struct walk walk = {.name = name,
                        .what = FAILING_ALLOCATIONS,
                        .whose = whose,
                        .context = (void *)(uintptr_t)url,
                        .prepare = prepare,
                        .run = run,
                        .judge = judge};

    life.last = 0;
    walk_all(&walk);
    walk.what = FAILING_CALLS;
    walk_all(&walk);
}

static void over_a_store_for_tests(void **state)
{
    (void)state;
    walk_store("client, test engine", url_of_test, FAILING_OURS);
}

static void over_a_store_for_tests_elsewhere(void **state)
{
    (void)state;
    walk_store("client, test engine", url_of_test, FAILING_OTHERS);
}

static void over_holdfastd(void **state)
{
    (void)state;
    walk_store("client, holdfastd", url_of_server, FAILING_OURS);
}

static void over_holdfastd_elsewhere(void **state)
{
    (void)state;
    walk_store("client, holdfastd", url_of_server, FAILING_OTHERS);
}

/* ---- client.conf --------------------------------------------------------------------------------- */

/* What it asks for counts: a store that is not strict is refused, or there is an error. Never is there a lock. */
static void ask_for_strict(void *context)
{
    static const int refusals[] = {HF_ENOMEM, HF_EIO, HF_OK};
    hf_options options = HF_OPTIONS_INIT;
    hf_store *store;
    hf_lock *lock;

    if (!told("open", HF_OK, hf_open(context, &store), refusals))
        return;
    options.wait_ms = 0;
    options.need_strict = 0;
    told("try of a store that is not strict", HF_EWEAK, hf_try(store, "a", &options, &lock),
         refusals);
    hf_close(store);
}

static void a_client_conf(void **state)
{
    char url[256], path[192];
    struct walk walk = {.name = "client.conf",
                        .what = FAILING_ALLOCATIONS,
                        .whose = FAILING_OURS,
                        .context = url,
                        .run = ask_for_strict,
                        .judge = ask_for_strict};
    FILE *file;

    (void)state;
    snprintf(url, sizeof url, "testweak:%s/weak", dir);
    snprintf(path, sizeof path, "%s/client.conf", dir);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "need = strict\n");
    assert_int_equal(fclose(file), 0);
    setenv("HOLDFAST_CLIENT_CONF", path, 1);
    walk_all(&walk);
    walk.what = FAILING_CALLS;
    walk_all(&walk);
    unsetenv("HOLDFAST_CLIENT_CONF");
}

/* Without HOME, the user's file is where the user database says: if that does not say, the store is not chosen without it. */
static void open_without_home(void *context)
{
    static const int refusals[] = {HF_ENOMEM, HF_EIO, HF_OK};
    int result = hf_open(context, &life.store);

    if (result == HF_OK && strcmp(failing_name(), "getpwuid_r") == 0)
        walk_fail("a client.conf was passed over");
    if (told("open", HF_OK, result, refusals))
        hf_close(life.store);
}

static void without_home(void **state)
{
    struct walk walk = {.name = "client.conf without HOME",
                        .what = FAILING_CALLS,
                        .whose = FAILING_OURS,
                        .context = url_of_test,
                        .run = open_without_home};
    char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
    char kept_home[512], kept_config[512];

    (void)state;
    snprintf(kept_home, sizeof kept_home, "%s", home ? home : "");
    snprintf(kept_config, sizeof kept_config, "%s", config ? config : "");
    unsetenv("HOME");
    unsetenv("XDG_CONFIG_HOME");
    walk_all(&walk);
    if (home)
        setenv("HOME", kept_home, 1);
    if (config)
        setenv("XDG_CONFIG_HOME", kept_config, 1);
}

static int set_up(void **state)
{
    const char *where = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    snprintf(dir, sizeof dir, "%.90s/fail-once-XXXXXX", where ? where : "/tmp");
    if (!mkdtemp(dir) || holdfastd_start(&server, NULL) != 0)
        return -1;
    snprintf(url_of_test, sizeof url_of_test, "test:%s/store", dir);
    snprintf(url_of_server, sizeof url_of_server, "holdfast://127.0.0.1:%d", server.port);
    return 0;
}

static int tear_down(void **state)
{
    char command[256];

    (void)state;
    holdfastd_stop(&server);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_conf),
        cmocka_unit_test(without_home),
        cmocka_unit_test(over_a_store_for_tests),
        cmocka_unit_test(over_a_store_for_tests_elsewhere),
        cmocka_unit_test(over_holdfastd),
        cmocka_unit_test(over_holdfastd_elsewhere),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
