/* admin.c: which path is what, and who may ask for it. */
#include "server/admin.h"
#include "base/hostport.h"
#include "base/modules.h"
#include "server/audit.h"
#include "server/exposition.h"
#include "server/json_text.h"
#include "server/listening.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/server.h"

#include <holdfast/holdfast.h>

#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PAGE_HEADER \
    "X-Holdfast" /* of the page's requests: no form and no link of another site can send it */
#define JSON_TYPE "application/json"
#define TEXT_TYPE "text/plain; charset=utf-8"

typedef void serve_fn(struct server *server, struct http_request *request,
                      const struct admin_user *user);

static const struct http_module *http_of(const struct server *server)
{
    return server->admin.module;
}

/* ---- short answers ------------------------------------------------------------------------------- */

static void answer_words(struct server *server, struct http_request *request, unsigned status,
                         const char *words, const struct http_header *extra)
{
    struct textbuf text = {NULL};

    textbuf_words(&text, words);
    textbuf_words(&text, "\n");
    http_of(server)->answer(request, status, TEXT_TYPE, &text, extra);
}

void admin_error(struct server *server, struct http_request *request, unsigned status,
                 const char *words)
{
    struct json_text json = {.depth = 0};

    json_text_open(&json, NULL, '{');
    json_text_words(&json, "error", words);
    json_text_close(&json, '}');
    textbuf_words(&json.out, "\n");
    http_of(server)->answer(request, status, JSON_TYPE, &json.out, NULL);
}

void admin_refuse(struct server *server, struct http_request *request)
{
    static const struct http_header how = {"WWW-Authenticate",
                                           "Basic realm=\"holdfastd\", charset=\"UTF-8\""};

    answer_words(server, request, 401, "the user or the password is wrong, or was not said", &how);
}

/* ---- the probes: anybody's, as they say nothing ---------------------------------------------------- */

static void serve_health(struct server *server, struct http_request *request,
                         const struct admin_user *user)
{
    (void)user;
    answer_words(server, request, 200, "the loop turns", NULL);
}

/* NULL: it serves, or knows who does. */
static const char *why_not_ready(const struct server *server)
{
    return server->sessions.stopping                   ? "the server is being stopped"
           : server->sessions.role == REPLICA_STOPPED  ? "this node cannot go on"
           : server->sessions.role == REPLICA_LEADING  ? NULL
           : !server->node || node_waits(server->node) ? "this node belongs to no cluster yet"
           : replica_leader(server->replica) == 0      ? "there is no leader at the moment"
           : replica_leader(server->replica) == server->config->id ? "this node begins to lead"
                                                                   : NULL;
}

static void serve_ready(struct server *server, struct http_request *request,
                        const struct admin_user *user)
{
    const char *why = why_not_ready(server);

    (void)user;
    answer_words(server, request, why ? 503 : 200, why ? why : "ready", NULL);
}

/* ---- metrics and the page ------------------------------------------------------------------------ */

static void serve_metrics(struct server *server, struct http_request *request,
                          const struct admin_user *user)
{
    struct textbuf text = {NULL};

    metrics_expose(server, user->user, &text);
    http_of(server)->answer(request, 200, EXPOSITION_TYPE, &text, NULL);
}

static void serve_page(struct server *server, struct http_request *request,
                       const struct admin_user *user)
{
    (void)user;
    if (!http_of(server)->answer_page(request))
        admin_error(server, request, 404, "there is no such page");
}

/* ---- paths --------------------------------------------------------------------------------------- */

enum who { ANYBODY, SOMEBODY }; /* who needs no name, or has one */

static const struct path {
    const char *path;
    bool begins; /* paths that begin like this */
    const char *method;
    enum who who;
    unsigned rights; /* one of them, on any name; 0: none is needed */
    serve_fn *serve;
} paths[] = {
    {"/healthz", false, "GET", ANYBODY, 0, serve_health},
    {"/readyz", false, "GET", ANYBODY, 0, serve_ready},
    {"/metrics", false, "GET", SOMEBODY, RIGHT_LOOK | RIGHT_ADMIN, serve_metrics},
    {"/api/cluster", false, "GET", SOMEBODY, RIGHT_LOOK | RIGHT_ADMIN, admin_cluster},
    {"/api/locks", false, "GET", SOMEBODY, RIGHT_LOOK, admin_locks},
    {"/api/lock", false, "GET", SOMEBODY, RIGHT_LOOK, admin_lock},
    {"/api/locks/", true, "GET", SOMEBODY, RIGHT_LOOK, admin_lock},
    /* BREAK is denied, counted and written down as one of a client's, also to whoever may break nothing at all. */
    {"/api/break", false, "POST", SOMEBODY, 0, admin_break},
    {"/", true, "GET", SOMEBODY, 0, serve_page},
};

static const struct path *find_path(const char *text)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i].begins ? strncmp(text, paths[i].path, strlen(paths[i].path)) == 0
                            : strcmp(text, paths[i].path) == 0)
            return &paths[i];
    return NULL;
}

static bool has_one_of(const struct user *user, unsigned rights)
{
    for (unsigned bit = 1; bit <= RIGHT_ADMIN; bit <<= 1)
        if (rights & bit && user_may(user, (enum right)bit, NULL))
            return true;
    return rights == 0;
}

void admin_serve(struct server *server, struct http_request *request, const struct admin_user *user)
{
    const struct path *path = find_path(http_of(server)->path(request));

    if (!has_one_of(user->user, path->rights))
        admin_error(server, request, 403, "this user has not the right to see this");
    else
        path->serve(server, request, user);
}

/* ---- what browsers are made to do by others --------------------------------------------------------- */

