/* test_refusals.c: what raft does not believe: of disks, of limits, of messages; and what check and canonical say. */
#include "raft/raft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FOUNDED_CHAIN 77
#define ROUNDS 2000000

static const struct raft_limits limits = {.members = 4,
                                          .window = 8,
                                          .in_flight_bytes = 100,
                                          .election_us = 500000,
                                          .heartbeat_us = 50000};
static const struct raft_members three = {
    .index = 1, .count = 3, .at = {{1, 11, true}, {2, 12, true}, {3, 13, true}}};
static struct raft_output output;

static struct raft_boot boot_of(uint64_t id)
{
    return (struct raft_boot){.id = id,
                              .incarnation = 10 + id,
                              .term = 3,
                              .snapshot = {1, 1, FOUNDED_CHAIN},
                              .members = &three,
                              .commit = 1,
                              .seed = id,
                              .now_us = 1000000};
}

static struct raft *begin(uint64_t id)
{
    struct raft_boot boot = boot_of(id);
    struct raft *raft = calloc(1, raft_size(&limits));

    assert_non_null(raft);
    raft_init(raft, &limits, &boot);
    return raft;
}

static struct raft_entry entry_after(const struct raft_id *before, uint64_t term, uint8_t type)
{
    struct raft_entry entry = {.term = term, .size = 8, .sum = 5, .type = type};

    entry.chain = raft_chain(before->chain, term, type, entry.size, entry.sum);
    return entry;
}

static void step(struct raft *raft, struct raft_event *event)
{
    event->now_us = 1100000;
    raft_step(raft, event, &output);
    assert_null(raft_check(raft));
}

/* ---- what is found on disk ------------------------------------------------------------------- */

static void a_sound_boot_is_taken(void **state)
{
    struct raft_boot boot = boot_of(1);
    struct raft_boot empty = {.id = 1};

    (void)state;
    assert_null(raft_boot_check(&limits, &boot));
    assert_null(raft_boot_check(&limits, &empty));
}

static void limits_out_of_range_are_refused(void **state)
{
    struct raft_boot boot = boot_of(1), empty = {.id = 1};
    struct raft_limits wrong[8];

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++)
        wrong[i] = limits;
    wrong[0].members = 0;
    wrong[1].members = RAFT_MEMBERS_MAX + 1;
    wrong[2].window = 0;
    wrong[3].window = RAFT_WINDOW_MAX + 1;
    wrong[4].heartbeat_us = 0;
    wrong[5].election_us = limits.heartbeat_us - 1;
    wrong[6].election_us = INT64_MAX;
    wrong[7].members = 2; /* and the snapshot has three */
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_non_null(raft_boot_check(&wrong[i], &boot));
    assert_non_null(raft_boot_check(&wrong[0], &empty));
}

static void malformed_boots_are_refused(void **state)
{
    static struct raft_members none, twice, nameless, learners, later;
    struct raft_boot wrong[12];

    (void)state;
    twice = nameless = learners = later = three;
    twice.at[2].id = 1;
    nameless.at[1].id = 0;
    learners.at[0].votes = learners.at[1].votes = learners.at[2].votes = false;
    later.index = 2;
    none = three;
    none.count = 0;
    for (size_t i = 0; i < COUNT(wrong); i++)
        wrong[i] = boot_of(1);
    wrong[0].id = 0;
    wrong[1].term = 0; /* and the snapshot is of term 1 */
    wrong[2].term = (uint64_t)RAFT_TERM_MAX + 1;
    wrong[3].commit = 0;
    wrong[4].snapshot.term = 0;
    wrong[5].snapshot.index = 0;
    wrong[6].members = NULL;
    wrong[7].members = &none;
    wrong[8].members = &twice;
    wrong[9].members = &nameless;
    wrong[10].members = &learners;
    wrong[11].members = &later;
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_non_null(raft_boot_check(&limits, &wrong[i]));
    none.count = -1;
    assert_non_null(raft_boot_check(&limits, &wrong[7]));
}

