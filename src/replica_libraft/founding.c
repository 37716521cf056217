#include "replica_libraft/founding.h"
#include "replica_libraft/identity.h"
#include "replica_libraft/node_file.h"
#include "replica_libraft/storing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- members as text -------------------------------------------------------------------------- */

static void add_member(char *text, uint64_t id, const char *address)
{
    size_t used = strlen(text);

    snprintf(text + used, FOUNDING_MEMBERS + 1 - used, "%s%" PRIu64 "=%s", used ? "," : "", id,
             address);
}

void founding_members_text(const struct replica_member *members, int count,
                           char ret_text[FOUNDING_MEMBERS + 1])
{
    ret_text[0] = '\0';
    for (int i = 0; i < count; i++)
        add_member(ret_text, members[i].id, members[i].address);
}

/* libraft keeps them as they were added, which is by their ids. A node that was founded alone has no address: "". */
static void members_there(const struct raft_configuration *configuration,
                          char ret_text[FOUNDING_MEMBERS + 1])
{
    char address[REPLICA_ADDRESS_MAX + 1];

    ret_text[0] = '\0';
    for (unsigned i = 0; i < configuration->n; i++) {
        identity_address(configuration->servers[i].address, address);
        if (address[0])
            add_member(ret_text, configuration->servers[i].id, address);
    }
}

/* ---- what fits -------------------------------------------------------------------------------- */

static bool is_only(const struct raft_configuration *configuration, uint64_t id)
{
    return configuration->n == 1 && configuration->servers[0].id == id;
}

static int refuse_members(const struct storage *storage, const char *members,
                          struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to a cluster with other members: cluster = %s (they come and go "
                     "by 'holdfast cluster add' and 'remove')",
                     storage->directory.path, members);
}

static int refuse(const struct storage *storage, const struct founding *founding,
                  const struct raft_configuration *there, struct error_text *err)
{
    char text[FOUNDING_MEMBERS + 1];

    members_there(there, text);
    if (founding->member_count == 0)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64 " of a cluster: start it with cluster = %s",
                         storage->directory.path, founding->id, text);
    if (is_only(there, founding->id))
        return error_set(err, HF_EREFUSED,
                         "%s belongs to a node alone: start it with itself as the only member, and "
                         "add the others with 'holdfast cluster add'",
                         storage->directory.path);
    return refuse_members(storage, text, err);
}

/* It is the only member, at its present address from now on. */
static int become_only(struct storage *storage, const struct founding *founding, const char *life,
                       struct error_text *err)
{
    struct raft_configuration configuration;
    const char *address = founding->member_count > 0 ? founding->members[0].address : "";
    char identity[IDENTITY_MAX + 1];
    int result = HF_OK;

    raft_configuration_init(&configuration);
    identity_write(address, life, identity);
    if (raft_configuration_add(&configuration, founding->id, identity, RAFT_VOTER) != 0)
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        result = loading_replace_members(storage, &configuration, err);
    raft_configuration_close(&configuration);
    return result;
}

/* The file is written before the log begins, and with the cluster's id: no crash leaves a log that does not say whose it is. */
static int check_named(const struct storage *storage, const struct founding *founding,
                       const struct raft_configuration *there, const struct node_file *file,
                       struct error_text *err)
{
    const char *path = storage->directory.path;
    const char *what = file->there ? "does not name a cluster" : "is missing";

    if (file->cluster[0])
        return HF_OK;
    if (is_only(there, founding->id))
        return error_set(
            err, HF_EREFUSED,
            "%s holds a log, and its file '" NODE_FILE
            "', which says whose it is, %s: restore it from a "
            "backup, or make another store of the log: 'holdfastd --restore-from %s --data NEW'",
            path, what, path);
    return error_set(
        err, HF_EREFUSED,
        "%s holds a log, and its file '" NODE_FILE
        "', which says whose it is, %s: remove this node with "
        "'holdfast cluster remove', and add it again, empty, under another id; only if no other "
        "member is left: 'holdfastd --restore-from %s --data NEW'",
        path, what, path);
}

/* The log knows this node by its life; if it is a member of those in the log at all. */
static int check_life(const struct storage *storage, const struct founding *founding,
                      const struct raft_configuration *there, const struct node_file *file,
                      struct error_text *err)
{
    const char *path = storage->directory.path;

    for (unsigned i = 0; i < there->n; i++)
        if (!identity_life(there->servers[i].address)[0])
            return error_set(
                err, HF_EREFUSED,
                "%s is of an earlier version, whose members cannot be told from others "
                "at their places: make another store of the log: 'holdfastd "
                "--restore-from %s --data NEW'",
                path, path);
    if (!identity_is_another(there, founding->id, file->life))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s holds the log of a node %" PRIu64 " with other data: its file '" NODE_FILE
                     "' belongs to another directory; restore it from a backup, or remove this "
                     "node with 'holdfast cluster remove', and add it again, empty, under another "
                     "id",
                     path, founding->id);
}

