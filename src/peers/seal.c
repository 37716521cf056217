#include "peers/seal.h"

#include <stdlib.h>
#include <string.h>

struct seal *seal_new(const struct peers *peers, uv_stream_t *stream, const char *host)
{
    struct seal *seal = calloc(1, sizeof *seal);

    if (!seal)
        return NULL;
    seal->tls = peers->tls.provider;
    seal->stream = stream;
    if (seal->tls->peer_new(peers->tls.context, host, &seal->peer) == HF_OK)
        return seal;
    free(seal);
    return NULL;
}

void seal_free(struct seal *seal)
{
    if (!seal)
        return;
    seal->tls->peer_free(seal->peer);
    free(seal);
}

/* ---- what is to be sent -------------------------------------------------------------------------- */

struct piece {        /* that the kernel has not taken at once */
    uv_write_t write; /* first */
    char bytes[];
};

/* Whoever reads from the stream hears of it that it has failed. */
static void on_sent(uv_write_t *write, int status)
{
    (void)status;
    free(write);
}

static bool queue(uv_stream_t *stream, const char *bytes, size_t size)
{
    struct piece *piece = malloc(sizeof *piece + size);
    uv_buf_t buffer;

    if (!piece)
        return false;
    memcpy(piece->bytes, bytes, size);
    buffer = (uv_buf_t){.base = piece->bytes, .len = size};
    if (uv_write(&piece->write, stream, &buffer, 1, on_sent) == 0)
        return true;
    free(piece);
    return false;
}

static bool flush(const struct seal *seal)
{
    const void *bytes;
    size_t size = seal->tls->output(seal->peer, &bytes);
    uv_buf_t buffer = {.base = (char *)(uintptr_t)bytes, .len = size};
    int taken = size > 0 ? uv_try_write(seal->stream, &buffer, 1) : 0;
    size_t at = taken > 0 ? (size_t)taken : 0;
    bool is_sent = at == size || queue(seal->stream, buffer.base + at, size - at);

    if (size > 0)
        seal->tls->sent(seal->peer);
    return is_sent;
}

/* ---- what comes ------------------------------------------------------------------------------------ */

void seal_feed(struct seal *seal, const void *bytes, size_t size)
{
    seal->was_answered = true;
    seal->tls->feed(seal->peer, bytes, size);
}

int seal_shake(struct seal *seal, struct error_text *err)
{
    int result = seal->tls->handshake(seal->peer, err);

    if (!flush(seal) && result >= 0)
        return error_set(err, HF_EUNREACH, "it cannot be written to");
    if (result != HF_OK)
        return result;
    if (!seal->tls->binding(seal->peer, seal->binding))
        return error_set(err, HF_EUNREACH, "TLS gives no keys to bind the proof to");
    seal->is_open = true;
    return HF_OK;
}

ssize_t seal_read(struct seal *seal, void *bytes, size_t size, struct error_text *err)
{
    ssize_t count = seal->tls->read(seal->peer, bytes, size, err);

    if (!flush(seal) && count >= 0)
        return error_set(err, HF_EUNREACH, "it cannot be written to");
    return count;
}

bool seal_say(struct seal *seal, const void *bytes, size_t size)
{
    return seal->tls->write(seal->peer, bytes, size) == HF_OK && flush(seal);
}
