/* connection.c: one connection, and one statement over it, each within a deadline.
 *
 * libpq is used without blocking. Names of hosts are the exception: it resolves them itself, and that may take as long as the
 * resolver does. */
#include "base/clock.h"
#include "base/text.h"
#include "engines/postgres/store.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS 60000
#define HEED_MS 50       /* until an attempt that was interrupted ends */
#define HALF_DIGIT_MS 50 /* text_from_ms cuts off what is less than 100 */
#define SLOW_MS 1000     /* an answer that is not here by then is missed */
#define PREPARE_AFTER 2  /* times: most who run a command ask once */

/* ---- sockets, for a fork --------------------------------------------------------------------- */

static void note_socket(struct engine_store *store, struct connection *conn)
{
    int fd = PQsocket(conn->pg);

    for (int i = 0; conn->slot < 0 && i < PG_SOCKETS_MAX; i++) {
        int none = -1;

        if (atomic_compare_exchange_strong(&store->sockets[i], &none, fd))
            conn->slot = i;
    }
    if (conn->slot >= 0)
        atomic_store(&store->sockets[conn->slot], fd);
}

static void forget_socket(struct engine_store *store, struct connection *conn)
{
    if (conn->slot >= 0)
        atomic_store(&store->sockets[conn->slot], -1);
    conn->slot = -1;
}

/* ---- waiting for it -------------------------------------------------------------------------- */

/* What ends the attempt of this thread, or NULL. An attempt is many calls of libpq, and one thread makes them all. */
static _Thread_local const _Atomic bool *heeded;

void connection_heed(const _Atomic bool *interrupted)
{
    heeded = interrupted;
}

bool connection_interrupted(void)
{
    return heeded && atomic_load(heeded);
}

/* False: the deadline, or it is interrupted. */
static bool await(const struct connection *conn, short events, int64_t deadline_ms)
{
    for (;;) {
        struct pollfd ready = {.fd = PQsocket(conn->pg), .events = events};
        int64_t left_ms = deadline_ms - clock_boot_ms();
        int count;

        if (ready.fd < 0)
            return true; /* libpq will say what is wrong */
        if (left_ms <= 0 || connection_interrupted())
            return false;
        if (left_ms > (heeded ? HEED_MS : POLL_MS))
            left_ms = heeded ? HEED_MS : POLL_MS;
        count = poll(&ready, 1, (int)left_ms);
        if (count > 0 || (count < 0 && errno != EINTR))
            return true;
    }
}

void connection_words(const char *message, struct error_text *err)
{
    size_t length = strcspn(message, "\n");

    while (length > 0 && message[length - 1] == ' ')
        length--;
    error_write(err, "%.*s", (int)(length > 400 ? 400 : length),
                length ? message : "no reason given");
}

/* ---- making it ------------------------------------------------------------------------------- */

/* The wait for synchronous standbys was given up: the server says that it committed, and warns. By where that comes from, because the
 * words may be in any language. */
static void take_notice(void *context, const PGresult *notice)
{
    struct connection *conn = context;
    const char *from = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);

    if (from && strncmp(from, "SyncRep", strlen("SyncRep")) == 0)
        conn->unreplicated = true;
}

static int not_in_time(const struct engine_store *store, int64_t since_ms, struct error_text *err)
{
    char span[TEXT_SPAN_MAX];

    text_from_ms(clock_boot_ms() - since_ms + HALF_DIGIT_MS, span);
    return error_set(err, HF_EUNREACH, "%s: no connection within %s", store->shown, span);
}

static int connect_until(struct engine_store *store, const char *const *keywords,
                         const char *const *values, int64_t since_ms, int64_t deadline_ms,
                         struct connection **ret_conn, struct error_text *err)
{
    struct connection *conn = calloc(1, sizeof *conn);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    int result = HF_OK;

    if (!conn)
        return error_set(err, HF_ENOMEM, "out of memory");
    list_init(&conn->node);
    conn->slot = -1;
    conn->host = store->host;
    conn->pg = PQconnectStartParams(keywords, values, 0);
    if (!conn->pg) {
        free(conn);
        return error_set(err, HF_ENOMEM, "out of memory");
    }
    PQsetNoticeReceiver(conn->pg, take_notice, conn);
    while (PQstatus(conn->pg) != CONNECTION_BAD && status != PGRES_POLLING_OK &&
           status != PGRES_POLLING_FAILED) {
        note_socket(store, conn);
        if (!await(conn, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline_ms)) {
            result = not_in_time(store, since_ms, err);
            break;
        }
        status = PQconnectPoll(conn->pg);
    }
    if (result == HF_OK && PQstatus(conn->pg) != CONNECTION_OK)
        result = error_of_connection(store, PQerrorMessage(conn->pg), err);
    if (result == HF_OK && PQsetnonblocking(conn->pg, 1) != 0)
        result = error_set(err, HF_EUNREACH, "%s: the connection cannot be used", store->shown);
    if (result != HF_OK) {
        connection_free(store, conn);
        return result;
    }
    note_socket(store, conn);
    *ret_conn = conn;
    return HF_OK;
}

