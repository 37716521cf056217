/* links.c: messages and words to and from other nodes, by src/peers.
 *
 * Messages of the replica pass between nodes of one cluster, with one exception: a leader's first message to a node that waits makes it
 * a member of the leader's cluster, if the host agrees. Which of them count is raft's business (raft.h, R20); here nobody gets what
 * is meant for another incarnation of it, and a node that the members know with other data neither speaks nor listens. */
#include "base/text.h"
#include "node/inside.h"
#include "replica/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MARK 'W' /* the first byte: no message of a replica begins with it */
#define VERSION_DIGITS 3
#define STRAY_US 60000000  /* one that has the id of another is noted so often */
#define LATELY_MAX_MS 1000 /* however long elections take */
#define DIAL_US 50000      /* connections with members that are not there are tried so often */
/* Words of this room's own, which who is older does not know, and passes over: where the sender is, as its log has it. The number is none. */
#define IN_LOG "at 0 "

_Static_assert(CLUSTER_ID_DIGITS == PEERS_CLUSTER, "one length");
_Static_assert(PEERS_PIECES_MAX >= MESSAGE_PIECES_MAX, "a replica's message");
_Static_assert(REPLICA_VERSION_MAX <= 999, "VERSION_DIGITS");

/* The members know this node with other data: it would be counted for one that has acknowledged more. */
static bool is_another(struct node *node)
{
    const struct replica_member *own = known_member(node, node->id);
    bool before = node->links.is_another;

    node->links.is_another = own && own->incarnation != node->identity.incarnation;
    if (node->links.is_another && !before)
        node->host.peer_note(node->host.context, &(struct note){.level = 1, .words = NODE_LOST});
    return node->links.is_another;
}

/* ---- to others -------------------------------------------------------------------------------- */

/* Nothing is sent to anybody in place of whom it is meant for. */
static bool is_meant(const struct node *node, uint64_t to)
{
    const char *about = peers_about(node->links.peers, to);

    return !about || known_is_right(node, to, about);
}

/* Is there a connection with it, and not with another one that has its id? */
static bool is_connected(const struct node *node, uint64_t id)
{
    return peers_about(node->links.peers, id) && is_meant(node, id);
}

static void dial_one(const struct node *node, uint64_t id, const char *given)
{
    struct addresses addresses = known_addresses(node, id, given);

    if (addresses.count > 0)
        peers_dial(node->links.peers, id, addresses.at, addresses.count);
}

void links_send(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                unsigned count)
{
    struct node *node = context;

    if (!node->links.peers || is_another(node))
        return;
    if (!is_meant(node, to) || peers_send(node->links.peers, to, pieces, count) == HF_EUNREACH)
        dial_one(node, to, address);
}

static int send_words(const struct node *node, uint64_t to, const char *text)
{
    char mark = WORDS_MARK;
    struct iovec pieces[2] = {{&mark, 1}, {(void *)(uintptr_t)text, strlen(text)}};

    INVARIANT(pieces[1].iov_len <= NODE_WORDS_MAX);
    return peers_send(node->links.peers, to, pieces, 2);
}

bool node_say(struct node *node, uint64_t to, const char *address, const char *text)
{
    int result = send_words(node, to, text);

    if (result == HF_EUNREACH)
        dial_one(node, to, address);
    return result == HF_OK;
}

bool node_say_there(struct node *node, uint64_t to, const char *address, const char *text)
{
    peers_dial_only(node->links.peers, to, address);
    return send_words(node, to, text) == HF_OK;
}

/* Who is to answer may not know this node yet, and its own word may lead nowhere from there: it was reached by what the log says. */
static void on_opened(void *context, uint64_t id)
{
    const struct node *node = context;
    const struct replica_member *own = known_member(node, node->id);
    char text[sizeof IN_LOG + PEERS_ADDRESS_MAX];

    if (!own || !own->address[0] || strcmp(own->address, node->address) == 0 ||
        own->incarnation != node->identity.incarnation)
        return;
    snprintf(text, sizeof text, IN_LOG "%s", own->address);
    send_words(node, id, text);
}

/* All members have connections to all others, or try to: what is said first, to be elected, would be lost otherwise. */
static bool dial(const struct node *node)
{
    const struct replica_config *members = replica_members(node->replica);
    bool all = true;

    for (int i = 0; i < members->count; i++) {
        if (members->at[i].id == node->id)
            continue;
        dial_one(node, members->at[i].id, NULL);
        all = all && is_connected(node, members->at[i].id);
    }
    return all;
}

