/* cluster.c: holdfast cluster status|init|add|remove|transfer|backup: the nodes behind a holdfast:// store. */
#include "cli/cluster.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>

#define STATUS_WAIT_MS 5000  /* for a leader, before somebody else's view is shown */
#define CHANGE_WAIT_MS 10000 /* for a leader that takes the change */
#define WAIT_MIN_MS 100
#define SILENCE_MS 2000  /* nobody wants a line about a wait that is hardly longer */
#define INIT_MS 5000     /* for one question, and the answer of a node that passes it on */
#define HAND_OVERS_MAX 3 /* a leader that is to go may be elected again */

enum { OPT_WAIT = 'w', OPT_NO_WAIT = 'n', OPT_HEALTH = 256 };

static const struct option_spec options[] = {
    {OPT_WAIT, "wait", "DUR",
     "wait at most so long for a leader (10s; status: 5s), for add's node to vote, and for "
     "members that init misses (not at all)"},
    {OPT_NO_WAIT, "no-wait", NULL, "add: do not wait until the node answers and votes"},
    {OPT_HEALTH, "health", NULL,
     "status: one line for monitoring; exit status 0 well, 1 degraded, 2 not serving, 3 unknown"},
    {0},
};

/* ---- before and after a change --------------------------------------------------------------- */

hf_cluster *cluster_ask_leader(struct cli *cli, const struct cluster_request *request,
                               const char *so_far, int *ret_status)
{
    hf_cluster *cluster = NULL;
    struct progress_line line;
    char text[64];
    int result;

    result = hf_cluster_status(cli->store, WAIT_MIN_MS, &cluster); /* is anybody there? */
    if (result == HF_OK && hf_cluster_about(cluster)->why && request->wait_ms > WAIT_MIN_MS) {
        hf_cluster_free(cluster);
        snprintf(text, sizeof text, "no leader has answered yet; waiting, at most %s",
                 span(request->wait_ms));
        if (request->wait_ms > SILENCE_MS)
            progress_begin(&line, text);
        result = hf_cluster_status(cli->store, request->wait_ms, &cluster);
        if (request->wait_ms > SILENCE_MS)
            progress_end(&line);
    }
    if (result != HF_OK) {
        *ret_status = say_result(result);
        return NULL;
    }
    if (!hf_cluster_about(cluster)->why)
        return cluster;
    *ret_status = cluster_say_why(cluster);
    say("%s", so_far);
    hf_cluster_free(cluster);
    return NULL;
}

int cluster_say_change(const struct cluster_request *request, int result)
{
    if (result == HF_EUNKNOWN)
        say("%s; it may or may not have happened: look at 'holdfast cluster status'", hf_error());
    else if (result == HF_EUNREACH)
        say("nothing was changed within %s: %s", span(clock_boot_ms() - request->began_ms),
            hf_error());
    else
        say("%s", hf_error());
    return status_of(result);
}

/* ---- init ------------------------------------------------------------------------------------ */

static void founded_json(const hf_cluster *cluster)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    struct json json;

    json_begin(&json);
    json_bool(&json, "founded", true);
    json_u64(&json, "members", about->member_count);
    json_u64(&json, "leader", about->leader);
    json_end(&json);
}

/* Members that do not answer may be starting. Only who says --wait waits for them, having heard for whom. Each question is awaited to its end,
 * also when that is later: who is told that a cluster may have been founded does not know what to do. */
static int found(struct cli *cli, const struct cluster_request *request)
{
    int64_t until_ms = clock_after(clock_boot_ms(), request->wait_ms), left_ms;
    int result = hf_cluster_init(cli->store, INIT_MS);

    left_ms = until_ms - clock_boot_ms();
    if (result != HF_EUNREACH || !request->waits_so_long || left_ms < INIT_MS)
        return result;
    say("%s; asking again, for up to %s", hf_error(), span(left_ms));
    return hf_cluster_init(cli->store, left_ms);
}

static int run_init(struct cli *cli, const struct cluster_request *request)
{
    int status = EXIT_DONE, result;
    struct progress_line line;
    hf_cluster *cluster = NULL;

    result = hf_cluster_status(cli->store, WAIT_MIN_MS, &cluster); /* is anybody there? */
    if (result != HF_OK)
        return say_result(result);
    hf_cluster_free(cluster);
    progress_begin(&line, "asking all members; some have not answered yet");
    result = found(cli, request);
    progress_end(&line);
    if (result == HF_EUNREACH) /* it says itself that nothing was changed */
        return say_result(result);
    if (result != HF_OK)
        return cluster_say_change(request, result);
    cluster = cluster_ask_leader(cli, request,
                                 "the cluster is founded; who leads it is not known yet", &status);
    if (!cluster)
        return status;
    if (cli->json)
        founded_json(cluster);
    else
        printf("the cluster is founded, with %zu member%s; node %llu leads\n",
               hf_cluster_about(cluster)->member_count,
               hf_cluster_about(cluster)->member_count == 1 ? "" : "s",
               (unsigned long long)hf_cluster_about(cluster)->leader);
    hf_cluster_free(cluster);
    return EXIT_DONE;
}

