/* client_poll.c: what clients send, and when it is listened to.
 *
 * Their sockets are in an epoll set of their own, which the loop watches like one more socket. So the loop can pause them:
 * while a leader has no use for what clients send, none of their packets wakes it, and then it reads them all together.
 *
 * The set is edge-triggered: the kernel looks at a socket when something has come, and not a second time to find that all has been
 * read. It tells of each thing once, in the order in which they came, so that nothing of it may be lost:
 *  1. Whatever is fetched is served.
 *  2. Who asks for other events than before is told of what is there already.
 *  3. Who has not read all that has come asks again. One that read less than it had room for has read all, except for the end of
 *     what the client sends: that is why EPOLLRDHUP is asked for together with EPOLLIN. */
#include "server/client_poll.h"
#include "server/connection.h"
#include "server/log.h"
#include "server/server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 16
#define POLLS_MAX 256 /* in a row: the log is to have its turn */

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    client_poll_read(handle->data);
}

void client_poll_open(struct server *server)
{
    struct client_poll *poll = &server->client_poll;

    list_init(&poll->gone);
    poll->fd = epoll_create1(EPOLL_CLOEXEC);
    INVARIANT(poll->fd >= 0 && uv_poll_init(server->loop, &poll->handle, poll->fd) == 0);
    poll->handle.data = server;
    uv_poll_start(&poll->handle, UV_READABLE, on_readable);
}

/* Closing a socket takes it out of the set; but events of it may have been fetched already. */
void client_poll_forget(struct connection *connection)
{
    close(connection->fd);
    list_append(&connection->server->client_poll.gone, &connection->session.node);
}

static void bury(struct client_poll *poll)
{
    while (!list_empty(&poll->gone)) {
        struct connection *connection =
            LIST_ENTRY(poll->gone.next, struct connection, session.node);

        list_remove(&connection->session.node);
        session_unref(&connection->session);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;

    close(server->client_poll.fd);
}

void client_poll_close(struct server *server)
{
    bury(&server->client_poll);
    resp_spare_free(&server->client_poll.spare);
    uv_close((uv_handle_t *)&server->client_poll.handle, on_handle_closed);
}

static void tell_kernel(struct connection *connection, int op)
{
    struct epoll_event event = {.events = connection->asked | EPOLLET, .data.ptr = connection};

    if (epoll_ctl(connection->server->client_poll.fd, op, connection->fd, &event) != 0) {
        log_limited(LOG_LEVEL_WARNING, 10, "closed a client that cannot be listened to",
                    log_text("client", connection->address), log_text("why", strerror(errno)));
        connection_close(connection);
    }
}

void client_poll_want(struct connection *connection, uint32_t events)
{
    uint32_t before = connection->asked;

    if (events == before)
        return;
    connection->asked = events;
    tell_kernel(connection, before == 0 ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
}

void client_poll_again(struct connection *connection)
{
    if (!session_is_closed(&connection->session) && connection->asked)
        tell_kernel(connection, EPOLL_CTL_MOD);
}

/* Half of those who speak are enough for an entry, and the others are heard while it is on its way: first of all then, since they
 * came first. */
void client_poll_read(struct server *server)
{
    struct client_poll *poll = &server->client_poll;
    struct epoll_event events[EVENTS_AT_ONCE];
    int count = EVENTS_AT_ONCE;

    server_look_at_clock(server);
    for (int turn = 0; turn < POLLS_MAX && count == EVENTS_AT_ONCE; turn++) {
        if (node_has_enough(server->node))
            break;
        count = epoll_wait(poll->fd, events, EVENTS_AT_ONCE, 0);
        for (int i = 0; i < count; i++)
            connection_event(events[i].data.ptr, events[i].events);
        bury(poll);
    }
}

void client_poll_pause(struct server *server, bool paused)
{
    struct client_poll *poll = &server->client_poll;

    if (poll->paused == paused)
        return;
    poll->paused = paused;
    if (paused)
        uv_poll_stop(&poll->handle);
    else
        uv_poll_start(&poll->handle, UV_READABLE, on_readable);
}
