/* script_steps.c: what each step of a script does. */
#include "script_inside.h"

#include <string.h>

#define LOG_MAX (CLUSTER_LOG - 2)
#define SIZE_OF_COMMAND 8

/* ---- the beginning --------------------------------------------------------------------------- */

static void do_cluster(struct player *player)
{
    struct raft_limits limits = {.members = CLUSTER_NODES,
                                 .window = 8,
                                 .in_flight_bytes = 1000,
                                 .election_us = CLUSTER_ELECTION_US,
                                 .heartbeat_us = CLUSTER_HEARTBEAT_US};
    int voters = 0, links;

    while (player_letter_is_next(player))
        if (player_letter(player) != (uint64_t)++voters)
            player_wrong(player, "the nodes are A, B and so on", player->word[player->at - 1]);
    if (voters == 0)
        player_wrong(player, "a node is missing", NULL);
    limits.window = (uint32_t)player_optional(player, "window", limits.window);
    limits.in_flight_bytes = (uint32_t)player_optional(player, "bytes", limits.in_flight_bytes);
    links = (int)player_optional(player, "links", 0);
    if (player->wrong[0])
        return;
    cluster_begin(player->cluster, voters, &limits);
    player->cluster->link_max = links;
    player->cluster->tell = player->out;
}

static void do_node(struct player *player)
{
    uint64_t id = player_letter(player);

    if (!player->wrong[0])
        cluster_add_node(player->cluster, id);
}

static void do_log(struct player *player)
{
    struct cluster_node *which = player_node(player);
    uint64_t terms[LOG_MAX], other = 0;
    int count = 0;

    while (player_number_is_next(player) && count < LOG_MAX) {
        char *word = player->word[player->at];
        size_t length = strlen(word);

        if (word[length - 1] == 'x') {
            other |= (uint64_t)1 << count;
            word[length - 1] = '\0';
        }
        terms[count++] = player_number(player);
    }
    which->term = player_optional(player, "term", which->term);
    which->vote = player_word_is(player, "vote") ? player_letter(player) : 0;
    which->disk_commit = player_optional(player, "commit", 1);
    if (!player->wrong[0])
        cluster_set_log(player->cluster, which, terms, count, other);
    if (!player->wrong[0])
        tell_state(player->out, which);
}

static void do_disk(struct player *player)
{
    struct cluster_node *which = player_node(player);

    which->disk_waits = player_word_is(player, "waits");
    if (!which->disk_waits && !player_word_is(player, "at-once"))
        player_wrong(player, "waits or at-once", NULL);
}

/* ---- time and network ------------------------------------------------------------------------ */

static void do_time(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    if (!player->wrong[0])
        cluster_time(player->cluster, which);
}

static void do_due(struct player *player)
{
    const struct cluster_node *which = player_node_up(player);
    int64_t left_us = raft_next_us(cluster_raft(which)) - which->now_us;

    fprintf(player->out, "    %s\n",
            left_us <= 0                      ? "now"
            : left_us <= CLUSTER_HEARTBEAT_US ? "within a heartbeat"
            : left_us < CLUSTER_ELECTION_US   ? "within an election timeout"
                                              : "after an election timeout");
}

static void do_pass(struct player *player)
{
    int64_t us = (int64_t)player_number(player) * 1000;

    for (int i = 0; i < player->cluster->node_count; i++)
        player->cluster->nodes[i].now_us += us;
}

/* The place of a message, or -1 with an error. */
static int message(struct player *player)
{
    uint64_t from = player_letter(player), to = player_letter(player);
    uint64_t left = player_number_is_next(player) ? player_number(player) : 1;

    for (int i = 0; i < player->cluster->message_count && !player->wrong[0]; i++) {
        const struct cluster_message *it = &player->cluster->messages[i];

        if (it->message.from == from && it->message.to == to && --left == 0) {
            fputs("  >", player->out);
            tell_message(player->out, it);
            return i;
        }
    }
    player_wrong(player, "there is no such message", player->word[0]);
    return -1;
}

static void do_deliver(struct player *player)
{
    int at;

    if (player_word_is(player, "all")) {
        cluster_deliver_all(player->cluster);
        return;
    }
    if ((at = message(player)) >= 0)
        cluster_deliver(player->cluster, at, false);
}

static void do_again(struct player *player)
{
    int at = message(player);

    if (at >= 0)
        cluster_deliver(player->cluster, at, true);
}

