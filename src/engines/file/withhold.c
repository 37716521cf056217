#include "engines/file/withhold.h"

#include "base/clock.h"
#include "base/filesize.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"
#include "engines/file/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OLD_PREFIX ".old-"

/* 0: cannot tell. Times of another boot say nothing, and who held the name then is dead. */
static uint64_t this_boot(void)
{
    char id[TOKENS_BOOT_ID_SIZE] = "";

    return file_read_boot_id(id, sizeof id, NULL) == HF_OK ? hash_bytes(id, strlen(id)) : 0;
}

/* The file may have been written by anybody who shares the directory. */
static bool names_old_file(const struct lockfile_withheld *withheld)
{
    return strncmp(withheld->old_name, OLD_PREFIX, strlen(OLD_PREFIX)) == 0 &&
           memchr(withheld->old_name, '\0', sizeof withheld->old_name) &&
           !strchr(withheld->old_name, '/');
}

static void read_mark(const struct lockfile *file, struct lockfile_withheld *ret_withheld)
{
    if (pread(file->fd, ret_withheld, sizeof *ret_withheld, LOCKFILE_WITHHELD_AT) !=
        (ssize_t)sizeof *ret_withheld)
        memset(ret_withheld, 0, sizeof *ret_withheld);
}

static int write_until(const struct lockfile *file, int64_t until_ms)
{
    return filesize_write(file->fd, &until_ms, sizeof until_ms,
                          LOCKFILE_WITHHELD_AT +
                              (off_t)offsetof(struct lockfile_withheld, until_ms));
}

int withhold_begin(const struct directory *directory, const struct lockfile *old,
                   const struct lockfile *fresh, int64_t grace_ms)
{
    struct lockfile_withheld withheld = {.boot = this_boot()};
    unsigned char bytes[12];
    char hex[2 * sizeof bytes + 1];
    int failure;

    if (grace_ms == 0)
        return 0;
    random_fill(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, hex);
    snprintf(withheld.old_name, sizeof withheld.old_name, OLD_PREFIX "%s", hex);
    atomic_init(&withheld.until_ms, clock_after(clock_boot_ms(), grace_ms));
    failure = filesize_write(fresh->fd, &withheld, sizeof withheld, LOCKFILE_WITHHELD_AT);
    if (failure == 0 &&
        linkat(directory->locks_fd, old->file_name, directory->locks_fd, withheld.old_name, 0) < 0)
        failure = errno;
    return failure;
}

void withhold_end(const struct directory *directory, const struct lockfile *fresh)
{
    struct lockfile_withheld withheld;

    read_mark(fresh, &withheld);
    if (atomic_load(&withheld.until_ms) == 0)
        return;
    (void)write_until(fresh, 0); /* else its time will come */
    if (names_old_file(&withheld))
        unlinkat(directory->locks_fd, withheld.old_name, 0);
}

static bool old_one_is_held(const struct directory *directory,
                            const struct lockfile_withheld *withheld)
{
    struct lockfile old = {.fd = -1};
    bool held;

    old.fd = directory_open_file(directory->locks_fd, withheld->old_name, O_RDONLY);
    if (old.fd < 0)
        return errno != ENOENT;
    held = lockfile_locked(&old, RANGE_TOKEN, RANGE_TOKENS, NULL);
    close(old.fd);
    return held;
}

int64_t withhold_left_ms(const struct directory *directory, const struct lockfile *file)
{
    struct lockfile_withheld withheld;
    int64_t left_ms;

    read_mark(file, &withheld);
    left_ms = atomic_load(&withheld.until_ms) - clock_boot_ms();
    return left_ms > 0 && names_old_file(&withheld) && withheld.boot != 0 &&
                   withheld.boot == this_boot() && old_one_is_held(directory, &withheld)
               ? left_ms
               : 0;
}

bool withhold_stands(const struct directory *directory, const struct lockfile *file)
{
    struct lockfile_withheld withheld;

    if (atomic_load(&file->page->withheld.until_ms) == 0)
        return false;
    read_mark(file, &withheld);
    if (names_old_file(&withheld) && withheld.boot != 0 && withheld.boot == this_boot() &&
        atomic_load(&withheld.until_ms) > clock_boot_ms() && old_one_is_held(directory, &withheld))
        return true;
    withhold_end(directory, file);
    return false;
}

void withhold_shorten(const struct directory *directory, const struct lockfile *file,
                      int64_t grace_ms)
{
    int64_t until_ms = clock_after(clock_boot_ms(), grace_ms);

    if (atomic_load(&file->page->withheld.until_ms) == 0)
        return;
    if (grace_ms == 0)
        withhold_end(directory, file);
    else if (until_ms < atomic_load(&file->page->withheld.until_ms))
        (void)write_until(file, until_ms);
}
