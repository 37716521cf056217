/* tls_server.h: the server's side of what the module holdfast-tls.so provides. It has sockets, but no loop: who has one polls, and calls
 * again. Like TLS of clients (net/tls.h) it is loaded only by those who ask for it: a server without TLS needs no libcrypto, nor has to be
 * built with it. One thread. */
#ifndef NET_TLS_SERVER_H
#define NET_TLS_SERVER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Raised whenever this file changes in a way that the module must be rebuilt for. */
#define TLS_SERVER_ABI 2

/* What a client sends as its certificates, with all above it, in a handshake that has yet to prove anything. */
#define TLS_PEER_CERTIFICATES_MAX 32768
#define TLS_PEER_DEPTH_MAX 8 /* authorities between a peer's certificate and the root */
#define TLS_NAMES_MAX 64     /* that of one certificate are looked at */

enum tls_clients {
    TLS_CLIENTS_ANYBODY, /* no certificate is asked for */
    TLS_CLIENTS_MAY,     /* whoever shows one must have one of ca_file */
    TLS_CLIENTS_MUST,
    TLS_CLIENTS_ARE_PEERS /* for net/tls_peer.h: both sides show one, and speak TLS 1.3 */
};

/* What the owner calls the files, for messages. */
struct tls_server_settings {
    const char *cert, *key, *ca, *crl;
};

/* Files are PEM; "": none. The key is read by the owner, who knows who may read it. */
struct tls_server_files {
    const char *cert_file; /* with what leads to its authority, if that is needed */
    const char *key_file;  /* for messages */
    const char *key;
    size_t key_size;
    const char *ca_file;  /* of clients' certificates */
    const char *crl_file; /* then every authority needs one in it that is up to date */
    struct tls_server_settings settings;
    enum tls_clients clients;
};

/* By the wall clock, in seconds since 1970: for people to look at. */
struct tls_server_dates {
    int64_t begins, ends; /* of the certificate, or of another one of its file that ends sooner */
    int64_t crl_ends;     /* the first of them; 0: there is none, or it does not say */
};

enum tls_name { TLS_NAME_COMMON, TLS_NAME_DNS, TLS_NAME_URI };
/* name: without NULs and control characters in it, ends with a NUL. */
typedef void tls_name_fn(void *context, enum tls_name kind, const char *name);

struct tls_context;
struct tls_client;

#define TLS_AGAIN 1

struct tls_server_provider {
    uint32_t abi; /* TLS_SERVER_ABI; first, so that any two versions can compare it */

    /* Certificate, key and authorities. HF_EREFUSED: a file cannot be used, or they do not fit together; HF_ENOMEM. Nothing in files is borrowed. */
    int (*context_new)(const struct tls_server_files *files, struct tls_context **ret_context,
                       struct error_text *err);
    /* Its clients go on without it. NULL is fine. */
    void (*context_free)(struct tls_context *context);
    void (*dates)(const struct tls_context *context, struct tls_server_dates *ret_dates);

    /* fd: connected, not blocking, borrowed. NULL: out of memory. */
    struct tls_client *(*client_new)(struct tls_context *context, int fd);
    /* HF_OK: it is done; TLS_AGAIN: not yet; HF_EINVAL: the client does not speak TLS, and nothing was sent; HF_EREFUSED: its certificate is no
     * good, or there is none; HF_EUNREACH: anything else that went wrong, or it has gone. In words; it has been told, if TLS has a word for it. */
    int (*handshake)(struct tls_client *client, struct error_text *err);
    /* Is it the socket's turn to take something, before the handshake or a read can go on? */
    bool (*must_write)(const struct tls_client *client);
    /* Each name of the certificate that it has shown and proved; none, if it has shown none. */
    void (*names)(const struct tls_client *client, tls_name_fn *fn, void *context);
    /* As recv(2) and send(2), EPROTO for what is wrong with the TLS itself, then with words. After a write that gave EAGAIN the next one begins with
     * the same bytes and has no fewer. */
    ssize_t (*read)(struct tls_client *client, void *bytes, size_t size, struct error_text *err);
    ssize_t (*write)(struct tls_client *client, const void *bytes, size_t size,
                     struct error_text *err);
    /* After a read: may there be more, of which the socket says nothing? Else it took all there was, from the socket, too. */
    bool (*has_more)(const struct tls_client *client);
    /* Says that this was all, if the socket takes it at once. */
    void (*end)(struct tls_client *client);
    void (*client_free)(struct tls_client *client); /* NULL is fine */
};

/* The second symbol of the module: const struct tls_server_provider *holdfast_tls_server(void). */
#define TLS_SERVER_SYMBOL "holdfast_tls_server"
typedef const struct tls_server_provider *tls_server_module_fn(void);

#endif