/* ---- transfer -------------------------------------------------------------------------------- */

static int run_transfer(struct cli *cli, const struct cluster_request *request)
{
    const hf_cluster_info *about;
    struct json json;
    int status = EXIT_DONE, result;
    hf_cluster *cluster = cluster_ask_leader(cli, request, CLUSTER_NOTHING_CHANGED, &status);

    if (!cluster)
        return status;
    hf_cluster_free(cluster);
    result = hf_cluster_transfer(cli->store, request->id, request->wait_ms);
    if (result != HF_OK)
        return cluster_say_change(request, result);
    cluster =
        cluster_ask_leader(cli, request, "it was handed over; who leads now is not known", &status);
    if (!cluster)
        return status;
    about = hf_cluster_about(cluster);
    if (cli->json) {
        json_begin(&json);
        json_u64(&json, "leader", about->leader);
        json_u64(&json, "term", about->term);
        json_end(&json);
    } else {
        printf("node %llu leads\n", (unsigned long long)about->leader);
    }
    if (request->id != 0 && about->leader != request->id) {
        say("node %llu was elected instead of node %llu", (unsigned long long)about->leader,
            (unsigned long long)request->id);
        status = EXIT_UNAVAILABLE;
    }
    hf_cluster_free(cluster);
    return status;
}

/* ---- remove ---------------------------------------------------------------------------------- */

static void say_removed(const struct cli *cli, uint64_t id)
{
    struct json json;

    if (cli->json) {
        json_begin(&json);
        json_u64(&json, "id", id);
        json_bool(&json, "member", false);
        json_end(&json);
        return;
    }
    printf(
        "node %llu is no member any more\n"
        "Stop its process, and do not start it again with the data it has: that is of a member. "
        "To let the machine come\nback, empty the data directory, start it with a new id, and add "
        "that.\n",
        (unsigned long long)id);
}

/* Nobody removes the one who leads: it lets another lead first. HF_OK also if it did not lead. */
static int hand_over(struct cli *cli, const struct cluster_request *request, bool leads)
{
    int result = leads ? hf_cluster_transfer(cli->store, 0, request->wait_ms) : HF_OK;

    if (result == HF_OK && leads && !cli->json)
        say("node %llu led, and has let another node lead", (unsigned long long)request->id);
    return result;
}

static bool votes(const hf_cluster *cluster, uint64_t id)
{
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        if (member->id == id)
            return member->votes != 0;
    return false;
}

/* The leader refuses what would leave no majority at once. What leaves just one is done, but not in silence. */
static bool leaves_none_to_lose(const hf_cluster *cluster, uint64_t id)
{
    struct cluster_votes left = cluster_count_votes(cluster, id);

    return votes(cluster, id) && left.reachable <= left.majority;
}

