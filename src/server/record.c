#include "server/record.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool record_read(const struct config_cluster *members, const char *text, struct record *ret_record)
{
    for (int i = 0; i < members->count; i++) {
        const struct config_member *member = &members->at[i];
        char expected[ENDPOINT_TEXT_MAX + 32];
        size_t length = (size_t)snprintf(expected, sizeof expected, "%s%" PRIu64 "=%s/",
                                         i > 0 ? "," : "", member->id, member->address);

        if (strncmp(text, expected, length) != 0)
            return false;
        text += length;
        if (strspn(text, "0123456789abcdef") != FOUNDING_LIFE)
            return false;
        snprintf(ret_record->lives[i], sizeof ret_record->lives[i], "%.*s", FOUNDING_LIFE, text);
        text += FOUNDING_LIFE;
    }
    return !*text;
}

void record_write(const struct config_cluster *members, const struct record *record,
                  char ret_text[FOUNDING_MEMBERS + 1])
{
    size_t used = 0;

    for (int i = 0; i < members->count; i++)
        used += (size_t)snprintf(ret_text + used, FOUNDING_MEMBERS + 1 - used,
                                 "%s%" PRIu64 "=%s/%s", i > 0 ? "," : "", members->at[i].id,
                                 members->at[i].address, record->lives[i]);
}

void record_members(const struct config_cluster *members, const struct record *record,
                    struct replica_member ret_members[CONFIG_MEMBERS_MAX])
{
    for (int i = 0; i < members->count; i++)
        ret_members[i] = (struct replica_member){
            .id = members->at[i].id, .address = members->at[i].address, .life = record->lives[i]};
}

bool record_find(const struct server *server, struct record *ret_record)
{
    const struct config_cluster *members = &server->config->cluster;
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    int count = (int)replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    if (replica_waits(server->replica) || count != members->count ||
        replica_members_version(server->replica) != 1)
        return false;
    for (int i = 0; i < count; i++) {
        if (seen[i].id != members->at[i].id ||
            strcmp(seen[i].address, members->at[i].address) != 0 ||
            strlen(seen[i].life) != FOUNDING_LIFE)
            return false;
        memcpy(ret_record->lives[i], seen[i].life, sizeof ret_record->lives[i]);
    }
    return true;
}
