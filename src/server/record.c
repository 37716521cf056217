#include "server/record.h"
#include "base/text.h"
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
        if (strspn(text, "0123456789abcdef") != INCARNATION_DIGITS)
            return false;
        snprintf(ret_record->incarnations[i], sizeof ret_record->incarnations[i], "%.*s",
                 INCARNATION_DIGITS, text);
        text += INCARNATION_DIGITS;
    }
    return !*text;
}

void record_write(const struct config_cluster *members, const struct record *record,
                  char ret_text[MEMBERS_TEXT_MAX + 1])
{
    size_t used = 0;

    for (int i = 0; i < members->count; i++)
        used += (size_t)snprintf(ret_text + used, MEMBERS_TEXT_MAX + 1 - used,
                                 "%s%" PRIu64 "=%s/%s", i > 0 ? "," : "", members->at[i].id,
                                 members->at[i].address, record->incarnations[i]);
}

void record_members(const struct config_cluster *members, const struct record *record,
                    struct replica_config *ret_config)
{
    *ret_config = (struct replica_config){.count = members->count};
    for (int i = 0; i < members->count; i++) {
        struct replica_member *member = &ret_config->at[i];

        member->id = members->at[i].id;
        member->votes = true;
        snprintf(member->address, sizeof member->address, "%s", members->at[i].address);
        member->incarnation = incarnation_parse(record->incarnations[i]);
    }
}

void record_cluster(const struct config_cluster *members, const struct record *record,
                    char ret_cluster[CLUSTER_ID_DIGITS + 1])
{
    struct replica_config config;
    unsigned char id[REPLICA_CLUSTER];

    record_members(members, record, &config);
    replica_cluster_id(&config, id);
    text_hex(id, sizeof id, ret_cluster);
}

bool record_find(const struct server *server, struct record *ret_record)
{
    const struct config_cluster *members = &server->config->cluster;
    const struct replica_config *config = replica_members(server->replica);

    if (node_waits(server->node) || config->count != members->count || config->index != 1)
        return false;
    for (int i = 0; i < config->count; i++) {
        if (config->at[i].id != members->at[i].id ||
            strcmp(config->at[i].address, members->at[i].address) != 0)
            return false;
        snprintf(ret_record->incarnations[i], sizeof ret_record->incarnations[i], "%016" PRIx64,
                 config->at[i].incarnation);
    }
    return true;
}
