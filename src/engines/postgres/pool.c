/* pool.c: connections that are there for all, and one question with its answer.
 *
 *     a question ──▶ an idle connection, a new one, or whoever gives one back ──▶ answer
 *                         ▲                                                         │ error
 *                         └── nothing was done, or it only reads: again ◀───────────┤
 *                                                                 may have been done └──▶ HF_EUNKNOWN
 *
 * Renewals find a connection even when all others wait for rows that somebody has locked: one is theirs alone. */
#include "base/clock.h"
#include "base/random.h"
#include "base/switches.h"
#include "engines/postgres/store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_MS_MAX 30000 /* what was not needed for so long is ended */
#define REACH_MS \
    1500 /* a server that never answered is not tried again after it: whoever mistyped it hears that soon */
#define AGAIN_MS 5 /* until it is asked again; doubles */
#define AGAIN_MS_MAX 200
#define UNWRITABLE_MS 1000 /* the same where no host is a primary: each would be asked anew */
#define PATIENCE_PART 4 /* of a deadline: what is left for the answer, when a row was waited for */
#define ROW_PATIENCE_MS_MAX 2000
#define SLACK_MS 100    /* between the beginning of a call and that of its connection */
#define HURRIED_MS 1000 /* a server that has less time to answer may be only slow */
#define CODE_OTHER_INCARNATION (-3)

/* ---- connections ----------------------------------------------------------------------------- */

static struct connection *take_idle(struct engine_store *store)
{
    struct connection *conn = NULL;

    while (!list_empty(&store->idle)) {
        conn = LIST_ENTRY(store->idle.prev, struct connection, node);
        list_remove(&conn->node);
        if (connection_is_alive(conn))
            return conn;
        store->connections--;
        connection_free(store, conn);
    }
    return NULL;
}

/* In use, or being made. With the mutex. */
static int count_busy(const struct engine_store *store)
{
    int idle = 0;

    LIST_EACH(node, &store->idle)
    {
        idle++;
    }
    return store->connections - idle;
}

static int most_for(const struct question *question)
{
    if (question->renews)
        return PG_POOL_RENEW_MAX;
    return question->urgent ? PG_POOL_URGENT_MAX : PG_POOL_MAX;
}

/* NULL: *ret_make says whether a new one is to be made, which is then counted already; else the deadline has come, or it is interrupted. */
static struct connection *take(struct engine_store *store, const struct question *question,
                               int64_t deadline_ms, bool *ret_make)
{
    struct connection *conn = NULL;
    int most = most_for(question);

    *ret_make = false;
    pthread_mutex_lock(&store->mutex);
    while (count_busy(store) >= most && clock_boot_ms() < deadline_ms &&
           !connection_interrupted()) {
        struct timespec until = clock_monotonic_in(deadline_ms - clock_boot_ms());

        pthread_cond_clockwait(&store->freed, &store->mutex, CLOCK_MONOTONIC, &until);
    }
    if (count_busy(store) < most) {
        conn = take_idle(store);
        if (!conn) {
            store->connections++;
            *ret_make = true;
        }
    }
    pthread_mutex_unlock(&store->mutex);
    return conn;
}

static void give_back(struct engine_store *store, struct connection *conn)
{
    int64_t now_ms = clock_boot_ms();
    struct connection *oldest = NULL;

    pthread_mutex_lock(&store->mutex);
    if (!list_empty(&store->idle)) { /* those that are used least are at the front */
        oldest = LIST_ENTRY(store->idle.next, struct connection, node);
        if (now_ms - oldest->idle_ms >= IDLE_MS_MAX) {
            list_remove(&oldest->node);
            store->connections--;
        } else {
            oldest = NULL;
        }
    }
    conn->idle_ms = now_ms;
    if (PQstatus(conn->pg) == CONNECTION_OK && PQtransactionStatus(conn->pg) == PQTRANS_IDLE) {
        list_append(&store->idle, &conn->node);
        conn = NULL;
    } else {
        store->connections--;
    }
    pthread_cond_broadcast(&store->freed);
    pthread_mutex_unlock(&store->mutex);
    connection_free(store, conn);
    connection_free(store, oldest);
}

