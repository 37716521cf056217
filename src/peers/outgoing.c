/* outgoing.c: the connection to a node.
 *
 *     CLOSED ──dialled, or something to send──▶ RESOLVING ──▶ CONNECTING ──▶ HANDSHAKE ──proved──▶ OPEN
 *        ▲                              │              │             │                 │
 *        └──────── any failure: not again for a while ─┴─────────────┴─────────────────┘
 *
 * A number needs no RESOLVING. A name may have several addresses: one is tried at a time, after a failure the
 * next one, and at once; only when none of them is left, it is said and waited. */
#include "peers/outgoing.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MIN_MS 50
#define AGAIN_MAX_MS 1000
#define LASTS_MS 1000 /* a connection that is as old as this */

/* ---- connections ------------------------------------------------------------------------------ */

static void release(struct connection *connection)
{
    struct peers *peers = connection->peers;

    if (--connection->users > 0)
        return;
    free(connection);
    peers_release(peers);
}

static void on_handle_closed(uv_handle_t *handle)
{
    release(handle->data);
}

static void note(const struct outgoing *outgoing, int level, const char *words, const char *why)
{
    peers_note(outgoing->peers, &(struct note){level, words, outgoing->to, outgoing->address, why});
}

static void complain(struct outgoing *outgoing, const char *why)
{
    if (!outgoing->noted)
        note(outgoing, outgoing->mistrusted ? 2 : 3, "a node cannot be reached", why);
    outgoing->noted = true;
}

static void wait_a_while(struct outgoing *outgoing)
{
    outgoing->again_ms = clock_boot_ms() + outgoing->wait_ms;
    outgoing->wait_ms = outgoing->wait_ms * 2 < AGAIN_MAX_MS ? outgoing->wait_ms * 2 : AGAIN_MAX_MS;
}

void outgoing_drop(struct outgoing *outgoing, const char *why)
{
    struct connection *connection = outgoing->connection;
    bool is_tried = outgoing->state == CONNECTING || outgoing->state == HANDSHAKE;
    bool has_another =
        outgoing->state == CONNECTING && (outgoing->turn + 1) % outgoing->addresses != 0;

    if (!connection)
        return;
    snprintf(outgoing->why, sizeof outgoing->why, "%.*s", (int)sizeof outgoing->why - 1,
             why ? why : "");
    if (why && !has_another)
        complain(outgoing, why);
    if (why && outgoing->state == OPEN)
        peers_ended(outgoing->peers, outgoing->to);
    if (outgoing->state == RESOLVING) /* perhaps too late; on_resolved comes in any case */
        uv_cancel((uv_req_t *)&connection->resolve);
    outgoing->turn += is_tried;
    outgoing->state = CLOSED;
    outgoing->connection = NULL;
    outgoing->unsent = 0;
    if (!has_another)
        wait_a_while(outgoing);
    connection->outgoing = NULL;
    uv_close((uv_handle_t *)&connection->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

/* A resolver that hangs is waited for: it could not be stopped, and another would hang beside it. */
static void on_late(uv_timer_t *timer)
{
    struct connection *connection = timer->data;
    struct outgoing *outgoing = connection->outgoing;

    if (outgoing && outgoing->state == RESOLVING)
        complain(outgoing, "the resolver does not answer in time");
    else if (outgoing)
        outgoing_drop(outgoing, "it does not answer in time");
}

/* ---- handshake --------------------------------------------------------------------------------- */

static void on_handshake_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;

    if (status != 0 && connection->outgoing)
        outgoing_drop(connection->outgoing, uv_strerror(status));
}

static void say(struct connection *connection, const unsigned char *bytes, unsigned size)
{
    uv_buf_t buffer = uv_buf_init((char *)(uintptr_t)bytes, size);

    connection->write.data = connection;
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &buffer, 1,
                 on_handshake_written) != 0)
        outgoing_drop(connection->outgoing, "it cannot be written to");
}

static bool is_wanted(const struct connection *connection)
{
    const struct peers_host *host = &connection->peers->host;
    const struct handshake *handshake = &connection->handshake;
    const struct peers_node node = {handshake->to, handshake->about, handshake->cluster,
                                    connection->outgoing->address};

    return !host->reached || host->reached(host->context, &node);
}

/* What is sent goes to the kernel at once, before the connection is closed: the other side knows who it was, and can say so. */
static void on_elsewhere(struct connection *connection, const unsigned char *proof)
{
    struct outgoing *outgoing = connection->outgoing;

    peers_note_elsewhere(outgoing->peers, outgoing->to, outgoing->address,
                         connection->handshake.cluster);
    say(connection, proof, HANDSHAKE_PROOF);
    if (connection->outgoing)
        outgoing_drop(outgoing, NULL);
    snprintf(outgoing->why, sizeof outgoing->why, "it belongs to another cluster");
}

