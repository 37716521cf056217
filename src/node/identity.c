#include "node/identity.h"
#include "base/text.h"
#include "node/node_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CLUSTER_ID_DIGITS == 2 * REPLICA_CLUSTER, "a cluster's id in hex");

/* ---- members as text -------------------------------------------------------------------------- */

static void add_member(char *text, const struct replica_member *member)
{
    size_t used = strlen(text);

    snprintf(text + used, MEMBERS_TEXT_MAX + 1 - used, "%s%" PRIu64 "=%s", used ? "," : "",
             member->id, member->address);
}

uint64_t incarnation_parse(const char *text)
{
    char digits[INCARNATION_DIGITS + 1];

    if (strspn(text, "0123456789abcdef") != INCARNATION_DIGITS)
        return 0;
    snprintf(digits, sizeof digits, "%s", text);
    return strtoull(digits, NULL, 16);
}

void members_text(const struct replica_member *members, int count,
                  char ret_text[MEMBERS_TEXT_MAX + 1])
{
    ret_text[0] = '\0';
    for (int i = 0; i < count; i++)
        add_member(ret_text, &members[i]);
}

static int by_id(const void *a, const void *b)
{
    const struct replica_member *one = a, *other = b;

    return one->id < other->id ? -1 : one->id > other->id;
}

/* The log has them in the order in which they came. A node that was founded alone has no address: "". */
static void members_there(const struct replica_config *there, char ret_text[MEMBERS_TEXT_MAX + 1])
{
    struct replica_config sorted = *there;

    qsort(sorted.at, (size_t)sorted.count, sizeof *sorted.at, by_id);
    ret_text[0] = '\0';
    for (int i = 0; i < sorted.count; i++)
        if (sorted.at[i].address[0])
            add_member(ret_text, &sorted.at[i]);
}

/* ---- what fits -------------------------------------------------------------------------------- */

static bool is_only(const struct replica_config *there, uint64_t id)
{
    return there->count == 1 && there->at[0].id == id;
}

static int refuse_number(const struct directory *directory, const struct identity_wanted *wanted,
                         const struct node_file *file, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to node %" PRIu64 ", and this is node %" PRIu64
                     ": set id to this node's own, or data to its directory",
                     directory->path, file->id, wanted->id);
}

static int refuse_company(const struct directory *directory, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to a node alone: start it with itself as the only member, and "
                     "add the others with 'holdfast cluster add'",
                     directory->path);
}

/* It was about to begin with itself and no address. */
static int refuse_unbegun(const struct directory *directory, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to a node alone, whose log has not begun: start it once without "
                     "'cluster', so that it can",
                     directory->path);
}

static int refuse_members(const struct directory *directory, const char *members,
                          struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to a cluster with other members: cluster = %s (they come and go "
                     "by 'holdfast cluster add' and 'remove')",
                     directory->path, members);
}

static const struct replica_member *find_there(const struct replica_config *there, uint64_t id)
{
    for (int i = 0; i < there->count; i++)
        if (there->at[i].id == id)
            return &there->at[i];
    return NULL;
}

/* It is to be added, or to be a cluster of its own: for an empty directory that would be right. */
static bool wants_only_itself(const struct identity_wanted *wanted)
{
    return wanted->member_count == 1 && wanted->members[0].id == wanted->id;
}

/* By its own log it was removed, or had not got as far as its being added. */
static int refuse_removed(const struct directory *directory, const struct identity_wanted *wanted,
                          const struct node_file *file, const char *members, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s belongs to node %" PRIu64
                     ", which was removed from its cluster: empty it, "
                     "and start the node under a new id, with --join; or, if it was added a moment "
                     "ago, start it with cluster = %s as before (the members that it knows: %s)",
                     directory->path, wanted->id, file->members, members);
}

static int refuse_to_begin(const struct directory *directory, const struct identity_wanted *wanted,
                           const char *members, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "%s has the data of node %" PRIu64 " of a cluster: if it was removed there, "
                     "empty it, and start the node under a new id, with --join; else start it with "
                     "cluster = %s",
                     directory->path, wanted->id, members);
}

/* Whom the log knows at another address, if the members are the same; NULL: they are not. */
static const struct replica_member *find_moved(const struct identity_wanted *wanted,
                                               const struct replica_config *there)
{
    const struct replica_member *moved = NULL;

    for (int i = 0; i < wanted->member_count; i++) {
        const struct replica_member *known = find_there(there, wanted->members[i].id);

        if (!known || wanted->member_count != there->count)
            return NULL;
        if (!moved && strcmp(known->address, wanted->members[i].address) != 0)
            moved = known;
    }
    return moved;
}

static int refuse_moved(const struct directory *directory, const struct replica_member *moved,
                        const char *members, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "in the cluster that %s belongs to, the address of node %" PRIu64
                     " is %s, and "
                     "no restart changes that: replace the node under a new id, or let that name "
                     "lead to the new address; and start this one with cluster = %s",
                     directory->path, moved->id, moved->address, members);
}

