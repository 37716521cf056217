/* snapshot.c: writing the table out; snapshot.h has the format.
 *
 * A snapshot is taken in steps between which entries are applied. Every record carries the number
 * of the last snapshot it was written to (its epoch). Whatever is about to change or to go while it
 * has an older number is written first, as it still is; records that come meanwhile have the number
 * from the start, and are not written at all. So the bytes say how the table was at the beginning. */
#include "core/snapshot.h"

#include "base/hash.h"
#include "base/switches.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum phase { PHASE_LEASES, PHASE_LOCKS, PHASE_COMPLETE };

struct snapshot {
    struct snapshot_writer writer;
    enum phase phase;
    uint32_t cursor;
    size_t summed; /* bytes that are in the sum */
    uint64_t sum;
};

/* ---- bytes ------------------------------------------------------------------------------------ */

#define VARINT_MAX 10u

/* Where the next bytes go: there is room for so many. What was put there is the writer's after commit. */
static unsigned char *reserve(struct snapshot_writer *writer, size_t size)
{
    if (writer->size + size > writer->capacity) {
        while (writer->size + size > writer->capacity)
            writer->capacity = writer->capacity ? 2 * writer->capacity : 4096;
        writer->bytes = core_realloc(writer->bytes, writer->capacity);
    }
    return writer->bytes + writer->size;
}

static void commit(struct snapshot_writer *writer, const unsigned char *end)
{
    writer->size = (size_t)(end - writer->bytes);
}

static unsigned char *put_byte(unsigned char *at, int byte)
{
    *at = (unsigned char)byte;
    return at + 1;
}

static unsigned char *put(unsigned char *at, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        *at++ = (unsigned char)(number | 0x80);
    *at = (unsigned char)number;
    return at + 1;
}

static unsigned char *put_text(unsigned char *at, struct core_text text)
{
    at = put(at, text.size);
    if (text.size)
        memcpy(at, text.bytes, text.size);
    return at + text.size;
}

uint64_t snapshot_sum(uint64_t sum, const void *block, size_t size)
{
    uint64_t both[2] = {htole64(sum), htole64(hash_bytes(block, size))};

    return hash_bytes(both, sizeof both);
}

/* ---- records ---------------------------------------------------------------------------------- */

static void write_members(struct snapshot_writer *writer, const struct core *core)
{
    for (uint32_t i = 0; i < core->member_count; i++) {
        const struct member *member = &core->members[i];
        unsigned char *at = reserve(writer, 1 + 2 * VARINT_MAX + member->size);

        at = put_byte(at, SNAPSHOT_MEMBER);
        at = put(at, member->id);
        at = put_text(at, (struct core_text){member->address, member->size});
        commit(writer, at);
    }
}

void snapshot_write_header(struct snapshot_writer *writer, const struct core *core)
{
    unsigned char *at = reserve(writer, SNAPSHOT_MAGIC_SIZE + 7 * VARINT_MAX + 1 + sizeof core->id);

    memcpy(at, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE);
    at += SNAPSHOT_MAGIC_SIZE;
    at = put(at, (uint64_t)core->now_ms);
    at = put(at, SWITCHED(SWITCH_COUNTER_VOLATILE) ? 0 : core->last_token);
    at = put(at, core->last_ticket);
    at = put(at, core->last_attachment);
    at = put(at, core->leases.used);
    at = put(at, core->locks.used);
    at = put(at, core->claims.used);
    at = put_byte(at, core->identified);
    memcpy(at, core->id, sizeof core->id);
    commit(writer, at + sizeof core->id);
    write_members(writer, core);
}