/* A server did not answer over one that was idle until then, or cannot be written to any more. What else was idle has not been used since, and may be of no more
 * use: each would cost as much time. The listener's may be no better. */
static void drop_idle(struct engine_store *store, int64_t before_ms)
{
    struct list dropped;

    list_init(&dropped);
    pthread_mutex_lock(&store->mutex);
    LIST_EACH_SAFE(node, &store->idle)
    {
        if (LIST_ENTRY(node, struct connection, node)->idle_ms > before_ms)
            continue;
        list_remove(node);
        list_append(&dropped, node);
        store->connections--;
    }
    pthread_cond_broadcast(&store->freed);
    pthread_mutex_unlock(&store->mutex);
    LIST_EACH_SAFE(node, &dropped)
    {
        list_remove(node);
        connection_free(store, LIST_ENTRY(node, struct connection, node));
    }
    listener_doubt(store);
}

static void forget_one(struct engine_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->connections--;
    pthread_cond_broadcast(&store->freed);
    pthread_mutex_unlock(&store->mutex);
}

void pool_interrupt(struct engine_store *store)
{
    pthread_mutex_lock(&store->mutex);
    pthread_cond_broadcast(&store->freed);
    pthread_mutex_unlock(&store->mutex);
}

/* There was too little time. Was that all that the URL allows, or a first contact whose URL says nothing? Else a wait has ended. */
static void advise_timeout(const struct engine_store *store, int64_t began_ms, int64_t most_ms,
                           struct error_text *err)
{
    bool silent = !atomic_load(&store->settled) && store->timeout_ms == PG_TIMEOUT_MS;
    struct error_text plain = *err;

    if (silent || most_ms - began_ms + SLACK_MS >= store->timeout_ms)
        error_write(err, "%.400s: ?timeout= in the URL allows more", plain.text);
}

/* What it says of itself counts only if nobody has heard of another one since it was asked: then it is asked again. */
int pool_settle(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                struct error_text *err)
{
    char incarnation[PG_INCARNATION_MAX + 1];
    uint32_t era;
    int result;

    do {
        era = store_era(store);
        result = schema_settle(store, conn, deadline_ms, incarnation, err);
    } while (result == HF_OK && !store_note_incarnation(store, incarnation, era));
    return result;
}

static int connect_new(struct engine_store *store, int64_t deadline_ms, struct contact *contact,
                       struct connection **ret_conn, struct error_text *err)
{
    int64_t began_ms = clock_boot_ms(), most_ms = clock_after(began_ms, store->timeout_ms);
    const struct parameters *parameters = &store->parameters;
    int result;

    most_ms = most_ms < deadline_ms ? most_ms : deadline_ms;
    result = connection_new(store, (const char *const *)parameters->keywords,
                            (const char *const *)parameters->values, pool_settle, most_ms, contact,
                            ret_conn, err);
    if (result == HF_EUNREACH && contact->cut_off)
        advise_timeout(store, began_ms, most_ms, err);
    return result;
}

static int get_connection(struct engine_store *store, const struct question *question,
                          int64_t deadline_ms, struct contact *contact,
                          struct connection **ret_conn, struct error_text *err)
{
    bool make = false;
    int result;

    contact->cut_off = contact->unwritable = false;
    *ret_conn = take(store, question, deadline_ms, &make);
    if (*ret_conn)
        return HF_OK;
    if (!make)
        return error_set(err, HF_EUNREACH, "%s: all connections to it are busy", store->shown);
    result = connect_new(store, deadline_ms, contact, ret_conn, err);
    if (result != HF_OK)
        forget_one(store);
    return result;
}

void pool_free(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->idle)
    {
        struct connection *conn = LIST_ENTRY(node, struct connection, node);

        list_remove(node);
        if (!store->forked) /* the parent's is still in use: what libpq has of it stays */
            connection_free(store, conn);
    }
}

/* ---- who is there ---------------------------------------------------------------------------- */

