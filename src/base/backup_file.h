/* backup_file.h: the file that 'holdfast cluster backup' writes and 'holdfastd --restore-from' reads: what is before the snapshot, and behind it.
 *
 *     at   bytes
 *      0    8     "HFback1\n"
 *      8   16     the cluster's id
 *     24    8     index of the last entry of the log that is in it,
 *     32    8     and its term
 *     40    8     when it was made: seconds since 1970, by the clock of whoever made it. For people
 *     48    8     size of the snapshot
 *     56    4     crc32c of the bytes before
 *     60    -     the snapshot, as replica_snapshot_decode reads it
 *     end   4     crc32c of all before
 *
 * The lowest byte of a number comes first. The file has no byte more. */
#ifndef BASE_BACKUP_FILE_H
#define BASE_BACKUP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKUP_FILE_MAGIC "HFback1\n"
#define BACKUP_FILE_MAGIC_SIZE 8u
#define BACKUP_FILE_HEAD 60u
#define BACKUP_FILE_END 4u
#define BACKUP_FILE_CLUSTER 16u
#define BACKUP_FILE_SNAPSHOT_MAX (UINT64_C(1) << 40)

struct backup_file {
    unsigned char cluster[BACKUP_FILE_CLUSTER];
    uint64_t index, term;
    int64_t made_s;
    uint64_t size; /* of the snapshot */
};

void backup_file_write_head(const struct backup_file *about,
                            unsigned char ret_bytes[BACKUP_FILE_HEAD]);
/* False: it is none, or damaged. */
bool backup_file_read_head(const unsigned char bytes[BACKUP_FILE_HEAD],
                           struct backup_file *ret_about);
/* sum: crc32c of all before. */
void backup_file_write_end(uint32_t sum, unsigned char ret_bytes[BACKUP_FILE_END]);
bool backup_file_end_is(uint32_t sum, const unsigned char bytes[BACKUP_FILE_END]);

#endif