static void entries_that_cannot_follow_are_not_recovered(void **state)
{
    struct raft_id founded = {1, 1, FOUNDED_CHAIN};
    struct raft_entry right = entry_after(&founded, 2, RAFT_COMMAND), first, second;
    struct raft_boot empty = {.id = 1, .term = 3};
    struct raft_entry wrong[8];
    struct raft *raft = begin(1);

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++)
        wrong[i] = right;
    wrong[0].chain++;
    wrong[1].sum++;
    wrong[2].size++;
    wrong[3] = entry_after(&founded, 0, RAFT_COMMAND);
    wrong[4] = entry_after(&founded, 4, RAFT_COMMAND); /* the node is in term 3 */
    wrong[5] = entry_after(&founded, 2, 0);
    wrong[6] = entry_after(&founded, 2, RAFT_VERSION + 1);
    wrong[7] = entry_after(&founded, 2, RAFT_CONFIG); /* without bytes */
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(raft_recover(raft, &wrong[i]));
    assert_int_equal(1, raft_last(raft));
    assert_true(raft_recover(raft, &right));
    assert_int_equal(2, raft_last(raft));
    assert_null(raft_check(raft));
    second = entry_after(&(struct raft_id){2, 2, right.chain}, 1, RAFT_COMMAND);
    assert_false(raft_recover(raft, &second)); /* terms do not go back */
    raft_init(raft, &limits, &empty);
    first = entry_after(&(struct raft_id){0, 0, 0}, 0, RAFT_COMMAND);
    assert_false(raft_recover(raft, &first));
    free(raft);
}

static void more_entries_than_the_window_are_not_recovered(void **state)
{
    struct raft_id before = {1, 1, FOUNDED_CHAIN};
    struct raft *raft = begin(1);

    (void)state;
    for (uint32_t i = 0; i <= limits.window; i++) {
        struct raft_entry entry = entry_after(&before, 2, RAFT_COMMAND);

        assert_int_equal(i < limits.window, raft_recover(raft, &entry));
        before = (struct raft_id){before.index + 1, 2, entry.chain};
    }
    free(raft);
}

/* The commit index that was written with an entry is of one that is not there. */
static void a_commit_index_beyond_the_log_is_seen(void **state)
{
    struct raft_boot boot = boot_of(1);
    struct raft *raft = calloc(1, raft_size(&limits));

    (void)state;
    assert_non_null(raft);
    boot.commit = 2;
    raft_init(raft, &limits, &boot);
    assert_string_equal("an index is beyond the end of the log", raft_check(raft));
    free(raft);
}

/* ---- configurations -------------------------------------------------------------------------- */

static void configurations_are_read_strictly(void **state)
{
    uint8_t bytes[RAFT_CONFIG_BYTES_MAX], wrong[RAFT_CONFIG_BYTES_MAX];
    size_t size = raft_members_write(&three, bytes);
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{0, 0}, {0, RAFT_MEMBERS_MAX + 1}, {0, 4}, {1, 1}, {18, 2}, {2, 2}, {2, 0}};
    struct raft_members members;

    (void)state;
    assert_true(raft_members_read(bytes, size, &members));
    assert_int_equal(3, members.count);
    assert_int_equal(13, members.at[2].incarnation);
    assert_false(raft_members_read(NULL, size, &members));
    for (size_t less = 0; less < size; less++)
        assert_false(raft_members_read(bytes, less, &members));
    for (size_t i = 0; i < COUNT(changes); i++) {
        memcpy(wrong, bytes, size);
        wrong[changes[i].at] = changes[i].value;
        assert_false(raft_members_read(wrong, size, &members));
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct raft_event append_of(uint64_t term, const struct raft_entry *entries, uint32_t count)
{
    return (struct raft_event){.type = RAFT_ON_MESSAGE,
                               .message = {.type = RAFT_APPEND,
                                           .from = 2,
                                           .to = 1,
                                           .incarnation = 12,
                                           .term = term,
                                           .id = {1, 1, FOUNDED_CHAIN},
                                           .entries = entries,
                                           .count = count}};
}

/* A leader that sends such a thing is damaged, or we are: nobody can know. */
static void entries_that_cannot_follow_stop_the_node(void **state)
{
    struct raft_id founded = {1, 1, FOUNDED_CHAIN};
    struct raft_entry wrong[5];

    (void)state;
    wrong[0] = entry_after(&founded, 3, RAFT_COMMAND);
    wrong[0].chain++;
    wrong[1] = entry_after(&founded, 9, RAFT_COMMAND); /* the leader is in term 4 */
    wrong[2] = entry_after(&founded, 3, RAFT_CONFIG);  /* without bytes */
    wrong[3] = entry_after(&founded, 3, 200);
    wrong[4] = entry_after(&founded, 0, RAFT_COMMAND);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct raft_event event = append_of(4, &wrong[i], 1);
        struct raft *raft = begin(1);

        step(raft, &event);
        assert_non_null(output.fatal);
        assert_int_equal(INT64_MAX, raft_next_us(raft));
        free(raft);
    }
}

