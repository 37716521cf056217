/* outgoing.c: which of a node's addresses are tried, and the one connection to it that is used.
 *
 * A node may have several addresses, and nobody knows which of them are right. Each is a route with its own attempts, waits and failures: what hangs
 * at one of them keeps nobody from the others. The one that worked last has a head start. The first connection that is open
 * to whom is meant ends all other attempts, before the other side hears of them. One to somebody else with that id is used for what is to be
 * said to him, and the other routes are tried on. */
#include "peers/outgoing.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_MIN_MS 50
#define AGAIN_MAX_MS 1000
#define LASTS_MS 1000     /* a connection that is as old as this */
#define HEAD_START_MS 250 /* for the route that worked last, unless it fails */
#define STALE_MS 250      /* an attempt that is older may have begun when the node was not there */
#define STRANGER_MS \
    2000 /* so long after somebody else with its id was found, the node is looked for there again */

/* ---- notes ------------------------------------------------------------------------------------ */

static void note(const struct route *route, int level, const char *words, const char *why)
{
    const struct outgoing *outgoing = route->outgoing;

    peers_note(outgoing->peers, &(struct note){level, words, outgoing->to, route->address, why});
}

/* While one of its routes may still work, the node is not out of reach. */
static bool is_out_of_reach(const struct outgoing *outgoing)
{
    LIST_EACH(node, &outgoing->routes)
    {
        const struct route *route = LIST_ENTRY(node, struct route, node);

        if (route->is_wanted && !route->failed)
            return false;
    }
    return !outgoing->open;
}

static void complain(struct outgoing *outgoing)
{
    bool all = is_out_of_reach(outgoing);

    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        if (!route->failed || route->noted || (!all && !route->mistrusted))
            continue;
        route->noted = true;
        note(route, route->mistrusted ? 2 : 3, "a node cannot be reached", route->why);
    }
}

static void set_why(struct route *route, const char *why)
{
    size_t size = strnlen(why, WHY_MAX);

    memcpy(route->why, why, size);
    route->why[size] = '\0';
}

void route_complain(struct route *route, const char *why)
{
    set_why(route, why);
    route->failed = true;
    complain(route->outgoing);
}

void route_mistrust(struct route *route)
{
    route->noted = route->noted && route->mistrusted;
    route->mistrusted = true;
}

/* ---- ends ------------------------------------------------------------------------------------- */

static void close_route(struct route *route)
{
    struct outgoing *outgoing = route->outgoing;

    if (!route->connection)
        return;
    if (outgoing->open == route) {
        outgoing->open = NULL;
        outgoing->unsent = 0;
    }
    attempt_close(route->connection);
    route->connection = NULL;
    route->state = CLOSED;
}

static void wait_a_while(struct route *route)
{
    route->again_ms = clock_boot_ms() + route->wait_ms;
    route->wait_ms = route->wait_ms * 2 < AGAIN_MAX_MS ? route->wait_ms * 2 : AGAIN_MAX_MS;
}

void route_drop(struct route *route, const char *why)
{
    struct outgoing *outgoing = route->outgoing;
    enum route_state state = route->state;
    bool is_tried = state == CONNECTING || state == HANDSHAKE, has_next;

    if (!route->connection)
        return;
    has_next = is_tried && numbers_next(&route->numbers, &route->connection->number);
    close_route(route);
    set_why(route, why ? why : "");
    if (has_next && !route->mistrusted)
        return; /* to be tried at once */
    wait_a_while(route);
    if (!why)
        return;
    route->failed = true;
    complain(outgoing);
    if (state == OPEN)
        peers_ended(outgoing->peers, outgoing->to);
}

static void remove_route(struct route *route)
{
    struct outgoing *outgoing = route->outgoing;

    close_route(route);
    names_abandon(route);
    if (outgoing->best == route)
        outgoing->best = NULL;
    list_remove(&route->node);
    free(route);
}

/* ---- one that is open ------------------------------------------------------------------------- */

/* To whom is meant, as far as the host knows. */
static bool is_meant(const struct route *route)
{
    const struct outgoing *outgoing = route->outgoing;
    const struct peers_host *host = &outgoing->peers->host;

    return !host->meant ||
           host->meant(host->context, outgoing->to, route->connection->handshake.about);
}

static bool is_there(const struct outgoing *outgoing)
{
    return outgoing->open && is_meant(outgoing->open);
}

