/* query.c: asking a store, and the operator's two ways of changing it (break, floor).
 *
 * Each asks once and passes on the engine's answer; filtering and order are the same over all
 * stores because they are done here. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <fnmatch.h>

struct collector {
    hf_report *report;
    const char *match; /* or NULL */
    bool waiters, free_names;
    struct error_text *err;
};

static int collect(void *context, const hf_entry *entry)
{
    struct collector *collector = context;

    if ((entry->kind == HF_ENTRY_WAITER && !collector->waiters) ||
        (entry->kind == HF_ENTRY_FREE && !collector->free_names) ||
        (entry->kind == HF_ENTRY_WITHHELD && !collector->waiters && !collector->free_names))
        return HF_OK;
    if (collector->match && fnmatch(collector->match, entry->name, 0) != 0)
        return HF_OK;
    return report_add(collector->report, entry, collector->err);
}

static int finish(struct collector *collector, int result, hf_report **ret_report)
{
    if (result != HF_OK)
        hf_report_free(collector->report);
    else
        *ret_report = collector->report;
    return result;
}

int query_show(hf_store *store, const char *name, bool holders_only, struct error_text *err,
               hf_report **ret_report)
{
    struct collector collector = {.waiters = !holders_only, .err = err};
    struct engine_sink sink = {&collector, collect};
    int result = text_check_name(name, err);

    if (result != HF_OK)
        return result;
    collector.report = report_new();
    if (!collector.report)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = store->engine->show(store->engine_store, name, &sink,
                                 clock_after(clock_boot_ms(), reach_span(store, QUERY_MS)), err);
    reach_note(store, result, err);
    if (result == HF_OK)
        report_sort_by_kind(collector.report);
    return finish(&collector, result, ret_report);
}

int query_list(hf_store *store, const char *match, bool all, struct error_text *err,
               hf_report **ret_report)
{
    struct collector collector = {.match = match, .free_names = all, .err = err};
    struct engine_sink sink = {&collector, collect};
    int result;

    collector.report = report_new();
    if (!collector.report)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = store->engine->list(store->engine_store, match, all, &sink,
                                 clock_after(clock_boot_ms(), LIST_MS), err);
    if (result == HF_OK)
        report_sort_by_name(collector.report);
    return finish(&collector, result, ret_report);
}

int query_mode(hf_store *store, const char *name, uint64_t token, int *ret_mode,
               struct error_text *err)
{
    int result = text_check_name(name, err);
    int mode = ENGINE_GONE;

    if (result != HF_OK)
        return result;
    if (token < 1 || token > HF_TOKEN_MAX)
        return error_set(err, HF_EINVAL, "a token is a number from 1 to 2^53-1");
    result = store->engine->check(store->engine_store, name, token, &mode,
                                  clock_after(clock_boot_ms(), reach_span(store, QUERY_MS)), err);
    if (result == HF_OK && mode == ENGINE_GONE)
        return error_set(err, HF_ELOST, "the hold of '%.100s' with token %llu is over", name,
                         (unsigned long long)token);
    if (result == HF_OK)
        *ret_mode = mode;
    return result;
}

int query_check(hf_store *store, const char *name, uint64_t token, struct error_text *err)
{
    int mode;

    return query_mode(store, name, token, &mode, err);
}

int query_break(hf_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
                struct error_text *err)
{
    int result = text_check_name(name, err);
    uint32_t broken = 0;

    if (result != HF_OK)
        return result;
    if (grace_ms < 0 || grace_ms > HF_DURATION_MAX_MS)
        return error_set(err, HF_EINVAL, "a grace of %lld ms: must be from 0 to a year",
                         (long long)grace_ms);
    if (!(store->info.features & HF_HAS_BREAK) || !store->engine->break_name)
        return error_set(err, HF_ENOTSUP, "a lock of %s cannot be broken",
                         text_kind(&store->info).text);
    result = store->engine->break_name(store->engine_store, name, grace_ms, &broken, err);
    if (result == HF_OK && ret_broken)
        *ret_broken = broken;
    return result;
}

int hf_show(hf_store *store, const char *name, hf_report **ret_report)
{
    struct error_text err = {""};
    int result = store_check(store, &err);

    if (result == HF_OK && !ret_report)
        result = error_set(&err, HF_EINVAL, "nowhere to put the report");
    if (result == HF_OK)
        result = query_show(store, name, false, &err, ret_report);
    return failure_keep(result, &err);
}

int hf_list(hf_store *store, const hf_list_options *options, hf_report **ret_report)
{
    struct error_text err = {""};
    hf_list_options checked;
    int result = store_check(store, &err);

    if (result == HF_OK && !ret_report)
        result = error_set(&err, HF_EINVAL, "nowhere to put the report");
    if (result == HF_OK)
        result = list_options_read(options, &checked, &err);
    if (result == HF_OK)
        result = query_list(store, checked.match, checked.all != 0, &err, ret_report);
    return failure_keep(result, &err);
}

int hf_check(hf_store *store, const char *name, uint64_t token)
{
    struct error_text err = {""};
    int result = store_check(store, &err);

    if (result == HF_OK)
        result = query_check(store, name, token, &err);
    return failure_keep(result, &err);
}

int hf_break(hf_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken)
{
    struct error_text err = {""};
    int result = store_check(store, &err);

    if (result == HF_OK)
        result = query_break(store, name, grace_ms, ret_broken, &err);
    return failure_keep(result, &err);
}

/* A first contact has its own time, so that what is asked over it has all of its own: a floor may have to wait for a standby. A store that
 * answers is asked, even if it said that it cannot serve now, or not us: whoever may not know its id may perhaps raise its floor. */
static int reach_first(hf_store *store, struct error_text *err)
{
    char id[65];
    int result;

    if (reach_known(store))
        return HF_OK;
    result = store->engine->id(store->engine_store, id,
                               clock_after(clock_boot_ms(), reach_span(store, QUERY_MS)), err);
    reach_note(store, result, err);
    return is_transient(result) && !reach_known(store) ? result : HF_OK;
}

int hf_floor_at(hf_store *store, uint64_t token, uint64_t *ret_at, int *ret_ended)
{
    struct error_text err = {""};
    struct engine_floor floor = {0};
    int result = store_check(store, &err);

    if (result == HF_OK && (token < 1 || token >= HF_TOKEN_MAX))
        result = error_set(&err, HF_EINVAL, "a floor is a number from 1 to 2^53-2");
    if (result == HF_OK && (!(store->info.features & HF_HAS_FLOOR) || !store->engine->floor))
        result =
            error_set(&err, HF_ENOTSUP,
                      "the tokens of %s cannot be raised: reset the marks of the guards instead "
                      "(man holdfast-guard-reset)",
                      text_kind(&store->info).text);
    if (result == HF_OK)
        result = reach_first(store, &err);
    if (result == HF_OK)
        result = store->engine->floor(store->engine_store, token,
                                      clock_after(clock_boot_ms(), QUERY_MS), &floor, &err);
    if (result == HF_OK && ret_at)
        *ret_at = floor.at;
    if (result == HF_OK && ret_ended)
        *ret_ended = floor.ended;
    return failure_keep(result, &err);
}

int hf_floor(hf_store *store, uint64_t token)
{
    return hf_floor_at(store, token, NULL, NULL);
}
