/* top_look.h: what `holdfast top` asks the store, and how often. A look is one list of all holds, and then who waits, of the
 * names on the screen only. */
#ifndef CLI_TOP_LOOK_H
#define CLI_TOP_LOOK_H

#include "cli/top_names.h"

#define TOP_ASKED_MAX 8     /* questions about waiters at once */
#define TOP_PATTERN_MAX 128 /* bytes of a filter that is typed */
#define TOP_BUSY_PART 4     /* a list that took long is followed by a pause so many times as long */
#define TOP_ROWS_MAX 1000   /* shown, and asked about */

struct top_look {
    hf_store *store;
    const char *match; /* a glob, or NULL */
    enum top_order order;
    int64_t interval_ms;
    size_t first, rows; /* those that are shown */
    struct top_names known;
    bool is_listing;
    bool is_stale; /* the pattern is another one than when the list was asked for */
    int asking;    /* questions under way */
    int64_t began_ms, next_ms;
    bool has_news; /* since somebody last set it to false */
    uint64_t looks;
    int failure;      /* of the last list; HF_OK */
    char words[1024]; /* of it */
};

/* Asks for the list. False: it cannot even be asked for. */
bool top_look_begin(struct top_look *look, int64_t now_ms);
/* Asks who waits, of rows that are shown and were not asked about since the list. */
void top_look_ask(struct top_look *look);
/* All that is shown is there. */
bool top_look_is_over(const struct top_look *look);
/* Another pattern: what was known is of other names. */
void top_look_change(struct top_look *look, const char *match);

#endif
