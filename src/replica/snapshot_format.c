/* snapshot_format.c: a snapshot as bytes, on disk and on its way to another node:
 *
 *     magic (8); version of the formats (4); index, term, chain of the last entry in it (8 each); the cluster's id (16); index of the configuration (8), its
 *     size (4); the table's size (8) and checksum (4); the checksum of all these and of the configuration (4); the
 *     configuration; the table */
#include "base/crc32c.h"
#include "replica/bytes.h"
#include "replica/inside.h"

#define MAGIC UINT64_C(0x31656761646c4648) /* "HFldage1" */
#define HEAD_FIXED 80u
#define HEAD_SUM_AT 76u

_Static_assert(HEAD_FIXED <= REPLICA_SNAPSHOT_HEAD_MAX - REPLICA_CONFIG_BYTES_MAX,
               "the head of a snapshot has room");

size_t replica_snapshot_encode(const struct replica_snapshot *snapshot,
                               uint8_t ret_head[REPLICA_SNAPSHOT_HEAD_MAX])
{
    uint8_t *config = ret_head + HEAD_FIXED;
    size_t config_size = replica_config_write(&snapshot->config, config);
    struct bytes_writer writer = {ret_head};

    write_u64(&writer, MAGIC);
    write_u32(&writer, snapshot->version ? snapshot->version : VERSION_FIRST);
    write_u64(&writer, snapshot->id.index);
    write_u64(&writer, snapshot->id.term);
    write_u64(&writer, snapshot->id.chain);
    write_bytes(&writer, snapshot->cluster, REPLICA_CLUSTER);
    write_u64(&writer, snapshot->config.index);
    write_u32(&writer, (uint32_t)config_size);
    write_u64(&writer, snapshot->table_size);
    write_u32(&writer, crc32c(0, snapshot->table, snapshot->table_size));
    write_u32(&writer, crc32c(crc32c(0, ret_head, HEAD_SUM_AT), config, config_size));
    INVARIANT(writer.at == config);
    return HEAD_FIXED + config_size;
}

bool replica_snapshot_decode(const void *bytes, size_t size, struct replica_snapshot *ret_snapshot)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    bool is_ours = read_u64(&reader) == MAGIC;
    const uint8_t *cluster, *config;
    uint64_t table_size;
    uint32_t config_size, table_sum, head_sum;

    ret_snapshot->version = read_u32(&reader);
    ret_snapshot->id.index = read_u64(&reader);
    ret_snapshot->id.term = read_u64(&reader);
    ret_snapshot->id.chain = read_u64(&reader);
    cluster = read_bytes(&reader, REPLICA_CLUSTER);
    ret_snapshot->config.index = read_u64(&reader);
    config_size = read_u32(&reader);
    table_size = read_u64(&reader);
    table_sum = read_u32(&reader);
    head_sum = read_u32(&reader);
    config = read_bytes(&reader, config_size);
    if (reader.wrong || !is_ours || table_size != bytes_left(&reader) ||
        crc32c(crc32c(0, bytes, HEAD_SUM_AT), config, config_size) != head_sum ||
        crc32c(0, reader.at, table_size) != table_sum)
        return false;
    memcpy(ret_snapshot->cluster, cluster, REPLICA_CLUSTER);
    ret_snapshot->table = reader.at;
    ret_snapshot->table_size = table_size;
    return ret_snapshot->version > 0 && ret_snapshot->version <= REPLICA_VERSION_MAX &&
           ret_snapshot->id.index > 0 && ret_snapshot->id.term > 0 &&
           ret_snapshot->config.index <= ret_snapshot->id.index &&
           replica_config_read(config, config_size, &ret_snapshot->config);
}
