/* test_core.c: entries as bytes, and the limits. What the commands do is in the scripts, and in
 * test_random.c; test_snapshots.c has snapshots, and looking at the table. */
#include "core/inside.h"
#include "tools.h"

#include <malloc.h>

/* ---- the commands that go through the codec --------------------------------------------------- */

#define SAMPLES 15

static char long_text[CORE_RESULT_MAX + 1];

static struct core_text of_size(size_t size)
{
    if (!long_text[0])
        memset(long_text, 'x', sizeof long_text);
    return (struct core_text){long_text, size};
}

/* At least one of each op, with all fields in use, and some at their limits. */
static void samples(struct core_command ret_samples[SAMPLES])
{
    static const struct core_text leases[] = {{"L1", 2}, {"another lease", 13}, {"x", 1}};
    const struct core_command all[SAMPLES] = {
        {.op = CORE_READ},
        {.op = CORE_ACQUIRE, .name = text("n"), .lease = text("l"), .ttl_ms = HF_TTL_MIN_MS},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS | CORE_KEPT,
         .name = of_size(HF_NAME_MAX),
         .lease = of_size(HF_LEASE_MAX),
         .mode = HF_PERMIT,
         .permits = HF_PERMITS_MAX,
         .ttl_ms = CORE_TTL_MAX_MS,
         .wait_ms = CORE_FOREVER,
         .delay_ms = CORE_SPAN_MAX_MS,
         .owner = of_size(HF_OWNER_MAX)},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS | CORE_ONCE | CORE_NO_HEIR,
         .name = text("key"),
         .lease = text("lease"),
         .ttl_ms = 30000,
         .wait_ms = CORE_SPAN_MAX_MS,
         .owner = text("owner")},
        {.op = CORE_ACQUIRE,
         .name = text("doc"),
         .lease = text("lease"),
         .mode = HF_SHARED,
         .ttl_ms = 30000},
        {.op = CORE_ACQUIRE,
         .flags = CORE_QUOTA,
         .name = text("quota"),
         .lease = text("of a user"),
         .ttl_ms = 30000,
         .user = of_size(CORE_USER_MAX),
         .quota = {CORE_CLAIMS_MAX, CORE_CLAIMS_MAX, CORE_CLAIMS_MAX}},
        {.op = CORE_RELEASE, .name = text("n"), .lease = text("l"), .token = HF_TOKEN_MAX},
        {.op = CORE_RENEW, .leases = leases, .lease_count = COUNT(leases), .ttl_ms = 5000},
        {.op = CORE_END, .lease = text("another lease"), .ttl_ms = 1000},
        {.op = CORE_LEAVE, .name = text("n"), .lease = text("l"), .attachment = UINT32_MAX},
        {.op = CORE_BREAK, .flags = CORE_NOW, .name = text("n")},
        {.op = CORE_FLOOR, .token = 1000},
        {.op = CORE_FINISH,
         .flags = CORE_ONCE,
         .name = text("key"),
         .lease = text("lease"),
         .token = 3,
         .keep_ms = CORE_SPAN_MAX_MS,
         .result = text("result")},
        {.op = CORE_IDENTITY,
         .flags = CORE_FORCE,
         .result = text("0123456789abcdef"),
         .token = HF_TOKEN_MAX},
        {.op = CORE_MEMBER, .token = 7, .result = text("db7:7420")},
    };

    memcpy(ret_samples, all, sizeof all);
}

static void same_text(struct core_text a, struct core_text b)
{
    assert_int_equal(a.size, b.size);
    if (a.size)
        assert_memory_equal(a.bytes, b.bytes, a.size);
}

