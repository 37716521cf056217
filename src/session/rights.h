/* rights.h: what a client may do: verbs, each on names that match a pattern. Pure: who somebody is, and what is written in which file,
 * the owner knows.
 *
 * A command says in the table which right it needs, and which of its words are names (commands.h). A right on some names is enough for a
 * command that names none: RENEW and END say a lease, which is its holder's secret, and LOCKS shows only what may be looked at. */
#ifndef SESSION_RIGHTS_H
#define SESSION_RIGHTS_H

#include "core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USER_NAME_MAX 64
#define USER_GRANTS_MAX 256u

enum right {
    RIGHT_NONE = 0, /* whoever has said who he is */
    RIGHT_ACQUIRE =
        1, /* takes locks, renews and releases them; claims keys of ONCE, and finishes them */
    RIGHT_LOOK = 2,   /* sees who holds what */
    RIGHT_BREAK = 4,  /* takes locks away from others */
    RIGHT_FLOOR = 8,  /* raises all tokens to come; has no names */
    RIGHT_ADMIN = 16, /* changes the members, and who leads; has no names */
    /* Either will do: a holder asks after its own, and whoever changes the members sees them. */
    RIGHT_LOOK_OR_ACQUIRE = RIGHT_LOOK | RIGHT_ACQUIRE,
    RIGHT_LOOK_OR_ADMIN = RIGHT_LOOK | RIGHT_ADMIN,
};
#define RIGHTS_ALL (RIGHT_ACQUIRE | RIGHT_LOOK | RIGHT_BREAK | RIGHT_FLOOR | RIGHT_ADMIN)
#define RIGHTS_OF_OPERATORS (RIGHT_BREAK | RIGHT_FLOOR | RIGHT_ADMIN)
#define RIGHTS_COUNT 5

/* In the order of their bits. */
extern const char *const right_words[RIGHTS_COUNT];
/* The one that is meant for it, where several will do. */
const char *right_word(enum right right);
/* 0: it is none. */
unsigned right_by_word(const char *word, size_t size);

struct user_grant {
    unsigned rights;
    struct core_text pattern; /* as in glob.h; "*" for those that have no names */
};

struct user {
    char name[USER_NAME_MAX + 1];
    const struct user_grant *grants;
    size_t grant_count;
    struct core_quota quota; /* what the leader says of him with each ACQUIRE */
};

/* May do everything: whoever has the one password, or anybody where there is none. */
extern const struct user user_of_all;

/* The right on this name; NULL: on any at all. */
bool user_may(const struct user *user, enum right right, const struct core_text *name);
static inline bool user_has_quota(const struct user *user)
{
    return user->quota.leases || user->quota.holds || user->quota.places;
}
/* Bytes of the patterns that a name may have to be compared with for this. */
size_t user_pattern_bytes(const struct user *user, enum right right);

#endif
