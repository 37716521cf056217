/* incoming.c: a connection from a node.
 *
 *     accepted ──▶ [TLS handshake, in steps] ──▶ HELLO ──▶ PROOF ──▶ OPEN
 *
 * A TLS handshake costs the CPU as much as a hundred messages, and anybody can ask for one. So what a stranger says for it waits until it is his
 * turn, and in each round of the loop they have PEERS_TLS_ROUND_US together; one that waits is not read from meanwhile. */
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/switches.h"
#include "peers/seal.h"

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
    struct seal *seal; /* NULL: in the clear */
    struct list step;  /* its TLS handshake may go on */
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
    seal_free(incoming->seal);
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

/* A node that is set up wrongly comes each second. Of each machine: the port of a connection is another one each time. */
static bool is_new(struct incoming *incoming, const char *why)
{
    const char *port = strrchr(incoming->from, ':');
    size_t size = port ? (size_t)(port - incoming->from) : 0;
    uint64_t whom = hash_bytes(incoming->from, size) ^ hash_bytes(why, strlen(why));

    return peers_may_repeat(incoming->peers->refused, whom);
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
    else if (why && is_new(incoming, why) && may_note(incoming->peers))
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
    list_remove(&incoming->step);
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

/* A byte before the end: what can be sent at once is. */
static void say_at_once(struct incoming *incoming, char byte)
{
    uv_buf_t buffer = uv_buf_init(&byte, 1);

    if (incoming->seal)
        seal_say(incoming->seal, &byte, 1);
    else
        uv_try_write((uv_stream_t *)&incoming->tcp, &buffer, 1);
}

/* A certificate that the authority has given to somebody else, a client perhaps, makes nobody a node. */
static bool is_at_home(const struct incoming *incoming)
{
    const struct seal *seal = incoming->seal;
    struct peer_address address;

    return !seal || (peer_address_parse(incoming->handshake.address, &address) &&
                     seal->tls->is_for(seal->peer, address.host));
}

static bool say_reply(struct incoming *incoming)
{
    uv_buf_t buffer = uv_buf_init((char *)incoming->reply, HANDSHAKE_REPLY);

    if (incoming->seal)
        return seal_say(incoming->seal, incoming->reply, HANDSHAKE_REPLY);
    incoming->write.data = incoming;
    return uv_write(&incoming->write, (uv_stream_t *)&incoming->tcp, &buffer, 1, on_replied) == 0;
}

static void on_hello(struct incoming *incoming, const unsigned char hello[HANDSHAKE_HELLO])
{
    const struct peers *peers = incoming->peers;
    const unsigned char *binding = incoming->seal ? incoming->seal->binding : NULL;
    enum handshake_result result =
        handshake_reply(&incoming->handshake, &peers->own, binding, hello, incoming->reply);

    if (result != HANDSHAKE_OK) {
        end(incoming, in_words(result));
        return;
    }
    if (!is_at_home(incoming)) {
        say_at_once(incoming, REFUSES_CERTIFICATE);
        end(incoming, "its certificate is not for the host of the address that it says is its own");
        return;
    }
    incoming->state = PROOF;
    if (!say_reply(incoming))
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

/* The host does not want it, and knows why. What can be sent at once is: it may come too late, but the node comes again. */
static void turn_away(struct incoming *incoming)
{
    const struct peers_host *host = &incoming->peers->host;
    char why = host->why_not ? host->why_not(host->context, incoming->handshake.from) : 0;

    if (why && !incoming->closed)
        say_at_once(incoming, why);
    end(incoming, NULL);
}

/* No need to look for it at other places. */
static void say_where(struct incoming *incoming)
{
    struct sockaddr_storage from = {0};
    int size = sizeof from;

    if (uv_tcp_getpeername(&incoming->tcp, (struct sockaddr *)&from, &size) != 0)
        from.ss_family = AF_UNSPEC;
    outgoing_is_there(incoming->peers, incoming->handshake.from, &from);
}

static void on_proof(struct incoming *incoming, const unsigned char proof[HANDSHAKE_PROOF])
{
    const struct peers_host *host = &incoming->peers->host;
    struct handshake *handshake = &incoming->handshake;
    const struct peers_node node = {handshake->from, handshake->about, handshake->cluster,
                                    incoming->from, handshake->address};
    enum handshake_result result = handshake_accept(handshake, proof);

    if (result == HANDSHAKE_ELSEWHERE)
        peers_note_elsewhere(incoming->peers, node.id, incoming->from, node.cluster);
    if (result != HANDSHAKE_OK) {
        end(incoming, result == HANDSHAKE_ELSEWHERE ? NULL : PEERS_UNPROVEN);
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
    say_where(incoming);
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

/* Where it goes that comes next. */
static uv_buf_t place(struct incoming *incoming)
{
    if (incoming->message)
        return (uv_buf_t){.base = (char *)incoming->message + incoming->got,
                          .len = incoming->size - incoming->got};
    return (uv_buf_t){.base = (char *)incoming->room + incoming->used,
                      .len = sizeof incoming->room - incoming->used};
}

/* So many bytes are at their place. */
static void on_bytes(struct incoming *incoming, size_t count)
{
    if (incoming->message) {
        incoming->got += count;
        if (incoming->got == incoming->size)
            on_whole(incoming);
        return;
    }
    incoming->used += count;
    while (incoming->state != OPEN)
        if (!greet(incoming))
            return;
    receive(incoming);
}

/* ---- TLS ---------------------------------------------------------------------------------------- */

static void unseal(struct incoming *incoming)
{
    while (!incoming->closed) {
        uv_buf_t to = place(incoming);
        struct error_text err = {""};
        ssize_t count = to.len > 0 ? seal_read(incoming->seal, to.base, to.len, &err)
                                   : error_set(&err, HF_EUNREACH, "it says too much");

        if (count == 0)
            return;
        if (count > 0)
            on_bytes(incoming, (size_t)count);
        else
            end(incoming, err.text[0] ? err.text : NULL);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer);
static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer);

/* What has come for the handshake, all of it. What follows it may have come, too. */
static void step(struct incoming *incoming)
{
    struct peers *peers = incoming->peers;
    struct error_text err = {""};
    int result;

    memcpy(peers->sealed, incoming->room, incoming->used);
    seal_feed(incoming->seal, peers->sealed, incoming->used);
    incoming->used = 0;
    result = seal_shake(incoming->seal, &err);
    if (result < 0) {
        end(incoming, err.text);
        return;
    }
    if (result == HF_OK)
        unseal(incoming);
    if (!incoming->closed && uv_read_start((uv_stream_t *)&incoming->tcp, on_alloc, on_read) != 0)
        end(incoming, NULL);
}

void incoming_go_on(uv_idle_t *idle)
{
    struct peers *peers = idle->data;
    uint64_t until = uv_hrtime() + PEERS_TLS_ROUND_US * UINT64_C(1000);

    while (!list_empty(&peers->steps) && uv_hrtime() < until) {
        struct incoming *incoming = LIST_ENTRY(peers->steps.next, struct incoming, step);

        list_remove(&incoming->step);
        step(incoming);
    }
    if (list_empty(&peers->steps))
        uv_idle_stop(idle);
}

/* It waits for its turn. */
static void step_later(struct incoming *incoming, size_t count)
{
    struct peers *peers = incoming->peers;

    incoming->used += count;
    uv_read_stop((uv_stream_t *)&incoming->tcp);
    list_append(&peers->steps, &incoming->step);
    uv_idle_start(&peers->idle, incoming_go_on);
}

static void on_sealed(struct incoming *incoming, const uv_buf_t *buffer, size_t count)
{
    if (!incoming->seal->is_open) {
        step_later(incoming, count);
        return;
    }
    seal_feed(incoming->seal, buffer->base, count);
    unseal(incoming);
}

/* The first bytes say whether it speaks TLS. */
static void on_first(struct incoming *incoming, size_t count)
{
    const struct peers *peers = incoming->peers;
    bool speaks_tls = incoming->room[0] == TLS_RECORD;

    if (speaks_tls && peers->tls.mode == PEERS_IN_CLEAR) {
        end(incoming, PEERS_ONLY_TLS);
    } else if (speaks_tls) {
        incoming->seal = seal_new(peers, (uv_stream_t *)&incoming->tcp, NULL);
        if (incoming->seal)
            step_later(incoming, count);
        else
            end(incoming, "out of memory");
    } else if (peers->tls.mode == PEERS_TLS_MUST && !SWITCHED(SWITCH_PEER_CLEAR_LET_IN)) {
        say_at_once(incoming, REFUSES_CLEAR);
        end(incoming, handshake_may_be_hello(incoming->room, count) ? PEERS_NO_TLS
                                                                    : in_words(HANDSHAKE_STRANGER));
    } else {
        on_bytes(incoming, count);
    }
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    struct incoming *incoming = handle->data;

    (void)suggested;
    if (incoming->seal && incoming->seal->is_open)
        *ret_buffer = uv_buf_init((char *)incoming->peers->sealed, SEALED_MAX);
    else
        *ret_buffer = place(incoming);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct incoming *incoming = stream->data;

    if (incoming->closed || count == 0)
        return;
    if (count < 0)
        end(incoming, NULL); /* who wants something comes again */
    else if (incoming->seal)
        on_sealed(incoming, buffer, (size_t)count);
    else if (incoming->state == HELLO && incoming->used == 0)
        on_first(incoming, (size_t)count);
    else
        on_bytes(incoming, (size_t)count);
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
    list_init(&incoming->step);
    list_append(&peers->incoming, &incoming->node);
    peers->unauthenticated++;
    if (uv_accept((uv_stream_t *)&peers->listener, (uv_stream_t *)&incoming->tcp) != 0) {
        end(incoming, NULL);
        return;
    }
    peer_address_of(&incoming->tcp, incoming->from);
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

const char *peers_about_from(struct peers *peers, uint64_t id)
{
    LIST_EACH(node, &peers->incoming)
    {
        const struct incoming *incoming = LIST_ENTRY(node, struct incoming, node);

        if (incoming->state == OPEN && incoming->handshake.from == id)
            return incoming->handshake.about;
    }
    return NULL;
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