/* R19. Honest leaders do not get there: what precedes would differ before. */
static void another_content_of_an_entry_stops_the_node(void **state)
{
    struct raft_id founded = {1, 1, FOUNDED_CHAIN};
    struct raft_entry ours = entry_after(&founded, 3, RAFT_COMMAND), theirs = ours;
    struct raft_event event = append_of(4, &theirs, 1);
    struct raft *raft = begin(1);

    (void)state;
    assert_true(raft_recover(raft, &ours));
    theirs.sum++;
    theirs.chain = raft_chain(FOUNDED_CHAIN, 3, RAFT_COMMAND, theirs.size, theirs.sum);
    step(raft, &event);
    assert_non_null(output.fatal);
    free(raft);
}

static void entries_that_are_not_there_are_not_read(void **state)
{
    struct raft_event event = append_of(4, NULL, 3);
    struct raft *raft = begin(1);

    (void)state;
    step(raft, &event);
    assert_int_equal(3, raft_term(raft));
    assert_null(output.fatal);
    free(raft);
}

static void messages_of_nobody_or_to_others_are_ignored(void **state)
{
    struct raft_event event = append_of(4, NULL, 0);
    static const struct {
        uint64_t from, to;
    } wrong[] = {{0, 1}, {1, 1}, {2, 3}, {2, 0}};
    struct raft *raft = begin(1);

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        event.message.from = wrong[i].from;
        event.message.to = wrong[i].to;
        step(raft, &event);
        assert_int_equal(3, raft_term(raft));
        assert_int_equal(0, output.message_count);
    }
    free(raft);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static void impossible_snapshots_stop_the_node(void **state)
{
    static struct raft_members many, later;
    struct raft_event wrong[5];

    (void)state;
    many = later = three;
    many.count = 5;
    many.at[3] = (struct raft_member){4, 14, true};
    many.at[4] = (struct raft_member){5, 15, true};
    later.index = 6;
    for (size_t i = 0; i < COUNT(wrong); i++)
        wrong[i] =
            (struct raft_event){.type = RAFT_ON_INSTALLED, .id = {5, 3, 55}, .members = &three};
    wrong[0].id.term = 4; /* the node is in term 3, and was not told by whom this is */
    wrong[1].members = NULL;
    wrong[2].members = &many; /* more than the limit */
    wrong[3].members = &later;
    wrong[4].id.index = UINT64_MAX; /* nothing can follow it */
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct raft *raft = begin(1);

        step(raft, &wrong[i]);
        assert_non_null(output.fatal);
        assert_int_equal(1, raft_commit(raft));
        free(raft);
    }
}

