/* break.c: taking a lock from a holder that does not let go.
 *
 * A new file is put in the place of the old one. The holder's lock is on the old file, which nobody
 * looks at any more; its watchdog hears of the replacement and tells it that the lock is lost. The
 * new file comes locked by us, so the name is withheld until the old holder has let go, or until
 * the grace has passed. If we die before, or the store is closed, the file itself says so (withhold.h). */
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/futex.h"
#include "engines/file/forks.h"
#include "engines/file/withhold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BREAK_LOOK_MS 10 /* a holder that is killed rings no bell */
#define BREAK_TURN_MS \
    5000 /* to wait for another who breaks: he needs a moment, unless he is stopped */

static bool count_one(void *context, int64_t at)
{
    (void)at;
    ++*(uint32_t *)context;
    return true;
}

static int count_holds(const struct engine_store *store, const struct lockfile *file,
                       uint32_t *ret_count, struct error_text *err)
{
    int failure;

    *ret_count = 0;
    failure = lockfile_each_lock(file, RANGE_TOKEN, RANGE_TOKENS, LOCKFILE_SLOTS_MAX, count_one,
                                 ret_count);
    if (failure && failure != EOVERFLOW)
        return directory_failure(&store->directory, failure, "tell who holds the name", err);
    return HF_OK;
}

static int cannot_break_now(struct engine_store *store, struct error_text *err)
{
    if (store->host.closing && store->host.closing(store->host.context))
        return error_set(err, HF_ECANCELED, "the store is being closed");
    return error_set(err, HF_EUNREACH,
                     "another process is in the middle of breaking a lock of this directory, and "
                     "does not go on: is it stopped?");
}

/* One at a time in this directory, so that nobody replaces a file he has not looked at. The lock is
 * freed by closing the descriptor. Who has it may be stopped, so nobody waits for it in the kernel. */
static int lock_breaking(struct engine_store *store, int *ret_fd, struct error_text *err)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    int64_t end_ms = clock_after(clock_boot_ms(), BREAK_TURN_MS);
    int fd = forks_open(store->directory.fd, FILE_STATE_NAME, O_RDWR);

    if (fd < 0)
        return directory_failure(&store->directory, errno, "open the token file", err);
    while (fcntl(fd, F_OFD_SETLK, &range) < 0) {
        int failure = errno;
        bool taken = failure == EAGAIN || failure == EACCES;

        if (taken && clock_boot_ms() < end_ms &&
            !(store->host.closing && store->host.closing(store->host.context))) {
            nanosleep(&(struct timespec){.tv_nsec = BREAK_LOOK_MS * 1000000}, NULL);
            continue;
        }
        forks_close(fd);
        return taken ? cannot_break_now(store, err)
                     : directory_failure(&store->directory, failure, "lock the token file", err);
    }
    *ret_fd = fd;
    return HF_OK;
}

/* The mark is set first. Whoever has locked its TOKEN before seeing no mark is seen by us
 * afterwards, in wait_for_holders; whoever sees the mark looks whether the file is still in its
 * place. If we die in between, it is, and the mark does no harm. */
static int replace_file(struct engine_store *store, const char *name, int64_t grace_ms,
                        const struct lockfile *old, struct lockfile *ret_file,
                        struct error_text *err)
{
    char temp[DIRECTORY_TEMP_MAX];
    int failure, result = lockfile_create(&store->directory, name, temp, ret_file, err);

    if (result != HF_OK)
        return result;
    failure = lockfile_lock(ret_file, F_WRLCK, RANGE_GATE, 2);
    if (failure == 0)
        failure = withhold_begin(store, old, ret_file, grace_ms);
    atomic_store(&old->page->replaced, 1);
    if (failure == 0 && renameat(store->directory.locks_fd, temp, store->directory.locks_fd,
                                 ret_file->file_name) < 0)
        failure = errno;
    if (failure) {
        withhold_end(store, ret_file);
        unlinkat(store->directory.locks_fd, temp, 0);
        lockfile_close(ret_file);
        return directory_failure(&store->directory, failure, "replace a lock file", err);
    }
    return HF_OK;
}

/* True: they have let go, or the grace has passed. False: the store is being closed. */
static bool wait_for_holders(const struct engine_store *store, const struct lockfile *old,
                             int64_t grace_ms)
{
    int64_t end_ms = clock_after(clock_boot_ms(), grace_ms);

    while (lockfile_find_lock(old, RANGE_TOKEN, RANGE_TOKENS, NULL) != 0) { /* or cannot tell */
        int64_t now_ms = clock_boot_ms(), next_ms = now_ms + BREAK_LOOK_MS;

        if (now_ms >= end_ms)
            return true;
        if (store->host.closing && store->host.closing(store->host.context))
            return false;
        futex_wait(&old->page->bell, atomic_load(&old->page->bell), FUTEX_MASK_ALL,
                   next_ms < end_ms ? next_ms : end_ms);
    }
    return true;
}

/* The part under lock_breaking. Leaves *ret_broken 0 and both files closed if nobody holds it. */
static int replace_if_held(struct engine_store *store, const char *name, int64_t grace_ms,
                           struct lockfile *ret_old, struct lockfile *ret_fresh,
                           uint32_t *ret_broken, struct error_text *err)
{
    int failure = 0, result;

    lockfile_encode_name(name, ret_old->file_name);
    *ret_broken = 0;
    if (faccessat(store->directory.locks_fd, ret_old->file_name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno == ENOENT)
        return HF_OK;
    result = lockfile_open(&store->directory, name, ret_old, err);
    if (result != HF_OK)
        return result;
    result = count_holds(store, ret_old, ret_broken, err);
    if (result == HF_OK && *ret_broken > 0)
        result = replace_file(store, name, grace_ms, ret_old, ret_fresh, err);
    else if (result == HF_OK)
        failure = withhold_shorten(store, ret_old, grace_ms);
    if (failure)
        result = directory_failure(&store->directory, failure, "write a lock file", err);
    if (*ret_broken == 0 || result != HF_OK)
        lockfile_close(ret_old);
    return result;
}

int file_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
               struct error_text *err)
{
    struct lockfile old, fresh;
    bool waited;
    uint32_t broken;
    int fd = -1, result = file_open_tokens(store, true, err);

    if (result == HF_OK)
        result = file_open_clock(store, err); /* first: nothing is broken that cannot be withheld */
    if (result == HF_OK)
        result = lock_breaking(store, &fd, err);
    if (result != HF_OK)
        return result;
    result = replace_if_held(store, name, grace_ms, &old, &fresh, &broken, err);
    forks_close(fd);
    if (result != HF_OK)
        return result;
    *ret_broken = broken;
    if (broken == 0)
        return HF_OK;
    waiting_ring_all(&old); /* those who wait move to the new file */
    waited = wait_for_holders(store, &old, grace_ms);
    if (waited)
        withhold_end(store, &fresh);
    lockfile_close(&old);
    lockfile_close(&fresh);
    if (lockfile_open(&store->directory, name, &fresh, NULL) == HF_OK) {
        waiting_ring_all(&fresh);
        lockfile_close(&fresh);
    }
    if (!waited)
        return error_set(err, HF_ECANCELED,
                         "'%.100s' was broken, and the store closed before its holders had let go: "
                         "until then, at most for the grace, nobody gets it",
                         name);
    return HF_OK;
}
