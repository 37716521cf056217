/* http.c: see http.h.
 *
 * libmicrohttpd calls from within MHD_run, which the loop calls when its epoll set is readable, when an answer has come for a connection that
 * rests, when one has gone, and once a second:
 *
 *     began      the first line has come: a request is made
 *     handle     1. its header has come; 2. its body has (there is none): the owner is told; and, if it did not answer at once, the connection
 *                rests (MHD_suspend_connection), until http_answer wakes it up: 3. what it says is sent
 *                A round of the loop has time for some requests; all others rest, too, and the owner is told of them in later rounds, in the
 *                order in which they came
 *     ended      it was answered, or its connection is gone: the request is freed */
#include "admin/http.h"
#include "admin/page.h"
#include "base/clock.h"
#include "base/list.h"

#include <holdfast/holdfast.h>

#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define SECOND_MS 1000
#define ROUND_US 5000 /* of answering, and then all else in the loop has its turn */
#define AGAIN_MS \
    1 /* not 0: libuv would call it in the same round of the loop, and all others had no turn */
#define MHD_CONNECTIONS_MAX \
    (HTTP_CONNECTIONS_MAX + 8) /* those that are about to go have a place, too */

/* For all that is answered. The page needs nothing from elsewhere, and nothing in it is not a file of its own. */
static const struct http_header always[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
};

struct http {
    struct http_options options;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t again; /* libmicrohttpd has more to do than it did */
    uv_timer_t second;
    int handles;
    struct list connections; /* the one whose last answer is oldest first */
    unsigned connection_count;
    struct list requests;
    struct list queued; /* of them, those that wait for their turn */
    uint64_t until_ns;  /* this round's time for answers ends */
};

struct http_connection {
    struct list node;
    int fd;
    bool hung_up;
    int64_t since_ms; /* its last answer, or it came */
    char client[HTTP_CLIENT_MAX];
};

/* BEGINS → ASKED → RESTS → ANSWERED; by way of QUEUED, if the round has no time left: the owner does not know of it yet. */
enum request_state { BEGINS, ASKED, QUEUED, RESTS, ANSWERED };

struct http_request {
    struct list node, turn;
    struct http *http;
    struct MHD_Connection *connection;
    struct http_connection *by;
    enum request_state state;
    bool has_nul;
    char *path;
    const char *method;
    struct MHD_Response *response;
    unsigned status;
};

/* ---- connections --------------------------------------------------------------------------------- */

static void address_of(struct MHD_Connection *connection, char ret_text[HTTP_CLIENT_MAX])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    char host[48], port[8];
    socklen_t size = address && address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                               : sizeof(struct sockaddr_in);

    if (address && getnameinfo(address, size, host, sizeof host, port, sizeof port,
                               NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(ret_text, HTTP_CLIENT_MAX, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
                 host, port);
    else
        snprintf(ret_text, HTTP_CLIENT_MAX, "http");
}

/* It reads, or gets, nothing more, and libmicrohttpd finds that out. */
static void hang_up(struct http_connection *connection)
{
    connection->hung_up = true;
    shutdown(connection->fd, SHUT_RDWR);
}

static void make_room(struct http *http)
{
    if (http->connection_count < HTTP_CONNECTIONS_MAX)
        return;
    LIST_EACH(node, &http->connections)
    {
        struct http_connection *connection = LIST_ENTRY(node, struct http_connection, node);

        if (!connection->hung_up) {
            hang_up(connection);
            return;
        }
    }
}

static void answered_now(struct http *http, struct http_connection *connection)
{
    connection->since_ms = clock_boot_ms();
    list_remove(&connection->node);
    list_append(&http->connections, &connection->node);
}

static void on_again(uv_timer_t *timer);

/* While all places are taken libmicrohttpd does not look at the listening socket. Whoever waits there wakes nobody up, so that it is to look
 * again once somebody has gone; hanging up on others only wakes it up until they have. */
static void place_is_free(struct http *http)
{
    http->connection_count--;
    if (!uv_is_active((uv_handle_t *)&http->again))
        uv_timer_start(&http->again, on_again, AGAIN_MS, 0);
}

static void on_connection(void *context, struct MHD_Connection *handle, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *http = context;
    struct http_connection *connection = *socket_context;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        make_room(http);
        connection = calloc(1, sizeof *connection);
        INVARIANT(connection != NULL);
        list_init(&connection->node);
        connection->fd =
            MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        address_of(handle, connection->client);
        answered_now(http, connection);
        http->connection_count++;
        *socket_context = connection;
    } else if (connection) {
        list_remove(&connection->node);
        free(connection);
        *socket_context = NULL;
        place_is_free(http);
    }
}

