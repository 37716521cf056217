#include "fence_tools.h"

#include <ftw.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char dir[4096];
hf_fence *fence;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int fence_remove(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int fence_setup(void **state)
{
    (void)state;
    /* Beside the build, which is on a disk; /tmp may not be. */
    snprintf(dir, sizeof dir, "%s/fence-XXXXXX",
             getenv("HOLDFAST_TEST_DIR") ? getenv("HOLDFAST_TEST_DIR") : ".");
    if (!mkdtemp(dir))
        return -1;
    return hf_fence_open(dir, NULL, &fence) == HF_OK ? 0 : -1;
}

int fence_teardown(void **state)
{
    (void)state;
    hf_fence_close(fence);
    fence = NULL;
    return fence_remove(dir);
}

const char *fence_file(const char *name)
{
    static char paths[2][4200];
    static int turn;

    turn = !turn;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", dir, name);
    return paths[turn];
}

hf_fence *fence_open_with(const hf_fence_options *options)
{
    hf_fence *opened = NULL;

    if (hf_fence_open(dir, options, &opened) != HF_OK)
        fail_msg("%s", hf_error());
    return opened;
}

uint64_t mark_of(const char *key)
{
    uint64_t mark = 99;

    MUST(hf_fence_mark(fence, key, &mark));
    return mark;
}

int admit(const char *key, uint64_t token)
{
    return hf_fence_admit(fence, key, token, HF_NOT_OLDER, NULL);
}

hf_fence_entry *enter(const char *key, uint64_t token)
{
    hf_fence_entry *entry = NULL;

    MUST(hf_fence_begin(fence, key, token, HF_NOT_OLDER, 0, &entry, NULL));
    return entry;
}

bool is_held(const char *key)
{
    hf_fence_entry *entry = NULL;
    uint64_t token = mark_of(key);
    int result = hf_fence_begin(fence, key, token ? token : 1, HF_NOT_OLDER, 0, &entry, NULL);

    hf_fence_end(entry);
    assert_true(result == HF_OK || result == HF_EBUSY);
    return result == HF_EBUSY;
}

void assert_says(const char *words)
{
    if (!strstr(hf_error(), words))
        fail_msg("'%s' does not say '%s'", hf_error(), words);
}

uint64_t in_child(child_fn *fn, void *arg)
{
    uint64_t answer = 0;
    int ends[2], status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        answer = fn(arg);
        _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &answer, sizeof answer), sizeof answer);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return answer;
}

pid_t start_child(void (*fn)(void))
{
    char said = 0;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fn();
        if (write(ends[1], "!", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &said, 1), 1);
    close(ends[0]);
    return pid;
}

void kill_child(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* In a child: a process may open LMDB's files only once. */
static uint64_t read_last_transaction(void *arg)
{
    MDB_envinfo info = {0};
    MDB_env *env;

    (void)arg;
    if (mdb_env_create(&env) != 0 || mdb_env_open(env, dir, MDB_RDONLY, 0600) != 0 ||
        mdb_env_info(env, &info) != 0)
        return UINT64_MAX;
    mdb_env_close(env);
    return info.me_last_txnid;
}

uint64_t count_writes(void)
{
    uint64_t count = in_child(read_last_transaction, NULL);

    assert_true(count != UINT64_MAX);
    return count;
}

int count_keys(const char *key, uint64_t mark, void *arg)
{
    (void)key, (void)mark;
    ++*(int *)arg;
    return 0;
}
