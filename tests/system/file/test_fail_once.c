/* test_fail_once.c: the store in files through the public API, with each of its allocations and system calls failing once. The calls
 * of one thread are exactly repeated; those of the library's own threads come as they come. */
#include "store_directory.h"
#include "walk.h"

#include <dirent.h>
#include <holdfast/once.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESULT "what came out"
#define PATIENCE_MS 20000

struct life {
    hf_store *witness; /* another handle, whose calls never fail */
    hf_store *store;
    uint64_t last; /* token that was seen */
    mode_t mode;   /* that what is made in the directory must have */
    unsigned number;
    char where[4300];
    char url[4400];
};

static struct life life;

/* Everything but the file that would be read: the disk fails, or memory, threads or descriptors are used up. */
static const int usual[] = {HF_ENOMEM, HF_EIO, HF_OK};
/* And: the result may be there. */
static const int finishing[] = {HF_ENOMEM, HF_EIO, HF_EUNKNOWN, HF_OK};

/* ---- what a witness sees ---------------------------------------------------------------------- */

static void note_token(uint64_t token)
{
    walk_must(token > life.last);
    life.last = token;
}

/* Opened when it is needed first: before that the directory is as new. */
static hf_store *witness(void)
{
    if (!life.witness && hf_open(life.url, &life.witness) != HF_OK)
        walk_fail("a witness cannot open it: %s", hf_error());
    return life.witness;
}

/* The name can be had: nobody holds it. */
static void must_be_free(const char *name)
{
    hf_lock *lock;
    int result;

    failing_pause();
    result = hf_try(witness(), name, NULL, &lock);
    if (result != HF_OK)
        walk_fail("'%s' is not free: %s", name, hf_error());
    note_token(hf_lock_token(lock));
    walk_must(hf_release(lock) == HF_OK);
    failing_resume();
}

static void must_be_held(const char *name)
{
    hf_lock *lock;
    int result;

    failing_pause();
    result = hf_try(witness(), name, NULL, &lock);
    if (result != HF_EBUSY)
        walk_fail("'%s' is held, and was given to another: %s", name, hf_result_name(result));
    failing_resume();
}

/* ---- steps ------------------------------------------------------------------------------------ */

static hf_lock *take(const char *name, int mode, uint32_t permits)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock = NULL;

    options.mode = mode;
    options.permits = permits;
    options.wait_ms = 0;
    if (!told(name, HF_OK, hf_acquire(life.store, name, &options, &lock), usual)) {
        walk_must(!lock);
        return NULL;
    }
    note_token(hf_lock_token(lock));
    return lock;
}

/* It is over whatever the answer was. */
static void give(const char *name, hf_lock *lock)
{
    if (lock)
        told(name, HF_OK, hf_release(lock), usual);
}

static void exclusive(void)
{
    hf_lock *lock = take("a", HF_EXCLUSIVE, 0), *other = NULL;
    hf_options options = HF_OPTIONS_INIT;

    if (!lock) {
        must_be_free("a");
        return;
    }
    must_be_held("a");
    told("check", HF_OK, hf_check(life.store, "a", hf_lock_token(lock)), usual);
    told("check of another", HF_ELOST, hf_check(life.store, "a", hf_lock_token(lock) + 1), usual);
    told("renew", HF_OK, hf_renew(lock), usual);
    walk_must(hf_lock_left_ms(lock) > 0);
    walk_must(hf_lock_lost_fd(lock) >= 0 || failing_struck());
    options.wait_ms = 2;
    told("timed wait", HF_EBUSY, hf_acquire(life.store, "a", &options, &other), usual);
    walk_must(!other);
    give("release", lock);
    must_be_free("a");
}

static void shared_and_permits(void)
{
    hf_lock *locks[2], *third = NULL;
    hf_options options = HF_OPTIONS_INIT;

    for (size_t i = 0; i < 2; i++)
        locks[i] = take("s", HF_SHARED, 0);
    if (locks[0] || locks[1])
        must_be_held("s");
    for (size_t i = 0; i < 2; i++)
        give("release of a reader", locks[i]);
    must_be_free("s");
    for (size_t i = 0; i < 2; i++)
        locks[i] = take("p", HF_PERMIT, 2);
    options.mode = HF_PERMIT;
    options.permits = 2;
    if (locks[0] && locks[1])
        told("one permit too many", HF_EBUSY, hf_try(life.store, "p", &options, &third), usual);
    walk_must(!third);
    for (size_t i = 0; i < 2; i++)
        give("release of a permit", locks[i]);
    must_be_free("p");
}

