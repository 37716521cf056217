/* refusals.c: what the table's answers and reasons are called, in any protocol. */
#include "session/inside.h"

#include <inttypes.h>
#include <stdio.h>

const char *quota_word(enum core_answer answer)
{
    switch (answer) {
    case ANSWER_OVER_LEASES:
        return "leases";
    case ANSWER_OVER_HOLDS:
        return "holds";
    case ANSWER_OVER_PLACES:
        return "places";
    default:
        return NULL;
    }
}

/* "QUOTA user 'ci' has 50 holds, places counted too, and its limit is 50 (holds = 50)" */
static const char *over_quota(const struct core_effect *effect, char *ret_text, size_t size)
{
    static const char *const what[] = {[ANSWER_OVER_LEASES] = "lease",
                                       [ANSWER_OVER_HOLDS] = "hold",
                                       [ANSWER_OVER_PLACES] = "place"};

    snprintf(ret_text, size,
             "QUOTA user '%.*s' has %" PRIu64 " %s%s%s, and may have %" PRIu64 " (%s = %" PRIu64
             ")",
             (int)effect->owner.size, effect->owner.bytes, effect->number, what[effect->answer],
             effect->number == 1 ? "" : "s",
             effect->answer == ANSWER_OVER_HOLDS    ? " and places in queues"
             : effect->answer == ANSWER_OVER_PLACES ? " in queues"
                                                    : "",
             effect->limit, quota_word(effect->answer), effect->limit);
    return ret_text;
}

const char *refusal_of(const struct core_effect *effect, char *ret_text, size_t size)
{
    switch (effect->answer) {
    case ANSWER_OTHER_MODE:
        return "MODE this lease has the name in another mode";
    case ANSWER_OTHER_PERMITS:
        if (effect->number)
            snprintf(ret_text, size, "MODE the name is in use with PERMITS %" PRIu64,
                     effect->number);
        else
            snprintf(ret_text, size, "MODE the name is in use without PERMITS");
        return ret_text;
    case ANSWER_ENDED:
        return "ENDED this lease is over: take another";
    case ANSWER_LEASES_FULL:
        return "LIMIT there are too many leases";
    case ANSWER_LOCKS_FULL:
        return "LIMIT there are too many names in use";
    case ANSWER_CLAIMS_FULL:
        return "LIMIT there are too many holds and places";
    case ANSWER_QUEUE_FULL:
        return "LIMIT the queue of this name is full";
    case ANSWER_TOKENS_SPENT:
        return "LIMIT there are no tokens left";
    case ANSWER_USERS_FULL:
        return "LIMIT there are too many users with limits who have something";
    case ANSWER_OVER_LEASES:
    case ANSWER_OVER_HOLDS:
    case ANSWER_OVER_PLACES:
        return over_quota(effect, ret_text, size);
    case ANSWER_STALE:
        snprintf(ret_text, size,
                 "STALE this lease and token do not hold the record; the newest token is %" PRIu64,
                 effect->number);
        return ret_text;
    default:
        return NULL;
    }
}

static const char *const why_words[] = {
    [WHY_GRANTED] = "granted", [WHY_RELEASED] = "released", [WHY_EXPIRED] = "expired",
    [WHY_BROKEN] = "broken",   [WHY_ENDED] = "ended",       [WHY_WAIT_OVER] = "timeout",
    [WHY_LEFT] = "left",       [WHY_FINISHED] = "finished", [WHY_DIED] = "died",
};

const char *why_word(const struct core_effect *effect)
{
    return why_words[effect->why];
}