/* ---- several hosts --------------------------------------------------------------------------- */

static unsigned hosts_in(const char *const *keywords, const char *const *values)
{
    unsigned count = 1;

    for (int i = 0; keywords[i]; i++)
        if (strcmp(keywords[i], "host") == 0 || strcmp(keywords[i], "hostaddr") == 0) {
            unsigned here = 1;

            for (const char *at = values[i]; at && (at = strchr(at, ',')); at++)
                here++;
            count = here > count ? here : count;
        }
    return count;
}

/* Of "a,b,c" the one of that number; of one for all, that. NULL: out of memory. */
static char *one_of(const char *list, unsigned number)
{
    for (; number > 0 && strchr(list, ','); number--)
        list = strchr(list, ',') + 1;
    return strndup(list, strcspn(list, ","));
}

/* To the host of that number. */
static int connect_to(struct engine_store *store, const char *const *keywords,
                      const char *const *values, unsigned number, int64_t since_ms,
                      int64_t deadline_ms, struct connection **ret_conn, struct error_text *err)
{
    const char *chosen[PG_KEYWORDS_MAX + 1] = {NULL};
    char *made[PG_KEYWORDS_MAX + 1] = {NULL};
    int result = HF_OK;

    for (int i = 0; i < PG_KEYWORDS_MAX && keywords[i]; i++) {
        bool listed = strcmp(keywords[i], "host") == 0 || strcmp(keywords[i], "hostaddr") == 0 ||
                      strcmp(keywords[i], "port") == 0;

        made[i] = listed && values[i] ? one_of(values[i], number) : NULL;
        if (listed && values[i] && !made[i])
            result = error_set(err, HF_ENOMEM, "out of memory");
        chosen[i] = made[i] ? made[i] : values[i];
    }
    if (result == HF_OK)
        result = connect_until(store, keywords, chosen, since_ms, deadline_ms, ret_conn, err);
    for (int i = 0; i < PG_KEYWORDS_MAX; i++)
        free(made[i]);
    return result;
}

/* Is another host worth trying after this one? Once the store has been used, also where this one does not let us in: the one that did may be back soon. */
static bool may_go_on(const struct engine_store *store, const struct connection *conn, int came)
{
    return came == HF_EUNREACH || (conn && (conn->standby || conn->read_only)) ||
           (came == HF_EREFUSED && atomic_load(&store->settled));
}

/* Why none of them serves: that there is a standby, that one cannot be written to or refuses us, that one is slow, that one is away and may be back. */
#define UNWRITABLE_TELLS 1
static int how_much_it_tells(const struct connection *conn, int came, bool cut_off)
{
    if (conn && conn->standby)
        return 0;
    if (conn && conn->read_only)
        return UNWRITABLE_TELLS;
    if (came != HF_EUNREACH)
        return 2;
    return cut_off ? 3 : 4;
}

/* Of one that is away another reason is told: then it is worth knowing that the others are there. */
static void add_standby(const char *const *keywords, const char *const *values, unsigned number,
                        struct error_text *err)
{
    char *host = NULL, *port = NULL;
    struct error_text why = *err;

    for (int i = 0; keywords[i]; i++) {
        if (values[i] && !host &&
            (strcmp(keywords[i], "host") == 0 || strcmp(keywords[i], "hostaddr") == 0))
            host = one_of(values[i], number);
        if (values[i] && !port && strcmp(keywords[i], "port") == 0)
            port = one_of(values[i], number);
    }
    if (host)
        error_write(err, "%.380s; %.100s%s%.8s is a standby", why.text, host,
                    port && *port ? ":" : "", port ? port : "");
    free(host);
    free(port);
}

/* One after the other, each with its share of the time, where libpq would wait for one that hangs as long as it is let; and which of them is the
 * primary is what the server says, where libpq would believe a pooler that has not heard of a promotion yet. The one that serves stays first, so that
 * only one connection has waited for those before it. */
