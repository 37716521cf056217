/* opening.c: a replica from its options, and libraft from what is on disk. */
#include "replica_libraft/identity.h"
#include "replica_libraft/inside.h"

#include <stdio.h>
#include <string.h>

#define ELECTION_MS_DEFAULT 500u
#define HEARTBEAT_MS_DEFAULT 50u
#define HEARTBEAT_MS_MAX 5000u
/* libraft's own is 30 s. It begins anew with a node that refuses, but not if a later snapshot has been told of meanwhile: then only
 * this helps. What is still on its way is not sent twice (memory.c). */
#define SNAPSHOT_AGAIN_MS 1000u

static int check_options(const struct replica_options *options, struct error_text *err)
{
    uint32_t election = options->election_ms ? options->election_ms : ELECTION_MS_DEFAULT;
    uint32_t heartbeat = options->heartbeat_ms ? options->heartbeat_ms : HEARTBEAT_MS_DEFAULT;

    if (options->id == 0)
        return error_set(err, HF_EINVAL, "the id of a node is a number from 1");
    if (heartbeat > HEARTBEAT_MS_MAX)
        return error_set(err, HF_EINVAL, "a heartbeat of %u ms is longer than %u ms", heartbeat,
                         HEARTBEAT_MS_MAX);
    if (heartbeat >= election)
        return error_set(err, HF_EINVAL,
                         "a heartbeat of %u ms is not shorter than the election timeout of %u ms",
                         heartbeat, election);
    return HF_OK;
}

static struct replica *make(const struct replica_options *options, struct raft_io *io,
                            const struct replica_host *host)
{
    struct replica *replica = replica_realloc(NULL, sizeof *replica);
    unsigned char seed[16];

    memset(replica, 0, sizeof *replica);
    replica->io = io;
    replica->host = *host;
    replica->id = options->id;
    replica->snapshot_bytes =
        options->snapshot_bytes ? options->snapshot_bytes : SNAPSHOT_BYTES_DEFAULT;
    replica->snapshot_trailing = options->snapshot_trailing;
    replica->memory_bytes = options->memory_bytes ? options->memory_bytes : MEMORY_BYTES_DEFAULT;
    replica->waits = options->waits;
    snprintf(replica->about, sizeof replica->about, "%s", options->about ? options->about : "");
    replica->heartbeat_ms = options->heartbeat_ms ? options->heartbeat_ms : HEARTBEAT_MS_DEFAULT;
    replica->role = REPLICA_FOLLOWING;
    host->random(host->context, seed, sizeof seed);
    replica->table = core_new(seed);
    host->random(host->context, &replica->origin, sizeof replica->origin);
    apply_init(replica);
    replica->raft.data = replica;
    return replica;
}

static void set_up_raft(struct replica *replica, const struct replica_options *options)
{
    struct raft *raft = &replica->raft;
    unsigned seed;

    raft->tracer = NULL; /* the one it comes with formats every message, to print none */
    replica->host.random(replica->host.context, &seed, sizeof seed);
    raft_seed(raft, seed);
    raft_set_heartbeat_timeout(raft, replica->heartbeat_ms);
    raft_set_election_timeout(raft,
                              options->election_ms ? options->election_ms : ELECTION_MS_DEFAULT);
    raft_set_install_snapshot_timeout(raft, SNAPSHOT_AGAIN_MS);
    raft_set_pre_vote(raft, true);
    raft_set_capacity_threshold(raft, 0);
    members_init(replica);
    snapshots_init(replica);
}

/* Does nothing in a directory that is not new. */
static int bootstrap(struct replica *replica, const struct replica_member *members, int count)
{
    struct raft_configuration configuration;
    int result = 0;

    if (count == 0)
        return 0;
    raft_configuration_init(&configuration);
    for (int i = 0; i < count && result == 0; i++) {
        char identity[IDENTITY_MAX + 1];

        identity_write(members[i].address, members[i].life, identity);
        result = raft_configuration_add(&configuration, members[i].id, identity, RAFT_VOTER);
    }
    if (result == 0)
        result = raft_bootstrap(&replica->raft, &configuration);
    raft_configuration_close(&configuration);
    return result == RAFT_CANTBOOTSTRAP ? 0 : result;
}

static void note_outsider(struct replica *replica)
{
    const struct raft_configuration *configuration = &replica->raft.configuration;

    for (unsigned i = 0; i < configuration->n; i++)
        if (configuration->servers[i].id == replica->id)
            return;
    if (configuration->n > 0)
        replica_note(replica, 2, "this node, %llu, is not a member of the cluster in its data",
                     (unsigned long long)replica->id);
}

static int say_why(const struct replica *replica, const char *what, int result,
                   struct error_text *err)
{
    if (gate_shut(replica))
        return error_set(err, HF_EIO, "%s", replica->trouble.text);
    return error_set(err, HF_EIO, "%s: %s", what,
                     replica->io->errmsg[0] ? replica->io->errmsg : raft_strerror(result));
}

/* HF_EIO: libraft is as it was. */
static int start(struct replica *replica, const struct replica_member *members, int count,
                 struct error_text *err)
{
    const char *what = "the cluster cannot be founded";
    int result = bootstrap(replica, members, count);

    if (result == 0) {
        what = "the log cannot be loaded";
        result = raft_start(&replica->raft);
    }
    if (result != 0 || gate_shut(replica))
        return say_why(replica, what, result, err);
    replica->io->errmsg[0] = '\0'; /* loading leaves words there that are of no importance */
    replica->opened = true;
    note_outsider(replica);
    return HF_OK;
}

bool replica_waits(const struct replica *replica)
{
    return replica->waits;
}

int replica_begin(struct replica *replica, const struct replica_member *members, int count,
                  struct error_text *err)
{
    int result;

    INVARIANT(replica->waits && !replica->closing);
    replica->waits = false;
    result = start(replica, members, count, err);
    if (result != HF_OK)
        gate_trouble(replica, "%s", err->text);
    return result;
}

void replica_cannot_begin(struct replica *replica, const struct error_text *why)
{
    replica->waits = false;
    gate_trouble(replica, "%s", why->text);
}

int replica_open(const struct replica_options *options, struct raft_io *io,
                 const struct replica_host *host, struct replica **ret_replica,
                 struct error_text *err)
{
    struct replica *replica;
    int result = check_options(options, err);

    if (result != HF_OK)
        return result;
    replica = make(options, io, host);
    replica->saved = *io;
    result = raft_init(&replica->raft, io, &replica->fsm, options->id, options->address);
    if (result != 0) {
        result = say_why(replica, "the data directory cannot be used", result, err);
        replica_finish(replica);
        return result;
    }
    set_up_raft(replica, options);
    gate_install(replica);
    if (!options->waits)
        result = start(replica, options->members, options->member_count, err);
    if (result != HF_OK) {
        replica->abandoned = true;
        replica_close_raft(replica);
        return result;
    }
    *ret_replica = replica;
    return HF_OK;
}