static void hang_up_on_silent(struct http *http)
{
    int64_t now_ms = clock_boot_ms();

    LIST_EACH_SAFE(node, &http->connections)
    {
        struct http_connection *connection = LIST_ENTRY(node, struct http_connection, node);

        if (now_ms - connection->since_ms < HTTP_SILENCE_MAX_MS)
            return;
        hang_up(connection);
    }
}

/* ---- running ------------------------------------------------------------------------------------- */

static bool has_time(const struct http *http)
{
    return uv_hrtime() < http->until_ns;
}

/* In the first place those that have waited. */
static void answer_queued(struct http *http)
{
    while (!list_empty(&http->queued) && has_time(http)) {
        struct http_request *request = LIST_ENTRY(http->queued.next, struct http_request, turn);

        list_remove(&request->turn);
        request->state = RESTS;
        http->options.request(http->options.context, request);
    }
}

/* It never waits. What it leaves over is for the next round of the loop: an answer may take some milliseconds, and other nodes, which want to hear
 * from a leader, are not to wait for as many of them as there are connections. */
static void run(struct http *http)
{
    MHD_UNSIGNED_LONG_LONG left_ms;

    http->until_ns = uv_hrtime() + ROUND_US * UINT64_C(1000);
    answer_queued(http);
    MHD_run(http->daemon);
    if (!list_empty(&http->queued) ||
        (MHD_get_timeout(http->daemon, &left_ms) == MHD_YES && left_ms == 0))
        uv_timer_start(&http->again, on_again, AGAIN_MS, 0);
}

static void on_again(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run(poll->data);
}

static void on_second(uv_timer_t *timer)
{
    hang_up_on_silent(timer->data);
    run(timer->data);
}

/* ---- requests ------------------------------------------------------------------------------------ */

/* NULL: there is no memory, and the connection is closed. */
static void *on_begun(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct http *http = context;
    struct http_request *request = calloc(1, sizeof *request);

    if (!request)
        return NULL;
    list_init(&request->node);
    list_init(&request->turn);
    list_append(&http->requests, &request->node);
    request->http = http;
    request->connection = connection;
    request->by =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    /* What is decoded ends there, and would be another path than the one that was asked for. */
    request->has_nul = strstr(uri, "%00") != NULL;
    return request;
}

static void free_request(struct http_request *request)
{
    list_remove(&request->node);
    list_remove(&request->turn);
    if (request->response)
        MHD_destroy_response(request->response);
    free(request->path);
    free(request);
}

static void on_ended(void *context, struct MHD_Connection *connection, void **request_context,
                     enum MHD_RequestTerminationCode why)
{
    struct http *http = context;
    struct http_request *request = *request_context;

    (void)connection;
    (void)why;
    if (!request)
        return;
    if (request->state == RESTS)
        http->options.gone(http->options.context, request);
    else if (request->state != QUEUED)
        answered_now(http, request->by);
    free_request(request);
    *request_context = NULL;
}

static const char *header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* What of a header decides where it ends, and who asks. */
struct shape {
    unsigned sizes, hosts, origins;
    bool has_body, has_blank;
};

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct shape *shape = context;

    (void)kind;
    if (strcasecmp(name, "Content-Length") == 0) {
        shape->sizes++;
        shape->has_body |= !value || strcmp(value, "0") != 0;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        shape->has_body = true;
    } else if (strcasecmp(name, "Host") == 0) {
        shape->hosts++;
    } else if (strcasecmp(name, "Origin") == 0) {
        shape->origins++;
    }
    shape->has_blank |= strpbrk(name, " \t") != NULL;
    return MHD_YES;
}

