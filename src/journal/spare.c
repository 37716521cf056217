/* spare.c: segments are made in advance: full of zeros, durable, and so is their name. */
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/inside.h"

#include <errno.h>
#include <stdlib.h>

#define ZEROS_AT_ONCE ((size_t)256 << 10) /* so that appends get their turn meanwhile */

bool journal_wants_spare(const struct journal *journal)
{
    return journal->spare.file < 0 && !journal->making;
}

/* A young log has small ones: to fill them is most of what a new node writes. */
static size_t bytes_of(const struct journal *journal, uint64_t number)
{
    size_t bytes = JOURNAL_FIRST_BYTES;

    for (uint64_t i = 1; i < number && bytes < journal->segment_bytes; i++)
        bytes *= 2;
    return bytes < journal->segment_bytes ? bytes : journal->segment_bytes;
}

struct journal_spare journal_spare_begin(struct journal *journal)
{
    uint64_t number = journal->next_number++;

    journal->making = true;
    return (struct journal_spare){.directory = journal->directory,
                                  .number = number,
                                  .bytes = bytes_of(journal, number),
                                  .file = -1};
}

void salt_write(unsigned char *block, uint64_t salt, uint64_t number, uint64_t made)
{
    put_u64(block + SALT_AT, salt);
    put_u64(block + SALT_AT + 8, number);
    put_u64(block + SALT_AT + 16, made);
    put_u32(block + SALT_AT + SALT_SUMMED, crc32c(0, block + SALT_AT, SALT_SUMMED));
}

/* With zeros, but for the salt. */
static int fill(const struct disk *disk, const struct journal_spare *spare)
{
    static _Alignas(BLOCK) unsigned char zeros[ZEROS_AT_ONCE]; /* nobody writes there */
    const size_t bytes = spare->bytes;
    unsigned char *block = blocks_new(BLOCK);
    int failure = block ? disk->make_room(disk, spare->file, bytes) : ENOMEM;

    for (size_t at = 0; at < bytes && !failure; at += ZEROS_AT_ONCE)
        failure = disk->write(disk, spare->file, zeros,
                              bytes - at < ZEROS_AT_ONCE ? bytes - at : ZEROS_AT_ONCE, at, true);
    if (!failure) {
        salt_write(block, spare->salt, spare->number, bytes);
        failure = disk->write(disk, spare->file, block, BLOCK, 0, true);
    }
    free(block);
    return failure;
}

void journal_spare_make(struct journal_spare *spare)
{
    char name[SEGMENT_NAME_SIZE];
    const struct disk *disk = spare->directory->disk;
    const int directory = spare->directory->handle;
    int failure;

    segment_name(spare->number, name);
    failure = disk->open(disk, directory, name, DISK_EMPTIED_DIRECT, &spare->file);
    disk->random(disk, &spare->salt, sizeof spare->salt);
    if (!failure)
        failure = fill(disk, spare);
    if (!failure)
        failure = disk->sync(disk, spare->file);
    if (!failure && !SWITCHED(SWITCH_SEGMENT_UNNAMED))
        failure = disk->sync_directory(disk, directory);
    if (!failure)
        return;
    if (spare->file >= 0) {
        disk->close(disk, spare->file);
        spare->file = -1;
        disk->remove(disk, directory, name, false);
    }
    error_set_errno(&spare->failure, HF_EIO, failure, "no room for %zu bytes in %s", spare->bytes,
                    spare->directory->path);
}

void journal_spare_end(struct journal *journal, struct journal_spare *spare)
{
    journal->making = false;
    journal->spare = *spare;
}
