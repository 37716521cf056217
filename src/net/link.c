#include "net/link.h"
#include "base/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 16384       /* asked for at a time */
#define OUT_BYTES_MAX 16777216 /* queued for a server that does not read */

#define TLS_ALERT 0x15 /* the first byte of one; no answer begins like this */

static const struct resp_limits reply_limits = {
    .blob_max = 16777216, .value_max = 67108864, .nodes_max = 1000000};

static void wipe_hello(struct link *link)
{
    if (link->hello.bytes)
        explicit_bzero(link->hello.bytes, link->hello.size);
    resp_writer_free(&link->hello);
}

static int write_hello(struct link *link, struct error_text *err)
{
    if (link->handshake->replies > 0)
        link->handshake->write(link->handshake->context, &link->hello);
    return link->reader && !link->hello.failed ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");
}

int link_new(const struct link_handshake *handshake, struct link **ret_link, struct error_text *err)
{
    struct link *link = calloc(1, sizeof *link);
    int result;

    if (!link)
        return error_set(err, HF_ENOMEM, "out of memory");
    link->handshake = handshake;
    link->reader = resp_reader_new(&reply_limits);
    result = write_hello(link, err);
    if (result != HF_OK) {
        link_close(link);
        return result;
    }
    *ret_link = link;
    return HF_OK;
}

int link_dial(struct link *link, const struct address *address, const struct access *access,
              struct turns *turns, struct error_text *err)
{
    int result = stream_new(address, access, turns, &link->stream, err);

    return result == HF_OK ? stream_begin(link->stream, err) : result;
}

int link_open(const struct address *address, const struct access *access, struct turns *turns,
              const struct link_handshake *handshake, struct link **ret_link,
              struct error_text *err)
{
    struct link *link;
    int result = link_new(handshake, &link, err);

    if (result != HF_OK)
        return result;
    result = link_dial(link, address, access, turns, err);
    if (result == HF_OK)
        *ret_link = link;
    else
        link_close(link);
    return result;
}

void link_after_fork(struct link *link)
{
    if (link && link->stream)
        stream_after_fork(link->stream);
}

void link_close(struct link *link)
{
    if (!link)
        return;
    stream_close(link->stream);
    resp_reader_free(link->reader);
    wipe_hello(link);
    resp_writer_free(&link->out);
    resp_writer_free(&link->scratch);
    free(link);
}

static bool has_output(const struct link *link)
{
    return link->out.size > link->out_sent;
}

short link_events(const struct link *link)
{
    return stream_events(link->stream, has_output(link));
}

static bool is_answered(const struct link *link)
{
    return link->state == LINK_READY || link->greeted > 0;
}

