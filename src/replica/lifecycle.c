/* lifecycle.c: a replica from what is on disk, to its end. */
#include "base/crc32c.h"
#include "base/switches.h"
#include "replica/inside.h"

#include <inttypes.h>
#include <stdlib.h>

#define FOUND_ON_DISK 1 /* the number of the append that has brought what was recovered */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15u;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* ---- beginning -------------------------------------------------------------------------------- */

static int use_snapshot(struct replica *replica, const struct replica_snapshot *snapshot,
                        struct error_text *err)
{
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX];
    struct replica_config again;

    if (snapshot->config.count < 1 || snapshot->config.count > (int)REPLICA_MEMBERS_MAX ||
        snapshot->config.index > snapshot->id.index || snapshot->id.term == 0 ||
        !replica_config_read(bytes, replica_config_write(&snapshot->config, bytes), &again))
        return error_set(err, HF_EIO, "the snapshot's members cannot be");
    if (version_use(replica, snapshot->version, err) != HF_OK)
        return HF_EIO;
    if (core_restore(replica->table, snapshot->table, snapshot->table_size, err) != HF_OK)
        return HF_EIO;
    log_reset(&replica->log, &snapshot->id);
    replica->applied = replica->snapshots.stored = snapshot->id;
    replica->snapshots.last_size = snapshot->table_size;
    replica->known_commit = snapshot->id.index;
    replica->members.applied = snapshot->config;
    memcpy(replica->cluster, snapshot->cluster, REPLICA_CLUSTER);
    replica->has_cluster = true;
    replica->log_fits = false;
    return HF_OK;
}

int replica_new(const struct replica_options *options, const struct replica_io *io,
                const struct replica_host *host, const struct replica_boot *boot,
                struct replica **ret_replica, struct error_text *err)
{
    struct replica *replica = replica_realloc(NULL, sizeof *replica);
    uint64_t state = options->seed, seeds[2];
    int result;

    memset(replica, 0, sizeof *replica);
    replica->options = *options;
    replica->io = *io;
    replica->host = *host;
    replica->role = REPLICA_FOLLOWING;
    replica->now_us = boot->now_us;
    replica->schedule.command_us = boot->now_us;
    replica->stored_term = boot->term;
    replica->stored_vote = boot->vote;
    replica->write_number = replica->log.written = FOUND_ON_DISK;
    schedule_limits(replica);
    seeds[0] = splitmix(&state);
    seeds[1] = splitmix(&state);
    memcpy(replica->hash_seed, seeds, sizeof replica->hash_seed);
    replica->table = core_new(replica->hash_seed);
    replica->log_fits = true;
    result = version_begin(replica, err);
    if (result == HF_OK && boot->snapshot && boot->snapshot->id.index > 0)
        result = use_snapshot(replica, boot->snapshot, err);
    if (result != HF_OK) {
        replica_free(replica);
        return result;
    }
    *ret_replica = replica;
    return HF_OK;
}

/* ---- recovery --------------------------------------------------------------------------------- */

static bool follows(const struct journal_record *record, const struct raft_id *before)
{
    return record->term >= before->term &&
           record->chain == raft_chain(before->chain, record->term, record->type,
                                       (uint32_t)record->size,
                                       crc32c(0, record->bytes, record->size));
}

static bool is_sound(const struct replica *replica, const struct journal_record *record)
{
    struct raft_id before;
    struct replica_config config;

    return record->size <= MESSAGE_ENTRY_MAX && log_id(&replica->log, record->index - 1, &before) &&
           follows(record, &before) &&
           (record->type == RAFT_COMMAND || record->type == RAFT_FIRST_OF_TERM ||
            (record->type == RAFT_VERSION && version_of_entry(record->bytes, record->size)) ||
            (record->type == RAFT_CONFIG &&
             replica_config_read(record->bytes, record->size, &config)));
}

static int recover_entry(struct replica *replica, const struct journal_record *record,
                         struct error_text *err)
{
    struct raft_entry entry = {.term = record->term,
                               .chain = record->chain,
                               .size = (uint32_t)record->size,
                               .sum = crc32c(0, record->bytes, record->size),
                               .type = record->type};
    unsigned char *bytes;

    if (record->index > replica->log.last + 1 || record->index <= replica->applied.index)
        return error_set(err, HF_EIO,
                         "entry %" PRIu64 " of the log is missing, or was replaced though it was "
                         "committed: restore the directory from a backup, or replace this node",
                         record->index);
    log_cut(&replica->log, record->index);
    if (!is_sound(replica, record))
        return error_set(err, HF_EIO,
                         "entry %" PRIu64 " of the log does not follow the one before it: restore "
                         "the directory from a backup, or replace this node",
                         record->index);
    bytes = record->size ? replica_realloc(NULL, record->size) : NULL;
    if (bytes)
        memcpy(bytes, record->bytes, record->size);
    log_add(&replica->log, &entry, bytes);
    log_at(&replica->log, replica->log.last)->write = FOUND_ON_DISK;
    if (record->commit > replica->known_commit)
        replica->known_commit = record->commit;
    apply_all(replica);
    log_shrink(&replica->log, replica->applied.index, replica->options.memory_bytes);
    return is_stopped(replica) ? error_set(err, HF_EIO, "%s", replica->trouble.text) : HF_OK;
}