static void same_command(const struct core_command *a, const struct core_command *b)
{
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->flags, b->flags);
    same_text(a->name, b->name);
    same_text(a->lease, b->lease);
    same_text(a->owner, b->owner);
    same_text(a->user, b->user);
    assert_memory_equal(&a->quota, &b->quota, sizeof a->quota);
    same_text(a->result, b->result);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->permits, b->permits);
    assert_int_equal(a->ttl_ms, b->ttl_ms);
    assert_true(a->wait_ms == b->wait_ms && a->delay_ms == b->delay_ms);
    assert_true(a->token == b->token && a->keep_ms == b->keep_ms);
    assert_int_equal(a->attachment, b->attachment);
    assert_int_equal(a->lease_count, b->lease_count);
    for (uint32_t i = 0; i < a->lease_count; i++)
        same_text(a->leases[i], b->leases[i]);
}

/* An entry that has these commands, in memory of exactly its size. */
static void *entry_of(const struct core_command *commands, size_t count, size_t *ret_size)
{
    struct core_packer packer = {0};
    void *bytes, *exact;

    for (size_t i = 0; i < count; i++)
        assert_int_equal(i, core_pack(&packer, &commands[i]));
    core_packer_finish(&packer, 0, false, 0, 0);
    bytes = core_packer_take(&packer, ret_size);
    exact = malloc(*ret_size);
    assert_non_null(exact);
    memcpy(exact, bytes, *ret_size);
    free(bytes);
    return exact;
}

static bool accepts(struct core *core, const void *bytes, size_t size)
{
    struct error_text err = {""};
    uint64_t before = core_hash(core);
    int result = core_apply(core, bytes, size, NULL, &err);

    if (result != HF_OK) {
        assert_int_equal(HF_EREFUSED, result);
        assert_true(err.text[0] != '\0');
        assert_true(before == core_hash(core)); /* not even time has passed */
    }
    table_check(core);
    return result == HF_OK;
}

static bool accepts_command(struct core *core, const struct core_command *command)
{
    struct core_packer packer = {0};
    size_t size, before = core_packed_size(&packer);
    bool packed = core_pack(&packer, command) != CORE_NOT_PACKED, accepted = false;
    void *bytes;

    if (packed) {
        bytes = entry_of(command, 1, &size);
        accepted = accepts(core, bytes, size);
        assert_true(accepted); /* what is packed is applied, or no node could go on */
        free(bytes);
    } else {
        assert_int_equal(before, core_packed_size(&packer));
    }
    core_packer_free(&packer);
    return accepted;
}

/* ---- entries ---------------------------------------------------------------------------------- */

static void every_command_comes_out_as_it_went_in(void **state)
{
    struct core_command all[SAMPLES], command;
    struct core_entry_header header;
    struct core *core = table_new(1);
    struct unpacker unpacker;
    size_t size;
    void *bytes;

    (void)state;
    samples(all);
    bytes = entry_of(all, SAMPLES, &size);
    assert_int_equal(HF_OK, core_unpack_begin(&unpacker, core, bytes, size, &header, NULL));
    assert_int_equal(SAMPLES, header.count);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_true(core_unpack(&unpacker, &command));
        same_command(&all[i], &command);
    }
    free(bytes);
    core_free(core);
}

static void the_header_comes_out_as_it_went_in(void **state)
{
    struct core_packer packer = {0};
    struct core_entry_header header;
    const struct core_command read = {.op = CORE_READ};
    size_t size;
    void *bytes;

    (void)state;
    assert_int_equal(24, core_packed_size(&packer));
    for (uint32_t count = 0; count < 9; count++) {
        for (uint32_t i = 0; i < count; i++)
            core_pack(&packer, &read);
        size = core_packed_size(&packer);
        core_packer_finish(&packer, count == 8 ? CORE_ELAPSED_MAX_MS : count, count % 2,
                           UINT64_MAX - count, UINT64_C(1) << 40 | count);
        assert_int_equal(size, packer.size);
        assert_int_equal(0, size % 8);
        assert_true(core_entry_header(packer.bytes, packer.size, &header));
        assert_int_equal(count == 8 ? CORE_ELAPSED_MAX_MS : count, header.elapsed_ms);
        assert_int_equal(count, header.count);
        assert_int_equal(count % 2, header.new_term);
        assert_true(header.origin == UINT64_MAX - count);
        assert_true(header.sequence == (UINT64_C(1) << 40 | count));
        core_packer_clear(&packer);
    }
    core_pack(&packer, &read);
    core_packer_finish(&packer, 0, false, 0, 0);
    bytes = core_packer_take(&packer, &size);
    assert_int_equal(32, size);
    assert_true(packer.bytes == NULL && packer.size == 0 && packer.count == 0);
    free(bytes);
}

