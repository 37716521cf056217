/* names.c: the numbers behind a node's name. A thread of its own looks for them (net/lookup.h), one for each name: a name server that does not
 * answer keeps nobody waiting but whoever is behind that name, and takes no thread from the disk. */
#include "base/error.h"
#include "net/lookup.h"
#include "peers/outgoing.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEARCHES_MAX 64u /* that are under way, also for whom nobody wants any more */

struct search {
    struct list node;
    struct peers *peers;
    struct route *route; /* NULL: nobody waits for it */
    uv_poll_t poll;
    struct address address;
    struct lookup *lookup;
};

/* ---- numbers ---------------------------------------------------------------------------------- */

const struct sockaddr *numbers_current(const struct numbers *numbers)
{
    INVARIANT(numbers->turn < numbers->count);
    return (const struct sockaddr *)&numbers->at[numbers->turn];
}

bool numbers_next(struct numbers *numbers, const struct sockaddr_storage *tried)
{
    if (numbers->count == 0)
        return false;
    if (memcmp(numbers_current(numbers), tried, sizeof *tried) == 0)
        numbers->turn = (numbers->turn + 1) % numbers->count;
    if (++numbers->tried < numbers->count)
        return true;
    numbers->tried = 0;
    return false;
}

void numbers_keep(struct numbers *numbers, const struct sockaddr_storage *number)
{
    numbers->tried = 0;
    numbers->worked = *number;
}

/* Of the machine, whichever port it is: of IPv6, that of IPv4 also as a listener of both sees it. */
static bool machine_of(const struct sockaddr_storage *number, struct in6_addr *ret_machine)
{
    const struct sockaddr_in *four = (const void *)number;
    const struct sockaddr_in6 *six = (const void *)number;

    *ret_machine = (struct in6_addr){.s6_addr[10] = 0xff, .s6_addr[11] = 0xff};
    if (number->ss_family == AF_INET)
        memcpy(&ret_machine->s6_addr[12], &four->sin_addr, sizeof four->sin_addr);
    else if (number->ss_family == AF_INET6)
        *ret_machine = six->sin6_addr;
    return number->ss_family == AF_INET || number->ss_family == AF_INET6;
}

static bool same_machine(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    struct in6_addr a, b;

    return machine_of(one, &a) && machine_of(other, &b) && memcmp(&a, &b, sizeof a) == 0;
}

static unsigned find_machine(const struct numbers *numbers, const struct sockaddr_storage *number)
{
    unsigned i = 0;

    while (i < numbers->count && !same_machine(&numbers->at[i], number))
        i++;
    return i;
}

bool numbers_return(struct numbers *numbers, const struct sockaddr_storage *from)
{
    unsigned i = find_machine(numbers, from);

    if (i == numbers->count)
        i = find_machine(numbers, &numbers->worked);
    if (i == numbers->count || i == numbers->turn)
        return false;
    numbers->turn = i;
    numbers->tried = 0;
    return true;
}

static size_t size_of(const struct addrinfo *found)
{
    if (found->ai_family == AF_INET)
        return sizeof(struct sockaddr_in);
    return found->ai_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

/* The turn stays where it was, in whatever order they come: some name servers turn them round each time. Others name a few of many: whose turn
 * has come because another one failed is tried even if he is not named now, or each answer would begin with the one that failed. */
static void take_numbers(struct numbers *numbers, const struct addrinfo *found)
{
    struct numbers fresh = {.tried = numbers->tried, .worked = numbers->worked};
    bool is_there = false;

    for (; found && fresh.count < NUMBERS_MAX; found = found->ai_next) {
        struct sockaddr_storage *at = &fresh.at[fresh.count];

        if (size_of(found) == 0)
            continue;
        memcpy(at, found->ai_addr, size_of(found));
        if (!is_there && numbers->count > 0 &&
            memcmp(at, &numbers->at[numbers->turn], sizeof *at) == 0) {
            fresh.turn = fresh.count;
            is_there = true;
        }
        fresh.count++;
    }
    if (fresh.count == 0)
        return;
    if (!is_there && fresh.tried > 0 && fresh.count < NUMBERS_MAX) {
        fresh.turn = fresh.count;
        fresh.at[fresh.count++] = numbers->at[numbers->turn];
    }
    if (fresh.tried >= fresh.count)
        fresh.tried = fresh.count - 1; /* the last of this round */
    *numbers = fresh;
}

/* ---- searching -------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct search *search = handle->data;
    struct peers *peers = search->peers;

    free(search);
    peers_release(peers);
}

static void end(struct search *search)
{
    if (search->route)
        search->route->search = NULL;
    search->route = NULL;
    list_remove(&search->node);
    search->peers->searches_count--;
    uv_close((uv_handle_t *)&search->poll, on_closed);
    lookup_end(search->lookup);
}

static void on_found(uv_poll_t *poll, int status, int events)
{
    struct search *search = poll->data;
    struct route *route = search->route;
    const struct addrinfo *found = NULL;
    struct error_text err = {""};
    int result = lookup_result(search->lookup, &found, &err);

    (void)status;
    (void)events;
    if (result == LOOKUP_AGAIN)
        return;
    if (route && result == HF_OK)
        take_numbers(&route->numbers, found);
    end(search);
    if (route)
        attempt_resolved(route, result == HF_OK ? NULL : err.text);
}

static bool watch(struct search *search)
{
    if (uv_poll_init(search->peers->loop, &search->poll, lookup_fd(search->lookup)) != 0)
        return false;
    search->poll.data = search;
    INVARIANT(uv_poll_start(&search->poll, UV_READABLE, on_found) == 0);
    return true;
}

bool names_search(struct route *route, const struct peer_address *address)
{
    struct peers *peers = route->outgoing->peers;
    struct search *search;
    struct error_text err;

    if (route->search)
        return true;
    search = peers->searches_count < SEARCHES_MAX ? calloc(1, sizeof *search) : NULL;
    if (!search)
        return false;
    snprintf(search->address.host, sizeof search->address.host, "%s", address->host);
    snprintf(search->address.port, sizeof search->address.port, "%s", address->port);
    snprintf(search->address.shown, sizeof search->address.shown, "%s", address->host);
    search->peers = peers;
    if (lookup_begin(&search->address, &search->lookup, &err) != HF_OK) {
        free(search);
        return false;
    }
    if (!watch(search)) {
        lookup_end(search->lookup);
        free(search);
        return false;
    }
    peers_hold(peers);
    peers->searches_count++;
    list_append(&peers->searches, &search->node);
    search->route = route;
    route->search = search;
    return true;
}

void names_abandon(struct route *route)
{
    if (route->search)
        route->search->route = NULL;
    route->search = NULL;
}

void names_close(struct peers *peers)
{
    LIST_EACH_SAFE(node, &peers->searches)
    end(LIST_ENTRY(node, struct search, node));
}
