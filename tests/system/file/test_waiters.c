/* test_waiters.c: who waits for a lock of the file store gets it soon, though others died waiting, or
 * though nobody is there to wake it. The processes are real, and killed; what they wait for is seen in the
 * lock file, and asked of the kernel. */
#include "engines/file/lockfile.h"
#include "store_directory.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/holdfast.h>

#define NAMES 3
#define STACK_BYTES 262144
#define PATIENCE_MS 60000
#define SOON_MS 5000 /* who waits looks again within two seconds; the rest is for a busy machine */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
#define DEAD_EACH 20 /* a thread costs much there */
#else
#define DEAD_EACH 250 /* per name and round */
#endif
#define DEAD_ROUNDS 4

static const char *const names[NAMES] = {"one", "two", "three"};
static struct shared {
    _Atomic int got[NAMES];
    _Atomic uint64_t token[NAMES];
} * shared;

/* ---- helpers --------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : make_directory(state);
}

static int tear_down(void **state)
{
    munmap(shared, sizeof *shared);
    return remove_directory(state);
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* A name's lock file, to look at. */
static void look_into(const char *name, struct lockfile *ret_file)
{
    char path[8192];

    lockfile_encode_name(name, ret_file->file_name);
    snprintf(path, sizeof path, "%s/locks/%s", dir, ret_file->file_name);
    ret_file->fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(ret_file->fd >= 0);
    ret_file->page = mmap(NULL, LOCKFILE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ret_file->fd, 0);
    assert_true(ret_file->page != MAP_FAILED);
}

static void look_away(struct lockfile *file)
{
    munmap(file->page, LOCKFILE_PAGE);
    close(file->fd);
}