int connection_new(struct engine_store *store, const char *const *keywords,
                   const char *const *values, connection_settle_fn *settle, int64_t deadline_ms,
                   struct contact *contact, struct connection **ret_conn, struct error_text *err)
{
    unsigned count = hosts_in(keywords, values), first = atomic_load(&store->first_host) % count;
    int result = HF_EREFUSED, told = -1;
    bool go_on = true;

    for (unsigned left = count; left > 0 && go_on; left--) {
        int64_t now_ms = clock_boot_ms();
        int64_t share_ms = clock_after(now_ms, (deadline_ms - now_ms) / left);
        unsigned number = (first + count - left) % count;
        struct connection *conn = NULL;
        struct error_text said = {""};
        bool cut_off;
        int tells, came = connect_to(store, keywords, values, number, contact->since_ms, share_ms,
                                     &conn, &said);

        if (came == HF_OK && settle)
            came = settle(store, conn, share_ms, &said);
        if (came == HF_OK) {
            conn->number = number;
            conn->hosts = count;
            *ret_conn = conn;
            if (settle == pool_settle && count > 1) /* only then it is known to serve */
                atomic_store(&store->first_host, number);
            return HF_OK;
        }
        go_on = may_go_on(store, conn, came) && !connection_interrupted();
        cut_off = came == HF_EUNREACH && clock_boot_ms() >= share_ms && !connection_interrupted();
        tells = go_on ? how_much_it_tells(conn, came, cut_off) : INT_MAX;
        if (tells > told) {
            told = tells;
            contact->cut_off = cut_off;
            contact->unwritable = tells <= UNWRITABLE_TELLS;
            result = came;
            *err = said;
        }
        if (conn && conn->standby) {
            contact->has_standby = true;
            contact->standby = number;
        }
        connection_free(store, conn);
    }
    if (contact->has_standby && go_on && told > UNWRITABLE_TELLS)
        add_standby(keywords, values, contact->standby, err);
    return result;
}

bool connection_pass_over(struct engine_store *store, const struct connection *conn)
{
    unsigned expected = conn->number; /* or else somebody has found another one meanwhile */

    return conn->hosts > 1 &&
           atomic_compare_exchange_strong(&store->first_host, &expected, conn->number + 1);
}

void connection_free(struct engine_store *store, struct connection *conn)
{
    if (!conn)
        return;
    forget_socket(store, conn);
    PQfinish(conn->pg);
    free(conn);
}

