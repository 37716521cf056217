#include "cli/top_look.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note_failure(struct top_look *look, int result, const char *words)
{
    look->failure = result;
    snprintf(look->words, sizeof look->words, "%s", words);
}

static void listed(hf_op *op, int result, void *arg)
{
    struct top_look *look = arg;
    int64_t now_ms = clock_boot_ms(), took_ms = now_ms - look->began_ms;
    hf_report *report = hf_op_take_report(op);

    look->is_listing = false;
    look->has_news = true;
    look->next_ms = clock_after(look->began_ms, look->interval_ms);
    if (look->next_ms < clock_after(now_ms, took_ms * TOP_BUSY_PART))
        look->next_ms = clock_after(now_ms, took_ms * TOP_BUSY_PART);
    if (look->is_stale) {
        hf_report_free(report);
        look->is_stale = false;
        look->next_ms = now_ms;
        return;
    }
    look->looks++;
    if (result != HF_OK) {
        note_failure(look, result, hf_op_error(op));
        hf_report_free(report);
    } else if (top_names_take(&look->known, report, look->order, now_ms)) {
        look->failure = HF_OK;
    } else {
        note_failure(look, HF_ENOMEM, "out of memory");
    }
}

bool top_look_begin(struct top_look *look, int64_t now_ms)
{
    hf_list_options options = HF_LIST_OPTIONS_INIT;
    hf_op *op;
    int result;

    options.match = look->match;
    look->began_ms = now_ms;
    result = hf_list_start(look->store, &options, listed, look, &op);
    if (result != HF_OK) {
        note_failure(look, result, hf_error());
        look->next_ms = clock_after(now_ms, look->interval_ms);
        return false;
    }
    look->is_listing = true;
    return true;
}

struct question {
    struct top_look *look;
    char text[];
};

/* The name may be gone, or be another element by now. */
static void shown(hf_op *op, int result, void *arg)
{
    struct question *question = arg;
    struct top_look *look = question->look;
    struct top_name *name = top_names_find(&look->known, question->text);
    hf_report *report = hf_op_take_report(op);

    look->asking--;
    look->has_news = true;
    if (name && result == HF_OK)
        top_names_note_waiters(name, report);
    else if (name)
        name->is_known = false;
    hf_report_free(report);
    free(question);
}

static bool ask(struct top_look *look, const char *text)
{
    size_t size = strlen(text) + 1;
    struct question *question = malloc(sizeof *question + size);
    hf_op *op;

    if (!question)
        return false;
    question->look = look;
    memcpy(question->text, text, size);
    if (hf_show_start(look->store, text, shown, question, &op) != HF_OK) {
        free(question);
        return false;
    }
    look->asking++;
    return true;
}

static size_t last_row(const struct top_look *look)
{
    size_t left = look->known.row_count > look->first ? look->known.row_count - look->first : 0;

    return look->first + (left < look->rows ? left : look->rows);
}

void top_look_ask(struct top_look *look)
{
    if (look->is_listing || look->failure != HF_OK)
        return;
    for (size_t i = look->first; i < last_row(look) && look->asking < TOP_ASKED_MAX; i++) {
        struct top_name *name = &look->known.names[look->known.rows[i].name];

        if (name->is_asked)
            continue;
        name->is_asked = true;
        if (!ask(look, name->text))
            name->is_known = false;
    }
}

bool top_look_is_over(const struct top_look *look)
{
    if (look->is_listing || look->asking > 0)
        return false;
    for (size_t i = look->first; look->failure == HF_OK && i < last_row(look); i++)
        if (!look->known.names[look->known.rows[i].name].is_asked)
            return false;
    return true;
}

void top_look_change(struct top_look *look, const char *match)
{
    top_names_free(&look->known);
    look->match = match;
    look->is_stale = look->is_listing;
    look->next_ms = 0;
    look->first = 0;
}
