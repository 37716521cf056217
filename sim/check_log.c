/* check_log.c: at an index all nodes have applied the same entry, and then have the same table and members; a term has one leader, a node
 * votes once in it; what a node knows to be committed does not become less. */
#include "sim/check.h"

#include "base/error.h"
#include "sim/chance.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static void *grown(void *array, size_t *capacity, uint64_t index, size_t size)
{
    size_t wanted = *capacity ? *capacity : 256;

    if (index < *capacity)
        return array;
    while (wanted <= index)
        wanted *= 2;
    array = realloc(array, wanted * size);
    INVARIANT(array != NULL);
    memset((char *)array + *capacity * size, 0, (wanted - *capacity) * size);
    *capacity = wanted;
    return array;
}

static uint64_t hash_entry(uint64_t term, uint8_t type, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t hash = chance_mix(term * 4 + type), word;

    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; size > 0; size--, at++)
        hash = (hash ^ *at) * 0x100000001b3u;
    return chance_mix(hash) | 1;
}

void check_given(struct check_node *node, uint64_t index, uint64_t term, uint8_t type,
                 const void *bytes, size_t size)
{
    node->entries = grown(node->entries, &node->entries_capacity, index, sizeof *node->entries);
    node->entries[index] = hash_entry(term, type, bytes, size);
}

void check_writing(struct check_node *node, uint64_t first)
{
    if (node->unsure_from == 0 || first < node->unsure_from)
        node->unsure_from = first;
}

void check_written(struct check_node *node, uint64_t index, uint64_t term, uint8_t type,
                   const void *bytes, size_t size, uint64_t commit)
{
    node->durable = grown(node->durable, &node->durable_capacity, index, sizeof *node->durable);
    node->durable[index] = hash_entry(term, type, bytes, size);
    node->durable_last = index;
    node->unsure_from = 0;
    if (commit > node->written_commit)
        node->written_commit = commit;
}

void check_reset(struct check_node *node)
{
    node->durable_last = 0;
    node->unsure_from = 0;
}

void check_recovering(struct check_node *node, uint64_t snapshot)
{
    node->recovered_last = snapshot;
}

static bool is_sure(const struct check_node *node, uint64_t index)
{
    return index <= node->durable_last && (node->unsure_from == 0 || index < node->unsure_from);
}

void check_recovered(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t index,
                     uint64_t term, uint8_t type, const void *bytes, size_t size)
{
    uint64_t hash = hash_entry(term, type, bytes, size);

    if (is_sure(node, index) && node->durable[index] != hash)
        verdict_wrong(verdict, "node %llu starts with another entry %llu than its disk had",
                      (ull)id, (ull)index);
    node->recovered_last = index;
    node->durable = grown(node->durable, &node->durable_capacity, index, sizeof *node->durable);
    node->durable[index] = hash;
    node->entries = grown(node->entries, &node->entries_capacity, index, sizeof *node->entries);
    node->entries[index] = hash;
}

void check_recovered_all(struct check_node *node, struct verdict *verdict, uint64_t id)
{
    if (is_sure(node, node->recovered_last + 1))
        verdict_wrong(verdict,
                      "node %llu starts with a log up to %llu, and its disk had acknowledged %llu",
                      (ull)id, (ull)node->recovered_last, (ull)node->durable_last);
    node->durable_last = node->recovered_last;
    node->unsure_from = 0;
}

void check_voted(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                 uint64_t vote)
{
    uint64_t *voted;

    if (term < node->term)
        verdict_wrong(verdict, "node %llu goes back from term %llu to %llu", (ull)id,
                      (ull)node->term, (ull)term);
    node->term = term;
    node->term_unsure = false;
    if (vote == 0 || term == 0)
        return;
    voted = map_at(&node->votes, term);
    if (*voted && *voted != vote)
        verdict_wrong(verdict, "node %llu votes for %llu and %llu in term %llu", (ull)id,
                      (ull)*voted, (ull)vote, (ull)term);
    *voted = vote;
}

void check_voting(struct check_node *node)
{
    node->term_unsure = true;
}

