/* redlock-voting.c: how a lock over N independent Redis servers is taken.
 *
 *     vote on all ──a majority──▶ token: above every token they know ──▶ seal on all
 *         │                                                                │ a majority, in time
 *         │ less                                                           ▼
 *         └──────────────▶ release on all ◀──────── less, or too late    held
 *
 * All nodes are asked at once, and each has `timeout` to answer; a majority is enough, so that a
 * node that hangs costs nobody anything. Whatever goes to a node goes over one connection, so a
 * release arrives behind the vote it takes back even where that vote was never answered.
 *
 * A retry uses the same lease: what an earlier try left behind is its own, and does not block it.
 * docs/stores.md tells what this cannot promise. */
#include "base/clock.h"
#include "engines/redis/store.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the first round ------------------------------------------------------------------------- */

enum vote { VOTE_NONE, VOTE_YES, VOTE_NO, VOTE_OVER, VOTE_TOO_YOUNG };

struct voting {
    struct engine_store *store;
    struct session *session;
    struct engine_claim *claim;
    enum vote votes[REDIS_NODES_MAX];
    bool asked[REDIS_NODES_MAX]; /* may have given its vote, or said no */
    int64_t began_ms;
    uint64_t own_tokens[REDIS_NODES_MAX];    /* that this lease has already, by node */
    uint64_t last_token, own_token, time_us; /* the largest of all */
    uint64_t token;                          /* to be sealed */
    bool sealed[REDIS_NODES_MAX];
    bool released[REDIS_NODES_MAX];
};

static int count_votes(const struct voting *voting, enum vote vote)
{
    int count = 0;

    for (int i = 0; i < voting->store->node_count; i++)
        count += voting->votes[i] == vote;
    return count;
}

static void write_vote(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct voting *voting = context;
    const struct engine_claim *claim = voting->claim;

    (void)index;
    script_write(writer, SCRIPT_VOTE, by_text, voting->store->prefix, claim->name, claim->lease, 3);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, claim->ttl_ms);
    resp_write_text(writer, claim->owner ? claim->owner : "");
}

/* A node that was started a moment ago may have forgotten whom it gave the lock to. */
static bool is_too_young(struct voting *voting, int index)
{
    struct engine_store *store = voting->store;
    struct node *node = &store->nodes[index];
    int64_t uptime_ms = node_uptime_ms(node);
    char text[ADDRESS_TEXT_MAX + 256];

    if (uptime_ms < 0) /* we may not ask */
        return store->min_uptime_ms > 0;
    if (uptime_ms >= voting->claim->ttl_ms && uptime_ms >= store->min_uptime_ms)
        return false;
    if (!atomic_exchange(&store->warned_of_youth, true)) {
        snprintf(text, sizeof text,
                 "%s was started %lld s ago, less than a TTL: it may have forgotten locks that are "
                 "still held (see ?min-uptime= in holdfast-urls(7))",
                 node->address.shown, (long long)(uptime_ms / 1000));
        store->host->warn(store->host->context, text);
    }
    return uptime_ms < store->min_uptime_ms;
}

static uint64_t larger(uint64_t a, int64_t b)
{
    return b > 0 && (uint64_t)b > a ? (uint64_t)b : a;
}

static void read_vote(void *context, int node, int index, const struct resp_node *value)
{
    struct voting *voting = context;
    int64_t code = -9, last = 0, own = 0, time_us = 0;

    (void)index;
    if (!resp_to_int64(resp_item(value, 0), &code))
        return;
    if (code == 0)
        voting->votes[node] = VOTE_NO;
    else if (code == -1)
        voting->votes[node] = VOTE_OVER;
    if (code != 1 || !resp_to_int64(resp_item(value, 1), &last) ||
        !resp_to_int64(resp_item(value, 2), &own) || !resp_to_int64(resp_item(value, 3), &time_us))
        return;
    voting->votes[node] = is_too_young(voting, node) ? VOTE_TOO_YOUNG : VOTE_YES;
    voting->last_token = larger(voting->last_token, last);
    voting->own_tokens[node] = larger(0, own);
    voting->own_token = larger(voting->own_token, own);
    voting->time_us = larger(voting->time_us, time_us);
}

static bool enough_votes(void *context)
{
    const struct voting *voting = context;

    return count_votes(voting, VOTE_YES) >= redlock_quorum(voting->store) ||
           count_votes(voting, VOTE_NO) >= redlock_blocking(voting->store);
}

/* ---- the second round ------------------------------------------------------------------------ */

static void write_seal(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct voting *voting = context;
    const struct engine_claim *claim = voting->claim;

    (void)index;
    script_write(writer, SCRIPT_SEAL, by_text, voting->store->prefix, claim->name, claim->lease, 3);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, (int64_t)voting->token);
    resp_write_text(writer, claim->owner ? claim->owner : "");
}

static void read_seal(void *context, int node, int index, const struct resp_node *value)
{
    struct voting *voting = context;

    (void)index;
    /* A node without a vote keeps the token too, but does not count. */
    if (voting->votes[node] == VOTE_TOO_YOUNG)
        return;
    voting->sealed[node] = value->type == RESP_INTEGER && value->integer == 1;
}

static int count_sealed(const struct voting *voting)
{
    int count = 0;

    for (int i = 0; i < voting->store->node_count; i++)
        count += voting->sealed[i];
    return count;
}

static bool enough_seals(void *context)
{
    const struct voting *voting = context;
    int sealed = count_sealed(voting), quorum = redlock_quorum(voting->store);

    return sealed >= quorum || sealed + session_open(voting->session) < quorum;
}

