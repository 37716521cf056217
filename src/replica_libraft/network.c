#include "replica_libraft/network.h"
#include "peers/peers.h"
#include "replica_libraft/identity.h"
#include "replica_libraft/message.h"
#include "replica_libraft/replica.h"

#include <raft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MARK 'W' /* the first byte: no message of libraft's begins with it */

_Static_assert(NETWORK_CLUSTER == PEERS_CLUSTER, "one length");

struct network {
    struct raft_io *io;   /* whose `impl` we are */
    struct raft_io saved; /* its functions without us */
    struct peers *peers;
    raft_io_recv_cb receive; /* NULL: libraft does not listen (any more) */
    raft_io_tick_cb tick;
    raft_io_close_cb closed; /* NULL: libraft does not close */
    unsigned sending;        /* messages that libraft has not got back yet */
    struct network_host host;
    char cluster[NETWORK_CLUSTER + 1]; /* "": none */
    uint64_t id;                       /* of this node, */
    char life[REPLICA_LIFE_MAX + 1];   /* and its life; "": it has none */
    bool is_another;                   /* [I3], and that was noted */
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

/* ---- who counts --------------------------------------------------------------------------------- */

static const struct raft_configuration *members_of(const struct network *network)
{
    const struct raft *raft = network->io->data;

    return &raft->configuration;
}

/* [I3] */
static bool is_another(struct network *network)
{
    bool before = network->is_another;

    network->is_another = identity_is_another(members_of(network), network->id, network->life);
    if (network->is_another && !before)
        network->host.note(network->host.context,
                           &(struct note){.level = 1, .words = NETWORK_LOST});
    return network->is_another;
}

/* [I2] To nobody in place of whom it is meant for. */
static bool is_there(const struct network *network, uint64_t id, const char *identity)
{
    const char *about = peers_about(network->peers, id);

    return !about || !identity_life(identity)[0] ||
           strcmp(identity_life(identity), identity_life(about)) == 0;
}

static bool is_answer(const struct raft_message *message)
{
    return message->type == RAFT_REQUEST_VOTE_RESULT || message->type == RAFT_APPEND_ENTRIES_RESULT;
}

/* ---- libraft's messages ------------------------------------------------------------------------- */

/* libraft takes a refusal for the end of what it was doing, an election or an append, for all nodes: so it
 * never hears one. */
static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    struct network *network = io->impl;
    struct sending *sending = malloc(sizeof *sending);
    /* libraft's own address of a question is of the members when it began to ask: reading a snapshot takes a while. */
    const char *identity = is_answer(message)
                               ? message->server_address
                               : identity_find(members_of(network), message->server_id);
    char address[REPLICA_ADDRESS_MAX + 1];
    int result = HF_EUNREACH;

    INVARIANT(sending != NULL);
    req->cb = done;
    sending->req = req;
    sending->network = network;
    network->sending++;
    message_encode(message, &sending->encoded);
    if (identity && !is_another(network) && is_there(network, message->server_id, identity)) {
        identity_address(identity, address);
        result = peers_send(network->peers, message->server_id, address, sending->encoded.pieces,
                            sending->encoded.count, on_sent, sending);
    }
    if (result != HF_OK)
        on_sent(sending, result);
    return 0;
}

static bool comes_from_a_leader(const struct raft_message *message)
{
    return message->type == RAFT_APPEND_ENTRIES || message->type == RAFT_INSTALL_SNAPSHOT;
}

/* May libraft see it? What comes from another cluster never gets here (peers.h, [P4]). */
static bool is_ours(struct network *network, const struct peers_message *from,
                    const struct raft_message *message)
{
    const struct network_host *host = &network->host;

    if (!from->cluster[0] && (network->cluster[0] || host->adopted))
        return false; /* nodes that know no clusters are among themselves */
    if (strcmp(from->cluster, network->cluster) != 0 || !network->receive)
        return host->adopted && comes_from_a_leader(message) &&
               host->adopted(host->context, from->from, from->cluster);
    return !is_another(network) &&
           (!is_answer(message) ||
            identity_is_member(members_of(network), from->from, identity_life(from->about)));
}

static void free_message(struct raft_message *message)
{
    if (message->type == RAFT_INSTALL_SNAPSHOT) {
        raft_configuration_close(&message->install_snapshot.conf);
        raft_free(message->install_snapshot.data.base);
    }
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
        raft_free(message->append_entries.entries[0].batch); /* as message_decode makes them */
        raft_free(message->append_entries.entries);
    }
}

static void on_message(struct network *network, const struct peers_message *from)
{
    struct raft_message message;
    char identity[IDENTITY_MAX + 1];

    if (!message_decode(from->bytes, from->size, &message)) {
        free(from->bytes);
        network->host.note(
            network->host.context,
            &(struct note){.level = 2,
                           .words =
                               "a message from a node cannot be read: is it of another version?",
                           .node = from->from,
                           .peer = from->address});
        return;
    }
    if (!is_ours(network, from, &message) || !network->receive) {
        free_message(&message);
        return;
    }
    message.server_id = from->from;
    identity_write(from->address, identity_life(from->about), identity);
    message.server_address = identity; /* for the answer */
    network->receive(network->io, &message);
}

/* ---- words -------------------------------------------------------------------------------------- */

