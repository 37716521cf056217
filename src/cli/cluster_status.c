/* cluster_status.c: holdfast cluster status: who leads, and how the others are. */
#include "cli/cluster.h"
#include "cli/json.h"
#include "cli/output.h"

#include <string.h>

#define SILENT_MS 2000 /* many heartbeats, and more than a pause of the machine */

/* ---- what is seen ---------------------------------------------------------------------------- */

static bool leader_answers(const hf_cluster_info *about)
{
    return !about->why && about->leader == about->id;
}

bool cluster_is_silent(const hf_cluster_info *about, const hf_member *member)
{
    return member->id != about->id && (member->silent_ms < 0 || member->silent_ms > SILENT_MS);
}

static const char *role_of(const hf_cluster_info *about, const hf_member *member)
{
    if (member->id == about->leader)
        return "leader";
    if (member->lost)
        return "lost its data";
    /* One that follows a leader hears nothing of the others. */
    if (about->leader != 0 && about->leader != about->id && member->id != about->id)
        return "unknown";
    if (cluster_is_silent(about, member))
        return "silent";
    return member->votes ? "follower" : "catching up";
}

static const char *in_trouble(const hf_cluster_info *about)
{
    return strcmp(about->role, "stopped") == 0   ? "has stopped"
           : strcmp(about->role, "waiting") == 0 ? "waits"
                                                 : "takes no part";
}

/* Why nobody leads, as far as it can be seen from the node that answered. */
static void say_leaderless(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    unsigned voters = 0, heard = 0;
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++) {
        voters += member->votes != 0;
        heard += member->votes && !cluster_is_silent(about, member);
    }
    if (*about->trouble)
        say("node %llu %s: %s", (unsigned long long)about->id, in_trouble(about),
            printable(about->trouble));
    else if (strcmp(about->role, "waiting") == 0)
        say("node %llu belongs to no cluster yet: found one with 'holdfast cluster init', or add "
            "it to one with 'holdfast cluster add'",
            (unsigned long long)about->id);
    else if (voters == 0)
        say("node %llu knows of no members: %s", (unsigned long long)about->id, about->why);
    else if (heard <= voters / 2)
        say("nobody leads: %u of the %u nodes that vote must be there, and node %llu hears of %u, "
            "itself included",
            voters / 2 + 1, voters, (unsigned long long)about->id, heard);
    else
        say("nobody leads at the moment: %s", about->why);
}

int cluster_say_why(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);

    if (about->leader == 0)
        say_leaderless(cluster);
    else
        say("this is what node %llu sees; node %llu leads, and did not answer: %s",
            (unsigned long long)about->id, (unsigned long long)about->leader, about->why);
    return EXIT_UNAVAILABLE;
}

/* ---- status ---------------------------------------------------------------------------------- */

static void status_json(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++) {
        struct json json;

        json_begin(&json);
        json_u64(&json, "id", member->id);
        json_string(&json, "role", role_of(about, member));
        json_string(&json, "client", *member->client ? member->client : NULL);
        json_string(&json, "peer", *member->peer ? member->peer : NULL);
        json_bool(&json, "votes", member->votes != 0);
        json_ms(&json, "behind", member->behind); /* null where it is not known, as with spans */
        json_ms(&json, "silent_ms", member->silent_ms);
        json_u64(&json, "term", about->term);
        json_u64(&json, "leader", about->leader);
        json_u64(&json, "answered_by", about->id);
        json_string(&json, "cluster", *about->cluster ? about->cluster : NULL);
        json_end(&json);
    }
}

static void member_row(struct table *table, const hf_cluster_info *about, const hf_member *member)
{
    char id[24], behind[24], heard[64];

    snprintf(id, sizeof id, "%llu", (unsigned long long)member->id);
    snprintf(behind, sizeof behind, "%lld", (long long)member->behind);
    snprintf(heard, sizeof heard, "%s ago", span(member->silent_ms));
    table_cell(table, id);
    table_cell(table, role_of(about, member));
    table_cell(table, *member->client ? printable(member->client) : "?");
    table_cell(table, *member->peer ? printable(member->peer) : "-");
    table_cell(table, member->behind < 0 ? "?" : behind);
    table_cell(table, member->id == about->id ? "-" : member->silent_ms < 0 ? "never" : heard);
}

static int status_table(const hf_cluster *cluster)
{
    static const char *const titles[] = {"ID", "ROLE", "CLIENTS", "PEERS", "BEHIND", "HEARD"};
    const hf_cluster_info *about = hf_cluster_about(cluster);
    const hf_member *member;
    struct table table;
    int status;

    table_begin(&table, 6);
    for (size_t i = 0; i < 6; i++)
        table_cell(&table, titles[i]);
    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        member_row(&table, about, member);
    status = table_end(&table);
    printf("\nTerm %llu, as node %llu sees it, ", (unsigned long long)about->term,
           (unsigned long long)about->id);
    if (leader_answers(about))
        printf("which leads.\n");
    else if (about->leader == 0)
        printf("which knows of no leader.\n");
    else
        printf("which follows node %llu.\n", (unsigned long long)about->leader);
    if (*about->cluster)
        printf("Cluster %s.\n", printable(about->cluster));
    return status;
}

int cluster_status(struct cli *cli, const struct cluster_request *request)
{
    hf_cluster *cluster;
    int status = EXIT_DONE;
    int result = hf_cluster_status(cli->store, request->wait_ms, &cluster);

    if (result != HF_OK)
        return say_result(result);
    if (cli->json)
        status_json(cluster);
    else
        status = status_table(cluster);
    fflush(stdout);
    if (hf_cluster_about(cluster)->why)
        status = cluster_say_why(cluster);
    hf_cluster_free(cluster);
    return status;
}
