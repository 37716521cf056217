#include "replica_libraft/restore.h"
#include "base/text.h"
#include "core/core.h"
#include "journal/note.h"
#include "replica_libraft/identity.h"
#include "replica_libraft/node_file.h"
#include "replica_libraft/storing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

/* ---- which files -------------------------------------------------------------------------------- */

static int expect_nothing(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (storage_is_nothing(name))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is not empty (there is %s): a backup is restored into an empty directory",
                     directory->path, name);
}

static int remove_file(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (storage_is_nothing(name) || strcmp(name, RESTORE_MARK) == 0)
        return HF_OK;
    if (!storage_is_data(name) && strcmp(name, NODE_FILE) != 0)
        return expect_nothing(context, name, err);
    return directory_remove(directory, name, err);
}

/* ---- the target --------------------------------------------------------------------------------- */

struct place { /* the target, as it was before */
    bool there, locked;
};

static struct place look_at(const char *path)
{
    char lock[PATH_MAX + 8];

    snprintf(lock, sizeof lock, "%s/" DIRECTORY_LOCK, path);
    return (struct place){.there = access(path, F_OK) == 0, .locked = access(lock, F_OK) == 0};
}

/* It may not be there yet: then where it would be made. */
static bool find_real(const char *path, char ret_real[PATH_MAX])
{
    char parent[PATH_MAX + 4];
    size_t size = strlen(path);

    if (realpath(path, ret_real))
        return true;
    while (size > 0 && path[size - 1] == '/')
        size--;
    while (size > 0 && path[size - 1] != '/')
        size--;
    snprintf(parent, sizeof parent, "%.*s", size > 0 ? (int)size : 1, size > 0 ? path : ".");
    return realpath(parent, ret_real) != NULL;
}

/* A backup that is written to is none any more. */
static int check_apart(const struct restore_options *options, struct error_text *err)
{
    char source[PATH_MAX], target[PATH_MAX];
    size_t size;

    if (!realpath(options->source, source) || !find_real(options->target, target))
        return HF_OK; /* then it cannot be opened, or not be made */
    size = strlen(source);
    if (strncmp(source, target, size) != 0 || (target[size] && target[size] != '/'))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is in the backup %s, which is not to be written to: restore it to another "
                     "place",
                     options->target, options->source);
}

/* Empty, marked, and locked. */
static int open_target(const char *path, struct directory *ret_directory, struct error_text *err)
{
    char text[NOTE_MAX + 1];
    int result = directory_open(path, ret_directory, err);

    if (result != HF_OK)
        return result;
    result = note_read(ret_directory, RESTORE_MARK, text, err);
    if (result == HF_OK)
        result = directory_each(ret_directory, text[0] ? remove_file : expect_nothing,
                                ret_directory, err);
    if (result == HF_OK)
        result = note_write(ret_directory, RESTORE_MARK, "a backup is being restored\n", err);
    if (result != HF_OK)
        directory_close(ret_directory);
    return result;
}

static int unmark(const struct directory *directory, struct error_text *err)
{
    int result = directory_remove(directory, RESTORE_MARK, err);

    return result == HF_OK ? directory_sync(directory, err) : result;
}

/* ---- copying: on the system's disk, whose handles are descriptors ------------------------------------------------------------------------------------ */

/* A server that runs writes while we read; and half a copy is none. */
static int check_source(int source, const char *path, struct error_text *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool busy;
    int fd;

    if (faccessat(source, RESTORE_MARK, F_OK, 0) == 0)
        return error_set(err, HF_EREFUSED, "%s is itself a restore that did not come to its end",
                         path);
    fd = openat(source, DIRECTORY_LOCK, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return HF_OK;
    busy = fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    close(fd);
    if (!busy)
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is in use by a server: stop that, or restore from a copy", path);
}

static int open_source(const char *path, struct directory *ret_source, struct error_text *err)
{
    int result;

    *ret_source = (struct directory){.disk = disk_system(), .lock = -1};
    snprintf(ret_source->path, sizeof ret_source->path, "%s", path);
    ret_source->handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret_source->handle < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "cannot open the backup %s", path);
    result = check_source(ret_source->handle, path, err);
    if (result != HF_OK)
        directory_close(ret_source);
    return result;
}

/* 0, or an errno. */
static int copy_bytes(int from, int to)
{
    char *bytes = malloc(COPY_BYTES);
    int failure = bytes ? 0 : ENOMEM;
    ssize_t got = 0;

    while (!failure && (got = read(from, bytes, COPY_BYTES)) != 0) {
        if (got < 0 && errno != EINTR)
            failure = errno;
        for (ssize_t at = 0; at < got && !failure;) {
            ssize_t put = write(to, bytes + at, (size_t)(got - at));

            if (put < 0 && errno != EINTR)
                failure = errno;
            at += put > 0 ? put : 0;
        }
    }
    free(bytes);
    return failure ? failure : fsync(to) < 0 ? errno : 0;
}

