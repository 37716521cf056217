/* window.c: what is remembered of the last entries: term, checksum, size. The bytes are the caller's. */
#include "raft/inside.h"

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdu;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53u;
    return value ^ value >> 33;
}

uint64_t raft_chain(uint64_t before, uint64_t term, uint8_t type, uint32_t size, uint32_t sum)
{
    uint64_t chain = mix(before + 0x9e3779b97f4a7c15u);

    chain = mix(chain ^ term);
    chain = mix(chain + type);
    return mix(chain ^ ((uint64_t)size << 32 | sum));
}

bool window_has(const struct raft *raft, uint64_t index)
{
    return index >= raft->base.index && index <= raft->last;
}

uint64_t window_term(const struct raft *raft, uint64_t index)
{
    INVARIANT(window_has(raft, index));
    return index == raft->base.index ? raft->base.term : window_of(raft, index)->term;
}

uint64_t window_total(const struct raft *raft, uint64_t index)
{
    INVARIANT(window_has(raft, index));
    return index == raft->base.index ? raft->base_total : window_of(raft, index)->total;
}

struct raft_id window_id(const struct raft *raft, uint64_t index)
{
    INVARIANT(window_has(raft, index));
    if (index == raft->base.index)
        return raft->base;
    return (struct raft_id){index, window_of(raft, index)->term, window_of(raft, index)->chain};
}

bool window_full(const struct raft *raft)
{
    return raft->last - raft->commit >= raft->limits.window;
}

bool window_tight(const struct raft *raft)
{
    return raft->last - raft->commit >= raft->limits.window - raft->limits.window / 4;
}

void window_append(struct raft *raft, uint64_t term, uint8_t type, uint32_t size, uint64_t chain)
{
    uint64_t total = window_total(raft, raft->last) + size;

    INVARIANT(!window_full(raft));
    if (raft->last - raft->base.index == raft->limits.window) { /* the oldest is committed */
        raft->base_total = window_total(raft, raft->base.index + 1);
        raft->base = window_id(raft, raft->base.index + 1);
    }
    raft->last++;
    *window_of(raft, raft->last) =
        (struct window_entry){.term = term, .chain = chain, .total = total, .type = type};
}

void window_cut(struct raft *raft, uint64_t index)
{
    INVARIANT(index > raft->commit && index <= raft->last);
    raft->last = index - 1;
    raft->epoch++;
    if (raft->written > raft->last)
        raft->written = raft->last;
    if (raft->durable > raft->last)
        raft->durable = raft->last;
    if (raft->verified > raft->last)
        raft->verified = raft->last;
}
