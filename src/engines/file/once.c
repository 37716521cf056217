/* once.c: once-records. A key has a lock file of its own, in DIR/once, and is claimed as a lock is. What
 * is known of it stands in its record (record.h), which only the holder of the lock writes:
 *
 *     claimed    the lock, the token, then "somebody runs it" is written: [O1] a runner has its lock for
 *                as long as that stands there
 *     finished   "it is done", with what came out, then the lock is given up
 *     released   the record is removed, then the lock is given up
 *     died       the kernel takes the lock back, the record stays: whoever has the lock next, and finds
 *                that somebody runs it, knows that he does not
 *
 * So a record without its runner is a death, and one that is done answers everybody, lock or no lock.
 *
 * Lock files of locks are never removed. Those of keys are, since a key is seldom used again: by one who
 * has the lock, after the record. So: [O2] whoever has locked a key's file looks whether it is still
 * in its place before he believes anything. If it is, it stays there for as long as he has the lock.
 * Nobody else has the time to tidy up, so everybody who finishes looks at a few files (sweep). */
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/filesize.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <holdfast/once.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CURSOR_NAME ".sweep" /* in it: where the last sweep stopped */
#define SWEEP_MAX 32         /* files looked at by one who finishes: he leaves two */
#define READ_TRIES 10        /* of a key that is finished and claimed again while we look */
#define LOOK_AGAIN 100       /* besides enum engine_outcome */

/* ---- the folder ------------------------------------------------------------------------------ */

/* With the mutex. */
static int open_locked(struct engine_store *store, bool make, struct error_text *err)
{
    int result = file_open_clock_locked(store, err);

    if (result == HF_OK)
        result = directory_open_folder(&store->directory, ONCE_FOLDER, make, &store->keys, err);
    if (result != HF_OK || store->keys.locks_fd < 0)
        return result;
    store->records.directory = &store->keys;
    store->records.clock = &store->clock;
    atomic_store(&store->keys_state, KEYS_OPEN);
    return HF_OK;
}

/* make: the folder will be there after a crash, too; whoever made it may have been killed before he could
 * see to that. Else it may not be there. */
static int open_folder(struct engine_store *store, bool make, struct error_text *err)
{
    int result = HF_OK;

    if (atomic_load(&store->keys_state) == KEYS_SYNCED)
        return HF_OK;
    pthread_mutex_lock(&store->tokens_mutex);
    if (atomic_load(&store->keys_state) == KEYS_CLOSED)
        result = open_locked(store, make, err);
    if (result == HF_OK && make && fsync(store->directory.fd) < 0)
        result = directory_failure(&store->directory, errno, "sync the store", err);
    if (result == HF_OK && make)
        atomic_store(&store->keys_state, KEYS_SYNCED);
    pthread_mutex_unlock(&store->tokens_mutex);
    return result;
}

/* ---- claiming -------------------------------------------------------------------------------- */

/* What to answer to a claim, if this is what is known; ENGINE_HELD: nothing keeps it from running. Takes
 * the record's bytes with ENGINE_DONE. */
static int answer_to(struct engine_claim *claim, const struct record *record)
{
    if (record->left_ms == 0)
        return ENGINE_HELD;
    if (record->kind == RECORD_RUNNING && !(claim->no_heir && record->begun))
        return ENGINE_HELD;
    claim->record.token = record->token;
    claim->record.bytes = record->bytes;
    claim->record.size = record->bytes ? record->size : 0;
    return record->kind == RECORD_DONE ? ENGINE_DONE : ENGINE_DIED;
}

int file_once_look(struct engine_store *store, struct engine_claim *claim, struct error_text *err)
{
    struct record record = {.kind = RECORD_NONE};
    int outcome = ENGINE_HELD, result = open_folder(store, false, err);

    if (result == HF_OK && atomic_load(&store->keys_state) != KEYS_CLOSED)
        result = record_read(&store->records, claim->name, true, &record, err);
    if (result == HF_OK)
        outcome = answer_to(claim, &record);
    /* What is known can be had from a disk that cannot be written to any more; to run it cannot. */
    if (result == HF_OK && outcome == ENGINE_HELD)
        result = open_folder(store, true, err);
    return result == HF_OK ? outcome : result;
}