int64_t links_pump(struct node *node, int64_t now_us)
{
    struct links *links = &node->links;

    while (links->down_count > 0)
        replica_peer_down(node->replica, links->down[--links->down_count], now_us);
    if (!links->peers)
        return NEVER_US;
    if (now_us - links->dialled_us < DIAL_US)
        return links->dialled_us + DIAL_US;
    links->dialled_us = now_us;
    return dial(node) ? NEVER_US : now_us + DIAL_US;
}

/* ---- from others ------------------------------------------------------------------------------ */

/* May the replica see it? What comes from another cluster never gets here (peers.h, [P4]). */
static bool is_ours(struct node *node, const struct peers_message *message)
{
    if (!message->cluster[0])
        return false;
    if (!node->cluster[0] && replica_message_is_leaders(message->bytes, message->size))
        node->host.adopted(node->host.context, message->from, message->cluster);
    return strcmp(message->cluster, node->cluster) == 0 && !is_another(node);
}

static void on_message(struct node *node, const struct peers_message *message, int64_t now_us)
{
    if (is_ours(node, message) &&
        !replica_received(node->replica, message->from, about_incarnation(message->about),
                          message->bytes, message->size, now_us))
        node->host.peer_note(
            node->host.context,
            &(struct note){.level = 2,
                           .words =
                               "a message from a node cannot be read: is it of another version?",
                           .node = message->from,
                           .peer = message->address});
}

/* known: NULL, as above. */
static void note_in_log(struct known *known, const char *address)
{
    size_t length = strlen(address);

    if (known && peers_address_ok(address) && length <= PEERS_ADDRESS_MAX)
        memcpy(known->in_log, address, length + 1);
}

static void on_words(struct node *node, const struct peers_message *message, struct known *known)
{
    char text[NODE_WORDS_MAX + 1];
    size_t size = message->size - 1;

    if (size > NODE_WORDS_MAX)
        return;
    memcpy(text, (const char *)message->bytes + 1, size);
    text[size] = '\0';
    if (strncmp(text, IN_LOG, strlen(IN_LOG)) == 0) {
        note_in_log(known, text + strlen(IN_LOG));
        return;
    }
    node->host.heard(node->host.context,
                     &(struct node_words){.from = message->from,
                                          .version = about_version(message->about),
                                          .address = message->address,
                                          .cluster = message->cluster,
                                          .text = text});
}

static void on_received(void *context, const struct peers_message *message)
{
    struct node *node = context;
    struct known *known;

    if (!node->closing && node->replica) {
        known = known_note(node, message->from, message->about, message->address);
        if (message->size > 0 && *(const char *)message->bytes == WORDS_MARK)
            on_words(node, message, known);
        else
            on_message(node, message, node_now_us());
    }
    free(message->bytes);
}

/* The replica may be in the middle of something. */
static void on_ended(void *context, uint64_t id)
{
    struct links *links = &((struct node *)context)->links;

    for (unsigned i = 0; i < links->down_count; i++)
        if (links->down[i] == id)
            return;
    if (links->down_count < KNOWN_MAX)
        links->down[links->down_count++] = id;
}

static void on_note(void *context, const struct note *note)
{
    const struct node *node = context;

    node->host.peer_note(node->host.context, note);
}

/* ---- who has the id of another ---------------------------------------------------------------- */

/* Now, or a moment ago: its connection may be made anew. */
static bool was_there(const struct node *node, const struct replica_member *member)
{
    const struct known *known = known_find(node, member->id);

    return known && known->incarnation == member->incarnation &&
           node_now_us() - known->heard_us < node->links.lately_us;
}

static void note_stray(struct node *node, const struct peers_node *peer)
{
    struct links *links = &node->links;
    int64_t now_us = node_now_us();
    char text[ERROR_TEXT_MAX];

    if (links->stray_us != 0 && links->stray_id == peer->id && now_us - links->stray_us < STRAY_US)
        return;
    links->stray_id = peer->id;
    links->stray_us = now_us;
    snprintf(text, sizeof text,
             "another process says that it is node %" PRIu64 ", with other data, and is not let "
             "in: has it the right --id, --cluster and directory?",
             peer->id);
    node->host.peer_note(
        node->host.context,
        &(struct note){.level = 2, .words = text, .node = peer->id, .peer = peer->peer});
}

