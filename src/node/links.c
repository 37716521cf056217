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
/* Without a connection, until the other one of two addresses is tried. Longer than a handshake takes. */
#define OTHER_ADDRESS_US 3000000
#define DIAL_US 50000 /* connections with members that are not there are tried so often */

_Static_assert(CLUSTER_ID_DIGITS == PEERS_CLUSTER, "one length");
_Static_assert(PEERS_PIECES_MAX >= MESSAGE_PIECES_MAX, "a replica's message");
_Static_assert(REPLICA_VERSION_MAX <= 999, "VERSION_DIGITS");

/* ---- what others say of themselves: "CLIENT/INCARNATION/VERSION" ----------------------------- */

/* Where the incarnation begins; NULL: it says something else. */
static const char *incarnation_at(const char *about)
{
    const char *slash = strrchr(about, '/');

    if (!slash || slash - about < INCARNATION_DIGITS + 1 || slash[-INCARNATION_DIGITS - 1] != '/')
        return NULL;
    return slash - INCARNATION_DIGITS;
}

static uint64_t incarnation_in(const char *about)
{
    const char *at = incarnation_at(about);

    return at ? incarnation_parse(at) : 0;
}

/* The newest version of the formats that it reads; 0: it does not say. */
static uint32_t version_in(const char *about)
{
    const char *at = incarnation_at(about);
    uint32_t version = 0;

    if (!at)
        return 0;
    for (at += INCARNATION_DIGITS + 1; *at >= '0' && *at <= '9' && version <= REPLICA_VERSION_MAX;
         at++)
        version = version * 10 + (uint32_t)(*at - '0');
    return *at == '\0' && version <= REPLICA_VERSION_MAX ? version : 0;
}

static void client_in(const char *about, char ret_client[PEERS_ABOUT_MAX + 1])
{
    const char *at = incarnation_at(about);

    snprintf(ret_client, PEERS_ABOUT_MAX + 1, "%.*s", at ? (int)(at - 1 - about) : 0, about);
}

static const struct replica_member *find_member(const struct node *node, uint64_t id)
{
    const struct replica_config *members = replica_members(node->replica);

    for (int i = 0; i < members->count; i++)
        if (members->at[i].id == id)
            return &members->at[i];
    return NULL;
}

/* The members know this node with other data: it would be counted for one that has acknowledged more. */
static bool is_another(struct node *node)
{
    const struct replica_member *own = find_member(node, node->id);
    bool before = node->links.is_another;

    node->links.is_another = own && own->incarnation != node->identity.incarnation;
    if (node->links.is_another && !before)
        node->host.peer_note(node->host.context, &(struct note){.level = 1, .words = NODE_LOST});
    return node->links.is_another;
}

/* ---- who has come ----------------------------------------------------------------------------- */

static struct known *known_of(struct node *node, uint64_t id)
{
    struct known *oldest = &node->links.known[0];

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        struct known *known = &node->links.known[i];

        if (known->id == id)
            return known;
        if (known->heard_us < oldest->heard_us)
            oldest = known;
    }
    *oldest = (struct known){.id = id};
    return oldest;
}

static const struct known *find_known(const struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < KNOWN_MAX; i++)
        if (node->links.known[i].id == id)
            return &node->links.known[i];
    return NULL;
}

int64_t node_silent_ms(const struct node *node, uint64_t id)
{
    const struct known *known = find_known(node, id);

    return known ? (node_now_us() - known->heard_us) / 1000 : -1;
}

/* ---- to others -------------------------------------------------------------------------------- */

/* To nobody in place of whom it is meant for. */
static bool is_meant(const struct node *node, uint64_t to)
{
    const struct replica_member *member = find_member(node, to);
    const char *about = peers_about(node->links.peers, to);

    return !member || !about || incarnation_in(about) == member->incarnation;
}

/* Who has said where it is. NULL: it has not, or another one with its id has. */
static struct known *known_by_word(struct node *node, uint64_t id)
{
    const struct replica_member *member = find_member(node, id);

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        struct known *known = &node->links.known[i];

        if (known->id == id && known->address[0] &&
            (!member || member->incarnation == known->incarnation))
            return known;
    }
    return NULL;
}

/* Where a node is. address: as the log has it so far, which may be from before it had one (then it is empty), or had another one; NULL: it is
 * no member that this node knows. What it says of itself may be another one, and need not be right: a connection that works is kept,
 * and while there is none the two are tried in turn. NULL: nobody knows. */
static const char *address_of(struct node *node, uint64_t id, const char *address)
{
    struct known *known = known_by_word(node, id);

    if (!known)
        return address && address[0] ? address : NULL;
    if (!address || !address[0])
        known->goes_by_word = true;
    return known->goes_by_word ? known->address : address;
}

