/* What metrics are counted in: histograms, beginnings of names, the names taken most often, and the text in which Prometheus reads them. */
#include "base/histogram.h"
#include "base/textbuf.h"
#include "server/exposition.h"
#include "server/hot.h"
#include "server/json_text.h"
#include "server/prefixes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 10000

static const unsigned char seed[16] = "0123456789abcde";

static struct core_text text_of(const char *words)
{
    return (struct core_text){words, strlen(words)};
}

static void assert_text(struct textbuf *text, const char *expected)
{
    assert_false(text->failed);
    assert_int_equal(text->size, strlen(expected));
    assert_memory_equal(text->bytes, expected, text->size);
    textbuf_free(text);
}

/* ---- histograms ---------------------------------------------------------------------------------- */

static void test_a_bound_belongs_to_its_bucket(void **state)
{
    struct histogram histogram = {{0}};

    (void)state;
    for (unsigned i = 0; i < HISTOGRAM_BOUNDS; i++) {
        assert_true(i == 0 || histogram_bounds_us[i] > histogram_bounds_us[i - 1]);
        histogram_add(&histogram, histogram_bounds_us[i]);
        assert_int_equal(histogram.buckets[i], i == 0 ? 1 : 2);
        histogram_add(&histogram, (int64_t)histogram_bounds_us[i] + 1);
        assert_int_equal(histogram.buckets[i + 1], 1);
    }
    assert_int_equal(histogram_count(&histogram), 2 * HISTOGRAM_BOUNDS);
}

static void test_a_time_below_nothing_is_none(void **state)
{
    struct histogram histogram = {{0}};

    (void)state;
    histogram_add(&histogram, -5);
    histogram_add(&histogram, INT64_MIN);
    histogram_add(&histogram, 7);
    assert_int_equal(histogram.buckets[0], 3);
    assert_int_equal(histogram.sum_us, 7);
}

/* ---- beginnings of names -------------------------------------------------------------------------- */

static const char *counted_as(struct prefixes *prefixes, const char *name)
{
    static char text[PREFIX_BYTES_MAX + 1];
    const struct prefix *prefix = prefixes_of(prefixes, text_of(name));

    snprintf(text, sizeof text, "%.*s", (int)prefix->size, prefix->bytes);
    return text;
}

static void test_names_are_counted_by_their_beginning(void **state)
{
    struct prefixes prefixes;
    struct prefix *orders;

    (void)state;
    prefixes_open(&prefixes, seed);
    assert_string_equal(counted_as(&prefixes, "orders:1"), "orders:");
    orders = prefixes_of(&prefixes, text_of("orders:2:x"));
    assert_ptr_equal(orders, prefixes_of(&prefixes, text_of("orders:")));
    assert_ptr_not_equal(orders, prefixes_of(&prefixes, text_of("orders/2")));
    assert_string_equal(counted_as(&prefixes, "a/b:c"), "a/");
    assert_string_equal(counted_as(&prefixes, "nightly"), PREFIX_NONE);
    /* No name is counted as one of the two that are not prefixes. */
    assert_string_equal(counted_as(&prefixes, "none:x"), "none:");
    assert_string_equal(counted_as(&prefixes, "other/x"), "other/");
    assert_string_equal(counted_as(&prefixes, ":"), ":");
    assert_int_equal(prefixes.count, 6);
}

static void test_prefixes_have_a_bound(void **state)
{
    struct prefixes prefixes;
    char name[32];

    (void)state;
    prefixes_open(&prefixes, seed);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "tenant%d:x", i);
        prefixes_of(&prefixes, text_of(name))->granted++;
    }
    assert_int_equal(prefixes.count, PREFIXES_MAX);
    assert_int_equal(prefixes.other.granted, MANY - PREFIXES_MAX);
    assert_int_equal(prefixes.at[PREFIXES_MAX - 1].granted, 1);
}

static void test_what_cannot_be_shown_is_counted_with_the_others(void **state)
{
    char longest[PREFIX_BYTES_MAX + 2], *at = longest;
    struct prefixes prefixes;

    (void)state;
    prefixes_open(&prefixes, seed);
    assert_string_equal(counted_as(&prefixes, "\xff:x"), PREFIX_OTHER);
    assert_string_equal(counted_as(&prefixes, "two\nlines:x"), PREFIX_OTHER);
    memset(longest, 'x', sizeof longest);
    longest[PREFIX_BYTES_MAX - 1] = ':';
    longest[PREFIX_BYTES_MAX] = '\0';
    assert_int_equal(prefixes_of(&prefixes, text_of(at))->size, PREFIX_BYTES_MAX);
    memset(longest, 'y', PREFIX_BYTES_MAX);
    longest[PREFIX_BYTES_MAX] = ':';
    longest[PREFIX_BYTES_MAX + 1] = '\0';
    assert_ptr_equal(prefixes_of(&prefixes, text_of(at)), &prefixes.other);
    assert_string_equal(counted_as(&prefixes, "\xc3\xa4:x"), "\xc3\xa4:");
}

/* ---- hot names ------------------------------------------------------------------------------------ */

/* Two of very many names are taken one time in ten: they are found whatever else comes. */
static void test_hot_names_are_found_among_many(void **state)
{
    static struct hot hot;
    const struct hot_name *names[4];
    char name[32];

    (void)state;
    hot_open(&hot, seed);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "cold%d", i);
        hot_count(&hot, text_of(i % 10 == 0 ? "hot" : i % 10 == 5 ? "warm" : name));
        if (i % 20 == 0)
            hot_count(&hot, text_of("hot"));
    }
    assert_int_equal(hot_list(&hot, names, 4), 4);
    assert_int_equal(names[0]->size, 3);
    assert_memory_equal(names[0]->bytes, "hot", 3);
    assert_memory_equal(names[1]->bytes, "warm", 4);
    assert_true(names[0]->count >= MANY / 10 + MANY / 20);
    assert_true(names[1]->count >= MANY / 10);
}