static int refuse(const struct directory *directory, const struct identity_wanted *wanted,
                  const struct replica_config *there, const struct node_file *file,
                  struct error_text *err)
{
    const struct replica_member *moved = find_moved(wanted, there);
    char text[MEMBERS_TEXT_MAX + 1];

    members_there(there, text);
    if (wanted->member_count == 0)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64 " of a cluster: start it with cluster = %s",
                         directory->path, wanted->id, text);
    if (is_only(there, wanted->id))
        return refuse_company(directory, err);
    if (!find_there(there, wanted->id))
        return refuse_removed(directory, wanted, file, text, err);
    if (moved)
        return refuse_moved(directory, moved, text, err);
    if (wants_only_itself(wanted))
        return refuse_to_begin(directory, wanted, text, err);
    return refuse_members(directory, text, err);
}

/* The file is written before the log begins, and with the cluster's id: no crash leaves a log that does not say whose it is. */
static int check_named(const struct directory *directory, const struct identity_wanted *wanted,
                       const struct replica_config *there, const struct node_file *file,
                       struct error_text *err)
{
    const char *path = directory->path;
    const char *what = file->there ? "does not name a cluster" : "is missing";

    if (file->cluster[0])
        return HF_OK;
    if (is_only(there, wanted->id))
        return error_set(
            err, HF_EREFUSED,
            "%s holds a log, and its file '" FILES_NODE
            "', which says whose it is, %s: restore it from a "
            "backup, or make another store of the log: 'holdfastd --restore-from %s --data NEW'",
            path, what, path);
    return error_set(
        err, HF_EREFUSED,
        "%s holds a log, and its file '" FILES_NODE
        "', which says whose it is, %s: remove this node with "
        "'holdfast cluster remove', and add it again, empty, under another id; only if no other "
        "member is left: 'holdfastd --restore-from %s --data NEW'",
        path, what, path);
}

/* The log knows this node by its incarnation; if it is a member of those in the log at all. */
static int check_incarnation(const struct directory *directory,
                             const struct identity_wanted *wanted,
                             const struct replica_config *there, const struct node_file *file,
                             struct error_text *err)
{
    bool is_another = false;

    for (int i = 0; i < there->count; i++)
        if (there->at[i].id == wanted->id)
            is_another = there->at[i].incarnation != file->incarnation;
    if (!is_another)
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s holds the log of a node %" PRIu64 " with other data: its file '" FILES_NODE
                     "' belongs to another directory; restore it from a backup, or remove this "
                     "node with 'holdfast cluster remove', and add it again, empty, under another "
                     "id",
                     directory->path, wanted->id);
}

/* It is to be the only member, and is. */
static bool is_alone(const struct identity_wanted *wanted, const struct replica_config *there)
{
    return wants_only_itself(wanted) && is_only(there, wanted->id);
}

/* There is a log. */
static int settle_old(const struct directory *directory, const struct identity_wanted *wanted,
                      const struct replica_config *there, struct node_file *file, bool *ret_moves,
                      struct error_text *err)
{
    char text_wanted[MEMBERS_TEXT_MAX + 1], now[MEMBERS_TEXT_MAX + 1];
    int result;

    if (file->there && file->id != wanted->id)
        return refuse_number(directory, wanted, file, err);
    result = check_named(directory, wanted, there, file, err);
    if (result == HF_OK)
        result = check_incarnation(directory, wanted, there, file, err);
    if (result != HF_OK)
        return result;
    members_text(wanted->members, wanted->member_count, text_wanted);
    members_there(there, now);
    file->how = NODE_MEMBER;
    file->initial_members[0] = '\0';
    /* Whatever the file says: it is written before others have agreed. */
    *ret_moves = is_alone(wanted, there) && strcmp(text_wanted, now) != 0;
    if (*ret_moves || (file->there && strcmp(text_wanted, file->members) == 0) ||
        strcmp(text_wanted, now) == 0)
        return HF_OK;
    return refuse(directory, wanted, there, file, err);
}

/* Of the cluster that a node alone founds. */
static void name_itself(const struct identity_wanted *wanted, struct node_file *file)
{
    const struct replica_config itself = {
        .count = 1, .at = {{.id = wanted->id, .incarnation = file->incarnation, .votes = true}}};
    unsigned char cluster[REPLICA_CLUSTER];

    replica_cluster_id(&itself, cluster);
    text_hex(cluster, sizeof cluster, file->cluster);
}

/* The log is empty. */
static int settle_new(const struct directory *directory, const struct identity_wanted *wanted,
                      struct node_file *file, enum identity_state *ret_state,
                      struct error_text *err)
{
    char text_wanted[MEMBERS_TEXT_MAX + 1];

