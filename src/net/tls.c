/* tls.c: the module holdfast-tls.so, TLS by OpenSSL 3.
 *
 * The server always proves who it is, by a certificate of the system's authorities or of ca-file
 * that names the host we asked for; there is no switch that turns this off. TLS 1.2 is the least.
 *
 * We are a guest in somebody's process, which may use OpenSSL too. So: nothing at exit (the host's
 * threads, or ours, may still be busy then), no prompt on the terminal for a key's passphrase, no
 * SIGPIPE (tls_socket.c), and the thread's queue of errors is left empty. */
#include "net/tls.h"
#include "net/stream.h"
#include "net/tls_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

struct tls_session {
    SSL *ssl;
    const struct access *access;
    const struct address *address;
    struct tls_socket sock;
    bool asked;        /* the server asked for a certificate of ours */
    bool done;         /* the handshake */
    short read_wants;  /* poll events: POLLIN, unless reading has to write first */
    short write_wants; /* POLLOUT, or the reverse */
};

/* ---- certificates ---------------------------------------------------------------------------- */

static int note_request(SSL *ssl, void *arg)
{
    struct tls_session *session = arg;

    (void)ssl;
    session->asked = true;
    return 1;
}

static int use_authorities(SSL_CTX *context, const struct access *access, struct error_text *err)
{
    if (!access->ca_file[0]) {
        if (SSL_CTX_set_default_verify_paths(context) != 1)
            return error_set(err, HF_EREFUSED, "the system's authorities: %s", tls_reason());
    } else if (SSL_CTX_load_verify_file(context, access->ca_file) != 1) {
        return error_set(err, HF_EREFUSED, "ca-file %s: %s", access->ca_file, tls_reason());
    }
    return HF_OK;
}

/* Then each certificate of the chain needs a list of its authority: one that is missing, or out of date, is a refusal. */
static int use_revocations(SSL_CTX *context, const struct access *access, struct error_text *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    X509_LOOKUP *lookup;

    if (!access->crl_file[0])
        return HF_OK;
    lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (!lookup || X509_load_crl_file(lookup, access->crl_file, X509_FILETYPE_PEM) < 1)
        return error_set(err, HF_EREFUSED, "crl-file %s: %s", access->crl_file, tls_reason());
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return HF_OK;
}

