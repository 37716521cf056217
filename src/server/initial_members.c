#include "server/initial_members.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX (UINT64_C(1) << 32)

static const char blanks[] = " \t";

/* ---- addresses -------------------------------------------------------------------------------- */

/* The port must be there: the usual one is that of clients. */
static int parse_machine(const char *text, struct endpoint *ret_endpoint, struct error_text *err)
{
    const char *bracket = strrchr(text, ']'), *colon = strrchr(bracket ? bracket : text, ':');
    int result = endpoint_parse(text, ret_endpoint, err);

    if (result != HF_OK)
        return result;
    if (ret_endpoint->path[0] || !colon || ret_endpoint->port == 0)
        return error_set(err, HF_EINVAL, "'%.80s' is not HOST:PORT", text);
    return HF_OK;
}

static int parse_address(const struct setting *setting, const char *text, void *field,
                         struct error_text *err)
{
    struct endpoint endpoint;
    int result = parse_machine(text, &endpoint, err);

    (void)setting;
    if (result == HF_OK)
        memcpy(field, endpoint.shown, sizeof endpoint.shown);
    return result;
}

static void show_address(const struct setting *setting, const void *field, char *ret_text)
{
    (void)setting;
    snprintf(ret_text, SETTING_TEXT_MAX, "%s", (const char *)field);
}

const struct setting_kind address_kind = {"HOST:PORT", parse_address, show_address};

/* ---- members ---------------------------------------------------------------------------------- */

static int check_new(const struct config_cluster *cluster, const struct config_member *member,
                     struct error_text *err)
{
    for (int i = 0; i < cluster->count; i++) {
        if (cluster->at[i].id == member->id)
            return error_set(err, HF_EINVAL, "node %" PRIu64 " is there twice", member->id);
        if (strcmp(cluster->at[i].address, member->address) == 0)
            return error_set(err, HF_EINVAL, "%s is there twice", member->address);
    }
    return HF_OK;
}

/* One "ID=HOST:PORT", which may be changed. */
static int parse_member(char *text, struct config_cluster *cluster, struct error_text *err)
{
    struct config_member member = {0};
    struct endpoint endpoint;
    char *equals = strchr(text, '=');
    int result;

    if (!equals)
        return error_set(err, HF_EINVAL, "'%.80s' is not ID=HOST:PORT", text);
    *equals = '\0';
    if (!text_to_u64(text, ID_MAX, &member.id) || member.id == 0)
        return error_set(err, HF_EINVAL, "'%.80s' is not the number of a node, from 1 to %" PRIu64,
                         text, ID_MAX);
    result = parse_machine(equals + 1, &endpoint, err);
    if (result != HF_OK)
        return result;
    memcpy(member.address, endpoint.shown, sizeof member.address);
    if (cluster->count == CONFIG_MEMBERS_MAX)
        return error_set(err, HF_EINVAL, "a cluster is founded with at most %d members",
                         CONFIG_MEMBERS_MAX);
    result = check_new(cluster, &member, err);
    if (result == HF_OK)
        cluster->at[cluster->count++] = member;
    return result;
}

static int by_id(const void *left, const void *right)
{
    const struct config_member *a = left, *b = right;

    return a->id < b->id ? -1 : a->id > b->id;
}

static int parse_initial_members(const struct setting *setting, const char *text, void *field,
                                 struct error_text *err)
{
    struct config_cluster cluster = {0};

    (void)setting;
    for (;;) {
        char one[ENDPOINT_TEXT_MAX + 24];
        size_t length, next;
        int result;

        text += strspn(text, blanks);
        next = length = strcspn(text, ",");
        while (length > 0 && strchr(blanks, text[length - 1]))
            length--;
        if (length == 0)
            return error_set(err, HF_EINVAL, "there is nothing before or after a comma");
        if (length >= sizeof one)
            return error_set(err, HF_EINVAL, "'%.80s...' is too long for a member", text);
        memcpy(one, text, length);
        one[length] = '\0';
        result = parse_member(one, &cluster, err);
        if (result != HF_OK)
            return result;
        if (!text[next])
            break;
        text += next + 1;
    }
    qsort(cluster.at, (size_t)cluster.count, sizeof *cluster.at, by_id);
    memcpy(field, &cluster, sizeof cluster);
    return HF_OK;
}

