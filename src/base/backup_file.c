/* backup_file.c: see backup_file.h. */
#include "base/backup_file.h"
#include "base/crc32c.h"

#include <endian.h>
#include <string.h>

#define CLUSTER_AT 8
#define INDEX_AT 24
#define TERM_AT 32
#define MADE_AT 40
#define SIZE_AT 48
#define SUM_AT 56

_Static_assert(SUM_AT + 4 == BACKUP_FILE_HEAD, "the sum is the last of the head");

static void put_u64(unsigned char *at, uint64_t number)
{
    number = htole64(number);
    memcpy(at, &number, sizeof number);
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t number;

    memcpy(&number, at, sizeof number);
    return le64toh(number);
}

void backup_file_write_head(const struct backup_file *about,
                            unsigned char ret_bytes[BACKUP_FILE_HEAD])
{
    memcpy(ret_bytes, BACKUP_FILE_MAGIC, BACKUP_FILE_MAGIC_SIZE);
    memcpy(ret_bytes + CLUSTER_AT, about->cluster, sizeof about->cluster);
    put_u64(ret_bytes + INDEX_AT, about->index);
    put_u64(ret_bytes + TERM_AT, about->term);
    put_u64(ret_bytes + MADE_AT, (uint64_t)about->made_s);
    put_u64(ret_bytes + SIZE_AT, about->size);
    backup_file_write_end(crc32c(0, ret_bytes, SUM_AT), ret_bytes + SUM_AT);
}

bool backup_file_read_head(const unsigned char bytes[BACKUP_FILE_HEAD],
                           struct backup_file *ret_about)
{
    if (memcmp(bytes, BACKUP_FILE_MAGIC, BACKUP_FILE_MAGIC_SIZE) != 0 ||
        !backup_file_end_is(crc32c(0, bytes, SUM_AT), bytes + SUM_AT) ||
        get_u64(bytes + SIZE_AT) > BACKUP_FILE_SNAPSHOT_MAX)
        return false;
    memcpy(ret_about->cluster, bytes + CLUSTER_AT, sizeof ret_about->cluster);
    ret_about->index = get_u64(bytes + INDEX_AT);
    ret_about->term = get_u64(bytes + TERM_AT);
    ret_about->made_s = (int64_t)get_u64(bytes + MADE_AT);
    ret_about->size = get_u64(bytes + SIZE_AT);
    return true;
}

void backup_file_write_end(uint32_t sum, unsigned char ret_bytes[BACKUP_FILE_END])
{
    sum = htole32(sum);
    memcpy(ret_bytes, &sum, sizeof sum);
}

bool backup_file_end_is(uint32_t sum, const unsigned char bytes[BACKUP_FILE_END])
{
    sum = htole32(sum);
    return memcmp(bytes, &sum, sizeof sum) == 0;
}
