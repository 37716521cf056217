#include "sim/check.h"

bool guard_write(struct check_guard *guard, struct verdict *verdict, int name, uint64_t lease,
                 uint64_t token, bool holds)
{
    guard->writes++;
    if (token < guard->highest[name]) {
        guard->refused++;
        if (holds)
            verdict_wrong(verdict,
                          "the guard of name %d has seen %llu, and refuses its holder's %llu", name,
                          (unsigned long long)guard->highest[name], (unsigned long long)token);
        return false;
    }
    if (token == guard->highest[name] && guard->lease[name] != lease)
        verdict_wrong(verdict, "a stale token passes the guard of name %d: %llu, of another lease",
                      name, (unsigned long long)token);
    guard->highest[name] = token;
    guard->lease[name] = lease;
    return true;
}
