#include "node/restore.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "journal/text_file.h"
#include "node/backup.h"
#include "node/backup_image.h"
#include "node/node_file.h"
#include "node/recovery.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_BYTES ((size_t)1 << 20) /* of the table, at a time */

/* ---- which files -------------------------------------------------------------------------------- */

static int expect_nothing(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (files_is_nothing(name))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is not empty (there is %s): a backup is restored into an empty directory",
                     directory->path, name);
}

static int remove_file(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (files_is_nothing(name) || strcmp(name, FILES_RESTORING) == 0)
        return HF_OK;
    if (!files_is_data(name) && strcmp(name, FILES_NODE) != 0)
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

/* Empty, marked, and locked. */
static int open_target(const char *path, struct directory *ret_directory, struct error_text *err)
{
    char text[TEXT_FILE_MAX + 1];
    int result = directory_open(path, ret_directory, err);

    if (result != HF_OK)
        return result;
    result = text_file_read(ret_directory, FILES_RESTORING, text, err);
    if (result == HF_OK)
        result = directory_each(ret_directory, text[0] ? remove_file : expect_nothing,
                                ret_directory, err);
    if (result == HF_OK)
        result =
            text_file_write(ret_directory, FILES_RESTORING, "a backup is being restored\n", err);
    if (result != HF_OK)
        directory_close(ret_directory);
    return result;
}

static int unmark(const struct directory *directory, struct error_text *err)
{
    int result = directory_remove(directory, FILES_RESTORING, err);

    return result == HF_OK ? directory_sync(directory, err) : result;
}

/* ---- what the copy has -------------------------------------------------------------------------- */

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

/* What is wrong with a file is said of the backup: that is where somebody can do something about it. */
static int load(struct recovery *recovery, const struct restore_options *options,
                struct replica **ret_replica, struct error_text *err)
{
    const struct replica_io io = {0}; /* it is never started */
    const struct replica_host host = {.note = on_note};
    struct replica_options how = {.id = options->id};
    char path[sizeof recovery->directory.path];
    int result;

    options->random(&how.seed, sizeof how.seed);
    memcpy(path, recovery->directory.path, sizeof path);
    snprintf(recovery->directory.path, sizeof path, "%s", options->source);
    result = recovery_load(recovery, 0, &how, &io, &host, 0, ret_replica, err);
    memcpy(recovery->directory.path, path, sizeof path);
    return result;
}

struct end { /* of the copy's log */
    struct raft_id last;
    uint32_t version; /* of the formats that it is written in */
};

/* The table as of the end of the copy's log, and that end. */
static int load_table(struct recovery *recovery, const struct restore_options *options,
                      struct core **ret_table, struct end *ret_end, struct error_text *err)
{
    struct replica_config members;
    struct replica *replica;
    int result = load(recovery, options, &replica, err);

    if (result != HF_OK)
        return result;
    replica_members_found(replica, &members);
    *ret_table = replica_salvage(replica, &ret_end->last, &ret_end->version);
    if (!*ret_table)
        return error_set(err, HF_EIO, "the data of %s cannot be applied: take another backup",
                         options->source);
    if (members.count > 0)
        return HF_OK;
    core_free(*ret_table);
    return error_set(err, HF_EREFUSED, "there is no data in %s", options->source);
}

/* What the copy knows. */
static struct restore_result look(const struct core *table, const struct restore_options *options)
{
    struct core_counts counts;

    core_count(table, &counts);
    return (struct restore_result){.token = counts.last_token,
                                   .next = core_restored_token(counts.last_token, options->clock),
                                   .holds = counts.holds};
}

/* Another store, with other tokens, and without members. */
static int identify(struct core *table, const struct restore_options *options,
                    struct error_text *err)
{
    unsigned char id[16];
    struct core_command identity = {.op = CORE_IDENTITY,
                                    .flags = CORE_FORCE,
                                    .token = options->clock,
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

struct drawn { /* of the restored store */
    unsigned char cluster[REPLICA_CLUSTER];
    uint64_t incarnation;
};

/* Behind all that the copy has, as if its last entry were this configuration. */
static struct replica_snapshot describe(const struct restore_options *options,
                                        const struct drawn *identity, uint64_t term,
                                        const struct end *end)
{
    struct replica_snapshot snapshot = {.id = {.index = end->last.index + 1, .term = term},
                                        .version = end->version};
    struct replica_member *member = &snapshot.config.at[0];
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX];
    size_t size;

    *member = (struct replica_member){
        .id = options->id, .incarnation = identity->incarnation, .votes = true};
    INVARIANT(strlen(options->address) <= REPLICA_ADDRESS_MAX);
    snprintf(member->address, sizeof member->address, "%s", options->address);
    snapshot.config.index = snapshot.id.index;
    snapshot.config.count = 1;
    memcpy(snapshot.cluster, identity->cluster, sizeof snapshot.cluster);
    size = replica_config_write(&snapshot.config, bytes);
    snapshot.id.chain =
        raft_chain(end->last.chain, term, RAFT_CONFIG, (uint32_t)size, crc32c(0, bytes, size));
    return snapshot;
}

/* The table and the one member, as a snapshot in a new term; then the copy's own log and snapshot go. */
static int replace_log(struct recovery *recovery, const struct restore_options *options,
                       const struct drawn *identity, const struct end *end, struct core *table,
                       struct error_text *err)
{
    uint64_t known =
        recovery->term.number > end->last.term ? recovery->term.number : end->last.term;
    uint64_t term = known + 1;
    struct replica_snapshot snapshot = describe(options, identity, term, end);
    void *bytes;
    int result = journal_begin(recovery->journal, err);

    if (result == HF_OK)
        result = term_store(&recovery->directory, &recovery->term, term, 0, err);
    if (result != HF_OK)
        return result;
    core_snapshot_begin(table);
    while (!core_snapshot_step(table, SLICE_BYTES))
        ;
    snapshot.table = bytes = core_snapshot_end(table, &snapshot.table_size);
    result = recovery_store_snapshot(recovery, &snapshot, true, err);
    free(bytes);
    return result;
}

static int write_node(const struct directory *directory, const struct restore_options *options,
                      const struct drawn *identity, const struct restore_result *found,
                      struct error_text *err)
{
    struct node_file file = {
        .there = true, .id = options->id, .incarnation = identity->incarnation, .how = NODE_MEMBER};

    text_hex(identity->cluster, sizeof identity->cluster, file.cluster);
    if (options->address[0])
        snprintf(file.members, sizeof file.members, "%" PRIu64 "=%s", options->id,
                 options->address);
    snprintf(file.restored, sizeof file.restored, "%s, after token %" PRIu64, options->when,
             found->token);
    return node_file_write(directory, &file, err);
}

static struct drawn draw_identity(const struct restore_options *options)
{
    struct drawn identity = {.incarnation = 0};

    options->random(identity.cluster, sizeof identity.cluster);
    while (identity.incarnation == 0) /* which is none */
        options->random(&identity.incarnation, sizeof identity.incarnation);
    return identity;
}

static int make_another(struct recovery *recovery, const struct restore_options *options,
                        struct restore_result *ret_result, struct error_text *err)
{
    const struct drawn identity = draw_identity(options);
    struct end end;
    struct core *table;
    int result = load_table(recovery, options, &table, &end, err);

    if (result != HF_OK)
        return result;
    *ret_result = look(table, options);
    if (ret_result->next == HF_TOKEN_MAX)
        result =
            error_set(err, HF_EREFUSED,
                      "the last token of %s is %" PRIu64
                      ", and what is restored from it could give none above: found a store anew",
                      options->source, ret_result->token);
    else
        result = identify(table, options, err);
    if (result == HF_OK)
        result = replace_log(recovery, options, &identity, &end, table, err);
    core_free(table);
    if (result == HF_OK)
        result = write_node(&recovery->directory, options, &identity, ret_result, err);
    return result == HF_OK ? unmark(&recovery->directory, err) : result;
}

static int change(const struct restore_options *options, struct restore_result *ret_result,
                  struct error_text *err)
{
    struct recovery recovery = {.open = false};
    int result = recovery_open_restoring(&recovery, disk_system(), options->target, err);

    if (result == HF_OK)
        result = make_another(&recovery, options, ret_result, err);
    recovery_close(&recovery);
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
    marked = directory_has(&target, FILES_RESTORING);
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

/* ---- the backup --------------------------------------------------------------------------------- */

struct source {
    bool is_file;               /* of 'holdfast cluster backup', */
    struct backup_image image;  /* which is this; */
    struct directory directory; /* or a copy of a data directory */
};

static int open_source(const struct restore_options *options, struct source *ret_source,
                       struct error_text *err)
{
    int result;

    *ret_source = (struct source){.is_file = backup_image_is_file(options->source)};
    if (ret_source->is_file)
        return backup_image_load(options->source, &ret_source->image, err);
    result = backup_open(options->source, &ret_source->directory, err);
    if (result != HF_OK)
        return result;
    result = backup_check_apart(options->source, options->target, err);
    if (result != HF_OK)
        directory_close(&ret_source->directory);
    return result;
}

static void close_source(struct source *source)
{
    if (source->is_file)
        backup_image_free(&source->image);
    else
        directory_close(&source->directory);
}

/* As a data directory that has been in use. An image may be large: it goes, before all of it is loaded from there. */
static int unpack(struct source *source, const struct directory *target, struct error_text *err)
{
    int result;

    if (!source->is_file)
        return backup_copy(&source->directory, target, err);
    result = backup_image_unpack(&source->image, target, err);
    backup_image_free(&source->image);
    return result;
}

/* Which node it is a copy of; 0: not known. */
static uint64_t node_of(const struct source *source)
{
    struct node_file node;
    struct error_text ignored;

    return !source->is_file && node_file_read(&source->directory, &node, &ignored) == HF_OK
               ? node.id
               : 0;
}

static int restore_into(const struct restore_options *options, struct source *source,
                        struct restore_result *ret_result, struct error_text *err)
{
    struct place before = look_at(options->target);
    struct directory target;
    int result = open_target(options->target, &target, err);

    if (result == HF_OK) {
        result = unpack(source, &target, err);
        directory_close(&target); /* the mark keeps others from using it */
        if (result == HF_OK)
            result = change(options, ret_result, err);
    }
    if (result == HF_OK)
        ret_result->id = node_of(source);
    if (result != HF_OK) {
        tidy(options->target, before);
        drop_advice(err);
    }
    return result;
}

int restore_directory(const struct restore_options *options, struct restore_result *ret_result,
                      struct error_text *err)
{
    struct source source;
    int result = open_source(options, &source, err);

    if (result != HF_OK)
        return result;
    result = restore_into(options, &source, ret_result, err);
    close_source(&source);
    return result;
}
