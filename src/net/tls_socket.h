/* tls_socket.h: what both sides of TLS share inside the module: the socket as OpenSSL sees it, and its errors in words. */
#ifndef NET_TLS_SOCKET_H
#define NET_TLS_SOCKET_H

#include <openssl/ssl.h>
#include <stdbool.h>

struct tls_socket {
    int fd;           /* -1 until it is known; connected, not blocking, borrowed */
    int failure;      /* the errno of its last failure that was not "later" */
    bool until_short; /* one that gave less than it could has no more, and is not asked again */
    bool is_drained;  /* until_short: so it was, since the owner has last cleared this */
    bool is_ended;    /* until_short: the other side sends no more, and that is no error */
    bool sniffs;      /* the next byte that comes tells whether it is TLS at all */
    bool is_plain;    /* it is not */
    bool is_left;     /* nothing more is taken from it: it fails */
};

/* Once in the process, before all else. False: out of memory, or of OpenSSL's numbers. */
bool tls_prepare(void);
/* A BIO of this socket, for both directions, which the ssl takes. False: out of memory. */
bool tls_socket_set(struct tls_socket *sock, SSL *ssl);

/* Messages of TLS's own, such as new keys, that came since the handshake. OpenSSL answers them for as long as they come, within one call, and everybody else
 * waits: so many are free, and beyond that one for so much data. Nobody changes its keys as often. */
#define TLS_CHORES_FREE 64u
#define TLS_CHORE_BYTES 4096u

struct tls_chores {
    size_t count, bytes; /* of data */
};

/* For SSL_set_msg_callback: is it one of them? */
bool tls_is_chore(int sent, int kind);
/* One more. False: it is too many. */
bool tls_chore(struct tls_chores *chores);

/* Why a certificate is not believed. */
enum tls_distrust { TLS_OTHER_HOST, TLS_OTHER_AUTHORITY, TLS_REVOCATION_UNKNOWN, TLS_NOT_VALID };
enum tls_distrust tls_distrust(long verdict);
/* Does the other side say by this alert that it does not take our certificate? */
bool tls_is_about_our_certificate(int alert);

/* What OpenSSL says about the first error in this thread's queue. */
const char *tls_reason(void);
/* What text looks like to OpenSSL, where a record of TLS should be. */
bool tls_is_no_record(int code);
/* OpenSSL's own would ask on the terminal, in the middle of somebody's program. arg: a bool, set when a key is locked. */
int tls_note_passphrase(char *ret_text, int size, int for_writing, void *arg);
/* TLS 1.2 at least, or what the system's configuration asks for beyond. */
bool tls_set_least_version(SSL_CTX *context);

#endif
