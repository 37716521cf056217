/* secret.h: the password that clients must know, or the secret that peers share. Only its digest is kept, so
 * that a core dump or a stray read shows no password.
 *
 * While it is exchanged for another there are two, and both are valid: the first line of the file and the second. */
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
    bool is_short; /* less than SECRET_MIN, one of them */
    unsigned char digest[SHA256_SIZE];
    bool has_other; /* there is a second line */
    unsigned char other[SHA256_SIZE];
};

/* Refused: a file that others (not: its group) can read or write, or its group can write; one that is not a regular file. */
int secret_open(const char *what, const char *path, int *ret_fd, struct error_text *err);

/* The first line of a file, without its end, and the second if there is one. Refused: a file that others (not: its
 * group) can read or write, or its group can write; one that is not a regular file; an empty first line, one that is too long,
 * and a third. No message quotes what is in it. what: the setting that names the file. */
int secret_read(const char *what, const char *path, struct secret *ret_secret,
                struct error_text *err);

/* Either of the two. How long it takes depends on `length` alone, neither on how much is right nor on the secret. */
bool secret_matches(const struct secret *secret, const void *bytes, size_t length);

/* How many are valid, and how many of them are not valid by `other`. */
int secret_count(const struct secret *secret);
int secret_count_new(const struct secret *secret, const struct secret *other);

void secret_wipe(struct secret *secret);

#endif
