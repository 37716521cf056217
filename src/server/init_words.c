#include "server/init_words.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum detail { WITH_LISTS, WITH_ADDRESSES, ONLY_IDS };

struct line { /* being written */
    const struct server *server;
    bool founded;
    uint64_t to;
    enum detail detail;
    char *text;
    size_t used; /* or would be, if it fitted */
    int pieces;
};

static const struct {
    const char *one, *many;
} phrases[] = {
    [MEMBER_SILENT] = {"does not answer (does it run there, and with the same secret?)",
                       "do not answer (do they run there, and with the same secret?)"},
    [MEMBER_EMPTY] = {"has not heard of it yet", "have not heard of it yet"},
    [MEMBER_JOINS] = {"was started with --join", "were started with --join"},
    [MEMBER_DIFFERS] = {"lists other members", "list other members"},
    [MEMBER_LOST] = {"has come back without its data", "have come back without their data"},
    [MEMBER_ELSEWHERE] = {"belongs to a cluster already", "belong to a cluster already"},
};

#define PHRASES ((int)(sizeof phrases / sizeof *phrases))

static const struct config_member *listed(const struct server *server, int i)
{
    return &server->config->cluster.at[i];
}

static enum bootstrap_answer reply_of(const struct server *server, int i)
{
    return server->bootstrap.members[i].answer;
}

bool init_is_in_the_way(const struct server *server, int i, bool founded)
{
    enum bootstrap_answer answer = reply_of(server, i);

    return listed(server, i)->id != server->config->id && answer != MEMBER_FOUNDED &&
           (answer != MEMBER_EMPTY || founded);
}

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...)
{
    size_t at = line->used < ERROR_TEXT_MAX ? line->used : ERROR_TEXT_MAX - 1;
    va_list arguments;

    va_start(arguments, format);
    line->used += (size_t)vsnprintf(line->text + at, ERROR_TEXT_MAX - at, format, arguments);
    va_end(arguments);
}

static void add_piece(struct line *line)
{
    add(line, "%s ", line->pieces++ > 0 ? "," : ":");
}

static void add_member(struct line *line, int i)
{
    add(line, "%" PRIu64, listed(line->server, i)->id);
    if (line->detail != ONLY_IDS)
        add(line, " at %s", listed(line->server, i)->address);
}

/* Those who gave this answer and are in the way, without `to`, who has words of its own. Returns how many. */
static int members_of(const struct line *line, enum bootstrap_answer answer,
                      int ret_members[CONFIG_MEMBERS_MAX])
{
    int count = 0;

    for (int i = 0; i < line->server->config->cluster.count; i++)
        if (init_is_in_the_way(line->server, i, line->founded) &&
            reply_of(line->server, i) == answer && listed(line->server, i)->id != line->to)
            ret_members[count++] = i;
    return count;
}

/* "node 2 at db2:7431", "nodes 2, 3 and 4" */
static void add_members(struct line *line, const int *members, int count)
{
    add(line, count > 1 ? "nodes " : "node ");
    for (int i = 0; i < count; i++) {
        if (i > 0)
            add(line, i + 1 < count ? ", " : " and ");
        add_member(line, members[i]);
    }
}

/* What they list, if that is the same. */
static void add_list(struct line *line, const int *members, int count)
{
    const char *list = line->server->bootstrap.members[members[0]].list;

    for (int i = 1; i < count; i++)
        if (strcmp(line->server->bootstrap.members[members[i]].list, list) != 0)
            return;
    if (line->detail == WITH_LISTS)
        add(line, " (%s)", list);
}

/* Several others that list the same, and nobody who lists what this node does. */
static bool differs_itself(const struct line *line, const int *members, int count)
{
    const struct server *server = line->server;

    for (int i = 0; i < server->config->cluster.count; i++)
        if (reply_of(server, i) == MEMBER_EMPTY && listed(server, i)->id != server->config->id)
            return false;
    for (int i = 1; i < count; i++)
        if (strcmp(server->bootstrap.members[members[i]].list,
                   server->bootstrap.members[members[0]].list) != 0)
            return false;
    return count > 1;
}

