/* cluster.c: holdfast cluster status|init|add|remove|transfer: the nodes behind a holdfast:// store.
 *
 * It reaches them by <holdfast/cluster.h>, like any program. Behind that the holdfast engine has two
 * functions beside those for locks, and asks over the same connection: what the URL means, where the
 * password comes from, which servers are tried and who is sent where (MOVED) is written once, there.
 * Only a store whose engine has them has a cluster; the others say so. */
#include "base/clock.h"
#include "base/suggest.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/signals.h"

#include <errno.h>
#include <holdfast/cluster.h>
#include <poll.h>
#include <string.h>

#define STATUS_WAIT_MS 5000  /* for a leader, before somebody else's view is shown */
#define CHANGE_WAIT_MS 10000 /* for a leader that takes the change */
#define WAIT_MIN_MS 100
#define SILENT_MS 2000    /* many heartbeats, and more than a pause of the machine */
#define LOOK_MS 1000      /* of one look while we wait */
#define LOOK_EVERY_MS 100 /* while we wait */
#define FIRST_TELL_MS 1000
#define NEXT_TELL_MS 5000
#define HAND_OVERS_MAX 3 /* a leader that is to go may be elected again */
#define WORDS_MAX 2
#define NOTHING_CHANGED "nothing was changed"

enum { OPT_WAIT = 'w', OPT_NO_WAIT = 'n' };

static const struct option_spec options[] = {
    {OPT_WAIT, "wait", "DUR",
     "wait at most so long for a leader (10s; status: 5s), and for add's node to vote"},
    {OPT_NO_WAIT, "no-wait", NULL, "add: do not wait until the node votes"},
    {0},
};

struct wanted {
    const char *words[WORDS_MAX]; /* after the action */
    int count;
    uint64_t id; /* words[0], where there is one */
    int64_t wait_ms;
    bool waits_so_long; /* --wait was given: nothing takes longer */
    bool no_wait;
};

/* ---- what is seen ---------------------------------------------------------------------------- */

static bool leader_answers(const hf_cluster_info *about)
{
    return !about->why && about->leader == about->id;
}

static bool is_silent(const hf_cluster_info *about, const hf_member *member)
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
    if (is_silent(about, member))
        return "silent";
    return member->votes ? "follower" : "catching up";
}

