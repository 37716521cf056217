#include "journal/term.h"
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/bytes.h"

#include <errno.h>
#include <stdlib.h>

/* A copy: magic, version (the higher is the newer), term, vote: numbers of 8 bytes; then 4 of checksum. */
#define NAME "term"
#define MAGIC UINT64_C(0x31736d7265544648) /* "HFTerms1" */
#define COPIES 2
#define SUMMED 32
#define SUM_END (SUMMED + 4)

static bool read_copy(const unsigned char *block, struct term *ret_term)
{
    if (get_u64(block) != MAGIC || crc32c(0, block, SUMMED) != get_u32(block + SUMMED))
        return false;
    *ret_term = (struct term){.known = true,
                              .version = get_u64(block + 8),
                              .number = get_u64(block + 16),
                              .vote = get_u64(block + 24)};
    return true;
}

/* The newer one; the other is the one to be written first next time. A copy is in one sector: the rest of its block does not
 * have to be there. */
static void choose(const unsigned char *blocks, size_t count, struct term *ret_term)
{
    for (unsigned i = 0; i < COPIES && i * BLOCK + SUM_END <= count; i++) {
        struct term copy;

        if (!read_copy(blocks + i * BLOCK, &copy))
            continue;
        if (ret_term->known && copy.version == ret_term->version) {
            ret_term->older = 0;
            ret_term->once = false;
        }
        if (ret_term->known && copy.version <= ret_term->version)
            continue;
        *ret_term = copy;
        ret_term->older = 1 - i;
        ret_term->once = true;
    }
}

int term_load(const struct directory *directory, struct term *ret_term, struct error_text *err)
{
    unsigned char blocks[COPIES * BLOCK];
    const struct disk *disk = directory->disk;
    size_t count = 0;
    int file, failure = disk->open(disk, directory->handle, NAME, DISK_FOR_READING, &file);

    *ret_term = (struct term){0};
    if (failure == ENOENT)
        return HF_OK;
    if (!failure) {
        failure = disk->read(disk, file, blocks, sizeof blocks, 0, &count);
        disk->close(disk, file);
    }
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/" NAME, directory->path);
    choose(blocks, count, ret_term);
    return HF_OK;
}

/* The file is new: its name must be on disk before its content counts. */
static int make(const struct directory *directory, int *ret_file)
{
    const struct disk *disk = directory->disk;
    int failure = disk->open(disk, directory->handle, NAME, DISK_MADE_IF_MISSING, ret_file);

    if (failure)
        return failure;
    failure = disk->sync(disk, *ret_file);
    if (!failure)
        failure = disk->sync_directory(disk, directory->handle);
    if (failure)
        disk->close(disk, *ret_file);
    return failure;
}

/* The older first: whatever happens to that write, the newer one is there, which this node may have acted on since it was loaded. */
static int write_copies(const struct directory *directory, const unsigned char *block,
                        unsigned older)
{
    const struct disk *disk = directory->disk;
    int file, failure = disk->open(disk, directory->handle, NAME, DISK_FOR_WRITING, &file);

    if (failure == ENOENT)
        failure = make(directory, &file);
    if (failure)
        return failure;
    if (SWITCHED(SWITCH_TERM_NEWER_FIRST))
        older = 1 - older;
    for (unsigned i = 0; i < COPIES && !failure; i++)
        failure = disk->write(disk, file, block, BLOCK, (older + i) % COPIES * BLOCK, true);
    disk->close(disk, file);
    return failure;
}

int term_store(const struct directory *directory, struct term *term, uint64_t number, uint64_t vote,
               struct error_text *err)
{
    struct term next = {
        .known = true, .version = term->version + 1, .number = number, .vote = vote};
    unsigned char *block = blocks_new(BLOCK);
    int failure;

    if (!block)
        return error_set(err, HF_ENOMEM, "out of memory");
    put_u64(block, MAGIC);
    put_u64(block + 8, next.version);
    put_u64(block + 16, next.number);
    put_u64(block + 24, next.vote);
    put_u32(block + SUMMED, crc32c(0, block, SUMMED));
    failure = write_copies(directory, block, term->older);
    free(block);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot write %s/" NAME, directory->path);
    *term = next;
    return HF_OK;
}

int term_mend(const struct directory *directory, struct term *term, struct error_text *err)
{
    return term->known && term->once ? term_store(directory, term, term->number, term->vote, err)
                                     : HF_OK;
}
