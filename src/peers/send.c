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

    if (connection->outgoing) {
        connection->outgoing->unsent -= rest->size;
        if (status != 0)
            outgoing_drop(connection->outgoing, uv_strerror(status));
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
    uv_stream_t *stream = (uv_stream_t *)&outgoing->connection->tcp;
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

int peers_send(struct peers *peers, uint64_t to, const char *address, const struct iovec *pieces,
               unsigned count)
{
    size_t size = size_of(pieces, count), taken;
    unsigned char header[FRAME_HEADER];
    uv_buf_t buffers[1 + PEERS_PIECES_MAX], left;
    struct outgoing *outgoing = NULL;
    struct rest *rest;
    int result = outgoing_find_open(peers, to, address, size, &outgoing);

    INVARIANT(count <= PEERS_PIECES_MAX);
    if (result != HF_OK)
        return result;
    write_header(pieces, count, size, header);
    buffers[0] = uv_buf_init((char *)header, FRAME_HEADER);
    for (unsigned i = 0; i < count; i++)
        buffers[i + 1] = (uv_buf_t){.base = pieces[i].iov_base, .len = pieces[i].iov_len};
    taken = try_at_once(outgoing, buffers, count + 1);
    left = (uv_buf_t){.len = FRAME_HEADER + size - taken};
    if (left.len == 0)
        return HF_OK;
    rest = copy_rest(buffers, count + 1, taken, left.len);
    if (!rest) {
        outgoing_drop(outgoing, "there is no memory for what is to be sent"); /* a part of it was */
        return HF_EBUSY;
    }
    rest->connection = outgoing->connection;
    rest->size = size;
    left.base = rest->bytes;
    if (uv_write(&rest->write, (uv_stream_t *)&outgoing->connection->tcp, &left, 1, on_sent) != 0) {
        outgoing_drop(outgoing, "it cannot be written to"); /* perhaps a part of it was */
        free(rest);
        return HF_EUNREACH;
    }
    outgoing->unsent += size;
    return HF_OK;
}
