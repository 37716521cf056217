/* attempt.c: one attempt to reach a node at one of its addresses.
 *
 *     CLOSED ──begun──▶ RESOLVING ──▶ CONNECTING ──▶ HANDSHAKE ──proved──▶ OPEN
 *        ▲                  │             │              │                  │
 *        └──────────────────┴── any failure: route_drop ─┴──────────────────┘
 *
 * With TLS a HANDSHAKE begins with that one's. Who does not speak it is spoken to in the clear, by another attempt, if he may be.
 *
 * A number needs no RESOLVING, and a name whose numbers are known from before not for long: if the resolver does not answer at once, they are
 * taken. A name may have several numbers: one is tried at a time, after a failure the next one, and at once; the next
 * attempt begins with the one whose turn it is then. */
#include "base/clock.h"
#include "peers/outgoing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKUP_MS 200 /* for the resolver, if there are numbers of before */
#define TURN_MS 1500  /* for a number to be connected to, and to reply, if there is another one */

/* ---- connections ------------------------------------------------------------------------------ */

static void on_handle_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct peers *peers = connection->peers;

    if (--connection->handles > 0)
        return;
    seal_free(connection->seal);
    free(connection);
    peers_release(peers);
}

void attempt_close(struct connection *connection)
{
    connection->route = NULL;
    uv_close((uv_handle_t *)&connection->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

static bool begin(struct route *route)
{
    struct peers *peers = route->outgoing->peers;
    struct connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        return false;
    connection->route = route;
    connection->peers = peers;
    connection->handles = 2;
    peers_hold(peers);
    uv_tcp_init(peers->loop, &connection->tcp);
    uv_timer_init(peers->loop, &connection->timer);
    connection->tcp.data = connection->timer.data = connection;
    connection->connect.data = connection;
    connection->begun_ms = clock_boot_ms();
    route->connection = connection;
    return true;
}

/* ---- handshake -------------------------------------------------------------------------------- */

static void on_handshake_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;

    if (status != 0 && connection->route)
        route_drop(connection->route, uv_strerror(status));
}

static void say(struct connection *connection, const unsigned char *bytes, unsigned size)
{
    uv_buf_t buffer = uv_buf_init((char *)(uintptr_t)bytes, size);

    if (connection->seal) {
        if (!seal_say(connection->seal, bytes, size))
            route_drop(connection->route, "it cannot be written to");
        return;
    }
    connection->write.data = connection;
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &buffer, 1,
                 on_handshake_written) != 0)
        route_drop(connection->route, "it cannot be written to");
}

/* What is sent goes to the kernel at once, before the connection is closed: the other side knows who it was, and can say so. */
static void on_elsewhere(struct connection *connection, const unsigned char *proof)
{
    struct route *route = connection->route;

    peers_note_elsewhere(connection->peers, route->outgoing->to, route->address,
                         connection->handshake.cluster);
    say(connection, proof, HANDSHAKE_PROOF);
    if (connection->route)
        route_drop(route, NULL);
    snprintf(route->why, sizeof route->why, "it belongs to another cluster");
}

/* It hears of it by a proof that cannot be: nothing that could be tried against words is given to whom is not trusted. */
static void on_unproven(struct connection *connection, unsigned char *proof)
{
    struct route *route = connection->route;

    memset(proof, 0, HANDSHAKE_PROOF);
    route_mistrust(route);
    say(connection, proof, HANDSHAKE_PROOF);
    if (connection->route)
        route_drop(route, PEERS_UNPROVEN);
}

/* TLS is tried with everybody: who does not speak it yet is what keeps an operator from asking for it. */
static void note_clear(const struct connection *connection)
{
    struct peers *peers = connection->peers;
    const struct route *route = connection->route;

    if (peers->tls.mode == PEERS_TLS_MAY && !connection->seal &&
        peers_may_repeat(peers->in_clear, route->outgoing->to))
        peers_note(peers, &(struct note){.level = 2,
                                         .words = "a node is spoken to in the clear: it does not "
                                                  "speak TLS with other nodes",
                                         .node = route->outgoing->to,
                                         .peer = route->address});
}

static void on_reply(struct connection *connection)
{
    const struct peers_host *host = &connection->peers->host;
    unsigned char *proof = connection->words + HANDSHAKE_HELLO;
    enum handshake_result result =
        handshake_prove(&connection->handshake, connection->reply, proof);

    if (result == HANDSHAKE_ELSEWHERE) {
        on_elsewhere(connection, proof);
        return;
    }
    if (result != HANDSHAKE_OK) {
        on_unproven(connection, proof);
        return;
    }
    if (!route_open(connection->route))
        return;
    uv_timer_stop(&connection->timer);
    note_clear(connection);
    say(connection, proof, HANDSHAKE_PROOF);
    if (connection->route && host->opened)
        host->opened(host->context, connection->handshake.to);
}

