/* users.h: who may do what: the users file, as docs/users.md has it. Its words are base/users_file.h's, rights are session/rights.h's.
 *
 * While there is a file, nobody may do anything that it does not say. Where there is none, whoever has the one password (password-file), or
 * anybody if there is no password, may do everything. */
#ifndef SERVER_USERS_H
#define SERVER_USERS_H

#include "base/error.h"
#include "base/sha256.h"
#include "base/users_file.h"
#include "session/rights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_PASSWORDS USERS_PASSWORDS_MAX

struct account {
    struct user user;
    struct user_grant *grants;                             /* the user's */
    char *patterns[USERS_GRANTS_MAX];                      /* of the grants, in their order */
    char passwords[ACCOUNT_PASSWORDS][USERS_HASH_MAX + 1]; /* as crypt(5) stores them */
    unsigned password_count;
    char *certificates[USERS_CERTIFICATES_MAX]; /* names: who shows one with it is this user */
    unsigned certificate_count;
    /* A password that was found right is known again by this, at once: keyed with what only this process has. */
    unsigned char known[ACCOUNT_PASSWORDS][SHA256_SIZE];
    bool is_known[ACCOUNT_PASSWORDS];
    uint32_t connections,
        connections_max; /* 0: as many as the server takes; the other limits are the user's */
};

struct users {
    struct account *accounts;
    size_t count;
};

/* Whose rights are gone: what is under way ends, and nothing else begins. */
extern const struct user user_of_none;

/* Refused as a password file is: open to others, none that can be read, without a user, or with something wrong in it, which is said with its line. */
int users_read(const char *path, struct users **ret_users, struct error_text *err);
/* NULL is fine. */
void users_free(struct users *users);
/* NULL: there is none. */
struct account *users_find(struct users *users, const char *name, size_t size);
/* Whose certificate has this name; any_case: it is one of DNS. NULL: nobody's. */
struct account *users_find_certificate(struct users *users, bool any_case, const char *name);

/* ---- passwords -------------------------------------------------------------------------------- */

/* Is this one of the account's passwords, as was found before? */
bool account_knows(const struct account *account, const char *password, size_t size);
/* It is, as a thread has found, of this stored one. Does nothing if that is not stored any more. */
void account_learn(struct account *account, const char *stored, const char *password, size_t size);
/* Of passwords that are stored as before. NULL is fine. */
void users_keep_known(struct users *users, struct users *before);
/* Takes tens of milliseconds, on purpose: for a thread. password ends with a NUL. */
bool password_is_stored(const char *stored, const char *password);

#endif
