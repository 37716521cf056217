/* outgoing.c: the connection to a node.
 *
 *     CLOSED ──something to send──▶ CONNECTING ──▶ GREETING ──proved──▶ OPEN
 *        ▲                              │              │                 │
 *        └───────── any failure: not again for a while ┴─────────────────┘ */
#include "base/clock.h"
#include "base/crc32c.h"
#include "peers/inside.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MIN_MS 50
#define AGAIN_MAX_MS 1000

enum state { CLOSED, CONNECTING, GREETING, OPEN };

struct outgoing {
    struct list node;
    struct peers *peers;
    uint64_t to;
    char address[ADDRESS_MAX + 1];
    enum state state;
    struct connection *connection; /* NULL: CLOSED */
    int64_t again_ms;              /* not before this */
    int64_t wait_ms;
    bool noted; /* that it cannot be reached */
    size_t unsent;
};

/* One attempt. It lives until its handles are closed, the node may have another by then. */
struct connection {
    struct outgoing *outgoing; /* NULL: it is being closed */
    struct peers *peers;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write; /* of the greeting */
    struct greeting greeting;
    unsigned char words[GREETING_HELLO + GREETING_PROOF];
    unsigned char reply[GREETING_REPLY];
    size_t got;
    unsigned handles;
};

struct sending {
    uv_write_t write; /* first */
    struct connection *connection;
    size_t size;
    unsigned char header[FRAME_HEADER];
    peers_sent_fn *done;
    void *context;
    uv_buf_t buffers[];
};

/* ---- connections ------------------------------------------------------------------------------ */

static void on_handle_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct peers *peers = connection->peers;

    if (--connection->handles > 0)
        return;
    free(connection);
    peers_release(peers);
}

static void drop(struct outgoing *outgoing, const char *why)
{
    struct connection *connection = outgoing->connection;

    if (!connection)
        return;
    if (why && !outgoing->noted)
        peers_note(outgoing->peers, 3, "node %llu at %s cannot be reached: %s",
                   (unsigned long long)outgoing->to, outgoing->address, why);
    outgoing->noted = outgoing->noted || why;
    outgoing->state = CLOSED;
    outgoing->connection = NULL;
    outgoing->unsent = 0;
    outgoing->again_ms = clock_boot_ms() + outgoing->wait_ms;
    outgoing->wait_ms = outgoing->wait_ms * 2 < AGAIN_MAX_MS ? outgoing->wait_ms * 2 : AGAIN_MAX_MS;
    connection->outgoing = NULL;
    uv_close((uv_handle_t *)&connection->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

static void on_late(uv_timer_t *timer)
{
    struct connection *connection = timer->data;

    if (connection->outgoing)
        drop(connection->outgoing, "it does not answer in time");
}

/* ---- greeting --------------------------------------------------------------------------------- */

static void on_greeting_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;

    if (status != 0 && connection->outgoing)
        drop(connection->outgoing, uv_strerror(status));
}

static void say(struct connection *connection, const unsigned char *bytes, unsigned size)
{
    uv_buf_t buffer = uv_buf_init((char *)(uintptr_t)bytes, size);

    connection->write.data = connection;
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &buffer, 1,
                 on_greeting_written) != 0)
        drop(connection->outgoing, "it cannot be written to");
}

static void on_reply(struct connection *connection)
{
    struct outgoing *outgoing = connection->outgoing;
    unsigned char *proof = connection->words + GREETING_HELLO;

    if (greeting_prove(&connection->greeting, connection->reply, proof) != GREETING_OK) {
        drop(outgoing, "it does not know the cluster's secret");
        return;
    }
    outgoing->state = OPEN;
    outgoing->wait_ms = AGAIN_MIN_MS;
    if (outgoing->noted)
        peers_note(outgoing->peers, 3, "node %llu at %s is there again",
                   (unsigned long long)outgoing->to, outgoing->address);
    outgoing->noted = false;
    uv_timer_stop(&connection->timer);
    say(connection, proof, GREETING_PROOF);
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

    (void)buffer;
    if (!outgoing || count == 0)
        return;
    if (count < 0) {
        drop(outgoing, outgoing->state == OPEN ? "it has closed the connection"
                                               : "it does not want this node");
        return;
    }
    if (outgoing->state == OPEN) {
        drop(outgoing, "it says what it should not");
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
        drop(outgoing, uv_strerror(status));
        return;
    }
    outgoing->state = GREETING;
    peers_tune(&connection->tcp);
    greeting_hello(&connection->greeting, outgoing->peers->secret, outgoing->peers->secret_size,
                   outgoing->peers->id, outgoing->peers->address, outgoing->to, connection->words);
    if (uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) != 0)
        drop(outgoing, "it cannot be read from");
    else
        say(connection, connection->words, GREETING_HELLO);
}

