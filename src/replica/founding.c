#include "replica/founding.h"
#include "base/text.h"
#include "journal/note.h"
#include "replica/storing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "node"
#define ID_MAX 20         /* digits */
#define MEMBERS_TEXT 3072 /* bytes: nine of the longest, with their ids */

struct note { /* what the file says */
    uint64_t id;
    char life[FOUNDING_LIFE + 1];
    char cluster[MEMBERS_TEXT];
};

/* ---- members as text -------------------------------------------------------------------------- */

static void add_member(char *text, uint64_t id, const char *address)
{
    size_t used = strlen(text);

    snprintf(text + used, MEMBERS_TEXT - used, "%s%" PRIu64 "=%s", used ? "," : "", id, address);
}

static void members_wanted(const struct founding *founding, char ret_text[MEMBERS_TEXT])
{
    ret_text[0] = '\0';
    for (int i = 0; i < founding->member_count; i++)
        add_member(ret_text, founding->members[i].id, founding->members[i].address);
}

/* libraft keeps them by their ids, too. A node that was founded alone has no address: "". */
static void members_there(const struct raft_configuration *configuration,
                          char ret_text[MEMBERS_TEXT])
{
    ret_text[0] = '\0';
    for (unsigned i = 0; i < configuration->n; i++)
        if (configuration->servers[i].address[0])
            add_member(ret_text, configuration->servers[i].id, configuration->servers[i].address);
}

/* ---- the file --------------------------------------------------------------------------------- */

/* False: there is none. */
static int read_note(struct storage *storage, bool *ret_there, struct note *ret_note,
                     struct error_text *err)
{
    char text[NOTE_MAX + 1], id[ID_MAX + 1];
    int result = note_read(&storage->directory, FILE_NAME, text, err), fields;

    *ret_there = text[0];
    *ret_note = (struct note){0};
    if (result != HF_OK || !text[0])
        return result;
    fields = sscanf(text, "node %20[0-9] life %16[0-9a-f] cluster %3071s", id, ret_note->life,
                    ret_note->cluster);
    if (fields < 2 || strlen(ret_note->life) != FOUNDING_LIFE ||
        !text_to_u64(id, UINT64_MAX, &ret_note->id))
        return error_set(err, HF_EIO, "%s/" FILE_NAME " is damaged: restore it from a backup",
                         storage->directory.path);
    return HF_OK;
}

static bool is_same(const struct note *one, const struct note *other)
{
    return one->id == other->id && strcmp(one->life, other->life) == 0 &&
           strcmp(one->cluster, other->cluster) == 0;
}

static int write_note(struct storage *storage, const struct note *note, struct error_text *err)
{
    char text[NOTE_MAX + 1];

    snprintf(text, sizeof text, "node %" PRIu64 "\nlife %s\n%s%s%s", note->id, note->life,
             note->cluster[0] ? "cluster " : "", note->cluster, note->cluster[0] ? "\n" : "");
    return note_write(&storage->directory, FILE_NAME, text, err);
}

/* ---- what fits -------------------------------------------------------------------------------- */

static bool is_only(const struct raft_configuration *configuration, uint64_t id)
{
    return configuration->n == 1 && configuration->servers[0].id == id;
}

static int refuse(const struct storage *storage, const struct founding *founding,
                  const struct raft_configuration *there, struct error_text *err)
{
    char text[MEMBERS_TEXT];

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
    return error_set(err, HF_EREFUSED,
                     "%s belongs to a cluster with other members: cluster = %s (they come and go "
                     "by 'holdfast cluster add' and 'remove')",
                     storage->directory.path, text);
}

/* From now on it is the only member, at its present address. */
static int become_only(struct storage *storage, const struct founding *founding,
                       struct error_text *err)
{
    struct raft_configuration configuration;
    const char *address = founding->member_count > 0 ? founding->members[0].address : "";
    int result = HF_OK;

    raft_configuration_init(&configuration);
    if (raft_configuration_add(&configuration, founding->id, address, RAFT_VOTER) != 0)
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        result = loading_replace_members(storage, &configuration, err);
    raft_configuration_close(&configuration);
    return result;
}

/* There is data. */
static int settle_old(struct storage *storage, const struct founding *founding,
                      const struct raft_configuration *there, const struct note *note, bool noted,
                      struct error_text *err)
{
    char wanted[MEMBERS_TEXT], now[MEMBERS_TEXT];
    bool only = founding->member_count == 0 ||
                (founding->member_count == 1 && founding->members[0].id == founding->id);

    if (noted && note->id != founding->id)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to node %" PRIu64 ", and this is node %" PRIu64,
                         storage->directory.path, note->id, founding->id);
    if (founding->restored && !only)
        return error_set(err, HF_EREFUSED,
                         "a restored node begins alone: start it with itself as the only member, "
                         "and add the others with 'holdfast cluster add'");
    if (founding->restored)
        return become_only(storage, founding, err);
    members_wanted(founding, wanted);
    members_there(there, now);
    if ((noted && strcmp(wanted, note->cluster) == 0) || strcmp(wanted, now) == 0)
        return HF_OK;
    if (only && founding->member_count == 1 && is_only(there, founding->id))
        return become_only(storage, founding, err);
    return refuse(storage, founding, there, err);
}

int founding_settle(struct storage *storage, const struct founding *founding,
                    char ret_life[FOUNDING_LIFE + 1], struct error_text *err)
{
    struct raft_configuration there;
    struct note note, before;
    bool noted;
    int result = read_note(storage, &noted, &note, err);

    if (result == HF_OK)
        result = loading_members(storage, &there, err);
    if (result != HF_OK)
        return result;
    before = note;
    if (there.n > 0)
        result = settle_old(storage, founding, &there, &note, noted, err);
    else if (founding->restored)
        result = error_set(err, HF_EREFUSED, "there is no data in %s that could be a backup's",
                           storage->directory.path);
    raft_configuration_close(&there);
    if (result != HF_OK)
        return result;
    note.id = founding->id;
    if (!noted || founding->restored)
        snprintf(note.life, sizeof note.life, "%016" PRIx64, founding->life);
    members_wanted(founding, note.cluster);
    if (!noted || !is_same(&before, &note))
        result = write_note(storage, &note, err);
    memcpy(ret_life, note.life, sizeof note.life);
    return result;
}
