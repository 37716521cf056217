/* metric_families.c: what Prometheus is told that is more than one number: histograms, and families with a label. */
#include "server/cluster.h"
#include "server/exposition.h"
#include "server/metrics.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS_US 1000u

static const struct exposition_label no_label = {.name = NULL};

static struct exposition_label label_of(const char *name, const char *value)
{
    return (struct exposition_label){name, value, strlen(value)};
}

/* ---- how long things take ------------------------------------------------------------------------ */

static void expose_histogram(const char *name, const char *help, const struct histogram *histogram,
                             struct textbuf *out)
{
    exposition_family(out, name, "histogram", help);
    exposition_histogram(out, name, histogram);
}

static void expose_histograms(const struct readings *readings, struct textbuf *out)
{
    const struct server *server = readings->server;

    expose_histogram("holdfast_commit_seconds",
                     "From the proposal of an entry by this node until it is committed",
                     replica_commits(server->replica), out);
    expose_histogram("holdfast_grant_seconds",
                     "From ACQUIRE until the lock is held, with the time in the queue",
                     &server->sessions.grants, out);
    expose_histogram("holdfast_log_write_seconds",
                     "Writing to the log until it is durable on this node's disk",
                     &readings->disk.took, out);
}

/* ---- this node ----------------------------------------------------------------------------------- */

static void expose_events(const struct readings *readings, struct textbuf *out)
{
    const struct metrics *metrics = &readings->server->metrics;
    const struct {
        const char *name, *help;
        uint64_t value;
    } events[] = {
        {"holdfast_elections_won_total", "Elections that this node has won",
         metrics->elections_won},
        {"holdfast_leader_changes_total", "Another node leads than before, as this one noticed",
         metrics->leader_changes},
        {"holdfast_leader_losses_total", "There was no leader any more, as this node noticed",
         metrics->leader_losses},
        {"holdfast_logins_total", "Passwords that were right", metrics->logins},
        {"holdfast_logins_refused_total", "Passwords that were wrong", metrics->logins_refused},
    };

    exposition_family(out, "holdfast_build_info", "gauge", "Always 1: the version is in the label");
    exposition_number(out, "holdfast_build_info", label_of("version", HOLDFAST_VERSION), 1);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        exposition_family(out, events[i].name, "counter", events[i].help);
        exposition_number(out, events[i].name, no_label, events[i].value);
    }
}

/* ---- members ------------------------------------------------------------------------------------- */

enum of_member { LAG, SILENT, CONNECTED, VOTES };

static void expose_member(const struct readings *readings, const struct member *member,
                          enum of_member what, const char *name, struct textbuf *out)
{
    const struct server *server = readings->server;
    bool is_own = member->id == server->config->id;
    char id[24];
    struct exposition_label label;

    snprintf(id, sizeof id, "%" PRIu64, member->id);
    label = label_of("member", id);
    if (what == LAG && member->known)
        exposition_number(out, name, label,
                          readings->log.last_index > member->match_index
                              ? readings->log.last_index - member->match_index
                              : 0);
    else if (what == SILENT && member->silent_ms >= 0 && !is_own)
        exposition_micro(out, name, label, (uint64_t)member->silent_ms * MS_US);
    else if (what == CONNECTED && !is_own)
        exposition_number(out, name, label, node_is_connected(server->node, member->id));
    else if (what == VOTES)
        exposition_number(out, name, label, member->votes);
}

static void expose_members(const struct readings *readings, struct textbuf *out)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        [LAG] = {"holdfast_member_lag_entries",
                 "Entries that are not on this member's disk, as its leader knows"},
        [SILENT] = {"holdfast_member_silent_seconds",
                    "Since this node heard from another member last"},
        [CONNECTED] = {"holdfast_member_connected", "1: there is a connection with this member"},
        [VOTES] = {"holdfast_member_votes", "1: it votes; 0: it is catching up"},
    };
    struct member members[REPLICA_MEMBERS_MAX];
    unsigned count = cluster_members(readings->server, members);

    for (unsigned what = 0; what < sizeof families / sizeof *families; what++) {
        exposition_family(out, families[what].name, "gauge", families[what].help);
        for (unsigned i = 0; i < count; i++)
            expose_member(readings, &members[i], what, families[what].name, out);
    }
}

/* ---- names, by how they begin -------------------------------------------------------------------- */

enum of_prefix { GRANTED, EXPIRED, BROKEN };

static uint64_t count_of(const struct prefix *prefix, enum of_prefix what)
{
    return what == GRANTED ? prefix->granted : what == EXPIRED ? prefix->expired : prefix->broken;
}

static void expose_prefix(const struct prefix *prefix, const char *name, uint64_t value,
                          struct textbuf *out)
{
    exposition_number(out, name, (struct exposition_label){"prefix", prefix->bytes, prefix->size},
                      value);
}

/* What a user may not look at is among the others. */
static void expose_prefixes(const struct readings *readings, const struct user *user,
                            struct textbuf *out)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        [GRANTED] = {"holdfast_prefix_grants_total",
                     "Locks granted, by what their names begin with"},
        [EXPIRED] = {"holdfast_prefix_expired_total", "Holds that ran out, likewise"},
        [BROKEN] = {"holdfast_prefix_broken_total", "Holds that were broken, likewise"},
    };
    const struct prefixes *prefixes = &readings->server->metrics.prefixes;

    for (unsigned what = 0; what < sizeof families / sizeof *families; what++) {
        const char *name = families[what].name;
        uint64_t others = count_of(&prefixes->other, what);

        exposition_family(out, name, "counter", families[what].help);
        for (uint32_t i = 0; i < prefixes->count; i++) {
            const struct prefix *prefix = &prefixes->at[i];
            struct core_text text = {prefix->bytes, prefix->size};

            if (user_may(user, RIGHT_LOOK, &text))
                expose_prefix(prefix, name, count_of(prefix, what), out);
            else
                others += count_of(prefix, what);
        }
        expose_prefix(&prefixes->none, name, count_of(&prefixes->none, what), out);
        expose_prefix(&prefixes->other, name, others, out);
    }
}

void metrics_expose_families(const struct readings *readings, const struct user *user,
                             struct textbuf *out)
{
    expose_events(readings, out);
    expose_histograms(readings, out);
    expose_members(readings, out);
    expose_prefixes(readings, user, out);
}