struct copying {
    int source;
    const char *path;
    const struct directory *target;
    unsigned files;
};

static int copy_file(void *context, const char *name, struct error_text *err)
{
    struct copying *copying = context;
    struct stat info;
    int from, to, failure = 0;

    if (!storage_is_data(name))
        return HF_OK;
    from = openat(copying->source, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0 || fstat(from, &info) != 0)
        failure = errno;
    else if (!S_ISREG(info.st_mode))
        failure = EINVAL;
    to = failure
             ? -1
             : openat(copying->target->handle, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (!failure)
        failure = to < 0 ? errno : copy_bytes(from, to);
    if (from >= 0)
        close(from);
    if (to >= 0 && close(to) != 0 && !failure)
        failure = errno;
    copying->files++;
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot copy %s/%s to %s", copying->path, name,
                               copying->target->path);
    return HF_OK;
}

static int copy_all(const struct directory *source, const struct directory *target,
                    struct error_text *err)
{
    struct copying copying = {.source = source->handle, .path = source->path, .target = target};
    int result = directory_each(source, copy_file, &copying, err);

    if (result == HF_OK && copying.files == 0)
        result =
            error_set(err, HF_EREFUSED, "%s is no copy of a data directory: there is no log in it",
                      source->path);
    return result == HF_OK ? directory_sync(target, err) : result;
}

/* ---- what the copy has -------------------------------------------------------------------------- */

static int apply_entries(const struct loaded *loaded, struct core *table, struct error_text *err)
{
    int result = HF_OK;

    for (size_t i = 0; i < loaded->count && result == HF_OK; i++) {
        const struct raft_entry *entry = &loaded->entries[i];

        if (entry->type == RAFT_COMMAND && loaded->first + i > loaded->image.index)
            result = core_apply(table, entry->buf.base, entry->buf.len, NULL, err);
    }
    return result;
}

static uint64_t add_tokens(uint64_t token, uint64_t count)
{
    return token > HF_TOKEN_MAX - count ? HF_TOKEN_MAX : token + count;
}

/* The table as of the end of the copy's log. */
static int load_table(const struct storage *storage, const struct restore_options *options,
                      struct core **ret_table, struct error_text *err)
{
    const struct loaded *loaded = &storage->loaded;
    unsigned char seed[16];
    struct core *table;
    int result = HF_OK;

    if (loaded->count == 0 && loaded->image.index == 0)
        return error_set(err, HF_EREFUSED, "there is no data in %s", options->source);
    options->random(seed, sizeof seed);
    table = core_new(seed);
    if (loaded->image.index > 0)
        result = core_restore(table, loaded->image.data.iov_base, loaded->image.data.iov_len, err);
    if (result == HF_OK)
        result = apply_entries(loaded, table, err);
    if (result == HF_OK) {
        *ret_table = table;
        return HF_OK;
    }
    core_free(table);
    return error_set(err, HF_EIO, "the data of %s cannot be applied", options->source);
}

/* What the copy knows. */
static struct restore_result look(const struct core *table, const struct restore_options *options)
{
    struct core_counts counts;
    struct restore_result found;

    core_count(table, &counts);
    found = (struct restore_result){
        .token = counts.last_token, .holds = counts.holds, .from = options->clock};
    if (counts.last_token > options->clock)
        found.from = add_tokens(counts.last_token, options->clock % (uint64_t)CORE_RESTORE_JUMP);
    found.next = add_tokens(found.from, CORE_RESTORE_JUMP);
    return found;
}

/* Another store, with other tokens, and without members. */
static int identify(struct core *table, const struct restore_options *options,
                    const struct restore_result *found, struct error_text *err)
{
    unsigned char id[16];
    struct core_command identity = {.op = CORE_IDENTITY,
                                    .flags = CORE_FORCE,
                                    .token = found->from,
                                    .result = {(const char *)id, sizeof id}};
    struct core_packer packer = {0};
    size_t size;
    void *entry;
    int result;

    options->random(id, sizeof id);
    INVARIANT(core_pack(&packer, &identity) != CORE_NOT_PACKED);
    core_packer_finish(&packer, 0, false, 0, 0);
    entry = core_packer_take(&packer, &size);
    core_packer_free(&packer);
    result = core_apply(table, entry, size, NULL, err);
    free(entry);
    return result;
}

/* ---- what is written ---------------------------------------------------------------------------- */

static int encode_members(const struct restore_options *options, const char *life,
                          struct raft_buffer *ret_buffer, struct error_text *err)
{
    struct raft_configuration members;
    char identity[IDENTITY_MAX + 1];
    int failure;

    raft_configuration_init(&members);
    identity_write(options->address, life, identity);
    failure = raft_configuration_add(&members, options->id, identity, RAFT_VOTER);
    if (failure == 0)
        failure = raft_configuration_encode(&members, ret_buffer);
    raft_configuration_close(&members);
    return failure == 0 ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");
}

