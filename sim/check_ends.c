/* check_ends.c: what was ended, by its holder or by a break, is over: nobody who asks after that was acknowledged finds it alive. And who
 * may have lost a lock by a break: nobody else loses one early. */
#include "sim/check.h"

void ends_told(struct check_ends *ends, uint64_t token, int64_t now_us)
{
    uint64_t *since_us;

    if (token == 0)
        return;
    since_us = map_at(&ends->since_us, token);
    if (*since_us == 0)
        *since_us = (uint64_t)now_us + 1;
}

void ends_alive(const struct check_ends *ends, struct verdict *verdict, uint64_t token,
                int64_t asked_us)
{
    const uint64_t *since_us = map_find(&ends->since_us, token);
    long long before_us = since_us ? asked_us - ((int64_t)*since_us - 1) : 0;

    if (before_us > 0)
        verdict_wrong(verdict,
                      "token %llu is alive, though its end was acknowledged %lld us before that "
                      "was asked",
                      (unsigned long long)token, before_us);
}

void breaks_asked(struct check_ends *ends, int name)
{
    ends->open[name]++;
}

void breaks_closed(struct check_ends *ends, int name, int64_t now_us)
{
    ends->open[name]--;
    ends->closed_us[name] = now_us;
}

void breaks_told(struct check_ends *ends, const struct check_holders *holders, int name,
                 int64_t asked_us, int64_t now_us)
{
    for (int i = 0; i < CHECK_CLIENTS; i++) {
        const struct holder *holder = &holders->of[i];

        if (holder->holds && holder->name == name && holder->since_us < asked_us)
            ends_told(ends, holder->token, now_us);
    }
    breaks_closed(ends, name, now_us);
}

bool breaks_excuse(const struct check_ends *ends, int name, int64_t asked_us)
{
    return name >= 0 && name < CHECK_NAMES &&
           (ends->open[name] > 0 || ends->closed_us[name] > asked_us);
}

void ends_free(struct check_ends *ends)
{
    map_free(&ends->since_us);
}
