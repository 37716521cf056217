#include "server/record.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool record_read(const struct server *server, const char *record, struct lives *ret_lives)
{
    const struct config_cluster *members = &server->config->cluster;

    ret_lives->count = 0;
    for (int i = 0; i < members->count; i++) {
        const struct config_member *member = &members->at[i];
        struct life *life = &ret_lives->at[ret_lives->count++];
        char expected[ENDPOINT_TEXT_MAX + 32];
        size_t length = (size_t)snprintf(expected, sizeof expected, "%s%" PRIu64 "=%s/",
                                         i > 0 ? "," : "", member->id, member->address);

        if (strncmp(record, expected, length) != 0)
            return false;
        record += length;
        life->id = member->id;
        if (strspn(record, "0123456789abcdef") != FOUNDING_LIFE)
            return false;
        snprintf(life->text, sizeof life->text, "%.*s", FOUNDING_LIFE, record);
        record += FOUNDING_LIFE;
        if (member->id == server->config->id && strcmp(life->text, server->bootstrap.life) != 0)
            return false;
    }
    return !*record;
}

void record_write(const struct server *server, char ret_record[NETWORK_WORDS_MAX + 1])
{
    const struct config_cluster *members = &server->config->cluster;
    size_t used = 0;

    for (int i = 0; i < members->count; i++)
        used += (size_t)snprintf(ret_record + used, NETWORK_WORDS_MAX + 1 - used,
                                 "%s%" PRIu64 "=%s/%.*s", i > 0 ? "," : "", members->at[i].id,
                                 members->at[i].address, FOUNDING_LIFE,
                                 lives_find(&server->lives, members->at[i].id).bytes);
}

bool record_is_here(const struct server *server)
{
    const struct config_cluster *members = &server->config->cluster;
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    int count = (int)replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    if (replica_waits(server->replica) || count != members->count ||
        replica_members_version(server->replica) != 1)
        return false;
    for (int i = 0; i < count; i++)
        if (seen[i].id != members->at[i].id ||
            strcmp(seen[i].address, members->at[i].address) != 0 ||
            lives_find(&server->lives, seen[i].id).size != FOUNDING_LIFE)
            return false;
    return true;
}