/* It hears of it by a proof that cannot be: nothing that could be tried against words is given to whom is not trusted. */
static void on_unproven(struct connection *connection, unsigned char *proof)
{
    struct outgoing *outgoing = connection->outgoing;

    memset(proof, 0, HANDSHAKE_PROOF);
    outgoing->noted = outgoing->noted && outgoing->mistrusted;
    outgoing->mistrusted = true;
    say(connection, proof, HANDSHAKE_PROOF);
    if (connection->outgoing)
        outgoing_drop(outgoing, PEERS_UNPROVEN);
}

static void on_reply(struct connection *connection)
{
    struct outgoing *outgoing = connection->outgoing;
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
    if (!is_wanted(connection)) {
        if (connection->outgoing)
            outgoing_drop(outgoing, NULL); /* the host knows why */
        return;
    }
    outgoing->state = OPEN;
    outgoing->why[0] = '\0';
    outgoing->open_ms = clock_boot_ms();
    uv_timer_stop(&connection->timer);
    say(connection, proof, HANDSHAKE_PROOF);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct connection *connection = handle->data;

    (void)suggested; /* the reply, and one byte more, which must not come */
    *ret_buffer = uv_buf_init((char *)connection->reply + connection->got,
                              (unsigned)(sizeof connection->reply - connection->got));
    if (ret_buffer->len == 0)
        *ret_buffer = uv_buf_init((char *)connection->reply, 1);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;
    struct outgoing *outgoing = connection->outgoing;
    const struct peers_host *host = &connection->peers->host;

    (void)buffer;
    if (!outgoing || count == 0)
        return;
    if (count < 0) {
        outgoing_drop(outgoing,
                      outgoing->state == OPEN
                          ? "it has closed the connection, and its log may say why"
                          : "it closed the connection at our handshake: has it another id or "
                            "secret, or is that its port for clients?");
        return;
    }
    if (outgoing->state == OPEN) { /* one byte, if it does not let this node in */
        if (host->turned_away)
            host->turned_away(host->context, outgoing->to, (char)connection->reply[0]);
        if (connection->outgoing)
            outgoing_drop(outgoing, "it does not let this node in");
        return;
    }
    connection->got += (size_t)count;
    if (connection->got == sizeof connection->reply)
        on_reply(connection);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct connection *connection = connect->data;
    struct outgoing *outgoing = connection->outgoing;

    if (!outgoing)
        return;
    if (status != 0) {
        outgoing_drop(outgoing, uv_strerror(status));
        return;
    }
    outgoing->state = HANDSHAKE;
    peers_tune(&connection->tcp);
    handshake_hello(&connection->handshake, &outgoing->peers->own, outgoing->to, connection->words);
    if (uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) != 0)
        outgoing_drop(outgoing, "it cannot be read from");
    else
        say(connection, connection->words, HANDSHAKE_HELLO);
}

/* ---- connecting -------------------------------------------------------------------------------- */

static void connect_at(struct outgoing *outgoing, const struct sockaddr *address)
{
    struct connection *connection = outgoing->connection;
    int failure;

    outgoing->state = CONNECTING;
    uv_timer_start(&connection->timer, on_late, PEERS_HANDSHAKE_MS, 0);
    failure = uv_tcp_connect(&connection->connect, &connection->tcp, address, on_connected);
    if (failure != 0)
        outgoing_drop(outgoing, uv_strerror(failure));
}

static void drop_unresolved(struct outgoing *outgoing, const char *why)
{
    char text[ERROR_TEXT_MAX];

    snprintf(text, sizeof text, "its name cannot be resolved: %s", why);
    outgoing_drop(outgoing, text);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *results)
{
    struct connection *connection = resolve->data;
    struct outgoing *outgoing = connection->outgoing;
    const struct sockaddr *address =
        outgoing && status == 0 ? address_choose(results, outgoing->turn, &outgoing->addresses)
                                : NULL;

    if (outgoing)
        outgoing->state = CLOSED; /* there is nothing to cancel any more */
    if (address)
        connect_at(outgoing, address);
    else if (outgoing)
        drop_unresolved(outgoing, status == 0 ? "it has no address" : uv_strerror(status));
    uv_freeaddrinfo(results);
    release(connection);
}

static void resolve(struct outgoing *outgoing, const struct address *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct connection *connection = outgoing->connection;
    int failure;

    failure = uv_getaddrinfo(outgoing->peers->loop, &connection->resolve, on_resolved,
                             address->host, address->port, &hints);
    if (failure != 0) {
        drop_unresolved(outgoing, uv_strerror(failure));
        return;
    }
    outgoing->state = RESOLVING;
    connection->users++;
    uv_timer_start(&connection->timer, on_late, PEERS_HANDSHAKE_MS, 0);
}

static bool begin(struct outgoing *outgoing)
{
    struct peers *peers = outgoing->peers;
    struct connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        return false;
    connection->outgoing = outgoing;
    connection->peers = peers;
    connection->users = 2;
    peers_hold(peers);
    uv_tcp_init(peers->loop, &connection->tcp);
    uv_timer_init(peers->loop, &connection->timer);
    connection->tcp.data = connection->timer.data = connection;
    connection->connect.data = connection->resolve.data = connection;
    outgoing->connection = connection;
    return true;
}