bool connection_is_alive(struct connection *conn)
{
    struct pollfd ready = {.fd = PQsocket(conn->pg), .events = POLLIN};

    if (PQstatus(conn->pg) != CONNECTION_OK || ready.fd < 0)
        return false;
    if (poll(&ready, 1, 0) == 0)
        return true;
    /* Something came that nobody asked for: a notice, a setting that changed, or the end. What the server says before it ends one is read first: the end itself
     * comes with the next read. */
    do
        if (!PQconsumeInput(conn->pg) || PQstatus(conn->pg) != CONNECTION_OK ||
            (ready.revents & (POLLHUP | POLLERR)))
            return false;
    while (poll(&ready, 1, 0) > 0);
    return PQtransactionStatus(conn->pg) == PQTRANS_IDLE;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static PGresult *give_up(struct connection *conn, bool in_time, struct error_text *err)
{
    if (in_time)
        connection_words(PQerrorMessage(conn->pg), err);
    else
        error_write(err, "the server did not answer in time");
    return NULL;
}

/* Does it say more than what came before? An error most, then rows. */
static bool says_more(const PGresult *first, const PGresult *next)
{
    ExecStatusType before = PQresultStatus(first), now = PQresultStatus(next);

    return before != PGRES_FATAL_ERROR &&
           (now == PGRES_FATAL_ERROR || (now == PGRES_TUPLES_OK && before != PGRES_TUPLES_OK));
}

/* False: the deadline, or it is interrupted. Whoever waits for a lock is to hear of a server that hangs, long before the deadline. */
static bool await_answer(const struct connection *conn, int64_t *slow_ms, int64_t deadline_ms)
{
    if (!conn->host || *slow_ms >= deadline_ms)
        return await(conn, POLLIN, deadline_ms);
    if (await(conn, POLLIN, *slow_ms))
        return true;
    *slow_ms = CLOCK_NEVER;
    if (!connection_interrupted())
        conn->host->trouble(conn->host->context,
                            "no answer for a second: the server hangs, or waits for a row that is "
                            "locked, or for a synchronous standby");
    return await(conn, POLLIN, deadline_ms);
}

/* The first answer that has rows, or else the first; or the first that is an error, once all have come. */
static PGresult *collect(struct connection *conn, int64_t deadline_ms, struct error_text *err)
{
    int64_t slow_ms = clock_after(clock_boot_ms(), SLOW_MS);
    PGresult *first = NULL, *next;

    for (;;) {
        int unsent;

        while ((unsent = PQflush(conn->pg)) == 1)
            if (!await(conn, POLLIN | POLLOUT, deadline_ms) || !PQconsumeInput(conn->pg))
                break;
        if (unsent < 0) {
            /* What the server said before it went away may still be there. */
            PQconsumeInput(conn->pg);
        }
        while (PQisBusy(conn->pg)) {
            bool in_time = await_answer(conn, &slow_ms, deadline_ms);

            if (!in_time || !PQconsumeInput(conn->pg)) {
                PQclear(first);
                return give_up(conn, in_time, err);
            }
        }
        next = PQgetResult(conn->pg);
        if (!next)
            break;
        if (!first || says_more(first, next)) {
            PQclear(first);
            first = next;
        } else {
            PQclear(next);
        }
        if (PQstatus(conn->pg) == CONNECTION_BAD)
            break;
    }
    return first ? first : give_up(conn, true, err);
}

/* A connection that is used again and again has what is asked over it prepared: parsing and planning take longer than most statements. Not where a
 * pooler may be in between, to whose sessions it would belong. Costs a round trip, once. */
static bool is_prepared(struct connection *conn, const struct question *question,
                        int64_t deadline_ms, struct error_text *err)
{
    enum statement statement = question->statement;
    PGresult *answer;

    if (!conn->direct || !question->name || question->isolates)
        return false;
    if (conn->prepared[statement] || conn->asked[statement]++ < PREPARE_AFTER)
        return conn->prepared[statement];
    answer = PQsendPrepare(conn->pg, question->name, question->text, 0, NULL) == 1
                 ? collect(conn, deadline_ms, err)
                 : NULL;
    conn->prepared[statement] = answer && PQresultStatus(answer) == PGRES_COMMAND_OK;
    conn->direct = conn->prepared[statement]; /* or else it is not what it seemed to be */
    PQclear(answer);
    return conn->prepared[statement];
}

PGresult *connection_ask(struct connection *conn, const struct question *question,
                         int64_t deadline_ms, bool *ret_sent, struct error_text *err)
{
    char *isolated = question->isolates ? question_isolated(question) : NULL;

    conn->by_name = is_prepared(conn, question, deadline_ms, err);
    conn->unreplicated = false;
    if (PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE) { /* no answer came to that */
        free(isolated);
        *ret_sent = false;
        return NULL;
    }
    if (conn->by_name)
        *ret_sent = PQsendQueryPrepared(conn->pg, question->name, question->count, question->values,
                                        question->lengths, question->formats, 0) == 1;
    else if (isolated)
        *ret_sent = PQsendQuery(conn->pg, isolated) == 1;
    else /* out of memory, the server refuses it */
        *ret_sent =
            PQsendQueryParams(conn->pg, question->text, question->count, NULL, question->values,
                              question->lengths, question->formats, 0) == 1;
    free(isolated);
    if (!*ret_sent)
        return give_up(conn, true, err);
    return collect(conn, deadline_ms, err);
}

enum peer connection_peer(struct connection *conn, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.text = "SELECT pg_catalog.pg_backend_pid()"};
    bool sent;
    PGresult *answer = connection_ask(conn, &question, deadline_ms, &sent, err);
    int64_t pid = 0;

    if (answer && PQresultStatus(answer) != PGRES_TUPLES_OK)
        connection_words(PQresultErrorMessage(answer), err);
    else if (answer && !answer_number(answer, 0, 0, &pid))
        error_write(err, "the server returned an invalid answer");
    PQclear(answer);
    return pid == 0 ? PEER_UNKNOWN : pid == PQbackendPID(conn->pg) ? PEER_SERVER : PEER_POOLER;
}

PGresult *connection_run(struct connection *conn, const char *text, int64_t deadline_ms,
                         struct error_text *err)
{
    if (PQsendQuery(conn->pg, text) != 1)
        return give_up(conn, true, err);
    return collect(conn, deadline_ms, err);
}
