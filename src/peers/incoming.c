/* incoming.c: a connection from a node. */
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "peers/inside.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 65536 /* small messages are read many at a time; a large one goes where it will stay */

enum state { HELLO, PROOF, OPEN }; /* what comes next */

struct incoming {
    struct list node;
    struct peers *peers;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write; /* of the reply */
    unsigned handles;
    bool closed;
    bool replaced; /* by another connection from the same node */
    enum state state;
    struct handshake handshake;
    char from[PEERS_ADDRESS_MAX + 1]; /* where it comes from, by the kernel */
    unsigned char reply[HANDSHAKE_REPLY];

    unsigned char *message; /* being received, NULL: none */
    size_t size, got;
    uint32_t sum;
    unsigned char room[ROOM];
    size_t used; /* of room */
};

/* ---- ending ----------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct incoming *incoming = handle->data;
    struct peers *peers = incoming->peers;

    if (--incoming->handles > 0)
        return;
    free(incoming->message);
    free(incoming);
    peers_release(peers);
}

/* Anybody can cause such a line at will. */
static bool may_note(struct peers *peers)
{
    int64_t now = clock_boot_ms();

    if (peers->notes_ms == 0 || now - peers->notes_ms >= PEERS_NOTES_MS) {
        peers->notes = 0;
        peers->notes_ms = now;
    }
    return peers->notes++ < PEERS_NOTES_MAX;
}

static void end(struct incoming *incoming, const char *why)
{
    if (incoming->closed)
        return;
    if (why && incoming->state == OPEN)
        peers_note(incoming->peers, &(struct note){.level = 2,
                                                   .words = "the connection from a node is closed",
                                                   .node = incoming->handshake.from,
                                                   .peer = incoming->from,
                                                   .why = why});
    else if (why && may_note(incoming->peers))
        peers_note(incoming->peers,
                   &(struct note){.level = 2,
                                  .words = "refused a connection to the port for peers",
                                  .peer = incoming->from,
                                  .why = why});
    incoming->closed = true;
    if (incoming->state != OPEN)
        incoming->peers->unauthenticated--;
    else if (!incoming->replaced)
        peers_ended(incoming->peers, incoming->handshake.from);
    list_remove(&incoming->node);
    uv_close((uv_handle_t *)&incoming->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&incoming->timer, on_handle_closed);
}

static void on_late(uv_timer_t *timer)
{
    end(timer->data, "it did not say in time who it is");
}

/* ---- handshake --------------------------------------------------------------------------------- */

static const char *in_words(enum handshake_result result)
{
    switch (result) {
    case HANDSHAKE_STRANGER:
        return "it speaks something else: is it of another version?";
    case HANDSHAKE_MISTAKEN:
        return "it takes this node for another: look at the ids and addresses of --cluster";
    case HANDSHAKE_UNPROVEN:
        return PEERS_UNPROVEN;
    case HANDSHAKE_ELSEWHERE:
        return "it belongs to another cluster";
    case HANDSHAKE_OK:
        break;
    }
    return NULL;
}

static void on_replied(uv_write_t *write, int status)
{
    if (status != 0)
        end(write->data, NULL);
}

/* Takes so many bytes out of the room. */
static bool take(struct incoming *incoming, void *ret_bytes, size_t size)
{
    if (incoming->used < size)
        return false;
    memcpy(ret_bytes, incoming->room, size);
    incoming->used -= size;
    memmove(incoming->room, incoming->room + size, incoming->used);
    return true;
}

static void on_hello(struct incoming *incoming, const unsigned char hello[HANDSHAKE_HELLO])
{
    const struct peers *peers = incoming->peers;
    enum handshake_result result =
        handshake_reply(&incoming->handshake, &peers->own, hello, incoming->reply);
    uv_buf_t buffer = uv_buf_init((char *)incoming->reply, HANDSHAKE_REPLY);

    if (result != HANDSHAKE_OK) {
        end(incoming, in_words(result));
        return;
    }
    incoming->state = PROOF;
    incoming->write.data = incoming;
    if (uv_write(&incoming->write, (uv_stream_t *)&incoming->tcp, &buffer, 1, on_replied) != 0)
        end(incoming, NULL);
}