static void connect_to(struct outgoing *outgoing)
{
    struct address address;

    if (clock_boot_ms() < outgoing->again_ms || !begin(outgoing))
        return;
    if (!address_parse(outgoing->address, &address))
        outgoing_drop(outgoing, outgoing->address[0] ? "that is no address: it is HOST:PORT"
                                                     : "its address is not known here yet");
    else if (address.is_number)
        connect_at(outgoing, (const struct sockaddr *)&address.number);
    else
        resolve(outgoing, &address);
}

/* ---- all of them ------------------------------------------------------------------------------- */

static struct outgoing *find(struct peers *peers, uint64_t to)
{
    LIST_EACH(node, &peers->outgoing)
    {
        struct outgoing *outgoing = LIST_ENTRY(node, struct outgoing, node);

        if (outgoing->to == to)
            return outgoing;
    }
    return NULL;
}

/* A node that has moved is connected to anew. */
static struct outgoing *make(struct peers *peers, uint64_t to, const char *address)
{
    struct outgoing *outgoing = find(peers, to);

    if (outgoing && strcmp(outgoing->address, address) == 0)
        return outgoing;
    if (strlen(address) > PEERS_ADDRESS_MAX)
        return NULL;
    if (outgoing) {
        outgoing_drop(outgoing, NULL);
    } else {
        outgoing = calloc(1, sizeof *outgoing);
        if (!outgoing)
            return NULL;
        outgoing->peers = peers;
        outgoing->to = to;
        list_append(&peers->outgoing, &outgoing->node);
    }
    memcpy(outgoing->address, address, strlen(address) + 1);
    outgoing->again_ms = 0;
    outgoing->wait_ms = AGAIN_MIN_MS;
    outgoing->addresses = 1;
    outgoing->turn = 0;
    outgoing->noted = outgoing->mistrusted = false;
    return outgoing;
}

/* One that does not want this node closes the connection when it knows who it is: only what lasts is a connection. */
static void welcome(struct outgoing *outgoing)
{
    if (clock_boot_ms() - outgoing->open_ms < LASTS_MS)
        return;
    if (outgoing->noted && !outgoing->guarded)
        note(outgoing, 3, "a node is there again", NULL);
    outgoing->noted = outgoing->mistrusted = false;
    outgoing->wait_ms = AGAIN_MIN_MS;
}

void peers_dial(struct peers *peers, uint64_t to, const char *address)
{
    struct outgoing *outgoing = peers->stopped ? NULL : make(peers, to, address);

    if (outgoing && !outgoing->connection)
        connect_to(outgoing);
}

void outgoing_is_there(struct peers *peers, uint64_t id)
{
    struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        outgoing->again_ms = 0;
}

int outgoing_find_open(struct peers *peers, uint64_t to, const char *address, size_t size,
                       struct outgoing **ret_outgoing)
{
    struct outgoing *outgoing = peers->stopped ? NULL : make(peers, to, address);

    if (!outgoing)
        return HF_EUNREACH;
    if (!outgoing->connection)
        connect_to(outgoing);
    if (outgoing->state != OPEN)
        return HF_EUNREACH;
    if (outgoing->noted || outgoing->wait_ms > AGAIN_MIN_MS)
        welcome(outgoing);
    if (size > PEERS_MESSAGE_MAX ||
        (outgoing->unsent > 0 && outgoing->unsent + size > PEERS_UNSENT_MAX))
        return HF_EBUSY;
    *ret_outgoing = outgoing;
    return HF_OK;
}

const char *peers_about(struct peers *peers, uint64_t id)
{
    const struct outgoing *outgoing = find(peers, id);

    return outgoing && outgoing->state == OPEN ? outgoing->connection->handshake.about : NULL;
}

const char *peers_why(struct peers *peers, uint64_t id)
{
    const struct outgoing *outgoing = find(peers, id);

    return outgoing ? outgoing->why : "";
}

void peers_set_guarded(struct peers *peers, uint64_t id, bool guarded)
{
    struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        outgoing->guarded = guarded;
}

static void forget(struct outgoing *outgoing)
{
    outgoing_drop(outgoing, NULL);
    list_remove(&outgoing->node);
    free(outgoing);
}

void peers_forget(struct peers *peers, uint64_t id)
{
    struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        forget(outgoing);
    incoming_close_from(peers, id);
}

void outgoing_handshake_again(struct peers *peers)
{
    LIST_EACH(node, &peers->outgoing)
    {
        struct outgoing *outgoing = LIST_ENTRY(node, struct outgoing, node);

        outgoing_drop(outgoing, NULL);
        outgoing->again_ms = 0;
    }
}

void outgoing_close_all(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->outgoing)
    forget(LIST_ENTRY(node, struct outgoing, node));
}