static size_t count_of(const hf_report *report, const char *name, int kind)
{
    size_t count = 0;

    for (size_t i = 0; i < hf_report_count(report); i++)
        count += hf_report_entry(report, i)->kind == kind &&
                 strcmp(hf_report_entry(report, i)->name, name) == 0;
    return count;
}

static void looking(void)
{
    hf_lock *lock = take("seen", HF_SHARED, 0);
    hf_list_options all = HF_LIST_OPTIONS_INIT;
    hf_report *report;

    all.all = 1;
    if (told("show", HF_OK, hf_show(life.store, "seen", &report), usual)) {
        walk_must(count_of(report, "seen", HF_ENTRY_HOLDER) == (lock ? 1 : 0));
        if (lock)
            walk_must(hf_report_entry(report, 0)->token == hf_lock_token(lock));
        hf_report_free(report);
    }
    if (told("list", HF_OK, hf_list(life.store, NULL, &report), usual)) {
        walk_must(count_of(report, "seen", HF_ENTRY_HOLDER) == (lock ? 1 : 0));
        hf_report_free(report);
    }
    if (lock)
        must_be_held("seen");
    give("release of what was seen", lock);
    must_be_free("seen");
    if (told("list of all", HF_OK, hf_list(life.store, &all, &report), usual)) {
        walk_must(count_of(report, "seen", HF_ENTRY_FREE) == 1);
        hf_report_free(report);
    }
}

static void breaking(void)
{
    hf_lock *lock = take("b", HF_EXCLUSIVE, 0);
    hf_report *report;
    uint32_t broken = 0;

    if (!lock)
        return;
    if (told("break", HF_OK, hf_break(life.store, "b", 1, &broken), usual)) {
        walk_must(broken == 1);
        must_be_free("b"); /* the grace is over */
        told("release of what is broken", HF_ELOST, hf_release(lock), usual);
    } else {
        failing_pause();
        hf_release(lock); /* it may be broken or not */
        hf_break(witness(), "b", 0, NULL);
        failing_resume();
    }
    must_be_free("b");
    if (told("show of what was broken", HF_OK, hf_show(life.store, "b", &report), usual)) {
        walk_must(hf_report_count(report) == 0);
        hf_report_free(report);
    }
}

static bool is_withheld(const char *name)
{
    hf_report *report;
    bool withheld;

    walk_must(hf_show(witness(), name, &report) == HF_OK);
    withheld = count_of(report, name, HF_ENTRY_WITHHELD) == 1;
    hf_report_free(report);
    return withheld;
}

static void note_broken(hf_op *op, int result, void *arg)
{
    (void)op;
    atomic_store((_Atomic int *)arg, result == HF_OK ? 1 : -1);
}

/* Broken by the witness, while somebody holds it who does not let go: nobody gets it, whatever fails. */
static void withheld(void)
{
    hf_lock *lock = take("w", HF_EXCLUSIVE, 0), *other = NULL;
    _Atomic int broken = 0;

    if (!lock)
        return;
    failing_pause();
    walk_must(hf_break_start(witness(), "w", 600000, note_broken, &broken, NULL) == HF_OK);
    for (int i = 0; i < PATIENCE_MS && !is_withheld("w"); i++)
        usleep(1000);
    failing_resume();
    told("try of what is withheld", HF_EBUSY, hf_try(life.store, "w", NULL, &other), usual);
    walk_must(!other);
    told("release of what another broke", HF_ELOST, hf_release(lock), usual);
    failing_pause();
    for (int i = 0; i < PATIENCE_MS && broken == 0; i++)
        usleep(1000);
    walk_must(broken == 1);
    failing_resume();
    must_be_free("w");
}

static void floors(void)
{
    uint64_t floor = life.last + 1000, at = 0;
    hf_lock *lock;

    if (told("floor", HF_OK, hf_floor_at(life.store, floor, &at, NULL), usual)) {
        walk_must(at >= floor);
        life.last = floor;
    }
    lock = take("f", HF_EXCLUSIVE, 0);
    give("release", lock);
}

/* ---- once-records ----------------------------------------------------------------------------- */

