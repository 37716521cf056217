/* check_holders.c: at most one holder of a name, or any number of shared ones, or N of N, by what clients believe. A client
 * believes from the moment in which he hears of his grant until he gives it up, or his own clock says that it is over. */
#include "sim/check.h"

#include <stdarg.h>
#include <stdio.h>

void verdict_wrong(struct verdict *verdict, const char *format, ...)
{
    va_list args;

    if (verdict->words[0])
        return;
    va_start(args, format);
    vsnprintf(verdict->words, sizeof verdict->words, format, args);
    va_end(args);
}

bool holders_believes(const struct check_holders *holders, int client, int64_t now_us)
{
    return holders->of[client].holds && now_us < holders->of[client].until_us;
}

static bool agree(const struct holder *a, const struct holder *b, uint32_t *holding)
{
    if (a->mode != b->mode || a->mode == CHECK_EXCLUSIVE)
        return false;
    if (a->mode == CHECK_SHARED)
        return true;
    return a->permits == b->permits && ++*holding < a->permits;
}

void holders_begin(struct check_holders *holders, struct verdict *verdict, int64_t now_us,
                   int client, const struct holder *holder)
{
    uint32_t holding = 0;

    for (int i = 0; i < CHECK_CLIENTS; i++) {
        const struct holder *other = &holders->of[i];

        if (i == client || !holders_believes(holders, i, now_us) || other->name != holder->name)
            continue;
        if (holders_now_excuses(holders, other->name, other->asked_us) ||
            holders_now_excuses(holders, holder->name, holder->asked_us))
            continue;
        if (!agree(holder, other, &holding))
            verdict_wrong(verdict,
                          "two holders: client %d is told that he holds name %d (mode %d) with "
                          "token %llu, and client %d holds it (mode %d) with token %llu",
                          client, holder->name, (int)holder->mode,
                          (unsigned long long)holder->token, i, (int)other->mode,
                          (unsigned long long)other->token);
    }
    holders->of[client] = *holder;
    holders->of[client].holds = true;
    holders->of[client].since_us = now_us;
}

void holders_extend(struct check_holders *holders, int client, int64_t until_us)
{
    if (holders->of[client].holds && until_us > holders->of[client].until_us)
        holders->of[client].until_us = until_us;
}

void holders_end(struct check_holders *holders, int client)
{
    holders->of[client].holds = false;
}

void holders_now_asked(struct check_holders *holders, int name)
{
    holders->now_open[name]++;
}

void holders_now_closed(struct check_holders *holders, int name, int64_t now_us)
{
    holders->now_open[name]--;
    holders->now_closed_us[name] = now_us;
}

bool holders_now_excuses(const struct check_holders *holders, int name, int64_t asked_us)
{
    return name >= 0 && name < CHECK_NAMES &&
           (holders->now_open[name] > 0 || holders->now_closed_us[name] > asked_us);
}
