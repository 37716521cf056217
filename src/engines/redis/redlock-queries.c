/* redlock-queries.c: asking a majority about locks, and the operator's ways out. What fewer than a
 * majority say is not told: a key left on two nodes of five is nobody's hold. */
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "engines/redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BREAK_MS 10000
#define ID_BYTES 16
#define ID_TRIES 5
#define ROWS_MAX 64 /* different holders that N nodes may name for one name */

/* ---- one number from each node --------------------------------------------------------------- */

struct poll {
    struct engine_store *store;
    enum script_id script;
    const char *name;
    int64_t argument;
    int64_t answers[REDIS_NODES_MAX];
    int answered, ones;
};

static void write_poll(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct poll *poll = context;

    (void)index;
    script_write(writer, poll->script, by_text, poll->store->prefix, poll->name, "", 1);
    resp_write_number(writer, poll->argument);
}

static void read_poll(void *context, int node, int index, const struct resp_node *value)
{
    struct poll *poll = context;

    (void)node;
    (void)index;
    if (!resp_to_int64(value, &poll->answers[poll->answered]))
        return;
    poll->ones += poll->answers[poll->answered++] == 1;
}

static bool enough_answers(void *context)
{
    const struct poll *poll = context;

    return poll->ones >= redlock_quorum(poll->store) ||
           poll->answered - poll->ones >= redlock_blocking(poll->store);
}

/* HF_OK: a majority answered. */
static int take_poll(struct poll *poll, bool all, int64_t deadline_ms, struct error_text *err)
{
    struct session session;
    struct question question = {.commands = 1,
                                .context = poll,
                                .write = write_poll,
                                .answer = read_poll,
                                .enough = all ? NULL : enough_answers};
    int result = HF_OK;

    deadline_ms = redlock_deadline(poll->store, deadline_ms);
    session_begin(&session, poll->store);
    session_ask(&session, &question, deadline_ms);
    if (poll->answered < redlock_quorum(poll->store))
        result = redlock_no_majority(&session, err);
    session_end(&session);
    return result;
}

int redlock_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                  int64_t deadline_ms, struct error_text *err)
{
    struct poll poll = {
        .store = store, .script = SCRIPT_CHECK, .name = name, .argument = (int64_t)token};
    int result = take_poll(&poll, false, deadline_ms, err);

    if (result == HF_OK)
        *ret_mode = poll.ones >= redlock_quorum(store) ? HF_EXCLUSIVE : ENGINE_GONE;
    return result;
}

int redlock_break(struct engine_store *store, const char *name, int64_t grace_ms,
                  uint32_t *ret_broken, struct error_text *err)
{
    struct poll poll = {.store = store, .script = SCRIPT_BREAK, .name = name, .argument = grace_ms};
    int result = take_poll(&poll, true, clock_after(clock_boot_ms(), BREAK_MS), err);

    if (result == HF_OK)
        *ret_broken = poll.ones >= redlock_quorum(store);
    return result;
}

static int descending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a < b) - (a > b);
}

/* The greatest token that some node of each majority has, as far as nodes have answered; at least this one. */
static uint64_t known_to_every_majority(struct poll *poll, uint64_t token)
{
    int enough = redlock_blocking(poll->store);

    qsort(poll->answers, (size_t)poll->answered, sizeof *poll->answers, descending);
    if (poll->answered < enough || poll->answers[enough - 1] < (int64_t)token)
        return token;
    return (uint64_t)poll->answers[enough - 1];
}

/* A majority that knows it meets every majority that is asked for its tokens. */
int redlock_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                  struct engine_floor *ret_floor, struct error_text *err)
{
    struct poll poll = {
        .store = store, .script = SCRIPT_FLOOR, .name = "", .argument = (int64_t)token};

    int result;

    if (token >= HF_TOKEN_MAX)
        return error_set(err, HF_EREFUSED, "no token is greater than that");
    result = take_poll(&poll, true, deadline_ms, err);
    if (result == HF_OK)
        ret_floor->at = known_to_every_majority(&poll, token);
    return result;
}

/* ---- show ------------------------------------------------------------------------------------ */

struct tally {
    struct row row;
    int nodes;
    int64_t left_ms[REDIS_NODES_MAX];
};

struct showing {
    struct engine_store *store;
    struct session *session;
    struct tally *tallies; /* ROWS_MAX */
    const char *name;
    int count, answered;
};

static void write_show(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct showing *showing = context;

    (void)index;
    script_write(writer, SCRIPT_SHOW, by_text, showing->store->prefix, showing->name, "", 1);
    resp_write_text(writer, "holders");
}

