/* cluster_status.c: holdfast cluster status: who leads, and how the others are. */
#include "cli/cluster.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

#include <stdarg.h>
#include <string.h>

#define SILENT_MS 2000 /* many heartbeats, and more than a pause of the machine */

/* ---- what is seen ---------------------------------------------------------------------------- */

static bool leader_answers(const hf_cluster_info *about)
{
    return !about->why && about->leader == about->id;
}

/* The leader knows how far everybody is that is connected to it: the connection of a process that has died ends with it. */
static bool is_disconnected(const hf_cluster_info *about, const hf_member *member)
{
    return about->leader == about->id && member->behind < 0;
}

bool cluster_is_silent(const hf_cluster_info *about, const hf_member *member)
{
    return member->id != about->id && (is_disconnected(about, member) || member->silent_ms < 0 ||
                                       member->silent_ms > SILENT_MS);
}

bool cluster_is_reachable(const hf_cluster_info *about, const hf_member *member)
{
    return !member->lost && !cluster_is_silent(about, member);
}

struct cluster_votes cluster_count_votes(const hf_cluster *cluster, uint64_t without)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    struct cluster_votes votes = {0};
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        if (member->votes && member->id != without) {
            votes.voters++;
            votes.lost += member->lost != 0;
            votes.reachable += cluster_is_reachable(about, member);
        }
    votes.majority = votes.voters / 2 + 1;
    votes.spare = votes.reachable > votes.majority ? votes.reachable - votes.majority : 0;
    return votes;
}

static bool is_removed(const hf_cluster_info *about)
{
    return strcmp(about->role, "removed") == 0;
}

static const char *role_of(const hf_cluster_info *about, const hf_member *member)
{
    if (member->id == about->id && strcmp(about->role, "stopped") == 0)
        return "stopped";
    if (member->id == about->leader)
        return "leader";
    if (is_removed(about)) /* the members do not talk to it any more */
        return member->id == about->id ? "removed" : "unknown";
    if (member->lost)
        return "lost its data";
    /* One that follows a leader hears nothing of the others. */
    if (about->leader != 0 && about->leader != about->id && member->id != about->id)
        return "unknown";
    if (*member->stopped)
        return "stopped";
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

void cluster_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* "node 2 (10.0.0.2:7431), node 3 (10.0.0.3:7431)": those that vote and have lost their data, or those that have it and are silent. */
static void add_missing(const hf_cluster *cluster, bool lost, char *text, size_t size)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    const char *before = "";
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        if (member->votes && (member->lost != 0) == lost && !cluster_is_reachable(about, member)) {
            cluster_append(text, size, "%snode %llu (%s)", before, (unsigned long long)member->id,
                           *member->peer ? printable(member->peer) : "no address");
            before = ", ";
        }
}

/* Those that came back empty cannot be removed either: that takes a majority. */
static void add_way_out(const hf_cluster *cluster, const struct cluster_votes *votes, char *text,
                        size_t size)
{
    unsigned long long id = (unsigned long long)hf_cluster_about(cluster)->id;

    cluster_append(text, size,
                   "nobody leads, and nobody will: of the %u nodes that vote %u have lost their "
                   "data: ",
                   votes->voters, votes->lost);
    add_missing(cluster, true, text, size);
    cluster_append(text, size,
                   "; mount their directories if they are not mounted; else stop node %llu and "
                   "begin anew from its directory, with 'holdfastd --restore-from' "
                   "(holdfastd(8), docs/cluster.md)",
                   id);
}

