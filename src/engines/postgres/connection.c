/* connection.c: one connection, and one statement over it, each within a deadline.
 *
 * libpq is used without blocking. Names of hosts are the exception: it resolves them itself, and that may take as long as the
 * resolver does. */
#include "base/clock.h"
#include "engines/postgres/store.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

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

/* False: the deadline. */
static bool await(const struct connection *conn, short events, int64_t deadline_ms)
{
    for (;;) {
        struct pollfd ready = {.fd = PQsocket(conn->pg), .events = events};
        int64_t left_ms = deadline_ms - clock_boot_ms();
        int count;

        if (ready.fd < 0)
            return true; /* libpq will say what is wrong */
        if (left_ms <= 0)
            return false;
        count = poll(&ready, 1, left_ms > 60000 ? 60000 : (int)left_ms);
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

int connection_new(struct engine_store *store, const char *const *keywords,
                   const char *const *values, int64_t deadline_ms, struct connection **ret_conn,
                   struct error_text *err)
{
    struct connection *conn = calloc(1, sizeof *conn);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    int result = HF_OK;

    if (!conn)
        return error_set(err, HF_ENOMEM, "out of memory");
    list_init(&conn->node);
    conn->slot = -1;
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
            result = error_set(err, HF_EUNREACH, "%s: no connection within its time", store->shown);
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
    /* Something came that nobody asked for: a notice, a setting that changed, or the end. */
    return PQconsumeInput(conn->pg) && PQstatus(conn->pg) == CONNECTION_OK &&
           !(ready.revents & (POLLHUP | POLLERR)) && PQtransactionStatus(conn->pg) == PQTRANS_IDLE;
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

/* The first answer, or else the first that is an error, once all have come. */
static PGresult *collect(struct connection *conn, int64_t deadline_ms, struct error_text *err)
{
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
            bool in_time = await(conn, POLLIN, deadline_ms);

            if (!in_time || !PQconsumeInput(conn->pg)) {
                PQclear(first);
                return give_up(conn, in_time, err);
            }
        }
        next = PQgetResult(conn->pg);
        if (!next)
            break;
        if (!first || (PQresultStatus(first) != PGRES_FATAL_ERROR &&
                       PQresultStatus(next) == PGRES_FATAL_ERROR)) {
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

PGresult *connection_ask(struct connection *conn, const struct question *question,
                         int64_t deadline_ms, bool *ret_sent, struct error_text *err)
{
    conn->unreplicated = false;
    *ret_sent = PQsendQueryParams(conn->pg, question->text, question->count, NULL, question->values,
                                  question->lengths, question->formats, 0) == 1;
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
