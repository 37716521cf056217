/* tls_socket.c: the socket is behind a BIO of our own, because OpenSSL's calls plain write, which raises SIGPIPE. */
#include "net/tls_socket.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD_HANDSHAKE 0x16 /* how TLS begins */

static bool is_of_tls(struct tls_socket *sock, const char *bytes)
{
    if (sock->sniffs)
        sock->is_plain = bytes[0] != RECORD_HANDSHAKE;
    sock->sniffs = false;
    return !sock->is_plain;
}

static int socket_read(BIO *bio, char *bytes, int size)
{
    struct tls_socket *sock = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    if (sock->is_left) {
        sock->failure = EPROTO;
        return -1;
    }
    if (sock->is_drained) {
        BIO_set_retry_read(bio);
        return -1;
    }
    do {
        n = recv(sock->fd, bytes, (size_t)size, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    else if (n < 0)
        sock->failure = errno;
    sock->is_ended = n == 0 && sock->until_short;
    if (n <= 0)
        return (int)n;
    sock->is_drained = sock->until_short && n < size;
    return is_of_tls(sock, bytes) ? (int)n : -1;
}

static int socket_write(BIO *bio, const char *bytes, int size)
{
    struct tls_socket *sock = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    do {
        n = send(sock->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    else if (n < 0)
        sock->failure = errno;
    return (int)n;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    const struct tls_socket *sock = BIO_get_data(bio);

    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_EOF)
        return sock->is_ended;
    return command == BIO_CTRL_FLUSH; /* nothing is kept back; all else is unknown here */
}

static BIO_METHOD *socket_method; /* NULL: out of memory when it was made */

static void prepare(void)
{
    BIO_METHOD *method;
    int index;

    /* Only counts if nobody initialised OpenSSL before. */
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return;
    index = BIO_get_new_index();
    method = index < 0 ? NULL : BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "holdfast socket");
    if (!method)
        return;
    if (BIO_meth_set_read(method, socket_read) && BIO_meth_set_write(method, socket_write) &&
        BIO_meth_set_ctrl(method, socket_control))
        socket_method = method;
    else
        BIO_meth_free(method);
}

bool tls_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare);
    return socket_method != NULL;
}

bool tls_socket_set(struct tls_socket *sock, SSL *ssl)
{
    BIO *bio = BIO_new(socket_method);

    if (!bio)
        return false;
    BIO_set_data(bio, sock);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio); /* takes it, once for both directions */
    return true;
}

bool tls_is_chore(int sent, int kind)
{
    return !sent && kind == SSL3_RT_HANDSHAKE;
}

bool tls_chore(struct tls_chores *chores)
{
    return ++chores->count <= TLS_CHORES_FREE + chores->bytes / TLS_CHORE_BYTES;
}

enum tls_distrust tls_distrust(long verdict)
{
    switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return TLS_OTHER_HOST;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return TLS_OTHER_AUTHORITY;
    case X509_V_ERR_UNABLE_TO_GET_CRL:
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_CRL_NOT_YET_VALID:
        return TLS_REVOCATION_UNKNOWN;
    default:
        return TLS_NOT_VALID;
    }
}

bool tls_is_about_our_certificate(int alert)
{
    switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return true;
    default:
        return false;
    }
}

/* A key where a certificate should be, or the other way round: "no start line", and "unsupported". */
static bool is_of_another_kind(unsigned long error)
{
    int library = ERR_GET_LIB(error), reason = ERR_GET_REASON(error);

    return (library == ERR_LIB_PEM && reason == PEM_R_NO_START_LINE) ||
           (library == ERR_LIB_OSSL_DECODER && reason == ERR_R_UNSUPPORTED);
}

const char *tls_reason(void)
{
    unsigned long error = ERR_peek_error();
    const char *text = ERR_SYSTEM_ERROR(error) ? strerrordesc_np(ERR_GET_REASON(error))
                                               : ERR_reason_error_string(error);

    if (ERR_GET_LIB(error) == ERR_LIB_X509 && ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH)
        return "it is not the key of the certificate";
    if (is_of_another_kind(error))
        return "there is nothing of that kind in it, as PEM: is it another file?";
    return text ? text : "unknown reason";
}

bool tls_is_no_record(int code)
{
    return code == SSL_R_WRONG_VERSION_NUMBER || code == SSL_R_PACKET_LENGTH_TOO_LONG ||
           code == SSL_R_HTTP_REQUEST || code == SSL_R_HTTPS_PROXY_REQUEST ||
           code == SSL_R_BAD_RECORD_TYPE || code == SSL_R_UNEXPECTED_MESSAGE;
}

int tls_note_passphrase(char *ret_text, int size, int for_writing, void *arg)
{
    (void)ret_text;
    (void)size;
    (void)for_writing;
    *(bool *)arg = true;
    return -1;
}

bool tls_set_least_version(SSL_CTX *context)
{
    return SSL_CTX_get_min_proto_version(context) >= TLS1_2_VERSION ||
           SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
}
