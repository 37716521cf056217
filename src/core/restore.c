/* restore.c: reading a snapshot back (snapshot.h has the format). The bytes come from a disk or a
 * peer: nothing in them is believed. They are read into a table of their own, which takes the place
 * of the old one only when it has been found sound. */
#include "base/switches.h"
#include "core/snapshot.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct core *core; /* the table that is being filled */
    const unsigned char *at, *end;
    uint32_t leases, locks, claims; /* how many there should be */
    bool leases_only;               /* the first of two passes: claims need their leases */
    const char *wrong;              /* what is, in words */
};

/* Ends up as the message; the first one stays. */
static bool wrong(struct reader *reader, const char *words)
{
    if (!reader->wrong)
        reader->wrong = words;
    return false;
}

static bool get_byte(struct reader *reader, int max, int *ret_byte)
{
    if (reader->at >= reader->end)
        return wrong(reader, "it is cut short");
    *ret_byte = *reader->at++;
    return *ret_byte <= max || wrong(reader, "a byte is out of its range");
}

static bool get(struct reader *reader, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        int byte = 0;

        if (!get_byte(reader, 0xff, &byte))
            return false;
        if (shift == 63 && byte > 1)
            break;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_number = number;
            return number <= max || wrong(reader, "a number is out of its range");
        }
    }
    return wrong(reader, "a number is too long");
}

