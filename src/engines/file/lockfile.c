#include "engines/file/lockfile.h"
#include "base/filesize.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/file/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CREATE_TRIES 100

static const char lockfile_magic[8] = {'H', 'F', 'L', 'O', 'C', 'K', '0', '1'};

/* ---- names ----------------------------------------------------------------------------------- */

void lockfile_encode_name(const char *name, char ret_file_name[LOCKFILE_NAME_MAX + 100])
{
    size_t size = LOCKFILE_NAME_MAX + 1, length = strlen(name), used = 0, rest;

    /* A file name must not begin with a dot: those are ours. '~' is never kept, so that no short
     * name can look like a long one. */
    if (name[0] == '.') {
        memcpy(ret_file_name, "%2e", 3);
        used = 3;
    }
    rest = text_percent_encode(name + (used ? 1 : 0), length - (used ? 1 : 0), "-_.:@+=,",
                               ret_file_name + used, size - used);
    if (used + rest > LOCKFILE_NAME_MAX) {
        unsigned char digest[SHA256_SIZE];

        sha256(name, length, digest);
        ret_file_name[LOCKFILE_NAME_MAX / 2] = '~';
        text_hex(digest, sizeof digest, ret_file_name + LOCKFILE_NAME_MAX / 2 + 1);
    }
}

static void fill_page(struct lockfile_page *page, const char *name)
{
    size_t length = strlen(name);

    memset(page, 0, sizeof *page);
    memcpy(page->magic, lockfile_magic, sizeof page->magic);
    page->name_length = (uint32_t)length;
    page->name_check = hash_bytes(name, length);
    memcpy(page->name, name, length);
}

static bool page_names(const struct lockfile_page *page, char *ret_name)
{
    uint32_t length = page->name_length;

    if (memcmp(page->magic, lockfile_magic, sizeof lockfile_magic) != 0 || length == 0 ||
        length > HF_NAME_MAX || page->name_check != hash_bytes(page->name, length) ||
        memchr(page->name, '\0', length))
        return false;
    memcpy(ret_name, page->name, length);
    ret_name[length] = '\0';
    return true;
}

int lockfile_read_name(const struct lockfile *file, char *ret_name)
{
    struct lockfile_page page;
    int failure = directory_read_file(file->fd, &page, sizeof page, 0);

    if (failure)
        return failure;
    return page_names(&page, ret_name) ? 0 : -1;
}

/* ---- opening --------------------------------------------------------------------------------- */

int lockfile_create(const struct directory *directory, const char *name, char *ret_temp_name,
                    struct lockfile *ret_file, struct error_text *err)
{
    struct lockfile_page page;
    struct stat st;
    int fd, failure, result;

    result = directory_temp_file(directory, directory->locks_fd, ret_temp_name, &fd, err);
    if (result != HF_OK)
        return result;
    fill_page(&page, name);
    failure = filesize_write(fd, &page, sizeof page, 0);
    close(fd);
    if (failure) {
        unlinkat(directory->locks_fd, ret_temp_name, 0);
        return directory_failure(directory, failure, "write a lock file", err);
    }
    ret_file->page = NULL;
    ret_file->fd = forks_open(directory->locks_fd, ret_temp_name, O_RDWR);
    if (ret_file->fd < 0 || fstat(ret_file->fd, &st) < 0) {
        failure = errno;
        unlinkat(directory->locks_fd, ret_temp_name, 0);
        if (ret_file->fd >= 0)
            lockfile_close(ret_file);
        return directory_failure(directory, failure, "open a lock file", err);
    }
    ret_file->device = st.st_dev;
    ret_file->inode = st.st_ino;
    lockfile_encode_name(name, ret_file->file_name);
    return HF_OK;
}

/* Puts a new, complete file in its place, or leaves the one that somebody else put there first. */
static int create_in_place(const struct directory *directory, const char *name,
                           const char *file_name, struct error_text *err)
{
    char temp[DIRECTORY_TEMP_MAX];
    struct lockfile created = {.fd = -1};
    int failure = 0, result = lockfile_create(directory, name, temp, &created, err);

    if (result != HF_OK)
        return result;
    lockfile_close(&created);
    if (linkat(directory->locks_fd, temp, directory->locks_fd, file_name, 0) < 0 && errno != EEXIST)
        failure = errno;
    unlinkat(directory->locks_fd, temp, 0);
    return failure ? directory_failure(directory, failure, "create a lock file", err) : HF_OK;
}

/* A machine that crashed may have left a file without its content. Nothing in it was worth keeping.
 */
static int repair_page(const struct directory *directory, const struct lockfile *file,
                       const char *name, struct error_text *err)
{
    struct lockfile_page page;
    int failure;

    fill_page(&page, name);
    failure = filesize_write(file->fd, &page, sizeof page, 0);
    return failure ? directory_failure(directory, failure, "write a lock file", err) : HF_OK;
}

static int check_page(const struct directory *directory, struct lockfile *file, const char *name,
                      off_t size, struct error_text *err)
{
    char found[HF_NAME_MAX + 1];
    int failure = size < LOCKFILE_PAGE ? -1 : lockfile_read_name(file, found);

    if (failure > 0) /* it may be whole, and in use */
        return directory_failure(directory, failure, "read a lock file", err);
    if (failure)
        return repair_page(directory, file, name, err);
    if (strcmp(found, name) != 0)
        return error_set(
            err, HF_EREFUSED,
            "the file %s/%s belongs to the lock '%s', not to '%s': this filesystem does "
            "not tell those file names apart",
            directory->locks_path, file->file_name, found, name);
    return HF_OK;
}