void cluster_describe_leaderless(const hf_cluster *cluster, char *ret_text, size_t size)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    struct cluster_votes votes = cluster_count_votes(cluster, 0);
    unsigned long long id = (unsigned long long)about->id;

    ret_text[0] = '\0';
    if (*about->trouble)
        cluster_append(ret_text, size, "node %llu %s: %s", id, in_trouble(about),
                       printable(about->trouble));
    else if (strcmp(about->role, "waiting") == 0)
        cluster_append(ret_text, size, "node %llu belongs to no cluster yet", id);
    else if (votes.voters == 0)
        cluster_append(ret_text, size, "node %llu knows of no members: %s", id, about->why);
    else if (votes.voters - votes.lost < votes.majority)
        add_way_out(cluster, &votes, ret_text, size);
    else if (votes.reachable < votes.majority) {
        cluster_append(
            ret_text, size,
            "nobody leads: %u of the %u nodes that vote must be there, and node %llu hears of %u, "
            "itself included",
            votes.majority, votes.voters, id, votes.reachable);
        cluster_append(ret_text, size, "; bring back ");
        if (votes.majority - votes.reachable < votes.voters - votes.lost - votes.reachable)
            cluster_append(ret_text, size, "%u of ", votes.majority - votes.reachable);
        add_missing(cluster, false, ret_text, size);
    } else
        cluster_append(ret_text, size, "nobody leads at the moment: %s", about->why);
    if (*about->advice)
        cluster_append(ret_text, size, ": %s", printable(about->advice));
    else if (strcmp(about->role, "waiting") == 0 && !*about->trouble)
        cluster_append(ret_text, size,
                       ": found one with 'holdfast cluster init', or add it to one with "
                       "'holdfast cluster add'");
}

int cluster_say_why(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    char text[CLUSTER_TEXT_MAX];

    if (about->leader == 0) {
        cluster_describe_leaderless(cluster, text, sizeof text);
        say("%s", text);
    } else
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
        if (*member->stopped)
            json_string(&json, "stopped", member->stopped);
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

static int print_members(const hf_cluster *cluster)
{
    static const char *const titles[] = {"ID", "ROLE", "CLIENTS", "PEERS", "BEHIND", "HEARD"};
    const hf_cluster_info *about = hf_cluster_about(cluster);
    const hf_member *member;
    struct table table;

    table_begin(&table, 6);
    for (size_t i = 0; i < 6; i++)
        table_cell(&table, titles[i]);
    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        member_row(&table, about, member);
    return table_end(&table);
}

/* What is to be done about members that do not come back by themselves. Nobody is removed while nobody leads: then it is said what else
 * there is (add_way_out). */
static void print_ills(const hf_cluster *cluster)
{
    bool is_led = leader_answers(hf_cluster_about(cluster));
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++) {
        unsigned long long id = (unsigned long long)member->id;

        if (*member->stopped)
            printf("Node %llu has stopped: %s\n", id, printable(member->stopped));
        else if (member->lost && is_led)
            printf("Node %llu has lost its data: mount its directory, if it is not mounted, and "
                   "start it again; else 'holdfast cluster remove %llu', and add a node in its "
                   "place under another id.\n",
                   id, id);
    }
}

/* Only the leader knows who is there. */
static void print_survives(const hf_cluster *cluster)
{
    unsigned spare = cluster_count_votes(cluster, 0).spare;

    if (spare > 0)
        printf("The cluster survives the loss of %u more member%s.\n", spare,
               spare == 1 ? "" : "s");
    else
        printf("No member can be lost: with one less, nothing is granted.\n");
}

static int status_table(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    int status;

    if (about->member_count == 0) { /* why that is so comes on stderr */
        printf("Node %llu knows of no members.\n", (unsigned long long)about->id);
        return EXIT_DONE;
    }
    status = print_members(cluster);
    printf("\nTerm %llu, as node %llu sees it, ", (unsigned long long)about->term,
           (unsigned long long)about->id);
    if (leader_answers(about))
        printf("which leads.\n");
    else if (is_removed(about))
        printf("which is no member any more.\n");
    else if (about->leader == 0)
        printf("which knows of no leader.\n");
    else
        printf("which follows node %llu.\n", (unsigned long long)about->leader);
    print_ills(cluster);
    if (leader_answers(about))
        print_survives(cluster);
    if (*about->cluster)
        printf("Cluster %s.\n", printable(about->cluster));
    return status;
}

int cluster_status(struct cli *cli, const struct cluster_request *request)
{
    hf_cluster *cluster;
    struct slow slow;
    int status = EXIT_DONE, result;

    if (request->health)
        return cluster_health(cli, request);
    slow_begin_soon_refused(&slow, cli, "cluster status", "no word of a leader", request->wait_ms);
    result = hf_cluster_status(cli->store, request->wait_ms, &cluster);
    slow_end(&slow);
    if (result != HF_OK)
        return say_result(result);
    if (cli->json)
        status_json(cluster);
    else
        status = status_table(cluster);
    flush_output();
    if (hf_cluster_about(cluster)->why)
        status = cluster_say_why(cluster);
    hf_cluster_free(cluster);
    return status;
}
