/* tls_server.c: a client's connection, as the server's side of TLS has it. tls_server_context.c reads the files.
 *
 * Its memory has a bound: OpenSSL keeps one record that has come in part (17 KiB), one that the socket would not take, and in a handshake what
 * TLS_PEER_CERTIFICATES_MAX allows; who is idle has neither (SSL_MODE_RELEASE_BUFFERS). */
#include "net/tls_server_inside.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

struct tls_client {
    SSL *ssl;
    struct tls_socket sock;
    bool must_write;
    bool has_more; /* see read */
    bool over;     /* OpenSSL forbids to go on after an error */
    bool is_open;  /* the handshake is done */
    struct tls_chores chores;
};

static void on_message(int sent, int version, int kind, const void *bytes, size_t size, SSL *ssl,
                       void *arg)
{
    struct tls_client *client = arg;

    (void)version, (void)bytes, (void)size, (void)ssl;
    if (client->is_open && tls_is_chore(sent, kind))
        client->sock.is_left = !tls_chore(&client->chores);
}

static struct tls_client *client_new(struct tls_context *context, int fd)
{
    struct tls_client *client = calloc(1, sizeof *client);

    if (!client)
        return NULL;
    client->sock = (struct tls_socket){.fd = fd, .until_short = true, .sniffs = true};
    ERR_clear_error();
    client->ssl = SSL_new(context->ssl);
    if (!client->ssl || !tls_socket_set(&client->sock, client->ssl)) {
        SSL_free(client->ssl);
        ERR_clear_error();
        free(client);
        return NULL;
    }
    SSL_set_accept_state(client->ssl);
    SSL_set_msg_callback(client->ssl, on_message);
    SSL_set_msg_callback_arg(client->ssl, client);
    return client;
}

static void client_free(struct tls_client *client)
{
    if (!client)
        return;
    SSL_free(client->ssl); /* with its BIO */
    ERR_clear_error();
    free(client);
}

/* ---- the handshake ----------------------------------------------------------------------------- */

static int say_untrusted(long verdict, struct error_text *err)
{
    const char *why = X509_verify_cert_error_string(verdict);

    switch (tls_distrust(verdict)) {
    case TLS_OTHER_AUTHORITY:
        return error_set(err, HF_EREFUSED,
                         "its certificate is not trusted: %s; its authority is not in tls-ca", why);
    case TLS_REVOCATION_UNKNOWN:
        return error_set(err, HF_EREFUSED,
                         "whether its certificate was revoked is not in tls-crl: %s", why);
    default:
        return error_set(err, HF_EREFUSED, "its certificate is not valid: %s", why);
    }
}

/* For SSL_ERROR_SSL: what is wrong is in the queue of errors. */
static int say_protocol_error(const struct tls_client *client, struct error_text *err)
{
    int code = ERR_GET_REASON(ERR_peek_error()), alert = code - SSL_AD_REASON_OFFSET;
    long verdict = SSL_get_verify_result(client->ssl);

    if (code == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK)
        return say_untrusted(verdict, err);
    if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return error_set(err, HF_EREFUSED, "it shows no certificate, which tls-clients asks for");
    if (tls_is_about_our_certificate(alert))
        return error_set(err, HF_EUNREACH, "it does not accept this server's certificate: %s",
                         SSL_alert_desc_string_long(alert));
    return error_set(err, HF_EUNREACH, "%s", tls_reason());
}

/* For SSL_ERROR_SYSCALL: the socket failed, or came to its end, which is no error of the socket. */
static int say_socket_error(const struct tls_client *client, struct error_text *err)
{
    if (client->sock.failure == 0)
        return error_set(err, HF_EUNREACH, "it closed the connection");
    return error_set(err, HF_EUNREACH, "%s", strerrordesc_np(client->sock.failure));
}

static int explain_handshake(struct tls_client *client, int given, struct error_text *err)
{
    client->must_write = false;
    if (client->sock.is_plain)
        return error_set(err, HF_EINVAL, "it does not speak TLS");
    switch (SSL_get_error(client->ssl, given)) {
    case SSL_ERROR_WANT_READ:
        return TLS_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        client->must_write = true;
        return TLS_AGAIN;
    case SSL_ERROR_SSL:
        return say_protocol_error(client, err);
    default:
        return say_socket_error(client, err);
    }
}

static int handshake(struct tls_client *client, struct error_text *err)
{
    int given, result;

    ERR_clear_error();
    client->sock.is_drained = false;
    given = SSL_do_handshake(client->ssl);
    if (given == 1) {
        client->must_write = false;
        client->is_open = true;
        return HF_OK;
    }
    result = explain_handshake(client, given, err);
    client->over = result != TLS_AGAIN;
    ERR_clear_error();
    return result;
}

static bool must_write(const struct tls_client *client)
{
    return client->must_write;
}

/* ---- who it is --------------------------------------------------------------------------------- */

