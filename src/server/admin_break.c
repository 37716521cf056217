/* admin_break.c: BREAK, asked for by HTTP.
 *
 * It goes the way of any client's: one end of a pair of sockets becomes a connection of this server, with the user who asks, and the command is
 * written to the other. So rights, the audit file, the log and all that may be answered are those of BREAK, and nothing is done twice. */
#include "base/text.h"
#include "resp/resp.h"
#include "server/admin.h"
#include "server/connection.h"
#include "server/json_text.h"
#include "server/log.h"
#include "server/login.h"
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BREAKS_MAX 4
#define BREAK_WAIT_MS 10000 /* then the answer is that nobody knows */
#define REPLY_MAX 1024

struct breaking {
    struct list node;
    struct server *server;
    struct http_request *request; /* NULL: answered, or gone */
    int fd;
    uv_poll_t poll;
    uv_timer_t timer;
    int handles;
    size_t size;
    char reply[REPLY_MAX + 1];
};

/* ---- the end --------------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct breaking *breaking = handle->data;

    if (--breaking->handles > 0)
        return;
    close(breaking->fd);
    free(breaking);
}

static void end(struct breaking *breaking)
{
    if (list_empty(&breaking->node))
        return;
    list_remove(&breaking->node);
    breaking->server->admin.break_count--;
    uv_close((uv_handle_t *)&breaking->poll, on_handle_closed);
    uv_close((uv_handle_t *)&breaking->timer, on_handle_closed);
}

/* What was submitted is done all the same. */
void admin_break_gone(struct server *server, const struct http_request *request)
{
    LIST_EACH(node, &server->admin.breaks)
    {
        struct breaking *breaking = LIST_ENTRY(node, struct breaking, node);

        if (breaking->request == request)
            breaking->request = NULL;
    }
}

void admin_break_close(struct server *server)
{
    LIST_EACH_SAFE(node, &server->admin.breaks)
    end(LIST_ENTRY(node, struct breaking, node));
}

/* ---- the answer ------------------------------------------------------------------------------------ */

static unsigned status_of(const char *error)
{
    static const struct {
        const char *word;
        unsigned status;
    } words[] = {{"NOPERM", 403},  {"MOVED", 421}, {"TRYAGAIN", 503}, {"STOPPED", 503},
                 {"UNKNOWN", 504}, {"LIMIT", 429}, {"NOAUDIT", 503}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(error, words[i].word, strlen(words[i].word)) == 0)
            return words[i].status;
    return 400;
}

static void answer(struct breaking *breaking, unsigned status, const char *error, int64_t broken)
{
    struct server *server = breaking->server;
    struct http_request *request = breaking->request;
    struct json_text json = {.depth = 0};

    breaking->request = NULL;
    if (!request)
        return;
    if (error) {
        admin_error(server, request, status, error);
        return;
    }
    json_text_open(&json, NULL, '{');
    json_text_number(&json, "broken", broken);
    json_text_close(&json, '}');
    textbuf_words(&json.out, "\n");
    server->admin.module->answer(request, status, "application/json", &json.out, NULL);
}

#define NOBODY_KNOWS "UNKNOWN it may or may not have been broken: look again"

/* ":2" or "-NOPERM …". */
static void answer_reply(struct breaking *breaking)
{
    const char *reply = breaking->reply;
    uint64_t broken;

    if (reply[0] == ':' && text_to_u64(reply + 1, INT64_MAX, &broken))
        answer(breaking, 200, NULL, (int64_t)broken);
    else if (reply[0] == '-')
        answer(breaking, status_of(reply + 1), reply + 1, 0);
    else
        answer(breaking, 504, NOBODY_KNOWS, 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct breaking *breaking = poll->data;
    ssize_t count = recv(breaking->fd, breaking->reply + breaking->size, REPLY_MAX - breaking->size,
                         MSG_DONTWAIT);
    char *line_end;

    (void)status;
    (void)events;
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    breaking->size += count > 0 ? (size_t)count : 0;
    breaking->reply[breaking->size] = '\0';
    line_end = strchr(breaking->reply, '\r');
    if (!line_end && count > 0 && breaking->size < REPLY_MAX)
        return;
    if (line_end)
        *line_end = '\0';
    answer_reply(breaking);
    end(breaking);
}

static void on_late(uv_timer_t *timer)
{
    struct breaking *breaking = timer->data;

    answer(breaking, 504, NOBODY_KNOWS, 0);
    end(breaking);
}

/* ---- the beginning ----------------------------------------------------------------------------------- */

/* One end of the pair becomes a client. False: it cannot, and the pair is closed. */
static bool connect_as(struct server *server, const struct admin_user *user, const char *client,
                       int *ret_fd)
{
    struct connection *connection;
    char address[ENDPOINT_TEXT_MAX];
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    snprintf(address, sizeof address, "%s (admin)", client);
    connection = connection_new(server, pair[0], address, &resp_protocol, false);
    if (!connection) {
        close(pair[0]);
        close(pair[1]);
        return false;
    }
    if (user->account && !login_become(connection, user->account)) {
        connection_close(connection);
        close(pair[1]);
        return false;
    }
    if (!user->account)
        connection_authenticated(connection, user->user);
    *ret_fd = pair[1];
    return true;
}

static bool write_command(int fd, struct core_text name, bool now)
{
    struct resp_writer words = {0};
    bool whole;

    resp_write_array(&words, now ? 3 : 2);
    resp_write_text(&words, "BREAK");
    resp_write_blob(&words, name.bytes, name.size);
    if (now)
        resp_write_text(&words, "NOW");
    whole = !words.failed &&
            send(fd, words.bytes, words.size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)words.size;
    resp_writer_free(&words);
    return whole;
}

static void await_reply(struct server *server, struct http_request *request, int fd)
{
    struct breaking *breaking = calloc(1, sizeof *breaking);

    INVARIANT(breaking != NULL);
    breaking->server = server;
    breaking->request = request;
    breaking->fd = fd;
    breaking->handles = 2;
    list_init(&breaking->node);
    list_append(&server->admin.breaks, &breaking->node);
    server->admin.break_count++;
    uv_poll_init(server->loop, &breaking->poll, fd);
    uv_timer_init(server->loop, &breaking->timer);
    breaking->poll.data = breaking->timer.data = breaking;
    uv_poll_start(&breaking->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    uv_timer_start(&breaking->timer, on_late, BREAK_WAIT_MS, 0);
}

void admin_break(struct server *server, struct http_request *request, const struct admin_user *user)
{
    size_t size = 0, now_size;
    const char *bytes = server->admin.module->argument(request, "name", &size);
    const char *now = server->admin.module->argument(request, "now", &now_size);
    struct core_text name = {bytes, size};
    int fd;

    if (!bytes || size == 0 || size > HF_NAME_MAX || memchr(bytes, '\0', size)) {
        admin_error(server, request, 400,
                    "name is missing, or no name: 1 to 512 bytes, and no NUL");
        return;
    }
    if (now && strcmp(now, "1") != 0) {
        admin_error(server, request, 400, "now is 1, or left out");
        return;
    }
    if (server->admin.break_count >= BREAKS_MAX ||
        !connect_as(server, user, server->admin.module->client(request), &fd)) {
        admin_error(server, request, 429,
                    "too many are being broken, or too many clients are there");
        return;
    }
    if (!write_command(fd, name, now != NULL)) {
        close(fd);
        admin_error(server, request, 503, "the command could not be written");
        return;
    }
    await_reply(server, request, fd);
}