static int run_remove(struct cli *cli, const struct cluster_request *request)
{
    int result = HF_EREFUSED;
    bool none_to_lose = false;

    for (int i = 0; i < HAND_OVERS_MAX && result == HF_EREFUSED; i++) {
        int status = EXIT_DONE;
        hf_cluster *cluster = cluster_ask_leader(cli, request, CLUSTER_NOTHING_CHANGED, &status);
        bool leads;

        if (!cluster)
            return status;
        leads = hf_cluster_about(cluster)->leader == request->id;
        none_to_lose = leaves_none_to_lose(cluster, request->id);
        hf_cluster_free(cluster);
        if (i > 0 && !leads) /* so it was not refused because of that */
            break;
        result = hand_over(cli, request, leads);
        if (result != HF_OK)
            break;
        result = hf_cluster_remove(cli->store, request->id, request->wait_ms);
    }
    if (result != HF_OK)
        return cluster_say_change(request, result);
    if (none_to_lose)
        say("from now on no member can be lost: with one less, nothing is granted");
    say_removed(cli, request->id);
    return EXIT_DONE;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct action {
    const char *name, *usage;
    int least, most; /* words after it */
    int64_t wait_ms;
    int (*run)(struct cli *cli, const struct cluster_request *request);
    bool takes_file; /* and no ID */
} actions[] = {
    {"status", "", 0, 0, STATUS_WAIT_MS, cluster_status, false},
    {"init", "", 0, 0, CHANGE_WAIT_MS, run_init, false},
    {"add", " ID HOST:PORT", 2, 2, CHANGE_WAIT_MS, cluster_add, false},
    {"remove", " ID", 1, 1, CHANGE_WAIT_MS, run_remove, false},
    {"transfer", " [ID]", 0, 1, CHANGE_WAIT_MS, run_transfer, false},
    {"backup", " FILE", 1, 1, CHANGE_WAIT_MS, cluster_backup, true},
};

#define ACTION_COUNT (sizeof actions / sizeof *actions)

static const struct action *find_action(const struct args *args, const char *name)
{
    const char *names[ACTION_COUNT];
    int at;

    for (size_t i = 0; i < ACTION_COUNT; i++)
        names[i] = actions[i].name;
    at = args_pick(args, names, ACTION_COUNT, name);
    return at < 0 ? NULL : &actions[at];
}

/* False: it has said what is wrong. */
static bool check_words(struct args *args, const struct action *action,
                        struct cluster_request *request)
{
    const char *address = request->words[1];

    if (request->count < action->least || request->count > action->most) {
        args_complain(args, "usage: holdfast cluster %s%s", action->name, action->usage);
        return false;
    }
    if (request->no_wait && action->run != cluster_add) {
        args_complain(args, "--no-wait is for add: nothing else takes long");
        return false;
    }
    if (request->health && action->run != cluster_status) {
        args_complain(args, "--health is for status");
        return false;
    }
    args->value = request->words[0];
    if (request->count > 0 && !action->takes_file &&
        !args_number(args, "ID", 1, HF_NODE_MAX, &request->id))
        return false;
    if (address && (!strchr(address, ':') || strpbrk(address, "=, \t\n") ||
                    strlen(address) > HF_ADDRESS_MAX)) {
        args_complain(args, "'%s' is not the HOST:PORT where its peers reach it",
                      printable(address));
        return false;
    }
    return true;
}

/* Opening a file store makes it: not for a command that has nothing to do there. */
static bool names_files(const struct cli *cli)
{
    const char *url = cli->url ? cli->url : getenv("HOLDFAST_URL");

    return url && strncmp(url, "file:", 5) == 0;
}

static int say_no_cluster(void)
{
    say("a file store has no cluster to look after: that is for holdfast:// stores");
    return EXIT_USAGE;
}

static int run(struct cli *cli, struct args *args)
{
    struct cluster_request request = {.wait_ms = -1, .began_ms = clock_boot_ms()};
    const struct action *action = NULL;
    int id, status;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_NO_WAIT)
            request.no_wait = true;
        else if (id == OPT_HEALTH)
            request.health = true;
        else if (id == OPT_WAIT) {
            if (!args_duration(args, "--wait", WAIT_MIN_MS, HF_DURATION_MAX_MS, &request.wait_ms))
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && !action) {
            action = find_action(args, args->value);
            if (!action)
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && request.count < CLUSTER_WORDS_MAX)
            request.words[request.count++] = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!action)
        return args_complain(args, "usage: holdfast cluster %s", args->command->usage);
    if (!check_words(args, action, &request))
        return EXIT_USAGE;
    request.waits_so_long = request.wait_ms >= 0;
    if (request.wait_ms < 0)
        request.wait_ms = action->wait_ms;
    if (names_files(cli))
        return say_no_cluster();
    status = cli_open(cli);
    return status != 0 ? status : finish_output(action->run(cli, &request));
}

const struct command command_cluster = {
    .name = "cluster",
    .summary = "show and change the nodes of a holdfastd cluster (for operators)",
    .usage =
        "status | init | add ID HOST:PORT | remove ID | transfer [ID] | backup FILE [OPTION...]",
    .description =
        "status    shows the nodes: who leads, how far behind the others are, when they were "
        "heard,\n"
        "          and how many may be lost\n"
        "init      founds the cluster, once, when all its nodes run with the same --cluster and "
        "empty\n"
        "          directories; any of them will do\n"
        "add       takes a node in, started empty and reached by its peers at HOST:PORT, and\n"
        "          waits until it has caught up and votes\n"
        "remove    takes a node out; one that leads lets another lead first\n"
        "transfer  lets another node lead: ID, or without it the one that is nearest\n"
        "backup    writes what the leader has to FILE (-: standard output), while it serves;\n"
        "          'holdfastd --restore-from FILE' makes a store of it\n\n"
        "Only for holdfast:// stores. Any node of the URL will do: the one that leads is found.",
    .options = options,
    .takes_json = true,
    .examples =
        "  holdfast --on holdfast://10.0.0.1,10.0.0.2,10.0.0.3 cluster status\n"
        "  holdfast --on holdfast://10.0.0.1 cluster init\n"
        "  holdfast cluster add 4 10.0.0.4:7431      # there first: holdfastd --join --id 4 ...\n"
        "  holdfast cluster remove 2\n"
        "  holdfast cluster backup /backup/locks.hfb\n"
        "  holdfast cluster status --health || page-somebody\n",
    .statuses =
        "  0 done   69 no leader answers, it is not known whether it happened, or\n"
        "       a backup could not be written\n"
        "  status --health: 0 well   1 degraded   2 not serving   3 unknown\n"
        "  77 refused: a member in the way that is not empty or lists others, no such node,\n"
        "     no other that could lead, no folder for the backup\n"
        "  64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
