/* known.c: what this node knows of others: what they say of themselves, and where they may be. */
#include "node/inside.h"

#include <stdio.h>
#include <string.h>

/* ---- what others say of themselves: "CLIENT/INCARNATION/VERSION" ----------------------------- */

/* Where the incarnation begins; NULL: it says something else. */
static const char *incarnation_at(const char *about)
{
    const char *slash = strrchr(about, '/');

    if (!slash || slash - about < INCARNATION_DIGITS + 1 || slash[-INCARNATION_DIGITS - 1] != '/')
        return NULL;
    return slash - INCARNATION_DIGITS;
}

uint64_t about_incarnation(const char *about)
{
    const char *at = incarnation_at(about);

    return at ? incarnation_parse(at) : 0;
}

uint32_t about_version(const char *about)
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

void about_client(const char *about, char ret_client[PEERS_ABOUT_MAX + 1])
{
    const char *at = incarnation_at(about);

    snprintf(ret_client, PEERS_ABOUT_MAX + 1, "%.*s", at ? (int)(at - 1 - about) : 0, about);
}

const struct replica_member *known_member(const struct node *node, uint64_t id)
{
    const struct replica_config *members = replica_members(node->replica);

    for (int i = 0; i < members->count; i++)
        if (members->at[i].id == id)
            return &members->at[i];
    return NULL;
}

/* ---- who has come ----------------------------------------------------------------------------- */

const struct known *known_find(const struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < KNOWN_MAX; i++)
        if (node->links.known[i].id == id)
            return &node->links.known[i];
    return NULL;
}

/* For one more: in place of one that is no member. There are more places than members. */
static struct known *room_for_known(struct node *node)
{
    struct known *oldest = NULL;

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        struct known *known = &node->links.known[i];

        if (!known_member(node, known->id) && (!oldest || known->heard_us < oldest->heard_us))
            oldest = known;
    }
    INVARIANT(oldest != NULL);
    return oldest;
}

struct known *known_note(struct node *node, uint64_t id, const char *about, const char *address)
{
    const struct replica_member *member = known_member(node, id);
    struct known *known = (struct known *)known_find(node, id);
    uint64_t incarnation = about_incarnation(about);

    if (known && known->incarnation != incarnation) {
        if (member && member->incarnation == known->incarnation)
            return NULL;
        known->in_log[0] = '\0';
    }
    if (!known) {
        known = room_for_known(node);
        *known = (struct known){.id = id};
    }
    known->incarnation = incarnation;
    snprintf(known->address, sizeof known->address, "%s", address);
    known->heard_us = node_now_us();
    return known;
}

int64_t node_silent_ms(const struct node *node, uint64_t id)
{
    const struct known *known = known_find(node, id);

    return known ? (node_now_us() - known->heard_us) / 1000 : -1;
}

bool known_is_right(const struct node *node, uint64_t id, const char *about)
{
    const struct replica_member *member = known_member(node, id);
    const struct known *known = known_find(node, id);

    if (!member && !known)
        return true;
    return about_incarnation(about) == (member ? member->incarnation : known->incarnation);
}

/* ---- where it may be --------------------------------------------------------------------------- */

static void add_address(struct addresses *addresses, const char *address)
{
    if (!address || !address[0])
        return;
    for (unsigned i = 0; i < addresses->count; i++)
        if (strcmp(addresses->at[i], address) == 0)
            return;
    INVARIANT(addresses->count < ADDRESSES_MAX);
    addresses->at[addresses->count++] = address;
}

struct addresses known_addresses(const struct node *node, uint64_t id, const char *given)
{
    const struct replica_member *member = known_member(node, id);
    const struct known *known = known_find(node, id);
    struct addresses addresses = {.count = 0};

    if (member)
        add_address(&addresses, member->address);
    add_address(&addresses, given);
    if (known && (!member || member->incarnation == known->incarnation)) {
        add_address(&addresses, known->address);
        add_address(&addresses, known->in_log);
    }
    return addresses;
}
