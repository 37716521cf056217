/* snapshot_file.h: snapshots on disk, one file each: "snapshot-" and the number of the last entry in it. Only the
 * newest is kept. */
#ifndef JOURNAL_SNAPSHOT_FILE_H
#define JOURNAL_SNAPSHOT_FILE_H

#include "journal/directory.h"

#include <stddef.h>
#include <sys/uio.h>

struct snapshot_file {
    uint64_t index, term; /* of the last entry in it; index 0: there is none */
    uint64_t configuration_index;
    struct iovec configuration;
    struct iovec data;
};

/* Durable when it returns HF_OK, and older ones are gone. For any thread, one at a time. */
int snapshot_file_write(const struct directory *directory, const struct snapshot_file *snapshot,
                        struct error_text *err);
/* The newest; what it points to is the caller's, to be freed by snapshot_file_free. HF_EIO: it is damaged, or
 * cannot be read. HF_ENOMEM. */
int snapshot_file_load(const struct directory *directory, struct snapshot_file *ret_snapshot,
                       struct error_text *err);
void snapshot_file_free(struct snapshot_file *snapshot);

/* One that is on disk, to be read piece by piece: its configuration and, behind it, its data. It stays readable though a newer one
 * takes its place, until it is closed. What is read is not checked: whoever gets all of it does that. For any thread, one at a
 * time. */
struct open_snapshot {
    const struct disk *disk; /* NULL: it is not open */
    int file;
    uint64_t size; /* of configuration and data */
};
/* HF_EIO: there is no such snapshot (any more), or it cannot be read. */
int snapshot_file_open(const struct directory *directory, uint64_t index,
                       struct open_snapshot *ret_file, struct error_text *err);
/* At most so many bytes, as many as there are from the offset on. */
int snapshot_file_read(const struct open_snapshot *file, uint64_t offset, void *bytes, size_t size,
                       size_t *ret_count, struct error_text *err);
/* Reads all of it once: is it what was written? ret_sum: crc32c of its bytes, for whoever sends them on. HF_EIO: it is damaged, or
 * cannot be read. HF_ENOMEM. */
int snapshot_file_verify(const struct open_snapshot *file, uint32_t *ret_sum,
                         struct error_text *err);
void snapshot_file_close(struct open_snapshot *file);

/* Removes what was left by an interrupted snapshot_file_write. */
int snapshot_file_clean(const struct directory *directory, const struct snapshot_file *newest,
                        struct error_text *err);

#endif
