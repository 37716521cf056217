/* test_parts.c: the parts of the PostgreSQL engine that need no server: names in texts, sightings, what comes in answers. */
#include "base/clock.h"
#include "base/pgnames.h"
#include "engines/postgres/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- names ----------------------------------------------------------------------------------- */

static void expect_filled(const char *table, const char *schema, const char *text,
                          const char *expected)
{
    struct pgnames names;
    struct error_text err;
    char *filled;

    assert_int_equal(HF_OK, pgnames_read(table, &names, &err));
    if (schema)
        snprintf(names.schema, sizeof names.schema, "%s", schema);
    filled = pgnames_fill(&names, text);
    assert_non_null(filled);
    assert_string_equal(expected, filled);
    free(filled);
}

static void names_are_put_into_a_text(void **state)
{
    (void)state;
    expect_filled("s.locks", NULL, "a @@ b @_claims@",
                  "a \"s\".\"locks\" b \"s\".\"locks_claims\"");
    expect_filled("locks", NULL, "@@", "\"locks\"");
    expect_filled(
        "holdfast_locks", "my-app", "@^_enter_held@ @!^_enter_held@ @!_x@",
        "\"my-app\".\"holdfast_enter_held\" \"holdfast_enter_held\" \"holdfast_locks_x\"");
    expect_filled("mine", "s", "@^_enter_held@", "\"s\".\"mine_enter_held\"");
    expect_filled("_locks", "s", "@^_f@", "\"s\".\"_locks_f\"");
    expect_filled("t", "s", "@''@ @'_once'@ @'%f(text)'@",
                  "'\"s\".\"t\"' '\"s\".\"t_once\"' '\"s\".f(text)'");
    expect_filled("t", "s", "none", "none");
}

static void what_is_no_table_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",      ".",
        "a.",    ".a",
        "a.b.c", "1a",
        "a-b",   "a b",
        "a;b",   "a\"b",
        "a'b",   "a.1b",
        "ä",     "a123456789b123456789c123456789d123456789e12345678"};
    struct pgnames names;
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (pgnames_read(wrong[i], &names, &err) != HF_EINVAL)
            fail_msg("'%s' was taken for a table", wrong[i]);
    assert_int_equal(
        HF_OK, pgnames_read("a123456789b123456789c123456789d123456789e1234567", &names, &err));
    assert_int_equal(HF_OK, pgnames_read("S_1.T_2", &names, &err));
    assert_string_equal("S_1", names.schema);
    assert_string_equal("T_2", names.table);
}

/* ---- sightings ------------------------------------------------------------------------------- */

static struct engine_store *new_store(void)
{
    struct engine_store *store = calloc(1, sizeof *store);

    assert_non_null(store);
    pthread_mutex_init(&store->mutex, NULL);
    store->sightings = sightings_new();
    assert_non_null(store->sightings);
    return store;
}

