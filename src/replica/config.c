/* config.c: the members as bytes: raft's part, then their addresses in the same order, each with its length in two bytes before it. */
#include "replica/bytes.h"
#include "replica/inside.h"

void members_to_raft(const struct replica_config *config, struct raft_members *ret_members)
{
    ret_members->index = config->index;
    ret_members->count = config->count;
    for (int i = 0; i < config->count; i++)
        ret_members->at[i] = (struct raft_member){.id = config->at[i].id,
                                                  .incarnation = config->at[i].incarnation,
                                                  .votes = config->at[i].votes};
}

size_t replica_config_write(const struct replica_config *config,
                            uint8_t ret_bytes[REPLICA_CONFIG_BYTES_MAX])
{
    struct raft_members members;
    struct bytes_writer writer = {ret_bytes};

    members_to_raft(config, &members);
    writer.at += raft_members_write(&members, ret_bytes);
    for (int i = 0; i < config->count; i++) {
        size_t size = strlen(config->at[i].address);

        write_u8(&writer, (uint8_t)(size & 0xff));
        write_u8(&writer, (uint8_t)(size >> 8));
        write_bytes(&writer, config->at[i].address, size);
    }
    return (size_t)(writer.at - ret_bytes);
}

static bool read_address(struct bytes_reader *reader, char ret_address[REPLICA_ADDRESS_MAX + 1])
{
    size_t size = read_u8(reader);
    const uint8_t *at;

    size |= (size_t)read_u8(reader) << 8;
    at = size <= REPLICA_ADDRESS_MAX ? read_bytes(reader, size) : NULL;
    if (!at)
        return false;
    for (size_t i = 0; i < size; i++)
        if (at[i] <= ' ' || at[i] == 0x7f)
            return false;
    memcpy(ret_address, at, size);
    ret_address[size] = '\0';
    return true;
}

bool replica_config_read(const void *bytes, size_t size, struct replica_config *ret_config)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    uint8_t again[RAFT_CONFIG_BYTES_MAX];
    struct raft_members members;

    if (!raft_members_read(bytes, size, &members))
        return false;
    read_bytes(&reader, raft_members_write(&members, again));
    ret_config->count = members.count;
    for (int i = 0; i < members.count; i++) {
        struct replica_member *member = &ret_config->at[i];

        *member = (struct replica_member){.id = members.at[i].id,
                                          .incarnation = members.at[i].incarnation,
                                          .votes = members.at[i].votes};
        if (!read_address(&reader, member->address))
            return false;
    }
    return bytes_read(&reader);
}
