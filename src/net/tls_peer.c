/* tls_peer.c: a connection between two nodes, as TLS has it.
 *
 * What has come is read where it lies, without a copy; what is to be sent gathers in `out`, which its owner empties. In a handshake that is what
 * one side says at a time, some KB; OpenSSL itself keeps one record that has come in part, and what TLS_PEER_CERTIFICATES_MAX allows. */
#include "net/tls_peer.h"
#include "base/switches.h"
#include "net/tls_server_inside.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OUT_MIN 4096u
#define OUT_KEPT 65536u /* more is given back when it has been sent */
#define HOST_MAX 255u
#define HOST_FLAGS (X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)

struct tls_peer {
    SSL *ssl;
    bool connects;
    bool is_open; /* the handshake is done */
    bool over;    /* OpenSSL forbids to go on after an error */
    bool is_left; /* it wants too much of us */
    bool lacks_memory;
    const unsigned char *in; /* borrowed */
    size_t in_size;
    unsigned char *out;
    size_t out_used, out_room;
    struct tls_chores chores;
    uint64_t records; /* sent with this key */
};

/* ---- what OpenSSL reads from and writes to ------------------------------------------------------ */

static int memory_read(BIO *bio, char *bytes, int size)
{
    struct tls_peer *peer = BIO_get_data(bio);
    size_t n = peer->in_size < (size_t)size ? peer->in_size : (size_t)size;

    BIO_clear_retry_flags(bio);
    if (peer->is_left)
        return -1;
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(bytes, peer->in, n);
    peer->in += n;
    peer->in_size -= n;
    return (int)n;
}

static bool make_room(struct tls_peer *peer, size_t size)
{
    size_t room = peer->out_room > OUT_MIN ? peer->out_room : OUT_MIN;
    unsigned char *now;

    while (room - peer->out_used < size)
        room *= 2;
    if (room == peer->out_room)
        return true;
    now = realloc(peer->out, room);
    if (!now)
        return false;
    peer->out = now;
    peer->out_room = room;
    return true;
}

static int memory_write(BIO *bio, const char *bytes, int size)
{
    struct tls_peer *peer = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (!make_room(peer, (size_t)size)) {
        peer->lacks_memory = true;
        return -1;
    }
    memcpy(peer->out + peer->out_used, bytes, (size_t)size);
    peer->out_used += (size_t)size;
    return size;
}

static long memory_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *memory_method; /* NULL: out of memory when it was made */

static void prepare(void)
{
    int index = BIO_get_new_index();
    BIO_METHOD *method =
        index < 0 ? NULL : BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "holdfast memory");

    if (method && BIO_meth_set_read(method, memory_read) &&
        BIO_meth_set_write(method, memory_write) && BIO_meth_set_ctrl(method, memory_control))
        memory_method = method;
    else
        BIO_meth_free(method);
}

static bool set_memory(struct tls_peer *peer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pthread_once(&once, prepare);
    bio = memory_method ? BIO_new(memory_method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, peer);
    BIO_set_init(bio, 1);
    SSL_set_bio(peer->ssl, bio, bio); /* takes it, once for both directions */
    return true;
}

/* ---- one end ------------------------------------------------------------------------------------- */

static void on_message(int sent, int version, int kind, const void *bytes, size_t size, SSL *ssl,
                       void *arg)
{
    struct tls_peer *peer = arg;

    (void)version, (void)bytes, (void)size, (void)ssl;
    if (peer->is_open && tls_is_chore(sent, kind))
        peer->is_left = !tls_chore(&peer->chores);
}

static bool is_number(const char *host)
{
    unsigned char binary[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1;
}

/* The dot that ends a complete name is for the resolver; certificates do not have it. An empty name would mean that any will do. */
static bool plain_name(const char *host, char ret_name[HOST_MAX + 1])
{
    size_t length = strlen(host);

    if (length > HOST_MAX)
        return false;
    memcpy(ret_name, host, length + 1);
    if (length > 0 && ret_name[length - 1] == '.')
        ret_name[length - 1] = '\0';
    return ret_name[0] != '\0';
}

/* Whom the certificate must name: a number as a number, a name also in the handshake (SNI). */
static bool expect_host(SSL *ssl, const char *host)
{
    char name[HOST_MAX + 1];

    if (is_number(host))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, HOST_FLAGS);
    return plain_name(host, name) && SSL_set1_host(ssl, name) == 1 &&
           SSL_set_tlsext_host_name(ssl, name) == 1;
}

static void peer_free(struct tls_peer *peer)
{
    if (!peer)
        return;
    SSL_free(peer->ssl); /* with its BIO */
    ERR_clear_error();
    free(peer->out);
    free(peer);
}

