/* connection.c: one client: its bytes in, its bytes out, and when it may go on. */
#include "server/log.h"
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_USUAL 16384u /* what a connection keeps for its answers; more is given back */
#define WORDS_MAX 8192u  /* of one command */

/* ---- who has not said the password --------------------------------------------------------------- */

static struct resp_limits limits_of(const struct connection *connection)
{
    size_t most = connection->server->config->max_query_bytes;

    if (!connection->session.authenticated)
        return (struct resp_limits){.blob_max = UNAUTHENTICATED_BYTES,
                                    .value_max = UNAUTHENTICATED_BYTES,
                                    .nodes_max = UNAUTHENTICATED_WORDS};
    return (struct resp_limits){.blob_max = most, .value_max = most, .nodes_max = WORDS_MAX};
}

static void not_unauthenticated(struct connection *connection)
{
    if (list_empty(&connection->unauthenticated))
        return;
    list_remove(&connection->unauthenticated);
    connection->server->unauthenticated_count--;
}

void connection_authenticated(struct connection *connection)
{
    struct resp_limits limits;

    connection->session.authenticated = true;
    not_unauthenticated(connection);
    limits = limits_of(connection);
    resp_reader_limit(connection->session.reader, &limits);
}

/* Says why, if the kernel takes it at once: nobody waits for a stranger. */
static void drop_unauthenticated(struct connection *connection, const char *why)
{
    log_limited(LOG_LEVEL_WARNING, 3, "closed a client that has not said the password",
                log_text("client", connection->address), log_text("why", why));
    if (connection->session.out.size == connection->session.sent) {
        struct resp_writer words = {0};

        resp_write_error(&words, why);
        (void)!send(connection->fd, words.bytes, words.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        resp_writer_free(&words);
    }
    connection->server->refused++;
    connection_close(connection);
}

static struct connection *oldest_unauthenticated(struct server *server)
{
    return list_empty(&server->unauthenticated)
               ? NULL
               : LIST_ENTRY(server->unauthenticated.next, struct connection, unauthenticated);
}

static uint64_t unauthenticated_max(const struct server *server)
{
    uint64_t share = server->config->max_clients / UNAUTHENTICATED_SHARE;

    if (share > UNAUTHENTICATED_MAX)
        share = UNAUTHENTICATED_MAX;
    return share > 0 ? share : 1;
}

/* The new one may have the password, and says it with its first packet. Whoever has been here for longest and has not will
 * hardly say it any more. */
bool connections_make_room(struct server *server)
{
    struct connection *oldest = oldest_unauthenticated(server);

    if (oldest && (server->connection_count >= server->config->max_clients ||
                   server->unauthenticated_count >= unauthenticated_max(server)))
        drop_unauthenticated(oldest, "LIMIT there are too many clients that have not said the "
                                     "password");
    return server->connection_count < server->config->max_clients;
}

static void close_unauthenticated(struct server *server, int64_t now)
{
    struct connection *oldest;

    while ((oldest = oldest_unauthenticated(server)) && now - oldest->came_ms > UNAUTHENTICATED_MS)
        drop_unauthenticated(oldest, "NOAUTH the password was not said in time");
}

/* ---- when what is done ------------------------------------------------------------------------- */

void connection_dirty(struct session *session)
{
    struct connection *connection = connection_of(session);

    if (!session->closed && list_empty(&connection->dirty))
        list_append(&connection->server->dirty, &connection->dirty);
}

static void connection_ready(struct connection *connection)
{
    if (!connection->session.closed && list_empty(&connection->ready))
        list_append(&connection->server->ready, &connection->ready);
}

void connection_answered(struct session *session, bool waited)
{
    struct connection *connection = connection_of(session);

    connection_dirty(session);
    if (waited || session->value || !(connection->asked & EPOLLIN))
        connection_ready(connection);
}

/* ---- coming and going -------------------------------------------------------------------------- */

struct connection *connection_new(struct server *server, int fd, const char *address)
{
    struct connection *connection = calloc(1, sizeof *connection);
    struct resp_reader *reader;
    struct resp_limits limits;

    if (!connection)
        return NULL;
    connection->server = server;
    connection->session.authenticated = !server->config->password.set;
    limits = limits_of(connection);
    reader = resp_reader_new(&limits);
    if (!reader) {
        free(connection);
        return NULL;
    }
    resp_reader_share(reader, &server->client_poll.spare);
    session_open(&server->sessions, &connection->session, reader);
    connection->fd = fd;
    connection->id = ++server->next_id;
    connection->came_ms = connection->heard_ms = (int64_t)uv_now(server->loop);
    snprintf(connection->address, sizeof connection->address, "%s", address);
    list_init(&connection->unauthenticated);
    list_init(&connection->dirty);
    list_init(&connection->ready);
    list_init(&connection->busy);
    server->connection_count++;
    if (!connection->session.authenticated) {
        list_append(&server->unauthenticated, &connection->unauthenticated);
        server->unauthenticated_count++;
    }
    connection_ready(connection);
    return connection;
}

void connection_free(struct session *session)
{
    struct connection *connection = connection_of(session);

    session_free(session);
    free(connection->last_words);
    free(connection);
}

static void not_busy(struct connection *connection)
{
    list_remove(&connection->busy);
    connection->server->expected -= connection->at_once;
    connection->at_once = 0;
}

void connection_close(struct connection *connection)
{
    struct server *server = connection->server;

    if (connection->session.closed)
        return;
    session_close(&connection->session);
    not_unauthenticated(connection);
    list_remove(&connection->dirty);
    list_remove(&connection->ready);
    not_busy(connection);
    server->connection_count--;
    client_poll_forget(connection);
}

/* Asks for the events that matter now. */
static void poll_again(struct connection *connection)
{
    uint32_t events = 0;

    if (connection->session.closed)
        return;
    if (session_may_begin(&connection->session) && !connection->session.value &&
        !connection->session.unread && !connection->session.peer_done)
        events |= EPOLLIN | EPOLLRDHUP;
    else if (!connection->hung_up)
        events |= EPOLLRDHUP;
    if (session_unsent(&connection->session) > 0 &&
        list_empty(&connection->dirty)) /* else it will be tried first */
        events |= EPOLLOUT;
    client_poll_want(connection, events);
}

/* So many commands came at once, and may come again: for them it is worth keeping a batch open. */
static void heard(struct connection *connection, uint64_t count)
{
    struct server *server = connection->server;

    connection->heard_ms = (int64_t)uv_now(server->loop);
    if (connection->session.closed)
        return;
    not_busy(connection);
    connection->at_once = (uint32_t)count;
    server->expected += connection->at_once;
    list_append(&server->busy, &connection->busy);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void broken_framing(struct connection *connection, const struct error_text *err)
{
    log_limited(LOG_LEVEL_INFO, 10, "a client does not speak RESP",
                log_text("client", connection->address), log_text("why", err->text));
    if (asprintf(&connection->last_words, "ERR Protocol error: %s", err->text) < 0)
        connection->last_words = NULL;
    session_end(&connection->session);
}

/* What it has read its commands with is for others, unless one of them has yet to begin. */
static void rest(struct connection *connection)
{
    if (!connection->session.value)
        resp_reader_rest(connection->session.reader);
}

static void go_on(struct connection *connection)
{
    struct error_text err;

    if (session_go_on(&connection->session, &err) != HF_OK)
        broken_framing(connection, &err);
    if (connection->session.starved)
        connection_ready(connection);
    rest(connection);
    poll_again(connection);
}

static ssize_t receive(struct connection *connection, char *room, size_t size)
{
    ssize_t count;

    do
        count = recv(connection->fd, room, size, 0);
    while (count < 0 && errno == EINTR);
    return count;
}

/* True: it had no room for more, and there may be more. */
static bool read_some(struct connection *connection)
{
    uint64_t before = connection->session.commands;
    size_t size;
    char *room = resp_reader_room(connection->session.reader, READ_LEAST, &size);
    ssize_t count = room ? receive(connection, room, size) : -1;

    if (!room) {
        connection_close(connection);
    } else if (count > 0) {
        resp_reader_filled(connection->session.reader, (size_t)count);
        go_on(connection);
        heard(connection, connection->session.commands - before);
    } else if (count == 0) {
        connection->session.peer_done = connection->hung_up = true;
        go_on(connection);
    } else if (errno != EAGAIN) {
        connection_close(connection);
    } else {
        rest(connection);
    }
    return count > 0 && (size_t)count == size;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void write_some(struct connection *connection)
{
    struct resp_writer *out = &connection->session.out;

    if (connection->last_words && connection->session.under_way == 0) {
        resp_write_error(out, connection->last_words);
        free(connection->last_words);
        connection->last_words = NULL;
    }
    if (out->failed) {
        connection_close(connection);
        return;
    }
    while (session_unsent(&connection->session) > 0) {
        ssize_t count = send(connection->fd, out->bytes + connection->session.sent,
                             session_unsent(&connection->session), MSG_NOSIGNAL | MSG_DONTWAIT);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0) {
            connection_close(connection);
            return;
        }
        connection->session.sent += (size_t)count;
    }
    if (session_unsent(&connection->session) == 0) {
        connection->session.sent = 0;
        if (out->capacity > OUT_USUAL)
            resp_writer_free(out);
        else
            resp_writer_clear(out);
        if (connection->session.ending && connection->session.under_way == 0) {
            connection_close(connection);
            return;
        }
    } else if (session_unsent(&connection->session) >
               connection->server->config->max_output_bytes) {
        log_limited(LOG_LEVEL_WARNING, 10, "closed a client that does not read its answers",
                    log_text("client", connection->address),
                    log_number("unread_bytes", (int64_t)session_unsent(&connection->session)));
        connection_close(connection);
        return;
    }
    poll_again(connection);
}

void connection_write_all(struct server *server)
{
    while (!list_empty(&server->dirty)) {
        struct connection *connection = LIST_ENTRY(server->dirty.next, struct connection, dirty);
        bool paused =
            session_unsent(&connection->session) >= session_output_pause(&connection->session);

        list_remove(&connection->dirty);
        write_some(connection);
        if (paused && session_may_begin(&connection->session))
            connection_ready(connection);
    }
}

void connections_go_on(struct server *server)
{
    struct list now;

    /* Who is starved comes back to the list, and is served in the next round. */
    list_init(&now);
    while (!list_empty(&server->ready)) {
        struct list *node = server->ready.next;

        list_remove(node);
        list_append(&now, node);
    }
    while (!list_empty(&now)) {
        struct connection *connection = LIST_ENTRY(now.next, struct connection, ready);

        list_remove(&connection->ready);
        go_on(connection);
    }
}

void connection_event(struct connection *connection, uint32_t events)
{
    if (connection->session.closed)
        return;
    if (events & EPOLLERR) {
        connection_close(connection);
        return;
    }
    if (events & EPOLLHUP) /* comes unasked: what was asked for would say it */
        events |= connection->asked;
    if (events & EPOLLOUT)
        connection_dirty(&connection->session);
    if (events & connection->asked & EPOLLIN) { /* else it is told again when it asks */
        bool full = read_some(connection);

        /* Of the end it is told together with what comes before it. */
        if (full || (events & EPOLLRDHUP && !connection->session.peer_done))
            client_poll_again(connection);
    } else if (events & EPOLLRDHUP) {
        connection->hung_up = true;
        /* Nobody is left to hear the answer. */
        if (connection->session.waits)
            connection_close(connection);
        else
            poll_again(connection);
    }
}

uint32_t connections_expected(struct server *server)
{
    int64_t now = (int64_t)uv_now(server->loop);

    while (!list_empty(&server->busy)) {
        struct connection *connection = LIST_ENTRY(server->busy.next, struct connection, busy);

        if (now - connection->heard_ms < LATELY_MS)
            break;
        not_busy(connection);
    }
    return server->expected;
}

void connections_close_idle(struct server *server)
{
    int64_t now = (int64_t)uv_now(server->loop);
    int64_t idle_ms = server->config->idle_timeout_ms;

    close_unauthenticated(server, now);
    if (idle_ms == 0)
        return;
    LIST_EACH_SAFE(node, &server->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, session.node);

        if (now - connection->heard_ms > idle_ms && !connection->session.waits &&
            connection->session.waiting == 0 && connection->session.observing == 0)
            connection_close(connection);
    }
}