/* The table and the one member, as a snapshot behind all that the copy has; then the copy's own go. */
static int replace_log(struct storage *storage, const struct restore_options *options,
                       const char *life, struct core *table, struct error_text *err)
{
    struct raft_buffer members;
    struct image image = {
        .index = storage->next, .term = storage->term.number, .configuration_index = storage->next};
    int result = encode_members(options, life, &members, err);

    if (result != HF_OK)
        return result;
    core_snapshot_begin(table);
    while (!core_snapshot_step(table, COPY_BYTES))
        ;
    image.configuration = (struct iovec){members.base, members.len};
    image.data.iov_base = core_snapshot_end(table, &image.data.iov_len);
    result = image_write(&storage->directory, &image, err);
    if (result == HF_OK)
        result = journal_reset(storage->journal, err);
    free(image.data.iov_base);
    raft_free(members.base);
    return result;
}

static int write_node(struct storage *storage, const struct restore_options *options,
                      const char *life, const struct restore_result *found, struct error_text *err)
{
    struct node_file file = {.there = true, .id = options->id, .how = NODE_MEMBER};
    unsigned char bytes[FOUNDING_CLUSTER / 2];

    snprintf(file.life, sizeof file.life, "%s", life);
    options->random(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, file.cluster);
    if (options->address[0])
        snprintf(file.members, sizeof file.members, "%" PRIu64 "=%s", options->id,
                 options->address);
    snprintf(file.restored, sizeof file.restored, "%s, after token %" PRIu64, options->when,
             found->token);
    return node_file_write(&storage->directory, &file, err);
}

static int make_another(struct storage *storage, const struct restore_options *options,
                        struct restore_result *ret_result, struct error_text *err)
{
    unsigned char bytes[FOUNDING_LIFE / 2];
    char life[FOUNDING_LIFE + 1];
    struct core *table;
    int result = load_table(storage, options, &table, err);

    if (result != HF_OK)
        return result;
    options->random(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, life);
    *ret_result = look(table, options);
    result = identify(table, options, ret_result, err);
    if (result == HF_OK)
        result = term_store(&storage->directory, &storage->term, storage->term.number + 1, 0, err);
    if (result == HF_OK)
        result = replace_log(storage, options, life, table, err);
    core_free(table);
    if (result == HF_OK)
        result = write_node(storage, options, life, ret_result, err);
    return result == HF_OK ? unmark(&storage->directory, err) : result;
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static int change(const struct restore_options *options, struct restore_result *ret_result,
                  struct error_text *err)
{
    struct storage_options how = {
        .path = options->target, .restoring = true, .read_as = options->source};
    struct storage *storage;
    uv_loop_t loop;
    bool closed = false;
    int result;

    INVARIANT(uv_loop_init(&loop) == 0);
    result = storage_open(&loop, &how, &storage, err);
    if (result == HF_OK) {
        result = make_another(storage, options, ret_result, err);
        storage_close(storage, on_closed, &closed);
        while (!closed)
            uv_run(&loop, UV_RUN_ONCE);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return result;
}

/* It did not succeed: leaves the directory as it was, as far as that can be done. The lock goes last, and only if
 * it came with us: somebody else may be about to take it. */
static void tidy(const char *path, struct place before)
{
    struct directory target;
    struct error_text err;
    bool marked;

    if (directory_open(path, &target, &err) != HF_OK)
        return;
    marked = directory_has(&target, RESTORE_MARK);
    if (!marked || directory_each(&target, remove_file, &target, &err) == HF_OK) {
        if (marked)
            unmark(&target, &err);
        if (!before.locked)
            (void)directory_remove(&target, DIRECTORY_LOCK, &err);
        if (!before.there)
            rmdir(target.path);
    }
    directory_close(&target);
}

/* Whoever restores a backup needs no advice to restore a backup. */
static void drop_advice(struct error_text *err)
{
    char *advice = strstr(err->text, ": restore ");

    if (advice && strstr(advice, "from a backup"))
        snprintf(advice, sizeof err->text - (size_t)(advice - err->text), ": take another backup");
}

static int restore_into(const struct restore_options *options, const struct directory *source,
                        struct restore_result *ret_result, struct error_text *err)
{
    struct place before = look_at(options->target);
    struct directory target;
    int result = open_target(options->target, &target, err);

    if (result == HF_OK) {
        result = copy_all(source, &target, err);
        directory_close(&target); /* the mark keeps others from using it */
        if (result == HF_OK)
            result = change(options, ret_result, err);
    }
    if (result != HF_OK) {
        tidy(options->target, before);
        drop_advice(err);
    }
    return result;
}

int restore_directory(const struct restore_options *options, struct restore_result *ret_result,
                      struct error_text *err)
{
    struct directory source;
    int result = open_source(options->source, &source, err);

    if (result != HF_OK)
        return result;
    result = check_apart(options, err);
    if (result == HF_OK)
        result = restore_into(options, &source, ret_result, err);
    directory_close(&source);
    return result;
}