/* The leader keeps the end of its log in memory, and counts the sizes of its entries: most are small. */
static void an_entry_takes_no_more_memory_than_it_has_bytes(void **state)
{
    const struct core_command command = {
        .op = CORE_ACQUIRE, .name = text("name"), .lease = text("lease"), .ttl_ms = 30000};
    struct core_packer packer = {0};
    size_t size;
    void *bytes;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(core_pack(&packer, &command), 0);
        core_packer_finish(&packer, 0, false, 1, 1);
        bytes = core_packer_take(&packer, &size);
        assert_true(malloc_usable_size(bytes) < size + 64);
        free(bytes);
    }
    core_packer_free(&packer);
}

/* A table in which the samples meet something. */
static struct core *busy_table(void)
{
    struct core *core = table_new(1);
    struct core_command all[SAMPLES];

    samples(all);
    table_hold(core, "n", "holder", 30000);
    table_hold(core, "doc", "lease", 30000);
    table_do(core, &all[2], NULL);
    table_do(core, &all[3], NULL);
    return core;
}

static void a_truncated_entry_is_refused(void **state)
{
    struct core *core = busy_table();
    struct core_command all[SAMPLES];

    (void)state;
    samples(all);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t size;
        unsigned char *bytes = entry_of(&all[i], 1, &size);

        for (size_t cut = 0; cut < size; cut += SLOW ? 1 + cut / 8 : 1) {
            unsigned char *short_of = malloc(cut + 1);

            assert_non_null(short_of);
            memcpy(short_of, bytes, cut);
            assert_false(accepts(core, short_of, cut));
            free(short_of);
        }
        free(bytes);
    }
    core_free(core);
}

/* Whatever a text is said to be, it lies within the entry. */
static void within(struct core_text words, size_t max, const unsigned char *bytes, size_t size)
{
    const char *begin = (const char *)bytes;

    assert_true(words.size <= max);
    if (words.size)
        assert_true(words.bytes >= begin && words.bytes + words.size <= begin + size);
}

static void decodes_within_the_limits(struct core *core, const unsigned char *bytes, size_t size)
{
    struct core_entry_header header;
    struct core_command command;
    struct unpacker unpacker;

    if (core_unpack_begin(&unpacker, core, bytes, size, &header, NULL) != HF_OK)
        return;
    assert_true(header.elapsed_ms <= CORE_ELAPSED_MAX_MS);
    for (uint32_t i = 0; i < header.count; i++) {
        assert_true(core_unpack(&unpacker, &command));
        within(command.name, HF_NAME_MAX, bytes, size);
        within(command.lease, HF_LEASE_MAX, bytes, size);
        within(command.owner, HF_OWNER_MAX, bytes, size);
        within(command.user, CORE_USER_MAX, bytes, size);
        assert_true(command.quota.leases <= CORE_CLAIMS_MAX);
        assert_true(command.quota.holds <= CORE_CLAIMS_MAX);
        assert_true(command.quota.places <= CORE_CLAIMS_MAX);
        within(command.result, CORE_RESULT_MAX, bytes, size);
        assert_true(command.permits <= HF_PERMITS_MAX && command.mode <= HF_PERMIT);
        assert_true(command.ttl_ms <= CORE_TTL_MAX_MS && command.token <= HF_TOKEN_MAX);
        assert_true(command.delay_ms <= CORE_SPAN_MAX_MS);
        assert_true(command.keep_ms <= CORE_SPAN_MAX_MS);
        assert_true(command.lease_count <= CORE_RENEW_MAX);
        for (uint32_t k = 0; k < command.lease_count; k++)
            within(command.leases[k], HF_LEASE_MAX, bytes, size);
    }
}

