#include "replica/network.h"
#include "peers/peers.h"
#include "replica/message.h"

#include <raft.h>

#include <stdlib.h>

struct network {
    struct raft_io *io;   /* whose `impl` we are */
    struct raft_io saved; /* its functions without us */
    struct peers *peers;
    raft_io_recv_cb receive; /* NULL: libraft does not listen (any more) */
    raft_io_tick_cb tick;
    raft_io_close_cb closed; /* NULL: libraft does not close */
    unsigned sending;        /* messages that libraft has not got back yet */
    void *context;
    void (*note)(void *context, int level, const char *text);
    bool (*met)(void *context, uint64_t id, const char *about);
    void (*done)(void *context);
    void *done_context;
};

struct sending {
    struct raft_io_send *req;
    struct network *network;
    struct encoded encoded;
};

static void maybe_close(struct network *network)
{
    raft_io_close_cb closed = network->closed;

    if (!closed || network->sending > 0)
        return;
    network->closed = NULL;
    network->saved.close(network->io, closed);
}

static void on_sent(void *context, int result)
{
    struct sending *sending = context;
    struct network *network = sending->network;

    sending->req->cb(sending->req, result == HF_OK ? 0 : RAFT_NOCONNECTION);
    encoded_free(&sending->encoded);
    free(sending);
    network->sending--;
    maybe_close(network);
}

/* libraft takes a refusal for the end of what it was doing, an election or an append, for all nodes: so it
 * never hears one. */
static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    struct network *network = io->impl;
    struct sending *sending = malloc(sizeof *sending);
    int result;

    INVARIANT(sending != NULL);
    req->cb = done;
    sending->req = req;
    sending->network = network;
    network->sending++;
    message_encode(message, &sending->encoded);
    result = peers_send(network->peers, message->server_id, message->server_address,
                        sending->encoded.pieces, sending->encoded.count, on_sent, sending);
    if (result != HF_OK)
        on_sent(sending, result);
    return 0;
}

static void on_received(void *context, uint64_t from, const char *address, void *bytes, size_t size)
{
    struct network *network = context;
    struct raft_message message;

    if (!network->receive) {
        free(bytes);
        return;
    }
    if (!message_decode(bytes, size, &message)) {
        free(bytes);
        network->note(network->context, 2,
                      "a message from another node cannot be read: is it of another version?");
        return;
    }
    message.server_id = from;
    message.server_address = address;
    network->receive(network->io, &message);
}

/* All members have connections to all others, or try to. libraft only says whom it has something to say to, and
 * what it says first, to be elected, would be lost. */
static void on_tick(struct raft_io *io)
{
    struct network *network = io->impl;
    const struct raft *raft = io->data;
    const struct raft_configuration *members = &raft->configuration;

    for (unsigned i = 0; i < members->n; i++)
        if (members->servers[i].id != raft->id)
            peers_dial(network->peers, members->servers[i].id, members->servers[i].address);
    network->tick(io);
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct network *network = io->impl;

    network->receive = receive;
    network->tick = tick;
    return network->saved.start(io, msecs, on_tick, receive);
}

/* Messages point into libraft, which is gone when this is over: a node that does not read is not waited for. */
static void on_close(struct raft_io *io, raft_io_close_cb done)
{
    struct network *network = io->impl;

    network->receive = NULL;
    network->closed = done;
    peers_hang_up(network->peers);
    maybe_close(network);
}

static void on_note(void *context, int level, const char *text)
{
    struct network *network = context;

    network->note(network->context, level, text);
}

static bool on_met(void *context, uint64_t id, const char *about)
{
    struct network *network = context;

    return !network->met || network->met(network->context, id, about);
}

int network_open(struct uv_loop_s *loop, const struct network_options *options, struct raft_io *io,
                 struct network **ret_network, struct error_text *err)
{
    struct network *network = calloc(1, sizeof *network);
    const struct peers_options how = {.id = options->id,
                                      .address = options->address,
                                      .listen = options->listen,
                                      .secret = options->secret,
                                      .secret_size = options->secret_size,
                                      .about = options->about};
    const struct peers_host host = {
        .context = network, .received = on_received, .note = on_note, .met = on_met};
    int result;

    if (!network)
        return error_set(err, HF_ENOMEM, "out of memory");
    network->context = options->context;
    network->note = options->note;
    network->met = options->met;
    result = peers_open(loop, &how, &host, &network->peers, err);
    if (result != HF_OK) {
        free(network);
        return result;
    }
    network->io = io;
    network->saved = *io;
    io->impl = network;
    io->send = on_send;
    io->start = on_start;
    io->close = on_close;
    *ret_network = network;
    return HF_OK;
}

uint16_t network_port(const struct network *network)
{
    return peers_port(network->peers);
}

static void on_peers_closed(void *context)
{
    struct network *network = context;
    void (*done)(void *) = network->done;
    void *done_context = network->done_context;

    free(network);
    done(done_context);
}

void network_close(struct network *network, void (*done)(void *context), void *context)
{
    network->done = done;
    network->done_context = context;
    peers_close(network->peers, on_peers_closed, network);
}