/* Somebody with the id of a member that is there, and other data: a mistyped id, say. The member's connections stay as they are. What
 * a member left behind that has died right now, and came back without its data, is let in soon, to be told. */
static bool is_stray(struct node *node, const struct peers_node *peer)
{
    const struct replica_member *member = known_member(node, peer->id);
    const char *from;

    if (!member || about_incarnation(peer->about) == member->incarnation)
        return false;
    from = peers_about_from(node->links.peers, peer->id);
    if (is_connected(node, peer->id) || (from && about_incarnation(from) == member->incarnation)) {
        note_stray(node, peer);
        return true;
    }
    return was_there(node, member);
}

static bool is_let_in(struct node *node, const struct peers_node *peer)
{
    char client[PEERS_ABOUT_MAX + 1];

    about_client(peer->about, client);
    node->links.is_stray = node->replica && !node->closing && is_stray(node, peer);
    return node->replica && !node->closing && !node->links.is_stray &&
           node->host.met(node->host.context,
                          &(struct node_peer){.id = peer->id,
                                              .incarnation = about_incarnation(peer->about),
                                              .version = about_version(peer->about),
                                              .client = client,
                                              .cluster = peer->cluster,
                                              .peer = peer->peer});
}

static bool on_met(void *context, const struct peers_node *peer)
{
    struct node *node = context;

    if (!is_let_in(node, peer))
        return false;
    known_note(node, peer->id, peer->about, peer->address);
    return true;
}

static bool on_reached(void *context, const struct peers_node *peer)
{
    return is_let_in(context, peer);
}

static bool on_meant(void *context, uint64_t id, const char *about)
{
    const struct node *node = context;

    return !node->replica || known_is_right(node, id, about);
}

static char on_why_not(void *context, uint64_t id)
{
    struct node *node = context;

    return node->links.is_stray ? NODE_IS_STRAY : node->host.why_not(node->host.context, id);
}

static void on_turned_away(void *context, uint64_t by, char why)
{
    struct node *node = context;

    node->host.turned_away(node->host.context, by, why);
}

/* ---- beginning -------------------------------------------------------------------------------- */

int links_open(struct node *node, const struct node_options *options, struct error_text *err)
{
    char about[PEERS_ABOUT_MAX + 1];
    const struct peers_options how = {.id = options->id,
                                      .address = options->address,
                                      .listen = options->listen,
                                      .secret = options->secret,
                                      .secret_size = options->secret_size,
                                      .other = options->other,
                                      .other_size = options->other_size,
                                      .tls = options->tls,
                                      .about = about,
                                      .cluster = node->cluster};
    const struct peers_host host = {.context = node,
                                    .received = on_received,
                                    .note = on_note,
                                    .met = on_met,
                                    .reached = on_reached,
                                    .meant = on_meant,
                                    .opened = on_opened,
                                    .why_not = on_why_not,
                                    .turned_away = on_turned_away,
                                    .ended = on_ended};

    node->links.lately_us =
        (options->election_ms < LATELY_MAX_MS ? options->election_ms : LATELY_MAX_MS) * 1000;
    snprintf(about, sizeof about, "%.*s/%s/%u",
             (int)(sizeof about - INCARNATION_DIGITS - VERSION_DIGITS - 3), options->client,
             node->identity.incarnation_text, replica_version_read());
    return peers_open(node->loop, &how, &host, &node->links.peers, err);
}

bool node_has_links(const struct node *node)
{
    return node->links.peers != NULL;
}

bool node_is_connected(const struct node *node, uint64_t id)
{
    return node->links.peers && is_connected(node, id);
}

const char *node_why(const struct node *node, uint64_t id)
{
    return peers_why(node->links.peers, id);
}

void node_forget(struct node *node, uint64_t id)
{
    peers_forget(node->links.peers, id);
}

int node_set_secrets(struct node *node, const void *secret, size_t secret_size, const void *other,
                     size_t other_size, struct error_text *err)
{
    return peers_set_secrets(node->links.peers, secret, secret_size, other, other_size, err);
}

void node_set_tls(struct node *node, struct tls_context *context)
{
    if (node->links.peers)
        peers_set_tls(node->links.peers, context);
}