static void try_other_address(struct node *node, uint64_t id, int64_t now_us)
{
    struct known *known = known_by_word(node, id);

    if (!known)
        return;
    if (peers_about(node->links.peers, id)) {
        known->tried_us = 0;
    } else if (known->tried_us == 0) {
        known->tried_us = now_us;
    } else if (now_us - known->tried_us >= OTHER_ADDRESS_US) {
        known->tried_us = now_us;
        known->goes_by_word = !known->goes_by_word;
    }
}

void links_send(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                unsigned count)
{
    struct node *node = context;

    if (!node->links.peers || is_another(node) || !is_meant(node, to))
        return;
    address = address_of(node, to, address);
    if (address)
        peers_send(node->links.peers, to, address, pieces, count);
}

bool node_say(struct node *node, uint64_t to, const char *address, const char *text)
{
    char mark = WORDS_MARK;
    struct iovec pieces[2] = {{&mark, 1}, {(void *)(uintptr_t)text, strlen(text)}};

    INVARIANT(pieces[1].iov_len <= NODE_WORDS_MAX);
    return peers_send(node->links.peers, to, address, pieces, 2) == HF_OK;
}

/* All members have connections to all others, or try to: what is said first, to be elected, would be lost otherwise. */
static bool dial(struct node *node, int64_t now_us)
{
    const struct replica_config *members = replica_members(node->replica);
    bool all = true;

    for (int i = 0; i < members->count; i++) {
        const char *address;

        if (members->at[i].id == node->id)
            continue;
        try_other_address(node, members->at[i].id, now_us);
        address = address_of(node, members->at[i].id, members->at[i].address);
        if (!address) {
            all = false;
            continue;
        }
        peers_dial(node->links.peers, members->at[i].id, address);
        all = all && peers_about(node->links.peers, members->at[i].id) != NULL;
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
    return dial(node, now_us) ? NEVER_US : now_us + DIAL_US;
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
        !replica_received(node->replica, message->from, incarnation_in(message->about),
                          message->bytes, message->size, now_us))
        node->host.peer_note(
            node->host.context,
            &(struct note){.level = 2,
                           .words =
                               "a message from a node cannot be read: is it of another version?",
                           .node = message->from,
                           .peer = message->address});
}

static void on_words(struct node *node, const struct peers_message *message)
{
    char text[NODE_WORDS_MAX + 1];
    size_t size = message->size - 1;

    if (size > NODE_WORDS_MAX)
        return;
    memcpy(text, (const char *)message->bytes + 1, size);
    text[size] = '\0';
    node->host.heard(node->host.context, &(struct node_words){.from = message->from,
                                                              .version = version_in(message->about),
                                                              .address = message->address,
                                                              .cluster = message->cluster,
                                                              .text = text});
}

static void on_received(void *context, const struct peers_message *message)
{
    struct node *node = context;
    int64_t now_us = node_now_us();
    struct known *known;

    if (!node->closing && node->replica) {
        known = known_of(node, message->from);
        snprintf(known->address, sizeof known->address, "%s", message->address);
        known->incarnation = incarnation_in(message->about);
        known->heard_us = now_us;
        if (message->size > 0 && *(const char *)message->bytes == WORDS_MARK)
            on_words(node, message);
        else
            on_message(node, message, now_us);
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
    const struct known *known = find_known(node, member->id);

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
    const struct replica_member *member = find_member(node, peer->id);
    const char *about;

    if (!member || incarnation_in(peer->about) == member->incarnation)
        return false;
    about = peers_about(node->links.peers, peer->id);
    if (about && incarnation_in(about) == member->incarnation) {
        note_stray(node, peer);
        return true;
    }
    return was_there(node, member);
}

static bool on_met(void *context, const struct peers_node *peer)
{
    struct node *node = context;
    char client[PEERS_ABOUT_MAX + 1];

    client_in(peer->about, client);
    node->links.is_stray = node->replica && !node->closing && is_stray(node, peer);
    return node->replica && !node->closing && !node->links.is_stray &&
           node->host.met(node->host.context,
                          &(struct node_peer){.id = peer->id,
                                              .incarnation = incarnation_in(peer->about),
                                              .version = version_in(peer->about),
                                              .client = client,
                                              .cluster = peer->cluster});
}

static bool on_reached(void *context, const struct peers_node *peer)
{
    struct node *node = context;
    const struct replica_member *member = node->replica ? find_member(node, peer->id) : NULL;

    peers_set_guarded(node->links.peers, peer->id,
                      member && member->incarnation != incarnation_in(peer->about));
    return on_met(context, peer);
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
                                      .about = about,
                                      .cluster = node->cluster};
    const struct peers_host host = {.context = node,
                                    .received = on_received,
                                    .note = on_note,
                                    .met = on_met,
                                    .reached = on_reached,
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
    return node->links.peers && peers_about(node->links.peers, id) != NULL;
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
