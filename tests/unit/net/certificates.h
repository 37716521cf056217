/* certificates.h: authorities and certificates, made fresh for each run of the test. */
#ifndef TESTS_NET_CERTIFICATES_H
#define TESTS_NET_CERTIFICATES_H

#include <openssl/x509.h>

struct identity {
    X509 *certificate;
    EVP_PKEY *key;
};

/* names: as in "DNS:server.test,IP:127.0.0.1"; NULL: an authority. issuer: NULL signs itself.
 * Valid from two days ago until so many days from now. Fails the test if it cannot. */
struct identity identity_make(const char *common_name, const char *names,
                              const struct identity *issuer, int days);
void identity_free(struct identity *identity);

/* The certificate, or the key (with a passphrase unless NULL), as a PEM file. */
void identity_write_certificate(const struct identity *identity, const char *path);
void identity_write_key(const struct identity *identity, const char *path, const char *passphrase);

#endif
