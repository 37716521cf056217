#include "net/link.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 16384       /* asked for at a time */
#define OUT_BYTES_MAX 16777216 /* queued for a server that does not read */

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
    if (link->greeting->replies > 0)
        link->greeting->write(link->greeting->context, &link->hello);
    return link->reader && !link->hello.failed ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");
}

int link_open(const struct address *address, const struct access *access,
              const struct link_greeting *greeting, struct link **ret_link, struct error_text *err)
{
    struct link *link = calloc(1, sizeof *link);
    int result;

    if (!link)
        return error_set(err, HF_ENOMEM, "out of memory");
    link->greeting = greeting;
    link->reader = resp_reader_new(&reply_limits);
    result = write_hello(link, err);
    if (result == HF_OK)
        result = stream_open(address, access, &link->stream, err);
    if (result != HF_OK) {
        link_close(link);
        return result;
    }
    *ret_link = link;
    return HF_OK;
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
    result = link->greeting->on_reply(link->greeting->context, link->greeted++, value, err);
    if (result == HF_OK && link->greeted == link->greeting->replies) {
        link->state = LINK_READY;
        *ret_more = false; /* whoever wanted to ask something can do so now */
    }
    return result;
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
        resp_reader_filled(link->reader, (size_t)came);
    }
    return HF_OK;
}

int link_pump(struct link *link, link_value_fn *fn, void *context, struct error_text *err)
{
    int result = HF_OK;

    if (link->state == LINK_CONNECTING) {
        result = stream_connect(link->stream, err);
        if (result == STREAM_AGAIN)
            return HF_OK;
        if (result == HF_OK) {
            link->state = link->greeting->replies > 0 ? LINK_GREETING : LINK_READY;
            result = send_bytes(link, link->hello.bytes, link->hello.size, err);
            wipe_hello(link);
        }
    } else {
        result = flush(link, err);
    }
    return result == HF_OK ? read_values(link, fn, context, err) : result;
}

bool link_has_news(const struct link *link)
{
    struct pollfd pollfd = {.fd = stream_fd(link->stream), .events = POLLIN | POLLRDHUP};

    return poll(&pollfd, 1, 0) != 0;
}