static int peer_new(struct tls_context *context, const char *host, struct tls_peer **ret_peer)
{
    struct tls_peer *peer = calloc(1, sizeof *peer);
    int result = HF_OK;

    if (!peer)
        return HF_ENOMEM;
    ERR_clear_error();
    peer->connects = host != NULL;
    peer->ssl = SSL_new(context->ssl);
    if (!peer->ssl || !set_memory(peer))
        result = HF_ENOMEM;
    else if (host && !SWITCHED(SWITCH_PEER_HOST_UNCHECKED) && !expect_host(peer->ssl, host))
        result = HF_EINVAL;
    ERR_clear_error();
    if (result != HF_OK) {
        peer_free(peer);
        return result;
    }
    if (host)
        SSL_set_connect_state(peer->ssl);
    else
        SSL_set_accept_state(peer->ssl);
    if (SWITCHED(SWITCH_PEER_UNVERIFIED))
        SSL_set_verify(peer->ssl, SSL_VERIFY_NONE, NULL);
    SSL_set_msg_callback(peer->ssl, on_message);
    SSL_set_msg_callback_arg(peer->ssl, peer);
    *ret_peer = peer;
    return HF_OK;
}

static void feed(struct tls_peer *peer, const void *bytes, size_t size)
{
    peer->in = bytes;
    peer->in_size = size;
}

/* ---- failures, in words -------------------------------------------------------------------------- */

static int say_untrusted(long verdict, struct error_text *err)
{
    const char *why = X509_verify_cert_error_string(verdict);

    switch (tls_distrust(verdict)) {
    case TLS_OTHER_HOST:
        return error_set(err, HF_EREFUSED, "its certificate is not for the host of this address");
    case TLS_OTHER_AUTHORITY:
        return error_set(err, HF_EREFUSED,
                         "its certificate is not of an authority that nodes have here: %s", why);
    case TLS_REVOCATION_UNKNOWN:
        return error_set(err, HF_EREFUSED,
                         "whether its certificate was revoked is not in the lists here: %s", why);
    default:
        return error_set(err, HF_EREFUSED, "its certificate is not valid: %s", why);
    }
}

/* What is wrong is in the queue of errors. */
static int say_protocol_error(const struct tls_peer *peer, struct error_text *err)
{
    int code = ERR_GET_REASON(ERR_peek_error()), alert = code - SSL_AD_REASON_OFFSET;
    long verdict = SSL_get_verify_result(peer->ssl);

    if (peer->lacks_memory)
        return error_set(err, HF_EUNREACH, "out of memory");
    if (peer->is_left)
        return error_set(err, HF_EUNREACH, "it changes its keys all the time");
    if (code == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK)
        return say_untrusted(verdict, err);
    if (code == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return error_set(err, HF_EREFUSED, "it shows no certificate, which every node must");
    if (tls_is_about_our_certificate(alert))
        return error_set(err, HF_EREFUSED, "it does not accept this node's certificate: %s",
                         SSL_alert_desc_string_long(alert));
    if (!peer->is_open && tls_is_no_record(code))
        return error_set(err, HF_EINVAL, "it does not speak TLS (%s)", tls_reason());
    return error_set(err, HF_EUNREACH, "TLS: %s", tls_reason());
}

/* A call gave nothing: TLS_AGAIN, or it is over, in words. */
static int explain(struct tls_peer *peer, int given, struct error_text *err)
{
    int result;

    switch (SSL_get_error(peer->ssl, given)) {
    case SSL_ERROR_WANT_READ:
        return TLS_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        result = error_set(err, HF_EUNREACH, "%s", "");
        break;
    default:
        result = say_protocol_error(peer, err);
    }
    peer->over = true;
    ERR_clear_error();
    return result;
}

/* ---- the handshake ------------------------------------------------------------------------------- */

/* OpenSSL has seen to it. If a configuration of the system should ever talk it out of that, we still do not speak to a stranger. */
static int check_certificate(struct tls_peer *peer, struct error_text *err)
{
    long verdict = SSL_get_verify_result(peer->ssl);

    if (SWITCHED(SWITCH_PEER_UNVERIFIED))
        return HF_OK;
    if (SSL_get0_peer_certificate(peer->ssl) && verdict == X509_V_OK)
        return HF_OK;
    peer->over = true;
    return say_untrusted(verdict == X509_V_OK ? X509_V_ERR_UNSPECIFIED : verdict, err);
}

static int handshake(struct tls_peer *peer, struct error_text *err)
{
    int given;

    if (peer->over)
        return error_set(err, HF_EUNREACH, "it is over");
    ERR_clear_error();
    given = SSL_do_handshake(peer->ssl);
    if (given != 1)
        return explain(peer, given, err);
    peer->is_open = true;
    return check_certificate(peer, err);
}

static bool names_host(X509 *certificate, const char *host)
{
    char name[HOST_MAX + 1];
    int match = 0;

    if (is_number(host))
        match = X509_check_ip_asc(certificate, host, 0);
    else if (plain_name(host, name))
        match = X509_check_host(certificate, name, 0, HOST_FLAGS, NULL);
    ERR_clear_error();
    return match == 1;
}

static bool is_for(const struct tls_peer *peer, const char *host)
{
    X509 *certificate = SSL_get0_peer_certificate(peer->ssl);

    return SWITCHED(SWITCH_PEER_HOST_UNCHECKED) || (certificate && names_host(certificate, host));
}

/* ---- this node's own ------------------------------------------------------------------------------ */

/* X509_V_OK, or what is wrong with it for this purpose. Out of memory is wrong, too. */
static long judge_own(SSL_CTX *context, int purpose)
{
    STACK_OF(X509) *chain = NULL;
    X509_STORE_CTX *judging = X509_STORE_CTX_new();
    long verdict = X509_V_ERR_OUT_OF_MEM;

    SSL_CTX_get0_chain_certs(context, &chain);
    if (judging &&
        X509_STORE_CTX_init(judging, SSL_CTX_get_cert_store(context),
                            SSL_CTX_get0_certificate(context), chain) == 1 &&
        X509_STORE_CTX_set_purpose(judging, purpose) == 1) {
        X509_STORE_CTX_set_depth(judging, TLS_PEER_DEPTH_MAX);
        verdict = X509_verify_cert(judging) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(judging);
        if (verdict == X509_V_OK && X509_STORE_CTX_get_error(judging) != X509_V_OK)
            verdict = X509_STORE_CTX_get_error(judging);
    }
    X509_STORE_CTX_free(judging);
    ERR_clear_error();
    return verdict;
}

static int check_own(const struct tls_context *context, const char *host, struct error_text *err)
{
    static const int purposes[] = {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT};

    for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++) {
        long verdict = judge_own(context->ssl, purposes[i]);
        const char *why = X509_verify_cert_error_string(verdict);

        if (verdict == X509_V_ERR_OUT_OF_MEM)
            return error_set(err, HF_ENOMEM, "out of memory");
        if (verdict == X509_V_ERR_INVALID_PURPOSE)
            return error_set(err, HF_EREFUSED, "its extendedKeyUsage does not allow %s",
                             i == 0 ? "serverAuth" : "clientAuth");
        if (verdict != X509_V_OK && tls_distrust(verdict) == TLS_OTHER_AUTHORITY)
            return error_set(err, HF_EREFUSED, "it is not of an authority that nodes have here: %s",
                             why);
        if (verdict != X509_V_OK)
            return error_set(err, HF_EREFUSED, "%s", why);
    }
    if (!names_host(SSL_CTX_get0_certificate(context->ssl), host))
        return error_set(err, HF_EREFUSED,
                         "it is not for the host %s, which is this node's address in cluster",
                         host);
    return HF_OK;
}

