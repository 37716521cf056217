#include "replica_libraft/message.h"
#include "replica_libraft/storing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOADED_BLOCK ((size_t)1 << 20)

/* ---- what is there ---------------------------------------------------------------------------- */

/* Entries lie in blocks, which libraft calls batches. When it forgets an entry, it looks through all others for one that
 * is of the same batch, and finds that at once unless it was the last: with a batch to each entry, to forget a long log would
 * take it seconds. */
static void forget_from(struct loaded *loaded, raft_index index)
{
    while (loaded->count > 0 && loaded->first + loaded->count > index) {
        void *block = loaded->entries[--loaded->count].batch;

        if (loaded->count > 0 && loaded->entries[loaded->count - 1].batch == block)
            continue;
        if (block == loaded->block)
            loaded->block = NULL;
        free(block);
    }
}

static void *room_for(struct loaded *loaded, size_t size)
{
    size = (size + 7) / 8 * 8;
    if (!loaded->block || loaded->used + size > loaded->room) {
        loaded->room = size > LOADED_BLOCK ? size : LOADED_BLOCK;
        loaded->used = 0;
        loaded->block = malloc(loaded->room);
        if (!loaded->block)
            return NULL;
    }
    loaded->used += size;
    return loaded->block + loaded->used - size;
}

static int keep_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct loaded *loaded = context;
    void *bytes;

    forget_from(loaded, record->index);
    if (loaded->count == 0)
        loaded->first = record->index;
    loaded->entries =
        storage_grown(loaded->entries, &loaded->capacity, loaded->count, sizeof *loaded->entries);
    bytes = room_for(loaded, record->size);
    if (!bytes)
        return error_set(err, HF_ENOMEM, "no memory for the log");
    if (record->size > 0)
        memcpy(bytes, record->bytes, record->size);
    loaded->entries[loaded->count++] = (struct raft_entry){.term = record->term,
                                                           .type = record->type,
                                                           .buf = {bytes, record->size},
                                                           .batch = loaded->block};
    return HF_OK;
}

/* Does the log go on where the snapshot ends? One from another node may have come instead of the log, and
 * then the crash before the log was removed. */
static bool log_fits(const struct loaded *loaded)
{
    const struct image *image = &loaded->image;

    if (image->index < loaded->first)
        return true;
    if (image->index >= loaded->first + loaded->count)
        return false;
    return loaded->entries[image->index - loaded->first].term == image->term;
}

static int check_loaded(struct storage *storage, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    uint64_t begin = loaded->image.index + 1;

    if ((loaded->count > 0 || loaded->image.index > 0) && !storage->term.known)
        return error_set(
            err, HF_EIO,
            "%s holds a log, and its file 'term' is lost or damaged: restore it, or the "
            "directory, from a backup",
            storage->directory.path);
    if (loaded->count > 0 && loaded->first > begin)
        return error_set(err, HF_EIO,
                         "entries %" PRIu64 " to %" PRIu64
                         " are missing in %s: restore the directory from a backup",
                         begin, (uint64_t)loaded->first - 1, storage->directory.path);
    return HF_OK;
}

static int begin_anew(struct storage *storage, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    int result = journal_begin(storage->journal, err);

    if (result == HF_OK && loaded->count > 0 && !log_fits(loaded)) {
        forget_from(loaded, 0);
        result = journal_reset(storage->journal, err);
    }
    if (result == HF_OK)
        result = image_clean(&storage->directory, &loaded->image, err);
    return result;
}

static int read_all(struct storage *storage, size_t segment_bytes, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    int result = term_load(&storage->directory, &storage->term, err);

    if (result == HF_OK)
        result = image_load(&storage->directory, &loaded->image, err);
    if (result == HF_OK)
        result = journal_open(&storage->directory, segment_bytes, keep_record, loaded,
                              &storage->journal, err);
    return result == HF_OK ? check_loaded(storage, err) : result;
}

int loading_read(struct storage *storage, const struct storage_options *options,
                 struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    char path[sizeof storage->directory
                  .path]; /* files are found by descriptors: it is for messages */
    int result;

    memcpy(path, storage->directory.path, sizeof path);
    if (options->read_as)
        snprintf(storage->directory.path, sizeof path, "%s", options->read_as);
    result = read_all(storage, options->segment_bytes, err);
    memcpy(storage->directory.path, path, sizeof path);
    if (result == HF_OK)
        result = begin_anew(storage, err);
    if (loaded->count == 0)
        loaded->first = loaded->image.index + 1;
    storage->next = loaded->first + loaded->count;
    return result;
}

int loading_on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                    struct raft_snapshot **ret_snapshot, raft_index *ret_start_index,
                    struct raft_entry *ret_entries[], size_t *ret_count)
{
    struct storage *storage = storage_of(io);
    struct loaded *loaded = &storage->loaded;

