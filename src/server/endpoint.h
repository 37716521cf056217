/* endpoint.h: one place to listen at, as somebody wrote it. Nothing is resolved or bound here. */
#ifndef SERVER_ENDPOINT_H
#define SERVER_ENDPOINT_H

#include "base/error.h"
#include "base/hostport.h"

#include <stdbool.h>
#include <stdint.h>

#define ENDPOINT_PORT_DEFAULT 7420
#define ENDPOINT_HOST_MAX HOSTPORT_HOST_MAX
#define ENDPOINT_PATH_MAX 107 /* sun_path */
#define ENDPOINT_TEXT_MAX 272 /* "host:port" with its NUL */

struct endpoint {
    char path[ENDPOINT_PATH_MAX + 1]; /* of a unix socket; "": TCP */
    char host[ENDPOINT_HOST_MAX + 1]; /* name or number, an IPv6 one without its brackets */
    uint16_t port;                    /* 0: a free one, which the kernel chooses */
    bool tls;                         /* what is spoken there begins with a handshake */
    bool loopback;                    /* reached from this machine only; of a unix socket too */
    char shown
        [ENDPOINT_TEXT_MAX]; /* as it may be written again: "[::1]:7420", "tls:host:7420", "unix:/path" */
};

/* "host:port", "host", "[::1]:port" (base/hostport.h) or "unix:/path". The port is 7420 if there is none. */
int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct error_text *err);
/* Also "tls:host:port": to be listened at with TLS. */
int endpoint_parse_listen(const char *text, struct endpoint *ret_endpoint, struct error_text *err);
/* With TLS or without. */
bool endpoint_same(const struct endpoint *a, const struct endpoint *b);
/* Where clients find it, whatever they speak: shown, without "tls:". */
const char *endpoint_address(const struct endpoint *endpoint);
/* As it is listened at, where the kernel chose the port. */
void endpoint_set_port(struct endpoint *endpoint, uint16_t port);

#endif
