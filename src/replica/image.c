/* image.c: a snapshot as bytes, on disk and on its way to another node:
 *
 *     magic (8); index, term, chain of the last entry in it (8 each); the cluster's id (16); index of the configuration (8), its
 *     size (4); the table's size (8) and checksum (4); the checksum of all these and of the configuration (4); the
 *     configuration; the table */
#include "base/crc32c.h"
#include "replica/bytes.h"
#include "replica/inside.h"

#define MAGIC UINT64_C(0x31656761646c4648) /* "HFldage1" */
#define HEAD_FIXED 76u
#define HEAD_SUM_AT 72u

_Static_assert(HEAD_FIXED <= REPLICA_IMAGE_HEAD_MAX - REPLICA_CONFIG_BYTES_MAX,
               "the head of a snapshot has room");

size_t replica_image_encode(const struct replica_image *image,
                            uint8_t ret_head[REPLICA_IMAGE_HEAD_MAX])
{
    uint8_t *config = ret_head + HEAD_FIXED;
    size_t config_size = replica_config_write(&image->config, config);
    struct bytes_writer writer = {ret_head};

    write_u64(&writer, MAGIC);
    write_u64(&writer, image->id.index);
    write_u64(&writer, image->id.term);
    write_u64(&writer, image->id.chain);
    write_bytes(&writer, image->cluster, REPLICA_CLUSTER);
    write_u64(&writer, image->config.index);
    write_u32(&writer, (uint32_t)config_size);
    write_u64(&writer, image->table_size);
    write_u32(&writer, crc32c(0, image->table, image->table_size));
    write_u32(&writer, crc32c(crc32c(0, ret_head, HEAD_SUM_AT), config, config_size));
    INVARIANT(writer.at == config);
    return HEAD_FIXED + config_size;
}

bool replica_image_decode(const void *bytes, size_t size, struct replica_image *ret_image)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    bool is_ours = read_u64(&reader) == MAGIC;
    const uint8_t *cluster, *config;
    uint64_t table_size;
    uint32_t config_size, table_sum, head_sum;

    ret_image->id.index = read_u64(&reader);
    ret_image->id.term = read_u64(&reader);
    ret_image->id.chain = read_u64(&reader);
    cluster = read_bytes(&reader, REPLICA_CLUSTER);
    ret_image->config.index = read_u64(&reader);
    config_size = read_u32(&reader);
    table_size = read_u64(&reader);
    table_sum = read_u32(&reader);
    head_sum = read_u32(&reader);
    config = read_bytes(&reader, config_size);
    if (reader.wrong || !is_ours || table_size != bytes_left(&reader) ||
        crc32c(crc32c(0, bytes, HEAD_SUM_AT), config, config_size) != head_sum ||
        crc32c(0, reader.at, table_size) != table_sum)
        return false;
    memcpy(ret_image->cluster, cluster, REPLICA_CLUSTER);
    ret_image->table = reader.at;
    ret_image->table_size = table_size;
    return ret_image->id.index > 0 && ret_image->id.term > 0 &&
           ret_image->config.index <= ret_image->id.index &&
           replica_config_read(config, config_size, &ret_image->config);
}