static void count_row(struct showing *showing, const struct row *row)
{
    struct tally *tally = NULL;

    for (int i = 0; i < showing->count && !tally; i++)
        if (strcmp(showing->tallies[i].row.lease, row->lease) == 0)
            tally = &showing->tallies[i];
    if (!tally && showing->count == ROWS_MAX)
        return;
    if (!tally) {
        tally = &showing->tallies[showing->count++];
        *tally = (struct tally){.row = *row};
    }
    if (row->token > tally->row.token)
        tally->row.token = row->token;
    if (row->age_ms > tally->row.age_ms)
        tally->row.age_ms = row->age_ms;
    if (tally->nodes < REDIS_NODES_MAX)
        tally->left_ms[tally->nodes++] = row->left_ms;
}

static void read_show(void *context, int node, int index, const struct resp_node *value)
{
    struct showing *showing = context;
    struct row row;

    (void)node;
    (void)index;
    showing->answered++;
    for (const struct resp_node *at = value + 1; at < value + value->span; at += at->span)
        if (row_read(at, showing->name, &row) && !row.withheld)
            count_row(showing, &row);
}

/* A majority names the same, or none can any more. */
static bool enough_shown(void *context)
{
    const struct showing *showing = context;
    int most = 0, quorum = redlock_quorum(showing->store);

    for (int i = 0; i < showing->count; i++)
        if (showing->tallies[i].nodes > most)
            most = showing->tallies[i].nodes;
    return most >= quorum ||
           (showing->answered >= quorum && most + session_open(showing->session) < quorum);
}

static int longest_first(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? 1 : left > right ? -1 : 0;
}

/* What a majority names; it lasts for as long as a majority of the nodes keeps it. */
static int add_tallies(struct showing *showing, const struct engine_sink *sink)
{
    int quorum = redlock_quorum(showing->store), result = HF_OK;

    for (int i = 0; i < showing->count && result == HF_OK; i++) {
        struct tally *tally = &showing->tallies[i];

        if (tally->nodes < quorum)
            continue;
        qsort(tally->left_ms, (size_t)tally->nodes, sizeof *tally->left_ms, longest_first);
        tally->row.left_ms = tally->left_ms[quorum - 1];
        result = row_add(&tally->row, sink);
    }
    return result;
}

static int show_one(struct session *session, struct showing *showing,
                    const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.commands = 1,
                                .context = showing,
                                .write = write_show,
                                .answer = read_show,
                                .enough = enough_shown};

    showing->count = showing->answered = 0;
    session_ask(session, &question, redlock_deadline(showing->store, deadline_ms));
    if (showing->answered < redlock_quorum(showing->store))
        return redlock_no_majority(session, err);
    return add_tallies(showing, sink);
}

/* names: NULL-terminated. */
static int show_names(struct engine_store *store, char *const *names, size_t count,
                      const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct showing showing = {.store = store, .tallies = calloc(ROWS_MAX, sizeof *showing.tallies)};
    struct session session;
    int result = HF_OK;

    if (!showing.tallies)
        return error_set(err, HF_ENOMEM, "out of memory");
    showing.session = &session;
    session_begin(&session, store);
    for (size_t i = 0; i < count && result == HF_OK; i++) {
        showing.name = names[i];
        result = show_one(&session, &showing, sink, deadline_ms, err);
    }
    session_end(&session);
    free(showing.tallies);
    return result;
}

int redlock_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
                 int64_t deadline_ms, struct error_text *err)
{
    char copy[HF_NAME_MAX + 1], *names[1] = {copy};

    snprintf(copy, sizeof copy, "%s", name);
    return show_names(store, names, 1, sink, deadline_ms, err);
}

/* ---- list ------------------------------------------------------------------------------------ */

/* True: all its names are there. no_redis: is set by a server that says that it is none. */
static bool scan_node(struct session *session, struct scanning *scanning, int node,
                      int64_t deadline_ms, struct error_text *no_redis)
{
    struct question question = {.to = node + 1,
                                .commands = 1,
                                .context = scanning,
                                .write = scan_write,
                                .answer = scan_read};
    struct error_text words;
    int result;

    snprintf(scanning->cursor, sizeof scanning->cursor, "0");
    do {
        scanning->well = false;
        session_ask(session, &question, redlock_deadline(scanning->store, deadline_ms));
        result = session_result(session, node, &words);
        if (result == HF_EINVAL)
            *no_redis = words;
        if (result != HF_OK || !scanning->well)
            return false;
    } while (strcmp(scanning->cursor, "0") != 0);
    return true;
}

