/* connection.c: one client: its bytes in, its bytes out, and when it may go on. */
#include "server/connection.h"
#include "server/client_poll.h"
#include "server/log.h"
#include "server/login.h"
#include "server/server.h"
#include "server/tls.h"
#include "session/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_USUAL 16384u          /* what a connection keeps for its answers; more is given back */
#define TLS_HANDSHAKE_RECORD 0x16 /* how TLS begins */
#define WORDS_MAX 8192u           /* of one command */

/* ---- who has not said the password --------------------------------------------------------------- */

static struct resp_limits limits_of(const struct connection *connection)
{
    size_t most = connection->server->config->max_query_bytes;

    if (!connection->session.user)
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

void connection_authenticated(struct connection *connection, const struct user *user)
{
    struct resp_limits limits;

    connection->session.user = user;
    not_unauthenticated(connection);
    limits = limits_of(connection);
    resp_reader_limit(connection->session.reader, &limits);
}

static bool is_handshaking(const struct connection *connection)
{
    return !list_empty(&connection->handshake);
}

static ssize_t transmit(struct connection *connection, const void *bytes, size_t size)
{
    ssize_t count;

    if (connection->tls)
        return tls_send(connection, bytes, size);
    do
        count = send(connection->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    return count;
}

/* Says why, if the kernel takes it at once: nobody waits for a stranger. */
static void drop_unauthenticated(struct connection *connection, const char *why)
{
    log_limited(LOG_LEVEL_WARNING, 3, "closed a client that has not said the password",
                log_text("client", connection->address), log_text("why", why));
    if (connection->session.out.size == connection->session.sent && !is_handshaking(connection)) {
        struct resp_writer words = {0};

        connection->session.protocol->refuse(&words, why);
        (void)!transmit(connection, words.bytes, words.size);
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

    if (!session_is_closed(session) && list_empty(&connection->dirty))
        list_append(&connection->server->dirty, &connection->dirty);
}

static void connection_ready(struct connection *connection)
{
    if (!session_is_closed(&connection->session) && list_empty(&connection->ready))
        list_append(&connection->server->ready, &connection->ready);
}

void connection_answered(struct session *session, bool waited)
{
    struct connection *connection = connection_of(session);

    connection_dirty(session);
    if (waited || session->input == INPUT_VALUE || !(connection->asked & EPOLLIN))
        connection_ready(connection);
}

/* ---- coming and going -------------------------------------------------------------------------- */

static void init_lists(struct connection *connection)
{
    list_init(&connection->unauthenticated);
    list_init(&connection->handshake);
    list_init(&connection->step);
    list_init(&connection->dirty);
    list_init(&connection->ready);
    list_init(&connection->busy);
}

static void listen_to(struct connection *connection)
{
    if (connection->tls)
        client_poll_want(connection, EPOLLIN | EPOLLRDHUP);
    else
        connection_ready(connection);
}

struct connection *connection_new(struct server *server, int fd, const char *address,
                                  const struct protocol *protocol, bool with_tls)
{
    struct connection *connection = calloc(1, sizeof *connection);
    struct resp_reader *reader;
    struct resp_limits limits;

    if (!connection)
        return NULL;
    connection->server = server;
    connection->fd = fd;
    connection->id = ++server->next_id;
    connection->came_ms = connection->heard_ms = (int64_t)uv_now(server->loop);
    snprintf(connection->address, sizeof connection->address, "%s", address);
    init_lists(connection);
    connection->session.user = server->config->password.set || server->users ? NULL : &user_of_all;
    limits = limits_of(connection);
    reader = resp_reader_new(&limits);
    if (!reader || (with_tls && !tls_begin(connection))) {
        resp_reader_free(reader);
        free(connection);
        return NULL;
    }
    resp_reader_share(reader, &server->client_poll.spare);
    session_open(&server->sessions, &connection->session, protocol, reader);
    server->connection_count++;
    if (!connection->session.user) {
        list_append(&server->unauthenticated, &connection->unauthenticated);
        server->unauthenticated_count++;
    }
    listen_to(connection);
    return connection;
}

void connection_begin(struct connection *connection)
{
    connection->unread = true;
    connection_ready(connection);
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

    if (session_is_closed(&connection->session))
        return;
    session_close(&connection->session);
    tls_left(connection);
    login_left(connection);
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

    if (session_is_closed(&connection->session))
        return;
    if (session_may_begin(&connection->session) && session_wants_more(&connection->session))
        events |= EPOLLIN | EPOLLRDHUP;
    else if (!connection->hung_up)
        events |= EPOLLRDHUP;
    if (session_unsent(&connection->session) > 0 &&
        list_empty(&connection->dirty)) /* else it will be tried first */
        events |= EPOLLOUT;
    if (tls_must_write(connection))
        events |= EPOLLOUT;
    client_poll_want(connection, events);
    if (connection->unread && (events & EPOLLIN))
        connection_ready(connection);
}

/* So many commands came at once, and may come again: for them it is worth keeping a batch open. */
static void heard(struct connection *connection, uint64_t count)
{
    struct server *server = connection->server;

    connection->heard_ms = (int64_t)uv_now(server->loop);
    if (session_is_closed(&connection->session))
        return;
    not_busy(connection);
    connection->at_once = (uint32_t)count;
    server->expected += connection->at_once;
    list_append(&server->busy, &connection->busy);
}

/* ---- reading ----------------------------------------------------------------------------------- */

void connection_end(struct connection *connection, const char *why)
{
    connection->last_words = strdup(why);
    session_end(&connection->session);
}

static void broken_framing(struct connection *connection, const struct error_text *err)
{
    char words[ERROR_TEXT_MAX + sizeof "ERR Protocol error: "];

    log_limited(LOG_LEVEL_INFO, 10, "a client does not speak RESP",
                log_text("client", connection->address), log_text("why", err->text));
    snprintf(words, sizeof words, "ERR Protocol error: %s", err->text);
    connection_end(connection, words);
}

/* It would wait for an answer that never comes: to RESP, this may be the beginning of a line. */
static bool begins_with_tls(const struct connection *connection, const char *bytes)
{
    return !connection->tls && !connection->has_spoken && bytes[0] == TLS_HANDSHAKE_RECORD;
}

static void end_tls_in_the_clear(struct connection *connection)
{
    log_limited(LOG_LEVEL_WARNING, 10, "a client speaks TLS at an address without it",
                log_text("client", connection->address),
                log_text("advice", "listen at tls:HOST:PORT, or let it use holdfast://"));
    connection_end(connection, "ERR this port does not speak TLS: use holdfast://");
    poll_again(connection);
}

/* What it has read its commands with is for others, unless one of them has yet to begin. */
static void rest(struct connection *connection)
{
    if (connection->session.input != INPUT_VALUE)
        resp_reader_rest(connection->session.reader);
}

static void go_on(struct connection *connection)
{
    struct error_text err;
    int result = session_go_on(&connection->session, &err);

    if (result == SESSION_FULL)
        connection_ready(connection);
    else if (result != HF_OK)
        broken_framing(connection, &err);
    rest(connection);
    poll_again(connection);
}

static ssize_t receive(struct connection *connection, char *room, size_t size)
{
    ssize_t count;

    if (connection->tls)
        return tls_receive(connection, room, size);
    do
        count = recv(connection->fd, room, size, 0);
    while (count < 0 && errno == EINTR);
    return count;
}

/* True: it had no room for more, and the socket may have more. */
static bool read_some(struct connection *connection)
{
    uint64_t before = connection->session.commands;
    size_t size;
    char *room = resp_reader_room(connection->session.reader, READ_LEAST, &size);
    ssize_t count = room ? receive(connection, room, size) : -1;

    if (!room) {
        connection_close(connection);
    } else if (count > 0 && begins_with_tls(connection, room)) {
        end_tls_in_the_clear(connection);
        return false;
    } else if (count > 0) {
        connection->has_spoken = true;
        resp_reader_filled(connection->session.reader, (size_t)count);
        go_on(connection);
        heard(connection, connection->session.commands - before);
    } else if (count == 0) {
        session_heard(&connection->session);
        connection->hung_up = true;
        go_on(connection);
    } else if (errno != EAGAIN) {
        connection_close(connection);
    } else {
        rest(connection);
    }
    return count > 0 && (size_t)count == size && !connection->tls;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void write_some(struct connection *connection)
{
    struct resp_writer *out = &connection->session.out;

    if (connection->last_words && connection->session.under_way == 0) {
        connection->session.protocol->refuse(out, connection->last_words);
        free(connection->last_words);
        connection->last_words = NULL;
    }
    if (out->failed) {
        connection_close(connection);
        return;
    }
    while (session_unsent(&connection->session) > 0) {
        ssize_t count = transmit(connection, out->bytes + connection->session.sent,
                                 session_unsent(&connection->session));

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
        if (session_is_done(&connection->session)) {
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

    /* Whom the full batch had no room for comes back to the list, and is served in the next round. */
    list_init(&now);
    while (!list_empty(&server->ready)) {
        struct list *node = server->ready.next;

        list_remove(node);
        list_append(&now, node);
    }
    while (!list_empty(&now)) {
        struct connection *connection = LIST_ENTRY(now.next, struct connection, ready);

        list_remove(&connection->ready);
        if (connection->unread && (connection->asked & EPOLLIN))
            read_some(connection);
        else
            go_on(connection);
    }
}

void connection_event(struct connection *connection, uint32_t events)
{
    if (session_is_closed(&connection->session))
        return;
    if (is_handshaking(connection)) { /* which says why it fails, also of one that is reset */
        tls_step(connection, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
        return;
    }
    if (events & EPOLLERR) {
        connection_close(connection);
        return;
    }
    if (events & EPOLLHUP) /* comes unasked: what was asked for would say it */
        events |= connection->asked;
    if (events & EPOLLOUT && tls_must_write(connection))
        connection_begin(connection);
    if (events & EPOLLOUT)
        connection_dirty(&connection->session);
    if (events & connection->asked & EPOLLIN) { /* else it is told again when it asks */
        bool full = read_some(connection);

        /* Of the end it is told together with what comes before it. */
        if (full || (events & EPOLLRDHUP && connection->session.state == SESSION_OPEN))
            client_poll_again(connection);
    } else if (events & EPOLLRDHUP) {
        connection->hung_up = true;
        /* Nobody is left to hear the answer. */
        if (connection->session.exclusive)
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
    tls_tick(server, now);
    if (idle_ms == 0)
        return;
    LIST_EACH_SAFE(node, &server->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, session.node);

        if (now - connection->heard_ms > idle_ms && !connection->session.exclusive &&
            connection->session.waiting == 0 && connection->session.observing == 0)
            connection_close(connection);
    }
}
