/* log.c: the bytes of the last entries, in memory. The journal borrows them until they are durable, so what is cut off meanwhile
 * lives until then. */
#include "replica/inside.h"

#include <stdlib.h>

#define CAPACITY_MIN 256u

struct log_entry *log_at(const struct log *log, uint64_t index)
{
    INVARIANT(index > log->before.index && index <= log->last);
    return &log->ring[index & (log->capacity - 1)];
}

bool log_id(const struct log *log, uint64_t index, struct raft_id *ret_id)
{
    if (index < log->before.index || index > log->last)
        return false;
    if (index == log->before.index)
        *ret_id = log->before;
    else
        *ret_id = (struct raft_id){index, log_at(log, index)->term, log_at(log, index)->chain};
    return true;
}

static void grow(struct log *log)
{
    uint64_t capacity = log->capacity ? 2 * log->capacity : CAPACITY_MIN;
    struct log_entry *ring = replica_realloc(NULL, capacity * sizeof *ring);

    for (uint64_t i = log_first(log); i <= log->last; i++)
        ring[i & (capacity - 1)] = *log_at(log, i);
    free(log->ring);
    log->ring = ring;
    log->capacity = capacity;
}

void log_add(struct log *log, const struct raft_entry *entry, unsigned char *bytes)
{
    if (log->last - log->before.index == log->capacity)
        grow(log);
    log->last++;
    log->bytes += entry->size;
    *log_at(log, log->last) = (struct log_entry){.term = entry->term,
                                                 .chain = entry->chain,
                                                 .size = entry->size,
                                                 .sum = entry->sum,
                                                 .type = entry->type,
                                                 .bytes = bytes};
}

/* Frees its bytes, or leaves them to the append that borrows them. */
static void let_go(struct log *log, struct log_entry *entry)
{
    log->bytes -= entry->size;
    if (entry->write <= log->written) {
        free(entry->bytes);
        return;
    }
    if (log->unneeded_count == log->unneeded_capacity) {
        log->unneeded_capacity = log->unneeded_capacity ? 2 * log->unneeded_capacity : 16;
        log->unneeded =
            replica_realloc(log->unneeded, log->unneeded_capacity * sizeof *log->unneeded);
    }
    log->unneeded[log->unneeded_count++] = (struct unneeded){entry->write, entry->bytes};
}

void log_cut(struct log *log, uint64_t index)
{
    INVARIANT(index > log->before.index);
    for (; log->last >= index; log->last--)
        let_go(log, log_at(log, log->last));
}

void log_reset(struct log *log, const struct raft_id *before)
{
    log_cut(log, log_first(log));
    log->before = *before;
    log->last = before->index;
}

void log_shrink(struct log *log, uint64_t up_to, uint64_t bytes)
{
    while (log->bytes > bytes && log_first(log) <= up_to) {
        struct log_entry *entry = log_at(log, log_first(log));

        if (entry->write == 0 || entry->write > log->written)
            return;
        let_go(log, entry);
        log->before = (struct raft_id){log_first(log), entry->term, entry->chain};
    }
}

void log_written(struct log *log, uint64_t number)
{
    size_t kept = 0;

    log->written = number;
    for (size_t i = 0; i < log->unneeded_count; i++)
        if (log->unneeded[i].write <= number)
            free(log->unneeded[i].bytes);
        else
            log->unneeded[kept++] = log->unneeded[i];
    log->unneeded_count = kept;
}

void log_free(struct log *log)
{
    log->written = UINT64_MAX;
    log_cut(log, log_first(log));
    log_written(log, UINT64_MAX);
    free(log->ring);
    free(log->unneeded);
}