static void connect_to(struct outgoing *outgoing)
{
    struct peers *peers = outgoing->peers;
    struct sockaddr_storage address;
    struct connection *connection;
    struct error_text err;
    int failure;

    if (clock_boot_ms() < outgoing->again_ms ||
        peers_resolve(outgoing->address, &address, &err) != HF_OK)
        return;
    connection = calloc(1, sizeof *connection);
    if (!connection)
        return;
    connection->outgoing = outgoing;
    connection->peers = peers;
    connection->handles = 2;
    peers_hold(peers);
    uv_tcp_init(peers->loop, &connection->tcp);
    uv_timer_init(peers->loop, &connection->timer);
    connection->tcp.data = connection->timer.data = connection->connect.data = connection;
    outgoing->connection = connection;
    outgoing->state = CONNECTING;
    uv_timer_start(&connection->timer, on_late, PEERS_GREETING_MS, 0);
    failure = uv_tcp_connect(&connection->connect, &connection->tcp,
                             (const struct sockaddr *)&address, on_connected);
    if (failure != 0)
        drop(outgoing, uv_strerror(failure));
}

/* ---- sending ---------------------------------------------------------------------------------- */

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
    if (strlen(address) > ADDRESS_MAX)
        return NULL;
    if (outgoing) {
        drop(outgoing, NULL);
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
    outgoing->noted = false;
    return outgoing;
}

static void on_sent(uv_write_t *write, int status)
{
    struct sending *sending = (struct sending *)(void *)write;
    struct connection *connection = sending->connection;

    if (connection->outgoing) {
        connection->outgoing->unsent -= sending->size;
        if (status != 0)
            drop(connection->outgoing, uv_strerror(status));
    }
    sending->done(sending->context, status == 0 ? HF_OK : HF_EUNREACH);
    free(sending);
}

static struct sending *prepare(struct outgoing *outgoing, const struct iovec *pieces,
                               unsigned count, size_t size)
{
    struct sending *sending = malloc(sizeof *sending + (count + 1) * sizeof *sending->buffers);
    uint32_t sum = 0, number;

    if (!sending)
        return NULL;
    sending->connection = outgoing->connection;
    sending->size = size;
    sending->buffers[0] = uv_buf_init((char *)sending->header, FRAME_HEADER);
    for (unsigned i = 0; i < count; i++) {
        sum = crc32c(sum, pieces[i].iov_base, pieces[i].iov_len);
        sending->buffers[i + 1] = (uv_buf_t){.base = pieces[i].iov_base, .len = pieces[i].iov_len};
    }
    number = htole32((uint32_t)size);
    memcpy(sending->header, &number, sizeof number);
    number = htole32(sum);
    memcpy(sending->header + 4, &number, sizeof number);
    return sending;
}

int peers_send(struct peers *peers, uint64_t to, const char *address, const struct iovec *pieces,
               unsigned count, peers_sent_fn *done, void *context)
{
    struct outgoing *outgoing = peers->closing ? NULL : make(peers, to, address);
    struct sending *sending;
    size_t size = 0;

    if (!outgoing)
        return HF_EUNREACH;
    if (outgoing->state == CLOSED)
        connect_to(outgoing);
    if (outgoing->state != OPEN)
        return HF_EUNREACH;
    for (unsigned i = 0; i < count; i++)
        size += pieces[i].iov_len;
    if (size > PEERS_MESSAGE_MAX ||
        (outgoing->unsent > 0 && outgoing->unsent + size > PEERS_UNSENT_MAX))
        return HF_EBUSY;
    sending = prepare(outgoing, pieces, count, size);
    if (!sending)
        return HF_EBUSY;
    sending->done = done;
    sending->context = context;
    if (uv_write(&sending->write, (uv_stream_t *)&outgoing->connection->tcp, sending->buffers,
                 count + 1, on_sent) != 0) {
        free(sending);
        return HF_EUNREACH;
    }
    outgoing->unsent += size;
    return HF_OK;
}

static void forget(struct outgoing *outgoing)
{
    drop(outgoing, NULL);
    list_remove(&outgoing->node);
    free(outgoing);
}

void peers_forget(struct peers *peers, uint64_t id)
{
    struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        forget(outgoing);
}

void outgoing_close_all(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->outgoing)
    forget(LIST_ENTRY(node, struct outgoing, node));
}