static void add_own_difference(struct line *line, const int *members, int count)
{
    uint64_t id = line->server->config->id;

    add_piece(line);
    if (line->to == id)
        add(line, "this node, node %" PRIu64 ", lists other members", id);
    else
        add(line, "node %" PRIu64 ", which founds the cluster, lists other members", id);
    if (line->detail == WITH_LISTS)
        add(line, " (%s)", line->server->bootstrap.list);
    add(line, " than ");
    add_members(line, members, count);
    add_list(line, members, count);
}

static void add_asked(struct line *line)
{
    for (int i = 0; i < line->server->config->cluster.count; i++) {
        if (listed(line->server, i)->id != line->to ||
            !init_is_in_the_way(line->server, i, line->founded))
            continue;
        add_piece(line);
        add(line, "this node, node ");
        add_member(line, i);
        add(line, ", %s", phrases[reply_of(line->server, i)].one);
        if (reply_of(line->server, i) == MEMBER_DIFFERS)
            add_list(line, &i, 1);
    }
}

/* Several others run, and the node that was asked cannot prove itself to any of them: then it is not they. */
static bool secret_is_its_own(const struct line *line)
{
    const struct server *server = line->server;
    int others = 0;

    for (int i = 0; i < server->config->cluster.count; i++) {
        if (listed(server, i)->id == server->config->id)
            continue;
        if (reply_of(server, i) != MEMBER_SILENT ||
            !strstr(node_why(server->node, listed(server, i)->id), "secret"))
            return false;
        others++;
    }
    return others > 1 && line->to == server->config->id;
}

/* Why nodes do not hear each other, if TLS says so: of the first of them. */
static const char *why_of_tls(const struct line *line, const int *members, int count)
{
    for (int i = 0; i < count && line->to == line->server->config->id; i++) {
        const char *why = node_why(line->server->node, listed(line->server, members[i])->id);

        if (strstr(why, "TLS") || strstr(why, "certificate"))
            return why;
    }
    return "";
}

/* They may be starting, and whoever asks again may succeed; the others stay in the way until somebody does something. */
static bool are_only_silent(const struct line *line)
{
    for (int i = 0; i < line->server->config->cluster.count; i++)
        if (init_is_in_the_way(line->server, i, line->founded) &&
            reply_of(line->server, i) != MEMBER_SILENT)
            return false;
    return !line->founded && !secret_is_its_own(line);
}

static void write_line(struct line *line, const char *what)
{
    int members[CONFIG_MEMBERS_MAX];

    line->used = 0;
    line->pieces = 0;
    add(line, "%s %s", are_only_silent(line) ? "NOREPLY" : "ERR", what);
    if (secret_is_its_own(line)) {
        add_piece(line);
        add(line, "none of the others accepts this node's secret (compare secret-file on all)");
        return;
    }
    add_asked(line);
    for (int answer = 0; answer < PHRASES; answer++) {
        int count = members_of(line, (enum bootstrap_answer)answer, members);

        if (count == 0)
            continue;
        if (answer == MEMBER_DIFFERS && differs_itself(line, members, count)) {
            add_own_difference(line, members, count);
            continue;
        }
        add_piece(line);
        add_members(line, members, count);
        add(line, " %s", count > 1 ? phrases[answer].many : phrases[answer].one);
        if (answer == MEMBER_SILENT && *why_of_tls(line, members, count))
            add(line, ": %s", why_of_tls(line, members, count));
        if (answer == MEMBER_DIFFERS)
            add_list(line, members, count);
    }
}

void init_words(const struct server *server, const char *what, bool founded, uint64_t to,
                char ret_text[ERROR_TEXT_MAX])
{
    struct line line = {
        .server = server, .founded = founded, .to = to, .detail = WITH_LISTS, .text = ret_text};

    write_line(&line, what);
    while (line.used > INIT_WORDS_MAX && line.detail < ONLY_IDS) {
        line.detail++;
        write_line(&line, what);
    }
}
