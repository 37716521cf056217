/* options.c: what a caller may ask for, checked before anything runs.
 *
 * A program built against an older header hands in a shorter struct: what it lacks keeps its
 * default. One built against a newer header hands in a longer one: fine as long as it uses nothing
 * we do not know, which we see by the rest being zero. */
#include "base/text.h"
#include "client/client.h"

#include <stdio.h>
#include <string.h>

/* What an unknown tail may be at most; anything longer is a size that was never initialised. */
#define OPTIONS_TAIL_MAX 4096

static int copy_known(const void *from, size_t known, void *into, const char *what,
                      struct error_text *err)
{
    size_t size;

    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > known + OPTIONS_TAIL_MAX)
        return error_set(err, HF_EINVAL, "%s: the size field is not set; initialise with %s_INIT",
                         what, what);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)from)[i])
            return error_set(err, HF_EINVAL,
                             "%s: uses something that this version of the library does not know",
                             what);
    memcpy(into, from, size < known ? size : known);
    memcpy(into, &known, sizeof known);
    return HF_OK;
}

int check_span(int64_t ms, const char *what, struct error_text *err)
{
    if (ms < 0 || ms > HF_DURATION_MAX_MS)
        return error_set(err, HF_EINVAL, "%s of %lld ms: must be from 0 to a year", what,
                         (long long)ms);
    return HF_OK;
}

static int check_spans(const hf_store *store, const hf_options *o, struct error_text *err)
{
    int result;

    if (o->wait_ms != HF_FOREVER && (result = check_span(o->wait_ms, "a wait", err)) != HF_OK)
        return result;
    if ((result = check_span(o->max_hold_ms, "a maximum hold", err)) != HF_OK ||
        (result = check_span(o->delay_ms, "a lock-delay", err)) != HF_OK ||
        (result = check_span(o->progress_ms, "a time for progress", err)) != HF_OK)
        return result;
    if (o->ttl_ms != 0 && (o->ttl_ms < HF_TTL_MIN_MS || o->ttl_ms > HF_TTL_MAX_MS))
        return error_set(err, HF_EINVAL, "a TTL of %lld ms: must be from 100 ms to 24 h",
                         (long long)o->ttl_ms);
    if (o->ttl_ms != 0 && !(store->info.features & HF_HAS_TTL))
        return error_set(err, HF_ENOTSUP, "%s has no TTL; use a maximum hold",
                         text_kind(&store->info).text);
    if (o->delay_ms != 0 && !(store->info.features & HF_HAS_DELAY))
        return error_set(err, HF_ENOTSUP, "%s has no lock-delay", text_kind(&store->info).text);
    return HF_OK;
}

static int check_mode(const hf_store *store, const hf_options *o, struct error_text *err)
{

    switch (o->mode) {
    case HF_EXCLUSIVE:
        break;
    case HF_SHARED:
        if (!(store->info.features & HF_HAS_SHARED))
            return error_set(err, HF_ENOTSUP, "%s has no shared locks",
                             text_kind(&store->info).text);
        break;
    case HF_PERMIT:
        if (o->permits < 1 || o->permits > HF_PERMITS_MAX)
            return error_set(err, HF_EINVAL, "%u permits: must be from 1 to %d", o->permits,
                             HF_PERMITS_MAX);
        if (!(store->info.features & HF_HAS_PERMITS))
            return error_set(err, HF_ENOTSUP, "%s has no permits", text_kind(&store->info).text);
        return HF_OK;
    default:
        return error_set(err, HF_EINVAL, "mode %d: there is no such mode", o->mode);
    }
    if (o->permits != 0)
        return error_set(err, HF_EINVAL, "a number of permits goes with the permit mode only");
    return HF_OK;
}

static int check_strength(const hf_store *store, const hf_options *o, struct error_text *err)
{
    const char *variant = store->info.variant;
    char by[CONF_PATH_MAX + 80] = "";

    if (o->need_strict < 0 || (o->need_strict == 0 && !store->need_from[0]))
        return HF_OK;
    if (o->need_strict == 0)
        snprintf(by, sizeof by, " (%s says need = strict)", store->need_from);
    if (store->info.exclusion != HF_STRICT)
        return error_set(err, HF_EWEAK,
                         "%s excludes others as a best effort only: it %s. %s%s%s one "
                         "that 'holdfast stores' calls strict: file: on one machine, "
                         "holdfast: across them%s",
                         text_kind(&store->info).text, store->info.survives,
                         variant ? "Leave that out of the URL (" : "", variant ? variant : "",
                         variant ? "), or use" : "Use", by);
    if (store->info.tokens != HF_STRICT)
        return error_set(err, HF_EWEAK,
                         "the tokens of %s are a best effort only: one may come twice "
                         "after a failure%s",
                         text_kind(&store->info).text, by);
    return HF_OK;
}

static int settle(hf_store *store, const hf_options *o, hf_options *ret_options,
                  struct error_text *err)
{
    int result;

    if ((result = check_spans(store, o, err)) != HF_OK ||
        (result = check_mode(store, o, err)) != HF_OK)
        return result;
    if (o->owner && strnlen(o->owner, HF_OWNER_MAX + 1) > HF_OWNER_MAX)
        return error_set(err, HF_EINVAL, "an owner label has at most %d bytes", HF_OWNER_MAX);
    if ((result = check_strength(store, o, err)) != HF_OK)
        return result;
    *ret_options = *o;
    if (o->ttl_ms == 0)
        ret_options->ttl_ms = store->info.ttl_ms;
    return HF_OK;
}

int options_read(hf_store *store, const hf_options *options, hf_options *ret_options,
                 struct error_text *err)
{
    hf_options o = HF_OPTIONS_INIT;
    int result;

    if (options && (result = copy_known(options, sizeof o, &o, "HF_OPTIONS", err)) != HF_OK)
        return result;
    return settle(store, &o, ret_options, err);
}

int list_options_read(const hf_list_options *options, hf_list_options *ret_options,
                      struct error_text *err)
{
    hf_list_options o = HF_LIST_OPTIONS_INIT;
    int result;

    if (options && (result = copy_known(options, sizeof o, &o, "HF_LIST_OPTIONS", err)) != HF_OK)
        return result;
    *ret_options = o;
    return HF_OK;
}

int once_options_read(hf_store *store, const hf_once_options *options, hf_options *ret_options,
                      struct once_terms *ret_terms, struct error_text *err)
{
    hf_once_options o = HF_ONCE_OPTIONS_INIT;
    hf_options plain = HF_OPTIONS_INIT;
    int result;

    if (options && (result = copy_known(options, sizeof o, &o, "HF_ONCE_OPTIONS", err)) != HF_OK)
        return result;
    if (!(store->info.features & HF_HAS_ONCE) || !store->engine->finish)
        return error_set(err, HF_ENOTSUP,
                         "%s keeps no once-records; 'holdfast stores' says which do",
                         text_kind(&store->info).text);
    if ((result = check_span(o.death_ms, "the time a death is known for", err)) != HF_OK)
        return result;
    plain.wait_ms = o.wait_ms;
    plain.ttl_ms = o.ttl_ms;
    plain.owner = o.owner;
    plain.need_strict = o.need_strict;
    plain.cancel = o.cancel;
    plain.progress_ms = o.progress_ms;
    if ((result = settle(store, &plain, ret_options, err)) != HF_OK)
        return result;
    *ret_terms = (struct once_terms){.no_heir = o.fail_if_died != 0,
                                     .death_ms = o.death_ms ? o.death_ms : HF_ONCE_DEATH_MS};
    return HF_OK;
}