static void a_flipped_byte_does_no_harm(void **state)
{
    struct core_command all[SAMPLES];
    unsigned taken = 0, refused = 0;

    (void)state;
    samples(all);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t size;
        unsigned char *bytes = entry_of(&all[i], 1, &size);

        for (size_t at = 0; at < size; at++) {
            struct core *core = busy_table();
            unsigned char right = bytes[at];
            /* All values where they mean something; within the long texts, some. */
            int step = SLOW ? 97 : size < 200 || at < 64 ? 1 : 51;

            for (int flip = 1; flip < 256; flip += step) {
                bytes[at] = (unsigned char)(right ^ flip);
                decodes_within_the_limits(core, bytes, size);
                accepts(core, bytes, size) ? taken++ : refused++;
            }
            bytes[at] = right;
            core_free(core);
        }
        free(bytes);
    }
    assert_true(taken > (SLOW ? 100 : 1000) && refused > (SLOW ? 100 : 1000));
}

static void what_is_not_an_entry_is_refused(void **state)
{
    struct core *core = busy_table();
    const struct core_command read = {.op = CORE_READ};
    size_t size;
    unsigned char *bytes = entry_of(&read, 1, &size);

    (void)state;
    assert_int_equal(32, size);
    bytes[0] = 3; /* a later version */
    assert_false(accepts(core, bytes, size));
    bytes[0] = 2; /* with users, of which there is none */
    assert_true(accepts(core, bytes, size));
    bytes[0] = 1;
    bytes[1] = 2; /* a flag that there is not */
    assert_false(accepts(core, bytes, size));
    bytes[1] = 0;
    bytes[2] = 0xe9; /* 1001 ms */
    bytes[3] = 0x03;
    assert_false(accepts(core, bytes, size));
    bytes[2] = bytes[3] = 0;
    bytes[4] = 2; /* one command more than there is: the padding is none */
    assert_false(accepts(core, bytes, size));
    bytes[4] = 0; /* one less */
    assert_false(accepts(core, bytes, size));
    bytes[4] = 1;
    bytes[31] = 1; /* the padding is not empty */
    assert_false(accepts(core, bytes, size));
    bytes[31] = 0;
    assert_false(accepts(core, bytes, 31));
    assert_true(accepts(core, bytes, size));
    free(bytes);
    bytes = calloc(1, 40);
    assert_non_null(bytes);
    bytes[0] = 1;
    assert_true(accepts(core, bytes, 24));  /* an empty one */
    assert_false(accepts(core, bytes, 32)); /* with eight bytes more than it has */
    free(bytes);
    core_free(core);
}

/* ---- limits ----------------------------------------------------------------------------------- */

#define LIMIT(core, command, field, least, most)       \
    do {                                               \
        struct core_command c = (command);             \
        c.field = (least);                             \
        assert_true(accepts_command((core), &c));      \
        c.field = (most);                              \
        assert_true(accepts_command((core), &c));      \
        c.field = (most) + 1;                          \
        assert_false(accepts_command((core), &c));     \
        if ((least) > 0) {                             \
            c.field = (least)-1;                       \
            assert_false(accepts_command((core), &c)); \
        }                                              \
    } while (0)

