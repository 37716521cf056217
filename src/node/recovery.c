#include "node/recovery.h"

#include "base/switches.h"
#include "journal/snapshot_file.h"
#include "node/files.h"

#include <stdlib.h>
#include <string.h>

static int open_directory(struct recovery *recovery, const struct disk *disk, const char *path,
                          bool restoring, struct error_text *err)
{
    int result = directory_open_on(disk, path, &recovery->directory, err);

    if (result != HF_OK)
        return result;
    recovery->open = true;
    if (!restoring)
        result = files_check(&recovery->directory, err);
    return result == HF_OK ? term_load(&recovery->directory, &recovery->term, err) : result;
}

int recovery_open(struct recovery *recovery, const struct disk *disk, const char *path,
                  struct error_text *err)
{
    return open_directory(recovery, disk, path, false, err);
}

int recovery_open_restoring(struct recovery *recovery, const struct disk *disk, const char *path,
                            struct error_text *err)
{
    return open_directory(recovery, disk, path, true, err);
}

void recovery_close(struct recovery *recovery)
{
    if (recovery->journal)
        journal_close(recovery->journal);
    if (recovery->open)
        directory_close(&recovery->directory);
    memset(recovery, 0, sizeof *recovery);
}

/* ---- the snapshot: its head is what the file calls the configuration, its table the data ------ */

int recovery_store_snapshot(struct recovery *recovery, const struct replica_snapshot *snapshot,
                            bool drops_log, struct error_text *err)
{
    uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    struct snapshot_file file = {
        .index = snapshot->id.index,
        .term = snapshot->id.term,
        .configuration_index = snapshot->config.index,
        .configuration = {head, replica_snapshot_encode(snapshot, head)},
        .data = {(void *)(uintptr_t)snapshot->table, snapshot->table_size}};
    int result = snapshot_file_write(&recovery->directory, &file, err);

    if (result == HF_OK && drops_log)
        result = journal_reset(recovery->journal, err);
    return result;
}

int recovery_load_snapshot(const struct recovery *recovery, unsigned char **ret_bytes,
                           size_t *ret_size, struct error_text *err)
{
    struct snapshot_file file = {.index = 0};
    int result = snapshot_file_load(&recovery->directory, &file, err);
    unsigned char *bytes = NULL;

    if (result != HF_OK)
        return result;
    if (file.index > 0) {
        *ret_size = file.configuration.iov_len + file.data.iov_len;
        bytes = malloc(*ret_size);
        INVARIANT(bytes != NULL);
        memcpy(bytes, file.configuration.iov_base, file.configuration.iov_len);
        memcpy(bytes + file.configuration.iov_len, file.data.iov_base, file.data.iov_len);
    }
    snapshot_file_free(&file);
    *ret_bytes = bytes;
    return HF_OK;
}

/* ---- what cannot be used ---------------------------------------------------------------------- */

/* Holdfast's first logs were a library's, in the same files. That gave a snapshot's configuration in a form of its own, which began
 * with this byte, and no record had a chain. Files of that time are whole, and still nobody here can read them. */
#define FIRST_BYTE_THEN 1

static int refuse_old(const struct recovery *recovery, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s was written by an earlier version of holdfastd, which kept its log in "
                     "another form: start that version on it, or this one with an empty directory",
                     recovery->directory.path);
}

static int refuse_snapshot(const struct recovery *recovery, const unsigned char *bytes,
                           struct error_text *err)
{
    if (bytes[0] == FIRST_BYTE_THEN)
        return refuse_old(recovery, err);
    return error_set(err, HF_EIO,
                     "the snapshot in %s is damaged: restore the directory from a backup, or "
                     "replace this node",
                     recovery->directory.path);
}

/* The term is stored before anything that belongs to it. */
static int check_term(const struct recovery *recovery, const struct replica *replica,
                      struct error_text *err)
{
    struct replica_config members;

    if (recovery->term.known)
        return HF_OK;
    replica_members_found(replica, &members);
    if (members.count == 0)
        return HF_OK;
    return error_set(err, HF_EIO,
                     "%s holds a log, and its file 'term' is lost or damaged: restore it, or the "
                     "directory, from a backup",
                     recovery->directory.path);
}

/* ---- the replica ------------------------------------------------------------------------------ */

struct loading {
    const struct recovery *recovery;
    struct replica *replica;
};

static int on_record(void *context, const struct journal_record *record, struct error_text *err)
{
    const struct loading *loading = context;
    int result = replica_recover(loading->replica, record, err);

    if (result != HF_OK && record->chain == 0)
        return refuse_old(loading->recovery, err);
    return result;
}

/* From the snapshot, if there is one. */
static int make_replica(struct recovery *recovery, const struct replica_options *options,
                        const struct replica_io *io, const struct replica_host *host,
                        int64_t now_us, struct replica **ret_replica, struct error_text *err)
{
    struct replica_boot boot = {
        .term = recovery->term.number, .vote = recovery->term.vote, .now_us = now_us};
    struct replica_snapshot snapshot;
    unsigned char *bytes = NULL;
    size_t size = 0;
    int result = recovery_load_snapshot(recovery, &bytes, &size, err);

    if (result == HF_OK && bytes) {
        if (replica_snapshot_decode(bytes, size, &snapshot)) {
            boot.snapshot = &snapshot;
            recovery->snapshot_index = snapshot.id.index;
        } else {
            result = refuse_snapshot(recovery, bytes, err);
        }
    }
    if (result == HF_OK)
        result = replica_new(options, io, host, &boot, ret_replica, err);
    free(bytes);
    return result;
}

int recovery_load(struct recovery *recovery, size_t segment_bytes,
                  const struct replica_options *options, const struct replica_io *io,
                  const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                  struct error_text *err)
{
    struct loading loading = {.recovery = recovery};
    int result = make_replica(recovery, options, io, host, now_us, &loading.replica, err);

    if (result != HF_OK)
        return result;
    result = journal_open(&recovery->directory, segment_bytes, on_record, &loading,
                          &recovery->journal, err);
    if (result == HF_OK)
        result = check_term(recovery, loading.replica, err);
    if (result == HF_OK)
        *ret_replica = loading.replica;
    else
        replica_free(loading.replica);
    return result;
}

int recovery_begin(struct recovery *recovery, struct replica *replica, int64_t now_us,
                   struct error_text *err)
{
    const struct snapshot_file newest = {.index = recovery->snapshot_index};
    int result =
        snapshot_file_clean(&recovery->directory, &newest, err); /* what a crash has left */

    if (result == HF_OK)
        result = journal_begin(recovery->journal, err);
    if (result == HF_OK && !SWITCHED(SWITCH_TERM_ONCE))
        result = term_mend(&recovery->directory, &recovery->term, err);
    return result == HF_OK ? replica_start(replica, now_us, err) : result;
}

int recovery_replica(struct recovery *recovery, size_t segment_bytes,
                     const struct replica_options *options, const struct replica_io *io,
                     const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                     struct error_text *err)
{
    struct replica *replica;
    int result = recovery_load(recovery, segment_bytes, options, io, host, now_us, &replica, err);

    if (result != HF_OK)
        return result;
    result = recovery_begin(recovery, replica, now_us, err);
    if (result == HF_OK)
        *ret_replica = replica;
    else
        replica_free(replica);
    return result;
}