static void on_words(struct network *network, const struct peers_message *from)
{
    const struct network_host *host = &network->host;
    char text[NETWORK_WORDS_MAX + 1];
    size_t size = from->size - 1;

    if (host->heard && size <= NETWORK_WORDS_MAX) {
        memcpy(text, (const char *)from->bytes + 1, size);
        text[size] = '\0';
        host->heard(host->context, &(struct network_words){.from = from->from,
                                                           .address = from->address,
                                                           .cluster = from->cluster,
                                                           .text = text});
    }
    free(from->bytes);
}

static void on_received(void *context, const struct peers_message *message)
{
    if (message->size > 0 && *(const char *)message->bytes == WORDS_MARK)
        on_words(context, message);
    else
        on_message(context, message);
}

static void on_said(void *context, int result)
{
    (void)result; /* who wants an answer asks again */
    free(context);
}

bool network_say(struct network *network, uint64_t to, const char *address, const char *text)
{
    size_t size = strlen(text);
    char *bytes = malloc(size + 1);
    struct iovec piece = {bytes, size + 1};

    INVARIANT(bytes != NULL && size <= NETWORK_WORDS_MAX);
    bytes[0] = WORDS_MARK;
    memcpy(bytes + 1, text, size);
    if (peers_send(network->peers, to, address, &piece, 1, on_said, bytes) == HF_OK)
        return true;
    free(bytes);
    return false;
}

/* All members have connections to all others, or try to. libraft only says whom it has something to say to, and
 * what it says first, to be elected, would be lost. */
static void on_tick(struct raft_io *io)
{
    struct network *network = io->impl;
    const struct raft *raft = io->data;
    const struct raft_configuration *members = &raft->configuration;
    char address[REPLICA_ADDRESS_MAX + 1];

    for (unsigned i = 0; i < members->n; i++) {
        identity_address(members->servers[i].address, address);
        if (members->servers[i].id != raft->id)
            peers_dial(network->peers, members->servers[i].id, address);
    }
    if (!is_another(network))
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

static void on_note(void *context, const struct note *note)
{
    struct network *network = context;

    network->host.note(network->host.context, note);
}

static bool on_met(void *context, const struct peers_node *node)
{
    struct network *network = context;
    const struct network_host *host = &network->host;

    return !host->met ||
           host->met(host->context, &(struct network_node){node->id, node->about, node->cluster});
}

static char on_why_not(void *context, uint64_t id)
{
    struct network *network = context;
    const struct network_host *host = &network->host;

    return host->why_not ? host->why_not(host->context, id) : 0;
}

static void on_turned_away(void *context, uint64_t by, char why)
{
    struct network *network = context;
    const struct network_host *host = &network->host;

    if (host->turned_away)
        host->turned_away(host->context, by, why);
}

static bool on_reached(void *context, const struct peers_node *node)
{
    struct network *network = context;
    const struct network_host *host = &network->host;
    bool guarded = network->receive &&
                   identity_is_another(members_of(network), node->id, identity_life(node->about));

    peers_set_guarded(network->peers, node->id, guarded);
    return !host->reached ||
           host->reached(host->context,
                         &(struct network_node){node->id, node->about, node->cluster});
}

void network_set_cluster(struct network *network, const char *cluster)
{
    memcpy(network->cluster, cluster, strlen(cluster) + 1);
    peers_set_cluster(network->peers, cluster);
}

int network_set_secrets(struct network *network, const void *secret, size_t secret_size,
                        const void *other, size_t other_size, struct error_text *err)
{
    return peers_set_secrets(network->peers, secret, secret_size, other, other_size, err);
}

int network_open(struct uv_loop_s *loop, const struct network_options *options,
                 const struct network_host *host, struct raft_io *io, struct network **ret_network,
                 struct error_text *err)
{
    struct network *network = calloc(1, sizeof *network);
    const struct peers_options how = {.id = options->id,
                                      .address = options->address,
                                      .listen = options->listen,
                                      .secret = options->secret,
                                      .secret_size = options->secret_size,
                                      .other = options->other,
                                      .other_size = options->other_size,
                                      .about = options->about,
                                      .cluster = options->cluster};
    const struct peers_host peers_host = {.context = network,
                                          .received = on_received,
                                          .note = on_note,
                                          .met = on_met,
                                          .reached = on_reached,
                                          .why_not = on_why_not,
                                          .turned_away = on_turned_away};
    int result;

    if (!network)
        return error_set(err, HF_ENOMEM, "out of memory");
    network->host = *host;
    network->id = options->id;
    snprintf(network->life, sizeof network->life, "%s",
             options->about ? identity_life(options->about) : "");
    result = peers_open(loop, &how, &peers_host, &network->peers, err);
    if (result != HF_OK) {
        free(network);
        return result;
    }
    if (options->cluster)
        memcpy(network->cluster, options->cluster, strlen(options->cluster) + 1);
    network->io = io;
    network->saved = *io;
    io->impl = network;
    io->send = on_send;
    io->start = on_start;
    io->close = on_close;
    *ret_network = network;
    return HF_OK;
}

bool network_is_connected(const struct network *network, uint64_t id)
{
    return peers_about(network->peers, id) != NULL;
}

const char *network_why(const struct network *network, uint64_t id)
{
    return peers_why(network->peers, id);
}

void network_forget(struct network *network, uint64_t id)
{
    peers_forget(network->peers, id);
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