/* What it has sent by an earlier connection, and was not read, must not come after what comes by this. */
static void end_earlier(struct incoming *incoming)
{
    LIST_EACH_SAFE(node, &incoming->peers->incoming)
    {
        struct incoming *other = LIST_ENTRY(node, struct incoming, node);

        if (other != incoming && other->state == OPEN &&
            other->handshake.from == incoming->handshake.from) {
            other->replaced = true;
            end(other, NULL);
        }
    }
}

/* Of each machine: the port of a connection is another one each time. */
static const char *unproven(struct incoming *incoming)
{
    const char *port = strrchr(incoming->from, ':');
    size_t size = port ? (size_t)(port - incoming->from) : 0;

    return peers_may_repeat(incoming->peers->unproven, hash_bytes(incoming->from, size))
               ? PEERS_UNPROVEN
               : NULL;
}

/* The host does not want it, and knows why. What can be sent at once is: it may come too late, but the node comes again. */
static void turn_away(struct incoming *incoming)
{
    const struct peers_host *host = &incoming->peers->host;
    char why = host->why_not ? host->why_not(host->context, incoming->handshake.from) : 0;
    uv_buf_t buffer = uv_buf_init(&why, 1);

    if (why && !incoming->closed)
        uv_try_write((uv_stream_t *)&incoming->tcp, &buffer, 1);
    end(incoming, NULL);
}

static void on_proof(struct incoming *incoming, const unsigned char proof[HANDSHAKE_PROOF])
{
    const struct peers_host *host = &incoming->peers->host;
    struct handshake *handshake = &incoming->handshake;
    const struct peers_node node = {handshake->from, handshake->about, handshake->cluster,
                                    incoming->from};
    enum handshake_result result = handshake_accept(handshake, proof);

    if (result == HANDSHAKE_ELSEWHERE)
        peers_note_elsewhere(incoming->peers, node.id, incoming->from, node.cluster);
    if (result != HANDSHAKE_OK) {
        end(incoming, result == HANDSHAKE_ELSEWHERE ? NULL : unproven(incoming));
        return;
    }
    if (host->met && !host->met(host->context, &node)) {
        turn_away(incoming);
        return;
    }
    if (incoming->closed) /* the host has closed everything */
        return;
    incoming->state = OPEN;
    incoming->peers->unauthenticated--;
    uv_timer_stop(&incoming->timer);
    end_earlier(incoming);
    outgoing_is_there(incoming->peers, incoming->handshake.from);
}

/* False: it needs more bytes, or is at its end. */
static bool greet(struct incoming *incoming)
{
    unsigned char hello[HANDSHAKE_HELLO], proof[HANDSHAKE_PROOF];

    if (incoming->state == HELLO && take(incoming, hello, sizeof hello))
        on_hello(incoming, hello);
    else if (incoming->state == PROOF && take(incoming, proof, sizeof proof))
        on_proof(incoming, proof);
    else if (incoming->state == HELLO && !handshake_may_be_hello(incoming->room, incoming->used))
        end(incoming, in_words(HANDSHAKE_STRANGER));
    else
        return false;
    return !incoming->closed;
}

/* ---- messages --------------------------------------------------------------------------------- */

static void on_whole(struct incoming *incoming)
{
    const struct peers_host *host = &incoming->peers->host;
    unsigned char *message = incoming->message;

    incoming->message = NULL;
    if (crc32c(0, message, incoming->size) != incoming->sum) {
        free(message);
        end(incoming, "a message has the wrong checksum");
        return;
    }
    host->received(host->context, &(struct peers_message){.from = incoming->handshake.from,
                                                          .address = incoming->handshake.address,
                                                          .about = incoming->handshake.about,
                                                          .cluster = incoming->handshake.cluster,
                                                          .bytes = message,
                                                          .size = incoming->size});
}

/* What has come for the message so far; the rest is read into it. */
static void fill(struct incoming *incoming, size_t at, size_t *ret_used)
{
    size_t wanted = incoming->size - incoming->got, there = incoming->used - at;

    *ret_used = there < wanted ? there : wanted;
    memcpy(incoming->message + incoming->got, incoming->room + at, *ret_used);
    incoming->got += *ret_used;
}