/* There is a log. */
static int settle_old(struct storage *storage, const struct founding *founding,
                      const struct raft_configuration *there, struct node_file *file,
                      struct error_text *err)
{
    char wanted[FOUNDING_MEMBERS + 1], now[FOUNDING_MEMBERS + 1];
    int result;

    if (file->there && file->id != founding->id)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64 ", and this is node %" PRIu64,
                         storage->directory.path, file->id, founding->id);
    result = check_named(storage, founding, there, file, err);
    if (result == HF_OK)
        result = check_life(storage, founding, there, file, err);
    if (result != HF_OK)
        return result;
    founding_members_text(founding->members, founding->member_count, wanted);
    members_there(there, now);
    file->how = NODE_MEMBER;
    file->founders[0] = '\0';
    if ((file->there && strcmp(wanted, file->members) == 0) || strcmp(wanted, now) == 0)
        return HF_OK;
    if (founding->member_count == 1 && founding->members[0].id == founding->id &&
        is_only(there, founding->id))
        return become_only(storage, founding, file->life, err);
    return refuse(storage, founding, there, err);
}

/* The log is empty. */
static int settle_new(const struct storage *storage, const struct founding *founding,
                      struct node_file *file, enum founding_state *ret_state,
                      struct error_text *err)
{
    char wanted[FOUNDING_MEMBERS + 1];

    founding_members_text(founding->members, founding->member_count, wanted);
    if (file->cluster[0] && file->id != founding->id)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64 ", and this is node %" PRIu64,
                         storage->directory.path, file->id, founding->id);
    if (file->cluster[0] && file->how == NODE_MEMBER)
        return error_set(
            err, HF_EREFUSED,
            "%s has lost its log: remove this node with 'holdfast cluster remove', and "
            "add it again, empty, under another id",
            storage->directory.path);
    if (file->cluster[0] && file->how == NODE_FOUNDED && strcmp(wanted, file->members) != 0)
        return refuse_members(storage, file->members, err);
    if (!file->cluster[0] && founding->member_count == 0)
        memcpy(file->cluster, founding->cluster, sizeof file->cluster);
    *ret_state = file->cluster[0] ? FOUNDING_FOUNDED : FOUNDING_WAITS;
    return HF_OK;
}

int founding_settle(struct storage *storage, const struct founding *founding,
                    struct founding_result *ret_result, struct error_text *err)
{
    struct raft_configuration there;
    struct node_file file, before;
    enum founding_state state = FOUNDING_FOUNDED;
    bool there_is_none;
    int result = node_file_read(&storage->directory, &file, err);

    if (result == HF_OK)
        result = loading_members(storage, &there, err);
    if (result != HF_OK)
        return result;
    before = file;
    there_is_none = there.n == 0;
    result = there.n > 0 ? settle_old(storage, founding, &there, &file, err)
                         : settle_new(storage, founding, &file, &state, err);
    raft_configuration_close(&there);
    if (result != HF_OK)
        return result;
    if (!file.there)
        snprintf(file.life, sizeof file.life, "%016" PRIx64, founding->life);
    file.there = true;
    file.id = founding->id;
    founding_members_text(founding->members, founding->member_count, file.members);
    if (!node_file_same(&before, &file))
        result = node_file_write(&storage->directory, &file, err);
    ret_result->state = state;
    ret_result->begins = !before.there && there_is_none;
    memcpy(ret_result->life, file.life, sizeof file.life);
    memcpy(ret_result->cluster, file.cluster, sizeof file.cluster);
    memcpy(ret_result->founders, file.founders, sizeof file.founders);
    memcpy(ret_result->restored, file.restored, sizeof file.restored);
    return result;
}

/* ---- belonging --------------------------------------------------------------------------------- */

static int belong(struct storage *storage, const char *cluster, enum node_file_how how,
                  const char *founders, struct error_text *err)
{
    struct node_file file;
    int result = node_file_read(&storage->directory, &file, err);

    if (result != HF_OK)
        return result;
    INVARIANT(file.there && (!file.cluster[0] || strcmp(file.cluster, cluster) == 0));
    snprintf(file.cluster, sizeof file.cluster, "%s", cluster);
    snprintf(file.founders, sizeof file.founders, "%s", founders);
    file.how = how;
    return node_file_write(&storage->directory, &file, err);
}

int founding_found(struct storage *storage, const char *cluster, const char *founders,
                   struct error_text *err)
{
    return belong(storage, cluster, NODE_FOUNDED, founders, err);
}

int founding_join(struct storage *storage, const char *cluster, struct error_text *err)
{
    return belong(storage, cluster, NODE_JOINED, "", err);
}

int founding_has_log(struct storage *storage, struct error_text *err)
{
    struct node_file file;
    int result = node_file_read(&storage->directory, &file, err);

    if (result != HF_OK || !file.there || file.how == NODE_MEMBER)
        return result;
    file.how = NODE_MEMBER;
    file.founders[0] = '\0';
    return node_file_write(&storage->directory, &file, err);
}
