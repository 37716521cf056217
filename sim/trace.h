/* trace.h: what happened, as numbers: they are hashed, the last of them are kept, and put into words when somebody wants to read them. */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_KEPT \
    64u /* as many as are printed when something is wrong: few lines stay in a near cache */
#define TRACE_WORDS 112u

enum trace_kind {
    TRACE_SENT = 1,
    TRACE_CAME,
    TRACE_WRITTEN,
    TRACE_TERM,
    TRACE_LEADS,
    TRACE_FOLLOWS,
    TRACE_STOPPED,
    TRACE_CRASHED,
    TRACE_STARTED,
    TRACE_WIPED,
    TRACE_OLD_COPY,
    TRACE_VERSION,
    TRACE_PAUSED,
    TRACE_CLOCK,
    TRACE_CUT,
    TRACE_LINK,
    TRACE_DISK,
    TRACE_DAMAGED,
    TRACE_APPLIED,
    TRACE_INSTALLED,
    TRACE_SNAPSHOT,
    TRACE_MEMBERS,
    TRACE_CHANGE,
    TRACE_CHANGED,
    TRACE_ASKED,
    TRACE_ANSWERS,
    TRACE_TOLD,
    TRACE_HOLDS,
    TRACE_HOLDS_NO_MORE,
    TRACE_CLIENT,
    TRACE_NOTE,
    TRACE_PHASE,
    TRACE_KINDS
};

struct trace_line {
    int64_t at_us;
    uint64_t a, b, c, d;
    uint8_t kind;
    char words[TRACE_WORDS];
};

struct trace {
    uint64_t hash, count;
    bool prints;
    struct trace_line kept[TRACE_KEPT];
};

void trace(struct trace *trace, int64_t at_us, enum trace_kind kind, uint64_t a, uint64_t b,
           uint64_t c, uint64_t d);
/* With words behind them; copied. */
void trace_words(struct trace *trace, int64_t at_us, enum trace_kind kind, uint64_t a,
                 const char *words);
void trace_print(const struct trace_line *line, FILE *out);
/* The last lines, so many at the most. */
void trace_tail(const struct trace *trace, unsigned lines, FILE *out);

#endif