static int use_certificate(SSL_CTX *context, const struct access *access, struct error_text *err)
{
    bool is_locked = false;
    int result;

    if (!access->cert_file[0])
        return HF_OK;
    SSL_CTX_set_default_passwd_cb(context, tls_note_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(context, &is_locked);
    if (SSL_CTX_use_certificate_chain_file(context, access->cert_file) != 1)
        return error_set(err, HF_EREFUSED, "cert-file %s: %s", access->cert_file, tls_reason());
    /* This also finds a key that belongs to another certificate. */
    result = SSL_CTX_use_PrivateKey_file(context, access->key_file, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
    if (result == 1)
        return HF_OK;
    if (is_locked)
        return error_set(err, HF_EREFUSED,
                         "key-file %s: protected by a passphrase, which cannot be asked for",
                         access->key_file);
    return error_set(err, HF_EREFUSED, "key-file %s: %s", access->key_file, tls_reason());
}

static int new_context(const struct access *access, SSL_CTX **ret_context, struct error_text *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int result;

    if (!context)
        return error_set(err, HF_ENOMEM, "TLS: %s", tls_reason());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!tls_set_least_version(context))
        result = error_set(err, HF_EREFUSED, "TLS 1.2: %s", tls_reason());
    else
        result = use_authorities(context, access, err);
    if (result == HF_OK)
        result = use_revocations(context, access, err);
    if (result == HF_OK)
        result = use_certificate(context, access, err);
    if (result == HF_OK)
        *ret_context = context;
    else
        SSL_CTX_free(context);
    return result;
}

/* Whom the certificate must name: a number as a number, a name also in the handshake (SNI). */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char binary[sizeof(struct in6_addr)];
    char name[ADDRESS_HOST_MAX + 1];
    size_t length = strlen(host);

    if (inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    /* The dot that ends a complete name is for the resolver; certificates do not have it. An empty
     * name would mean that any will do. */
    memcpy(name, host, length + 1);
    if (length > 0 && name[length - 1] == '.')
        name[length - 1] = '\0';
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return name[0] && SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

/* ---- a session ------------------------------------------------------------------------------- */

static void session_free(struct tls_session *session)
{
    if (!session)
        return;
    SSL_free(session->ssl); /* with its BIO */
    ERR_clear_error();
    free(session);
}

static int make_ssl(struct tls_session *session, SSL_CTX *context, struct error_text *err)
{
    SSL *ssl = session->ssl = SSL_new(context);

    if (!ssl || !expect_host(ssl, session->address->host))
        return error_set(err, HF_EREFUSED, "%s: TLS: %s", session->address->shown,
                         ssl ? "no certificate can be for such a host" : tls_reason());
    if (!tls_socket_set(&session->sock, ssl))
        return error_set(err, HF_ENOMEM, "out of memory");
    SSL_set_cert_cb(ssl, note_request, session);
    SSL_set_connect_state(ssl);
    return HF_OK;
}

static int session_new(const struct access *access, const struct address *address,
                       struct tls_session **ret_session, struct error_text *err)
{
    struct tls_session *session;
    SSL_CTX *context = NULL;
    int result;

    session = tls_prepare() ? calloc(1, sizeof *session) : NULL;
    if (!session)
        return error_set(err, HF_ENOMEM, "TLS: out of memory");
    *session = (struct tls_session){.access = access,
                                    .address = address,
                                    .sock = {.fd = -1},
                                    .read_wants = POLLIN,
                                    .write_wants = POLLOUT};
    ERR_clear_error();
    result = new_context(access, &context, err);
    if (result == HF_OK)
        result = make_ssl(session, context, err);
    SSL_CTX_free(context); /* the SSL has its own reference */
    ERR_clear_error();
    if (result == HF_OK)
        *ret_session = session;
    else
        session_free(session);
    return result;
}

/* ---- failures, in words ---------------------------------------------------------------------- */

static int say_closed(const struct tls_session *session, struct error_text *err)
{
    /* A server that expects something else than TLS may well hang up at our handshake. */
    return error_set(err, HF_EUNREACH, "%s: the server closed the connection%s",
                     session->address->shown,
                     session->done ? "" : " instead of speaking TLS: is this its TLS port?");
}

static int say_untrusted(const struct tls_session *session, long verdict, struct error_text *err)
{
    const char *shown = session->address->shown, *why = X509_verify_cert_error_string(verdict);

    switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return error_set(err, HF_EREFUSED, "%s: the server's certificate is not for %s", shown,
                         session->address->host);
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        if (session->access->ca_file[0])
            return error_set(err, HF_EREFUSED,
                             "%s: the server's certificate is not trusted: %s; its authority is "
                             "not in %s",
                             shown, why, session->access->ca_file);
        return error_set(err, HF_EREFUSED,
                         "%s: the server's certificate is not trusted: %s; name its authority "
                         "with ?ca-file=",
                         shown, why);
    case X509_V_ERR_UNABLE_TO_GET_CRL:
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_CRL_NOT_YET_VALID:
        return error_set(err, HF_EREFUSED,
                         "%s: whether the server's certificate was revoked is not in %s: %s", shown,
                         session->access->crl_file, why);
    default:
        return error_set(err, HF_EREFUSED, "%s: the server's certificate is not valid: %s", shown,
                         why);
    }
}

/* The server's alerts about a certificate of ours, or about the lack of one: for that TLS 1.2 has no better word than a failed handshake. */
static bool is_about_our_certificate(const struct tls_session *session, int alert)
{
    if (alert == SSL_AD_HANDSHAKE_FAILURE)
        return session->asked && !session->access->cert_file[0];
    return session->asked && tls_is_about_our_certificate(alert);
}

static int say_unaccepted(const struct tls_session *session, int alert, struct error_text *err)
{
    const char *shown = session->address->shown, *file = session->access->cert_file;

    if (!file[0])
        return error_set(err, HF_EREFUSED,
                         "%s: the server wants a client's certificate: give it with ?cert-file= "
                         "and &key-file=",
                         shown);
    return error_set(err, HF_EREFUSED, "%s: the server does not accept %s: %s", shown, file,
                     SSL_alert_desc_string_long(alert));
}

/* For SSL_ERROR_SSL: what is wrong is in the queue of errors. */
static int say_protocol_error(const struct tls_session *session, struct error_text *err)
{
    int code = ERR_GET_REASON(ERR_peek_error()), alert = code - SSL_AD_REASON_OFFSET;
    long verdict = SSL_get_verify_result(session->ssl);

    if (code == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK)
        return say_untrusted(session, verdict, err);
    if (is_about_our_certificate(session, alert))
        return say_unaccepted(session, alert, err);
    if (!session->done && tls_is_no_record(code))
        return error_set(err, HF_EUNREACH,
                         "%s: the server's answer is not TLS: is this its TLS port? (%s)",
                         session->address->shown, tls_reason());
    return error_set(err, HF_EUNREACH, "%s: TLS: %s", session->address->shown, tls_reason());
}

/* For SSL_ERROR_SYSCALL: the socket failed, or came to its end, which is no error of the socket. */
static int say_socket_error(const struct tls_session *session, struct error_text *err)
{
    int failure = session->sock.failure;

    if (failure == 0 || failure == EPIPE || (failure == ECONNRESET && !session->done))
        return say_closed(session, err);
    return error_set_errno(err, HF_EUNREACH, failure, "%s", session->address->shown);
}

/* A call of OpenSSL gave `given`, which is not success: 0 with *wants set, or an error. */
static int explain(const struct tls_session *session, int given, short *wants,
                   struct error_text *err)
{
    switch (SSL_get_error(session->ssl, given)) {
    case SSL_ERROR_WANT_READ:
        *wants = POLLIN;
        return 0;
    case SSL_ERROR_WANT_WRITE:
        *wants = POLLOUT;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return say_closed(session, err);
    case SSL_ERROR_SSL:
        return say_protocol_error(session, err);
    default:
        return say_socket_error(session, err);
    }
}

/* ---- what stream.c calls --------------------------------------------------------------------- */

static int handshake(struct tls_session *session, int fd, struct error_text *err)
{
    int given, result;

    session->sock.fd = fd;
    ERR_clear_error();
    given = SSL_do_handshake(session->ssl);
    if (given != 1) {
        result = explain(session, given, &session->read_wants, err);
        ERR_clear_error();
        return result == 0 ? STREAM_AGAIN : result;
    }
    session->read_wants = POLLIN;
    /* OpenSSL has seen to both. If a configuration of the system should ever talk it out of that,
     * we still do not speak to a stranger. */
    if (!SSL_get0_peer_certificate(session->ssl))
        return say_untrusted(session, X509_V_ERR_UNSPECIFIED, err);
    if (SSL_get_verify_result(session->ssl) != X509_V_OK)
        return say_untrusted(session, SSL_get_verify_result(session->ssl), err);
    session->done = true;
    return HF_OK;
}

static short events(const struct tls_session *session, bool has_output)
{
    if (!session->done)
        return session->read_wants;
    return (short)(session->read_wants | (has_output ? session->write_wants : 0));
}

static ssize_t session_read(struct tls_session *session, void *bytes, size_t size,
                            struct error_text *err)
{
    size_t n = 0;
    ssize_t result;
    int given;

    ERR_clear_error();
    session->read_wants = POLLIN;
    given = SSL_read_ex(session->ssl, bytes, size, &n);
    if (given == 1)
        return (ssize_t)n;
    result = explain(session, given, &session->read_wants, err);
    ERR_clear_error();
    return result;
}

/* The server hung up on a write of ours. What it said before that says more than "closed". */
static ssize_t last_words(struct tls_session *session, int failure, struct error_text *err)
{
    struct error_text said;
    char ignored[1];

    if (session_read(session, ignored, sizeof ignored, &said) != HF_EREFUSED)
        return failure;
    return error_set(err, HF_EREFUSED, "%s", said.text);
}

static ssize_t session_write(struct tls_session *session, const void *bytes, size_t size,
                             struct error_text *err)
{
    size_t n = 0;
    ssize_t result;
    int given;

    ERR_clear_error();
    session->write_wants = POLLOUT;
    given = SSL_write_ex(session->ssl, bytes, size, &n);
    if (given == 1)
        return (ssize_t)n;
    result = explain(session, given, &session->write_wants, err);
    ERR_clear_error();
    if (result < 0)
        result = last_words(session, (int)result, err);
    return result;
}

static const struct tls_provider provider = {.abi = TLS_ABI,
                                             .session_new = session_new,
                                             .handshake = handshake,
                                             .events = events,
                                             .read = session_read,
                                             .write = session_write,
                                             .session_free = session_free};

HF_API tls_module_fn holdfast_tls;

const struct tls_provider *holdfast_tls(void)
{
    return &provider;
}
