#include "cli/outage.h"
#include "base/clock.h"
#include "cli/output.h"

#define SHORT_MS 1000 /* what is over by then is nothing to tell */
#define NEXT_LINE_MS 60000

void outage_tell(struct outage *outage, const char *what)
{
    say("%s: %s%s; still trying", what, hf_error(), leader_advice(hf_error()));
    outage->told = true;
    outage->next_ms = clock_after(clock_boot_ms(), NEXT_LINE_MS);
}

enum outage_news outage_look(struct outage *outage, hf_store *store, const char *what)
{
    int64_t lasts_ms = hf_outage_ms(store), now_ms = clock_boot_ms();
    bool was_told = outage->told;

    if (lasts_ms <= 0) {
        outage->told = false;
        return was_told ? OUTAGE_OVER : OUTAGE_NONE;
    }
    if (lasts_ms >= SHORT_MS && (!was_told || now_ms >= outage->next_ms))
        outage_tell(outage, what);
    return OUTAGE_LASTS;
}