int redlock_list(struct engine_store *store, const char *match, bool all,
                 const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct scanning scanning = {.store = store};
    struct error_text no_redis = {""};
    struct session session;
    int scanned = 0, result = HF_OK;

    (void)match; /* the client filters */
    (void)all;   /* a name that nobody holds leaves nothing here */
    session_begin(&session, store);
    /* So many nodes have every name that a majority has. */
    for (int i = 0; i < store->node_count && scanned < redlock_blocking(store); i++)
        scanned += scan_node(&session, &scanning, i, deadline_ms, &no_redis);
    if (scanned < redlock_blocking(store) && no_redis.text[0])
        result = error_set(err, HF_EINVAL, "%s", no_redis.text);
    else if (scanned < redlock_blocking(store))
        result = error_set(err, HF_EUNREACH, "only %d of %d servers answered, %d are needed",
                           scanned, store->node_count, redlock_blocking(store));
    session_end(&session);
    if (result == HF_OK) {
        names_sort(&scanning.names);
        result =
            show_names(store, scanning.names.names, scanning.names.count, sink, deadline_ms, err);
    }
    names_free(&scanning.names);
    return result;
}

/* ---- the store's id -------------------------------------------------------------------------- */

/* Each node keeps an id; the store's is the one that a majority has. Two who name a new store at
 * once may split the nodes between them: then all choose the same of the two, and write it. */
struct naming {
    struct engine_store *store;
    char proposed[2 * ID_BYTES + 1]; /* "": only asks */
    bool overrules;
    char ids[REDIS_NODES_MAX][2 * ID_BYTES + 1];
};

static void write_id(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct naming *naming = context;
    char key[sizeof SCRIPT_KEY_RESERVED + 4 + REDIS_PREFIX_MAX];
    int size = snprintf(key, sizeof key, SCRIPT_KEY_RESERVED "id:%s", naming->store->prefix);
    bool sets = index == 1;

    (void)by_text;
    resp_write_array(writer, sets ? (naming->overrules ? 3 : 4) : 2);
    resp_write_text(writer, sets ? "SET" : "GET");
    resp_write_blob(writer, key, (size_t)size);
    if (sets) {
        resp_write_text(writer, naming->proposed);
        if (!naming->overrules)
            resp_write_text(writer, "NX");
    }
}

static void read_id(void *context, int node, int index, const struct resp_node *value)
{
    struct naming *naming = context;

    if (index == 1 || value->type != RESP_BLOB || value->size != 2 * ID_BYTES)
        return;
    memcpy(naming->ids[node], value->text, value->size);
    if (strspn(naming->ids[node], "0123456789abcdef") != 2 * ID_BYTES)
        naming->ids[node][0] = '\0';
}

/* The id most nodes have, the least among equals, so that all who ask choose the same. */
static int most_common(const struct naming *naming, const char **ret_id)
{
    int most = 0;

    for (int i = 0; i < naming->store->node_count; i++) {
        int count = 0;

        for (int j = 0; naming->ids[i][0] && j < naming->store->node_count; j++)
            count += strcmp(naming->ids[i], naming->ids[j]) == 0;
        if (count > most || (count == most && count > 0 && strcmp(naming->ids[i], *ret_id) < 0)) {
            most = count;
            *ret_id = naming->ids[i];
        }
    }
    return most;
}

static bool enough_named(void *context)
{
    const char *found = NULL;

    return most_common(context, &found) >= redlock_quorum(((struct naming *)context)->store);
}

/* Asks, or with a proposal: asks, sets and asks again. Returns how many answered. */
static int ask_id(struct session *session, struct naming *naming, int64_t deadline_ms)
{
    struct question question = {.commands = naming->proposed[0] ? 3 : 1,
                                .context = naming,
                                .write = write_id,
                                .answer = read_id,
                                .enough = naming->proposed[0] ? NULL : enough_named};
    struct error_text ignored;
    int answered = 0;

    memset(naming->ids, 0, sizeof naming->ids);
    session_ask(session, &question, redlock_deadline(naming->store, deadline_ms));
    for (int i = 0; i < naming->store->node_count; i++)
        answered += session_result(session, i, &ignored) == HF_OK;
    return answered;
}

static void propose(struct naming *naming, const char *found)
{
    unsigned char id[ID_BYTES];

    naming->overrules = found != NULL;
    if (found) {
        memcpy(naming->proposed, found, sizeof naming->proposed);
    } else {
        random_fill(id, sizeof id);
        text_hex(id, sizeof id, naming->proposed);
    }
}

int redlock_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
               struct error_text *err)
{
    struct naming naming = {.store = store};
    struct session session;
    int quorum = redlock_quorum(store), result = HF_EUNREACH;

    session_begin(&session, store);
    for (int i = 0; i < ID_TRIES && result == HF_EUNREACH; i++) {
        const char *found = NULL;

        if (ask_id(&session, &naming, deadline_ms) < quorum) {
            result = redlock_no_majority(&session, err);
            break;
        }
        if (most_common(&naming, &found) >= quorum && found) {
            memcpy(ret_id, found, 2 * ID_BYTES + 1);
            result = HF_OK;
        } else {
            result = error_set(err, HF_EUNREACH, "the servers do not agree on the store's id");
            propose(&naming, found);
        }
    }
    session_end(&session);
    return result;
}
