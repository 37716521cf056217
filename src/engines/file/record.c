#include "engines/file/record.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/filesize.h"
#include "base/hash.h"
#include "base/switches.h"
#include "engines/file/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/once.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMP_SUFFIX "~new" /* only the holder of the key writes, so one name is enough */
#define FILE_NAME_MAX (LOCKFILE_NAME_MAX + 100 + sizeof RECORD_SUFFIX)

struct span_start {
    char boot_id[BOOT_ID_SIZE];
    int64_t boot_ms;
    uint64_t check;
};

struct record_head {
    char magic[8];
    struct span_start start;
    uint32_t head_crc;
    uint32_t kind;
    uint64_t token;
    int64_t span_ms;
    uint32_t key_length;
    uint32_t size;
    uint32_t result_crc;
    uint32_t reserved;
    char key[HF_NAME_MAX];
};

_Static_assert(offsetof(struct record_head, start) == 8, "the format of a record");
_Static_assert(offsetof(struct record_head, head_crc) == 64, "the format of a record");
_Static_assert(offsetof(struct record_head, key) == 104, "the format of a record");
_Static_assert(sizeof(struct record_head) == 616, "the format of a record");

static const char record_magic[8] = {'H', 'F', 'O', 'N', 'C', 'E', '0', '1'};

static void name_file(const char *key, const char *suffix, char ret_name[FILE_NAME_MAX])
{
    char encoded[LOCKFILE_NAME_MAX + 100];

    lockfile_encode_name(key, encoded);
    snprintf(ret_name, FILE_NAME_MAX, "%s%s", encoded, suffix);
}