static bool is_wanted_by_host(const struct route *route)
{
    const struct peers_host *host = &route->outgoing->peers->host;
    const struct handshake *handshake = &route->connection->handshake;
    const struct peers_node node = {handshake->to, handshake->about, handshake->cluster,
                                    route->address, ""};

    return !host->reached || host->reached(host->context, &node);
}

/* It is found: nobody looks for it any more. */
static void end_others(struct outgoing *outgoing)
{
    outgoing->best = outgoing->open;
    outgoing->begun_ms = 0;
    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        route->failed = false;
        if (route != outgoing->open)
            close_route(route);
    }
}

bool route_open(struct route *route)
{
    struct outgoing *outgoing = route->outgoing;
    const struct connection *connection = route->connection;

    if (!is_wanted_by_host(route)) {
        if (connection->route)
            route_drop(route, NULL); /* the host knows why */
        return false;
    }
    if (!connection->route) /* the host has closed everything */
        return false;
    if (outgoing->open && (is_there(outgoing) || !is_meant(route))) {
        route_drop(route, NULL);
        return false;
    }
    if (outgoing->open)
        route_drop(outgoing->open, NULL);
    route->state = OPEN;
    route->why[0] = '\0';
    outgoing->open = route;
    outgoing->is_new = true;
    outgoing->open_ms = clock_boot_ms();
    outgoing->unsent = 0;
    if (is_meant(route)) {
        numbers_keep(&route->numbers, &route->connection->number);
        end_others(outgoing);
    }
    return true;
}

/* One that does not want this node closes the connection when it knows who it is: only what lasts is a connection. */
static void welcome(struct outgoing *outgoing)
{
    bool was_noted = false;

    if (clock_boot_ms() - outgoing->open_ms < LASTS_MS || !is_there(outgoing))
        return;
    outgoing->is_new = false;
    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        was_noted = was_noted || route->noted;
        route->noted = route->mistrusted = false;
        route->wait_ms = AGAIN_MIN_MS;
    }
    if (was_noted)
        note(outgoing->open, 3, "a node is there again", NULL);
}

/* ---- all of them ------------------------------------------------------------------------------ */

static struct outgoing *find(struct peers *peers, uint64_t to)
{
    LIST_EACH(node, &peers->outgoing)
    {
        struct outgoing *outgoing = LIST_ENTRY(node, struct outgoing, node);

        if (outgoing->to == to)
            return outgoing;
    }
    return NULL;
}

static struct outgoing *find_or_make(struct peers *peers, uint64_t to)
{
    struct outgoing *outgoing = find(peers, to);

    if (outgoing)
        return outgoing;
    outgoing = calloc(1, sizeof *outgoing);
    if (!outgoing)
        return NULL;
    outgoing->peers = peers;
    outgoing->to = to;
    list_init(&outgoing->routes);
    list_append(&peers->outgoing, &outgoing->node);
    return outgoing;
}

static struct route *find_route(const struct outgoing *outgoing, const char *address)
{
    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        if (strcmp(route->address, address) == 0)
            return route;
    }
    return NULL;
}

static void want_route(struct outgoing *outgoing, const char *address)
{
    struct route *route = find_route(outgoing, address);

    if (!route) {
        route = strlen(address) <= PEERS_ADDRESS_MAX ? calloc(1, sizeof *route) : NULL;
        if (!route)
            return;
        memcpy(route->address, address, strlen(address) + 1);
        route->outgoing = outgoing;
        route->wait_ms = AGAIN_MIN_MS;
        list_append(&outgoing->routes, &route->node);
    }
    route->is_wanted = true;
}

static void want_routes(struct outgoing *outgoing, const char *const *addresses, unsigned count)
{
    LIST_EACH(node, &outgoing->routes)
    LIST_ENTRY(node, struct route, node)->is_wanted = false;
    for (unsigned i = 0; i < count; i++)
        want_route(outgoing, addresses[i]);
}

/* What is under way elsewhere may come to its end. */
static void remove_unwanted(const struct outgoing *outgoing)
{
    LIST_EACH_SAFE(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        if (!route->is_wanted && !route->connection)
            remove_route(route);
    }
}

static bool has_turn(const struct outgoing *outgoing, const struct route *route)
{
    const struct route *best = outgoing->best;

    return !best || route == best || best->failed || !best->is_wanted || outgoing->open ||
           clock_boot_ms() - outgoing->begun_ms >= HEAD_START_MS;
}