static int state_of(const char *key)
{
    hf_once *once;
    int state;

    failing_pause();
    walk_must(hf_once_read(witness(), key, &once) == HF_OK);
    state = hf_once_state(once);
    hf_once_free(once);
    failing_resume();
    return state;
}

static bool is_result(const hf_once *once)
{
    size_t size = 0;
    const void *bytes = hf_once_result(once, &size);

    return bytes && size == sizeof RESULT && memcmp(bytes, RESULT, size) == 0;
}

static void read_done(const char *key)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    hf_once *once;

    if (told("read of a result", HF_OK, hf_once_read(life.store, key, &once), usual)) {
        walk_must(hf_once_state(once) == HF_ONCE_DONE && is_result(once));
        hf_once_free(once);
    }
    options.wait_ms = 0;
    if (told("begin of what is done", HF_OK, hf_once_begin(life.store, key, &options, &once),
             usual)) {
        walk_must(!hf_once_runs(once) && is_result(once));
        hf_once_free(once);
    }
}

static hf_once *begin(const char *key)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    hf_once *once = NULL;

    options.wait_ms = 0;
    options.fail_if_died = 1;
    if (!told("begin", HF_OK, hf_once_begin(life.store, key, &options, &once), usual)) {
        walk_must(!once);
        walk_must(state_of(key) == HF_ONCE_NOTHING); /* nobody has run it */
        return NULL;
    }
    walk_must(hf_once_runs(once));
    note_token(hf_once_token(once));
    walk_must(state_of(key) == HF_ONCE_RUNNING);
    return once;
}

static void once_records(void)
{
    char key[32], other[32], third[32];
    hf_once *once, *seen;
    int result;

    snprintf(key, sizeof key, "k%u", life.number);
    snprintf(other, sizeof other, "o%u", life.number);
    snprintf(third, sizeof third, "t%u", life.number);
    once = begin(key);
    if (once && told("read of what runs", HF_OK, hf_once_read(life.store, key, &seen), usual)) {
        walk_must(hf_once_state(seen) == HF_ONCE_RUNNING);
        hf_once_free(seen);
    }
    if (once) {
        result = hf_once_finish(once, RESULT, sizeof RESULT, HF_ONCE_KEEP_MS);
        if (told("finish", HF_OK, result, finishing))
            read_done(key);
        else
            walk_must(state_of(key) == (result == HF_EUNKNOWN ? HF_ONCE_DONE : HF_ONCE_DIED));
    }
    once = begin(other);
    if (once) {
        result = hf_once_release(once);
        if (told("release of a key", HF_OK, result, usual))
            walk_must(state_of(other) == HF_ONCE_NOTHING);
    }
    once = begin(third);
    if (once) {
        hf_once_options options = HF_ONCE_OPTIONS_INIT;

        hf_once_abandon(once);
        options.wait_ms = 0;
        options.fail_if_died = 1;
        told("begin of what died", HF_ELOST, hf_once_begin(life.store, third, &options, &once),
             usual);
        if (told("read of what died", HF_OK, hf_once_read(life.store, third, &seen), usual)) {
            walk_must(hf_once_state(seen) == HF_ONCE_DIED);
            hf_once_free(seen);
        }
    }
}

/* ---- what other threads do --------------------------------------------------------------------- */

struct grant {
    unsigned times;
    hf_lock *lock;
};

static void note_done(hf_op *op, int result, void *arg)
{
    struct grant *grant = arg;

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

/* Callbacks run in hf_dispatch, on our thread; what they tell of is done by others. */
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
    hf_lock *held = take("q", HF_EXCLUSIVE, 0);
    struct grant grant = {0};
    hf_observer *observer = NULL;
    unsigned changes = 0;
    int fd = hf_fd(life.store);

    if (!told("fd", HF_OK, fd < 0 ? fd : HF_OK, usual)) {
        give("release", held);
        return;
    }
    if (told("observe", HF_OK, hf_observe(life.store, "q", count_change, &changes, &observer),
             usual))
        await(fd, &changes); /* how it is now */
    if (told("start", HF_OK, hf_acquire_start(life.store, "q", NULL, note_done, &grant, NULL),
             usual)) {
        give("release for the next", held);
        held = NULL;
        await(fd, &grant.times);
        if (grant.lock)
            note_token(hf_lock_token(grant.lock));
        give("release of what was started", grant.lock);
    }
    give("release", held);
    hf_observer_stop(observer);
    must_be_free("q");
}