void snapshot_write_lease(struct snapshot_writer *writer, const struct core *core, uint32_t slot)
{
    const struct lease *lease = lease_at(core, slot);
    struct core_text id = lease_id(core, lease), user = {NULL, 0};
    unsigned char *at;

    if (lease->usage && !SWITCHED(SWITCH_QUOTA_VOLATILE))
        user = usage_name(core, usage_at(core, lease->usage - 1u));
    at = reserve(writer, 2 + 5 * VARINT_MAX + id.size + user.size);
    at = put_byte(at, user.size ? SNAPSHOT_LEASE_OF_USER : SNAPSHOT_LEASE);
    at = put(at, slot);
    at = put_text(at, id);
    at = put(at, lease->ttl_ms);
    at = put(at, (uint64_t)lease_deadline(core, lease));
    at = put_byte(at, lease->ended);
    if (user.size)
        at = put_text(at, user);
    commit(writer, at);
}

void snapshot_write_claim(struct snapshot_writer *writer, const struct core *core, uint32_t slot)
{
    const struct claim *claim = claim_at(core, slot);
    int64_t deadline_ms = claim_deadline(core, claim);
    uint32_t usage = claim->state == CORE_GHOST ? claim_usage(core, claim) : 0;
    struct core_text owner = claim_owner(core, claim), user = {NULL, 0};
    unsigned char *at;

    if (usage)
        user = usage_name(core, usage_at(core, usage - 1));
    at = reserve(writer, 3 + 9 * VARINT_MAX + owner.size + user.size);

    at = put(at, slot);
    at = put(at, claim->lease == NONE ? 0 : (uint64_t)claim->lease + 1);
    at = put_byte(at, claim->state);
    at = put_byte(at, claim->mode);
    at = put_byte(at, (claim->flags & CLAIM_TOLD) | (user.size ? CLAIM_OF_USER : 0));
    at = put(at, claim->number);
    at = put(at, (uint64_t)claim->since_ms);
    at = put(at, deadline_ms == INT64_MAX ? 0 : (uint64_t)deadline_ms);
    at = put(at, claim_delay(core, claim));
    at = put(at, claim_attachment(core, claim));
    at = put_text(at, owner);
    if (user.size)
        at = put_text(at, user);
    commit(writer, at);
}

static void write_record(struct snapshot_writer *writer, const struct record *record)
{
    unsigned char *at = reserve(writer, 1 + 3 * VARINT_MAX + (record ? record->size : 0));

    if (!record) {
        commit(writer, put_byte(at, SNAPSHOT_NO_RECORD));
        return;
    }
    at = put_byte(at, record->bytes ? SNAPSHOT_DONE : SNAPSHOT_DIED);
    at = put(at, record->token);
    at = put(at, (uint64_t)record->deadline_ms);
    if (record->bytes)
        at = put_text(at, (struct core_text){record->bytes, record->size});
    commit(writer, at);
}

static void write_lock_head(struct snapshot_writer *writer, const struct core *core, uint32_t slot)
{
    const struct lock *lock = lock_at(core, slot);
    struct core_text name = lock_name(core, lock);
    unsigned char *at = reserve(writer, 2 + 5 * VARINT_MAX + name.size);

    at = put_byte(at, SNAPSHOT_LOCK);
    at = put(at, slot);
    at = put_text(at, name);
    at = put_byte(at, lock->once);
    at = put(at, lock->permits);
    at = put(at, lock->holds);
    at = put(at, lock->places);
    commit(writer, at);
}

void snapshot_write_lock(struct snapshot_writer *writer, const struct core *core, uint32_t slot)
{
    const struct lock *lock = lock_at(core, slot);

    write_lock_head(writer, core, slot);
    for (uint32_t i = lock->first_hold; i != NONE; i = claim_at(core, i)->lock_next)
        snapshot_write_claim(writer, core, i);
    for (uint32_t i = lock->first_place; i != NONE; i = claim_at(core, i)->lock_next)
        snapshot_write_claim(writer, core, i);
    write_record(writer, record_of(core, lock));
}

void snapshot_write_lock_alone(struct snapshot_writer *writer, const struct core *core,
                               uint32_t slot)
{
    write_lock_head(writer, core, slot);
    write_record(writer, record_of(core, lock_at(core, slot)));
}

/* ---- in steps --------------------------------------------------------------------------------- */