/* The reply, and one byte more, which must not come. */
static uv_buf_t place(struct connection *connection)
{
    size_t left = sizeof connection->reply - connection->got;

    return left > 0 ? uv_buf_init((char *)connection->reply + connection->got, (unsigned)left)
                    : uv_buf_init((char *)connection->reply, 1);
}

/* A node of before TLS, or one without it, hangs up at what it takes for something else. So does one that is just being ended: what lasts is
 * said at once, whatever was said before. */
static void on_no_tls(struct connection *connection)
{
    struct route *route = connection->route;
    bool may = connection->peers->tls.mode == PEERS_TLS_MAY;
    int64_t wait_ms = route->wait_ms;
    unsigned turn = route->numbers.turn, tried = route->numbers.tried;

    if (!may && route->hung_up)
        route_mistrust(route);
    route->hung_up = true;
    route_drop(route, may ? NULL : PEERS_NO_ANSWER);
    if (!may || connection->peers->stopped)
        return;
    route->in_clear = true;
    route->numbers.turn = turn; /* whatever else the name leads to is not meant */
    route->numbers.tried = tried;
    route->wait_ms = wait_ms;
    route->again_ms = 0;
    attempt_begin(route);
}

static const char *end_in_words(const struct connection *connection)
{
    if (connection->route->state == OPEN)
        return "it has closed the connection, and its log may say why";
    if (connection->got == 1 && connection->reply[0] == REFUSES_CLEAR)
        return PEERS_ONLY_TLS;
    if (connection->got == 1 && connection->reply[0] == REFUSES_CERTIFICATE)
        return "it does not accept this node's certificate: it is not for the host of this node's "
               "address";
    return "it closed the connection at our handshake: has it another id or "
           "secret, or is that its port for clients?";
}

static void on_end(struct connection *connection)
{
    const struct seal *seal = connection->seal;
    bool is_told = connection->route->state != OPEN && connection->got == 1;

    if (is_told)
        route_mistrust(connection->route);
    if (seal && !seal->was_answered)
        on_no_tls(connection);
    else
        route_drop(connection->route, end_in_words(connection));
}

static void on_bytes(struct connection *connection, size_t count)
{
    struct route *route = connection->route;
    const struct peers_host *host = &connection->peers->host;

    if (route->state == OPEN) { /* one byte, if it does not let this node in */
        if (host->turned_away)
            host->turned_away(host->context, route->outgoing->to, (char)connection->reply[0]);
        if (connection->route)
            route_drop(route, "it does not let this node in");
        return;
    }
    connection->got += count;
    if (connection->got == sizeof connection->reply)
        on_reply(connection);
}

static void greet(struct connection *connection)
{
    const unsigned char *binding = connection->seal ? connection->seal->binding : NULL;

    handshake_hello(&connection->handshake, &connection->peers->own,
                    connection->route->outgoing->to, binding, connection->words);
    say(connection, connection->words, HANDSHAKE_HELLO);
}

/* ---- TLS -------------------------------------------------------------------------------------- */

static void on_late(uv_timer_t *timer);

/* Like the secret: whoever does not prove himself is said at once. */
static void drop_sealed(struct connection *connection, int failure, const struct error_text *err)
{
    if (failure == HF_EREFUSED)
        route_mistrust(connection->route);
    if (err->text[0])
        route_drop(connection->route, err->text);
    else
        on_end(connection);
}

/* Who has shown a certificate is the node that was meant, as likely as not, however far away it is: until its reply each side has spoken
 * twice. Of whoever only begins to speak TLS nothing is known. */
static void greet_sealed(struct connection *connection)
{
    uv_timer_start(&connection->timer, on_late, PEERS_HANDSHAKE_MS, 0);
    greet(connection);
}

static void shake(struct connection *connection)
{
    struct error_text err = {""};
    int result = seal_shake(connection->seal, &err);

    if (result == HF_OK)
        greet_sealed(connection);
    else if (result == HF_EINVAL)
        on_no_tls(connection);
    else if (result < 0)
        drop_sealed(connection, result, &err);
}

static void unseal(struct connection *connection)
{
    while (connection->route) {
        uv_buf_t to = place(connection);
        struct error_text err = {""};
        ssize_t count = seal_read(connection->seal, to.base, to.len, &err);

        if (count == 0)
            return;
        if (count > 0)
            on_bytes(connection, (size_t)count);
        else
            drop_sealed(connection, (int)count, &err);
    }
}

