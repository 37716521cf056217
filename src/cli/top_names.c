/* top_names.c
 *
 * Each look brings all holds, by name. What is known of the names is in the same order, so one pass puts both together. A name
 * whose greatest token is another one than before has changed hands. A name that is gone is remembered for as long as it
 * was hot: those that change most are free at many looks. */
#include "cli/top_names.h"

#include <stdlib.h>
#include <string.h>

#define RATE_SPAN_S 15.0     /* a change counts half after about ten seconds */
#define RATE_FORGOTTEN 0.002 /* of a name that is gone: one change two minutes ago or so */

struct merge {
    const struct top_names *before;
    struct top_names *after;
    size_t old;              /* of before->names */
    size_t item;             /* of the report */
    double before_s, span_s; /* from the first look to the last one, and from that to now */
    bool is_first;
};

/* At first the mean of all that was seen; later what is older counts less and less. */
static double rate_after(const struct merge *merge, double rate, uint64_t changes)
{
    double before_s = merge->before_s < RATE_SPAN_S ? merge->before_s : RATE_SPAN_S;
    double all_s = before_s + merge->span_s;

    return all_s > 0 ? (rate * before_s + (double)changes) / all_s : rate;
}

static void note_change(struct merge *merge, struct top_name *name, uint64_t token)
{
    bool changed = token != 0 && token != name->token && !merge->is_first;

    name->rate = rate_after(merge, name->rate, changed);
    name->changes += changed;
    merge->after->changes += changed;
    if (token != 0)
        name->token = token;
}

/* All holds of the next name of the report. False: no memory for its text. */
static bool take_listed(struct merge *merge, struct top_name *old)
{
    struct top_names *after = merge->after;
    struct top_name *name = &after->names[after->count];
    const hf_entry *entry = hf_report_entry(after->report, merge->item);
    const char *text = entry->name;
    uint64_t token = 0;

    *name = old ? *old : (struct top_name){.text = strdup(text), .longest_ms = -1};
    if (!name->text)
        return false;
    name->is_listed = true;
    name->is_asked = false;
    for (; entry && strcmp(entry->name, text) == 0;
         entry = hf_report_entry(after->report, ++merge->item)) {
        if (entry->kind != HF_ENTRY_HOLDER)
            continue;
        after->rows[after->row_count++] = (struct top_row){after->count, entry};
        if (entry->token > token)
            token = entry->token;
    }
    note_change(merge, name, token);
    after->held_count++;
    after->count++;
    return true;
}

static void take_gone(struct merge *merge, const struct top_name *old)
{
    struct top_names *after = merge->after;
    struct top_name *name = &after->names[after->count];

    *name = *old;
    note_change(merge, name, 0);
    name->is_listed = false;
    name->is_asked = false;
    if (name->rate < RATE_FORGOTTEN) {
        name->text = NULL; /* freed with what was before */
        return;
    }
    after->rows[after->row_count++] = (struct top_row){after->count, NULL};
    after->count++;
}

static bool merge_all(struct merge *merge)
{
    const struct top_names *before = merge->before;

    for (;;) {
        const hf_entry *entry = hf_report_entry(merge->after->report, merge->item);
        struct top_name *old = merge->old < before->count ? &before->names[merge->old] : NULL;
        int order;

        if (!entry && !old)
            return true;
        order = !entry ? -1 : !old ? 1 : strcmp(old->text, entry->name);
        if (order < 0)
            take_gone(merge, old);
        else if (!take_listed(merge, order == 0 ? old : NULL))
            return false;
        merge->old += order <= 0;
    }
}

/* Texts go from one to the other: those that are in `kept` too are left alone. */
static void free_names(struct top_names *known, const struct top_names *kept)
{
    for (size_t i = 0, k = 0; i < known->count; i++) {
        while (kept && k < kept->count && strcmp(kept->names[k].text, known->names[i].text) < 0)
            k++;
        if (!kept || k == kept->count || kept->names[k].text != known->names[i].text)
            free(known->names[i].text);
    }
    free(known->names);
    free(known->rows);
    hf_report_free(known->report);
}

bool top_names_take(struct top_names *known, hf_report *report, enum top_order order,
                    int64_t now_ms)
{
    size_t most = known->count + hf_report_count(report);
    struct top_names after = {.report = report,
                              .names = calloc(most + 1, sizeof *after.names),
                              .rows = calloc(most + 1, sizeof *after.rows),
                              .began_ms = known->looked_ms == 0 ? now_ms : known->began_ms,
                              .looked_ms = now_ms,
                              .changes = known->changes};
    struct merge merge = {.before = known,
                          .after = &after,
                          .before_s = (double)(known->looked_ms - known->began_ms) / 1000.0,
                          .span_s = (double)(now_ms - known->looked_ms) / 1000.0,
                          .is_first = known->looked_ms == 0};

    if (!after.names || !after.rows || !merge_all(&merge)) {
        free_names(&after, known);
        return false;
    }
    after.rate =
        merge.is_first ? 0 : rate_after(&merge, known->rate, after.changes - known->changes);
    free_names(known, &after);
    *known = after;
    top_names_sort(known, order);
    return true;
}

/* ---- in order -------------------------------------------------------------------------------- */

struct ordering {
    const struct top_name *names;
    enum top_order order;
};

static int64_t held_ms(const struct top_row *row)
{
    return row->entry ? row->entry->age_ms : -2;
}

static int compare_rows(const void *left, const void *right, void *context)
{
    const struct ordering *ordering = context;
    const struct top_row *a = left, *b = right;
    double rate_a = ordering->names[a->name].rate, rate_b = ordering->names[b->name].rate;

    if (ordering->order == TOP_HOTTEST && (rate_a > rate_b || rate_a < rate_b))
        return rate_a > rate_b ? -1 : 1;
    if (ordering->order != TOP_BY_NAME && held_ms(a) != held_ms(b))
        return held_ms(a) > held_ms(b) ? -1 : 1;
    if (a->name != b->name)
        return a->name < b->name ? -1 : 1;
    return (a > b) - (a < b);
}

void top_names_sort(struct top_names *known, enum top_order order)
{
    struct ordering ordering = {known->names, order};

    qsort_r(known->rows, known->row_count, sizeof *known->rows, compare_rows, &ordering);
}

static int compare_text(const void *text, const void *name)
{
    return strcmp(text, ((const struct top_name *)name)->text);
}

struct top_name *top_names_find(struct top_names *known, const char *text)
{
    if (known->count == 0)
        return NULL;
    return bsearch(text, known->names, known->count, sizeof *known->names, compare_text);
}

void top_names_note_waiters(struct top_name *name, const hf_report *shown)
{
    name->is_known = true;
    name->waiters = 0;
    name->longest_ms = -1;
    for (size_t i = 0; i < hf_report_count(shown); i++) {
        const hf_entry *entry = hf_report_entry(shown, i);

        if (entry->kind != HF_ENTRY_WAITER)
            continue;
        name->waiters++;
        if (entry->age_ms > name->longest_ms)
            name->longest_ms = entry->age_ms;
    }
}

void top_names_free(struct top_names *known)
{
    free_names(known, NULL);
    *known = (struct top_names){0};
}
