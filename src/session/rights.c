/* rights.c: see rights.h. */
#include "session/rights.h"

#include "base/switches.h"
#include "session/glob.h"

#include <string.h>

const char *const right_words[RIGHTS_COUNT] = {"acquire", "look", "break", "floor", "admin"};

static const struct user_grant grant_of_all = {RIGHTS_ALL, {"*", 1}};
const struct user user_of_all = {.name = "default", .grants = &grant_of_all, .grant_count = 1};

const char *right_word(enum right right)
{
    unsigned bit = 0;

    if ((unsigned)right & RIGHT_LOOK)
        return right_words[1];
    while (!((unsigned)right >> bit & 1))
        bit++;
    return right_words[bit];
}

unsigned right_by_word(const char *word, size_t size)
{
    for (unsigned i = 0; i < RIGHTS_COUNT; i++)
        if (strlen(right_words[i]) == size && memcmp(right_words[i], word, size) == 0)
            return 1u << i;
    return 0;
}

bool user_may(const struct user *user, enum right right, const struct core_text *name)
{
    if (right == RIGHT_NONE)
        return true;
    if (name && name->size > HF_NAME_MAX) /* no lock is called so: nothing is compared with it */
        return false;
    for (size_t i = 0; i < user->grant_count; i++) {
        const struct user_grant *grant = &user->grants[i];

        if (!(grant->rights & (unsigned)right))
            continue;
        if (!name || SWITCHED(SWITCH_RIGHTS_ANY_NAME) || glob_matches(grant->pattern, *name))
            return true;
    }
    return false;
}

size_t user_pattern_bytes(const struct user *user, enum right right)
{
    size_t bytes = 0;

    if (user == &user_of_all)
        return 0;
    for (size_t i = 0; i < user->grant_count; i++)
        if (user->grants[i].rights & (unsigned)right)
            bytes += user->grants[i].pattern.size;
    return bytes;
}