static struct shape shape_of(const struct http_request *request)
{
    struct shape shape = {0};

    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, look_at_header, &shape);
    return shape;
}

/* A proxy may have read the other one of two, or a body where libmicrohttpd sees none. */
static bool is_ambiguous(const struct shape *shape)
{
    return shape->sizes > 1 || shape->hosts > 1 || shape->origins > 1 || shape->has_blank;
}

static enum MHD_Result send_answer(struct http_request *request)
{
    enum MHD_Result result =
        MHD_queue_response(request->connection, request->status, request->response);

    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static void say(struct http_request *request, unsigned status, const char *words);
static void say_and_close(struct http_request *request, unsigned status, const char *words);

static enum MHD_Result on_header(struct http_request *request, const char *url, const char *method)
{
    struct shape shape = shape_of(request);

    request->method = method; /* lives as long as the request */
    request->path = strdup(url);
    if (!request->path)
        return MHD_NO;
    request->state = ASKED;
    if (is_ambiguous(&shape))
        say_and_close(request, MHD_HTTP_BAD_REQUEST,
                      "Content-Length, Host and Origin come once, and no name has a blank\n");
    else if (shape.has_body)
        say_and_close(request, MHD_HTTP_CONTENT_TOO_LARGE, "nothing here takes a body\n");
    else
        return MHD_YES;
    return send_answer(request);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_size, void **request_context)
{
    struct http *http = context;
    struct http_request *request = *request_context;

    (void)version;
    (void)body;
    if (!request)
        return MHD_NO;
    if (request->state == BEGINS)
        return on_header(request, url, method);
    if (*body_size > 0) {
        *body_size = 0;
        return MHD_YES;
    }
    if (request->state == ASKED && (!has_time(http) || !list_empty(&http->queued))) {
        request->state = QUEUED;
        list_append(&http->queued, &request->turn);
        MHD_suspend_connection(connection);
        return MHD_YES;
    }
    if (request->state == ASKED) {
        request->state = RESTS;
        http->options.request(http->options.context, request);
        if (request->state == RESTS) {
            MHD_suspend_connection(connection);
            return MHD_YES;
        }
    }
    return request->response ? send_answer(request) : MHD_NO;
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void respond(struct http_request *request, unsigned status, const char *type,
                    struct MHD_Response *response, const struct http_header *extra)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED);

    if (response) {
        MHD_add_response_header(response, "Content-Type", type);
        for (size_t i = 0; i < sizeof always / sizeof *always; i++)
            MHD_add_response_header(response, always[i].name, always[i].value);
        if (extra)
            MHD_add_response_header(response, extra->name, extra->value);
    }
    request->response = response;
    request->status = status;
    request->state = ANSWERED;
    if (info && info->suspended) {
        MHD_resume_connection(request->connection);
        uv_timer_start(&request->http->again, on_again, AGAIN_MS, 0);
    }
}

static void say_with(struct http_request *request, unsigned status, const char *words,
                     const struct http_header *extra)
{
    respond(request, status, "text/plain; charset=utf-8",
            MHD_create_response_from_buffer(strlen(words), (void *)(uintptr_t)words,
                                            MHD_RESPMEM_PERSISTENT),
            extra);
}

static void say(struct http_request *request, unsigned status, const char *words)
{
    say_with(request, status, words, NULL);
}

/* What comes next on its connection may be a body: it is not read as a request. */
static void say_and_close(struct http_request *request, unsigned status, const char *words)
{
    say_with(request, status, words, &(struct http_header){"Connection", "close"});
}

static void answer(struct http_request *request, unsigned status, const char *type,
                   struct textbuf *body, const struct http_header *extra)
{
    struct MHD_Response *response;

