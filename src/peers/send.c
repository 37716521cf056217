/* send.c: messages to a node whose connection is open.
 *
 * What the kernel takes at once is over when the call returns, which is nearly all of it; libuv has a copy of the rest. */
#include "base/crc32c.h"
#include "peers/outgoing.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* What the kernel has not taken of a message. */
struct rest {
    uv_write_t write; /* first */
    struct connection *connection;
    size_t size; /* of the message */
    char bytes[];
};

static void on_sent(uv_write_t *write, int status)
{
    struct rest *rest = (struct rest *)(void *)write;
    struct connection *connection = rest->connection;

    if (connection->route) {
        connection->route->outgoing->unsent -= rest->size;
        if (status != 0)
            route_drop(connection->route, uv_strerror(status));
    }
    free(rest);
}

static size_t size_of(const struct iovec *pieces, unsigned count)
{
    size_t size = 0;

    for (unsigned i = 0; i < count; i++)
        size += pieces[i].iov_len;
    return size;
}

static void write_header(const struct iovec *pieces, unsigned count, size_t size,
                         unsigned char ret_header[FRAME_HEADER])
{
    uint32_t sum = 0, number = htole32((uint32_t)size);

    for (unsigned i = 0; i < count; i++)
        sum = crc32c(sum, pieces[i].iov_base, pieces[i].iov_len);
    memcpy(ret_header, &number, sizeof number);
    number = htole32(sum);
    memcpy(ret_header + 4, &number, sizeof number);
}

/* What the kernel takes without waiting: all of it, mostly. libuv's own way costs one more system call each time. */
static size_t try_at_once(const struct outgoing *outgoing, const uv_buf_t *buffers, unsigned count)
{
    uv_stream_t *stream = (uv_stream_t *)&outgoing->open->connection->tcp;
    int taken = outgoing->unsent > 0 ? 0 : uv_try_write(stream, buffers, count);

    return taken > 0 ? (size_t)taken : 0;
}

/* NULL: there is no memory for it. */
static struct rest *copy_rest(const uv_buf_t *buffers, unsigned count, size_t taken, size_t left)
{
    struct rest *rest = malloc(sizeof *rest + left);
    size_t at = 0;

    for (unsigned i = 0; rest && i < count; i++) {
        size_t skipped = taken < buffers[i].len ? taken : buffers[i].len;

        memcpy(rest->bytes + at, buffers[i].base + skipped, buffers[i].len - skipped);
        at += buffers[i].len - skipped;
        taken -= skipped;
    }
    return rest;
}

/* What the kernel does not take is copied. counted: what of it counts as unsent until then. On failure the connection has been given up:
 * perhaps a part of a message was sent. */
static int hand_over(struct outgoing *outgoing, const uv_buf_t *buffers, unsigned count,
                     size_t size, size_t counted)
{
    struct connection *connection = outgoing->open->connection;
    size_t taken = try_at_once(outgoing, buffers, count);
    uv_buf_t left = {.len = size - taken};
    struct rest *rest;

    if (left.len == 0)
        return HF_OK;
    rest = copy_rest(buffers, count, taken, left.len);
    if (!rest) {
        route_drop(outgoing->open, "there is no memory for what is to be sent");
        return HF_EBUSY;
    }
    rest->connection = connection;
    rest->size = counted;
    left.base = rest->bytes;
    if (uv_write(&rest->write, (uv_stream_t *)&connection->tcp, &left, 1, on_sent) != 0) {
        route_drop(outgoing->open, "it cannot be written to");
        free(rest);
        return HF_EUNREACH;
    }
    outgoing->unsent += counted;
    return HF_OK;
}

/* ---- with TLS ----------------------------------------------------------------------------------- */

struct sealing { /* records are made as large as can be, out of pieces as small as may be */
    struct outgoing *outgoing;
    const struct seal *seal;
    size_t used;
    unsigned char record[TLS_PEER_RECORD];
};

static size_t sealed_size(size_t size)
{
    return size + (size / TLS_PEER_RECORD + 1) * TLS_PEER_RECORD_EXTRA;
}

static int pass_on(const struct sealing *sealing)
{
    const struct seal *seal = sealing->seal;
    const void *bytes;
    size_t size = seal->tls->output(seal->peer, &bytes);
    uv_buf_t buffer = {.base = (char *)(uintptr_t)bytes, .len = size};
    int result = hand_over(sealing->outgoing, &buffer, 1, size, size);

    seal->tls->sent(seal->peer);
    return result;
}

/* Some of them go to the kernel together. */
static int end_record(struct sealing *sealing, bool is_last)
{
    const struct seal *seal = sealing->seal;
    const void *bytes;

    if (seal->tls->write(seal->peer, sealing->record, sealing->used) != HF_OK) {
        route_drop(sealing->outgoing->open, "there is no memory for what is to be sent");
        return HF_EBUSY;
    }
    sealing->used = 0;
    if (is_last ||
        seal->tls->output(seal->peer, &bytes) >= SEALED_MAX - sealed_size(TLS_PEER_RECORD))
        return pass_on(sealing);
    return HF_OK;
}

static int seal_piece(struct sealing *sealing, const uv_buf_t *piece)
{
    size_t at = 0;
    int result = HF_OK;

    while (at < piece->len && result == HF_OK) {
        size_t room = sizeof sealing->record - sealing->used, left = piece->len - at;
        size_t part = left < room ? left : room;

        memcpy(sealing->record + sealing->used, piece->base + at, part);
        sealing->used += part;
        at += part;
        if (sealing->used == sizeof sealing->record)
            result = end_record(sealing, false);
    }
    return result;
}

/* A large one goes out, or into memory, in parts, none of which is much. */
static int send_sealed(struct outgoing *outgoing, const uv_buf_t *buffers, unsigned count,
                       size_t size)
{
    struct sealing sealing;
    int result = HF_OK;

    if (outgoing->unsent > 0 && outgoing->unsent + sealed_size(size) > PEERS_UNSENT_MAX)
        return HF_EBUSY;
    sealing.outgoing = outgoing;
    sealing.seal = outgoing->open->connection->seal;
    sealing.used = 0;
    for (unsigned i = 0; i < count && result == HF_OK; i++)
        result = seal_piece(&sealing, &buffers[i]);
    return result == HF_OK ? end_record(&sealing, true) : result;
}

/* ---- a message ---------------------------------------------------------------------------------- */

int peers_send(struct peers *peers, uint64_t to, const struct iovec *pieces, unsigned count)
{
    size_t size = size_of(pieces, count);
    unsigned char header[FRAME_HEADER];
    uv_buf_t buffers[1 + PEERS_PIECES_MAX];
    struct outgoing *outgoing = NULL;
    int result = outgoing_find_open(peers, to, size, &outgoing);

    INVARIANT(count <= PEERS_PIECES_MAX);
    if (result != HF_OK)
        return result;
    write_header(pieces, count, size, header);
    buffers[0] = uv_buf_init((char *)header, FRAME_HEADER);
    for (unsigned i = 0; i < count; i++)
        buffers[i + 1] = (uv_buf_t){.base = pieces[i].iov_base, .len = pieces[i].iov_len};
    if (outgoing->open->connection->seal)
        return send_sealed(outgoing, buffers, count + 1, FRAME_HEADER + size);
    return hand_over(outgoing, buffers, count + 1, FRAME_HEADER + size, size);
}