/* The log belongs to the snapshot if it holds the snapshot's entry, or begins behind it: what is above goes on from there. */
int replica_recover(struct replica *replica, const struct journal_record *record,
                    struct error_text *err)
{
    const struct raft_id *snapshot = &replica->snapshots.stored;

    INVARIANT(!replica->raft);
    if (!replica->log_begun && record->index > snapshot->index + 1)
        return error_set(err, HF_EIO,
                         "entries %" PRIu64 " to %" PRIu64 " of the log are missing: restore the "
                         "directory from a backup, or replace this node",
                         snapshot->index + 1, record->index - 1);
    replica->log_begun = true;
    if (record->index > snapshot->index) {
        if (record->index == snapshot->index + 1 && !replica->log_fits)
            replica->log_fits = follows(record, snapshot) && !SWITCHED(SWITCH_LOG_BEHIND_SNAPSHOT);
        return replica->log_fits ? recover_entry(replica, record, err) : HF_OK;
    }
    if (replica->applied.index > snapshot->index)
        return error_set(err, HF_EIO,
                         "entry %" PRIu64 " of the log was replaced though it was committed: "
                         "restore the directory from a backup, or replace this node",
                         record->index);
    log_cut(&replica->log, snapshot->index + 1);
    replica->log_fits = record->index == snapshot->index && record->term == snapshot->term &&
                        record->chain == snapshot->chain;
    return HF_OK;
}

void replica_members_found(const struct replica *replica, struct replica_config *ret_config)
{
    INVARIANT(!replica->raft);
    for (uint64_t i = replica->log.last; i > replica->applied.index; i--) {
        const struct log_entry *entry = log_at(&replica->log, i);

        if (entry->type != RAFT_CONFIG)
            continue;
        INVARIANT(replica_config_read(entry->bytes, entry->size, ret_config));
        ret_config->index = i;
        return;
    }
    *ret_config = replica->members.applied;
}

struct core *replica_salvage(struct replica *replica, struct raft_id *ret_last,
                             uint32_t *ret_version)
{
    struct core *table = NULL;

    INVARIANT(!replica->raft);
    replica->known_commit = replica->log.last;
    apply_all(replica);
    if (!is_stopped(replica)) {
        table = replica->table;
        replica->table = NULL;
        *ret_last = replica->applied;
        *ret_version = replica->versions.now;
    }
    replica_free(replica);
    return table;
}

bool replica_boot_raft(struct replica *replica, const struct raft_id *base, uint64_t commit,
                       bool writing)
{
    struct raft_members members = {0};
    struct raft_boot boot = {.id = replica->options.id,
                             .incarnation = replica->options.incarnation,
                             .term = replica->stored_term,
                             .vote = replica->stored_vote,
                             .snapshot = *base,
                             .members = base->index > 0 ? &members : NULL,
                             .commit = commit,
                             .writing = writing,
                             .seed = replica->options.seed ^ replica->options.id,
                             .now_us = replica->now_us};

    members_to_raft(&replica->members.applied, &members);
    if (raft_boot_check(&replica->limits, &boot))
        return false;
    members_set(replica, &replica->members.applied);
    replica->raft = replica_realloc(replica->raft, raft_size(&replica->limits));
    raft_init(replica->raft, &replica->limits, &boot);
    for (uint64_t i = base->index + 1; i <= replica->log.last; i++) {
        const struct log_entry *found = log_at(&replica->log, i);
        struct raft_entry entry = {.term = found->term,
                                   .chain = found->chain,
                                   .size = found->size,
                                   .sum = found->sum,
                                   .type = found->type,
                                   .bytes = found->bytes};

        if (!raft_recover(replica->raft, &entry))
            return false;
        if (entry.type == RAFT_CONFIG)
            members_push(replica, i, entry.bytes, entry.size);
    }
    return true;
}

int replica_start(struct replica *replica, int64_t now_us, struct error_text *err)
{
    if (now_us > replica->now_us)
        replica->now_us = now_us;
    if (!replica->log_fits) {
        log_reset(&replica->log, &replica->snapshots.stored);
        if (replica->io.reset_log(replica->io.context, err) != HF_OK)
            return HF_EIO;
    }
    if (!replica_boot_raft(replica, &replica->applied, replica->applied.index, false))
        return error_set(err, HF_EIO,
                         "the log or the snapshot is of a later term than this node has stored, or "
                         "more is not committed than can be: restore the directory from a backup, "
                         "or replace this node");
    replica->live = true;
    replica->members.told = replica->members.version;
    return HF_OK;
}

void replica_end(struct replica *replica)
{
    if (is_stopped(replica))
        return;
    replica->role = REPLICA_STOPPED;
    propose_fail(replica);
    changes_fail(replica, true);
}

void replica_fail(struct replica *replica, const char *why)
{
    replica_stop(replica, "%s", why);
}

void replica_free(struct replica *replica)
{
    replica_end(replica);
    snapshots_free(replica);
    install_free(replica);
    propose_free(replica);
    log_free(&replica->log);
    core_free(replica->table);
    free(replica->writes);
    free(replica->records);
    free(replica->raft);
    free(replica);
}