/* What has led to somebody else with that id may lead to the right one by now, or by another of its numbers. */
static void leave_stranger(struct outgoing *outgoing)
{
    if (!outgoing->open || clock_boot_ms() - outgoing->open_ms < STRANGER_MS)
        return;
    numbers_next(&outgoing->open->numbers, &outgoing->open->connection->number);
    route_drop(outgoing->open, NULL);
}

void peers_dial(struct peers *peers, uint64_t to, const char *const *addresses, unsigned count)
{
    struct outgoing *outgoing = peers->stopped ? NULL : find_or_make(peers, to);

    if (!outgoing || is_there(outgoing))
        return;
    leave_stranger(outgoing);
    want_routes(outgoing, addresses, count);
    if (outgoing->begun_ms == 0)
        outgoing->begun_ms = clock_boot_ms();
    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        if (route->is_wanted && !route->connection && has_turn(outgoing, route))
            attempt_begin(route);
    }
    remove_unwanted(outgoing);
}

void peers_dial_only(struct peers *peers, uint64_t to, const char *address)
{
    const struct outgoing *outgoing = find(peers, to);

    if (outgoing)
        LIST_EACH_SAFE(node, &outgoing->routes)
        {
            struct route *route = LIST_ENTRY(node, struct route, node);

            if (strcmp(route->address, address) != 0)
                remove_route(route);
        }
    peers_dial(peers, to, &address, 1);
}

/* A try to connect that began before is not waited for: the kernel says it again only after a second, then two, then four. Nor is one of
 * another number than that where the node is. */
static void begin_anew(struct route *route, const struct sockaddr_storage *from)
{
    bool is_tried = route->state == CONNECTING || route->state == HANDSHAKE;

    route->again_ms = 0;
    if (!is_tried) {
        numbers_return(&route->numbers, from);
        return;
    }
    if (clock_boot_ms() - route->connection->begun_ms < STALE_MS)
        return;
    if (numbers_return(&route->numbers, from) ||
        (route->state == CONNECTING && route->numbers.count == 1))
        close_route(route);
}

void outgoing_is_there(struct peers *peers, uint64_t id, const struct sockaddr_storage *from)
{
    const struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        LIST_EACH(node, &outgoing->routes)
    begin_anew(LIST_ENTRY(node, struct route, node), from);
}

int outgoing_find_open(struct peers *peers, uint64_t to, size_t size,
                       struct outgoing **ret_outgoing)
{
    struct outgoing *outgoing = peers->stopped ? NULL : find(peers, to);

    if (!outgoing || !outgoing->open)
        return HF_EUNREACH;
    if (outgoing->is_new)
        welcome(outgoing);
    if (size > PEERS_MESSAGE_MAX ||
        (outgoing->unsent > 0 && outgoing->unsent + size > PEERS_UNSENT_MAX))
        return HF_EBUSY;
    *ret_outgoing = outgoing;
    return HF_OK;
}

const char *peers_about(struct peers *peers, uint64_t id)
{
    const struct outgoing *outgoing = find(peers, id);

    return outgoing && outgoing->open ? outgoing->open->connection->handshake.about : NULL;
}

const char *peers_why(struct peers *peers, uint64_t id)
{
    const struct outgoing *outgoing = find(peers, id);

    if (outgoing && !outgoing->open)
        LIST_EACH(node, &outgoing->routes)
        {
            const struct route *route = LIST_ENTRY(node, struct route, node);

            if (route->is_wanted && route->why[0])
                return route->why;
        }
    return "";
}

static void forget(struct outgoing *outgoing)
{
    LIST_EACH_SAFE(node, &outgoing->routes)
    remove_route(LIST_ENTRY(node, struct route, node));
    list_remove(&outgoing->node);
    free(outgoing);
}

void peers_forget(struct peers *peers, uint64_t id)
{
    struct outgoing *outgoing = find(peers, id);

    if (outgoing)
        forget(outgoing);
    incoming_close_from(peers, id);
}

static void handshake_again(const struct outgoing *outgoing)
{
    LIST_EACH(node, &outgoing->routes)
    {
        struct route *route = LIST_ENTRY(node, struct route, node);

        close_route(route);
        route->again_ms = 0;
    }
}

void outgoing_handshake_again(struct peers *peers)
{
    LIST_EACH(node, &peers->outgoing)
    handshake_again(LIST_ENTRY(node, struct outgoing, node));
}

void outgoing_close_all(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->outgoing)
    forget(LIST_ENTRY(node, struct outgoing, node));
    names_close(peers);
}
