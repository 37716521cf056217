#include "sim/trace.h"

#include "sim/chance.h"

#include <string.h>

/* What the numbers of some lines mean, by their values. */
static const char *const messages[] = {
    "?",          "append",         "append reply",   "vote",
    "vote reply", "pre-vote",       "pre-vote reply", "timeout now",
    "snapshot",   "snapshot reply", "version",        "digest",
    NULL};
static const char *const asks[] = {"?",     "ACQUIRE", "RELEASE", "RENEW", "END",
                                   "CHECK", "LEAVE",   "FINISH",  "BREAK", "FLOOR",
                                   "SHOW",  "LOCKS",   NULL};
static const char *const says[] = {"?",      "TOKEN",   "BUSY",    "QUEUED", "DONE",
                                   "NUMBER", "ENDED",   "REFUSED", "MOVED",  "a list",
                                   "LOST",   "unknown", NULL};
static const char *const modes[] = {"exclusive", "shared", "permit", NULL};
static const char *const losts[] = {"released", "its time is over", "it is gone", "he died", NULL};
static const char *const changes[] = {"?", "add", "remove", "let lead", "move", NULL};
static const char *const results[] = {"?", "done", "not possible", "nobody knows", NULL};
static const char *const disks[] = {"?", "fails", "is full", "does not read", NULL};

static const char *const *const words_of[TRACE_KINDS] = {
    [TRACE_SENT] = messages,       [TRACE_CAME] = messages,  [TRACE_ASKED] = asks,
    [TRACE_ANSWERS] = says,        [TRACE_TOLD] = says,      [TRACE_HOLDS] = modes,
    [TRACE_HOLDS_NO_MORE] = losts, [TRACE_CHANGE] = changes, [TRACE_CHANGED] = results,
    [TRACE_DISK] = disks,
};

/* #: the next number; $: the same, as a word. Words of its own, if a line has any, follow. */
static const char *const formats[TRACE_KINDS] = {
    [TRACE_SENT] = "node # sends to #: # bytes, $",
    [TRACE_CAME] = "node # gets from #: # bytes, $",
    [TRACE_WRITTEN] = "node #: entries # to # are on disk (write #)",
    [TRACE_TERM] = "node #: term #, vote #",
    [TRACE_LEADS] = "node # LEADS in term #",
    [TRACE_FOLLOWS] = "node # follows in term #",
    [TRACE_STOPPED] = "node # stops:",
    [TRACE_CRASHED] = "node # crashes; # of # writes are on disk",
    [TRACE_STARTED] = "node # starts: log to #, commit #, term #",
    [TRACE_WIPED] = "node # has lost its directory, and is incarnation # now",
    [TRACE_OLD_COPY] = "node #: its directory is an older copy; others are at #",
    [TRACE_VERSION] = "node #: version # is in effect",
    [TRACE_PAUSED] = "node # is paused for # us",
    [TRACE_CLOCK] = "node #: its clock ticks at # ppm",
    [TRACE_CUT] = "network: # cuts",
    [TRACE_LINK] = "network: the connection of # and # breaks",
    [TRACE_DAMAGED] = "node #: a bit of its disk changes, in",
    [TRACE_DISK] = "node #: its disk $",
    [TRACE_APPLIED] = "node # has applied up to #, commit #, last #",
    [TRACE_INSTALLED] = "node # has installed a snapshot, applied #",
    [TRACE_SNAPSHOT] = "node # stores a snapshot of #, installs #, keeps the log #",
    [TRACE_MEMBERS] = "node #: members of entry #: #, of them # vote",
    [TRACE_CHANGE] = "operator: asks node # to $ member #, incarnation #",
    [TRACE_CHANGED] = "operator: change # is over: $",
    [TRACE_ASKED] = "client # asks node #: request #, $",
    [TRACE_ANSWERS] = "node # answers client #: request #, $",
    [TRACE_TOLD] = "client # is told: request #, $, number #",
    [TRACE_HOLDS] = "client # HOLDS name #, $, with token #",
    [TRACE_HOLDS_NO_MORE] = "client # holds name # no more, token #, $",
    [TRACE_CLIENT] = "client #: #",
    [TRACE_NOTE] = "node # says:",
    [TRACE_PHASE] = "--- the faults end ---",
};

static struct trace_line *next_line(struct trace *trace, int64_t at_us, enum trace_kind kind)
{
    struct trace_line *line = &trace->kept[trace->count++ % TRACE_KEPT];

    line->at_us = at_us;
    line->kind = (uint8_t)kind;
    line->words[0] = '\0';
    return line;
}

static void hash_line(struct trace *trace, const struct trace_line *line)
{
    uint64_t hash = trace->hash ^ (uint64_t)line->at_us;

    hash = chance_mix(hash + line->kind);
    hash = (hash ^ line->a) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ line->b) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ line->c) * 0x94d049bb133111ebu;
    trace->hash = chance_mix(hash ^ line->d);
    for (const char *at = line->words; *at; at++)
        trace->hash = (trace->hash ^ (unsigned char)*at) * 0x100000001b3u;
    if (trace->prints)
        trace_print(line, stdout);
}

void trace(struct trace *trace, int64_t at_us, enum trace_kind kind, uint64_t a, uint64_t b,
           uint64_t c, uint64_t d)
{
    struct trace_line *line = next_line(trace, at_us, kind);

    line->a = a;
    line->b = b;
    line->c = c;
    line->d = d;
    hash_line(trace, line);
}

void trace_words(struct trace *trace, int64_t at_us, enum trace_kind kind, uint64_t a,
                 const char *words)
{
    struct trace_line *line = next_line(trace, at_us, kind);

    line->a = a;
    line->b = line->c = line->d = 0;
    snprintf(line->words, sizeof line->words, "%s", words);
    hash_line(trace, line);
}

static void print_word(const char *const *words, uint64_t number, FILE *out)
{
    while (words && *words && number > 0) {
        words++;
        number--;
    }
    if (words && *words)
        fputs(*words, out);
    else
        fputs("?", out);
}

void trace_print(const struct trace_line *line, FILE *out)
{
    const uint64_t numbers[] = {line->a, line->b, line->c, line->d};
    unsigned next = 0;

    fprintf(out, "%10.6f  ", (double)line->at_us / 1e6);
    for (const char *at = formats[line->kind]; *at; at++) {
        if (*at == '#' && next < 4)
            fprintf(out, "%llu", (unsigned long long)numbers[next++]);
        else if (*at == '$' && next < 4)
            print_word(words_of[line->kind], numbers[next++], out);
        else
            fputc(*at, out);
    }
    fprintf(out, line->words[0] ? " %s\n" : "\n", line->words);
}

void trace_tail(const struct trace *trace, unsigned lines, FILE *out)
{
    uint64_t from = trace->count > lines ? trace->count - lines : 0;

    if (trace->count - from > TRACE_KEPT)
        from = trace->count - TRACE_KEPT;
    for (uint64_t i = from; i < trace->count; i++)
        trace_print(&trace->kept[i % TRACE_KEPT], out);
}
