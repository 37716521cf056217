#include "engines/file/withhold.h"

#include "base/clock.h"
#include "base/filesize.h"
#include "base/random.h"
#include "base/switches.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OLD_PREFIX ".old-"

/* The file may have been written by anybody who shares the directory. */
static bool names_old_file(const struct lockfile_withheld *withheld)
{
    return strncmp(withheld->old_name, OLD_PREFIX, strlen(OLD_PREFIX)) == 0 &&
           memchr(withheld->old_name, '\0', sizeof withheld->old_name) &&
           !strchr(withheld->old_name, '/');
}

/* 0, or an errno. All 0: there is none. */
static int read_mark(const struct lockfile *file, struct lockfile_withheld *ret_withheld)
{
    ssize_t got = pread(file->fd, ret_withheld, sizeof *ret_withheld, LOCKFILE_WITHHELD_AT);
    int failure = got < 0 ? errno : 0;

    if (got != (ssize_t)sizeof *ret_withheld)
        memset(ret_withheld, 0, sizeof *ret_withheld);
    return failure;
}

static int write_until(const struct lockfile *file, int64_t until_ms)
{
    return filesize_write(file->fd, &until_ms, sizeof until_ms,
                          LOCKFILE_WITHHELD_AT +
                              (off_t)offsetof(struct lockfile_withheld, until_ms));
}

int withhold_begin(const struct engine_store *store, const struct lockfile *old,
                   const struct lockfile *fresh, int64_t grace_ms)
{
    int dirfd = store->directory.locks_fd, failure;
    struct lockfile_withheld withheld = {.reserved = 0};
    unsigned char bytes[12];
    char hex[2 * sizeof bytes + 1];

    if (grace_ms == 0)
        return 0;
    random_fill(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, hex);
    snprintf(withheld.old_name, sizeof withheld.old_name, OLD_PREFIX "%s", hex);
    atomic_init(&withheld.until_ms, clock_after(bootclock_now_ms(&store->clock), grace_ms));
    failure = filesize_write(fresh->fd, &withheld, sizeof withheld, LOCKFILE_WITHHELD_AT);
    if (failure == 0 && linkat(dirfd, old->file_name, dirfd, withheld.old_name, 0) < 0)
        failure = errno;
    return failure;
}

void withhold_end(const struct engine_store *store, const struct lockfile *fresh)
{
    struct lockfile_withheld withheld;

    if (read_mark(fresh, &withheld) != 0 || atomic_load(&withheld.until_ms) == 0)
        return;
    (void)write_until(fresh, 0); /* else its time will come */
    if (names_old_file(&withheld))
        unlinkat(store->directory.locks_fd, withheld.old_name, 0);
}

/* 1, 0, or a negative errno: cannot tell. */
static int old_one_is_held(const struct engine_store *store,
                           const struct lockfile_withheld *withheld)
{
    struct lockfile old = {.fd = -1};
    int held;

    old.fd = directory_open_file(store->directory.locks_fd, withheld->old_name, O_RDONLY);
    if (old.fd < 0)
        return errno == ENOENT ? 0 : -errno;
    held = lockfile_find_lock(&old, RANGE_TOKEN, RANGE_TOKENS, NULL);
    close(old.fd);
    return held;
}

int withhold_look(struct engine_store *store, const struct lockfile *file, int64_t *ret_left_ms,
                  struct error_text *err)
{
    struct lockfile_withheld withheld;
    int failure = read_mark(file, &withheld), held, result;
    int64_t left_ms;

    *ret_left_ms = 0;
    if (failure)
        return directory_failure(&store->directory, failure, "read a lock file", err);
    if (atomic_load(&withheld.until_ms) == 0 || !names_old_file(&withheld))
        return HF_OK;
    held = old_one_is_held(store, &withheld);
    if (held == 0)
        return HF_OK;
    result = file_open_clock(store, err);
    if (result != HF_OK)
        return result;
    left_ms = atomic_load(&withheld.until_ms) - bootclock_now_ms(&store->clock);
    if (left_ms > 0 && held < 0)
        return directory_failure(&store->directory, -held,
                                 "tell whether the name, which was broken, is free", err);
    *ret_left_ms = left_ms > 0 ? left_ms : 0;
    return HF_OK;
}

int withhold_check(struct engine_store *store, const struct lockfile *file, struct error_text *err)
{
    int64_t left_ms;
    int result;

    if (atomic_load(&file->page->withheld.until_ms) == 0)
        return ENGINE_HELD;
    result = withhold_look(store, file, &left_ms, err);
    if (result != HF_OK)
        return result;
    if (left_ms > 0 && !SWITCHED(SWITCH_FILE_NOT_WITHHELD))
        return ENGINE_BUSY;
    withhold_end(store, file);
    return ENGINE_HELD;
}

int withhold_shorten(const struct engine_store *store, const struct lockfile *file,
                     int64_t grace_ms)
{
    int64_t until_ms = clock_after(bootclock_now_ms(&store->clock), grace_ms);

    if (atomic_load(&file->page->withheld.until_ms) == 0)
        return 0;
    if (grace_ms == 0)
        withhold_end(store, file);
    else if (until_ms < atomic_load(&file->page->withheld.until_ms))
        return write_until(file, until_ms);
    return 0;
}