/* Takes all messages out of the room that are there, as a whole or in part. */
static void receive(struct incoming *incoming)
{
    size_t at = 0, used;

    while (!incoming->closed && !incoming->message && incoming->used - at >= FRAME_HEADER) {
        uint32_t number;

        memcpy(&number, incoming->room + at, sizeof number);
        incoming->size = le32toh(number);
        memcpy(&number, incoming->room + at + 4, sizeof number);
        incoming->sum = le32toh(number);
        incoming->got = 0;
        incoming->message = incoming->size ? malloc(incoming->size) : NULL;
        if (!incoming->message) {
            end(incoming, "a message of no size, or too large for the memory");
            return;
        }
        at += FRAME_HEADER;
        fill(incoming, at, &used);
        at += used;
        if (incoming->got == incoming->size)
            on_whole(incoming);
    }
    incoming->used -= at;
    memmove(incoming->room, incoming->room + at, incoming->used);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct incoming *incoming = handle->data;

    (void)suggested;
    if (incoming->message)
        *ret_buffer = (uv_buf_t){.base = (char *)incoming->message + incoming->got,
                                 .len = incoming->size - incoming->got};
    else
        *ret_buffer = (uv_buf_t){.base = (char *)incoming->room + incoming->used,
                                 .len = sizeof incoming->room - incoming->used};
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct incoming *incoming = stream->data;

    (void)buffer;
    if (incoming->closed || count == 0)
        return;
    if (count < 0) {
        end(incoming, NULL); /* who wants something comes again */
        return;
    }
    if (incoming->message) {
        incoming->got += (size_t)count;
        if (incoming->got == incoming->size)
            on_whole(incoming);
        return;
    }
    incoming->used += (size_t)count;
    while (incoming->state != OPEN)
        if (!greet(incoming))
            return;
    receive(incoming);
}

/* ---- coming ----------------------------------------------------------------------------------- */

/* A member says who it is at once. Whoever has been here for longest and has not makes room for the next. */
static void end_oldest_stranger(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->incoming)
    {
        struct incoming *incoming = LIST_ENTRY(node, struct incoming, node);

        if (incoming->state != OPEN) {
            end(incoming, "there are too many who have not said who they are");
            return;
        }
    }
}

void incoming_accept(struct peers *peers)
{
    struct incoming *incoming = calloc(1, sizeof *incoming);

    INVARIANT(incoming != NULL);
    incoming->peers = peers;
    incoming->handles = 2;
    peers_hold(peers);
    uv_tcp_init(peers->loop, &incoming->tcp);
    uv_timer_init(peers->loop, &incoming->timer);
    incoming->tcp.data = incoming->timer.data = incoming;
    list_append(&peers->incoming, &incoming->node);
    peers->unauthenticated++;
    if (uv_accept((uv_stream_t *)&peers->listener, (uv_stream_t *)&incoming->tcp) != 0) {
        end(incoming, NULL);
        return;
    }
    address_of_connection(&incoming->tcp, incoming->from);
    if (peers->unauthenticated > PEERS_UNAUTHENTICATED_MAX)
        end_oldest_stranger(peers);
    peers_tune(&incoming->tcp);
    uv_timer_start(&incoming->timer, on_late, PEERS_HANDSHAKE_MS, 0);
    if (uv_read_start((uv_stream_t *)&incoming->tcp, on_alloc, on_read) != 0)
        end(incoming, NULL);
}

void incoming_close_elsewhere(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->incoming)
    {
        struct incoming *incoming = LIST_ENTRY(node, struct incoming, node);
        const char *cluster = incoming->handshake.cluster;

        if (cluster[0] && strcmp(cluster, peers->cluster) != 0)
            end(incoming, NULL);
    }
}

void incoming_close_from(struct peers *peers, uint64_t id)
{
    LIST_EACH_SAFE(node, &peers->incoming)
    {
        struct incoming *incoming = LIST_ENTRY(node, struct incoming, node);

        if (incoming->state == OPEN && incoming->handshake.from == id)
            end(incoming, NULL);
    }
}

void incoming_close_all(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->incoming)
    end(LIST_ENTRY(node, struct incoming, node), NULL);
}
