/* version.c: which version of the formats the cluster uses.
 *
 * Commands in the log, tables in snapshots, and messages are written in the version that is in effect, which every member reads; it
 * begins with 1. A node whose holdfastd reads newer ones says so to whoever leads, beside its acknowledgements. When all members, learners
 * too, have said that lately, the leader has an entry of type RAFT_VERSION agreed on; in effect it is when that is applied. Until then
 * each of them can go back to the older holdfastd; afterwards the older one neither starts nor takes part, and says why.
 *
 *     1 in effect ──all say 2──▶ RAFT_VERSION 2 in the log ──committed, applied──▶ 2 in effect, for good
 *
 *     1   what there was at first
 *     2   commands in the log say whose they are, and the limits of that user; leases in a snapshot, whose they are (CORE_QUOTA)
 *
 * What never changes: the head of a message, the message that says what a node reads, the entry itself, and the head of a snapshot. */
#include "replica/bytes.h"
#include "replica/inside.h"

#include <inttypes.h>
#include <stdlib.h>

uint32_t version_of_entry(const void *bytes, size_t size)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    uint32_t version = read_u32(&reader);

    return bytes_read(&reader) && version <= REPLICA_VERSION_MAX ? version : 0;
}

int version_begin(struct replica *replica, struct error_text *err)
{
    struct replica_options *options = &replica->options;

    if (!options->version)
        options->version = REPLICA_VERSION;
    replica->versions.now = VERSION_FIRST;
    if (options->version > REPLICA_VERSION_MAX)
        return error_set(err, HF_EINVAL, "there is no version %u of the formats", options->version);
    return HF_OK;
}

int version_use(struct replica *replica, uint32_t version, struct error_text *err)
{
    if (version > replica->options.version)
        return error_set(err, HF_EIO,
                         "version %u of the formats is in use here, and this holdfastd reads only "
                         "up to version %u: run a newer holdfastd",
                         version, replica->options.version);
    if (version > replica->versions.now)
        replica->versions.now = version;
    return HF_OK;
}

void version_applied(struct replica *replica, uint64_t index, const void *bytes, size_t size)
{
    uint32_t before = replica->versions.now;
    struct error_text err;

    if (version_use(replica, version_of_entry(bytes, size), &err) != HF_OK)
        replica_stop(replica, "%s", err.text);
    else if (replica->live && replica->versions.now > before)
        replica_note(replica, 3, "version %u of the formats is in use from entry %" PRIu64 " on",
                     replica->versions.now, index);
}

uint32_t replica_version_read(void)
{
    return REPLICA_VERSION;
}

uint32_t replica_version(const struct replica *replica)
{
    return replica->versions.now;
}

/* Not all members could read such a command yet: it goes into the log without that, as before there were limits. */
bool version_has_users(struct replica *replica)
{
    struct versions *versions = &replica->versions;

    if (versions->now >= VERSION_USERS || SWITCHED(SWITCH_QUOTA_TOO_EARLY))
        return true;
    if (!versions->told_of_users)
        replica_note(replica, 2,
                     "the limits of users (leases, holds, places) are not in force yet: that needs "
                     "version %u of the formats, and not all members have said that they read it",
                     VERSION_USERS);
    versions->told_of_users = true;
    return false;
}

/* ---- what nodes say --------------------------------------------------------------------------- */

/* What it would use: an option may hold it back. */
static uint32_t speaks(const struct replica *replica)
{
    uint32_t hold = replica->options.version_hold;

    return hold && hold < replica->options.version ? hold : replica->options.version;
}

void version_say(struct replica *replica, uint64_t to)
{
    struct message message = {
        .raft = {.type = MESSAGE_VERSION, .to = to, .term = raft_term(replica->raft)},
        .version = speaks(replica)};

    if (message.version <= replica->versions.now ||
        (replica->versions.said_to == to &&
         replica->now_us - replica->versions.said_us < tuning.version_say_us))
        return;
    replica->versions.said_to = to;
    replica->versions.said_us = replica->now_us;
    send_own(replica, &message);
}

void version_heard(struct replica *replica, const struct message *message)
{
    const struct replica_member *member = members_find(replica, message->raft.from);
    struct peer *peer = peer_of(replica, message->raft.from, false);

    if (!peer || !member || member->incarnation != message->raft.incarnation)
        return;
    peer->version = message->version;
    peer->version_us = replica->now_us;
}

/* The newest that all members read, as far as they have said so within an election timeout: who has been started anew since may be an
 * older one. */
static uint32_t agreed(struct replica *replica)
{
    const struct replica_config *members = &replica->members.latest;
    uint32_t version = speaks(replica);

    for (int i = 0; i < members->count && !SWITCHED(SWITCH_VERSION_TOO_EARLY); i++) {
        const struct peer *peer = peer_of(replica, members->at[i].id, false);

        if (members->at[i].id == replica->options.id)
            continue;
        if (!peer || peer->version == 0 ||
            replica->now_us - peer->version_us >= replica->limits.election_us)
            return 0;
        if (peer->version < version)
            version = peer->version;
    }
    return version;
}

/* Its entry is not applied yet. */
static bool is_asking(const struct replica *replica)
{
    const struct versions *versions = &replica->versions;

    return versions->asked_term == replica->term && versions->asked > replica->applied.index;
}

void version_pump(struct replica *replica)
{
    struct versions *versions = &replica->versions;
    struct bytes_writer writer;
    unsigned char *bytes;
    uint32_t version;

    if (replica->leading != LEAD_SERVING || speaks(replica) <= versions->now ||
        !raft_may_propose(replica->raft) || is_asking(replica))
        return;
    version = agreed(replica);
    if (version <= versions->now)
        return;
    bytes = replica_realloc(NULL, sizeof version);
    writer.at = bytes;
    write_u32(&writer, version);
    versions->asked_term = replica->term;
    versions->asked_version = version;
    versions->asked = propose_entry(replica, RAFT_VERSION, bytes, sizeof version);
}

/* ---- those who are too old -------------------------------------------------------------------- */

/* A member, as far as this node knows them: who catches up knows its leader first. */
static bool is_believed(const struct replica *replica, uint64_t from)
{
    return members_find(replica, from) || replica->members.latest.count == 0 ||
           raft_leader(replica->raft) == from;
}

/* Only whoever has applied the entry sends messages of that version: it is in effect, whatever this node has of the log. */
bool version_on_newer(struct replica *replica, uint64_t from, const void *bytes, size_t size)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    uint8_t version = read_u8(&reader);
    struct error_text err;

    read_u8(&reader); /* its type */
    if (read_u64(&reader) != replica->options.id || reader.wrong || !is_believed(replica, from) ||
        version_use(replica, version, &err) == HF_OK)
        return false;
    replica_stop(replica, "%s", err.text);
    return true;
}

int version_check_new(const struct replica *replica, const struct replica_member *member,
                      struct error_text *err)
{
    const struct versions *versions = &replica->versions;
    uint32_t needed = is_asking(replica) ? versions->asked_version : versions->now;

    if (member->version == 0 || member->version >= needed)
        return HF_OK;
    return error_set(err, HF_EINVAL,
                     "node %llu runs a holdfastd that reads formats up to version %u, and this "
                     "cluster uses version %u: run a newer holdfastd there first",
                     (unsigned long long)member->id, member->version, needed);
}