    *ret_snapshot = NULL;
    if (loaded->image.index > 0) {
        int result = image_to_snapshot(&loaded->image, ret_snapshot);

        if (result != 0)
            return storage_say(storage, result,
                               &(struct error_text){"the snapshot names no members"});
        image_free(&loaded->image);
    }
    *ret_term = storage->term.number;
    *ret_voted_for = storage->term.vote;
    *ret_start_index = loaded->first;
    *ret_entries = loaded->count > 0 ? loaded->entries : NULL;
    *ret_count = loaded->count;
    if (loaded->count == 0)
        free(loaded->entries);
    *loaded = (struct loaded){0};
    return 0;
}

/* ---- term and vote ---------------------------------------------------------------------------- */

/* libraft stores the term again with each vote that it gives, also when a lost answer is asked for once more: the vote of that
 * term stays on disk meanwhile, for the process may die before it is stored again. */
static int store_term(struct storage *storage, raft_term term, raft_id vote)
{
    struct error_text err;

    if (storage->term.known && storage->term.number == term && storage->term.vote == vote)
        return 0;
    if (term_store(&storage->directory, &storage->term, term, vote, &err) != HF_OK)
        return storage_say(storage, RAFT_IOERR, &err);
    return 0;
}

int loading_on_set_term(struct raft_io *io, raft_term term)
{
    struct storage *storage = storage_of(io);

    return store_term(storage, term, term == storage->term.number ? storage->term.vote : 0);
}

int loading_on_set_vote(struct raft_io *io, raft_id id)
{
    struct storage *storage = storage_of(io);

    return store_term(storage, storage->term.number, id);
}

/* A founding that was interrupted after the term was stored begins again. */
static bool is_new(const struct storage *storage)
{
    return storage->loaded.count == 0 && storage->loaded.image.index == 0 &&
           storage->term.number <= 1 && storage->term.vote == 0;
}

/* Before anything else is appended. */
static int append_entry(struct storage *storage, raft_index index, raft_term term,
                        enum raft_entry_type type, const struct raft_buffer *buffer,
                        struct error_text *err)
{
    struct journal_record record = {
        .index = index, .term = term, .type = (uint8_t)type, buffer->base, buffer->len};
    struct journal_spare spare;
    int result;

    if (journal_wants_spare(storage->journal)) {
        spare = journal_spare_begin(storage->journal);
        journal_spare_make(&spare);
        journal_spare_end(storage->journal, &spare);
    }
    result = journal_append(storage->journal, &record, 1, err);
    if (result == HF_OK)
        result = keep_record(&storage->loaded, &record, err);
    storage->next = index + 1;
    return result;
}

static int found(struct storage *storage, const struct raft_buffer *configuration,
                 struct error_text *err)
{
    int result = term_store(&storage->directory, &storage->term, 1, 0, err);

    return result == HF_OK ? append_entry(storage, 1, 1, RAFT_CHANGE, configuration, err) : result;
}

int loading_on_bootstrap(struct raft_io *io, const struct raft_configuration *members)
{
    struct storage *storage = storage_of(io);
    struct raft_buffer configuration;
    struct error_text err = {""};
    int result;

    if (!is_new(storage))
        return RAFT_CANTBOOTSTRAP;
    if (raft_configuration_encode(members, &configuration) != 0)
        return RAFT_NOMEM;
    result = found(storage, &configuration, &err);
    raft_free(configuration.base);
    return result == HF_OK ? 0 : storage_say(storage, RAFT_IOERR, &err);
}

int loading_on_recover(struct raft_io *io, const struct raft_configuration *members)
{
    (void)members;
    return storage_say(storage_of(io), RAFT_INVALID, &(struct error_text){"not by this way"});
}

/* ---- members ---------------------------------------------------------------------------------- */

static int decode_members(const void *bytes, size_t size, struct raft_configuration *ret_members,
                          struct error_text *err)
{
    struct raft_buffer buffer = {(void *)(uintptr_t)bytes, size};

    if (!message_is_configuration(bytes, size) ||
        raft_configuration_decode(&buffer, ret_members) != 0)
        return error_set(err, HF_EIO, "the members in the log cannot be read");
    return HF_OK;
}

int loading_members(struct storage *storage, struct raft_configuration *ret_members,
                    struct error_text *err)
{
    const struct loaded *loaded = &storage->loaded;

    raft_configuration_init(ret_members);
    for (size_t i = loaded->count; i-- > 0;) {
        const struct raft_entry *entry = &loaded->entries[i];

        if (entry->type == RAFT_CHANGE)
            return decode_members(entry->buf.base, entry->buf.len, ret_members, err);
    }
    if (loaded->image.index == 0)
        return HF_OK;
    return decode_members(loaded->image.configuration.iov_base, loaded->image.configuration.iov_len,
                          ret_members, err);
}

int loading_replace_members(struct storage *storage, const struct raft_configuration *members,
                            struct error_text *err)
{
    struct raft_buffer configuration;
    int result;

    if (raft_configuration_encode(members, &configuration) != 0)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = append_entry(storage, storage->next, storage->term.number, RAFT_CHANGE, &configuration,
                          err);
    raft_free(configuration.base);
    return result;
}

void loading_forget(struct storage *storage)
{
    forget_from(&storage->loaded, 0);
    free(storage->loaded.entries);
    image_free(&storage->loaded.image);
}