    if (body->failed) {
        textbuf_free(body);
        say(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "there is no memory\n");
        return;
    }
    response = MHD_create_response_from_buffer(
        body->size, body->bytes, body->bytes ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response)
        *body = (struct textbuf){NULL};
    textbuf_free(body);
    respond(request, status, type, response, extra);
}

static bool answer_page(struct http_request *request)
{
    for (size_t i = 0; i < page_file_count; i++) {
        const struct page_file *file = &page_files[i];

        if (strcmp(file->path, request->path) != 0)
            continue;
        respond(request, MHD_HTTP_OK, file->type,
                MHD_create_response_from_buffer(file->size, (void *)(uintptr_t)file->bytes,
                                                MHD_RESPMEM_PERSISTENT),
                NULL);
        return true;
    }
    return false;
}

/* ---- what the owner reads of a request ------------------------------------------------------------- */

static const char *method_of(const struct http_request *request)
{
    return request->method;
}

static const char *path_of(const struct http_request *request)
{
    return request->has_nul ? NULL : request->path;
}

static const char *client_of(const struct http_request *request)
{
    return request->by->client;
}

static const char *argument(const struct http_request *request, const char *name, size_t *ret_size)
{
    const char *value;

    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, ret_size) != MHD_YES)
        return NULL;
    return value ? value : "";
}

/* ---- its life ------------------------------------------------------------------------------------ */

static void begin_handles(struct http *http, int epoll_fd)
{
    uv_loop_t *loop = http->options.loop;

    INVARIANT(uv_poll_init(loop, &http->poll, epoll_fd) == 0);
    uv_timer_init(loop, &http->again);
    uv_timer_init(loop, &http->second);
    http->poll.data = http->again.data = http->second.data = http;
    http->handles = 3;
    uv_poll_start(&http->poll, UV_READABLE, on_readable);
    uv_timer_start(&http->second, on_second, SECOND_MS, SECOND_MS);
}

static int http_open(const struct http_options *options, struct http **ret_http,
                     struct error_text *err)
{
    struct http *http = calloc(1, sizeof *http);
    const union MHD_DaemonInfo *info;

    if (!http)
        return error_set(err, HF_ENOMEM, "there is no memory");
    http->options = *options;
    list_init(&http->connections);
    list_init(&http->requests);
    list_init(&http->queued);
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
        MHD_OPTION_LISTEN_SOCKET, options->fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MHD_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADER_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(HTTP_SILENCE_MAX_MS / SECOND_MS),
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, on_begun,
        http, MHD_OPTION_NOTIFY_COMPLETED, on_ended, http, MHD_OPTION_END);
    info = http->daemon ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || info->epoll_fd < 0) {
        if (http->daemon)
            MHD_stop_daemon(http->daemon);
        free(http);
        return error_set(err, HF_EIO, "libmicrohttpd does not start");
    }
    begin_handles(http, info->epoll_fd);
    *ret_http = http;
    return HF_OK;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http *http = handle->data;

    if (--http->handles == 0)
        free(http);
}

static void http_close(struct http *http)
{
    LIST_EACH_SAFE(node, &http->requests)
    {
        struct http_request *request = LIST_ENTRY(node, struct http_request, node);

        if (request->state == RESTS)
            http->options.gone(http->options.context, request);
        if (request->state == RESTS || request->state == QUEUED) {
            list_remove(&request->turn);
            say(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is being stopped\n");
        }
    }
    MHD_run(http->daemon); /* what rested is woken up by now, or could not be ended */
    uv_poll_stop(&http->poll);
    MHD_stop_daemon(http->daemon);
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->again, on_handle_closed);
    uv_close((uv_handle_t *)&http->second, on_handle_closed);
}

static const struct http_module module = {.abi = HTTP_ABI,
                                          .open = http_open,
                                          .close = http_close,
                                          .method = method_of,
                                          .path = path_of,
                                          .client = client_of,
                                          .argument = argument,
                                          .header = header,
                                          .answer = answer,
                                          .answer_page = answer_page};

HF_API http_module_fn holdfast_http;
const struct http_module *holdfast_http(void)
{
    return &module;
}
