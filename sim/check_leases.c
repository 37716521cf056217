#include "sim/check.h"

void leases_gone(struct verdict *verdict, int64_t now_us, uint64_t lease, int64_t until_us)
{
    if (now_us < until_us)
        verdict_wrong(verdict,
                      "lease %llu is gone %lld us before its client's own clock says so: what was "
                      "acknowledged is lost, or it ended early",
                      (unsigned long long)lease, (long long)(until_us - now_us));
}

void leases_blocked(struct verdict *verdict, uint64_t lease, uint32_t asked)
{
    if (asked == 1)
        verdict_wrong(verdict,
                      "lease %llu has run out while its client was blocked: nobody kept it",
                      (unsigned long long)lease);
}