static void do_drop(struct player *player)
{
    int at;

    if (player_word_is(player, "all")) {
        while (player->cluster->message_count > 0)
            cluster_drop(player->cluster, 0);
        return;
    }
    if ((at = message(player)) >= 0)
        cluster_drop(player->cluster, at);
}

static void set_held(struct player *player, bool held)
{
    uint64_t from = player_letter(player), to = player_letter(player);

    player->cluster->held[from - 1][to - 1] = held;
}

static void do_hold(struct player *player)
{
    set_held(player, true);
}

static void do_release(struct player *player)
{
    set_held(player, false);
}

static void do_state(struct player *player)
{
    if (!player_more(player)) {
        for (int i = 0; i < player->cluster->node_count; i++)
            if (player->cluster->nodes[i].used)
                tell_state(player->out, &player->cluster->nodes[i]);
        return;
    }
    while (player_more(player))
        tell_state(player->out, player_node(player));
}

static void be_silent(struct player *player, bool silent)
{
    player->cluster->tell = silent ? NULL : player->out;
    for (int i = 0; i < player->cluster->node_count && !silent; i++)
        if (player->cluster->nodes[i].used)
            tell_known(&player->cluster->nodes[i]);
}

static void do_settle(struct player *player)
{
    be_silent(player, true);
    cluster_deliver_all(player->cluster);
    be_silent(player, false);
    do_state(player);
}

static void do_network(struct player *player)
{
    for (int i = 0; i < player->cluster->message_count; i++)
        tell_message(player->out, &player->cluster->messages[i]);
}

/* ---- disks ----------------------------------------------------------------------------------- */

static void do_written(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    if (which->write_count == 0)
        player_wrong(player, "nothing waits to be written", player->word[0]);
    else
        cluster_written(player->cluster, which);
}

static void do_crash(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    cluster_crash(player->cluster, which, player_optional(player, "keep", 0));
}

static void do_wipe(struct player *player)
{
    cluster_wipe(player->cluster, player_node(player));
}

static struct cluster_node copies[CLUSTER_NODES];

static void do_copy(struct player *player)
{
    const struct cluster_node *which = player_node(player);

    copies[which->id - 1] = *which;
}

/* What the ghosts know of it goes with it: they judge it as if the time between had not been. */
static void do_put_back(struct player *player)
{
    struct cluster_node *which = player_node(player);

    if (which->up || copies[which->id - 1].id != which->id)
        player_wrong(player, "it is up, or there is no copy", player->word[0]);
    else
        *which = copies[which->id - 1];
    which->up = false;
    which->write_count = 0;
}

static void do_start(struct player *player)
{
    struct cluster_node *which = player_node(player);

    if (which->up)
        player_wrong(player, "it is up", player->word[0]);
    cluster_start(player->cluster, which);
    tell_state(player->out, which);
}

static void do_snapshot(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    cluster_snapshot(player->cluster, which);
    tell_state(player->out, which);
}

static void do_install(struct player *player)
{
    const struct cluster_node *from = player_node(player);
    uint64_t to = player_letter(player);

    if (!player->wrong[0])
        cluster_install(player->cluster, from, to);
}

/* ---- what is asked of a node ----------------------------------------------------------------- */

static void do_propose(struct player *player)
{
    struct cluster_node *which = player_node_up(player);
    int count = player_number_is_next(player) ? (int)player_number(player) : 1;
    uint32_t size = (uint32_t)player_optional(player, "size", SIZE_OF_COMMAND);

    if (!player->wrong[0])
        cluster_propose(player->cluster, which, count, size);
}

static void do_change(struct player *player)
{
    struct cluster_node *which = player_node_up(player);
    int64_t since_us = 0;
    uint64_t member;
    uint8_t change = 0;

    if (player_word_is(player, "add"))
        change = RAFT_ADD;
    else if (player_word_is(player, "promote"))
        change = RAFT_PROMOTE;
    else if (player_word_is(player, "remove"))
        change = RAFT_REMOVE;
    else if (player_word_is(player, "move"))
        change = RAFT_MOVE;
    else
        player_wrong(player, "add, promote, remove or move", NULL);
    member = player_letter(player);
    if (player_word_is(player, "asked"))
        since_us = which->now_us - (int64_t)player_number(player) * 1000;
    cluster_change(player->cluster, which, change, member, since_us);
}

static void do_transfer(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    cluster_transfer(player->cluster, which, player_more(player) ? player_letter(player) : 0);
}