static bool get32(struct reader *reader, uint32_t max, uint32_t *ret_number)
{
    uint64_t number = 0;

    if (!get(reader, max, &number))
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

static bool get_text(struct reader *reader, size_t min, size_t max, struct core_text *ret_text)
{
    uint64_t size = 0;

    if (!get(reader, max, &size))
        return false;
    if (size < min || size > (size_t)(reader->end - reader->at))
        return wrong(reader, "a text is cut short");
    *ret_text = (struct core_text){(const char *)reader->at, (size_t)size};
    reader->at += size;
    return true;
}

/* ---- records ---------------------------------------------------------------------------------- */

static bool read_header(struct reader *reader)
{
    struct core *core = reader->core;
    uint64_t now = 0;
    int identified;

    if (!get(reader, INT64_MAX / 4, &now) || !get(reader, HF_TOKEN_MAX, &core->last_token) ||
        !get(reader, UINT64_MAX / 2, &core->last_ticket) ||
        !get32(reader, UINT32_MAX, &core->last_attachment) ||
        !get32(reader, CORE_LEASES_MAX, &reader->leases) ||
        !get32(reader, CORE_LOCKS_MAX, &reader->locks) ||
        !get32(reader, CORE_CLAIMS_MAX, &reader->claims) || !get_byte(reader, 1, &identified))
        return false;
    if ((size_t)(reader->end - reader->at) < sizeof core->id)
        return wrong(reader, "it is cut short");
    core->now_ms = (int64_t)now;
    core->identified = identified;
    memcpy(core->id, reader->at, sizeof core->id);
    reader->at += sizeof core->id;
    return true;
}

static bool get_deadline(struct reader *reader, int64_t *ret_deadline_ms)
{
    uint64_t deadline = 0;

    if (!get(reader, (uint64_t)deadline_max(reader->core), &deadline))
        return false;
    *ret_deadline_ms = (int64_t)deadline;
    return true;
}

static bool read_lease(struct reader *reader, bool of_user)
{
    struct core *core = reader->core;
    struct core_text id = {0}, user = {0};
    struct lease *lease;
    uint32_t slot = 0, ttl_ms = 0;
    int64_t deadline_ms = 0;
    int ended = 0;

    if (!get32(reader, CORE_LEASES_MAX - 1, &slot) || !get_text(reader, 1, HF_LEASE_MAX, &id) ||
        !get32(reader, CORE_TTL_MAX_MS, &ttl_ms) || !get_deadline(reader, &deadline_ms) ||
        !get_byte(reader, 1, &ended) || (of_user && !get_text(reader, 1, CORE_USER_MAX, &user)))
        return false;
    if (!reader->leases_only)
        return true;
    if (!lease_make_at(core, slot, id))
        return wrong(reader, "a lease is there twice");
    lease = lease_at(core, slot);
    lease->ttl_ms = ttl_ms;
    lease->ended = ended != 0;
    core->ended += lease->ended;
    lease_set_deadline(core, slot, deadline_ms);
    return !of_user || quota_join(core, slot, user) || wrong(reader, "there are too many users");
}

/* In their order, so that equal tables have equal snapshots. */
static bool read_member(struct reader *reader)
{
    struct core *core = reader->core;
    uint64_t id = 0, last = 0;
    struct core_text address = {0};

    if (core->member_count > 0)
        last = core->members[core->member_count - 1].id;
    if (!get(reader, HF_TOKEN_MAX, &id) || !get_text(reader, 1, CORE_ADDRESS_MAX, &address))
        return false;
    if (!reader->leases_only)
        return true;
    return (id > last && member_set(core, id, address)) ||
           wrong(reader, "the members are out of order, or too many");
}

struct claim_bytes {
    uint32_t slot, lease, attachment;
    int state, mode, flags;
    uint64_t number, since, delay;
    int64_t deadline_ms;
    struct core_text owner, user;
};

static bool get_claim(struct reader *reader, struct claim_bytes *claim)
{
    return get32(reader, CORE_CLAIMS_MAX - 1, &claim->slot) &&
           get32(reader, CORE_LEASES_MAX, &claim->lease) &&
           get_byte(reader, CORE_GHOST, &claim->state) &&
           get_byte(reader, HF_PERMIT, &claim->mode) &&
           get_byte(reader, CLAIM_TOLD | CLAIM_OF_USER, &claim->flags) &&
           get(reader, UINT64_MAX / 2, &claim->number) &&
           get(reader, (uint64_t)reader->core->now_ms, &claim->since) &&
           get_deadline(reader, &claim->deadline_ms) &&
           get(reader, CORE_SPAN_MAX_MS, &claim->delay) &&
           get32(reader, UINT32_MAX, &claim->attachment) &&
           get_text(reader, 0, HF_OWNER_MAX, &claim->owner) &&
           (!(claim->flags & CLAIM_OF_USER) || get_text(reader, 1, CORE_USER_MAX, &claim->user));
}

static bool bind(struct reader *reader, uint32_t slot, uint32_t lease_slot)
{
    struct core *core = reader->core;
    struct claim *claim = claim_at(core, slot);

    if (!slab_is_used(&core->leases, lease_slot) || lease_at(core, lease_slot)->ended)
        return wrong(reader, "a claim has no living lease");
    if (claim_find(core, claim->lock, lease_slot) != NONE)
        return wrong(reader, "a lease has two claims on one name");
    claim_bind(core, slot, lease_slot);
    if (claim->flags & CLAIM_KEPT)
        lease_keep(core, lease_slot);
    return true;
}

/* What only some have. */
static void read_extra(struct core *core, const struct claim_bytes *bytes, uint32_t usage)
{
    struct extra *extra;

    claim_at(core, bytes->slot)->attachment = bytes->attachment;
    if (bytes->state == CORE_HOLD && bytes->delay == 0)
        return;
    extra = extra_make(core, bytes->slot);
    extra->delay_ms = bytes->delay;
    if (bytes->state == CORE_HOLD)
        return;
    extra->deadline_ms = bytes->deadline_ms;
    extra->usage = usage;
    if (bytes->state == CORE_PLACE && bytes->deadline_ms == 0)
        extra->deadline_ms = INT64_MAX;
    else
        timers_set(&core->timers, TIMER_CLAIM, bytes->slot, bytes->deadline_ms);
}

static bool read_claim(struct reader *reader, uint32_t lock, bool place)
{
    struct core *core = reader->core;
    struct claim_bytes bytes = {.slot = 0};
    struct claim *claim;
    uint32_t usage = 0;

    if (!get_claim(reader, &bytes))
        return false;
    if (bytes.flags & CLAIM_EXTRA || (bytes.flags & CLAIM_OF_USER && bytes.state != CORE_GHOST))
        return wrong(reader, "a byte is out of its range");
    if (reader->leases_only)
        return true;
    if (!slab_take_at(&core->claims, bytes.slot))
        return wrong(reader, "a claim is there twice");
    claim = claim_at(core, bytes.slot);
    claim_fill(core, bytes.slot, lock, bytes.owner);
    claim->mode = (uint8_t)bytes.mode;
    claim->flags = bytes.flags & CLAIM_TOLD;
    claim->number = bytes.number;
    claim->since_ms = (int64_t)bytes.since;
    claim->state = (uint8_t)bytes.state;
    if ((claim->state == CORE_PLACE) != place || claim->state == 0 ||
        (claim->state == CORE_GHOST) != (bytes.lease == 0))
        return wrong(reader, "a claim is in the wrong list");
    if (bytes.lease && !bind(reader, bytes.slot, bytes.lease - 1))
        return false;
    if (bytes.user.size && !quota_of_ghost(core, bytes.user, &usage))
        return wrong(reader, "there are too many users");
    read_extra(core, &bytes, usage);
    claim_enlist(core, bytes.slot);
    return true;
}

static bool read_record(struct reader *reader, uint32_t lock)
{
    struct core_text result = {NULL, 0};
    uint64_t token;
    int64_t deadline_ms;
    int kind;

    if (!get_byte(reader, SNAPSHOT_DONE, &kind))
        return false;
    if (kind == SNAPSHOT_NO_RECORD)
        return true;
    if (!get(reader, HF_TOKEN_MAX, &token) || !get_deadline(reader, &deadline_ms) ||
        (kind == SNAPSHOT_DONE && !get_text(reader, 0, CORE_RESULT_MAX, &result)))
        return false;
    if (!reader->leases_only && !SWITCHED(SWITCH_RESULT_LOST))
        record_set(reader->core, lock, result, token, deadline_ms);
    return true;
}

static bool read_lock(struct reader *reader)
{
    struct core *core = reader->core;
    struct core_text name = {0};
    uint32_t slot = 0, permits = 0, holds = 0, places = 0;
    int once = 0;

    if (!get32(reader, CORE_LOCKS_MAX - 1, &slot) || !get_text(reader, 1, HF_NAME_MAX, &name) ||
        !get_byte(reader, 1, &once) || !get32(reader, HF_PERMITS_MAX, &permits) ||
        !get32(reader, CORE_CLAIMS_MAX, &holds) || !get32(reader, CORE_QUEUE_MAX, &places))
        return false;
    if (!reader->leases_only) {
        if (!lock_make_at(core, slot, name, once))
            return wrong(reader, "a name is there twice");
        lock_at(core, slot)->permits = permits;
    }
    for (uint32_t i = 0; i < holds; i++)
        if (!read_claim(reader, slot, false))
            return false;
    for (uint32_t i = 0; i < places; i++)
        if (!read_claim(reader, slot, true))
            return false;
    return read_record(reader, slot);
}

static bool read_records(struct reader *reader)
{
    for (;;) {
        int tag;

        if (!get_byte(reader, 0xff, &tag))
            return false;
        if (tag == SNAPSHOT_END)
            return reader->at == reader->end || wrong(reader, "there is more behind its end");
        if (tag == SNAPSHOT_LEASE           ? !read_lease(reader, false)
            : tag == SNAPSHOT_LEASE_OF_USER ? !read_lease(reader, true)
            : tag == SNAPSHOT_LOCK          ? !read_lock(reader)
            : tag == SNAPSHOT_MEMBER        ? !read_member(reader)
                                            : !wrong(reader, "a record is of no known kind"))
            return false;
    }
}

/* ---- the whole -------------------------------------------------------------------------------- */

static bool sum_is_right(const unsigned char *bytes, size_t size)
{
    uint64_t sum = 0, stored;

    for (size_t at = 0; at < size; at += SNAPSHOT_BLOCK)
        sum =
            snapshot_sum(sum, bytes + at, size - at < SNAPSHOT_BLOCK ? size - at : SNAPSHOT_BLOCK);
    memcpy(&stored, bytes + size, sizeof stored);
    return le64toh(stored) == sum;
}

static bool fill(struct reader *reader)
{
    const struct core *core = reader->core;
    const unsigned char *records;

    if (!read_header(reader))
        return false;
    records = reader->at;
    reader->leases_only = true;
    if (!read_records(reader))
        return false;
    reader->at = records;
    reader->leases_only = false;
    if (!read_records(reader))
        return false;
    return (core->leases.used == reader->leases && core->locks.used == reader->locks &&
            core->claims.used == reader->claims) ||
           wrong(reader, "the number of its records is another");
}

/* The new content moves in, the old one is freed. */
static void replace(struct core *core, struct core *fresh)
{
    struct core old = *core;

    *core = *fresh;
    core->epoch = 0;
    core->members_version = old.members_version + 1;
    core->lease_index.slab = &core->leases;
    core->lock_index.slab = &core->locks;
    core->claim_index.slab = &core->claims;
    core->usage_index.slab = &core->usages;
    timers_moved(&core->timers, core);
    *fresh = old;
    fresh->lease_index.slab = &fresh->leases;
    fresh->lock_index.slab = &fresh->locks;
    fresh->claim_index.slab = &fresh->claims;
    fresh->usage_index.slab = &fresh->usages;
    timers_moved(&fresh->timers, fresh);
    core_free(fresh);
}

/* For a switch. */
static void lose_places(struct core *core)
{
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1)) {
        uint32_t place = lock_at(core, i)->first_place;
        uint32_t lease = place == NONE ? NONE : claim_at(core, place)->lease;

        if (place == NONE)
            continue;
        place_end(core, place, WHY_LEFT);
        lease_tidy(core, lease);
    }
}

