/* apply.c: committed entries and snapshots, on their way from libraft into the table.
 *
 * An entry is this node's own if it carries the origin of this process and the sequence number of
 * the one in flight. Only then somebody waits for its answers. They are given from here, and not
 * from the callback of raft_apply, which only comes by way of libuv.
 *
 * What is committed is put off while something else is more urgent.
 *
 * A follower learns that an entry is committed together with the next one, which it has to write and acknowledge: its leader
 * waits for that, and nobody waits for the table of a follower. So it waits until nothing waits for the disk, and then
 * goes into the table entry by entry, with an ear for the leader between them.
 *
 * A busy leader lets the next entry take off first: others write it while this one is applied and answered. Otherwise
 * they and it would take turns in doing nothing.
 *
 * The bytes stay libraft's, which keeps them: they go only with a snapshot, of this table (taken with nothing put off) or from
 * the leader (and then there is no use for them). */
#include "replica_libraft/inside.h"

#include <inttypes.h>

#define PUT_OFF_MIN 16u
#define PUT_OFF_MAX 16u /* entries that wait while others come without a pause */

static void on_effect(void *context, const struct core_effect *effect)
{
    struct replica *replica = context;
    const struct flight *arrived = &replica->arrived;
    void *request = NULL;

    if (effect->kind == EFFECT_ANSWER || effect->kind == EFFECT_READ) {
        if (!replica->landing || arrived->first)
            return;
        INVARIANT(effect->command < arrived->count);
        request = arrived->requests[effect->command];
    }
    if (replica->opened)
        replica->host.effect(replica->host.context, request, effect);
}

static bool is_own(const struct replica *replica, const struct flight *flight,
                   const struct core_entry_header *header)
{
    return flight->active && header->origin == replica->origin &&
           header->sequence == flight->sequence;
}

static void apply_entry(struct replica *replica, uint64_t index, const struct raft_buffer *buffer)
{
    const struct core_sink sink = {replica, on_effect};
    struct core_entry_header header;
    struct error_text err = {"it is none of ours"};

    if (!core_entry_header(buffer->base, buffer->len, &header))
        goto damaged;
    replica->landing = is_own(replica, &replica->arrived, &header);
    if (core_apply(replica->table, buffer->base, buffer->len, &sink, &err) != HF_OK) {
        replica->landing = false;
        goto damaged;
    }
    snapshots_count(replica, buffer->len, header.count);
    if (replica->landing) {
        replica->landing = false;
        replica_landed(replica);
    }
    return;

damaged:
    gate_trouble(replica, "entry %" PRIu64 " of the log cannot be applied: %s", index, err.text);
}

void apply_next(struct replica *replica)
{
    struct put_off *put_off = &replica->put_off;
    struct committed entry;

    if (put_off->first == put_off->count)
        return;
    entry = put_off->entries[put_off->first++];
    if (put_off->first == put_off->count)
        put_off->first = put_off->count = 0;
    if (!gate_shut(replica))
        apply_entry(replica, entry.index, &entry.buffer);
}

void apply_put_off(struct replica *replica)
{
    while (replica->put_off.count > 0)
        apply_next(replica);
}

static void postpone(struct replica *replica, uint64_t index, const struct raft_buffer *buffer)
{
    struct put_off *put_off = &replica->put_off;

    if (put_off->count == put_off->capacity) {
        put_off->capacity = put_off->capacity ? 2 * put_off->capacity : PUT_OFF_MIN;
        put_off->entries =
            replica_realloc(put_off->entries, put_off->capacity * sizeof *put_off->entries);
    }
    put_off->entries[put_off->count++] = (struct committed){index, *buffer};
}

/* It makes room for the next to take off. */
static void arrive(struct replica *replica)
{
    struct flight empty = replica->arrived;

    INVARIANT(!empty.active);
    replica->arrived = replica->flight;
    replica->flight = empty;
}

static bool can_wait(struct replica *replica)
{
    if (!replica->opened)
        return false;
    if (raft_state(&replica->raft) == RAFT_LEADER)
        return replica->expected >= REPLICA_ENOUGH && replica->raft.configuration.n > 1;
    /* Somebody may wait for it, if it was this node that proposed it. */
    return !replica->flight.active && !replica->arrived.active &&
           replica->put_off.count - replica->put_off.first <= PUT_OFF_MAX;
}

static int apply(struct raft_fsm *fsm, const struct raft_buffer *buffer, void **ret_result)
{
    struct replica *replica = fsm->data;
    uint64_t index = raft_last_applied(&replica->raft) + 1;
    struct core_entry_header header;

    *ret_result = NULL;
    if (gate_shut(replica))
        return 0; /* see gate.c */
    if (replica->arrived.active)
        apply_put_off(replica);
    if (core_entry_header(buffer->base, buffer->len, &header) &&
        is_own(replica, &replica->flight, &header))
        arrive(replica);
    postpone(replica, index, buffer);
    if (!can_wait(replica))
        apply_put_off(replica);
    return 0;
}

/* Takes the bytes if it succeeds. Later than at the beginning it does so in any case: see gate.c. */
static int restore(struct raft_fsm *fsm, struct raft_buffer *buffer)
{
    struct replica *replica = fsm->data;
    struct error_text err = {""};

    replica->put_off.first = replica->put_off.count = 0;
    if (core_restore(replica->table, buffer->base, buffer->len, &err) != HF_OK) {
        gate_trouble(replica, "the snapshot cannot be restored: %s", err.text);
        if (!replica->opened)
            return RAFT_CORRUPT;
    }
    snapshots_restored(replica, buffer->len);
    replica->snapshots.installed += replica->opened;
    raft_free(buffer->base);
    return 0;
}

void apply_init(struct replica *replica)
{
    replica->fsm.version = 2;
    replica->fsm.data = replica;
    replica->fsm.apply = apply;
    replica->fsm.restore = restore;
}
