/* fence.c: hf_fence_*: a durable map from key to mark, and one at a time inside a key.
 *
 *     fence.c               the functions of guard.h: checking, entering, raising
 *     fence/handle.c        opening, closing, fork
 *     fence/directory.c     the directory, and refusing unsafe ones
 *     fence/keys.c          one at a time inside a key: locks of the kernel, and waiting for them
 *     fence/marks.h         the map on disk, a module: fence/lmdb.c
 *     fence/resets.c        the log of marks that were set on purpose
 *
 * A token first looks, in a transaction that only reads. Most tokens raise nothing: they are stale, or
 * the holder was here before. Only one that would raise its mark writes, and there the comparison is
 * made again, with the writing in one transaction.
 *
 * Writers take turns at a place of their own beside the keys, because the map's own lock for writers
 * knows no time limit: a process that is stopped in the middle of a write must not stop the others
 * without a word. */
#include "guard/fence/fence.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/filesize.h"
#include "guard/fence/resets.h"

#include <stdlib.h>
#include <string.h>

#define KNOCKS_ON_STACK 64

/* ---- checking -------------------------------------------------------------------------------- */

static int check_fence(const hf_fence *fence, struct error_text *err)
{
    if (!fence)
        return error_set(err, HF_EINVAL, "no fence given");
    if (fence_forked(fence))
        return error_set(err, HF_EFORK,
                         "this fence was opened before a fork and belongs to the parent process; "
                         "open one in the child");
    return HF_OK;
}

static int check_key(const char *key, size_t *ret_size, struct error_text *err)
{
    size_t size = key ? strnlen(key, HF_KEY_MAX + 1) : 0;

    if (size == 0 || size > HF_KEY_MAX)
        return error_set(err, HF_EINVAL, "a key has 1 to %d bytes", HF_KEY_MAX);
    *ret_size = size;
    return HF_OK;
}

static int check_token(uint64_t token, struct error_text *err)
{
    if (token == 0 || token > HF_TOKEN_MAX)
        return error_set(err, HF_EINVAL, "%llu is not a token: from 1 to %llu",
                         (unsigned long long)token, (unsigned long long)HF_TOKEN_MAX);
    return HF_OK;
}

static int check_mode(int mode, struct error_text *err)
{
    if (mode != HF_NOT_OLDER && mode != HF_NEWER)
        return error_set(err, HF_EINVAL, "mode %d: there is HF_NOT_OLDER and HF_NEWER", mode);
    return HF_OK;
}

static int check_knock(const char *key, uint64_t token, struct marks_knock *ret_knock,
                       struct error_text *err)
{
    size_t size = 0;
    int result = check_key(key, &size, err);

    if (result == HF_OK)
        result = check_token(token, err);
    if (result == HF_OK)
        *ret_knock = (struct marks_knock){.key = key, .size = size, .token = token};
    return result;
}

static int stale(const struct marks_knock *knock, struct error_text *err)
{
    /* The key comes last: it may be so long that the line is cut. */
    if (knock->token == knock->mark)
        return error_set(err, HF_ESTALE,
                         "stale token %llu: %llu is the newest seen, and only newer ones pass, for "
                         "'%.*s'",
                         (unsigned long long)knock->token, (unsigned long long)knock->mark,
                         (int)knock->size, knock->key);
    return error_set(err, HF_ESTALE,
                     "stale token %llu: %llu is the newest seen, somebody has entered with it, for "
                     "'%.*s'",
                     (unsigned long long)knock->token, (unsigned long long)knock->mark,
                     (int)knock->size, knock->key);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Its descriptor is opened here, and locks nothing yet. */
static int entry_new(hf_fence *fence, int64_t place, hf_fence_entry **ret_entry,
                     struct error_text *err)
{
    hf_fence_entry *entry = calloc(1, sizeof *entry);

    if (!entry)
        return error_set(err, HF_ENOMEM, "out of memory");
    entry->fence = fence;
    entry->place = place;
    pthread_mutex_lock(&fence->mutex);
    entry->fd = keys_descriptor(&fence->keys, err);
    if (entry->fd >= 0)
        list_append(&fence->entries, &entry->node);
    pthread_mutex_unlock(&fence->mutex);
    if (entry->fd < 0) {
        int result = entry->fd;

        free(entry);
        return result;
    }
    *ret_entry = entry;
    return HF_OK;
}

static void entry_free(hf_fence_entry *entry)
{
    hf_fence *fence = entry->fence;

    pthread_mutex_lock(&fence->mutex);
    list_remove(&entry->node);
    fence_drop_descriptor(&entry->fd);
    pthread_mutex_unlock(&fence->mutex);
    free(entry);
}

/* HF_EBUSY comes without words. */
static int take_place(hf_fence *fence, int64_t place, int64_t deadline_ms,
                      hf_fence_entry **ret_entry, struct error_text *err)
{
    hf_fence_entry *entry;
    int result = entry_new(fence, place, &entry, err);

    if (result != HF_OK)
        return result;
    result = keys_take(&fence->keys, entry->fd, place, deadline_ms, err);
    if (result == HF_OK)
        *ret_entry = entry;
    else
        entry_free(entry);
    return result;
}

void hf_fence_end(hf_fence_entry *entry)
{
    if (!entry)
        return;
    if (!fence_forked(entry->fence))
        keys_leave(&entry->fence->keys, entry->fd, entry->place);
    entry_free(entry);
}

/* ---- raising --------------------------------------------------------------------------------- */

/* *ret_turn: to be ended. */
static int begin_writing(hf_fence *fence, hf_fence_entry **ret_turn, struct error_text *err)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), fence->patience_ms);
    int result = take_place(fence, PLACE_WRITER, deadline_ms, ret_turn, err);

    if (result == HF_EBUSY)
        error_set(err, HF_EBUSY,
                  "somebody else has been writing for all of %lld ms; is a process stopped that "
                  "uses the fence in %s?",
                  (long long)fence->patience_ms, fence->directory.path);
    return result;
}