void check_found_vote(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                      uint64_t vote)
{
    const uint64_t *voted = map_find(&node->votes, term);

    if (node->term_unsure)
        node->term = term > node->term ? term : node->term;
    else if (term != node->term)
        verdict_wrong(verdict, "node %llu starts in term %llu, and its disk had %llu", (ull)id,
                      (ull)term, (ull)node->term);
    if (voted && *voted && *voted != vote)
        verdict_wrong(verdict,
                      "node %llu starts with a vote for %llu in term %llu, and not for %llu",
                      (ull)id, (ull)vote, (ull)term, (ull)*voted);
    node->term_unsure = false;
}

void check_leads(struct check_log *log, struct verdict *verdict, uint64_t id, uint64_t term)
{
    uint64_t *leader = map_at(&log->leaders, term);

    if (*leader && *leader != id)
        verdict_wrong(verdict, "nodes %llu and %llu lead in term %llu", (ull)*leader, (ull)id,
                      (ull)term);
    *leader = id;
}

void check_started(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                   uint64_t snapshot, uint64_t commit, uint64_t last)
{
    uint64_t known = node->written_commit < last ? node->written_commit : last;

    if (term < node->term)
        verdict_wrong(verdict, "node %llu starts in term %llu, and was in %llu", (ull)id, (ull)term,
                      (ull)node->term);
    if (commit < known)
        verdict_wrong(verdict, "node %llu starts with commit index %llu, and its disk knew of %llu",
                      (ull)id, (ull)commit, (ull)known);
    node->commit = commit;
    node->applied = snapshot;
    node->installs = 0;
}

static void compare_entry(struct check_log *log, const struct check_node *node,
                          struct verdict *verdict, uint64_t id, uint64_t index)
{
    uint64_t entry = index < node->entries_capacity ? node->entries[index] : 0;

    if (entry == 0)
        return; /* it came with a snapshot */
    log->committed = grown(log->committed, &log->capacity, index, sizeof *log->committed);
    if (log->committed[index] && log->committed[index] != entry)
        verdict_wrong(verdict, "node %llu applies another entry at index %llu than others did",
                      (ull)id, (ull)index);
    log->committed[index] = entry;
}

void check_applied(struct check_log *log, struct check_node *node, struct verdict *verdict,
                   uint64_t id, uint64_t commit, uint64_t applied, uint64_t installs)
{
    if (commit < node->commit)
        verdict_wrong(verdict, "node %llu: the commit index goes back from %llu to %llu", (ull)id,
                      (ull)node->commit, (ull)commit);
    if (applied < node->applied || applied > commit)
        verdict_wrong(verdict, "node %llu has applied %llu after %llu, commit %llu", (ull)id,
                      (ull)applied, (ull)node->applied, (ull)commit);
    if (installs == node->installs)
        for (uint64_t i = node->applied + 1; i <= applied; i++)
            compare_entry(log, node, verdict, id, i);
    node->commit = commit;
    node->applied = applied;
    node->installs = installs;
    if (applied > log->last)
        log->last = applied;
}

void check_agrees(struct check_log *log, struct verdict *verdict, uint64_t id, uint64_t index,
                  const struct check_digest *digest)
{
    struct check_digest *known;

    log->digests = grown(log->digests, &log->digests_capacity, index, sizeof *log->digests);
    known = &log->digests[index];
    if (!known->known) {
        *known = *digest;
        known->known = true;
        return;
    }
    if (known->chain != digest->chain)
        verdict_wrong(verdict, "node %llu has another log than others up to index %llu", (ull)id,
                      (ull)index);
    if (known->table != digest->table)
        verdict_wrong(verdict, "node %llu has another table than others at index %llu", (ull)id,
                      (ull)index);
    if (known->version != digest->version)
        verdict_wrong(verdict, "node %llu uses version %llu at index %llu, and others %llu",
                      (ull)id, (ull)digest->version, (ull)index, (ull)known->version);
    if (known->members != digest->members || known->members_index != digest->members_index)
        verdict_wrong(verdict,
                      "node %llu has other members than others at index %llu: of entry %llu, and "
                      "not %llu",
                      (ull)id, (ull)index, (ull)digest->members_index, (ull)known->members_index);
}

void check_wiped(struct check_node *node)
{
    free(node->entries);
    free(node->durable);
    map_free(&node->votes);
    memset(node, 0, sizeof *node);
}

void check_log_free(struct check_log *log)
{
    free(log->committed);
    free(log->digests);
    map_free(&log->leaders);
}
