/* admin.h: what operators see of this server by HTTP: the page, what it reads, /metrics and the probes (docs/admin.md).
 *
 *     admin.c        which path is what, and who may ask for it
 *     admin_login.c  who asks: Basic, by the users of clients
 *     admin_api.c    what is answered, as JSON
 *     admin_break.c  the one thing that can be done
 *
 * HTTP itself is a module, src/admin. What is shown is this node's own view, like INFO: it costs the log nothing, and is there when there is no
 * leader, which is when somebody looks. */
#ifndef SERVER_ADMIN_H
#define SERVER_ADMIN_H

#include "admin/http.h"
#include "base/error.h"
#include "base/list.h"
#include "server/endpoint.h"
#include "session/rights.h"

#include <stdbool.h>

struct account;
struct server;

struct admin {
    const struct http_module *module; /* NULL: it is off */
    struct http *http;
    struct endpoint endpoint;
    struct list waiting; /* askers: whose password is looked at */
    struct list breaks;
    unsigned break_count;
};

/* Who asks. */
struct admin_user {
    struct account *account; /* of the users file; NULL: there is none */
    const struct user *user;
};

/* HF_EMODULE: it is wanted, and there is no libmicrohttpd. Nothing if it is off. */
int admin_open(struct server *server, struct error_text *err);
/* Who waits is answered. The loop runs on until all is closed. */
void admin_close(struct server *server);

/* ---- admin_login.c ---- */
enum admin_login { ADMIN_LET_IN, ADMIN_REFUSED, ADMIN_LATER, ADMIN_BUSY };
/* ADMIN_LATER: then admin_serve or admin_refuse is called. */
enum admin_login admin_login(struct server *server, struct http_request *request,
                             struct admin_user *ret_user);
void admin_login_open(struct server *server);
/* It is not to be answered any more. */
void admin_login_gone(struct server *server, const struct http_request *request);

/* ---- admin.c ---- */
void admin_serve(struct server *server, struct http_request *request,
                 const struct admin_user *user);
void admin_refuse(struct server *server, struct http_request *request);
/* {"error": …} */
void admin_error(struct server *server, struct http_request *request, unsigned status,
                 const char *words);

/* ---- admin_api.c ---- */
void admin_cluster(struct server *server, struct http_request *request,
                   const struct admin_user *user);
void admin_locks(struct server *server, struct http_request *request,
                 const struct admin_user *user);
void admin_lock(struct server *server, struct http_request *request, const struct admin_user *user);

/* ---- admin_break.c ---- */
void admin_break(struct server *server, struct http_request *request,
                 const struct admin_user *user);
void admin_break_gone(struct server *server, const struct http_request *request);
void admin_break_close(struct server *server);

#endif