/* era: when it was asked. False: somebody has heard of another one since, and this may be the older news of both. */
bool store_note_incarnation(struct engine_store *store, const char *incarnation, uint32_t era)
{
    bool same, current;

    pthread_mutex_lock(&store->telling);
    pthread_mutex_lock(&store->mutex);
    same = strcmp(store->incarnation, incarnation) == 0;
    current = era == atomic_load(&store->era);
    if (!same && current) {
        memcpy(store->incarnation, incarnation, strlen(incarnation) + 1);
        era = atomic_fetch_add(&store->era, 1) + 1;
    }
    pthread_mutex_unlock(&store->mutex);
    if (!same && current) {
        sightings_clear(store->sightings, era);
        listener_doubt(store);
    }
    if (same || current)
        store->host->connected(store->host->context, incarnation);
    pthread_mutex_unlock(&store->telling);
    return same || current;
}

uint32_t store_era(struct engine_store *store)
{
    return atomic_load(&store->era);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void pause_before_again(int64_t *pause_ms, int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - clock_boot_ms();
    int64_t span_ms = *pause_ms / 2 + (int64_t)random_below((uint64_t)*pause_ms);
    struct timespec span;

    *pause_ms = 2 * *pause_ms < AGAIN_MS_MAX ? 2 * *pause_ms : AGAIN_MS_MAX;
    span_ms = span_ms < left_ms ? span_ms : left_ms;
    if (span_ms <= 0)
        return;
    span = (struct timespec){span_ms / 1000, span_ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

/* What is the same in all statements: who is expected there, since which era, and how long they may wait for a row. False: the question is of
 * another era. */
static bool put_in(struct engine_store *store, struct question *question, int64_t deadline_ms,
                   char expected[PG_INCARNATION_MAX + 1], uint32_t *ret_era)
{
    int64_t left_ms = deadline_ms - clock_boot_ms();
    bool current;

    question->text = store->texts[question->statement];
    question->isolates = atomic_load(&store->isolates);
    question->name =
        atomic_load(&store->unprepared) ? NULL : store->statement_names[question->statement];
    pthread_mutex_lock(&store->mutex);
    memcpy(expected, store->incarnation, sizeof store->incarnation);
    *ret_era = atomic_load(&store->era);
    current = !question->dated || question->era == *ret_era;
    pthread_mutex_unlock(&store->mutex);
    if (question->expects)
        question->values[0] = expected;
    if (question->patience) {
        int64_t patience_ms = left_ms - left_ms / PATIENCE_PART;
        int count = question->count;

        if (patience_ms > ROW_PATIENCE_MS_MAX)
            patience_ms = ROW_PATIENCE_MS_MAX;
        if (patience_ms < 1)
            patience_ms = 1;
        question->count = 1;
        question_add_number(question, patience_ms);
        question->count = count;
    }
    return current;
}

static int other_incarnation(const struct engine_store *store, struct error_text *err)
{
    return error_set(err, HF_ESTORE, "%s: the server is another one than before, or was promoted",
                     store->shown);
}

/* The role's default is not READ COMMITTED: from now on each statement says what it is to be. */
static void note_isolation(struct engine_store *store, const PGresult *answer)
{
    const char *state = PQresultErrorField(answer, PG_DIAG_SQLSTATE);

    if (state && strcmp(state, PG_STATE_ISOLATION) == 0)
        atomic_store(&store->isolates, true);
}

/* A prepared statement that is not there (a pooler that pretends to be the server), or whose function was made anew with other columns: nothing was
 * done, and nothing is prepared any more. */
static bool is_unprepared(struct engine_store *store, const PGresult *answer)
{
    const char *state = PQresultErrorField(answer, PG_DIAG_SQLSTATE);

    if (!state || (strcmp(state, "26000") != 0 && strcmp(state, "0A000") != 0))
        return false;
    atomic_store(&store->unprepared, true);
    return true;
}

/* No answer came over it. */
static int give_up(struct engine_store *store, const struct question *question,
                   struct connection *conn, bool sent, int64_t asked_ms, int64_t deadline_ms,
                   const struct error_text *said, enum verdict *ret_verdict, struct error_text *err)
{
    bool gave_up = !connection_interrupted();
    /* That a connection has ended says nothing of its host. */
    bool passed_over =
        gave_up && clock_boot_ms() >= deadline_ms && connection_pass_over(store, conn);

    *ret_verdict = sent ? VERDICT_BROKEN : VERDICT_UNDONE;
    give_back(store, conn); /* which ends it */
    if (gave_up) /* one that only reads may have been used since: an old primary without its standby commits nothing */
        drop_idle(store, passed_over ? clock_boot_ms() : asked_ms);
    return error_set(err, sent && !question->reads ? HF_EUNKNOWN : HF_EUNREACH, "%s: %s",
                     store->shown, said->text);
}

/* The server is not the one that was expected, or said nothing that can be read. */
static int note_other(struct engine_store *store, const PGresult *answer, int64_t code,
                      uint32_t era, struct error_text *err)
{
    const char *incarnation = answer_text(answer, 0, 1);
    char now[PG_INCARNATION_MAX + 1];

    if (code != CODE_OTHER_INCARNATION || !schema_is_incarnation(incarnation))
        return error_set(err, HF_EINTERNAL, "%s: the server returned an invalid answer",
                         store->shown);
    memcpy(now, incarnation, strlen(incarnation) + 1);
    store_note_incarnation(store, now, era);
    return other_incarnation(store, err);
}

/* What an answer means. HF_OK: it is one. */
static int judge(struct engine_store *store, const struct question *question,
                 const PGresult *answer, bool unreplicated, uint32_t era, enum verdict *ret_verdict,
                 struct error_text *err)
{
    int64_t code = 0;
    int result;

    if (PQresultStatus(answer) != PGRES_TUPLES_OK) {
        note_isolation(store, answer);
        *ret_verdict = error_read(store, answer, &result, err);
        if (*ret_verdict == VERDICT_BROKEN)
            return question->reads ? HF_EUNREACH : HF_EUNKNOWN;
        return *ret_verdict == VERDICT_FINAL ? result : HF_EUNREACH;
    }
    if (unreplicated && (!question->reads || question->replicated)) {
        *ret_verdict = VERDICT_BROKEN;
        return error_set(err, question->reads ? HF_EUNREACH : HF_EUNKNOWN,
                         "%s: the commit is not known to be at the standby that has to have it",
                         store->shown);
    }
    if (question->expects &&
        (!answer_number(answer, 0, 0, &code) || code == CODE_OTHER_INCARNATION))
        return note_other(store, answer, code, era, err);
    return HF_OK;
}

/* One try. HF_OK: *ret_answer is what came. */
static int ask_once(struct engine_store *store, struct question *question, int64_t deadline_ms,
                    struct contact *contact, PGresult **ret_answer, enum verdict *ret_verdict,
                    struct error_text *err)
{
    char expected[PG_INCARNATION_MAX + 1];
    struct error_text said = {""};
    struct connection *conn;
    PGresult *answer;
    bool sent = false, unreplicated, unprepared, read_only;
    int64_t asked_ms;
    uint32_t era;
    int result = get_connection(store, question, deadline_ms, contact, &conn, err);

    *ret_verdict = result == HF_EUNREACH ? VERDICT_UNDONE : VERDICT_FINAL;
    if (result != HF_OK)
        return result;
    if (!put_in(store, question, deadline_ms, expected, &era)) {
        give_back(store, conn);
        return other_incarnation(store, err);
    }
    asked_ms = clock_boot_ms();
    answer = connection_ask(conn, question, deadline_ms, &sent, &said);
    if (!answer)
        return give_up(store, question, conn, sent, asked_ms, deadline_ms, &said, ret_verdict, err);
    unreplicated = conn->unreplicated;
    unprepared = conn->by_name && is_unprepared(store, answer);
    read_only = error_is_read_only(answer);
    if (read_only && conn->hosts > 1) { /* another one may be the primary */
        connection_free(store, conn);
        forget_one(store);
        drop_idle(store, clock_boot_ms());
    } else {
        give_back(store, conn);
    }
    if (unprepared) {
        *ret_verdict = VERDICT_AGAIN;
        result = error_set(err, HF_EUNREACH, "%s: a prepared statement is gone", store->shown);
    } else {
        result = judge(store, question, answer, unreplicated, era, ret_verdict, err);
    }
    if (result == HF_OK)
        *ret_answer = answer;
    else
        PQclear(answer);
    return result;
}

/* Is it to be tried again? Waits until then. */
static bool try_again(struct engine_store *store, const struct question *question,
                      enum verdict verdict, int64_t *pause_ms, int64_t deadline_ms,
                      const struct error_text *err)
{
    if (verdict == VERDICT_FINAL || clock_boot_ms() >= deadline_ms || connection_interrupted())
        return false;
    if (verdict != VERDICT_AGAIN) {
        /* Whoever closes still gives up what it has; and nobody waits for an answer that is not wanted any more. */
        if ((!question->urgent && store->host->closing(store->host->context)) ||
            (question->bell && atomic_load(question->bell) != question->rung))
            return false;
        store->host->trouble(store->host->context, err->text);
    }
    pause_before_again(pause_ms, deadline_ms);
    return clock_boot_ms() < deadline_ms;
}

/* Several tries of one call. */
struct tries {
    struct contact contact;
    int64_t began_ms;         /* the last one */
    struct error_text before; /* what the one before it has said; not that it had too little time */
};

/* A try that had too little time says little of the server: what the one before it has said stays. Of those that all had too little the last one tells how much it was. */
static void keep_telling(struct tries *tries, int64_t deadline_ms, struct error_text *err)
{
    int64_t now_ms = clock_boot_ms();
    bool cut_off = tries->contact.cut_off || now_ms >= deadline_ms;

    if (cut_off && tries->before.text[0] && now_ms - tries->began_ms < HURRIED_MS)
        *err = tries->before;
    else if (!cut_off)
        tries->before = *err;
}

int store_reach(struct engine_store *store, int64_t deadline_ms, struct error_text *err)
{
    const struct question any = {.urgent = false};
    int64_t pause_ms = AGAIN_MS, most_ms = clock_after(clock_boot_ms(), REACH_MS);
    struct tries tries = {.contact = {.since_ms = clock_boot_ms()}};
    struct connection *conn;
    int result;

    if (atomic_load(&store->settled))
        return HF_OK;
    most_ms = most_ms < deadline_ms ? most_ms : deadline_ms;
    do {
        tries.began_ms = clock_boot_ms();
        result = get_connection(store, &any, deadline_ms, &tries.contact, &conn, err);
        if (result == HF_EUNREACH)
            keep_telling(&tries, deadline_ms, err);
    } while (result != HF_OK &&
             try_again(store, &any, result == HF_EUNREACH ? VERDICT_UNDONE : VERDICT_FINAL,
                       &pause_ms, most_ms, err));
    if (result == HF_OK)
        give_back(store, conn);
    return result;
}

/* Whoever refuses a later try, or is not there for it, has not said what became of the one whose answer was lost. HF_ESTORE: that is asked anew. */
static int in_doubt(const struct question *question, int result)
{
    bool lost = question->ret_again && *question->ret_again && !question->reads;

    if (lost && result != HF_ESTORE && !SWITCHED(SWITCH_PG_DOUBT_FORGOTTEN))
        return HF_EUNKNOWN;
    return result;
}

int store_ask(struct engine_store *store, struct question *question, int64_t deadline_ms,
              PGresult **ret_answer, struct error_text *err)
{
    struct tries tries = {.contact = {.since_ms = clock_boot_ms()}};
    int64_t pause_ms = AGAIN_MS;
    enum verdict verdict;
    int result;

    for (;;) {
        tries.began_ms = clock_boot_ms();
        result = ask_once(store, question, deadline_ms, &tries.contact, ret_answer, &verdict, err);
        if (result == HF_EUNREACH)
            keep_telling(&tries, deadline_ms, err);
        if (result == HF_OK ||
            (verdict == VERDICT_BROKEN && !question->reads && !question->ret_again))
            return result;
        if (verdict == VERDICT_BROKEN && question->ret_again)
            *question->ret_again = true;
        if (result == HF_EUNREACH && tries.contact.unwritable)
            pause_ms = UNWRITABLE_MS;
        if (!try_again(store, question, verdict, &pause_ms, deadline_ms, err))
            return in_doubt(question, result);
    }
}

int store_ask_anyhow(struct engine_store *store, struct question *question, int64_t deadline_ms,
                     PGresult **ret_answer, struct error_text *err)
{
    int result = store_ask(store, question, deadline_ms, ret_answer, err);

    if (result == HF_ESTORE)
        result = store_ask(store, question, deadline_ms, ret_answer, err);
    return result == HF_ESTORE ? in_doubt(question, HF_EUNREACH) : result;
}