/* The name of the host in a Host header or an Origin. */
static bool is_own_host(const struct server *server, const char *text)
{
    struct hostport host;

    return hostport_parse(text, strlen(text), &host) == HOSTPORT_OK &&
           (host.kind != HOSTPORT_NAME || host.loopback ||
            strcasecmp(host.host, server->admin.endpoint.host) == 0);
}

/* Where no password is asked for, a page of another site could have its name point here, and read what it likes: its name is in Host then. With a
 * password it has none to send. */
static bool is_rebound(const struct server *server, const struct http_request *request)
{
    const char *host = http_of(server)->header(request, "Host");

    if (server->users || server->config->password.set)
        return false;
    return !host || !is_own_host(server, host);
}

/* By a page of another site, or without the header that only a script of this one may set. */
static bool is_forged(const struct server *server, const struct http_request *request)
{
    const char *origin = http_of(server)->header(request, "Origin");
    const char *host = http_of(server)->header(request, "Host");
    const char *site = http_of(server)->header(request, "Sec-Fetch-Site");

    if (!http_of(server)->header(request, PAGE_HEADER) || !host)
        return true;
    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return true;
    if (!origin)
        return false;
    origin += strncmp(origin, "https://", 8) == 0 ? 8 : strncmp(origin, "http://", 7) == 0 ? 7 : 0;
    return strcasecmp(origin, host) != 0;
}

/* ---- requests ------------------------------------------------------------------------------------ */

static bool method_fits(const char *method, const struct path *path)
{
    return strcmp(method, path->method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(path->method, "GET") == 0);
}

static void log_in(struct server *server, struct http_request *request)
{
    struct admin_user user;

    switch (admin_login(server, request, &user)) {
    case ADMIN_LET_IN:
        admin_serve(server, request, &user);
        break;
    case ADMIN_REFUSED:
        admin_refuse(server, request);
        break;
    case ADMIN_BUSY:
        admin_error(server, request, 503, "too many passwords are being looked at just now");
        break;
    case ADMIN_LATER:
        break;
    }
}

static void on_request(void *context, struct http_request *request)
{
    struct server *server = context;
    const char *text = http_of(server)->path(request), *method = http_of(server)->method(request);
    const struct path *path = text ? find_path(text) : NULL;

    if (!path) {
        admin_error(server, request, text ? 404 : 400, "there is no such path");
    } else if (!method_fits(method, path)) {
        const struct http_header allow = {"Allow",
                                          strcmp(path->method, "GET") == 0 ? "GET, HEAD" : "POST"};

        answer_words(server, request, 405, "this is not asked like that", &allow);
    } else if (path->who == ANYBODY) {
        path->serve(server, request, NULL);
    } else if (is_rebound(server, request)) {
        admin_error(server, request, 421, "this server is not called so: ask it by its address");
    } else if (strcmp(path->method, "POST") == 0 && is_forged(server, request)) {
        admin_error(server, request, 403,
                    "this can only be asked with the header " PAGE_HEADER
                    ", and not from another site");
    } else {
        log_in(server, request);
    }
}

static void on_gone(void *context, struct http_request *request)
{
    struct server *server = context;

    admin_login_gone(server, request);
    admin_break_gone(server, request);
}

/* ---- its life ------------------------------------------------------------------------------------ */

static int load(const struct http_module **ret_module, struct error_text *err)
{
    static const struct module module = {.name = "http",
                                         .needed_by = "admin needs",
                                         .library = "libmicrohttpd (libmicrohttpd-dev)",
                                         .symbol = HTTP_MODULE_SYMBOL};
    http_module_fn *get;
    int result = module_symbol(&module, (void **)&get, err);

    if (result != HF_OK)
        return result;
    *ret_module = get();
    if (*ret_module && (*ret_module)->abi == HTTP_ABI)
        return HF_OK;
    *ret_module = NULL;
    module_misfit(&module, err);
    return HF_EMODULE;
}

static int listen_at(struct endpoint *endpoint, int *ret_fd, struct error_text *err)
{
    int result = listening_tcp(endpoint, ret_fd, err);

    return result == HF_EBUSY ? error_set(err, result,
                                          "cannot listen at %s: somebody does already (another "
                                          "holdfastd? --admin takes another port)",
                                          endpoint->shown)
                              : result;
}

int admin_open(struct server *server, struct error_text *err)
{
    struct admin *admin = &server->admin;
    struct http_options options = {
        .loop = server->loop, .context = server, .request = on_request, .gone = on_gone};
    int result;

    list_init(&admin->breaks);
    admin_login_open(server);
    admin->endpoint = server->config->admin;
    if (!admin->endpoint.shown[0])
        return HF_OK;
    result = load(&admin->module, err);
    if (result == HF_OK)
        result = listen_at(&admin->endpoint, &options.fd, err);
    if (result != HF_OK) {
        admin->module = NULL;
        return result;
    }
    result = admin->module->open(&options, &admin->http, err);
    if (result != HF_OK) {
        close(options.fd);
        admin->module = NULL;
        return result;
    }
    log_info("operators can look at this node", log_text("admin", admin->endpoint.shown));
    if (!admin->endpoint.loopback)
        log_warning("passwords of operators are sent as they are by HTTP: have a proxy with TLS in "
                    "front of it, or listen on 127.0.0.1 and come by ssh -L",
                    log_text("admin", admin->endpoint.shown));
    return HF_OK;
}

void admin_close(struct server *server)
{
    struct admin *admin = &server->admin;

    if (!admin->module)
        return;
    admin->module->close(admin->http);
    admin_break_close(server);
    admin->module = NULL;
}