int core_restore(struct core *core, const void *bytes, size_t size, struct error_text *err)
{
    struct core *fresh;
    struct reader reader = {.core = NULL};
    struct error_text why = {""};

    if (size < SNAPSHOT_MAGIC_SIZE + 1 + SNAPSHOT_SUM_SIZE ||
        memcmp(bytes, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE) != 0)
        return error_set(err, HF_EREFUSED, "this is not a snapshot that this version can read");
    size -= SNAPSHOT_SUM_SIZE;
    if (!sum_is_right(bytes, size))
        return error_set(err, HF_EREFUSED, "the snapshot is damaged: its checksum is wrong");
    fresh = core_new(core->seed);
    reader.core = fresh;
    reader.at = (const unsigned char *)bytes + SNAPSHOT_MAGIC_SIZE;
    reader.end = (const unsigned char *)bytes + size;
    if (!fill(&reader) || core_check(fresh, &why) != HF_OK) {
        core_free(fresh);
        return error_set(err, HF_EREFUSED, "the snapshot is damaged: %s",
                         reader.wrong ? reader.wrong : why.text);
    }
    INVARIANT(!core->snapshot);
    replace(core, fresh);
    if (SWITCHED(SWITCH_TOKENS_REPEAT) && core->last_token > 0)
        core->last_token--;
    if (SWITCHED(SWITCH_QUEUE_LOST))
        lose_places(core);
    return HF_OK;
}