static void every_field_has_its_limits(void **state)
{
    struct core_command acquire = {.op = CORE_ACQUIRE,
                                   .name = of_size(3),
                                   .lease = of_size(3),
                                   .owner = of_size(3),
                                   .ttl_ms = 1000};
    struct core_command release = {.op = CORE_RELEASE, .name = of_size(3), .lease = of_size(3)};
    struct core_command finish = {.op = CORE_FINISH,
                                  .flags = CORE_ONCE,
                                  .name = of_size(3),
                                  .lease = of_size(3),
                                  .result = of_size(3)};
    struct core_command end = {.op = CORE_END, .lease = of_size(3), .ttl_ms = 1000};
    struct core_command floor_ = {.op = CORE_FLOOR};
    struct core_command break_ = {.op = CORE_BREAK, .name = of_size(3)};
    struct core_command leave = {.op = CORE_LEAVE, .name = of_size(3), .lease = of_size(3)};
    struct core *core = table_new(1);

    (void)state;
    LIMIT(core, acquire, flags, 0u, 2u * CORE_FORCE - 1); /* no flag that there is not */
    LIMIT(core, acquire, name.size, 1u, HF_NAME_MAX);
    LIMIT(core, acquire, lease.size, 1u, HF_LEASE_MAX);
    LIMIT(core, acquire, owner.size, 0u, HF_OWNER_MAX);
    LIMIT(core, acquire, ttl_ms, (uint32_t)HF_TTL_MIN_MS, (uint32_t)CORE_TTL_MAX_MS);
    LIMIT(core, acquire, delay_ms, 0u, (uint64_t)CORE_SPAN_MAX_MS);
    LIMIT(core, acquire, mode, HF_EXCLUSIVE + 0, HF_SHARED + 0); /* permits 0 are none */
    acquire.mode = HF_PERMIT;
    LIMIT(core, acquire, permits, 1u, (uint32_t)HF_PERMITS_MAX);
    acquire.mode = HF_SHARED;
    acquire.flags = CORE_WAITS;
    LIMIT(core, acquire, permits, 0u, 0u);
    LIMIT(core, acquire, wait_ms, 0u, (uint64_t)CORE_SPAN_MAX_MS);
    LIMIT(core, release, name.size, 1u, HF_NAME_MAX);
    LIMIT(core, release, lease.size, 1u, HF_LEASE_MAX);
    LIMIT(core, release, token, 0u, HF_TOKEN_MAX);
    LIMIT(core, finish, name.size, 1u, HF_NAME_MAX);
    LIMIT(core, finish, lease.size, 1u, HF_LEASE_MAX);
    LIMIT(core, finish, token, 0u, HF_TOKEN_MAX);
    LIMIT(core, finish, keep_ms, 0u, (uint64_t)CORE_SPAN_MAX_MS);
    LIMIT(core, finish, result.size, 0u, CORE_RESULT_MAX);
    LIMIT(core, end, lease.size, 1u, HF_LEASE_MAX);
    LIMIT(core, end, ttl_ms, (uint32_t)HF_TTL_MIN_MS, (uint32_t)CORE_TTL_MAX_MS);
    LIMIT(core, leave, name.size, 1u, HF_NAME_MAX);
    LIMIT(core, leave, lease.size, 1u, HF_LEASE_MAX);
    LIMIT(core, break_, name.size, 1u, HF_NAME_MAX);
    LIMIT(core, floor_, token, 0u, HF_TOKEN_MAX);
    core_free(core);
}

static void a_renewal_has_at_most_so_many_leases(void **state)
{
    static struct core_text leases[CORE_RENEW_MAX + 1];
    struct core_command renew = {.op = CORE_RENEW, .leases = leases};
    struct core *core = table_new(1);

    (void)state;
    for (size_t i = 0; i < COUNT(leases); i++)
        leases[i] = of_size(1 + i % HF_LEASE_MAX);
    LIMIT(core, renew, lease_count, 1u, CORE_RENEW_MAX);
    renew.lease_count = 2;
    LIMIT(core, renew, ttl_ms, (uint32_t)HF_TTL_MIN_MS, (uint32_t)CORE_TTL_MAX_MS);
    LIMIT(core, renew, ttl_ms, 0u, 0u);
    leases[1] = of_size(0);
    assert_false(accepts_command(core, &renew));
    core_free(core);
}

