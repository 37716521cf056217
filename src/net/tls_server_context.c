/* tls_server_context.c: certificate, key and authorities of a server, from their files. */
#include "net/tls_server_inside.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Tickets of one server are of no use at another, nor is a session of before a reload: each context has keys of its own. */
static const unsigned char session_id_context[] = "holdfastd";

static int say(const char *setting, const char *path, struct error_text *err)
{
    return error_set(err, HF_EREFUSED, "%s %s: %s", setting, path, tls_reason());
}

/* ---- dates ----------------------------------------------------------------------------------------- */

static int64_t seconds_of(const ASN1_TIME *at)
{
    struct tm tm = {0};

    return at && ASN1_TIME_to_tm(at, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static void note_certificate(const X509 *certificate, struct tls_server_dates *dates)
{
    int64_t begins = seconds_of(X509_get0_notBefore(certificate));
    int64_t ends = seconds_of(X509_get0_notAfter(certificate));

    if (begins > dates->begins)
        dates->begins = begins;
    if (dates->ends == 0 || ends < dates->ends)
        dates->ends = ends;
}

static void note_dates(SSL_CTX *context, struct tls_server_dates *dates)
{
    STACK_OF(X509) *chain = NULL;

    note_certificate(SSL_CTX_get0_certificate(context), dates);
    SSL_CTX_get_extra_chain_certs(context, &chain);
    for (int i = 0; chain && i < sk_X509_num(chain); i++)
        note_certificate(sk_X509_value(chain, i), dates);
}

static void note_revocations(SSL_CTX *context, struct tls_server_dates *dates)
{
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));

    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        const X509_CRL *crl = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(objects, i));
        int64_t ends = crl ? seconds_of(X509_CRL_get0_nextUpdate(crl)) : 0;

        if (ends > 0 && (dates->crl_ends == 0 || ends < dates->crl_ends))
            dates->crl_ends = ends;
    }
}

/* ---- files ------------------------------------------------------------------------------------------ */

static int use_key(SSL_CTX *context, const struct tls_server_files *files, struct error_text *err)
{
    bool is_locked = false;
    BIO *bio =
        files->key_size <= INT_MAX ? BIO_new_mem_buf(files->key, (int)files->key_size) : NULL;
    EVP_PKEY *key =
        bio ? PEM_read_bio_PrivateKey(bio, NULL, tls_note_passphrase, &is_locked) : NULL;
    int result = HF_OK;

    BIO_free(bio);
    if (is_locked)
        result = error_set(err, HF_EREFUSED,
                           "%s %s: protected by a passphrase, which cannot be asked for",
                           files->settings.key, files->key_file);
    else if (!key || SSL_CTX_use_PrivateKey(context, key) != 1)
        result = say(files->settings.key, files->key_file,
                     err); /* also if it belongs to another certificate */
    EVP_PKEY_free(key);
    return result;
}

static int use_certificate(SSL_CTX *context, const struct tls_server_files *files,
                           struct error_text *err)
{
    if (SSL_CTX_use_certificate_chain_file(context, files->cert_file) != 1)
        return say(files->settings.cert, files->cert_file, err);
    return use_key(context, files, err);
}

static int use_authorities(SSL_CTX *context, const struct tls_server_files *files,
                           struct error_text *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    X509_LOOKUP *lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    STACK_OF(X509_NAME) * names;

    if (SSL_CTX_load_verify_file(context, files->ca_file) != 1)
        return say(files->settings.ca, files->ca_file, err);
    /* So that a client with several certificates knows which one to show. */
    names = SSL_load_client_CA_file(files->ca_file);
    if (!names)
        return say(files->settings.ca, files->ca_file, err);
    SSL_CTX_set_client_CA_list(context, names);
    if (!files->crl_file[0])
        return HF_OK;
    if (!lookup || X509_load_crl_file(lookup, files->crl_file, X509_FILETYPE_PEM) < 1)
        return say(files->settings.crl, files->crl_file, err);
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return HF_OK;
}

/* Who resumes a session is not asked for a certificate again, whatever has become of the old one: where they are asked for there are none. */
static int ask_for_certificates(SSL_CTX *context, const struct tls_server_files *files,
                                struct error_text *err)
{
    int mode = SSL_VERIFY_PEER;

    if (files->clients == TLS_CLIENTS_ANYBODY)
        return HF_OK;
    if (files->clients == TLS_CLIENTS_MUST || files->clients == TLS_CLIENTS_ARE_PEERS)
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(context, mode, NULL);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context, 0);
    return use_authorities(context, files, err);
}

/* Who comes chooses among them, and a secret of the finite fields that OpenSSL offers beside its curves costs a hundred times as much: more than
 * 100 ms for ffdhe8192, to whoever sends 1 KB. The longest list of which OpenSSL and its providers know all. */
static bool set_groups(SSL_CTX *context)
{
    static const char *const lists[] = {"X25519MLKEM768:X25519:P-256:X448:P-384:P-521",
                                        "X25519:P-256:X448:P-384:P-521", "P-256:P-384:P-521"};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (SSL_CTX_set1_groups_list(context, lists[i]) == 1) {
            ERR_clear_error(); /* of the lists before it */
            return true;
        }
    return false;
}

static int set_up(SSL_CTX *context, struct error_text *err)
{
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(context, TLS_PEER_CERTIFICATES_MAX);
    if (!tls_set_least_version(context) || SSL_CTX_set_num_tickets(context, 1) != 1 ||
        SSL_CTX_set_session_id_context(context, session_id_context,
                                       sizeof session_id_context - 1) != 1)
        return error_set(err, HF_EREFUSED, "TLS 1.2: %s", tls_reason());
    if (!set_groups(context))
        return error_set(err, HF_EREFUSED, "TLS: groups of keys: %s", tls_reason());
    return HF_OK;
}

/* Both sides are of this program: 1.3, of which nothing can be renegotiated, and whose exported keys are those of this connection alone. */
static int set_up_for_peers(SSL_CTX *context, struct error_text *err)
{
    SSL_CTX_set_verify_depth(context, TLS_PEER_DEPTH_MAX);
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
        return error_set(err, HF_EREFUSED, "TLS 1.3: %s", tls_reason());
    return HF_OK;
}

int tls_context_new(const struct tls_server_files *files, struct tls_context **ret_context,
                    struct error_text *err)
{
    struct tls_context *context = tls_prepare() ? calloc(1, sizeof *context) : NULL;
    int result;

    if (!context)
        return error_set(err, HF_ENOMEM, "TLS: out of memory");
    ERR_clear_error();
    context->ssl =
        SSL_CTX_new(files->clients == TLS_CLIENTS_ARE_PEERS ? TLS_method() : TLS_server_method());
    if (context->ssl)
        result = set_up(context->ssl, err);
    else
        result = error_set(err, HF_ENOMEM, "TLS: %s", tls_reason());
    if (result == HF_OK && files->clients == TLS_CLIENTS_ARE_PEERS)
        result = set_up_for_peers(context->ssl, err);
    if (result == HF_OK)
        result = use_certificate(context->ssl, files, err);
    if (result == HF_OK)
        result = ask_for_certificates(context->ssl, files, err);
    if (result == HF_OK) {
        note_dates(context->ssl, &context->dates);
        note_revocations(context->ssl, &context->dates);
        *ret_context = context;
    } else {
        tls_context_free(context);
    }
    ERR_clear_error();
    return result;
}

void tls_context_free(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl); /* each client has its own reference */
    free(context);
}

void tls_context_dates(const struct tls_context *context, struct tls_server_dates *ret_dates)
{
    *ret_dates = context->dates;
}