/* Its votes were counted by places in the configuration that goes. */
static void a_snapshot_ends_a_campaign(void **state)
{
    struct raft_members two = {.index = 4, .count = 2, .at = {{2, 12, true}, {1, 11, true}}};
    struct raft_event now = {.type = RAFT_ON_TIME};
    struct raft_event installed = {.type = RAFT_ON_INSTALLED, .id = {5, 3, 55}, .members = &two};
    struct raft_event yes = {.type = RAFT_ON_MESSAGE,
                             .message = {.type = RAFT_PRE_VOTE_REPLY,
                                         .from = 2,
                                         .to = 1,
                                         .incarnation = 12,
                                         .term = 3,
                                         .asked_term = 4,
                                         .yes = true}};
    struct raft *raft = begin(1);

    (void)state;
    now.now_us = raft_next_us(raft);
    raft_step(raft, &now, &output);
    assert_int_equal(RAFT_PRE_CANDIDATE, raft_role(raft));
    step(raft, &installed);
    assert_int_equal(RAFT_FOLLOWER, raft_role(raft));
    step(raft, &yes);
    assert_int_equal(RAFT_FOLLOWER, raft_role(raft));
    free(raft);
}

/* ---- nonsense in every field ----------------------------------------------------------------- */

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* What is often near something, and sometimes anything. */
static uint64_t some_number(uint64_t *seed)
{
    static const uint64_t corners[] = {UINT64_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1, 1u << 31};

    switch (draw(seed) % 8) {
    case 0:
        return draw(seed);
    case 1:
        return corners[draw(seed) % COUNT(corners)];
    case 2:
        return FOUNDED_CHAIN;
    default:
        return draw(seed) % 12;
    }
}

/* In part such that it fits, or it would get nowhere. */
static void draw_message(const struct raft *raft, uint64_t *seed, struct raft_message *message,
                         struct raft_entry entries[3])
{
    static const uint8_t bytes[40] = {1};

    *message =
        (struct raft_message){.type = (uint8_t)(draw(seed) % 12),
                              .from = draw(seed) % 5,
                              .to = draw(seed) % 8 ? 1 : draw(seed) % 5,
                              .incarnation = 10 + draw(seed) % 5,
                              .term = some_number(seed),
                              .id = {some_number(seed), some_number(seed), some_number(seed)},
                              .first = some_number(seed),
                              .last = some_number(seed),
                              .commit = some_number(seed),
                              .round = (int64_t)some_number(seed),
                              .yes = draw(seed) % 2,
                              .asked_term = some_number(seed),
                              .index = some_number(seed),
                              .hint_index = some_number(seed),
                              .hint_term = some_number(seed),
                              .transfer = draw(seed) % 2,
                              .entries = entries,
                              .count = (uint32_t)(draw(seed) % 4)};
    for (int i = 0; i < 3; i++)
        entries[i] = (struct raft_entry){.term = some_number(seed),
                                         .chain = some_number(seed),
                                         .size = (uint32_t)(draw(seed) % sizeof bytes),
                                         .sum = (uint32_t)draw(seed),
                                         .type = (uint8_t)(draw(seed) % 6),
                                         .bytes = draw(seed) % 2 ? bytes : NULL};
    if (draw(seed) % 2)
        message->term = raft_term(raft) + draw(seed) % 2;
    if (draw(seed) % 2)
        message->asked_term = raft_term(raft) + draw(seed) % 2;
    if (draw(seed) % 2)
        message->id = (struct raft_id){1, 1, FOUNDED_CHAIN};
    if (draw(seed) % 2)
        message->incarnation = 10 + message->from;
    if (draw(seed) % 2)
        entries[0].chain = raft_chain(message->id.chain, entries[0].term, entries[0].type,
                                      entries[0].size, entries[0].sum);
}

static void any_event(struct raft *raft, uint64_t *seed)
{
    struct raft_entry entries[3];
    struct raft_event event = {.type = RAFT_ON_MESSAGE,
                               .now_us = 1000000 + (int64_t)(draw(seed) % 5000000)};
    static const uint8_t others[] = {RAFT_ON_TIME,   RAFT_ON_PROPOSE,      RAFT_ON_FLUSH,
                                     RAFT_ON_CHANGE, RAFT_ON_TRANSFER,     RAFT_ON_PEER_DOWN,
                                     RAFT_ON_GONE,   RAFT_ON_SNAPSHOT_SENT};

    if (draw(seed) % 4 == 0) {
        event.type = others[draw(seed) % COUNT(others)];
        event.change = (uint8_t)(draw(seed) % 5);
        event.member = (struct raft_member){some_number(seed), some_number(seed), draw(seed) % 2};
        event.size = (uint32_t)some_number(seed);
    } else {
        draw_message(raft, seed, &event.message, entries);
    }
    raft_step(raft, &event, &output);
}