static void on_sealed(struct connection *connection, const uv_buf_t *buffer, size_t count)
{
    connection->route->hung_up = false;
    seal_feed(connection->seal, buffer->base, count);
    if (!connection->seal->is_open)
        shake(connection);
    if (connection->seal->is_open)
        unseal(connection);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct connection *connection = handle->data;

    (void)suggested;
    *ret_buffer = connection->seal ? uv_buf_init((char *)connection->peers->sealed, SEALED_MAX)
                                   : place(connection);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;

    if (!connection->route || count == 0)
        return;
    if (count < 0)
        on_end(connection);
    else if (connection->seal)
        on_sealed(connection, buffer, (size_t)count);
    else
        on_bytes(connection, (size_t)count);
}

/* False: it is in the clear. */
static bool begins_with_tls(struct route *route)
{
    enum peers_tls_mode mode = route->outgoing->peers->tls.mode;
    bool in_clear = mode == PEERS_IN_CLEAR || (mode == PEERS_TLS_MAY && route->in_clear);

    route->in_clear = false; /* the next attempt is with TLS again */
    return !in_clear;
}

static void begin_tls(struct connection *connection)
{
    struct peer_address address;

    if (peer_address_parse(connection->route->address, &address))
        connection->seal =
            seal_new(connection->peers, (uv_stream_t *)&connection->tcp, address.host);
    if (!connection->seal)
        route_drop(connection->route, "no certificate can be for that, or there is no memory");
    else
        shake(connection);
}

/* Whatever takes the connection, and says nothing, may keep nobody from the next number either. */
static void wait_for_it(struct route *route)
{
    uv_timer_start(&route->connection->timer, on_late,
                   route->numbers.count > 1 ? TURN_MS : PEERS_HANDSHAKE_MS, 0);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct connection *connection = connect->data;
    struct route *route = connection->route;

    if (!route)
        return;
    if (status != 0) {
        route_drop(route, uv_strerror(status));
        return;
    }
    route->state = HANDSHAKE;
    wait_for_it(route);
    peers_tune(&connection->tcp);
    if (uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) != 0)
        route_drop(route, "it cannot be read from");
    else if (begins_with_tls(route))
        begin_tls(connection);
    else
        greet(connection);
}

/* ---- connecting ------------------------------------------------------------------------------- */

static void connect_now(struct route *route)
{
    struct connection *connection = route->connection;
    int failure;

    route->state = CONNECTING;
    connection->number = *(const struct sockaddr_storage *)numbers_current(&route->numbers);
    wait_for_it(route);
    failure = uv_tcp_connect(&connection->connect, &connection->tcp,
                             (const struct sockaddr *)&connection->number, on_connected);
    if (failure != 0)
        route_drop(route, uv_strerror(failure));
}

/* A resolver that hangs is waited for: it could not be stopped, and another would hang beside it. */
static void on_late(uv_timer_t *timer)
{
    struct connection *connection = timer->data;
    struct route *route = connection->route;

    if (!route)
        return;
    if (route->state != RESOLVING)
        route_drop(route, "it does not answer in time");
    else if (route->numbers.count > 0)
        connect_now(route);
    else
        route_complain(route, "the resolver does not answer in time");
}

static void drop_unresolved(struct route *route, const char *why)
{
    char text[ERROR_TEXT_MAX];

    snprintf(text, sizeof text, "its name cannot be resolved: %.*s", WHY_MAX, why);
    route_drop(route, text);
}

/* It has moved: nobody waits for the place where it was. */
static void connect_elsewhere(struct route *route)
{
    attempt_close(route->connection);
    route->connection = NULL;
    route->state = CLOSED;
    if (begin(route))
        connect_now(route);
}

void attempt_resolved(struct route *route, const char *failure)
{
    if (route->state == RESOLVING && route->numbers.count > 0)
        connect_now(route);
    else if (route->state == RESOLVING)
        drop_unresolved(route, failure ? failure : "it has no address");
    else if (route->state == CONNECTING &&
             memcmp(&route->connection->number, numbers_current(&route->numbers),
                    sizeof route->connection->number) != 0)
        connect_elsewhere(route);
}

static void resolve(struct route *route, const struct peer_address *address)
{
    bool hangs = route->search != NULL; /* since an attempt of before */

    route->state = RESOLVING;
    if (!hangs && !names_search(route, address)) {
        attempt_resolved(route, "there is no memory, or no thread, for that");
        return;
    }
    if (hangs && route->numbers.count > 0)
        connect_now(route);
    else
        uv_timer_start(&route->connection->timer, on_late,
                       route->numbers.count > 0 ? LOOKUP_MS : PEERS_HANDSHAKE_MS, 0);
}

void attempt_begin(struct route *route)
{
    struct peer_address address;

    if (clock_boot_ms() < route->again_ms || !begin(route))
        return;
    if (!peer_address_parse(route->address, &address)) {
        route_drop(route, route->address[0] ? "that is no address: it is HOST:PORT"
                                            : "its address is not known here yet");
    } else if (address.is_number) {
        route->numbers = (struct numbers){.at[0] = address.number, .count = 1};
        connect_now(route);
    } else {
        resolve(route, &address);
    }
}