static void free_store(struct engine_store *store)
{
    sightings_free(store->sightings);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

static struct sighting see(struct engine_store *store, uint32_t era, int64_t now_ms, int64_t id,
                           int64_t beat, int64_t at_ms)
{
    const int64_t shown[SIGHTING_NUMBERS] = {id, beat, 1000, at_ms};
    struct sighting sighting;

    sightings_note(store, era, now_ms, shown, &sighting);
    return sighting;
}

static void a_beat_counts_from_its_first_sight(void **state)
{
    struct engine_store *store = new_store();

    (void)state;
    assert_int_equal(5000, see(store, 0, 5000, 7, 1, -1).since_ms);
    assert_int_equal(5000, see(store, 0, 5500, 7, 1, -1).since_ms);
    assert_int_equal(6000, see(store, 0, 6000, 7, 2, -1).since_ms); /* it was renewed */
    assert_int_equal(6100, see(store, 0, 6100, 8, 2, -1).since_ms); /* that is another claim */
    free_store(store);
}

static void what_another_process_noted_counts_if_it_is_earlier(void **state)
{
    struct engine_store *store = new_store();
    struct sighting sighting;

    (void)state;
    sighting = see(store, 0, 5000, 7, 1, 3000);
    assert_int_equal(3000, sighting.since_ms);
    assert_true(sighting.noted);
    assert_int_equal(3000, see(store, 0, 5100, 7, 1, -1).since_ms); /* and is remembered */
    assert_int_equal(5200, see(store, 0, 5200, 9, 1, 9999).since_ms);
    /* In a time namespace, whose clock reads 100 s more than the kernel's. */
    store->bootclock.offset_ns = INT64_C(100000000000);
    assert_int_equal(104000, see(store, 0, 105000, 11, 1, 4000).since_ms);
    assert_int_equal(5000, store_kernel_ms(store, 105000));
    free_store(store);
}

static void what_another_server_showed_does_not_count(void **state)
{
    struct engine_store *store = new_store();

    (void)state;
    see(store, 0, 5000, 7, 1, -1);
    sightings_clear(store->sightings, 1);
    assert_int_equal(9000, see(store, 1, 9000, 7, 1, -1).since_ms);
    /* An answer of the one before that arrives only now is not remembered. */
    assert_int_equal(8000, see(store, 0, 8000, 8, 1, -1).since_ms);
    assert_int_equal(9500, see(store, 1, 9500, 8, 1, -1).since_ms);
    free_store(store);
}

static void the_dead_are_those_whose_span_is_over(void **state)
{
    struct engine_store *store = new_store();
    struct text ids = {0}, beats = {0}, times = {0};
    struct sighting *list = NULL;
    int64_t next_ms = 0;
    int count = sightings_read(store, 0, 10000, "1 4 500 -1 2 -5 1000 9000 3 6 2000 -1", &list);

    (void)state;
    assert_int_equal(3, count);
    assert_int_equal(1, sightings_dead(list, count, 10000, &ids, &beats, &next_ms));
    assert_string_equal("{2}", ids.bytes);
    assert_string_equal("{-5}", beats.bytes);
    assert_int_equal(10500, next_ms);
    text_drop(&ids);
    text_drop(&beats);
    assert_int_equal(2, sightings_dead(list, count, 10500, &ids, &beats, &next_ms));
    assert_string_equal("{1,2}", ids.bytes);
    assert_string_equal("{4,-5}", beats.bytes);
    assert_int_equal(12000, next_ms);
    text_drop(&ids);
    text_drop(&beats);
    assert_int_equal(0, sightings_dead(list, count, 9999, &ids, &beats, &next_ms));
    text_drop(&ids);
    text_drop(&beats);
    assert_int_equal(2, sightings_unnoted(store, list, count, &ids, &beats, &times));
    assert_string_equal("{1,3}", ids.bytes);
    assert_string_equal("{10000,10000}", times.bytes);
    text_drop(&ids);
    text_drop(&beats);
    text_drop(&times);
    free(list);
    free_store(store);
}

/* Until it shows another beat, or another one is dead. */
static void what_was_handed_in_is_not_dead_anew(void **state)
{
    struct engine_store *store = new_store();
    struct sighting *first = NULL, *second = NULL, *third = NULL;
    int count = sightings_read(store, 0, 10000, "1 4 500 -1 2 5 1000 -1", &first);

    (void)state;
    assert_int_equal(2, count);
    assert_false(sightings_dead_anew(first, count, 10499));
    assert_true(sightings_dead_anew(first, count, 10500));
    sightings_hand_in(first, count, 10500);
    assert_false(sightings_dead_anew(first, count, 10500));
    assert_int_equal(
        2, sightings_again(store, 0, 10501, "1 4 500 -1 2 5 1000 -1", first, count, &second));
    assert_false(sightings_dead_anew(second, 2, 10999));
    assert_true(sightings_dead_anew(second, 2, 11000));
    sightings_hand_in(second, 2, 11000);
    assert_int_equal(2,
                     sightings_again(store, 0, 11001, "1 5 500 -1 2 5 1000 -1", second, 2, &third));
    assert_false(sightings_dead_anew(third, 2, 11500));
    assert_true(sightings_dead_anew(third, 2, 11501));
    free(first);
    free(second);
    free(third);
    free_store(store);
}

static void a_list_that_is_malformed_is_refused(void **state)
{
    static const char *const wrong[] = {
        "1", "1 2 3", "1 2 3 x", "1 2 3 4 5", "a 2 3 4", "1,2,3,4", "99999999999999999999 1 1 1"};
    struct engine_store *store = new_store();
    struct sighting *list = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(-1, sightings_read(store, 0, 1, wrong[i], &list));
    assert_int_equal(0, sightings_read(store, 0, 1, "", &list));
    assert_null(list);
    free_store(store);
}

/* ---- answers --------------------------------------------------------------------------------- */

static PGresult *answer_of(const char *text)
{
    PGresAttDesc column = {
        .name = (char *)(uintptr_t) "c", .typid = 25, .typlen = -1, .atttypmod = -1};
    PGresult *answer = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

    assert_non_null(answer);
    assert_int_equal(1, PQsetResultAttrs(answer, 1, &column));
    assert_int_equal(
        1, PQsetvalue(answer, 0, 0, (char *)(uintptr_t)text, text ? (int)strlen(text) : -1));
    return answer;
}

static void numbers_and_bytes_are_read_strictly(void **state)
{
    static const char *const no_numbers[] = {"", "x", "1x", " ", NULL};
    static const char *const no_bytes[] = {"a", "0g", "0G", "AB", "\\x00"};
    size_t size = 9;
    int64_t number = 5;
    PGresult *answer;
    char *bytes;

    (void)state;
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        answer = answer_of(no_numbers[i]);
        assert_false(answer_number(answer, 0, 0, &number));
        PQclear(answer);
    }
    for (size_t i = 0; i < sizeof no_bytes / sizeof *no_bytes; i++) {
        answer = answer_of(no_bytes[i]);
        assert_null(answer_hex(answer, 0, 0, 100, &size));
        PQclear(answer);
    }
    answer = answer_of("-12");
    assert_true(answer_number(answer, 0, 0, &number));
    assert_int_equal(-12, number);
    assert_false(answer_number(answer, 1, 0, &number));
    assert_false(answer_number(answer, 0, 1, &number));
    PQclear(answer);
    answer = answer_of("00ff41");
    assert_null(answer_hex(answer, 0, 0, 2, &size)); /* longer than it may be */
    bytes = answer_hex(answer, 0, 0, 3, &size);
    assert_int_equal(3, size);
    assert_memory_equal("\0\xff"
                        "A",
                        bytes, 4);
    free(bytes);
    PQclear(answer);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void a_question_is_one_text_where_the_level_must_be_said(void **state)
{
    struct question question = {
        .text = "SELECT f($1, $2, $10, $3) FROM \"a$1\" WHERE b = '$2' AND $4::text[] <> '{}'"};
    char *text;

    (void)state;
    question_add_expected(&question);
    question_add_number(&question, -5);
    question_add_bytes(&question, "it's\0\\", 6);
    question_add_text(&question, "{\"\\\\x27\",'}");
    text = question_isolated(&question);
    assert_non_null(text);
    assert_string_equal("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT f(E'', E'-5', "
                        "$10, E'\\\\x69742773005c') FROM \"a$1\" WHERE b = '$2' AND "
                        "E'{\"\\\\\\\\x27\",''}'::text[] <> '{}'",
                        text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_put_into_a_text),
        cmocka_unit_test(what_is_no_table_is_refused),
        cmocka_unit_test(a_beat_counts_from_its_first_sight),
        cmocka_unit_test(what_another_process_noted_counts_if_it_is_earlier),
        cmocka_unit_test(what_another_server_showed_does_not_count),
        cmocka_unit_test(the_dead_are_those_whose_span_is_over),
        cmocka_unit_test(what_was_handed_in_is_not_dead_anew),
        cmocka_unit_test(a_list_that_is_malformed_is_refused),
        cmocka_unit_test(numbers_and_bytes_are_read_strictly),
        cmocka_unit_test(a_question_is_one_text_where_the_level_must_be_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
