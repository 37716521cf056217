#include "sim/trace.h"

#include "sim/chance.h"

#include <string.h>

/* Up to four numbers each; words, if there are any, follow. */
static const char *const formats[TRACE_KINDS] = {
    [TRACE_SENT] = "node %llu sends to %llu: %llu bytes, kind %llu",
    [TRACE_CAME] = "node %llu gets from %llu: %llu bytes, kind %llu",
    [TRACE_WRITTEN] = "node %llu: entries %llu to %llu are on disk (write %llu)",
    [TRACE_TERM] = "node %llu: term %llu, vote %llu",
    [TRACE_LEADS] = "node %llu LEADS in term %llu",
    [TRACE_FOLLOWS] = "node %llu follows in term %llu",
    [TRACE_STOPPED] = "node %llu stops:",
    [TRACE_CRASHED] = "node %llu crashes; %llu of %llu writes are on disk",
    [TRACE_STARTED] = "node %llu starts: log to %llu, commit %llu, term %llu",
    [TRACE_WIPED] = "node %llu has lost its directory, and is incarnation %llu now",
    [TRACE_PAUSED] = "node %llu is paused for %llu us",
    [TRACE_CLOCK] = "node %llu: its clock ticks at %llu ppm",
    [TRACE_CUT] = "network: %llu cuts",
    [TRACE_LINK] = "network: the connection of %llu and %llu breaks",
    [TRACE_DISK] = "node %llu: its disk is otherwise: kind %llu",
    [TRACE_APPLIED] = "node %llu has applied up to %llu, commit %llu, last %llu",
    [TRACE_INSTALLED] = "node %llu has installed a snapshot, applied %llu",
    [TRACE_IMAGE] = "node %llu stores a snapshot of %llu, installs %llu, keeps the log %llu",
    [TRACE_MEMBERS] = "node %llu: members of entry %llu: %llu, of them %llu vote",
    [TRACE_CHANGE] = "operator: asks node %llu for change %llu of member %llu, incarnation %llu",
    [TRACE_CHANGED] = "operator: change %llu is result %llu",
    [TRACE_ASKED] = "client %llu asks node %llu: request %llu, op %llu",
    [TRACE_ANSWERS] = "node %llu answers client %llu: request %llu, answer %llu",
    [TRACE_TOLD] = "client %llu is told: request %llu, answer %llu, number %llu",
    [TRACE_HOLDS] = "client %llu HOLDS name %llu in mode %llu with token %llu",
    [TRACE_HOLDS_NO_MORE] = "client %llu holds name %llu no more, token %llu, why %llu",
    [TRACE_CLIENT] = "client %llu: %llu",
    [TRACE_NOTE] = "node %llu says:",
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

void trace_print(const struct trace_line *line, FILE *out)
{
    fprintf(out, "%10.6f  ", (double)line->at_us / 1e6);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(out, formats[line->kind], (unsigned long long)line->a, (unsigned long long)line->b,
            (unsigned long long)line->c, (unsigned long long)line->d);
#pragma GCC diagnostic pop
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
