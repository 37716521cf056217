/* test_quotas.c: users and their limits: what only an entry, a snapshot or thousands of users show. What the commands do is in
 * scripts/quotas.txt; the random test and the explorer hold it against the model. */
#include "core/inside.h"
#include "tools.h"

#define FIRST_USER 1000u /* so that all names have as many digits */

struct heard {
    enum core_answer answer;
    uint64_t number, limit;
    char owner[CORE_USER_MAX + 1];
};

static void note(void *context, const struct core_effect *effect)
{
    struct heard *heard = context;

    if (effect->kind != EFFECT_ANSWER)
        return;
    *heard = (struct heard){effect->answer, effect->number, effect->limit, ""};
    memcpy(heard->owner, effect->owner.bytes ? effect->owner.bytes : "", effect->owner.size);
}

static struct heard acquire(struct core *core, const char *name, const char *lease,
                            const char *user, struct core_quota quota)
{
    struct core_command command = {.op = CORE_ACQUIRE,
                                   .flags = user ? CORE_QUOTA : 0,
                                   .name = text(name),
                                   .lease = text(lease),
                                   .ttl_ms = 30000,
                                   .quota = quota};
    struct heard heard = {0};
    const struct core_sink sink = {&heard, note};

    if (user)
        command.user = text(user);
    table_do(core, &command, &sink);
    table_check(core);
    return heard;
}

static void end(struct core *core, const char *lease)
{
    struct core_command command = {.op = CORE_END, .lease = text(lease), .ttl_ms = 100};

    table_do(core, &command, NULL);
    table_check(core);
}

static const struct core_quota two_holds = {.holds = 2}, many = {.holds = 1000000};

/* ---- the answer ------------------------------------------------------------------------------- */

static void a_refusal_says_who_has_what_and_changes_nothing(void **state)
{
    struct core *core = table_new(1);
    struct heard heard;
    uint64_t before;

    (void)state;
    acquire(core, "a", "A", "ci", two_holds);
    acquire(core, "b", "B", "ci", two_holds);
    before = core_hash(core);
    heard = acquire(core, "c", "C", "ci", two_holds);
    assert_int_equal(ANSWER_OVER_HOLDS, heard.answer);
    assert_true(heard.number == 2 && heard.limit == 2);
    assert_string_equal("ci", heard.owner);
    assert_true(before == core_hash(core));
    heard = acquire(core, "c", "C", "ci", (struct core_quota){.leases = 1});
    assert_int_equal(ANSWER_OVER_LEASES, heard.answer);
    assert_true(heard.number == 2 && heard.limit == 1);
    assert_true(before == core_hash(core));
    core_free(core);
}

/* ---- entries ---------------------------------------------------------------------------------- */

/* Only whoever reads version 2 of the formats can read an entry with users; the others are as before. */
static void only_entries_with_users_are_of_version_2(void **state)
{
    struct core *core = table_new(1);
    struct core_packer packer = {0};
    struct core_command command = {
        .op = CORE_ACQUIRE, .name = text("n"), .lease = text("l"), .ttl_ms = 1000};
    struct core_entry_header header;
    size_t plain;

    (void)state;
    core_pack(&packer, &command);
    plain = packer.size;
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_int_equal(1, packer.bytes[0]);
    assert_true(core_entry_header(packer.bytes, packer.size, &header) && !header.users);
    core_packer_clear(&packer);
    command.flags = CORE_QUOTA;
    command.user = text("ci");
    command.quota = two_holds;
    core_pack(&packer, &command);
    assert_int_equal(plain + 3 + 3, packer.size); /* the name, and three numbers */
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_int_equal(2, packer.bytes[0]);
    packer.bytes[0] = 1; /* nobody wrote that */
    assert_int_equal(HF_EREFUSED, core_apply(core, packer.bytes, packer.size, NULL, NULL));
    packer.bytes[0] = 2;
    assert_int_equal(HF_OK, core_apply(core, packer.bytes, packer.size, NULL, NULL));
    core_packer_clear(&packer);
    command.flags = 0;
    core_pack(&packer, &command);
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_int_equal(1, packer.bytes[0]); /* it forgets that one before had users */
    core_packer_free(&packer);
    core_free(core);
}

