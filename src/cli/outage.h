/* outage.h: a line for whoever waits while the store cannot be reached: early, and then rarely. */
#ifndef CLI_OUTAGE_H
#define CLI_OUTAGE_H

#include <holdfast/holdfast.h>
#include <stdbool.h>

#define OUTAGE_LOOK_MS 1000 /* so often it is worth looking */

struct outage { /* all zero at the beginning */
    bool told;
    int64_t next_ms; /* clock_boot_ms: when to tell again */
};

enum outage_news {
    OUTAGE_NONE,
    OUTAGE_LASTS,
    OUTAGE_OVER /* since the last look, and somebody was told of it */
};

/* `what`: what is being done, in words, to begin the line with. Asks nobody. */
enum outage_news outage_look(struct outage *outage, hf_store *store, const char *what);
/* Now, however short it was: hf_outage_ms has just said that there is one. */
void outage_tell(struct outage *outage, const char *what);

#endif
