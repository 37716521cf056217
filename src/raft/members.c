/* members.c: configurations, and how they change, one at a time. §4.1, §4.2 */
#include "base/crc32c.h"
#include "raft/inside.h"

#define MEMBER_BYTES 17

static void put_u64(uint8_t *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_u64(const uint8_t *from)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

size_t raft_members_write(const struct raft_members *members,
                          uint8_t ret_bytes[RAFT_CONFIG_BYTES_MAX])
{
    uint8_t *at = ret_bytes + 2;

    ret_bytes[0] = (uint8_t)members->count;
    ret_bytes[1] = 0;
    for (int i = 0; i < members->count; i++, at += MEMBER_BYTES) {
        put_u64(at, members->at[i].id);
        put_u64(at + 8, members->at[i].incarnation);
        at[16] = members->at[i].votes;
    }
    return (size_t)(at - ret_bytes);
}

bool members_are_sound(const struct raft_members *members, int count_max)
{
    int voters = 0;

    if (members->count < 1 || members->count > count_max)
        return false;
    for (int i = 0; i < members->count; i++) {
        voters += members->at[i].votes;
        if (members->at[i].id == 0)
            return false;
        for (int j = 0; j < i; j++)
            if (members->at[j].id == members->at[i].id)
                return false;
    }
    return voters > 0;
}

bool raft_members_read(const void *bytes, size_t size, struct raft_members *ret_members)
{
    const uint8_t *at = bytes;

    if (!bytes || size < 2 || at[1] != 0 || at[0] < 1 || at[0] > RAFT_MEMBERS_MAX ||
        size < 2 + (size_t)at[0] * MEMBER_BYTES)
        return false;
    ret_members->count = at[0];
    at += 2;
    for (int i = 0; i < ret_members->count; i++, at += MEMBER_BYTES) {
        ret_members->at[i] = (struct raft_member){
            .id = get_u64(at), .incarnation = get_u64(at + 8), .votes = at[16]};
        if (at[16] > 1)
            return false;
    }
    return members_are_sound(ret_members, RAFT_MEMBERS_MAX);
}

/* ---- the two that are kept ------------------------------------------------------------------- */

int member_find(const struct raft *raft, int which, uint64_t id)
{
    const struct raft_member *members = members_of(raft, which);

    for (uint32_t i = 0; i < config_of(raft, which)->count; i++)
        if (members[i].id == id)
            return (int)i;
    return -1;
}

bool is_voter(const struct raft *raft, int which, uint64_t id)
{
    int place = member_find(raft, which, id);

    return place >= 0 && members_of(raft, which)[place].votes;
}

bool is_voter_itself(const struct raft *raft, int which)
{
    return is_voter(raft, which, raft->id) &&
           members_of(raft, which)[member_find(raft, which, raft->id)].incarnation ==
               raft->incarnation;
}

int voter_count(const struct raft *raft, int which)
{
    int count = 0;

    for (uint32_t i = 0; i < config_of(raft, which)->count; i++)
        count += members_of(raft, which)[i].votes;
    return count;
}

int majority(const struct raft *raft)
{
    if (SWITCHED(SWITCH_QUORUM_OF_BEFORE) && config_of(raft, PREVIOUS)->count > 0)
        return voter_count(raft, PREVIOUS) / 2 + 1;
    return voter_count(raft, LATEST) / 2 + 1;
}

void config_set(struct raft *raft, int which, const struct raft_members *members)
{
    INVARIANT(members->count <= raft->limits.members);
    config_of(raft, which)->index = members->index;
    config_of(raft, which)->count = (uint32_t)members->count;
    memcpy(members_of(raft, which), members->at, (size_t)members->count * sizeof *members->at);
}

void config_push(struct raft *raft, const struct raft_members *members)
{
    struct raft_members numbered = *members;

    memcpy(config_of(raft, PREVIOUS), config_of(raft, LATEST), config_stride(raft));
    numbered.index = raft->last;
    config_set(raft, LATEST, &numbered);
}

bool config_cut(struct raft *raft, uint64_t index)
{
    if (config_of(raft, LATEST)->index < index)
        return true;
    /* R11: the one before was committed before this one was proposed. */
    if (config_of(raft, PREVIOUS)->index >= index || config_of(raft, PREVIOUS)->count == 0)
        return false;
    memcpy(config_of(raft, LATEST), config_of(raft, PREVIOUS), config_stride(raft));
    config_of(raft, PREVIOUS)->index = config_of(raft, PREVIOUS)->count = 0;
    return true;
}

static void config_get(const struct raft *raft, int which, struct raft_members *ret_members)
{
    ret_members->index = config_of(raft, which)->index;
    ret_members->count = (int)config_of(raft, which)->count;
    memcpy(ret_members->at, members_of(raft, which),
           (size_t)ret_members->count * sizeof *ret_members->at);
}

void raft_members(const struct raft *raft, struct raft_members *ret_members)
{
    config_get(raft, LATEST, ret_members);
}

void raft_members_before(const struct raft *raft, struct raft_members *ret_members)
{
    config_get(raft, PREVIOUS, ret_members);
}

/* ---- changes --------------------------------------------------------------------------------- */

static int add(struct raft *raft, struct raft_members *members, const struct raft_member *member)
{
    if (member_find(raft, LATEST, member->id) >= 0)
        return RAFT_NOT_NEEDED;
    if (members->count == raft->limits.members)
        return RAFT_TOO_MANY;
    members->at[members->count] = *member;
    members->at[members->count++].votes = false;
    return RAFT_OK;
}

static int promote(struct raft *raft, struct raft_members *members, int place, int64_t since_us)
{
    if (place < 0)
        return RAFT_NO_SUCH;
    if (members->at[place].votes)
        return RAFT_NOT_NEEDED;
    if (!majority_would_answer(raft, 0, members->at[place].id, since_us)) /* R22 */
        return RAFT_NO_MAJORITY;
    members->at[place].votes = true;
    return RAFT_OK;
}

static int remove_one(struct raft *raft, struct raft_members *members, int place, int64_t since_us)
{
    if (place < 0)
        return RAFT_NO_SUCH;
    if (members->at[place].votes && voter_count(raft, LATEST) == 1)
        return RAFT_LAST_VOTER;
    if (members->at[place].votes &&
        !majority_would_answer(raft, members->at[place].id, 0, since_us)) /* R22 */
        return RAFT_NO_MAJORITY;
    members->count--;
    memmove(&members->at[place], &members->at[place + 1],
            (size_t)(members->count - place) * sizeof *members->at);
    return RAFT_OK;
}

static int apply_change(struct raft *raft, const struct raft_event *event,
                        struct raft_members *members)
{
    int place = member_find(raft, LATEST, event->member.id);

    raft_members(raft, members);
    switch (event->change) {
    case RAFT_ADD:
        return add(raft, members, &event->member);
    case RAFT_PROMOTE:
        return promote(raft, members, place, event->since_us);
    case RAFT_REMOVE:
        return remove_one(raft, members, place, event->since_us);
    case RAFT_MOVE:
        return place < 0 ? RAFT_NO_SUCH : RAFT_OK;
    default:
        return RAFT_NO_SUCH;
    }
}

void members_change(struct raft *raft, const struct raft_event *event, struct raft_output *output)
{
    uint64_t before = window_id(raft, raft->last).chain;
    struct raft_members members;
    uint32_t size, sum;

    if (raft->role != RAFT_LEADER) {
        output->result = RAFT_NOT_LEADER;
        return;
    }
    /* R11 */
    if (raft->transferee || window_tight(raft) || config_of(raft, LATEST)->index > raft->commit ||
        (raft->first_of_term > raft->commit && !SWITCHED(SWITCH_CHANGE_BEFORE_COMMIT))) {
        output->result = RAFT_BUSY;
        return;
    }
    output->result = apply_change(raft, event, &members);
    if (output->result != RAFT_OK)
        return;
    output->made_size = raft_members_write(&members, output->made_bytes);
    size = (uint32_t)(output->made_size + event->bytes_size);
    sum = crc32c(crc32c(0, output->made_bytes, output->made_size), event->bytes, event->bytes_size);
    window_append(raft, raft->term, RAFT_CONFIG, size,
                  raft_chain(before, raft->term, RAFT_CONFIG, size, sum));
    config_push(raft, &members);
    replicate_members(raft);
    output->changed = true;
    output->index = raft->last;
    output->made = (struct raft_entry){.term = raft->term,
                                       .chain = window_id(raft, raft->last).chain,
                                       .size = size,
                                       .sum = sum,
                                       .type = RAFT_CONFIG};
}

/* What the leader had when a round began has arrived: within an election timeout, it has caught up; else another one. §4.2.1 */
void members_catch_up(struct raft *raft, struct progress *progress, struct raft_output *output)
{
    if (progress->leaving_us || is_voter(raft, LATEST, progress->id))
        return;
    if (progress->goal == 0 || progress->match < progress->goal) {
        if (progress->goal == 0) {
            progress->goal = raft->last;
            progress->goal_us = raft->now_us;
        }
        return;
    }
    progress->caught_up = raft->now_us - progress->goal_us < raft->limits.election_us;
    progress->goal = raft->last;
    progress->goal_us = raft->now_us;
    if (progress->caught_up)
        output->caught_up = progress->id;
}

void members_committed(struct raft *raft, struct raft_output *output)
{
    if (raft->role != RAFT_LEADER || config_of(raft, LATEST)->index > raft->commit ||
        is_voter(raft, LATEST, raft->id))
        return;
    /* R14: it has led for a configuration without itself, and that is done. Whoever is furthest goes on at once. */
    transfer_begin(raft, 0, output);
    output->result = RAFT_OK;
    become_follower(raft, raft->term, 0, output);
}