static void test_what_was_hot_is_forgotten(void **state)
{
    static struct hot hot;
    const struct hot_name *names[4];

    (void)state;
    hot_open(&hot, seed);
    for (int i = 0; i < 100; i++)
        hot_count(&hot, text_of("then"));
    for (unsigned i = 0; i < HOT_HALF_S; i++)
        hot_second(&hot);
    hot_count(&hot, text_of("now"));
    assert_int_equal(hot_list(&hot, names, 4), 2);
    assert_int_equal(names[0]->count, 50);
    for (unsigned i = 0; i < 6 * HOT_HALF_S; i++)
        hot_second(&hot);
    assert_int_equal(hot_list(&hot, names, 4), 0);
}

/* Of very many a second one in so many is counted, for as many. */
static void test_counting_is_bounded(void **state)
{
    static struct hot hot;
    const struct hot_name *names[1];

    (void)state;
    hot_open(&hot, seed);
    for (int i = 0; i < MANY; i++)
        hot_count(&hot, text_of("busy"));
    hot_second(&hot);
    assert_int_equal(hot.stride, MANY / HOT_EACH_MAX | 1);
    for (unsigned i = 0; i < 100 * hot.stride; i++)
        hot_count(&hot, text_of("busy"));
    assert_int_equal(hot_list(&hot, names, 1), 1);
    assert_int_equal(names[0]->count, MANY + 100 * hot.stride);
}

/* ---- the text ------------------------------------------------------------------------------------- */

static void test_labels_are_escaped(void **state)
{
    struct textbuf text = {NULL};

    (void)state;
    exposition_number(&text, "x", (struct exposition_label){"name", "a\"b\\c\nd", 7}, 5);
    assert_text(&text, "x{name=\"a\\\"b\\\\c\\nd\"} 5\n");
}

static void test_times_are_in_seconds(void **state)
{
    struct textbuf text = {NULL};

    (void)state;
    exposition_micro(&text, "x", (struct exposition_label){NULL}, 12000034);
    assert_text(&text, "x 12.000034\n");
}

static void test_buckets_are_cumulative(void **state)
{
    struct histogram histogram = {{0}};
    struct textbuf text = {NULL};
    char *at;

    (void)state;
    histogram_add(&histogram, 2500);
    histogram_add(&histogram, 2501);
    histogram_add(&histogram, 90 * INT64_C(1000000));
    exposition_histogram(&text, "x_seconds", &histogram);
    textbuf_bytes(&text, "", 1);
    assert_false(text.failed);
    at = text.bytes;
    assert_non_null(strstr(at, "x_seconds_bucket{le=\"0.0001\"} 0\n"));
    assert_non_null(strstr(at, "x_seconds_bucket{le=\"0.0025\"} 1\n"));
    assert_non_null(strstr(at, "x_seconds_bucket{le=\"0.005\"} 2\n"));
    assert_non_null(strstr(at, "x_seconds_bucket{le=\"60\"} 2\n"));
    assert_non_null(strstr(at, "x_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(at, "x_seconds_sum 90.005001\nx_seconds_count 3\n"));
    textbuf_free(&text);
}

static void test_text_grows(void **state)
{
    struct textbuf text = {NULL};

    (void)state;
    for (int i = 0; i < MANY; i++)
        textbuf_format(&text, "%05d\n", i);
    assert_false(text.failed);
    assert_int_equal(text.size, 6 * MANY);
    assert_memory_equal(text.bytes + 6 * 4711, "04711\n", 6);
    textbuf_free(&text);
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void test_json(void **state)
{
    struct json_text json = {.depth = 0};

    (void)state;
    json_text_open(&json, NULL, '{');
    json_text_string(&json, "name", "a\"b\\<\n\x7f\xff\xc3\xa4\xe2\x82z&", 14);
    json_text_words(&json, "none", "");
    json_text_number(&json, "least", INT64_MIN);
    json_text_number(&json, "most", INT64_MAX);
    json_text_open(&json, "list", '[');
    json_text_number(&json, NULL, 0);
    json_text_bool(&json, NULL, true);
    json_text_close(&json, ']');
    json_text_close(&json, '}');
    assert_text(
        &json.out,
        "{\"name\":\"a\\\"b\\\\\\u003c\\u000a\\u007f\\ufffd\xc3\xa4\\ufffd\\ufffdz\\u0026\","
        "\"none\":\"\",\"least\":-9223372036854775808,\"most\":9223372036854775807,"
        "\"list\":[0,true]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bound_belongs_to_its_bucket),
        cmocka_unit_test(test_a_time_below_nothing_is_none),
        cmocka_unit_test(test_names_are_counted_by_their_beginning),
        cmocka_unit_test(test_prefixes_have_a_bound),
        cmocka_unit_test(test_what_cannot_be_shown_is_counted_with_the_others),
        cmocka_unit_test(test_hot_names_are_found_among_many),
        cmocka_unit_test(test_what_was_hot_is_forgotten),
        cmocka_unit_test(test_counting_is_bounded),
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_times_are_in_seconds),
        cmocka_unit_test(test_buckets_are_cumulative),
        cmocka_unit_test(test_text_grows),
        cmocka_unit_test(test_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
