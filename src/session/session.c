/* session.c: one client: which of its commands may begin, and what is left when it goes. */
#include "base/switches.h"
#include "session/inside.h"

#include <stdlib.h>
#include <string.h>

void session_open(struct sessions *sessions, struct session *session,
                  const struct protocol *protocol, struct resp_reader *reader)
{
    session->sessions = sessions;
    session->protocol = protocol;
    session->reader = reader;
    session->references = 1;
    list_init(&session->waiters);
    list_init(&session->observers);
    list_init(&session->holders);
    list_append(&sessions->all, &session->node);
}

void session_unref(struct session *session)
{
    if (--session->references == 0)
        session->sessions->host->unused(session);
}

void session_free(struct session *session)
{
    session->protocol->closed(session);
}

/* A blocked ACQUIRE gives up its place; those that are told by pushes keep theirs as long as their
 * leases live, so that the client may come back for them. */
static void leave_places(struct session *session)
{
    if (session->blocked && !SWITCHED(SWITCH_BLOCKED_STAYS))
        waiter_leave(session->blocked);
    LIST_EACH_SAFE(node, &session->waiters)
    waiter_remove(LIST_ENTRY(node, struct waiter, of_session));
    LIST_EACH_SAFE(node, &session->observers)
    observer_drop(LIST_ENTRY(node, struct observer, of_session));
    holders_drop(session);
}

/* Only ever onwards, as in the diagram. */
static void become(struct session *session, enum session_state state)
{
    INVARIANT(session->state <= state);
    session->state = state;
}

void session_close(struct session *session)
{
    if (session_is_closed(session))
        return;
    become(session, SESSION_CLOSED);
    operation_over(session, "CLOSED the connection was closed before it began");
    leave_places(session);
    session_reads_not(session);
    list_remove(&session->node);
}

void session_heard(struct session *session)
{
    if (session->state == SESSION_OPEN)
        become(session, SESSION_HEARD);
}

void session_end(struct session *session)
{
    if (session->state < SESSION_ENDING)
        become(session, SESSION_ENDING);
    session_dirty(session);
}

/* ---- which commands begin ------------------------------------------------------------------------ */

size_t session_output_pause(const struct session *session)
{
    return session->user ? OUTPUT_PAUSE : UNAUTHENTICATED_BYTES;
}

bool session_may_begin(const struct session *session)
{
    return session->state < SESSION_ENDING && !session->exclusive &&
           session->under_way < session->sessions->max_pipeline &&
           session_unsent(session) < session_output_pause(session);
}

int session_go_on(struct session *session, struct error_text *err)
{
    int result = session->protocol->feed(session, err);

    /* All it said has been served, and it will say no more. */
    if (result == HF_OK && session->state == SESSION_HEARD && session->input != INPUT_VALUE &&
        session->under_way == 0 && session_may_begin(session))
        session_end(session);
    return result;
}

/* ---- all of them ------------------------------------------------------------------------------- */

void sessions_open(struct sessions *sessions, const struct sessions_host *host, void *context,
                   const unsigned char seed[SIPHASH_SEED])
{
    *sessions = (struct sessions){.host = host, .context = context, .role = REPLICA_FOLLOWING};
    memcpy(sessions->observers.seed, seed, SIPHASH_SEED);
    list_init(&sessions->all);
    list_init(&sessions->spare);
    list_init(&sessions->leaving);
}

void sessions_free(struct sessions *sessions)
{
    waiters_free_leaving(sessions);
    requests_free_spare(sessions);
    free(sessions->waiters.chains);
    free(sessions->observers.chains);
    free(sessions->holders.chains);
}