int file_once_decide(struct engine_store *store, struct file_claim *own, bool *ret_replaced,
                     struct error_text *err)
{
    struct engine_claim *claim = own->claim;
    struct record record;
    int result;

    *ret_replaced = !lockfile_is_current(&store->keys, &own->file); /* [O2] */
    if (*ret_replaced)
        return ENGINE_HELD;
    result = record_read(&store->records, claim->name, true, &record, err);
    if (result != HF_OK)
        return result;
    if (record.kind == RECORD_RUNNING && !record.begun && claim->no_heir) {
        record_begin(&store->records, claim->name); /* [O1] it is we who have the lock */
        record.begun = true;
    }
    own->has_record = record.kind != RECORD_NONE;
    return answer_to(claim, &record);
}

int file_once_begin(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    const struct engine_claim *claim = own->claim;
    int result;

    if (claim->death_ms <= 0) {
        result = own->has_record ? record_remove(&store->records, claim->name, true, err) : HF_OK;
        own->has_record = false;
        return result;
    }
    result = record_write(&store->records, claim->name, RECORD_RUNNING, claim->token,
                          claim->death_ms, NULL, 0, err);
    if (result == HF_EUNKNOWN) { /* nobody shall take us for dead who never ran it */
        record_remove(&store->records, claim->name, false, NULL);
        return HF_EIO;
    }
    own->has_record = result == HF_OK;
    return result;
}

bool file_once_is_passing(const struct file_claim *own)
{
    return !own->claim->will_wait && !lockfile_locked(&own->file, RANGE_TOKEN, RANGE_TOKENS, NULL);
}