static void nonsense_in_every_field_breaks_nothing(void **state)
{
    uint64_t seed = 0x1234567;
    struct raft *raft = NULL;
    int stopped = 0, led = 0;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        if (!raft)
            raft = begin(1);
        any_event(raft, &seed);
        led += raft_role(raft) == RAFT_LEADER;
        assert_null(raft_check(raft));
        assert_true(raft_term(raft) <= RAFT_TERM_MAX);
        if (output.fatal || draw(&seed) % 64 == 0) {
            stopped += output.fatal != NULL;
            free(raft);
            raft = NULL;
        }
    }
    free(raft);
    assert_true(stopped > 0 && led > 0); /* it goes deep enough */
}

/* ---- canonical ------------------------------------------------------------------------------- */

static size_t canonical(const struct raft *raft, int64_t now_us, uint8_t **ret_bytes)
{
    *ret_bytes = calloc(1, raft_size(&limits));
    assert_non_null(*ret_bytes);
    return raft_canonical(raft, now_us, *ret_bytes);
}

static bool same(const struct raft *a, int64_t a_us, const struct raft *b, int64_t b_us)
{
    uint8_t *left, *right;
    size_t left_size = canonical(a, a_us, &left), right_size = canonical(b, b_us, &right);
    bool equal = left_size == right_size && memcmp(left, right, left_size) == 0;

    assert_true(left_size <= raft_size(&limits));
    free(left);
    free(right);
    return equal;
}

/* Not by the time or by chance, but by all that decides. */
static void canonical_tells_states_apart(void **state)
{
    struct raft_event heard = append_of(3, NULL, 0);
    struct raft *one = begin(1), *other;
    struct raft_boot boot = boot_of(1);
    struct raft_members members = three;

    (void)state;
    boot.seed = 99;
    other = calloc(1, raft_size(&limits));
    assert_non_null(other);
    raft_init(other, &limits, &boot);
    assert_true(same(one, 1000000, other, 1000000));
    step(other, &heard);
    assert_false(same(one, 1100000, other, 1100000));
    /* Whom it has heard wears off, but not whom it follows. */
    assert_false(same(other, 1100000, other, 1100000 + limits.election_us));
    boot.vote = 2;
    raft_init(other, &limits, &boot);
    assert_false(same(one, 1000000, other, 1000000));
    boot.vote = 0;
    members.at[1].incarnation++;
    boot.members = &members;
    raft_init(other, &limits, &boot);
    assert_false(same(one, 1000000, other, 1000000));
    free(one);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_boot_is_taken),
        cmocka_unit_test(limits_out_of_range_are_refused),
        cmocka_unit_test(malformed_boots_are_refused),
        cmocka_unit_test(entries_that_cannot_follow_are_not_recovered),
        cmocka_unit_test(more_entries_than_the_window_are_not_recovered),
        cmocka_unit_test(a_commit_index_beyond_the_log_is_seen),
        cmocka_unit_test(configurations_are_read_strictly),
        cmocka_unit_test(entries_that_cannot_follow_stop_the_node),
        cmocka_unit_test(another_content_of_an_entry_stops_the_node),
        cmocka_unit_test(entries_that_are_not_there_are_not_read),
        cmocka_unit_test(messages_of_nobody_or_to_others_are_ignored),
        cmocka_unit_test(impossible_snapshots_stop_the_node),
        cmocka_unit_test(a_snapshot_ends_a_campaign),
        cmocka_unit_test(nonsense_in_every_field_breaks_nothing),
        cmocka_unit_test(canonical_tells_states_apart),
    };

    return cmocka_run_group_tests_name("raft-refusals", tests, NULL, NULL);
}