static void show_initial_members(const struct setting *setting, const void *field, char *ret_text)
{
    const struct config_cluster *cluster = field;
    size_t used = 0;

    (void)setting;
    for (int i = 0; i < cluster->count; i++)
        used += (size_t)snprintf(ret_text + used, SETTING_TEXT_MAX - used, "%s%" PRIu64 "=%s",
                                 i > 0 ? "," : "", cluster->at[i].id, cluster->at[i].address);
}

const struct setting_kind initial_members_kind = {"ID=ADDRESS,...", parse_initial_members,
                                                  show_initial_members};

/* ---- rules ------------------------------------------------------------------------------------ */

const struct config_member *initial_members_find(const struct config_cluster *cluster, uint64_t id)
{
    for (int i = 0; i < cluster->count; i++)
        if (cluster->at[i].id == id)
            return &cluster->at[i];
    return NULL;
}

static bool all_on_this_machine(const struct config_cluster *cluster)
{
    struct endpoint endpoint;

    for (int i = 0; i < cluster->count; i++)
        if (endpoint_parse(cluster->at[i].address, &endpoint, NULL) != HF_OK || !endpoint.loopback)
            return false;
    return true;
}

static bool is_any(const struct endpoint *endpoint)
{
    return strcmp(endpoint->host, "0.0.0.0") == 0 || strcmp(endpoint->host, "::") == 0;
}

/* Is there an address that clients can be told? */
static bool can_be_found(const struct config *config)
{
    for (int i = 0; i < config->listen.count; i++)
        if (!config->listen.at[i].path[0])
            return !is_any(&config->listen.at[i]);
    return false;
}

/* The second to listen there would find it in use, by this very program. */
static bool is_for_both(const struct config *config, const struct config_member *own)
{
    struct endpoint nodes;

    if (endpoint_parse(own->address, &nodes, NULL) != HF_OK)
        return false;
    for (int i = 0; i < config->listen.count; i++) {
        const struct endpoint *clients = &config->listen.at[i];

        if (!clients->path[0] && clients->port == nodes.port &&
            (is_any(clients) || strcmp(clients->host, nodes.host) == 0))
            return true;
    }
    return false;
}

int initial_members_check(const struct config *config, struct error_text *err)
{
    const struct config_cluster *cluster = &config->cluster;
    const struct config_member *own = initial_members_find(cluster, config->id);

    if (cluster->count == 0 && config->join == CONFIG_JOINS)
        return error_set(err, HF_EINVAL,
                         "join needs this node's own address for its peers: cluster = %" PRIu64
                         "=HOST:PORT",
                         config->id);
    if (cluster->count == 0)
        return HF_OK;
    if (!own)
        return error_set(err, HF_EINVAL,
                         "cluster does not name this node, whose id is %" PRIu64
                         ": set id to this node's own, or write %" PRIu64 "=HOST:PORT into cluster",
                         config->id, config->id);
    if (!config->cluster_secret.set && !all_on_this_machine(cluster))
        return error_set(err, HF_EINVAL,
                         "nodes on other machines have to prove that they belong here: set "
                         "secret-file, to the same line on all members");
    if (is_for_both(config, own))
        return error_set(err, HF_EINVAL,
                         "%s is for clients (listen) and for nodes (cluster): give one of them "
                         "another port",
                         own->address);
    if (!config->advertise[0] && !can_be_found(config))
        return error_set(err, HF_EINVAL,
                         "clients cannot be told to come to %s: set advertise to an address that "
                         "they can reach",
                         config->listen.at[0].shown);
    return HF_OK;
}
