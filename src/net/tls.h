/* tls.h: what the module holdfast-tls.so provides. It is a module so that libcrypto, which takes
 * longer to load than everything else together, is loaded only by those who ask for TLS. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "net/address.h"

#include <stdint.h>
#include <sys/types.h>

/* Raised whenever this file or address.h changes in a way that the module must be rebuilt for. */
#define TLS_ABI 2

struct tls_session;

struct tls_provider {
    uint32_t abi; /* TLS_ABI; first, so that any two versions can compare it */

    /* Reads the certificate files; nothing is sent yet. access and address are borrowed until
     * session_free. HF_EREFUSED: a file cannot be used; HF_ENOMEM. */
    int (*session_new)(const struct access *access, const struct address *address,
                       struct tls_session **ret_session, struct error_text *err);
    /* fd: connected, not blocking, borrowed, the same in each call. Answers as stream_connect. */
    int (*handshake)(struct tls_session *session, int fd, struct error_text *err);
    /* What to poll for to get on with the handshake; afterwards with reading, and with writing if
     * there is something to write. */
    short (*events)(const struct tls_session *session, bool has_output);
    /* As stream_read and stream_write; size is not 0. */
    ssize_t (*read)(struct tls_session *session, void *bytes, size_t size, struct error_text *err);
    ssize_t (*write)(struct tls_session *session, const void *bytes, size_t size,
                     struct error_text *err);
    /* Sends nothing. NULL is fine. */
    void (*session_free)(struct tls_session *session);
};

/* The one symbol of the module: const struct tls_provider *holdfast_tls(void). */
#define TLS_MODULE_SYMBOL "holdfast_tls"
typedef const struct tls_provider *tls_module_fn(void);

#endif
