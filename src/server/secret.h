/* secret.h: the password that clients must know, or the secret that peers share. Only its digest is kept, so
 * that a core dump or a stray read shows no password. */
#ifndef SERVER_SECRET_H
#define SERVER_SECRET_H

#include "base/error.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>

/* Fewer characters can be guessed: the peers' secret offline, by whoever sees a handshake of two nodes; a password by asking. */
#define SECRET_MIN 16
#define SECRET_ADVICE "make one with 'openssl rand -hex 32'"

struct secret {
    bool set;      /* false: there is no password, and nothing matches it */
    bool is_short; /* less than SECRET_MIN */
    unsigned char digest[SHA256_SIZE];
};

/* The first line of a file, without its end. Refused: a file that others (not: its group) can read
 * or write, or its group can write; one that is not a regular file; an empty or too long line. No
 * message quotes what is in it. what: the setting that names the file. */
int secret_read(const char *what, const char *path, struct secret *ret_secret,
                struct error_text *err);

/* How long it takes depends on `length` alone, neither on how much is right nor on the secret. */
bool secret_matches(const struct secret *secret, const void *bytes, size_t length);

void secret_wipe(struct secret *secret);

#endif
