/* queries.c: who holds, who waits. Believes the kernel; the records only add words to it. */
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/hash.h"
#include "engines/file/withhold.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN_WAITERS_MAX 10000
#define GRANTED_MAX 64

int file_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
            struct error_text *err)
{
    char id[TOKENS_STORE_ID_SIZE];
    int result = file_open_tokens(store, false, err);

    (void)deadline_ms;
    if (result == HF_OK)
        result = tokens_store_id(&store->tokens, id, err);
    if (result == HF_OK)
        snprintf(ret_id, 65, "%s", id);
    return result;
}

int file_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
               struct engine_floor *ret_floor, struct error_text *err)
{
    int result = file_open_tokens(store, true, err);

    if (result == HF_OK)
        result = tokens_raise(&store->tokens, token, deadline_ms, err);
    if (result == HF_OK)
        ret_floor->at = tokens_last(&store->tokens);
    return result;
}

/* The file of a name, to look only; fd is -1 if there is none. */
static int look_up(struct engine_store *store, const char *name, struct lockfile *ret_file,
                   struct error_text *err)
{
    char file_name[LOCKFILE_NAME_MAX + 100];

    lockfile_encode_name(name, file_name);
    return lockfile_open_to_look(&store->directory, file_name, ret_file, err);
}

/* The kernel, or the disk, does not say: that must not look as if nobody held it. */
static int cannot_tell(const struct engine_store *store, int failure, struct error_text *err)
{
    return directory_failure(&store->directory, failure, "tell who holds the name", err);
}

/* How the name is held, by the kernel's word; modes.c says which ranges each mode takes. Returns 0, or an errno. */
static int mode_of(const struct lockfile *file, int *ret_mode)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RANGE_MAIN, .l_len = 1};
    uint32_t permits;
    int failure;

    if (fcntl(file->fd, F_OFD_GETLK, &range) < 0)
        return errno;
    if (range.l_type != F_RDLCK) {
        *ret_mode = range.l_type == F_WRLCK ? HF_EXCLUSIVE : ENGINE_GONE;
        return 0;
    }
    /* Nobody changes it while the name is held. */
    failure = directory_read_file(file->fd, &permits, sizeof permits,
                                  offsetof(struct lockfile_page, permits));
    if (failure > 0)
        return failure;
    *ret_mode = failure ? ENGINE_GONE : permits ? HF_PERMIT : HF_SHARED;
    return 0;
}

int file_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
               int64_t deadline_ms, struct error_text *err)
{
    struct lockfile file;
    int result = look_up(store, name, &file, err), held = 0, failure;

    (void)deadline_ms;
    if (result != HF_OK)
        return result;
    *ret_mode = ENGINE_GONE;
    if (file.fd >= 0 && token <= HF_TOKEN_MAX)
        held = lockfile_find_lock(&file, RANGE_TOKEN + (int64_t)token, 1, NULL);
    failure = held > 0 ? mode_of(&file, ret_mode) : -held;
    lockfile_close(&file);
    return failure ? cannot_tell(store, failure, err) : HF_OK;
}

/* ---- one name -------------------------------------------------------------------------------- */

struct look {
    const struct engine_sink *sink;
    const char *name;
    struct lock_record *records;
    size_t record_count;
    int64_t now_ms;
    int result;
    int64_t granted[GRANTED_MAX]; /* places of those who wait no more */
    size_t granted_count;
};

static const struct lock_record *find_record(const struct look *look, uint64_t token)
{
    for (size_t i = 0; i < look->record_count; i++) {
        struct lock_record *record = &look->records[i];

        if (record->token == token &&
            record->check == hash_bytes((char *)record + sizeof record->check,
                                        sizeof *record - sizeof record->check)) {
            record->owner[HF_OWNER_MAX] = '\0';
            record->lease_digest[sizeof record->lease_digest - 1] = '\0';
            return record;
        }
    }
    return NULL;
}

static bool add_holder(void *context, int64_t at)
{
    struct look *look = context;
    uint64_t token = (uint64_t)(at - RANGE_TOKEN);
    const struct lock_record *record = find_record(look, token);
    hf_entry entry = {.size = sizeof entry,
                      .kind = HF_ENTRY_HOLDER,
                      .name = look->name,
                      .token = token,
                      .owner = "",
                      .lease = "",
                      .age_ms = -1,
                      .left_ms = HF_UNLIMITED};

    if (record) {
        entry.mode = record->mode <= HF_PERMIT ? (int)record->mode : HF_EXCLUSIVE;
        entry.permits = record->permits;
        entry.owner = record->owner;
        entry.lease = record->lease_digest;
        entry.pid = record->pid;
        entry.age_ms = look->now_ms - record->granted_boot_ms;
        if (record->wait_place && look->granted_count < GRANTED_MAX)
            look->granted[look->granted_count++] = record->wait_place;
    }
    look->result = look->sink->add(look->sink->context, &entry);
    return look->result == HF_OK;
}

static bool add_waiter(void *context, int64_t at)
{
    struct look *look = context;
    char owner[32];
    hf_entry entry = {.size = sizeof entry,
                      .kind = HF_ENTRY_WAITER,
                      .name = look->name,
                      .owner = owner,
                      .lease = "",
                      .pid = (at - RANGE_WAIT) / RANGE_PER_PID,
                      .age_ms = -1,
                      .left_ms = HF_UNLIMITED};

    for (size_t i = 0; i < look->granted_count; i++)
        if (look->granted[i] == at)
            return true;
    snprintf(owner, sizeof owner, "pid %lld", (long long)entry.pid);
    look->result = look->sink->add(look->sink->context, &entry);
    return look->result == HF_OK;
}