static int map_page(const struct directory *directory, struct lockfile *file,
                    struct error_text *err)
{
    file->page = forks_map(file->fd, LOCKFILE_PAGE);
    if (!file->page)
        return directory_failure(directory, errno, "map a lock file", err);
    return HF_OK;
}

static int open_existing(const struct directory *directory, int flags, struct lockfile *file,
                         off_t *ret_size)
{
    struct stat st;
    int failure;

    file->page = NULL;
    file->fd = forks_open(directory->locks_fd, file->file_name, flags);
    if (file->fd < 0)
        return errno;
    if (fstat(file->fd, &st) < 0) {
        failure = errno;
        lockfile_close(file);
        return failure;
    }
    file->device = st.st_dev;
    file->inode = st.st_ino;
    *ret_size = st.st_size;
    return 0;
}

int lockfile_open(const struct directory *directory, const char *name, struct lockfile *ret_file,
                  struct error_text *err)
{
    off_t size = 0;
    int failure, result;

    lockfile_encode_name(name, ret_file->file_name);
    failure = open_existing(directory, O_RDWR, ret_file, &size);
    /* The file of a key may be removed again before we have opened it. */
    for (int i = 0; i < CREATE_TRIES && failure == ENOENT; i++) {
        result = create_in_place(directory, name, ret_file->file_name, err);
        if (result != HF_OK)
            return result;
        failure = open_existing(directory, O_RDWR, ret_file, &size);
    }
    if (failure)
        return directory_failure(directory, failure, "open a lock file", err);
    result = check_page(directory, ret_file, name, size, err);
    if (result == HF_OK)
        result = map_page(directory, ret_file, err);
    if (result != HF_OK)
        lockfile_close(ret_file);
    return result;
}

int lockfile_open_to_look(const struct directory *directory, const char *file_name,
                          struct lockfile *ret_file, struct error_text *err)
{
    off_t size;
    int failure;

    snprintf(ret_file->file_name, sizeof ret_file->file_name, "%s", file_name);
    failure = open_existing(directory, O_RDONLY, ret_file, &size);
    if (failure == ENOENT) {
        ret_file->fd = -1;
        return HF_OK;
    }
    return failure ? directory_failure(directory, failure, "open a lock file", err) : HF_OK;
}

void lockfile_close(struct lockfile *file)
{
    if (file->page)
        munmap(file->page, LOCKFILE_PAGE);
    if (file->fd >= 0)
        forks_close(file->fd);
    file->page = NULL;
    file->fd = -1;
}

bool lockfile_is_current(const struct directory *directory, const struct lockfile *file)
{
    struct stat st;

    return fstatat(directory->locks_fd, file->file_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == file->inode && st.st_dev == file->device;
}

bool lockfile_is_displaced(const struct directory *directory, const struct lockfile *file)
{
    struct stat st;

    if (fstatat(directory->locks_fd, file->file_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    return st.st_ino != file->inode || st.st_dev != file->device;
}

bool lockfile_is_replaced(const struct directory *directory, const struct lockfile *file)
{
    return atomic_load(&file->page->replaced) != 0 && !lockfile_is_current(directory, file);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

int lockfile_lock(const struct lockfile *file, int type, int64_t start, int64_t length)
{
    struct flock range = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

    while (fcntl(file->fd, F_OFD_SETLK, &range) < 0) {
        if (errno == EINTR)
            continue;
        return errno == EACCES ? EAGAIN : errno;
    }
    return 0;
}

int lockfile_find_lock(const struct lockfile *file, int64_t start, int64_t length,
                       int64_t *ret_start)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

    if (fcntl(file->fd, F_OFD_GETLK, &range) < 0)
        return -errno;
    if (range.l_type == F_UNLCK)
        return 0;
    if (ret_start)
        *ret_start = range.l_start < start ? start : range.l_start;
    return 1;
}

bool lockfile_locked(const struct lockfile *file, int64_t start, int64_t length, int64_t *ret_start)
{
    return lockfile_find_lock(file, start, length, ret_start) > 0;
}

/* The kernel tells one lock of a range, any one. What lies before and after it is asked for in
 * turn. */
int lockfile_each_lock(const struct lockfile *file, int64_t start, int64_t length, int limit,
                       bool (*fn)(void *context, int64_t at), void *context)
{
    struct span {
        int64_t start, end;
    } *todo = malloc(sizeof *todo * ((size_t)limit + 2));
    int count = 0, seen = 0, failure = 0;

    if (!todo)
        return ENOMEM;
    todo[count++] = (struct span){start, start + length};
    while (count > 0) {
        struct span span = todo[--count];
        int64_t at = 0;
        int found = span.start < span.end
                        ? lockfile_find_lock(file, span.start, span.end - span.start, &at)
                        : 0;

        if (found == 0)
            continue;
        failure = found < 0 ? -found : seen++ == limit ? EOVERFLOW : 0;
        if (failure || !fn(context, at))
            break;
        todo[count++] = (struct span){at + 1, span.end};
        todo[count++] = (struct span){span.start, at};
    }
    free(todo);
    return failure;
}

int lockfile_write_record(const struct lockfile *file, uint32_t index, struct lock_record *record)
{
    record->check =
        hash_bytes((char *)record + sizeof record->check, sizeof *record - sizeof record->check);
    if (index < sizeof file->page->records / sizeof *file->page->records) {
        /* Stored, not written: half of the cost. A reader that meets a half-stored record sees by
         * its check that it is one. */
        memcpy(&file->page->records[index], record, sizeof *record);
        return 0;
    }
    return filesize_write(file->fd, record, sizeof *record,
                          LOCKFILE_RECORDS_AT + (off_t)index * (off_t)sizeof *record);
}
