#include "node/recovery.h"

#include "journal/image.h"

#include <stdlib.h>
#include <string.h>

int recovery_open(struct recovery *recovery, const struct disk *disk, const char *path,
                  struct error_text *err)
{
    int result = directory_open_on(disk, path, &recovery->directory, err);

    if (result != HF_OK)
        return result;
    recovery->open = true;
    return term_load(&recovery->directory, &recovery->term, err);
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

int recovery_store_image(struct recovery *recovery, const struct replica_image *image,
                         bool drops_log, struct error_text *err)
{
    uint8_t head[REPLICA_IMAGE_HEAD_MAX];
    struct image file = {.index = image->id.index,
                         .term = image->id.term,
                         .configuration_index = image->config.index,
                         .configuration = {head, replica_image_encode(image, head)},
                         .data = {(void *)(uintptr_t)image->table, image->table_size}};
    int result = image_write(&recovery->directory, &file, err);

    if (result == HF_OK && drops_log)
        result = journal_reset(recovery->journal, err);
    return result;
}

int recovery_load_image(const struct recovery *recovery, unsigned char **ret_bytes,
                        size_t *ret_size, struct error_text *err)
{
    struct image file = {.index = 0};
    int result = image_load(&recovery->directory, &file, err);
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
    image_free(&file);
    *ret_bytes = bytes;
    return HF_OK;
}

/* ---- the replica ------------------------------------------------------------------------------ */

static int on_record(void *context, const struct journal_record *record, struct error_text *err)
{
    return replica_recover(context, record, err);
}

int recovery_replica(struct recovery *recovery, size_t segment_bytes,
                     const struct replica_options *options, const struct replica_io *io,
                     const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                     struct error_text *err)
{
    struct replica_boot boot = {
        .term = recovery->term.number, .vote = recovery->term.vote, .now_us = now_us};
    struct replica_image image;
    struct replica *replica = NULL;
    unsigned char *bytes = NULL;
    size_t size = 0;
    struct image newest = {.index = 0};
    int result = recovery_load_image(recovery, &bytes, &size, err);

    if (result == HF_OK && bytes) {
        boot.image = &image;
        if (!replica_image_decode(bytes, size, &image))
            result = error_set(err, HF_EIO,
                               "the snapshot in %s is damaged: restore the directory from a "
                               "backup, or replace this node",
                               recovery->directory.path);
        else
            newest.index = image.id.index;
    }
    if (result == HF_OK) /* what an interrupted one has left */
        result = image_clean(&recovery->directory, &newest, err);
    if (result == HF_OK)
        result = replica_new(options, io, host, &boot, &replica, err);
    free(bytes);
    if (result == HF_OK)
        result = journal_open(&recovery->directory, segment_bytes, on_record, replica,
                              &recovery->journal, err);
    if (result == HF_OK)
        result = journal_begin(recovery->journal, err);
    if (result == HF_OK)
        result = replica_start(replica, now_us, err);
    if (result != HF_OK && replica)
        replica_free(replica);
    else
        *ret_replica = replica;
    return result;
}
