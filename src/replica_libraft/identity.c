#include "replica_libraft/identity.h"

#include <raft.h>

#include <stdio.h>
#include <string.h>

static size_t address_length(const char *identity)
{
    return strcspn(identity, "/");
}

void identity_write(const char *address, const char *life, char ret_text[IDENTITY_MAX + 1])
{
    bool has_life = life && life[0];

    snprintf(ret_text, IDENTITY_MAX + 1, "%s%s%s", address, has_life ? "/" : "",
             has_life ? life : "");
}

void identity_address(const char *identity, char ret_address[REPLICA_ADDRESS_MAX + 1])
{
    snprintf(ret_address, REPLICA_ADDRESS_MAX + 1, "%.*s", (int)address_length(identity), identity);
}

const char *identity_life(const char *identity)
{
    const char *slash = identity + address_length(identity);

    return *slash ? slash + 1 : slash;
}

bool identity_is_at(const char *identity, const char *address)
{
    size_t length = address_length(identity);

    return strlen(address) == length && memcmp(identity, address, length) == 0;
}

const char *identity_find(const struct raft_configuration *members, uint64_t id)
{
    for (unsigned i = 0; i < members->n; i++)
        if (members->servers[i].id == id)
            return members->servers[i].address;
    return NULL;
}

bool identity_is_another(const struct raft_configuration *members, uint64_t id, const char *life)
{
    const char *identity = identity_find(members, id);

    return identity && identity_life(identity)[0] &&
           strcmp(identity_life(identity), life ? life : "") != 0;
}

bool identity_is_member(const struct raft_configuration *members, uint64_t id, const char *life)
{
    return identity_find(members, id) && !identity_is_another(members, id, life);
}