static const hf_member *find(const hf_cluster *cluster, uint64_t id)
{
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        if (member->id == id)
            return member;
    return NULL;
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
        heard += member->votes && !is_silent(about, member);
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

/* No leader answered: says why that is so. */
static int say_why(const hf_cluster *cluster)
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

static int run_status(struct cli *cli, const struct wanted *wanted)
{
    hf_cluster *cluster;
    int status = EXIT_DONE;
    int result = hf_cluster_status(cli->store, wanted->wait_ms, &cluster);

    if (result != HF_OK)
        return say_result(result);
    if (cli->json)
        status_json(cluster);
    else
        status = status_table(cluster);
    fflush(stdout);
    if (hf_cluster_about(cluster)->why)
        status = say_why(cluster);
    hf_cluster_free(cluster);
    return status;
}

/* ---- before and after a change --------------------------------------------------------------- */

/* What the leader sees. NULL: there is none; it has said why, and what that leaves us with, and
 * *ret_status is the exit status. Servers that are not there are found out soon, not after all of
 * --wait. */
static hf_cluster *ask_leader(struct cli *cli, const struct wanted *wanted, const char *so_far,
                              int *ret_status)
{
    hf_cluster *cluster = NULL;
    int result = hf_cluster_status(cli->store, wanted->wait_ms, &cluster);

    if (result != HF_OK) {
        *ret_status = say_result(result);
        return NULL;
    }
    if (!hf_cluster_about(cluster)->why)
        return cluster;
    *ret_status = say_why(cluster);
    say("%s", so_far);
    hf_cluster_free(cluster);
    return NULL;
}

static int say_change(const struct wanted *wanted, int result)
{
    if (result == HF_EUNKNOWN)
        say("%s; it may or may not have happened: look at 'holdfast cluster status'", hf_error());
    else if (result == HF_EUNREACH)
        say("nothing was changed within %s: %s", span(wanted->wait_ms), hf_error());
    else
        say("%s", hf_error());
    return status_of(result);
}

/* ---- add ------------------------------------------------------------------------------------- */

struct progress {
    uint64_t id;
    int64_t began_ms, answered_ms, told_ms; /* told: 0, not yet */
    int64_t until_ms;                       /* if --wait was given, when its time is over */
    bool heard;                             /* it has said something to the leader since then */
    char told[256];
};

/* What takes so long, but only if it does, and not twice the same. */
static void tell(struct progress *progress, const hf_cluster_info *about, const hf_member *member)
{
    int64_t now_ms = clock_boot_ms();
    char text[sizeof progress->told];

    if (now_ms - progress->began_ms < FIRST_TELL_MS ||
        (progress->told_ms != 0 && now_ms - progress->told_ms < NEXT_TELL_MS))
        return;
    if (is_silent(about, member))
        snprintf(
            text, sizeof text,
            "node %llu is a member now, and nothing is heard of it: does it run, with an empty "
            "directory, where its peers look for it (%s)?",
            (unsigned long long)member->id, printable(member->peer));
    else
        snprintf(text, sizeof text, "node %llu is catching up: %lld entries behind",
                 (unsigned long long)member->id, (long long)member->behind);
    if (strcmp(text, progress->told) == 0)
        return;
    say("%s", text);
    snprintf(progress->told, sizeof progress->told, "%s", text);
    progress->told_ms = now_ms;
}

/* We stop watching, and the node is not what it was to become. */
static void say_goes_on(const struct progress *progress)
{
    unsigned long long id = progress->id;

    if (progress->heard)
        say("node %llu goes on catching up, and will vote; 'holdfast cluster status' shows how far "
            "it is, 'holdfast cluster remove %llu' takes it back",
            id, id);
    else
        say("node %llu is a member now, but nothing was heard of it: it does not run, or has "
            "another secret, id or address, or the directory of another cluster: see its log. "
            "'holdfast cluster remove %llu' takes it back",
            id, id);
}

/* Whoever interrupts us only stops watching. */
static void sleep_or_die(struct signals *signals, const struct progress *progress)
{
    struct pollfd fd = {.fd = signals->fd, .events = POLLIN};
    int number;

    poll(&fd, 1, LOOK_EVERY_MS);
    while ((number = signals_take(signals)) != 0) {
        if (number == SIGTSTP) {
            signals_stop(SIGTSTP, false);
        } else if (signals_ends(number)) {
            say_goes_on(progress);
            signals_die(number, false);
        }
    }
}

static bool is_over(const struct wanted *wanted, const struct progress *progress)
{
    return wanted->waits_so_long && clock_boot_ms() >= progress->until_ms;
}

/* Since we added it: one that had this id before may have been heard long ago. */
static bool is_heard(const struct progress *progress, const hf_member *member)
{
    return member->silent_ms >= 0 && member->silent_ms <= clock_boot_ms() - progress->began_ms;
}

/* One look. EXIT_DONE: it votes. EXIT_BUSY: not yet. */
static int look_whether_it_votes(struct cli *cli, const struct wanted *wanted,
                                 struct progress *progress)
{
    hf_cluster *cluster = NULL;
    const hf_cluster_info *about;
    const hf_member *member;
    int status = EXIT_BUSY, result = hf_cluster_status(cli->store, LOOK_MS, &cluster);

    about = hf_cluster_about(cluster);
    if (result != HF_OK || about->why) {
        if (clock_boot_ms() - progress->answered_ms >= wanted->wait_ms ||
            is_over(wanted, progress)) {
            say("node %llu is a member; whether it votes is not known: %s",
                (unsigned long long)wanted->id, result != HF_OK ? hf_error() : about->why);
            status = EXIT_UNAVAILABLE;
        }
    } else if (!(member = find(cluster, wanted->id))) {
        say("node %llu was removed by somebody else", (unsigned long long)wanted->id);
        status = EXIT_UNAVAILABLE;
    } else if (member->votes) {
        status = EXIT_DONE;
    } else {
        progress->heard = progress->heard || is_heard(progress, member);
        tell(progress, about, member);
        progress->answered_ms = clock_boot_ms();
    }
    hf_cluster_free(cluster);
    return status;
}

static int await_vote(struct cli *cli, const struct wanted *wanted, int64_t until_ms)
{
    int64_t now_ms = clock_boot_ms();
    struct progress progress = {
        .id = wanted->id, .began_ms = now_ms, .answered_ms = now_ms, .until_ms = until_ms};
    struct signals signals;
    int status;

    if (!signals_begin(&signals)) {
        say("cannot watch for signals: %s", strerror(errno));
        return EXIT_OURS;
    }
    while ((status = look_whether_it_votes(cli, wanted, &progress)) == EXIT_BUSY) {
        if (is_over(wanted, &progress)) {
            say_goes_on(&progress);
            return EXIT_UNAVAILABLE;
        }
        sleep_or_die(&signals, &progress);
    }
    return status;
}

static void added_json(const struct wanted *wanted, bool votes)
{
    struct json json;

    json_begin(&json);
    json_u64(&json, "id", wanted->id);
    json_string(&json, "peer", wanted->words[1]);
    json_bool(&json, "member", true);
    if (votes)
        json_bool(&json, "votes", true);
    json_end(&json);
}

static int run_add(struct cli *cli, const struct wanted *wanted)
{
    int64_t until_ms = clock_after(clock_boot_ms(), wanted->wait_ms);
    int status = EXIT_DONE, result;
    hf_cluster *cluster = ask_leader(cli, wanted, NOTHING_CHANGED, &status);

    if (!cluster)
        return status;
    hf_cluster_free(cluster);
    result = hf_cluster_add(cli->store, wanted->id, wanted->words[1], wanted->wait_ms);
    if (result != HF_OK)
        return say_change(wanted, result);
    if (!wanted->no_wait)
        status = await_vote(cli, wanted, until_ms);
    if (status != EXIT_DONE)
        return status;
    if (cli->json)
        added_json(wanted, !wanted->no_wait);
    else
        printf("node %llu is a member%s\n", (unsigned long long)wanted->id,
               wanted->no_wait ? ", and votes as soon as it has caught up" : ", and votes");
    return EXIT_DONE;
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

static int run_init(struct cli *cli, const struct wanted *wanted)
{
    int status = EXIT_DONE, result;
    struct progress_line line;
    hf_cluster *cluster = NULL;

    result = hf_cluster_status(cli->store, WAIT_MIN_MS, &cluster); /* is anybody there? */
    if (result != HF_OK)
        return say_result(result);
    hf_cluster_free(cluster);
    progress_begin(&line, "asking all members; some have not answered yet");
    result = hf_cluster_init(cli->store, wanted->wait_ms);
    progress_end(&line);
    if (result != HF_OK)
        return say_change(wanted, result);
    cluster =
        ask_leader(cli, wanted, "the cluster is founded; who leads it is not known yet", &status);
    if (!cluster)
        return status;
    if (cli->json)
        founded_json(cluster);
    else
        printf("the cluster is founded, with %zu members; node %llu leads\n",
               hf_cluster_about(cluster)->member_count,
               (unsigned long long)hf_cluster_about(cluster)->leader);
    hf_cluster_free(cluster);
    return EXIT_DONE;
}

/* ---- transfer -------------------------------------------------------------------------------- */

static int run_transfer(struct cli *cli, const struct wanted *wanted)
{
    const hf_cluster_info *about;
    struct json json;
    int status = EXIT_DONE, result;
    hf_cluster *cluster = ask_leader(cli, wanted, NOTHING_CHANGED, &status);

    if (!cluster)
        return status;
    hf_cluster_free(cluster);
    result = hf_cluster_transfer(cli->store, wanted->id, wanted->wait_ms);
    if (result != HF_OK)
        return say_change(wanted, result);
    cluster = ask_leader(cli, wanted, "it was handed over; who leads now is not known", &status);
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
    if (wanted->id != 0 && about->leader != wanted->id) {
        say("node %llu was elected instead of node %llu", (unsigned long long)about->leader,
            (unsigned long long)wanted->id);
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
static int hand_over(struct cli *cli, const struct wanted *wanted, bool leads)
{
    int result = leads ? hf_cluster_transfer(cli->store, 0, wanted->wait_ms) : HF_OK;

    if (result == HF_OK && leads && !cli->json)
        say("node %llu led, and has let another node lead", (unsigned long long)wanted->id);
    return result;
}

static int run_remove(struct cli *cli, const struct wanted *wanted)
{
    int result = HF_EREFUSED;

    for (int i = 0; i < HAND_OVERS_MAX && result == HF_EREFUSED; i++) {
        int status = EXIT_DONE;
        hf_cluster *cluster = ask_leader(cli, wanted, NOTHING_CHANGED, &status);
        bool leads;

        if (!cluster)
            return status;
        leads = hf_cluster_about(cluster)->leader == wanted->id;
        hf_cluster_free(cluster);
        if (i > 0 && !leads) /* so it was not refused because of that */
            break;
        result = hand_over(cli, wanted, leads);
        if (result != HF_OK)
            break;
        result = hf_cluster_remove(cli->store, wanted->id, wanted->wait_ms);
    }
    if (result != HF_OK)
        return say_change(wanted, result);
    say_removed(cli, wanted->id);
    return EXIT_DONE;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct action {
    const char *name, *usage;
    int least, most; /* words after it */
    int64_t wait_ms;
    int (*run)(struct cli *cli, const struct wanted *wanted);
} actions[] = {
    {"status", "", 0, 0, STATUS_WAIT_MS, run_status},
    {"init", "", 0, 0, CHANGE_WAIT_MS, run_init},
    {"add", " ID HOST:PORT", 2, 2, CHANGE_WAIT_MS, run_add},
    {"remove", " ID", 1, 1, CHANGE_WAIT_MS, run_remove},
    {"transfer", " [ID]", 0, 1, CHANGE_WAIT_MS, run_transfer},
};

#define ACTION_COUNT (sizeof actions / sizeof *actions)

static const struct action *find_action(const struct args *args, const char *name)
{
    const char *names[ACTION_COUNT], *near;

    for (size_t i = 0; i < ACTION_COUNT; i++) {
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
        names[i] = actions[i].name;
    }
    near = suggest_nearest(name, names, ACTION_COUNT);
    if (near)
        args_complain(args, "unknown action '%s': did you mean '%s'?", printable(name), near);
    else
        args_complain(args, "unknown action '%s'; there are status, init, add, remove and transfer",
                      printable(name));
    return NULL;
}

/* False: it has said what is wrong. */
static bool check_words(struct args *args, const struct action *action, struct wanted *wanted)
{
    const char *address = wanted->words[1];

    if (wanted->count < action->least || wanted->count > action->most) {
        args_complain(args, "usage: holdfast cluster %s%s", action->name, action->usage);
        return false;
    }
    if (wanted->no_wait && action->run != run_add) {
        args_complain(args, "--no-wait is for add: nothing else takes long");
        return false;
    }
    args->value = wanted->words[0];
    if (wanted->count > 0 && !args_number(args, "ID", 1, HF_NODE_MAX, &wanted->id))
        return false;
    if (address && (!strchr(address, ':') || strpbrk(address, "=, \t\n") ||
                    strlen(address) > HF_ADDRESS_MAX)) {
        args_complain(args, "'%s' is not the HOST:PORT where its peers reach it",
                      printable(address));
        return false;
    }
    return true;
}

static int run(struct cli *cli, struct args *args)
{
    struct wanted wanted = {.wait_ms = -1};
    const struct action *action = NULL;
    int id, status;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_NO_WAIT)
            wanted.no_wait = true;
        else if (id == OPT_WAIT) {
            if (!args_duration(args, "--wait", WAIT_MIN_MS, HF_DURATION_MAX_MS, &wanted.wait_ms))
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && !action) {
            action = find_action(args, args->value);
            if (!action)
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && wanted.count < WORDS_MAX)
            wanted.words[wanted.count++] = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!action)
        return args_complain(args, "usage: holdfast cluster %s", args->command->usage);
    if (!check_words(args, action, &wanted))
        return EXIT_USAGE;
    wanted.waits_so_long = wanted.wait_ms >= 0;
    if (wanted.wait_ms < 0)
        wanted.wait_ms = action->wait_ms;
    status = cli_open(cli);
    return status != 0 ? status : finish_output(action->run(cli, &wanted));
}

const struct command command_cluster = {
    .name = "cluster",
    .summary = "show and change the nodes of a holdfastd cluster (for operators)",
    .usage = "status | init | add ID HOST:PORT | remove ID | transfer [ID] [OPTION...]",
    .description =
        "status    shows the nodes: who leads, how far behind the others are, when they were "
        "heard\n"
        "init      founds the cluster, once, when all its nodes run with the same --cluster and "
        "empty\n"
        "          directories; any of them will do\n"
        "add       takes a node in, started empty and reached by its peers at HOST:PORT, and\n"
        "          waits until it has caught up and votes\n"
        "remove    takes a node out; one that leads lets another lead first\n"
        "transfer  lets another node lead: ID, or without it the one that is nearest\n\n"
        "Only for holdfast:// stores. Any node of the URL will do: the one that leads is found.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast --on holdfast://10.0.0.1,10.0.0.2,10.0.0.3 cluster status\n"
                "  holdfast --on holdfast://10.0.0.1 cluster init\n"
                "  holdfast cluster add 4 10.0.0.4:7431      # first there: holdfastd --id 4 ...\n"
                "  holdfast cluster remove 2\n",
    .statuses = "  0 done   69 no leader answers, or it is not known whether it happened\n"
                "  77 refused: a member in the way, no such node, no other that could lead   64, "
                "70 as in 'holdfast run "
                "--help'\n",
    .run = run,
};