static void do_down(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    cluster_down(player->cluster, which, player_letter(player));
}

static void do_campaign(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    if (!player->wrong[0])
        cluster_campaign(player->cluster, which);
}

/* The first message from one to another, of a type; none: nothing. */
static void deliver_type(struct cluster *cluster, uint64_t from, uint64_t to, uint8_t type)
{
    for (int i = 0; i < cluster->message_count; i++)
        if (cluster->messages[i].message.from == from && cluster->messages[i].message.to == to &&
            cluster->messages[i].message.type == type) {
            cluster_deliver(cluster, i, false);
            return;
        }
}

static void do_elect(struct player *player)
{
    struct cluster_node *which = player_node_up(player);

    if (!player_word_is(player, "by"))
        player_wrong(player, "by is missing", NULL);
    be_silent(player, true);
    cluster_campaign(player->cluster, which);
    while (player_more(player)) {
        uint64_t voter = player_letter(player);

        deliver_type(player->cluster, which->id, voter, RAFT_VOTE);
        deliver_type(player->cluster, voter, which->id, RAFT_VOTE_REPLY);
    }
    /* The other requests are lost. */
    for (int i = player->cluster->message_count - 1; i >= 0; i--)
        if (player->cluster->messages[i].message.from == which->id &&
            player->cluster->messages[i].message.type == RAFT_VOTE)
            cluster_drop(player->cluster, i);
    be_silent(player, false);
    tell_state(player->out, which);
}

/* ---- messages of nobody ---------------------------------------------------------------------- */

static uint8_t message_type(struct player *player)
{
    static const char *const types[] = {"append",   "append-reply",   "vote",       "vote-reply",
                                        "pre-vote", "pre-vote-reply", "timeout-now"};

    for (size_t i = 0; i < COUNT(types); i++)
        if (player_word_is(player, types[i]))
            return (uint8_t)(RAFT_APPEND + i);
    return (uint8_t)player_number(player);
}

static void do_forge(struct player *player)
{
    struct cluster_message forged = {.message = {.incarnation = 1}};
    struct raft_message *it = &forged.message;
    const struct {
        const char *word;
        uint64_t *value;
    } fields[] = {
        {"term", &it->term},      {"index", &it->id.index},    {"index-term", &it->id.term},
        {"chain", &it->id.chain}, {"commit", &it->commit},     {"to-term", &it->asked_term},
        {"at", &it->index},       {"hint", &it->hint_index},   {"hint-term", &it->hint_term},
        {"acked", &it->acked},    {"acked-by", &it->acked_by}, {"incarnation", &it->incarnation}};

    const struct cluster_node *from = player_node(player);

    it->from = from->id;
    it->to = player_letter(player);
    it->type = message_type(player);
    if (player_word_is(player, "after"))
        it->id = cluster_log_id(from, player_number(player));
    while (player_more(player)) {
        size_t i = 0;

        while (i < COUNT(fields) && !player_word_is(player, fields[i].word))
            i++;
        if (i < COUNT(fields))
            *fields[i].value = player_number(player);
        else if (player_word_is(player, "yes"))
            it->yes = true;
        else if (player_word_is(player, "by-order"))
            it->transfer = true;
        else
            player_wrong(player, "not a field", player_word(player));
    }
    if (player->wrong[0] || player->cluster->message_count == CLUSTER_MESSAGES)
        return;
    player->cluster->messages[player->cluster->message_count++] = forged;
    cluster_deliver(player->cluster, player->cluster->message_count - 1, false);
}

/* ---- all of them ------------------------------------------------------------------------------ */

const struct script_step script_steps[] = {
    {"cluster", do_cluster},   {"node", do_node},         {"log", do_log},
    {"disk", do_disk},         {"time", do_time},         {"pass", do_pass},
    {"due", do_due},           {"deliver", do_deliver},   {"again", do_again},
    {"drop", do_drop},         {"hold", do_hold},         {"release", do_release},
    {"settle", do_settle},     {"written", do_written},   {"crash", do_crash},
    {"wipe", do_wipe},         {"start", do_start},       {"propose", do_propose},
    {"copy", do_copy},         {"put-back", do_put_back}, {"change", do_change},
    {"transfer", do_transfer}, {"down", do_down},         {"snapshot", do_snapshot},
    {"install", do_install},   {"campaign", do_campaign}, {"elect", do_elect},
    {"forge", do_forge},       {"state", do_state},       {"network", do_network}};
const size_t script_step_count = COUNT(script_steps);
