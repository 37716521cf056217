#include "certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DAY_S (24L * 3600)

static void add_extension(X509 *certificate, X509V3_CTX *context, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, nid, value);

    assert_non_null(extension);
    assert_int_equal(1, X509_add_ext(certificate, extension, -1));
    X509_EXTENSION_free(extension);
}

struct identity identity_make(const char *common_name, const char *names,
                              const struct identity *issuer, int days)
{
    static long serial = 1;
    struct identity made = {.certificate = X509_new(), .key = EVP_EC_gen("P-256")};
    X509 *certificate = made.certificate;
    X509V3_CTX context;
    X509_NAME *subject;

    assert_non_null(certificate);
    assert_non_null(made.key);
    if (!issuer)
        issuer = &made;
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -2 * DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(certificate), days * DAY_S);
    subject = X509_get_subject_name(certificate);
    assert_int_equal(1, X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                                   (const unsigned char *)common_name, -1, -1, 0));
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer->certificate));
    X509_set_pubkey(certificate, made.key);
    X509V3_set_ctx(&context, issuer->certificate, certificate, NULL, NULL, 0);
    add_extension(certificate, &context, NID_basic_constraints,
                  names ? "CA:FALSE" : "critical,CA:TRUE");
    if (names)
        add_extension(certificate, &context, NID_subject_alt_name, names);
    assert_true(X509_sign(certificate, issuer->key, EVP_sha256()) > 0);
    return made;
}

void identity_free(struct identity *identity)
{
    X509_free(identity->certificate);
    EVP_PKEY_free(identity->key);
    *identity = (struct identity){NULL, NULL};
}

void identity_write_certificate(const struct identity *identity, const char *path)
{
    FILE *out = fopen(path, "we");

    assert_non_null(out);
    assert_int_equal(1, PEM_write_X509(out, identity->certificate));
    assert_int_equal(0, fclose(out));
}

void identity_write_key(const struct identity *identity, const char *path, const char *passphrase)
{
    FILE *out = fopen(path, "we");

    assert_non_null(out);
    assert_int_equal(1,
                     PEM_write_PrivateKey(out, identity->key, passphrase ? EVP_aes_128_cbc() : NULL,
                                          (const unsigned char *)passphrase,
                                          passphrase ? (int)strlen(passphrase) : 0, NULL, NULL));
    assert_int_equal(0, fclose(out));
}