static void tell_name(enum tls_name kind, const ASN1_STRING *string, tls_name_fn *fn, void *context)
{
    unsigned char *text = NULL;
    int size = string ? ASN1_STRING_to_UTF8(&text, string) : -1;
    bool is_clean = size > 0;

    for (int i = 0; i < size && is_clean; i++)
        is_clean = text[i] >= ' ' && text[i] != 127; /* a NUL hides what comes behind it */
    if (is_clean)
        fn(context, kind, (const char *)text);
    OPENSSL_free(text);
}

/* One that has several means none of them. */
static void tell_common_name(const X509 *certificate, tls_name_fn *fn, void *context)
{
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (at >= 0 && X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0)
        tell_name(TLS_NAME_COMMON, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), fn,
                  context);
}

static void names(const struct tls_client *client, tls_name_fn *fn, void *context)
{
    X509 *certificate = SSL_get1_peer_certificate(client->ssl);
    GENERAL_NAMES *all;

    if (!certificate)
        return;
    if (SSL_get_verify_result(client->ssl) == X509_V_OK) {
        all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
        tell_common_name(certificate, fn, context);
        for (int i = 0; all && i < sk_GENERAL_NAME_num(all) && i < TLS_NAMES_MAX; i++) {
            const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);

            if (name->type == GEN_DNS)
                tell_name(TLS_NAME_DNS, name->d.dNSName, fn, context);
            else if (name->type == GEN_URI)
                tell_name(TLS_NAME_URI, name->d.uniformResourceIdentifier, fn, context);
        }
        GENERAL_NAMES_free(all);
    }
    X509_free(certificate);
    ERR_clear_error();
}

/* ---- bytes --------------------------------------------------------------------------------------- */

/* A call gave nothing: -1 with errno. 0: the client sends no more. */
static ssize_t explain(struct tls_client *client, int given, bool reads, struct error_text *err)
{
    int failure = EPROTO;

    switch (SSL_get_error(client->ssl, given)) {
    case SSL_ERROR_WANT_READ:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        client->must_write = reads;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        if (reads)
            return 0;
        failure = EPIPE;
        break;
    case SSL_ERROR_SSL:
        error_write(err, "%s", tls_reason());
        break;
    default:
        failure = client->sock.failure ? client->sock.failure : EPIPE;
        error_write(err, "%s", client->sock.is_left ? "it changes its keys all the time" : "");
    }
    client->over = true;
    ERR_clear_error();
    errno = failure;
    return -1;
}

static ssize_t fail(int failure, const char *why, struct error_text *err)
{
    error_write(err, "%s", why);
    errno = failure;
    return -1;
}

/* Nothing of what has come is in OpenSSL any more, and the socket has nothing: to ask again would find that out for as much as the read has cost. */
static bool is_empty(const struct tls_client *client)
{
    return client->sock.is_drained && !SSL_has_pending(client->ssl);
}

/* This thread's queue of errors is empty, as each function here leaves it: it is not cleared before. */
static ssize_t client_read(struct tls_client *client, void *bytes, size_t size,
                           struct error_text *err)
{
    size_t have = 0, n;
    int given = 1, why;

    if (client->over)
        return fail(EPROTO, "it is over", err);
    client->must_write = client->has_more = client->sock.is_drained = false;
    while (have < size) { /* each gives what is left of one record */
        given = SSL_read_ex(client->ssl, (char *)bytes + have, size - have, &n);
        if (given != 1)
            break;
        have += n;
        client->chores.bytes += n;
        if (is_empty(client))
            return (ssize_t)have;
    }
    if (have == 0)
        return explain(client, given, true, err);
    why = given == 1 ? SSL_ERROR_NONE : SSL_get_error(client->ssl, given);
    client->has_more =
        why != SSL_ERROR_WANT_READ; /* an end, or an error, which is told next time */
    client->over = why == SSL_ERROR_SSL || why == SSL_ERROR_SYSCALL;
    if (client->over)
        ERR_clear_error();
    return (ssize_t)have;
}

static bool has_more(const struct tls_client *client)
{
    return client->has_more;
}

static ssize_t client_write(struct tls_client *client, const void *bytes, size_t size,
                            struct error_text *err)
{
    size_t n = 0;
    int given;

    if (client->over)
        return fail(EPIPE, "it is over", err);
    given = SSL_write_ex(client->ssl, bytes, size, &n);
    return given == 1 ? (ssize_t)n : explain(client, given, false, err);
}

static void end(struct tls_client *client)
{
    if (client->over || SSL_in_init(client->ssl))
        return;
    ERR_clear_error();
    SSL_shutdown(client->ssl);
    ERR_clear_error();
}

static const struct tls_server_provider provider = {.abi = TLS_SERVER_ABI,
                                                    .context_new = tls_context_new,
                                                    .context_free = tls_context_free,
                                                    .dates = tls_context_dates,
                                                    .client_new = client_new,
                                                    .handshake = handshake,
                                                    .must_write = must_write,
                                                    .names = names,
                                                    .read = client_read,
                                                    .has_more = has_more,
                                                    .write = client_write,
                                                    .end = end,
                                                    .client_free = client_free};

HF_API tls_server_module_fn holdfast_tls_server;

const struct tls_server_provider *holdfast_tls_server(void)
{
    return &provider;
}