static void an_entry_has_at_most_so_many_bytes(void **state)
{
    struct core *core = table_new(1);
    struct core_packer packer = {0};
    struct core_command finish = {.op = CORE_FINISH,
                                  .flags = CORE_ONCE,
                                  .name = of_size(3),
                                  .lease = of_size(3),
                                  .result = of_size(CORE_RESULT_MAX)};

    (void)state;
    while (core_packed_size(&packer) + CORE_RESULT_MAX + 100 < CORE_ENTRY_MAX)
        core_pack(&packer, &finish);
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_true(accepts(core, packer.bytes, packer.size));
    core_packer_clear(&packer);
    while (core_packed_size(&packer) <= CORE_ENTRY_MAX)
        core_pack(&packer, &finish);
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_false(accepts(core, packer.bytes, packer.size));
    core_packer_free(&packer);
    core_free(core);
}

/* ---- a full table ----------------------------------------------------------------------------- */

static void note_answer(void *context, const struct core_effect *effect)
{
    if (effect->kind == EFFECT_ANSWER)
        *(enum core_answer *)context = effect->answer;
}

static enum core_answer answer_to(struct core *core, const char *name, const char *lease)
{
    struct core_command command = {.op = CORE_ACQUIRE,
                                   .flags = CORE_WAITS,
                                   .name = text(name),
                                   .lease = text(lease),
                                   .ttl_ms = 1000,
                                   .wait_ms = CORE_FOREVER};
    enum core_answer answer = 0;
    const struct core_sink sink = {&answer, note_answer};

    table_do(core, &command, &sink);
    return answer;
}

/* Millions of records would take long; the table is made to believe in them. */
static void a_full_table_says_what_it_is_full_of(void **state)
{
    struct core *core = table_new(1);
    struct core_command end = {.op = CORE_END, .lease = text("new"), .ttl_ms = 1000};
    enum core_answer answer = 0;
    const struct core_sink sink = {&answer, note_answer};
    uint32_t used;

    (void)state;
    table_hold(core, "held", "holder", 1000);
    used = core->leases.used;
    core->leases.used = CORE_LEASES_MAX;
    assert_int_equal(ANSWER_LEASES_FULL, answer_to(core, "name", "new"));
    assert_int_equal(ANSWER_TOKEN, answer_to(core, "name", "holder"));
    table_do(core, &end, &sink);
    assert_int_equal(ANSWER_LEASES_FULL, answer);
    core->leases.used = used;

    used = core->locks.used;
    core->locks.used = CORE_LOCKS_MAX;
    assert_int_equal(ANSWER_LOCKS_FULL, answer_to(core, "another", "holder"));
    assert_int_equal(ANSWER_QUEUED, answer_to(core, "held", "waiter"));
    core->locks.used = used;

    used = core->claims.used;
    core->claims.used = CORE_CLAIMS_MAX;
    assert_int_equal(ANSWER_CLAIMS_FULL, answer_to(core, "another", "holder"));
    assert_int_equal(ANSWER_CLAIMS_FULL, answer_to(core, "held", "second"));
    assert_int_equal(ANSWER_TOKEN, answer_to(core, "held", "holder")); /* what it has already */
    core->claims.used = used;

    lock_at(core, 0)->places = CORE_QUEUE_MAX;
    assert_int_equal(ANSWER_QUEUE_FULL, answer_to(core, "held", "second"));
    lock_at(core, 0)->places = 1;
    assert_int_equal(ANSWER_QUEUED, answer_to(core, "held", "second"));
    table_check(core);
    core_free(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_comes_out_as_it_went_in),
        cmocka_unit_test(the_header_comes_out_as_it_went_in),
        cmocka_unit_test(an_entry_takes_no_more_memory_than_it_has_bytes),
        cmocka_unit_test(a_truncated_entry_is_refused),
        cmocka_unit_test(a_flipped_byte_does_no_harm),
        cmocka_unit_test(what_is_not_an_entry_is_refused),
        cmocka_unit_test(every_field_has_its_limits),
        cmocka_unit_test(a_renewal_has_at_most_so_many_leases),
        cmocka_unit_test(an_entry_has_at_most_so_many_bytes),
        cmocka_unit_test(a_full_table_says_what_it_is_full_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