/* Epochs go round; before they do, no record may be left with an old number. */
static void forget_epochs(struct core *core)
{
    for (uint32_t i = slab_next(&core->leases, 0); i != NONE; i = slab_next(&core->leases, i + 1))
        lease_at(core, i)->epoch = 0;
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1))
        lock_at(core, i)->epoch = 0;
    core->epoch = 0;
}

void core_snapshot_begin(struct core *core)
{
    INVARIANT(!core->snapshot);
    if (core->epoch == UINT8_MAX)
        forget_epochs(core);
    core->epoch++;
    core->snapshot = core_alloc(sizeof *core->snapshot);
    snapshot_write_header(&core->snapshot->writer, core);
}

void snapshot_save_lease(struct core *core, uint32_t slot)
{
    snapshot_write_lease(&core->snapshot->writer, core, slot);
    lease_at(core, slot)->epoch = core->epoch;
}

void snapshot_save_lock(struct core *core, uint32_t slot)
{
    snapshot_write_lock(&core->snapshot->writer, core, slot);
    lock_at(core, slot)->epoch = core->epoch;
}

static void add_to_sum(struct snapshot *snapshot, bool all)
{
    const struct snapshot_writer *writer = &snapshot->writer;

    while (writer->size - snapshot->summed >= SNAPSHOT_BLOCK ||
           (all && snapshot->summed < writer->size)) {
        size_t size = writer->size - snapshot->summed;

        if (size > SNAPSHOT_BLOCK)
            size = SNAPSHOT_BLOCK;
        snapshot->sum = snapshot_sum(snapshot->sum, writer->bytes + snapshot->summed, size);
        snapshot->summed += size;
    }
}

/* One record further, or the next phase. */
static void advance(struct core *core, struct snapshot *snapshot)
{
    bool leases = snapshot->phase == PHASE_LEASES;
    uint32_t slot = slab_next(leases ? &core->leases : &core->locks, snapshot->cursor);

    if (slot == NONE) {
        snapshot->phase++;
        snapshot->cursor = 0;
        return;
    }
    snapshot->cursor = slot + 1;
    if (leases)
        touch_lease(core, slot);
    else
        touch_lock(core, slot);
}

static void complete(struct snapshot *snapshot)
{
    struct snapshot_writer *writer = &snapshot->writer;
    uint64_t sum;

    commit(writer, put_byte(reserve(writer, 1 + SNAPSHOT_SUM_SIZE), SNAPSHOT_END));
    add_to_sum(snapshot, true);
    sum = htole64(snapshot->sum);
    memcpy(writer->bytes + writer->size, &sum, SNAPSHOT_SUM_SIZE);
    writer->size += SNAPSHOT_SUM_SIZE;
}

/* Slots that are passed over cost time too: a byte each, so to speak. */
bool core_snapshot_step(struct core *core, size_t bytes)
{
    struct snapshot *snapshot = core->snapshot;
    size_t enough, passed = 0;

    INVARIANT(snapshot);
    if (snapshot->phase == PHASE_COMPLETE)
        return true;
    enough = snapshot->writer.size + bytes;
    do {
        advance(core, snapshot);
        passed++;
    } while (snapshot->phase != PHASE_COMPLETE && snapshot->writer.size + passed < enough);
    if (snapshot->phase == PHASE_COMPLETE)
        complete(snapshot);
    else
        add_to_sum(snapshot, false);
    return snapshot->phase == PHASE_COMPLETE;
}

void *core_snapshot_end(struct core *core, size_t *ret_size)
{
    struct snapshot *snapshot = core->snapshot;
    void *bytes = NULL;

    if (!snapshot)
        return NULL;
    core->snapshot = NULL;
    if (snapshot->phase == PHASE_COMPLETE) {
        *ret_size = snapshot->writer.size;
        bytes = core_realloc(snapshot->writer.bytes, snapshot->writer.size);
    } else {
        free(snapshot->writer.bytes);
    }
    free(snapshot);
    return bytes;
}