    members_text(wanted->members, wanted->member_count, text_wanted);
    if (file->cluster[0] && file->id != wanted->id)
        return refuse_number(directory, wanted, file, err);
    if (file->cluster[0] && file->how == NODE_MEMBER)
        return error_set(
            err, HF_EREFUSED,
            "%s has lost its log: remove this node with 'holdfast cluster remove', and "
            "add it again, empty, under another id",
            directory->path);
    if (file->cluster[0] && file->how == NODE_BOOTSTRAPPED &&
        strcmp(text_wanted, file->members) != 0)
        return file->members[0] ? refuse_members(directory, file->members, err)
                                : refuse_unbegun(directory, err);
    /* Alone it would found itself, under the id of the cluster that it was added to. */
    if (file->cluster[0] && file->how == NODE_JOINED && wanted->member_count == 0)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64
                         " of a cluster, to which it was added, and has "
                         "nothing of its log yet: start it with 'cluster', or, if it was removed "
                         "meanwhile, empty the directory",
                         directory->path, wanted->id);
    if (!file->cluster[0] && wanted->member_count == 0)
        name_itself(wanted, file);
    *ret_state = file->cluster[0] ? IDENTITY_TAKES_PART : IDENTITY_WAITS;
    return HF_OK;
}

/* ---- at a start ------------------------------------------------------------------------------- */

static uint64_t incarnation_of(const struct node_file *file, const struct identity_wanted *wanted)
{
    if (file->there)
        return file->incarnation;
    return wanted->incarnation ? wanted->incarnation : 1; /* 0 is none */
}

int identity_read(const struct directory *directory, const struct identity_wanted *wanted,
                  uint64_t *ret_incarnation, struct error_text *err)
{
    struct node_file file;
    int result = node_file_read(directory, &file, err);

    if (result == HF_OK)
        *ret_incarnation = incarnation_of(&file, wanted);
    return result;
}

static void tell(const struct node_file *file, struct identity *ret_result)
{
    ret_result->incarnation = file->incarnation;
    snprintf(ret_result->incarnation_text, sizeof ret_result->incarnation_text, "%016" PRIx64,
             file->incarnation);
    memcpy(ret_result->cluster, file->cluster, sizeof file->cluster);
    memcpy(ret_result->initial_members, file->initial_members, sizeof file->initial_members);
    memcpy(ret_result->restored, file->restored, sizeof file->restored);
}

int identity_settle(const struct directory *directory, const struct identity_wanted *wanted,
                    const struct replica_config *there, struct identity *ret_result,
                    struct error_text *err)
{
    struct node_file file, before;
    enum identity_state state = IDENTITY_TAKES_PART;
    bool moves = false;
    int result = node_file_read(directory, &file, err);

    if (result != HF_OK)
        return result;
    before = file;
    file.incarnation = incarnation_of(&file, wanted);
    result = there->count > 0 ? settle_old(directory, wanted, there, &file, &moves, err)
                              : settle_new(directory, wanted, &file, &state, err);
    if (result != HF_OK)
        return result;
    file.there = true;
    file.id = wanted->id;
    members_text(wanted->members, wanted->member_count, file.members);
    if (!node_file_same(&before, &file))
        result = node_file_write(directory, &file, err);
    ret_result->state = state;
    ret_result->begins = !before.there && there->count == 0;
    ret_result->moves = moves;
    tell(&file, ret_result);
    return result;
}

/* ---- belonging --------------------------------------------------------------------------------- */

static int belong(const struct directory *directory, const char *cluster, enum node_file_how how,
                  const char *initial_members, struct error_text *err)
{
    struct node_file file;
    int result = node_file_read(directory, &file, err);

    if (result != HF_OK)
        return result;
    if (!file.there)
        return error_set(err, HF_EIO, "%s/node is gone", directory->path);
    INVARIANT(!file.cluster[0] || strcmp(file.cluster, cluster) == 0);
    snprintf(file.cluster, sizeof file.cluster, "%s", cluster);
    snprintf(file.initial_members, sizeof file.initial_members, "%s", initial_members);
    file.how = how;
    return node_file_write(directory, &file, err);
}

int identity_bootstrap(const struct directory *directory, const char *cluster,
                       const char *initial_members, struct error_text *err)
{
    return belong(directory, cluster, NODE_BOOTSTRAPPED, initial_members, err);
}

int identity_join(const struct directory *directory, const char *cluster, struct error_text *err)
{
    return belong(directory, cluster, NODE_JOINED, "", err);
}

int identity_has_log(const struct directory *directory, struct error_text *err)
{
    struct node_file file;
    int result = node_file_read(directory, &file, err);

    if (result != HF_OK || !file.there || file.how == NODE_MEMBER)
        return result;
    file.how = NODE_MEMBER;
    file.initial_members[0] = '\0';
    return node_file_write(directory, &file, err);
}
