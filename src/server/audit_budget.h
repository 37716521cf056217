/* audit_budget.h: how many lines of the audit file others than operators may cause: whoever is refused can be refused as often as the network
 * carries it, and would fill the disk. Many at once are written, then few; what is left out is counted. Pure: time is passed in. */
#ifndef SERVER_AUDIT_BUDGET_H
#define SERVER_AUDIT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_BURST 1000           /* so many lines at once, */
#define AUDIT_EVERY_MS 1000        /* and then one in so long; */
#define AUDIT_ORIGIN_BURST 200     /* of one address so many of them, */
#define AUDIT_ORIGIN_EVERY_MS 5000 /* and one in so long */
#define AUDIT_LEFT_OUT_MS 60000    /* what is left out is told after so long */
#define AUDIT_ORIGIN_BITS 8u       /* of the table: beyond it addresses share their part */

struct audit_budget {
    int64_t paid_until_ms; /* for all lines so far */
    struct {
        uint64_t origin;
        int64_t paid_until_ms;
    } origins[1u << AUDIT_ORIGIN_BITS];
    uint64_t left_out;
    int64_t left_out_since_ms;
};

/* All zero at first. May one line more be written? False: it is counted. origin: origin.h. */
bool audit_budget_take(struct audit_budget *budget, uint64_t origin, int64_t now_ms);
/* How many were left out, if it is time to say it; 0: there is nothing to say. They are not counted any more. at_once: it is time. */
uint64_t audit_budget_left_out(struct audit_budget *budget, int64_t now_ms, bool at_once);

#endif