int file_once_forget(struct engine_store *store, struct file_claim *own, struct error_text *err)
{
    const char *key = own->claim->name;
    struct record record;
    int result;

    if (!own->has_record)
        return HF_OK;
    result = record_read(&store->records, key, false, &record, err);
    if (result == HF_OK && record.kind == RECORD_RUNNING && record.token == own->claim->token)
        result = record_remove(&store->records, key, true, err);
    return result;
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* With the lock of a key that nobody knows anything of any more: its files go. Not the lock's if somebody
 * waits for it, who would only have to make it again. True: it has gone. */
static bool remove_files(struct engine_store *store, const char *key, const struct lockfile *file)
{
    if (record_remove(&store->records, key, false, NULL) != HF_OK ||
        atomic_load(&file->page->attention) != 0)
        return false;
    return unlinkat(store->keys.locks_fd, file->file_name, 0) == 0;
}

/* With its lock. True: the lock's file is no longer in its place. */
static bool tidy_key(struct engine_store *store, const char *key, const struct lockfile *file)
{
    struct record record;

    if (!lockfile_is_current(&store->keys, file)) /* [O2] */
        return true;
    if (record_read(&store->records, key, false, &record, NULL) != HF_OK)
        return false;
    if (record.kind == RECORD_RUNNING && !record.begun)
        record_begin(&store->records, key); /* [O1] */
    else if (record.left_ms == 0)
        return remove_files(store, key, file);
    return false;
}

static void sweep_key(struct engine_store *store, const char *key)
{
    struct lockfile file;
    bool gone;

    if (lockfile_open(&store->keys, key, &file, NULL) != HF_OK)
        return;
    if (lockfile_lock(&file, F_WRLCK, RANGE_GATE, 2) == 0) {
        gone = tidy_key(store, key, &file);
        lockfile_lock(&file, F_UNLCK, 0, 0);
        if (gone) /* whoever came to wait meanwhile moves to the new file */
            waiting_ring_all(&file);
        else
            waiting_ring_released(&file, HF_SHARED); /* somebody may have tried just now */
    }
    lockfile_close(&file);
}

/* A record's file tells by itself whether it is worth a lock; a lock's file, if it has no record. */
static void sweep_file(struct engine_store *store, const char *file_name)
{
    size_t length = strlen(file_name), suffix = strlen(RECORD_SUFFIX);
    char key[HF_NAME_MAX + 1], name[LOCKFILE_NAME_MAX + 100 + sizeof RECORD_SUFFIX];
    struct lockfile file;
    bool fresh = false, known;

    if (file_name[0] == '.' || length + suffix >= sizeof name)
        return;
    if (length > suffix && strcmp(file_name + length - suffix, RECORD_SUFFIX) == 0) {
        known = record_glance(&store->records, file_name, key, &fresh);
    } else {
        memcpy(name, file_name, length);
        memcpy(name + length, RECORD_SUFFIX, suffix + 1);
        if (faccessat(store->keys.locks_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            lockfile_open_to_look(&store->keys, file_name, &file, NULL) != HF_OK || file.fd < 0)
            return;
        known = lockfile_read_name(&file, key) == 0;
        lockfile_close(&file);
    }
    if (known && !fresh)
        sweep_key(store, key);
}

/* The position is one that any local filesystem understands again in another process, or else begins at
 * the beginning; whatever stands in the file can do no more harm than that. */
static int open_cursor(struct engine_store *store, int64_t *ret_position)
{
    int fd = directory_open_file(store->keys.locks_fd, CURSOR_NAME, O_RDWR);

    if (fd < 0 && errno == ENOENT &&
        directory_create_file(&store->keys, store->keys.locks_fd, CURSOR_NAME, &fd, NULL) != HF_OK)
        fd = -1;
    if (fd < 0 || pread(fd, ret_position, sizeof *ret_position, 0) != sizeof *ret_position)
        *ret_position = 0;
    return fd;
}

static void close_cursor(int fd, int64_t position)
{
    if (fd < 0)
        return;
    if (filesize_write(fd, &position, sizeof position, 0) != 0)
        (void)ftruncate(fd, 0);
    close(fd);
}

/* Looks at the next SWEEP_MAX files of the folder, going on where whoever swept last has stopped. Nothing
 * depends on its success. */
static void sweep(struct engine_store *store)
{
    int fd = openat(store->keys.locks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), cursor, looks;
    const struct dirent *entry = NULL;
    int64_t position = 0;
    DIR *files;

    if (fd < 0)
        return;
    cursor = open_cursor(store, &position);
    if (lseek(fd, position, SEEK_SET) < 0)
        (void)lseek(fd, 0, SEEK_SET);
    files = fdopendir(fd);
    for (looks = 0; files && looks < SWEEP_MAX && (entry = readdir(files)) != NULL; looks++) {
        position = telldir(files);
        sweep_file(store, entry->d_name);
    }
    close_cursor(cursor, entry ? position : 0);
    if (files)
        closedir(files);
    else
        close(fd);
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Asked again after it was done, or too late. */
static int finished_before(struct engine_store *store, const struct engine_claim *claim,
                           struct error_text *err)
{
    struct record record = {.kind = RECORD_NONE};
    int result = open_folder(store, true, err);

    if (result == HF_OK)
        result = record_read(&store->records, claim->name, false, &record, err);
    if (result != HF_OK)
        return result;
    if (record.kind == RECORD_DONE && record.token == claim->token)
        return HF_OK;
    return error_set(err, HF_ESTALE, "'%.100s' is not run by us any more: nothing was stored",
                     claim->name);
}

int file_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    struct file_claim *own = file_claim_of(claim);
    bool current;
    int result;

    (void)deadline_ms;
    if (size > HF_ONCE_RESULT_MAX || keep_ms < 1)
        return error_set(err, HF_EINVAL, "a result has at most %d bytes, kept for 1 ms or more",
                         HF_ONCE_RESULT_MAX);
    current = own && own->held && lockfile_is_current(&store->keys, &own->file);
    if (!current && own && own->held && !lockfile_is_displaced(&store->keys, &own->file))
        return error_set(err, HF_EIO, "cannot look at %s/%s", store->keys.locks_path,
                         own->file.file_name);
    if (!current)
        return finished_before(store, claim, err);
    sweep(store); /* before the record: it is made room for, and one sync is enough for both */
    result = record_write(&store->records, claim->name, RECORD_DONE, claim->token, keep_ms, bytes,
                          size, err);
    if (result != HF_OK)
        return result;
    claims_let_go(store, own, true);
    return HF_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Who runs it, in words, where the lock's file says so of this token. */
static void describe_runner(const struct lockfile *file, struct engine_record *record)
{
    struct lock_record hold;

    if (directory_read_file(file->fd, &hold, sizeof hold, LOCKFILE_RECORDS_AT) != 0 ||
        hold.token != record->token ||
        hold.check !=
            hash_bytes((char *)&hold + sizeof hold.check, sizeof hold - sizeof hold.check))
        return;
    hold.owner[HF_OWNER_MAX] = '\0';
    record->owner = strdup(hold.owner);
    record->age_ms = clock_boot_ms() - hold.granted_boot_ms;
}

/* Is it held, with this token (0: any)? Then with which, and by whom. */
static int find_runner(struct engine_store *store, const char *key, uint64_t token, bool *ret_held,
                       struct engine_record *record, struct error_text *err)
{
    int64_t from = RANGE_TOKEN + (int64_t)token, at = 0;
    char file_name[LOCKFILE_NAME_MAX + 100];
    struct lockfile file;
    int result, held;

    lockfile_encode_name(key, file_name);
    result = lockfile_open_to_look(&store->keys, file_name, &file, err);
    *ret_held = false;
    if (result != HF_OK || file.fd < 0)
        return result;
    held = lockfile_find_lock(&file, from, token ? 1 : RANGE_TOKENS, &at);
    *ret_held = held > 0;
    if (*ret_held) {
        record->token = (uint64_t)(at - RANGE_TOKEN);
        describe_runner(&file, record);
    }
    lockfile_close(&file);
    if (held < 0) /* that nobody is seen to run it must not look like a death */
        return directory_failure(&store->keys, -held, "tell who runs a key", err);
    return HF_OK;
}

/* One look, or LOOK_AGAIN. *last: the token of a runner that was not there a moment ago. */
static int read_one(struct engine_store *store, const char *key, uint64_t *last,
                    struct engine_record *ret_record, int64_t *ret_left_ms, struct error_text *err)
{
    struct record record;
    bool runs, held;
    int result = record_read(&store->records, key, true, &record, err);

    if (result != HF_OK)
        return result;
    runs = record.kind == RECORD_RUNNING && !record.begun;
    if (record.left_ms > 0 && (!runs || *last == record.token)) {
        if (runs)
            (void)record_settle(&store->records); /* [R1] */
        ret_record->token = record.token;
        ret_record->bytes = record.bytes;
        ret_record->size = record.bytes ? record.size : 0;
        *ret_left_ms = record.left_ms;
        return record.kind == RECORD_DONE ? ENGINE_DONE : ENGINE_DIED;
    }
    result = find_runner(store, key, runs ? record.token : 0, &held, ret_record, err);
    if (result != HF_OK)
        return result;
    *last = runs ? record.token : 0;
    if (held)
        return ENGINE_HELD;
    return runs ? LOOK_AGAIN : ENGINE_BUSY;
}

/* Without the lock. A runner that is not there either died, or has just given up its lock; but before
 * that it changed the record, so a second look tells. */
int file_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    uint64_t last = 0;
    int outcome = open_folder(store, false, err);

    (void)deadline_ms;
    if (outcome != HF_OK)
        return outcome;
    if (atomic_load(&store->keys_state) == KEYS_CLOSED)
        return ENGINE_BUSY;
    for (int i = 0; i < READ_TRIES; i++) {
        outcome = read_one(store, key, &last, ret_record, ret_left_ms, err);
        if (outcome != LOOK_AGAIN)
            return outcome;
    }
    return ENGINE_BUSY;
}