static int knock_all(hf_fence *fence, struct marks_knock *knocks, size_t count, int mode,
                     struct error_text *err)
{
    struct filesize_guard guard;
    hf_fence_entry *turn;
    bool rises = false;
    int result = fence->provider->look(fence->marks, knocks, count, mode, &rises, err);

    if (result != HF_OK || !rises)
        return result;
    result = begin_writing(fence, &turn, err);
    if (result != HF_OK)
        return result;
    filesize_enter(&guard);
    result = fence->provider->raise(fence->marks, knocks, count, mode, err);
    filesize_leave(&guard);
    hf_fence_end(turn);
    return result;
}

/* ---- entering -------------------------------------------------------------------------------- */

static int enter(hf_fence *fence, struct marks_knock *knock, int mode, int64_t wait_ms,
                 hf_fence_entry **ret_entry, struct error_text *err)
{
    int64_t deadline_ms =
        wait_ms == HF_FOREVER ? CLOCK_NEVER : clock_after(clock_boot_ms(), wait_ms);
    hf_fence_entry *entry;
    int result = take_place(fence, keys_place(knock->key, knock->size), deadline_ms, &entry, err);

    if (result == HF_EBUSY && wait_ms == 0)
        error_set(err, HF_EBUSY, "somebody else is inside '%.*s'", (int)knock->size, knock->key);
    else if (result == HF_EBUSY)
        error_set(err, HF_EBUSY, "somebody else stayed inside for %lld ms: '%.*s'",
                  (long long)wait_ms, (int)knock->size, knock->key);
    if (result != HF_OK)
        return result;
    result = knock_all(fence, knock, 1, mode, err);
    if (result == HF_OK && knock->stale)
        result = stale(knock, err);
    if (result == HF_OK)
        *ret_entry = entry;
    else
        hf_fence_end(entry);
    return result;
}

int hf_fence_begin(hf_fence *fence, const char *key, uint64_t token, int mode, int64_t wait_ms,
                   hf_fence_entry **ret_entry, uint64_t *ret_mark)
{
    struct error_text err = {""};
    struct marks_knock knock;
    int result = check_fence(fence, &err);

    if (result == HF_OK && !ret_entry)
        result = error_set(&err, HF_EINVAL, "hf_fence_begin: nowhere to put the entry");
    if (result == HF_OK)
        result = check_knock(key, token, &knock, &err);
    if (result == HF_OK)
        result = check_mode(mode, &err);
    if (result == HF_OK && wait_ms != HF_FOREVER && (wait_ms < 0 || wait_ms > HF_DURATION_MAX_MS))
        result = error_set(&err, HF_EINVAL, "a wait of %lld ms: must be from 0 to a year",
                           (long long)wait_ms);
    if (result != HF_OK)
        return failure_keep(result, &err);
    result = enter(fence, &knock, mode, wait_ms, ret_entry, &err);
    if (ret_mark && (result == HF_OK || result == HF_ESTALE))
        *ret_mark = knock.mark;
    return failure_keep(result, &err);
}

/* ---- admitting ------------------------------------------------------------------------------- */