/* One above the largest that the majority knows. If a majority has this lease sealed already, it is
 * the same token again: on a node, a token goes when its key does, so nobody had the name since. */
static uint64_t choose_token(const struct voting *voting)
{
    int sealed = 0;

    for (int i = 0; i < voting->store->node_count; i++)
        sealed += voting->votes[i] == VOTE_YES && voting->own_tokens[i] > 0 &&
                  voting->own_tokens[i] == voting->own_token;
    if (sealed >= redlock_quorum(voting->store))
        return voting->own_token;
    return larger(voting->last_token, (int64_t)voting->time_us) + 1;
}

/* ---- taking it back -------------------------------------------------------------------------- */

static void write_release(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct voting *voting = context;

    (void)index;
    say_release(voting->store, voting->claim, 0, 0, by_text, writer);
}

static void read_release(void *context, int node, int index, const struct resp_node *value)
{
    struct voting *voting = context;

    (void)index;
    (void)value;
    voting->released[node] = true;
}

/* It is told to all; it is waited for those that may have given their vote. */
static bool enough_released(void *context)
{
    const struct voting *voting = context;

    for (int i = 0; i < voting->store->node_count; i++)
        if (voting->asked[i] && voting->votes[i] != VOTE_NO && voting->votes[i] != VOTE_OVER &&
            !voting->released[i] && voting->session->calls[i].result == CALL_OPEN)
            return false;
    return true;
}

/* Releases on all N and says what came of the whole attempt. */
static int take_back(struct voting *voting, int result, struct error_text *err)
{
    struct engine_store *store = voting->store;
    int maybe = 0;
    struct question question = {.text_first = SCRIPT_RELEASE,
                                .commands = 1,
                                .context = voting,
                                .write = write_release,
                                .answer = read_release,
                                .enough = enough_released,
                                .tells_all = true};

    session_ask(voting->session, &question, redlock_deadline(store, CLOCK_NEVER));
    for (int i = 0; i < store->node_count; i++)
        maybe += voting->asked[i] && voting->votes[i] != VOTE_NO && voting->votes[i] != VOTE_OVER &&
                 !voting->released[i];
    if (maybe >= redlock_quorum(store))
        return error_set(err, HF_EUNKNOWN,
                         "a majority of the servers may have been given the lock and did not "
                         "answer in time");
    return result;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static int vote_and_seal(struct voting *voting, int64_t deadline_ms, struct error_text *err)
{
    struct engine_store *store = voting->store;
    struct question vote = {.text_first = SCRIPT_VOTE,
                            .commands = 1,
                            .context = voting,
                            .write = write_vote,
                            .answer = read_vote,
                            .enough = enough_votes,
                            .tells_all = true,
                            .interrupted = &voting->claim->interrupted};
    struct question seal = {.text_first = SCRIPT_SEAL,
                            .commands = 1,
                            .context = voting,
                            .write = write_seal,
                            .answer = read_seal,
                            .enough = enough_seals,
                            .interrupted = &voting->claim->interrupted};
    int quorum = redlock_quorum(store);

    session_ask(voting->session, &vote, redlock_deadline(store, deadline_ms));
    for (int i = 0; i < store->node_count; i++) /* who refuses has given nothing */
        voting->asked[i] = voting->session->calls[i].sent && voting->session->refused[i] == HF_OK;
    if (count_votes(voting, VOTE_OVER) >= redlock_blocking(store))
        return error_set(err, HF_ELOST, "this lease is over");
    if (count_votes(voting, VOTE_YES) < quorum) {
        int no = count_votes(voting, VOTE_NO), yes = count_votes(voting, VOTE_YES);

        if (yes + no >= quorum)
            return ENGINE_BUSY;
        if (count_votes(voting, VOTE_TOO_YOUNG) > 0)
            return error_set(err, HF_EUNREACH,
                             "%d servers were started too recently to vote, or do not say when "
                             "(?min-uptime=), and %d votes are needed",
                             count_votes(voting, VOTE_TOO_YOUNG), quorum);
        return redlock_no_majority(voting->session, err);
    }
    voting->token = choose_token(voting);
    if (voting->token > HF_TOKEN_MAX)
        return error_set(err, HF_EREFUSED, "there are no tokens left");
    session_ask(voting->session, &seal, redlock_deadline(store, deadline_ms));
    if (count_sealed(voting) < quorum)
        return redlock_no_majority(voting->session, err) == HF_EUNREACH ? HF_EUNREACH : ENGINE_BUSY;
    if (redlock_validity_ms(voting->claim->ttl_ms, clock_boot_ms() - voting->began_ms) <= 0)
        return ENGINE_BUSY;
    return ENGINE_HELD;
}

int redlock_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                    struct error_text *err)
{
    struct session session;
    struct voting voting = {
        .store = store, .session = &session, .claim = claim, .began_ms = clock_boot_ms()};
    struct redlock_claim *own = claim->private;
    int result = redis_check_key(store, claim->name, err);

    if (result != HF_OK)
        return result;
    if (!own && !(own = claim->private = calloc(1, sizeof *own)))
        return error_set(err, HF_ENOMEM, "out of memory");
    session_begin(&session, store);
    result = vote_and_seal(&voting, deadline_ms, err);
    if (result == ENGINE_HELD)
        claim->token = voting.token;
    else if (!SWITCHED(SWITCH_REDLOCK_VOTES_STAY))
        result = take_back(&voting, result, err);
    session_end(&session);
    own->unsure = own->unsure || result == HF_EUNKNOWN;
    return result;
}
