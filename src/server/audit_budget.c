/* audit_budget.c: see audit_budget.h. A line costs so long as it may come once in; a burst is time that was saved up. */
#include "server/audit_budget.h"
#include "server/origin.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

bool audit_budget_take(struct audit_budget *budget, uint64_t origin, int64_t now_ms)
{
    uint32_t slot = origin_slot(origin, AUDIT_ORIGIN_BITS);
    int64_t all_ms = later(budget->paid_until_ms, now_ms) + AUDIT_EVERY_MS, own_ms = now_ms;

    if (budget->origins[slot].origin == origin)
        own_ms = later(budget->origins[slot].paid_until_ms, now_ms);
    own_ms += AUDIT_ORIGIN_EVERY_MS;
    if (all_ms - now_ms > (int64_t)AUDIT_BURST * AUDIT_EVERY_MS ||
        own_ms - now_ms > (int64_t)AUDIT_ORIGIN_BURST * AUDIT_ORIGIN_EVERY_MS) {
        if (budget->left_out++ == 0)
            budget->left_out_since_ms = now_ms;
        return false;
    }
    budget->paid_until_ms = all_ms;
    budget->origins[slot].origin = origin;
    budget->origins[slot].paid_until_ms = own_ms;
    return true;
}

uint64_t audit_budget_left_out(struct audit_budget *budget, int64_t now_ms, bool at_once)
{
    uint64_t count = budget->left_out;

    if (!at_once && now_ms - budget->left_out_since_ms < AUDIT_LEFT_OUT_MS)
        return 0;
    budget->left_out = 0;
    return count;
}