int hf_fence_admit(hf_fence *fence, const char *key, uint64_t token, int mode, uint64_t *ret_mark)
{
    struct error_text err = {""};
    struct marks_knock knock;
    int result = check_fence(fence, &err);

    if (result == HF_OK)
        result = check_knock(key, token, &knock, &err);
    if (result == HF_OK)
        result = check_mode(mode, &err);
    if (result == HF_OK)
        result = knock_all(fence, &knock, 1, mode, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    if (ret_mark)
        *ret_mark = knock.mark;
    if (knock.stale)
        result = stale(&knock, &err);
    return failure_keep(result, &err);
}

static int check_items(const hf_fence_item *items, size_t count, int mode, struct error_text *err)
{
    if (count > HF_FENCE_BATCH_MAX)
        return error_set(err, HF_EINVAL, "%zu tokens at once: %d are the most", count,
                         HF_FENCE_BATCH_MAX);
    if (!items && count > 0)
        return error_set(err, HF_EINVAL, "hf_fence_admit_many: no items given");
    return check_mode(mode, err);
}

/* knocks: room for so many. */
static int admit_items(hf_fence *fence, hf_fence_item *items, size_t count, int mode,
                       struct marks_knock *knocks, struct error_text *err)
{
    int result;

    for (size_t i = 0; i < count; i++) {
        struct error_text why;

        result = check_knock(items[i].key, items[i].token, &knocks[i], &why);
        if (result != HF_OK)
            return error_set(err, result, "item %zu: %s", i, why.text);
    }
    result = knock_all(fence, knocks, count, mode, err);
    if (result != HF_OK)
        return result;
    for (size_t i = 0; i < count; i++) {
        items[i].result = knocks[i].stale ? HF_ESTALE : HF_OK;
        items[i].mark = knocks[i].mark;
    }
    return HF_OK;
}

int hf_fence_admit_many(hf_fence *fence, hf_fence_item *items, size_t count, int mode)
{
    struct marks_knock few[KNOCKS_ON_STACK], *knocks = few;
    struct error_text err = {""};
    int result = check_fence(fence, &err);

    if (result == HF_OK)
        result = check_items(items, count, mode, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    if (count > KNOCKS_ON_STACK)
        knocks = calloc(count, sizeof *knocks);
    result = knocks ? admit_items(fence, items, count, mode, knocks, &err)
                    : error_set(&err, HF_ENOMEM, "out of memory");
    if (knocks != few)
        free(knocks);
    return failure_keep(result, &err);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int hf_fence_mark(hf_fence *fence, const char *key, uint64_t *ret_mark)
{
    struct error_text err = {""};
    size_t size = 0;
    int result = check_fence(fence, &err);

    if (result == HF_OK && !ret_mark)
        result = error_set(&err, HF_EINVAL, "hf_fence_mark: nowhere to put the mark");
    if (result == HF_OK)
        result = check_key(key, &size, &err);
    if (result == HF_OK)
        result = fence->provider->read(fence->marks, key, size, ret_mark, &err);
    return failure_keep(result, &err);
}

/* Page by page, so that fn may take its time: a long transaction would keep old pages from being
 * used again. */
static int tell_all(hf_fence *fence, struct marks_page *page, hf_fence_fn *fn, void *arg,
                    struct error_text *err)
{
    const char *after = NULL;
    char last[HF_KEY_MAX + 1];

    do {
        int result = fence->provider->page(fence->marks, after, page, err);

        if (result != HF_OK)
            return result;
        for (size_t i = 0; i < page->count; i++)
            if (fn(page->rows[i].key, page->rows[i].mark, arg) != 0)
                return HF_OK;
        if (page->count > 0)
            memcpy(last, page->rows[page->count - 1].key, sizeof last);
        after = last;
    } while (page->count == MARKS_PAGE_ROWS);
    return HF_OK;
}

int hf_fence_each(hf_fence *fence, hf_fence_fn *fn, void *arg)
{
    struct error_text err = {""};
    struct marks_page *page;
    int result = check_fence(fence, &err);

    if (result == HF_OK && !fn)
        result = error_set(&err, HF_EINVAL, "hf_fence_each: no callback given");
    if (result != HF_OK)
        return failure_keep(result, &err);
    page = malloc(sizeof *page);
    result =
        page ? tell_all(fence, page, fn, arg, &err) : error_set(&err, HF_ENOMEM, "out of memory");
    free(page);
    return failure_keep(result, &err);
}

/* ---- resetting ------------------------------------------------------------------------------- */

static int log_reset(void *context, uint64_t was, struct error_text *err)
{
    struct reset *reset = context;

    reset->was = was;
    return resets_append(reset, err);
}

static int check_reset(const hf_fence *fence, const struct reset *reset, size_t *ret_size,
                       struct error_text *err)
{
    int result = check_fence(fence, err);

    if (result == HF_OK)
        result = check_key(reset->key, ret_size, err);
    if (result == HF_OK && reset->mark != 0)
        result = check_token(reset->mark, err);
    if (result == HF_OK && reset->why && strnlen(reset->why, HF_REASON_MAX + 1) > HF_REASON_MAX)
        result = error_set(err, HF_EINVAL, "a reason has at most %d bytes", HF_REASON_MAX);
    return result;
}

int hf_fence_reset(hf_fence *fence, const char *key, uint64_t mark, const char *why,
                   uint64_t *ret_was)
{
    struct reset reset = {.key = key, .why = why && *why ? why : NULL, .mark = mark};
    struct error_text err = {""};
    struct filesize_guard guard;
    hf_fence_entry *turn;
    size_t size = 0;
    int result = check_reset(fence, &reset, &size, &err);

    if (result == HF_OK)
        result = begin_writing(fence, &turn, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    reset.directory = &fence->directory;
    filesize_enter(&guard);
    result = fence->provider->set(fence->marks, key, size, mark, log_reset, &reset, &err);
    filesize_leave(&guard);
    hf_fence_end(turn);
    if (result == HF_OK && ret_was)
        *ret_was = reset.was;
    return failure_keep(result, &err);
}