static uint32_t head_crc(const struct record_head *head)
{
    size_t from = offsetof(struct record_head, kind);

    return crc32c(0, (const char *)head + from, sizeof *head - from);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void start_now(const struct record_place *place, struct span_start *ret_start)
{
    memcpy(ret_start->boot_id, place->clock->boot_id, sizeof ret_start->boot_id);
    ret_start->boot_ms = bootclock_now_ms(place->clock);
    ret_start->check = hash_bytes(ret_start, offsetof(struct span_start, check));
}

static bool has_begun(const struct span_start *start)
{
    static const struct span_start never;

    return memcmp(start, &never, sizeof never) != 0;
}

/* Can it be counted from? Not if it is torn or of another boot. */
static bool counts(const struct record_place *place, const struct span_start *start)
{
    return start->check == hash_bytes(start, offsetof(struct span_start, check)) &&
           memcmp(start->boot_id, place->clock->boot_id, sizeof start->boot_id) == 0 &&
           start->boot_ms >= 0 && start->boot_ms <= bootclock_now_ms(place->clock);
}

static void write_start(int fd, const struct span_start *start)
{
    /* Without it the time begins with a later look: a read-only disk is no reason to fail. */
    (void)filesize_write(fd, start, sizeof *start, offsetof(struct record_head, start));
}

int record_settle(const struct record_place *place)
{
    return fsync(place->directory->locks_fd) < 0 ? errno : 0;
}

/* What is left. A time that has begun, but cannot be counted, begins anew. */
static int64_t left_of(const struct record_place *place, int fd, struct record_head *head)
{
    int64_t over_ms, now_ms;

    if (head->kind == RECORD_RUNNING && !has_begun(&head->start))
        return head->span_ms;
    if (!counts(place, &head->start)) {
        start_now(place, &head->start);
        write_start(fd, &head->start);
    }
    now_ms = bootclock_now_ms(place->clock);
    over_ms = clock_after(head->start.boot_ms, head->span_ms);
    return over_ms > now_ms ? over_ms - now_ms : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool head_is_whole(const struct record_head *head, off_t file_size)
{
    return memcmp(head->magic, record_magic, sizeof record_magic) == 0 &&
           head->head_crc == head_crc(head) &&
           (head->kind == RECORD_RUNNING || head->kind == RECORD_DONE) && head->token > 0 &&
           head->token <= HF_TOKEN_MAX && head->span_ms > 0 && head->key_length > 0 &&
           head->key_length <= HF_NAME_MAX && !memchr(head->key, '\0', head->key_length) &&
           head->size <= HF_ONCE_RESULT_MAX && file_size == (off_t)sizeof *head + (off_t)head->size;
}

/* 0, an errno value, or -1: damaged. To write as well, if that may be. */
static int open_whole(const struct record_place *place, const char *file_name, int *ret_fd,
                      struct record_head *ret_head)
{
    int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, fd, failure = 0;
    struct stat st;

    fd = openat(place->directory->locks_fd, file_name, O_RDWR | flags);
    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
        fd = openat(place->directory->locks_fd, file_name, O_RDONLY | flags);
    if (fd < 0)
        return errno == ELOOP || errno == EISDIR || errno == ENXIO ? -1 : errno;
    if (fstat(fd, &st) < 0)
        failure = errno;
    else if (!S_ISREG(st.st_mode))
        failure = -1;
    else
        failure = directory_read_file(fd, ret_head, sizeof *ret_head, 0);
    if (!failure && !head_is_whole(ret_head, st.st_size))
        failure = -1;
    if (failure)
        close(fd);
    else
        *ret_fd = fd;
    return failure;
}

/* And what is done is on the disk: else whoever finds it makes sure of that, before anybody is told [R1]. */
static int open_settled(const struct record_place *place, const char *file_name, int *ret_fd,
                        struct record_head *ret_head)
{
    int failure = open_whole(place, file_name, ret_fd, ret_head);

    if (failure || ret_head->kind != RECORD_DONE || has_begun(&ret_head->start) ||
        SWITCHED(SWITCH_RECORD_UNSETTLED))
        return failure;
    failure = record_settle(place);
    if (failure)
        close(*ret_fd);
    return failure;
}

static int damaged(const struct record_place *place, const char *file_name, struct error_text *err)
{
    return error_set(err, HF_EIO,
                     "%s/%s is damaged, or no record of ours: move it away, and the key is free",
                     place->directory->locks_path, file_name);
}

/* Of what cannot be read now nobody knows whether it is damaged: to move that away could have it run twice. */
static int cannot_read(const struct record_place *place, int failure, const char *file_name,
                       struct error_text *err)
{
    if (failure < 0)
        return damaged(place, file_name, err);
    return directory_failure(place->directory, failure, "read the record of a key", err);
}

/* NULL without an error: there is nothing to read. */
static int read_result(const struct record_place *place, int fd, const struct record_head *head,
                       const char *file_name, void **ret_bytes, struct error_text *err)
{
    void *bytes;
    int failure;

    if (head->size == 0) {
        *ret_bytes = NULL;
        return HF_OK;
    }
    bytes = malloc(head->size);
    if (!bytes)
        return error_set(err, HF_ENOMEM, "out of memory");
    failure = directory_read_file(fd, bytes, head->size, sizeof *head);
    if (!failure && crc32c(0, bytes, head->size) != head->result_crc)
        failure = -1;
    if (failure) {
        free(bytes);
        return cannot_read(place, failure, file_name, err);
    }
    *ret_bytes = bytes;
    return HF_OK;
}

int record_read(const struct record_place *place, const char *key, bool with_result,
                struct record *ret_record, struct error_text *err)
{
    char file_name[FILE_NAME_MAX];
    struct record record = {.kind = RECORD_NONE};
    struct record_head head = {.kind = RECORD_NONE};
    int fd = -1, failure, result = HF_OK;

    name_file(key, RECORD_SUFFIX, file_name);
    failure = open_settled(place, file_name, &fd, &head);
    if (failure == ENOENT) {
        *ret_record = record;
        return HF_OK;
    }
    if (failure)
        return cannot_read(place, failure, file_name, err);
    if (head.key_length != strlen(key) || memcmp(head.key, key, head.key_length) != 0) {
        result =
            error_set(err, HF_EREFUSED,
                      "%s/%s belongs to the key '%.*s', not to '%s': this filesystem does not "
                      "tell those file names apart",
                      place->directory->locks_path, file_name, (int)head.key_length, head.key, key);
    } else {
        record.kind = (enum record_kind)head.kind;
        record.token = head.token;
        record.left_ms = left_of(place, fd, &head);
        record.begun = has_begun(&head.start);
        record.size = head.size;
        if (with_result && record.kind == RECORD_DONE && record.left_ms > 0)
            result = read_result(place, fd, &head, file_name, &record.bytes, err);
    }
    close(fd);
    if (result == HF_OK)
        *ret_record = record;
    return result;
}

bool record_glance(const struct record_place *place, const char *file_name, char *ret_key,
                   bool *ret_fresh)
{
    struct record_head head = {.kind = RECORD_NONE};
    int fd = -1;

    if (open_settled(place, file_name, &fd, &head) != 0)
        return false;
    memcpy(ret_key, head.key, head.key_length);
    ret_key[head.key_length] = '\0';
    *ret_fresh = left_of(place, fd, &head) > 0 && has_begun(&head.start);
    close(fd);
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void fill_head(const char *key, enum record_kind kind, uint64_t token, int64_t span_ms,
                      struct record_head *ret_head)
{
    size_t length = strlen(key);

    memset(ret_head, 0, sizeof *ret_head);
    memcpy(ret_head->magic, record_magic, sizeof ret_head->magic);
    ret_head->kind = kind;
    ret_head->token = token;
    ret_head->span_ms = span_ms;
    ret_head->key_length = (uint32_t)length;
    memcpy(ret_head->key, key, length);
}

static int write_synced(int fd, const struct record_head *head, const void *bytes)
{
    int failure = filesize_write(fd, head, sizeof *head, 0);

    if (!failure)
        failure = filesize_write(fd, bytes, head->size, sizeof *head);
    if (!failure && !SWITCHED(SWITCH_RECORD_NOT_SYNCED) && fsync(fd) < 0)
        failure = errno;
    return failure;
}

int record_write(const struct record_place *place, const char *key, enum record_kind kind,
                 uint64_t token, int64_t span_ms, const void *bytes, size_t size,
                 struct error_text *err)
{
    char temp[FILE_NAME_MAX], file_name[FILE_NAME_MAX];
    int dirfd = place->directory->locks_fd, fd, failure, result;
    struct record_head head;

    fill_head(key, kind, token, span_ms, &head);
    head.size = (uint32_t)size;
    head.result_crc = crc32c(0, bytes, size);
    head.head_crc = head_crc(&head);
    name_file(key, RECORD_SUFFIX, file_name);
    name_file(key, TEMP_SUFFIX, temp);
    unlinkat(dirfd, temp, 0); /* of one who was killed here */
    result = directory_create_file(place->directory, dirfd, temp, &fd, err);
    if (result != HF_OK)
        return result;
    failure = write_synced(fd, &head, bytes);
    if (!failure && renameat(dirfd, temp, dirfd, file_name) < 0)
        failure = errno;
    if (failure) {
        close(fd);
        unlinkat(dirfd, temp, 0);
        return directory_failure(place->directory, failure, "write the record of a key", err);
    }
    failure = SWITCHED(SWITCH_RECORD_UNNAMED) ? 0 : record_settle(place);
    if (!failure && kind == RECORD_DONE) {
        start_now(place, &head.start);
        write_start(fd, &head.start);
    }
    close(fd);
    if (failure)
        return error_set_errno(err, HF_EUNKNOWN, failure, "cannot sync %s",
                               place->directory->locks_path);
    return HF_OK;
}

void record_begin(const struct record_place *place, const char *key)
{
    char file_name[FILE_NAME_MAX];
    struct span_start start;
    int fd;

    name_file(key, RECORD_SUFFIX, file_name);
    fd = directory_open_file(place->directory->locks_fd, file_name, O_WRONLY);
    if (fd < 0)
        return;
    if (record_settle(place) == 0) {
        start_now(place, &start);
        write_start(fd, &start);
    }
    close(fd);
}

int record_remove(const struct record_place *place, const char *key, bool sync,
                  struct error_text *err)
{
    char file_name[FILE_NAME_MAX];
    int dirfd = place->directory->locks_fd;

    name_file(key, TEMP_SUFFIX, file_name);
    unlinkat(dirfd, file_name, 0);
    name_file(key, RECORD_SUFFIX, file_name);
    if ((unlinkat(dirfd, file_name, 0) < 0 && errno != ENOENT) || (sync && fsync(dirfd) < 0))
        return directory_failure(place->directory, errno, "remove the record of a key", err);
    return HF_OK;
}
