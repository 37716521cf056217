/* report.c: the answer of hf_show and hf_list.
 *
 * Entries are one growing array; their strings go into chunks that never move, so that the entries
 * can point to them from the start. Made to hold a hundred thousand names: nothing here looks at an
 * entry twice, but for one sort. A report is shared by counting, because an observer keeps the last
 * one. */
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536
#define ENTRIES_FIRST 16

struct chunk {
    struct chunk *next;
    size_t used, size;
    char bytes[];
};

struct hf_report {
    _Atomic int refs;
    hf_entry *entries;
    size_t count, room;
    struct chunk *chunks; /* the newest first */
};

hf_report *report_new(void)
{
    hf_report *report = calloc(1, sizeof *report);

    if (report)
        atomic_init(&report->refs, 1);
    return report;
}

hf_report *report_ref(hf_report *report)
{
    if (report)
        atomic_fetch_add(&report->refs, 1);
    return report;
}

void hf_report_free(hf_report *report)
{
    if (!report || atomic_fetch_sub(&report->refs, 1) > 1)
        return;
    for (struct chunk *chunk = report->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(report->entries);
    free(report);
}

size_t hf_report_count(const hf_report *report)
{
    return report ? report->count : 0;
}

const hf_entry *hf_report_entry(const hf_report *report, size_t index)
{
    return report && index < report->count ? &report->entries[index] : NULL;
}

static const char *keep_text(hf_report *report, const char *text)
{
    struct chunk *chunk = report->chunks;
    size_t size;
    char *at;

    if (!text || !*text)
        return "";
    size = strlen(text) + 1;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;

        if (!chunk && size <= 1024) /* most reports are of one name */
            room = 1024;
        chunk = malloc(sizeof *chunk + room);
        if (!chunk)
            return NULL;
        *chunk = (struct chunk){.next = report->chunks, .size = room};
        report->chunks = chunk;
    }
    at = chunk->bytes + chunk->used;
    memcpy(at, text, size);
    chunk->used += size;
    return at;
}

static int make_room(hf_report *report, struct error_text *err)
{
    size_t room = report->room ? report->room * 2 : ENTRIES_FIRST;
    hf_entry *entries;

    if (report->count < report->room)
        return HF_OK;
    if (report->count >= REPORT_ENTRIES_MAX)
        return error_set(err, HF_ENOMEM, "more than %u entries", REPORT_ENTRIES_MAX);
    entries = realloc(report->entries, room * sizeof *entries);
    if (!entries)
        return error_set(err, HF_ENOMEM, "out of memory");
    report->entries = entries;
    report->room = room;
    return HF_OK;
}

int report_add(hf_report *report, const hf_entry *entry, struct error_text *err)
{
    hf_entry copy = *entry;
    int result = make_room(report, err);

    if (result != HF_OK)
        return result;
    copy.size = sizeof copy;
    copy.name = keep_text(report, entry->name);
    copy.owner = keep_text(report, entry->owner);
    copy.lease = keep_text(report, entry->lease);
    if (!copy.name || !copy.owner || !copy.lease)
        return error_set(err, HF_ENOMEM, "out of memory");
    report->entries[report->count++] = copy;
    return HF_OK;
}

static int by_name(const void *left, const void *right)
{
    const hf_entry *a = left, *b = right;
    int order = strcmp(a->name, b->name);

    if (order != 0)
        return order;
    return (a->token > b->token) - (a->token < b->token);
}

void report_sort_by_name(hf_report *report)
{
    if (report->count > 1)
        qsort(report->entries, report->count, sizeof *report->entries, by_name);
}

static int rank(int kind)
{
    return kind == HF_ENTRY_HOLDER ? 0 : kind == HF_ENTRY_WAITER ? 2 : 1;
}

/* Holders by their tokens, then waiters in the order in which the store named them, which is the
 * queue's. For the sort to keep that order, it goes by `size`, which holds the place meanwhile. */
static int by_kind(const void *left, const void *right)
{
    const hf_entry *a = left, *b = right;

    if (rank(a->kind) != rank(b->kind))
        return rank(a->kind) < rank(b->kind) ? -1 : 1;
    if (a->kind == HF_ENTRY_HOLDER && a->token != b->token)
        return a->token < b->token ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

void report_sort_by_kind(hf_report *report)
{
    if (report->count < 2)
        return;
    for (size_t i = 0; i < report->count; i++)
        report->entries[i].size = i;
    qsort(report->entries, report->count, sizeof *report->entries, by_kind);
    for (size_t i = 0; i < report->count; i++)
        report->entries[i].size = sizeof *report->entries;
}

bool report_same_holders(const hf_report *a, const hf_report *b)
{
    if (!a || !b || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->entries[i].token != b->entries[i].token ||
            strcmp(a->entries[i].owner, b->entries[i].owner) != 0)
            return false;
    return true;
}