static bool binding(const struct tls_peer *peer, unsigned char ret_binding[TLS_PEER_BINDING])
{
    static const char label[] = "EXPORTER-Channel-Binding";
    static const unsigned char nothing[1];
    bool done =
        peer->is_open && SSL_export_keying_material(peer->ssl, ret_binding, TLS_PEER_BINDING, label,
                                                    sizeof label - 1, nothing, 0, 1) == 1;

    ERR_clear_error();
    return done;
}

/* ---- bytes --------------------------------------------------------------------------------------- */

static ssize_t peer_read(struct tls_peer *peer, void *bytes, size_t size, struct error_text *err)
{
    size_t n = 0;
    int given, result;

    if (peer->over)
        return error_set(err, HF_EUNREACH, "it is over");
    given = SSL_read_ex(peer->ssl, bytes, size, &n);
    if (given == 1) {
        peer->chores.bytes += n;
        return (ssize_t)n;
    }
    result = explain(peer, given, err);
    return result == TLS_AGAIN ? 0 : result;
}

/* A key is good for so many records of AES-GCM; nobody but we counts them (RFC 8446, 5.5). */
static void renew_key(struct tls_peer *peer)
{
    if (++peer->records < TLS_PEER_RECORDS_A_KEY)
        return;
    peer->records = 0;
    SSL_key_update(peer->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
}

static int peer_write(struct tls_peer *peer, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    size_t n;

    while (size > 0 && !peer->over) {
        size_t part = size < TLS_PEER_RECORD ? size : TLS_PEER_RECORD;

        renew_key(peer);
        if (SSL_write_ex(peer->ssl, at, part, &n) != 1) {
            peer->over = true;
            ERR_clear_error();
            break;
        }
        at += n;
        size -= n;
    }
    return size == 0 ? HF_OK : peer->lacks_memory ? HF_ENOMEM : HF_EUNREACH;
}

static size_t output(const struct tls_peer *peer, const void **ret_bytes)
{
    *ret_bytes = peer->out;
    return peer->out_used;
}

static void sent(struct tls_peer *peer)
{
    peer->out_used = 0;
    if (peer->out_room <= OUT_KEPT)
        return;
    free(peer->out);
    peer->out = NULL;
    peer->out_room = 0;
}

static const struct tls_peer_provider provider = {.abi = TLS_PEER_ABI,
                                                  .check_own = check_own,
                                                  .peer_new = peer_new,
                                                  .feed = feed,
                                                  .handshake = handshake,
                                                  .read = peer_read,
                                                  .write = peer_write,
                                                  .output = output,
                                                  .sent = sent,
                                                  .is_for = is_for,
                                                  .binding = binding,
                                                  .peer_free = peer_free};

HF_API tls_peer_module_fn holdfast_tls_peer;

const struct tls_peer_provider *holdfast_tls_peer(void)
{
    return &provider;
}
