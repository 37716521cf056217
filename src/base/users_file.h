/* users_file.h: what may stand in holdfastd's users file, for the server that reads it and the command that writes it. Its lines are
 * those of conf.h:
 *
 *     user = alice                             # begins a user; once each
 *     password = $y$j9T$...                    # a string of crypt(5); up to two, while one is exchanged for the other
 *     allow = acquire look: jobs/? reports/? # verbs, and patterns of names (glob); without these, all names
 *     allow = floor admin                      # have no names
 *     connections = 50                         # at most so many at a time, of each node
 *     leases = 50                              # the same, of all nodes together: leases,
 *     holds = 100                              # holds and places together,
 *     places = 20                              # and places in queues
 *     certificate = alice.jobs.example.com     # who shows one with this name (CN, or SAN: DNS, URI) is this user; up to eight
 *
 * A user without an allow line may do nothing, one without a password or certificate cannot say who he is. Pure: whoever opens the file looks at its
 * mode. No message quotes a password. */
#ifndef BASE_USERS_FILE_H
#define BASE_USERS_FILE_H

#include "base/conf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define USERS_FILE_MAX (4u << 20) /* bytes: for conf_read_max */
#define USERS_MAX 1000u
#define USERS_NAME_MAX 64u
#define USERS_PASSWORDS_MAX 2u
#define USERS_HASH_MAX 383u /* bytes: what crypt(3) gives, without its NUL */
#define USERS_GRANTS_MAX \
    256u /* of a user: every pattern of his lines, and every line without one */
#define USERS_CONNECTIONS_MAX 1000000u
#define USERS_LEASES_MAX 8000000u /* as many as the lock table holds, like the next */
#define USERS_CLAIMS_MAX 16000000u
#define USERS_CERTIFICATES_MAX 8u  /* of a user */
#define USERS_CERTIFICATE_MAX 255u /* bytes of such a name */

#define USERS_DEFAULT "default" /* who says a password without a name */

enum users_kind {
    USERS_USER,
    USERS_PASSWORD,
    USERS_RIGHTS,
    USERS_CERTIFICATE,
    /* The limits: no more than so many at a time; without a line, any number. */
    USERS_CONNECTIONS,
    USERS_LEASES,
    USERS_HOLDS,
    USERS_PLACES
};
#define USERS_LIMITS 4u
#define USERS_LIMIT(kind) ((unsigned)(kind)-USERS_CONNECTIONS)

enum users_verb {
    USERS_ACQUIRE = 1,
    USERS_LOOK = 2,
    USERS_BREAK = 4,
    USERS_FLOOR = 8,  /* has no names */
    USERS_ADMIN = 16, /* has no names */
};
#define USERS_VERBS 5u
#define USERS_NAMELESS (USERS_FLOOR | USERS_ADMIN)

/* In the order of their bits. */
extern const char *const users_verb_words[USERS_VERBS];

struct users_pattern {
    const char *bytes; /* in the value that was read; without a NUL */
    size_t size;       /* 1 to HF_NAME_MAX */
};

struct users_allow {
    unsigned verbs;       /* bits of enum users_verb, at least one */
    size_t pattern_count; /* 0: all names */
    struct users_pattern patterns[USERS_GRANTS_MAX];
};

/* ---- single values: HF_OK, or HF_EINVAL with what is wrong, without file, line or user ---------- */

int users_file_name(const char *name, struct error_text *err);
int users_file_hash(const char *hash, struct error_text *err);
int users_file_allow(const char *value, struct users_allow *ret_allow, struct error_text *err);
int users_file_certificate(const char *name, struct error_text *err);
int users_file_limit(enum users_kind kind, const char *value, uint32_t *ret_number,
                     struct error_text *err);
/* What the lines of this kind are called. */
const char *users_file_word(enum users_kind kind);

/* ---- the whole file, line by line ---------------------------------------------------------------- */

struct users_line {
    enum users_kind kind;
    const char
        *value; /* of the line: a user's name, a password's hash or a certificate's name, too */
    struct users_allow allow; /* USERS_RIGHTS; its patterns are in the value */
    uint32_t number;          /* of a limit */
};

/* What has been read so far. Begins as zeros; 64 KB: nothing for the stack. */
struct users_reader {
    size_t count;                           /* users */
    size_t passwords, grants, certificates; /* of the last of them */
    uint32_t limits[USERS_LIMITS];          /* of the last of them, too */
    char names[USERS_MAX][USERS_NAME_MAX + 1];
};

/* The next line, from within a conf_fn: USERS_USER begins a user, what follows is his. HF_OK, or HF_EINVAL with the file, the line and
 * what is wrong; then nothing is read on. */
int users_file_take(struct users_reader *reader, const struct conf_line *line,
                    struct users_line *ret_line, struct error_text *err);

#endif
