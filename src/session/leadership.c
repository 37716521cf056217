/* leadership.c: who is blocked when this node leads no more, leads again, or stops.
 *
 * With a new term the time of all leases begins, and only an ACQUIRE in that term keeps the one of somebody who waits from running. So
 * whoever is blocked here when this node is deposed has to come anew, whoever leads next:
 *
 *     LEADING ──deposed──▶ blocked ones wait ──another leads and is known──▶ MOVED to it
 *                                  ├──────────this node leads again────────▶ TRYAGAIN
 *                                  └──────────NEXT_LEADER_MS───────────────▶ TRYAGAIN */
#include "base/switches.h"
#include "session/inside.h"

#include <stdio.h>

#define NEXT_LEADER_MS 1000 /* those who are blocked wait so long to hear who leads now */

const char *sessions_not_leading(struct sessions *sessions, char *ret_text, size_t size)
{
    char address[CORE_ADDRESS_MAX + 1];

    if (sessions->stopped_why[0])
        snprintf(ret_text, size, "STOPPED %s", sessions->stopped_why);
    else if (sessions->host->leader_address(sessions->context, address, sizeof address))
        snprintf(ret_text, size, "MOVED 0 %s", address);
    else if (sessions->stopping)
        snprintf(ret_text, size, "TRYAGAIN the server is being stopped");
    else if (sessions->role == REPLICA_LEADING)
        snprintf(ret_text, size, "TRYAGAIN this node did not lead for a moment");
    else
        snprintf(ret_text, size, "TRYAGAIN %s", sessions->host->why_no_leader(sessions->context));
    return ret_text;
}

static void answer_all_blocked(struct sessions *sessions)
{
    char text[ERROR_TEXT_MAX + 32];

    sessions_not_leading(sessions, text, sizeof text);
    LIST_EACH_SAFE(node, &sessions->all)
    {
        struct session *session = LIST_ENTRY(node, struct session, node);
        struct waiter *blocked = session->blocked;

        if (blocked) {
            struct request *request = blocked->request;

            blocked->request = NULL;
            waiter_remove(blocked);
            request_fail(request, text);
        }
        /* What was to be pushed will be pushed by another node: they have to come anew. */
        if (session->waiting || session->observing)
            session_end(session);
    }
}

static void send_on(struct sessions *sessions)
{
    sessions->deposed = false;
    if (!SWITCHED(SWITCH_BLOCKED_UNKEPT) || sessions->role != REPLICA_LEADING)
        answer_all_blocked(sessions);
}

void sessions_role(struct sessions *sessions, enum replica_role role, int64_t now_ms)
{
    enum replica_role before = sessions->role;

    sessions->role = role;
    if (role == REPLICA_LEADING) {
        if (sessions->deposed) /* it has lost an election meanwhile, and won another */
            send_on(sessions);
    } else if (before == REPLICA_LEADING) {
        sessions->deposed = true;
        sessions->deposed_ms = now_ms;
    }
}

/* Or has waited for it long enough. */
static bool knows_where_to(const struct sessions *sessions, int64_t now_ms)
{
    char address[CORE_ADDRESS_MAX + 1];

    return sessions->host->leader_address(sessions->context, address, sizeof address) ||
           now_ms - sessions->deposed_ms >= NEXT_LEADER_MS;
}

void sessions_look(struct sessions *sessions, int64_t now_ms)
{
    if (sessions->deposed && knows_where_to(sessions, now_ms))
        send_on(sessions);
}

void sessions_stopped(struct sessions *sessions, const char *why)
{
    snprintf(sessions->stopped_why, sizeof sessions->stopped_why, "%s", why);
    answer_all_blocked(sessions);
}

void sessions_stopping(struct sessions *sessions)
{
    sessions->stopping = true;
    answer_all_blocked(sessions);
}