static void a_user_is_packed_within_the_limits(void **state)
{
    static char name[CORE_USER_MAX + 2];
    struct core_packer packer = {0};
    struct core_command command = {.op = CORE_ACQUIRE,
                                   .flags = CORE_QUOTA,
                                   .name = text("n"),
                                   .lease = text("l"),
                                   .ttl_ms = 1000};

    (void)state;
    memset(name, 'u', sizeof name);
    assert_int_equal(CORE_NOT_PACKED, core_pack(&packer, &command)); /* of nobody */
    command.user = (struct core_text){name, CORE_USER_MAX + 1};
    assert_int_equal(CORE_NOT_PACKED, core_pack(&packer, &command));
    command.user.size = CORE_USER_MAX;
    command.quota.places = CORE_CLAIMS_MAX + 1;
    assert_int_equal(CORE_NOT_PACKED, core_pack(&packer, &command));
    command.quota.places = CORE_CLAIMS_MAX;
    assert_int_equal(0, core_pack(&packer, &command));
    command = (struct core_command){.op = CORE_READ, .flags = CORE_QUOTA};
    assert_int_equal(CORE_NOT_PACKED, core_pack(&packer, &command));
    core_packer_free(&packer);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

/* An older holdfastd can read it. */
static void without_users_a_snapshot_is_as_it_always_was(void **state)
{
    struct core *with = table_new(1), *without = table_new(2);
    struct core *tables[] = {with, without};
    void *a, *b;
    size_t a_size, b_size;

    (void)state;
    for (int i = 0; i < 2; i++) {
        acquire(tables[i], "a", "A", i ? NULL : "ci", many);
        acquire(tables[i], "b", "B", i ? NULL : "ann", many);
        acquire(tables[i], "c", "C", NULL, many);
    }
    a = snapshot_whole(with, &a_size);
    b = snapshot_whole(without, &b_size);
    assert_int_equal(b_size + strlen("\2ci\3ann"), a_size);
    free(a);
    free(b);
    for (int i = 0; i < 2; i++) {
        end(tables[i], "A");
        end(tables[i], "B");
    }
    a = snapshot_whole(with, &a_size);
    b = snapshot_whole(without, &b_size);
    assert_int_equal(b_size, a_size);
    assert_memory_equal(a, b, a_size);
    free(a);
    free(b);
    core_free(with);
    core_free(without);
}

/* Holds, places, leases and a ghost, through three snapshots. */
static void a_snapshot_with_users_counts_what_is_there(void **state)
{
    struct core *core = table_new(1);
    struct core_command ghost = {.op = CORE_ACQUIRE,
                                 .flags = CORE_QUOTA,
                                 .name = text("g"),
                                 .lease = text("G"),
                                 .user = text("ann"),
                                 .ttl_ms = 100,
                                 .delay_ms = 60000};
    struct core_command place = {.op = CORE_ACQUIRE,
                                 .flags = CORE_QUOTA | CORE_WAITS,
                                 .name = text("a"),
                                 .lease = text("B"),
                                 .user = text("ci"),
                                 .ttl_ms = 30000,
                                 .wait_ms = CORE_FOREVER};
    struct core_usage usage;

    (void)state;
    acquire(core, "a", "A", "ci", many);
    table_do(core, &place, NULL);
    table_do(core, &ghost, NULL);
    table_pass(core, 100);
    for (int i = 0; i < 3; i++) {
        assert_true(core_usage(core, text("ci"), &usage));
        assert_true(usage.leases == 2 && usage.holds == 1 && usage.places == 1);
        assert_true(core_usage(core, text("ann"), &usage));
        assert_true(usage.leases == 0 && usage.holds == 1 && usage.places == 0);
        core = table_reborn(core, (unsigned char)(i + 2));
        table_check(core);
    }
    table_pass(core, 60000);
    assert_false(core_usage(core, text("ann"), &usage));
    assert_false(core_usage(core, text("ci"), &usage));
    core_free(core);
}

/* ---- many ------------------------------------------------------------------------------------- */

static void there_is_room_for_so_many_users(void **state)
{
    struct core *core = table_new(1);
    struct core_packer packer = {0};
    char user[16], again[16];
    struct core_counts counts;
    struct heard heard;

    (void)state;
    for (unsigned i = 0; i < CORE_USERS_MAX; i++) {
        struct core_command command = {
            .op = CORE_ACQUIRE, .flags = CORE_QUOTA, .ttl_ms = 30000, .quota = {1, 1, 1}};

        snprintf(user, sizeof user, "user%u", FIRST_USER + i);
        command.name = command.lease = command.user = text(user);
        core_pack(&packer, &command);
    }
    table_apply(core, &packer, 0, false, NULL);
    core_packer_free(&packer);
    table_check(core);
    core_count(core, &counts);
    assert_int_equal(CORE_USERS_MAX, counts.users);
    assert_int_equal(CORE_USERS_MAX, counts.holds);
    core = table_reborn(core, 2);
    heard = acquire(core, "one", "too many", "nobody", many);
    assert_int_equal(ANSWER_USERS_FULL, heard.answer);
    assert_int_equal(ANSWER_TOKEN, acquire(core, "one", "without limits", NULL, many).answer);
    snprintf(again, sizeof again, "user%u", FIRST_USER + 77);
    heard = acquire(core, "two", again, again, two_holds);
    assert_int_equal(ANSWER_TOKEN, heard.answer);
    heard = acquire(core, "three", again, again, two_holds);
    assert_int_equal(ANSWER_OVER_HOLDS, heard.answer);
    end(core, again);
    assert_int_equal(ANSWER_TOKEN, acquire(core, "one more", "fits", "nobody", many).answer);
    table_pass(core, 35000); /* so many end in one entry, the rest in the next */
    core_count(core, &counts);
    assert_true(counts.users == 0 && counts.leases == 0);
    core_free(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_says_who_has_what_and_changes_nothing),
        cmocka_unit_test(only_entries_with_users_are_of_version_2),
        cmocka_unit_test(a_user_is_packed_within_the_limits),
        cmocka_unit_test(without_users_a_snapshot_is_as_it_always_was),
        cmocka_unit_test(a_snapshot_with_users_counts_what_is_there),
        cmocka_unit_test(there_is_room_for_so_many_users),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
