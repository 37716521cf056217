/* hearing.c: what clients send, and when it is listened to.
 *
 * Their sockets are in an epoll set of their own, which the loop watches like one more socket. So the loop can stop its ears:
 * while it has no use for what clients say, none of their packets wakes it, and then it hears them all together.
 *
 * The set is edge-triggered: the kernel looks at a socket when something has come, and not a second time to find that all has been
 * read. It tells of each thing once, in the order in which they came, so that nothing of it may be lost:
 *  1. Whatever is fetched is served.
 *  2. Who asks for other events than before is told of what is there already.
 *  3. Who has not read all that has come asks again. One that read less than it had room for has read all, except for the end of
 *     what the client sends: that is why EPOLLRDHUP is asked for together with EPOLLIN. */
#include "server/log.h"
#include "server/server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define HEARD_AT_ONCE 16
#define HEARINGS_MAX 256 /* in a row: the log is to have its turn */

static void on_heard(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    hearing_hear(handle->data);
}

void hearing_open(struct server *server)
{
    struct hearing *hearing = &server->hearing;

    list_init(&hearing->gone);
    hearing->fd = epoll_create1(EPOLL_CLOEXEC);
    INVARIANT(hearing->fd >= 0 && uv_poll_init(server->loop, &hearing->ear, hearing->fd) == 0);
    hearing->ear.data = server;
    uv_poll_start(&hearing->ear, UV_READABLE, on_heard);
}

/* Closing a socket takes it out of the set; but events of it may have been fetched already. */
void hearing_forget(struct connection *connection)
{
    close(connection->fd);
    list_append(&connection->server->hearing.gone, &connection->node);
}

static void bury(struct hearing *hearing)
{
    while (!list_empty(&hearing->gone)) {
        struct connection *connection = LIST_ENTRY(hearing->gone.next, struct connection, node);

        list_remove(&connection->node);
        connection_unref(connection);
    }
}

static void on_ear_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;

    close(server->hearing.fd);
}

void hearing_close(struct server *server)
{
    bury(&server->hearing);
    resp_spare_free(&server->hearing.spare);
    uv_close((uv_handle_t *)&server->hearing.ear, on_ear_closed);
}

static void tell_kernel(struct connection *connection, int op)
{
    struct epoll_event event = {.events = connection->asked | EPOLLET, .data.ptr = connection};

    if (epoll_ctl(connection->server->hearing.fd, op, connection->fd, &event) != 0) {
        log_limited(LOG_LEVEL_WARNING, 10, "closed a client that cannot be listened to",
                    log_text("client", connection->address), log_text("why", strerror(errno)));
        connection_close(connection);
    }
}

void hearing_ask(struct connection *connection, uint32_t events)
{
    uint32_t before = connection->asked;

    if (events == before)
        return;
    connection->asked = events;
    tell_kernel(connection, before == 0 ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
}

void hearing_ask_again(struct connection *connection)
{
    if (!connection->closed && connection->asked)
        tell_kernel(connection, EPOLL_CTL_MOD);
}

/* Half of those who speak are enough for an entry, and the others are heard while it is on its way: first of all then, since they
 * came first. */
void hearing_hear(struct server *server)
{
    struct hearing *hearing = &server->hearing;
    struct epoll_event events[HEARD_AT_ONCE];
    int count = HEARD_AT_ONCE;

    for (int turn = 0; turn < HEARINGS_MAX && count == HEARD_AT_ONCE; turn++) {
        if (replica_has_enough(server->replica))
            break;
        count = epoll_wait(hearing->fd, events, HEARD_AT_ONCE, 0);
        for (int i = 0; i < count; i++)
            connection_event(events[i].data.ptr, events[i].events);
        bury(hearing);
    }
}

void hearing_deafen(struct server *server, bool deaf)
{
    struct hearing *hearing = &server->hearing;

    if (hearing->deaf == deaf)
        return;
    hearing->deaf = deaf;
    if (deaf)
        uv_poll_stop(&hearing->ear);
    else
        uv_poll_start(&hearing->ear, UV_READABLE, on_heard);
}
