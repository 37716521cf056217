/* http.h: an HTTP server for a few operators: the module holdfast-http.so, by GNU libmicrohttpd. It knows requests and answers, and the files
 * of the page; who may ask what, and what is answered, its owner knows (src/server/admin.c).
 *
 * Everything happens on the caller's libuv loop, and nothing waits: libmicrohttpd has an epoll set, which the loop watches like one more socket.
 *
 * What somebody can do who is nobody yet has limits: so many connections, so large a header, no body at all, and so much time from one answer
 * to the next, whatever trickles in or out meanwhile. When there is no place left, whoever has gone without an answer for longest goes. */
#ifndef ADMIN_HTTP_H
#define ADMIN_HTTP_H

#include "base/error.h"
#include "base/textbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_CONNECTIONS_MAX 64   /* whoever comes then takes the place of another */
#define HTTP_HEADER_MAX 16384u    /* bytes of a connection: its header, and the answer's */
#define HTTP_SILENCE_MAX_MS 30000 /* from one answer to the next, or to the first */
#define HTTP_CLIENT_MAX 72        /* bytes of an address and port as text */

struct http;
struct http_request;
struct uv_loop_s;

struct http_header {
    const char *name, *value;
};

struct http_options {
    struct uv_loop_s *loop;
    int fd; /* listens; taken on success */
    void *context;
    /* A request has come as a whole. It is answered before this returns, or later: until then the request lives, and its connection rests. */
    void (*request)(void *context, struct http_request *request);
    /* It is about to be freed without having been answered: the owner forgets it. */
    void (*gone)(void *context, struct http_request *request);
};

#define HTTP_ABI 1u
struct http_module {
    unsigned abi;
    int (*open)(const struct http_options *options, struct http **ret_http, struct error_text *err);
    /* Requests that wait are gone. It is freed by the loop, which runs on until then. */
    void (*close)(struct http *http);

    const char *(*method)(const struct http_request *request);
    /* Decoded, without what follows a '?'. NULL: no request that has a path (it has a NUL in it). */
    const char *(*path)(const struct http_request *request);
    const char *(*client)(const struct http_request *request); /* "127.0.0.1:51234" */
    /* NULL: there is none. An argument may have NULs in it: its size is what counts. */
    const char *(*argument)(const struct http_request *request, const char *name, size_t *ret_size);
    const char *(*header)(const struct http_request *request, const char *name);
    /* type: "application/json", …. Takes the body, which is empty afterwards; one that has failed is answered with 500. extra: one more
     * header, or NULL. */
    void (*answer)(struct http_request *request, unsigned status, const char *type,
                   struct textbuf *body, const struct http_header *extra);
    /* With the file of the page that has this path. False: there is none, and nothing was answered. */
    bool (*answer_page)(struct http_request *request);
};
typedef const struct http_module *http_module_fn(void);
#define HTTP_MODULE_SYMBOL "holdfast_http"

#endif