/* ---- the walks --------------------------------------------------------------------------------- */

static void remove_where(void)
{
    char command[9000];

    snprintf(command, sizeof command, "rm -rf '%s'", life.where);
    walk_must(system(command) == 0);
}

static void run(void *context)
{
    void (*const *steps)(void) = context;

    if (!told("open", HF_OK, hf_open(life.url, &life.store), usual))
        return;
    for (; *steps; steps++)
        (*steps)();
    hf_close(life.store);
    failing_pause();
    hf_close(life.witness);
    life.witness = NULL;
    failing_resume();
}

/* Nothing of ours is left in the directory, but what could not be removed: which we do, for the runs to come. */
static void judge_files(const char *folder)
{
    bool excused = strcmp(failing_name(), "unlinkat") == 0;
    char path[4400], left[4800];
    struct dirent *entry;
    DIR *names;

    snprintf(path, sizeof path, "%s/%s", life.where, folder);
    names = opendir(path);
    while (names && (entry = readdir(names))) {
        if (strncmp(entry->d_name, ".new-", 5) != 0 && strncmp(entry->d_name, ".old-", 5) != 0 &&
            !strstr(entry->d_name, "~new"))
            continue;
        snprintf(left, sizeof left, "%s/%s", path, entry->d_name);
        if (!excused)
            walk_fail("%s is left", left);
        walk_must(unlink(left) == 0);
    }
    if (names)
        closedir(names);
}

static void judge(void *context)
{
    char path[4400];
    struct stat info;

    judge_files("");
    judge_files("locks");
    judge_files("once");
    life.number++;
    run(context); /* the same without a failure, in the same directory */
    snprintf(path, sizeof path, "%s/locks", life.where);
    walk_must(stat(path, &info) == 0 && (info.st_mode & 0777) == life.mode);
}

/* A directory that is to be made: what is made once is made in each. */
static void prepare_fresh(void *context)
{
    (void)context;
    life.last = 0;
    life.mode = 0700;
    remove_where();
}

/* A directory that was made for a group: so must be what is made in it. */
static void prepare_shared(void *context)
{
    prepare_fresh(context);
    life.mode = 0750;
    walk_must(mkdir(life.where, life.mode) == 0);
}

/* One that is in use. */
static void prepare_used(void *context)
{
    (void)context;
    life.number++;
}

static void walk_steps(const char *name, void (*const *steps)(void), void (*prepare)(void *),
                       enum failing_whose whose)
{
    struct walk walk = {.name = name,
                        .what = FAILING_ALLOCATIONS,
                        .whose = whose,
                        .context = (void *)(uintptr_t)steps,
                        .prepare = prepare,
                        .run = run,
                        .judge = judge};

    life = (struct life){.last = 0};
    snprintf(life.where, sizeof life.where, "%s/store", dir);
    snprintf(life.url, sizeof life.url, "file:%s", life.where);
    prepare_fresh(NULL);
    walk_all(&walk);
    walk.what = FAILING_CALLS;
    walk_all(&walk);
}

/* At the end what takes another number of calls each time: the others are all met. */
static void (*const all_steps[])(void) = {exclusive, shared_and_permits, looking,  withheld,
                                          floors,    once_records,       breaking, NULL};
static void (*const first_steps[])(void) = {exclusive, once_records, NULL};
static void (*const group_steps[])(void) = {exclusive, NULL};
static void (*const thread_steps[])(void) = {started, NULL};

static void a_new_store(void **state)
{
    (void)state;
    walk_steps("file, a new store", first_steps, prepare_fresh, FAILING_OURS);
}

static void a_new_store_for_a_group(void **state)
{
    (void)state;
    walk_steps("file, a new store for a group", group_steps, prepare_shared, FAILING_OURS);
}

static void a_store_in_use(void **state)
{
    (void)state;
    walk_steps("file", all_steps, prepare_used, FAILING_OURS);
}

static void what_is_started(void **state)
{
    (void)state;
    walk_steps("file, started", thread_steps, prepare_used, FAILING_OURS);
}

static void what_other_threads_do(void **state)
{
    (void)state;
    walk_steps("file, started", thread_steps, prepare_used, FAILING_OTHERS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_store),     TEST(a_new_store_for_a_group), TEST(a_store_in_use),
        TEST(what_is_started), TEST(what_other_threads_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