#define AWAIT(condition)                                             \
    do {                                                             \
        int64_t end_ms_ = now_ms() + PATIENCE_MS;                    \
        while (!(condition)) {                                       \
            if (now_ms() > end_ms_)                                  \
                fail_msg("it did not come to pass: %s", #condition); \
            nap();                                                   \
        }                                                            \
    } while (0)

static hf_store *common;

struct wish {
    int name, mode, tell; /* tell: the place in `shared`, -1 */
};

/* Never gives back what it gets. */
static void *acquire_and_stay(void *context)
{
    const struct wish *wish = context;
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock;

    options.mode = wish->mode;
    if (hf_acquire(common, names[wish->name], &options, &lock) != HF_OK)
        _exit(1);
    if (wish->tell >= 0) {
        atomic_store(&shared->token[wish->tell], hf_lock_token(lock));
        atomic_store(&shared->got[wish->tell], 1);
    }
    for (;;)
        pause();
}

/* A process with a thread for each wish, `times` over. */
static pid_t send(const struct wish *wishes, int count, int times)
{
    pthread_attr_t attributes;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hf_open(url, &common) != HF_OK)
        _exit(1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (int i = 0; i < count * times; i++) {
        struct wish *wish = malloc(sizeof *wish);
        pthread_t thread;

        if (!wish)
            _exit(1);
        *wish = wishes[i % count];
        if (pthread_create(&thread, &attributes, acquire_and_stay, wish) != 0)
            _exit(1);
    }
    for (;;)
        pause();
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- waiters that die ------------------------------------------------------------------------ */

static bool all_got(void)
{
    bool all = true;

    for (int i = 0; i < NAMES; i++)
        all = all && atomic_load(&shared->got[i]);
    return all;
}

static void await_waiters(struct lockfile files[NAMES], uint32_t asked)
{
    for (int i = 0; i < NAMES; i++)
        AWAIT(atomic_load(&files[i].page->attention) >= asked);
}

/* The holder, and the waiter that watched for its death, are killed at once: nobody tells the others. */
static void the_living_do_not_oversleep_for_the_dead(void **state)
{
    struct wish told[NAMES], silent[NAMES];
    struct lockfile files[NAMES];
    pid_t holder, head, living;
    uint32_t asked = 1;
    int64_t killed_ms;

    (void)state;
    for (int i = 0; i < NAMES; i++) {
        told[i] = (struct wish){i, HF_EXCLUSIVE, i};
        silent[i] = (struct wish){i, HF_EXCLUSIVE, -1};
    }
    holder = send(told, NAMES, 1);
    AWAIT(all_got());
    for (int i = 0; i < NAMES; i++)
        look_into(names[i], &files[i]);
    head = send(silent, NAMES, 1);
    for (int i = 0; i < NAMES; i++)
        AWAIT(lockfile_locked(&files[i], RANGE_HEAD, RANGE_TOKENS, NULL));
    for (int round = 0; round < DEAD_ROUNDS; round++) {
        pid_t dying = send(silent, NAMES, DEAD_EACH);

        asked += DEAD_EACH;
        await_waiters(files, asked);
        end(dying);
    }
    memset(shared, 0, sizeof *shared);
    living = send(told, NAMES, 1);
    await_waiters(files, asked + 1);
    /* Asleep by now: it has tried after it had asked. */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    kill(head, SIGKILL);
    end(holder);
    killed_ms = now_ms();
    assert_int_equal(waitpid(head, NULL, 0), head);
    AWAIT(all_got());
    if (now_ms() - killed_ms > SOON_MS)
        fail_msg("they slept for %d ms more", (int)(now_ms() - killed_ms));
    end(living);
    for (int i = 0; i < NAMES; i++)
        look_away(&files[i]);
}

/* ---- the writer with the gate ---------------------------------------------------------------- */

static _Atomic bool crowd_looks;

/* As if thousands waited, of whom always somebody has just looked: the others leave it at that. */
static void *look_all_the_time(void *context)
{
    const struct lockfile *file = context;

    while (atomic_load(&crowd_looks)) {
        atomic_store(&file->page->looked, (uint32_t)now_ms());
        nap();
    }
    return NULL;
}

static bool watched(const struct lockfile *file, uint64_t token)
{
    return lockfile_locked(file, RANGE_HEAD + (int64_t)token, 1, NULL);
}

static pid_t send_one(int mode, int tell)
{
    return send(&(struct wish){0, mode, tell}, 1, 1);
}

/* Two readers hold it. A writer has the gate, and watches over the first; a third reader, who waits behind the
 * gate, watches over the second. When that dies too, it is the reader who hears of it and the writer whose turn
 * it is. */
static void a_head_wakes_the_writer_with_the_gate(void **state)
{
    pid_t readers[2], writer, head;
    struct lockfile file;
    pthread_t crowd;
    int64_t killed_ms;
    uint64_t first, second;

    (void)state;
    for (int i = 0; i < 2; i++) {
        readers[i] = send_one(HF_SHARED, i);
        AWAIT(atomic_load(&shared->got[i]));
    }
    look_into(names[0], &file);
    writer = send_one(HF_EXCLUSIVE, 2);
    AWAIT(lockfile_locked(&file, RANGE_HEAD, RANGE_TOKENS, NULL));
    /* It watches over either of the two. */
    if (!watched(&file, atomic_load(&shared->token[0]))) {
        pid_t other = readers[0];

        readers[0] = readers[1];
        readers[1] = other;
        first = atomic_load(&shared->token[1]);
        second = atomic_load(&shared->token[0]);
    } else {
        first = atomic_load(&shared->token[0]);
        second = atomic_load(&shared->token[1]);
    }
    assert_int_equal(kill(writer, SIGSTOP), 0);
    assert_int_equal(waitpid(writer, NULL, WUNTRACED), writer);
    end(readers[0]);
    head = send_one(HF_SHARED, -1);
    AWAIT(watched(&file, second));
    atomic_store(&crowd_looks, true);
    assert_int_equal(pthread_create(&crowd, NULL, look_all_the_time, &file), 0);
    assert_int_equal(kill(writer, SIGCONT), 0);
    AWAIT(!watched(&file, first)); /* the writer has looked, and found nobody to watch over */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* and sleeps */
    end(readers[1]);
    killed_ms = now_ms();
    while (!atomic_load(&shared->got[2]) && now_ms() - killed_ms < SOON_MS)
        nap();
    atomic_store(&crowd_looks, false);
    pthread_join(crowd, NULL);
    assert_int_equal(atomic_load(&shared->got[2]), 1);
    end(writer);
    end(head);
    look_away(&file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_living_do_not_oversleep_for_the_dead),
        TEST(a_head_wakes_the_writer_with_the_gate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
