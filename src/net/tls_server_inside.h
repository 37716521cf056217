/* tls_server_inside.h: what the files of the server's side of TLS have in common. */
#ifndef NET_TLS_SERVER_INSIDE_H
#define NET_TLS_SERVER_INSIDE_H

#include "net/tls_server.h"
#include "net/tls_socket.h"

struct tls_context {
    SSL_CTX *ssl;
    struct tls_server_dates dates;
};

int tls_context_new(const struct tls_server_files *files, struct tls_context **ret_context,
                    struct error_text *err);
void tls_context_free(struct tls_context *context);
void tls_context_dates(const struct tls_context *context, struct tls_server_dates *ret_dates);

#endif
