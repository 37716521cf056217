/* tls.c: see tls.h.
 *
 *     accepted ──▶ HANDSHAKE ──▶ the connection speaks, like any other
 *                      │
 *                      └──(not TLS, no good certificate, too late, gone)──▶ closed, with a line in the log
 *
 * A handshake costs the CPU as much as a hundred commands. So however many come at once, in each round of the loop they have TLS_ROUND_US, and
 * those who are connected have the rest; and no more are accepted than TLS_HANDSHAKES_MAX at a time: the others wait in the kernel's queue. */
#include "server/tls.h"
#include "base/clock.h"
#include "server/client_poll.h"
#include "server/log.h"
#include "server/login.h"
#include "server/server.h"
#include "server/tls_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define DAY_MS INT64_C(86400000)
#define DAY_S INT64_C(86400)
#define DATE_MAX 32
/* To whoever does not speak TLS: RESP, since it is likely a client of ours. */
#define PLAIN_WORDS \
    "-ERR this port speaks TLS: use holdfasts:// for holdfast, or --tls for redis-cli\r\n"

/* ---- dates ----------------------------------------------------------------------------------------- */

static void date_text(int64_t seconds, char ret_text[DATE_MAX])
{
    time_t at = (time_t)seconds;
    struct tm tm;

    if (!gmtime_r(&at, &tm) || strftime(ret_text, DATE_MAX, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        ret_text[0] = '\0';
}

static int64_t days_left(int64_t ends)
{
    return (ends - (int64_t)time(NULL)) / DAY_S;
}

static void warn_of(const char *setting, const char *path, int64_t ends)
{
    int64_t left = ends - (int64_t)time(NULL);
    char date[DATE_MAX];

    date_text(ends, date);
    if (left <= 0)
        log_warning("it has expired, and is good for nothing: renew it, then reload with SIGHUP",
                    log_text("setting", setting), log_text("file", path), log_text("ended", date));
    else if (left < TLS_WARN_DAYS * DAY_S)
        log_warning("it expires soon: renew it, then reload with SIGHUP",
                    log_text("setting", setting), log_text("file", path), log_text("ends", date),
                    log_number("days_left", days_left(ends)));
}

struct dated { /* a certificate, and the lists beside it */
    const struct tls_context *context;
    const char *cert_setting, *cert, *crl_setting, *crl;
};

static void look_at(const struct dated *dated)
{
    struct tls_server_dates dates;

    tls_provider()->dates(dated->context, &dates);
    warn_of(dated->cert_setting, dated->cert, dates.ends);
    if (dates.crl_ends > 0)
        warn_of(dated->crl_setting, dated->crl, dates.crl_ends);
    if (dates.begins > (int64_t)time(NULL))
        log_warning("the certificate is not valid yet: is this machine's clock right?",
                    log_text("file", dated->cert));
}

static void look_at_dates(const struct server *server)
{
    const struct config *config = server->config;
    bool own_crl = config->peer_tls_ca[0] || config->peer_tls_crl[0];
    struct dated peers = {.context = server->tls.peers,
                          .crl_setting = own_crl ? "peer-tls-crl" : "tls-crl",
                          .crl = own_crl ? config->peer_tls_crl : config->tls_crl};

    if (server->tls.context)
        look_at(&(struct dated){server->tls.context, "tls-cert", config->tls_cert, "tls-crl",
                                config->tls_crl});
    peers.cert = tls_config_peer_cert(config, &peers.cert_setting);
    if (peers.context)
        look_at(&peers);
}

/* ---- the whole server -------------------------------------------------------------------------------- */

void tls_open(struct server *server)
{
    struct error_text err = {""};

    list_init(&server->tls.silent);
    list_init(&server->tls.handshakes);
    list_init(&server->tls.steps);
    server->tls.context = server->config->tls;
    server->tls.peers = server->config->peer_context;
    server->tls.told_ms = -1;
    if (server->tls.peers && tls_config_check_own(server->config, server->tls.peers, &err) != HF_OK)
        log_warning("other nodes will refuse this one", log_text("why", err.text));
}

void tls_close(struct server *server)
{
    tls_config_free(server->tls.context);
    tls_config_free(server->tls.peers);
    server->tls.context = server->tls.peers = NULL;
}

/* False: it cannot be used. */
static bool replace(struct tls_context **context, int result, struct tls_context *now,
                    const char *setting, const struct error_text *err)
{
    if (result != HF_OK) {
        log_warning("a file could not be read again: what was valid before stays valid",
                    log_text("setting", setting), log_text("why", err->text));
        return false;
    }
    tls_config_free(*context);
    *context = now;
    return true;
}

static void say_read_again(struct server *server, const struct tls_context *now, const char *words,
                           const char *file)
{
    struct tls_server_dates dates;
    char date[DATE_MAX];

    server->tls.told_ms = -1;
    tls_provider()->dates(now, &dates);
    date_text(dates.ends, date);
    log_info(words, log_text("file", file), log_text("ends", date));
}

static void reload_for_clients(struct server *server, const struct config *config)
{
    struct tls_context *now = NULL;
    struct error_text err = {""};
    int result = tls_config_read(config, &now, &err);

    if (replace(&server->tls.context, result, now, "tls-cert", &err))
        say_read_again(server, now,
                       "the certificate was read again: who connects from now on sees it",
                       config->tls_cert);
}

/* A connection has what it was made with; the node must know the new one before the old one goes. One that other nodes would refuse is not taken
 * up: nobody would notice, until connections are made anew. */
static void reload_for_peers(struct server *server, const struct config *config)
{
    struct tls_context *now = NULL;
    struct error_text err = {""};
    const char *setting, *file = tls_config_peer_cert(config, &setting);
    int result = tls_config_read_peers(config, &now, &err);

    if (result == HF_OK) {
        result = tls_config_check_own(config, now, &err);
        if (result != HF_OK)
            tls_config_free(now);
    }
    if (result == HF_OK)
        node_set_tls(server->node, now);
    if (replace(&server->tls.peers, result, now, "peer-tls", &err))
        say_read_again(server, now,
                       "the certificate for other nodes was read again: connections from now on "
                       "are made with it",
                       file);
}

void tls_reload(struct server *server, const struct config *config)
{
    if (server->tls.context)
        reload_for_clients(server, config);
    if (server->tls.peers)
        reload_for_peers(server, config);
}

static uint64_t ends_of(const struct tls_context *context)
{
    struct tls_server_dates dates = {.ends = 0};

    if (context)
        tls_provider()->dates(context, &dates);
    return dates.ends > 0 ? (uint64_t)dates.ends : 0;
}

void tls_ends(const struct tls_state *tls, uint64_t *ret_for_clients, uint64_t *ret_for_peers)
{
    *ret_for_clients = ends_of(tls->context);
    *ret_for_peers = ends_of(tls->peers);
}

static void say_clients(const struct tls_state *tls, char *ret_text, size_t size)
{
    struct tls_server_dates dates;
    char ends[DATE_MAX], crl_ends[DATE_MAX];
    int used;

    if (!tls->context) {
        snprintf(ret_text, size, "tls:0\r\n");
        return;
    }
    tls_provider()->dates(tls->context, &dates);
    date_text(dates.ends, ends);
    used = snprintf(ret_text, size,
                    "tls:1\r\ntls_connections:%u\r\ntls_handshakes_in_progress:%u\r\n"
                    "tls_handshakes_done:%" PRIu64 "\r\ntls_handshakes_failed:%" PRIu64 "\r\n"
                    "tls_certificate_expires:%s\r\ntls_certificate_days_left:%" PRId64 "\r\n",
                    tls->connection_count, tls->handshake_count, tls->done, tls->failed, ends,
                    days_left(dates.ends));
    if (dates.crl_ends == 0 || used < 0 || (size_t)used >= size)
        return;
    date_text(dates.crl_ends, crl_ends);
    snprintf(ret_text + used, size - (size_t)used,
             "tls_crl_expires:%s\r\ntls_crl_days_left:%" PRId64 "\r\n", crl_ends,
             days_left(dates.crl_ends));
}

static void say_peers(const struct server *server, char *ret_text, size_t size)
{
    struct tls_server_dates dates;
    char ends[DATE_MAX];

    tls_provider()->dates(server->tls.peers, &dates);
    date_text(dates.ends, ends);
    snprintf(ret_text, size,
             "peer_tls:%s\r\npeer_tls_certificate_expires:%s\r\n"
             "peer_tls_certificate_days_left:%" PRId64 "\r\n",
             server->config->peer_tls == CONFIG_PEER_TLS_MUST ? "yes" : "optional", ends,
             days_left(dates.ends));
}

void tls_info(const struct server *server, char *ret_text, size_t size)
{
    size_t used;

    say_clients(&server->tls, ret_text, size);
    used = strlen(ret_text);
    if (server->tls.peers)
        say_peers(server, ret_text + used, size - used);
}

/* ---- handshakes --------------------------------------------------------------------------------------- */

static struct connection *first_of(const struct list *list)
{
    return list_empty(list) ? NULL : LIST_ENTRY(list->next, struct connection, handshake);
}

static void failed(struct connection *connection, const char *why)
{
    log_limited(LOG_LEVEL_WARNING, 10, "a client's TLS handshake failed",
                log_text("client", connection->address), log_text("why", why));
    connection->server->tls.failed++;
    connection_close(connection);
}

static void not_handshaking(struct connection *connection)
{
    if (list_empty(&connection->handshake))
        return;
    list_remove(&connection->handshake);
    list_remove(&connection->step);
    connection->server->tls.handshake_count--;
}

bool tls_begin(struct connection *connection)
{
    struct tls_state *tls = &connection->server->tls;

    connection->tls = tls_provider()->client_new(tls->context, connection->fd);
    if (!connection->tls)
        return false;
    list_append(&tls->silent, &connection->handshake);
    tls->handshake_count++;
    tls->connection_count++;
    return true;
}

void tls_left(struct connection *connection)
{
    if (!connection->tls)
        return;
    tls_provider()->end(connection->tls);
    tls_provider()->client_free(connection->tls);
    connection->tls = NULL;
    not_handshaking(connection);
    connection->server->tls.connection_count--;
}

bool tls_is_full(const struct server *server)
{
    uint64_t most = server->config->max_clients / TLS_HANDSHAKES_SHARE;

    if (most > TLS_HANDSHAKES_MAX)
        most = TLS_HANDSHAKES_MAX;
    return server->tls.handshake_count > 0 && server->tls.handshake_count >= most;
}

static void has_spoken(struct connection *connection)
{
    if (connection->has_spoken)
        return;
    connection->has_spoken = true;
    list_remove(&connection->handshake);
    list_append(&connection->server->tls.handshakes, &connection->handshake);
}

/* What it has sent may not have been looked at yet. */
static bool is_silent(const struct connection *connection)
{
    char byte;

    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

/* A client begins with its hello. Whoever has connected and said nothing costs a stranger nothing, so that he has no claim to a place: else a crowd
 * of such strangers, who come again, would keep all clients out. */
bool tls_make_room(struct server *server)
{
    struct connection *first;

    while ((first = first_of(&server->tls.silent))) {
        if (is_silent(first)) {
            failed(first, "it has said nothing, and others wait for their turn");
            return true;
        }
        has_spoken(first);
    }
    first = first_of(&server->tls.handshakes);
    if (first && (int64_t)uv_now(server->loop) - first->came_ms < TLS_HANDSHAKE_FAIR_MS)
        return false;
    if (first)
        failed(first, "it takes long, and others wait for their turn");
    return true;
}

void tls_step(struct connection *connection, bool hung_up)
{
    connection->hung_up |= hung_up;
    has_spoken(connection);
    if (list_empty(&connection->step))
        list_append(&connection->server->tls.steps, &connection->step);
}

/* One that says who it is lets its client be that user, if it names no other. */
struct bearer {
    struct users *users;
    struct account *account;
    bool is_ambiguous;
};

static void on_name(void *context, enum tls_name kind, const char *name)
{
    struct bearer *bearer = context;
    struct account *account = users_find_certificate(bearer->users, kind == TLS_NAME_DNS, name);

    if (account && bearer->account && bearer->account != account)
        bearer->is_ambiguous = true;
    if (account)
        bearer->account = account;
}

struct account *tls_account(const struct connection *connection, struct users *users)
{
    struct bearer bearer = {.users = users};

    if (!users || !connection->tls)
        return NULL;
    tls_provider()->names(connection->tls, on_name, &bearer);
    if (!bearer.is_ambiguous)
        return bearer.account;
    log_limited(LOG_LEVEL_WARNING, 10,
                "a certificate has the names of several users, and is none of them",
                log_text("client", connection->address));
    return NULL;
}

static void identify(struct connection *connection)
{
    struct account *account = tls_account(connection, connection->server->users);

    if (account)
        login_by_certificate(connection, account);
}

static void done(struct connection *connection)
{
    connection->server->tls.done++;
    not_handshaking(connection);
    connection->hung_up = false; /* it is told again */
    identify(connection);
    connection_begin(connection);
    client_poll_again(connection);
}

static void step(struct connection *connection)
{
    struct error_text err = {""};
    int result = tls_provider()->handshake(connection->tls, &err);

    if (result == HF_OK) {
        done(connection);
    } else if (result == TLS_AGAIN && !connection->hung_up) {
        client_poll_want(connection, EPOLLIN | EPOLLRDHUP |
                                         (tls_must_write(connection) ? (uint32_t)EPOLLOUT : 0));
    } else if (result == TLS_AGAIN) {
        failed(connection, "it closed the connection");
    } else {
        if (result == HF_EINVAL)
            (void)!send(connection->fd, PLAIN_WORDS, sizeof PLAIN_WORDS - 1,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
        failed(connection, err.text);
    }
}

bool tls_go_on(struct server *server)
{
    uint64_t until = uv_hrtime() + TLS_ROUND_US * UINT64_C(1000);

    while (!list_empty(&server->tls.steps) && uv_hrtime() < until) {
        struct connection *connection = LIST_ENTRY(server->tls.steps.next, struct connection, step);

        list_remove(&connection->step);
        step(connection);
    }
    return list_empty(&server->tls.steps);
}

static void close_slow(const struct list *list, int64_t now_ms)
{
    LIST_EACH_SAFE(node, list)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, handshake);

        if (now_ms - connection->came_ms > TLS_HANDSHAKE_MS)
            failed(connection, "it took too long");
    }
}

void tls_tick(struct server *server, int64_t now_ms)
{
    close_slow(&server->tls.silent, now_ms);
    close_slow(&server->tls.handshakes, now_ms);
    if ((!server->tls.context && !server->tls.peers) ||
        (server->tls.told_ms >= 0 && now_ms - server->tls.told_ms < DAY_MS))
        return;
    server->tls.told_ms = now_ms;
    look_at_dates(server);
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

bool tls_must_write(const struct connection *connection)
{
    return connection->tls && tls_provider()->must_write(connection->tls);
}

static ssize_t note_failure(const struct connection *connection, ssize_t count,
                            const struct error_text *err)
{
    int failure = errno;

    if (count < 0 && failure == EPROTO)
        log_limited(LOG_LEVEL_WARNING, 10, "closed a client whose TLS is broken",
                    log_text("client", connection->address), log_text("why", err->text));
    errno = failure;
    return count;
}

ssize_t tls_receive(struct connection *connection, void *bytes, size_t size)
{
    struct error_text err = {""};
    ssize_t count = tls_provider()->read(connection->tls, bytes, size, &err);

    connection->unread = count > 0 && tls_provider()->has_more(connection->tls);
    return note_failure(connection, count, &err);
}

ssize_t tls_send(struct connection *connection, const void *bytes, size_t size)
{
    struct error_text err = {""};

    return note_failure(connection, tls_provider()->write(connection->tls, bytes, size, &err),
                        &err);
}