/* Returns 0, or an errno. */
static int read_records(const struct lockfile *file, struct look *look)
{
    size_t most = (LOCKFILE_SLOTS_MAX + 1) * sizeof(struct lock_record), size;
    struct stat st;
    int failure;

    look->records = NULL;
    look->record_count = 0;
    if (fstat(file->fd, &st) < 0)
        return errno;
    if (st.st_size <= LOCKFILE_RECORDS_AT)
        return 0;
    size = (size_t)st.st_size - LOCKFILE_RECORDS_AT;
    if (size > most)
        size = most;
    look->records = malloc(size);
    if (!look->records)
        return ENOMEM;
    failure = directory_read_file(file->fd, look->records, size, LOCKFILE_RECORDS_AT);
    if (!failure)
        look->record_count = size / sizeof *look->records;
    return failure > 0 ? failure : 0;
}

/* A hold that was granted between reading the records and asking the kernel has its record still in
 * the file: the records are read after the first answer of the kernel, and that is enough for
 * people. */
static int look_at(const struct engine_store *store, const struct lockfile *file, const char *name,
                   bool waiters, const struct engine_sink *sink, struct error_text *err)
{
    struct look look = {.sink = sink, .name = name, .now_ms = clock_boot_ms()};
    int held = lockfile_find_lock(file, RANGE_TOKEN, RANGE_TOKENS, NULL), failure = -held;

    if (held > 0) {
        failure = read_records(file, &look);
        if (!failure)
            failure = lockfile_each_lock(file, RANGE_TOKEN, RANGE_TOKENS, LOCKFILE_SLOTS_MAX,
                                         add_holder, &look);
        free(look.records);
    }
    if ((!failure || failure == EOVERFLOW) && look.result == HF_OK && waiters)
        failure = lockfile_each_lock(file, RANGE_WAIT, RANGE_WATCH - RANGE_WAIT, SHOWN_WAITERS_MAX,
                                     add_waiter, &look);
    if (look.result == HF_OK && failure && failure != EOVERFLOW)
        return cannot_tell(store, failure, err);
    return look.result;
}

/* Nobody holds it: it may have been broken. */
static int add_withheld(struct engine_store *store, const struct lockfile *file, const char *name,
                        const struct engine_sink *sink, struct error_text *err)
{
    int64_t left_ms;
    int result = withhold_look(store, file, &left_ms, err);
    hf_entry entry = {.size = sizeof entry,
                      .kind = HF_ENTRY_WITHHELD,
                      .name = name,
                      .owner = "",
                      .lease = "",
                      .age_ms = -1,
                      .left_ms = left_ms};

    return result == HF_OK && left_ms > 0 ? sink->add(sink->context, &entry) : result;
}

int file_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
              int64_t deadline_ms, struct error_text *err)
{
    struct lockfile file;
    int result = look_up(store, name, &file, err), held = 0;

    (void)deadline_ms;
    if (result != HF_OK || file.fd < 0)
        return result;
    result = look_at(store, &file, name, true, sink, err);
    if (result == HF_OK)
        held = lockfile_find_lock(&file, RANGE_TOKEN, RANGE_TOKENS, NULL);
    if (held < 0)
        result = cannot_tell(store, -held, err);
    if (result == HF_OK && held == 0)
        result = add_withheld(store, &file, name, sink, err);
    lockfile_close(&file);
    return result;
}

/* ---- all names ------------------------------------------------------------------------------- */

static int list_one(struct engine_store *store, const char *file_name, bool all,
                    const struct engine_sink *sink, struct error_text *err)
{
    char name[HF_NAME_MAX + 1];
    struct lockfile file;
    int result = lockfile_open_to_look(&store->directory, file_name, &file, err);
    int held, failure;

    if (result != HF_OK || file.fd < 0)
        return result;
    held = lockfile_find_lock(&file, RANGE_TOKEN, RANGE_TOKENS, NULL);
    failure = held < 0 ? -held : held > 0 || all ? lockfile_read_name(&file, name) : -1;
    if (failure > 0)
        result = cannot_tell(store, failure, err);
    if (failure == 0) { /* what is damaged is none of ours */
        hf_entry entry = {.size = sizeof entry,
                          .kind = HF_ENTRY_FREE,
                          .name = name,
                          .owner = "",
                          .lease = "",
                          .age_ms = -1,
                          .left_ms = -1};

        result = held > 0 ? look_at(store, &file, name, false, sink, err)
                          : sink->add(sink->context, &entry);
    }
    lockfile_close(&file);
    return result;
}

/* What somebody else has put there is none of our locks. */
static bool is_lock_file(int dirfd, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof((struct lockfile *)0)->file_name)
        return false;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_REG;
    return fstatat(dirfd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int file_list(struct engine_store *store, const char *match, bool all,
              const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    /* A descriptor of its own: a position shared with other threads would be of no use. */
    int fd = openat(store->directory.locks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int result = HF_OK;

    (void)match;
    (void)deadline_ms;
    if (!names) {
        result = directory_failure(&store->directory, errno, "read the directory of locks", err);
        if (fd >= 0)
            close(fd);
        return result;
    }
    while (errno = 0, result == HF_OK && (entry = readdir(names)) != NULL)
        if (is_lock_file(fd, entry))
            result = list_one(store, entry->d_name, all, sink, err);
    if (result == HF_OK && errno)
        result = directory_failure(&store->directory, errno, "read the directory of locks", err);
    closedir(names);
    return result;
}