int64_t link_look_ms(const struct link *link)
{
    return is_answered(link) ? CLOCK_NEVER : stream_turn_until(link->stream);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int flush(struct link *link, struct error_text *err)
{
    while (has_output(link)) {
        ssize_t sent = stream_write(link->stream, link->out.bytes + link->out_sent,
                                    link->out.size - link->out_sent, err);

        if (sent < 0)
            return (int)sent;
        if (sent == 0)
            return HF_OK;
        link->out_sent += (size_t)sent;
    }
    resp_writer_clear(&link->out);
    link->out_sent = 0;
    return HF_OK;
}

static int send_bytes(struct link *link, const void *bytes, size_t size, struct error_text *err)
{
    size_t sent = 0;

    if (!has_output(link)) { /* mostly the socket takes it all, and nothing is copied */
        ssize_t now = stream_write(link->stream, bytes, size, err);

        if (now < 0)
            return (int)now;
        sent = (size_t)now;
        if (sent == size)
            return HF_OK;
    }
    if (link->out.size - link->out_sent + size > OUT_BYTES_MAX)
        return error_set(err, HF_EUNREACH, "the server does not read what it is sent");
    resp_write_raw(&link->out, (const char *)bytes + sent, size - sent);
    return link->out.failed ? error_set(err, HF_ENOMEM, "out of memory") : HF_OK;
}

int link_send(struct link *link, const void *bytes, size_t size, struct error_text *err)
{
    INVARIANT(link->state == LINK_READY);
    return send_bytes(link, bytes, size, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* One value. *ret_more: go on. */
static int take_value(struct link *link, const struct resp_node *value, link_value_fn *fn,
                      void *context, bool *ret_more, struct error_text *err)
{
    int result;

    *ret_more = true;
    if (link->state == LINK_READY) {
        *ret_more = fn(context, value);
        return HF_OK;
    }
    result = link->handshake->on_reply(link->handshake->context, link->greeted++, value, err);
    if (result == HF_OK && link->greeted == link->handshake->replies) {
        link->state = LINK_READY;
        wipe_hello(link);
        *ret_more = false; /* whoever wanted to ask something can do so now */
    }
    return result;
}

/* The first that comes is what TLS says to somebody who does not speak it. */
static bool is_alert(const struct link *link, const char *bytes)
{
    return link->state == LINK_HANDSHAKE && link->greeted == 0 && bytes[0] == TLS_ALERT;
}

static int read_values(struct link *link, link_value_fn *fn, void *context, struct error_text *err)
{
    bool more = true;

    while (more) {
        const struct resp_node *value;
        size_t room;
        char *bytes;
        ssize_t came;
        int result = resp_reader_next(link->reader, &value, err);

        if (result == HF_OK && value)
            result = take_value(link, value, fn, context, &more, err);
        if (result != HF_OK)
            return result;
        if (value)
            continue;
        bytes = resp_reader_room(link->reader, READ_BYTES, &room);
        if (!bytes)
            return error_set(err, HF_ENOMEM, "out of memory");
        came = stream_read(link->stream, bytes, room, err);
        if (came < 0)
            return (int)came;
        if (came == 0)
            return HF_OK;
        if (is_alert(link, bytes))
            return error_set(
                err, HF_EREFUSED,
                "it speaks TLS, and this connection does not: the scheme for that ends "
                "in s, as holdfasts:// and rediss://");
        resp_reader_filled(link->reader, (size_t)came);
    }
    return HF_OK;
}

static int pump(struct link *link, link_value_fn *fn, void *context, struct error_text *err)
{
    int result = HF_OK;

    if (link->state == LINK_CONNECTING) {
        result = stream_connect(link->stream, err);
        if (result == STREAM_AGAIN)
            return HF_OK;
        if (result == HF_OK) {
            link->state = link->handshake->replies > 0 ? LINK_HANDSHAKE : LINK_READY;
            result = send_bytes(link, link->hello.bytes, link->hello.size, err);
        }
    } else {
        result = flush(link, err);
    }
    return result == HF_OK ? read_values(link, fn, context, err) : result;
}

/* Nothing was answered yet, and nothing but our handshake was sent: the next address gets that. */
static int pass_on(struct link *link, struct error_text *err)
{
    resp_reader_free(link->reader);
    link->reader = resp_reader_new(&reply_limits);
    if (!link->reader)
        return error_set(err, HF_ENOMEM, "out of memory");
    resp_writer_clear(&link->out);
    link->out_sent = 0;
    link->state = LINK_CONNECTING;
    return stream_pass_on(link->stream, err);
}

int link_pump(struct link *link, link_value_fn *fn, void *context, struct error_text *err)
{
    int result = pump(link, fn, context, err);

    if (is_answered(link))
        stream_answered(link->stream);
    if (result == HF_OK && clock_boot_ms() >= link_look_ms(link))
        result = pass_on(link, err);
    return result;
}

bool link_has_news(const struct link *link)
{
    struct pollfd pollfd = {.fd = stream_fd(link->stream), .events = POLLIN | POLLRDHUP};

    return poll(&pollfd, 1, 0) != 0;
}
