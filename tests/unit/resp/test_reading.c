/* test_reading.c: every value is read, however it is cut; what is malformed or too much is not. */
#include "samples.h"

/* ---- reading --------------------------------------------------------------------------------- */

static void every_value_is_read_however_it_is_cut(void **state)
{
    struct error_text err = {""};
    char shown[256];

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        for (size_t a = 0; a < good[i].size; a++) {
            for (size_t b = a; b < good[i].size && (b == a || good[i].size < 60); b++) {
                assert_int_equal(HF_OK, read_cut(good[i].wire, good[i].size, (size_t[]){a, b},
                                                 GENEROUS, shown, &err));
                assert_string_equal(good[i].shown, shown);
            }
        }
    }
}

static void a_truncated_value_asks_for_more(void **state)
{
    const struct resp_node *value, untouched;
    struct error_text err = {""};

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        for (size_t size = 0; size < good[i].size; size++) {
            struct resp_reader *reader = new_reader(GENEROUS);

            feed(reader, good[i].wire, size, 1);
            for (int again = 0; again < 2; again++) {
                value = &untouched;
                assert_int_equal(HF_OK, resp_reader_next(reader, &value, &err));
                assert_null(value);
                assert_int_equal(size, resp_reader_pending(reader));
            }
            resp_reader_free(reader);
        }
    }
}

static void refused_however_it_is_cut(const char *text, const char *words)
{
    size_t size = strlen(text);
    char wire[64], shown[256];

    for (size_t i = 0; i < size; i++)
        wire[i] = text[i] == '@' ? '\0' : text[i];
    for (size_t cut = 0; cut < size; cut++) {
        struct error_text err = {""};

        assert_int_equal(HF_EREFUSED,
                         read_cut(wire, size, (size_t[]){cut, cut}, GENEROUS, shown, &err));
        if (!strstr(err.text, words))
            fail_msg("\"%s\" instead of \"%s\"", err.text, words);
    }
}

static void malformed_bytes_are_refused_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        for (const char *const *wire = bad[i].wires; *wire; wire++)
            refused_however_it_is_cut(*wire, bad[i].words);
}

static void an_error_leaves_the_output_alone_and_lasts(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value, untouched;
    struct error_text err;

    (void)state;
    feed(reader, "+a\r\n?", 5, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, &err));
    value = &untouched;
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, &err));
    assert_ptr_equal(&untouched, value);
    feed(reader, "+OK\r\n", 5, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, &err));
    assert_ptr_equal(&untouched, value);
    assert_non_null(strstr(err.text, "refused before"));
    resp_reader_free(reader);
}

static void next_is(struct resp_reader *reader, const char *expected)
{
    const struct resp_node *value = NULL;
    char shown[256] = "";

    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_non_null(value);
    show(value, shown, sizeof shown);
    assert_string_equal(expected, shown);
}

/* One is always left in part, so that the buffer never empties and has to come round. */
static void many_values_share_a_buffer(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value;

    (void)state;
    count_from_here();
    feed(reader, "$9\r\nleft", 8, 1);
    for (int round = 0; round < 300; round++) {
        size_t pending;

        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        feed(reader, " over\r\n", 7, 1);
        for (size_t i = 0; i < COUNT(good); i++)
            feed(reader, good[i].wire, good[i].size, 1);
        feed(reader, "$9\r\nleft", 8, 1);
        next_is(reader, "$left over");
        pending = resp_reader_pending(reader);
        for (size_t i = 0; i < COUNT(good); i++) {
            next_is(reader, good[i].shown);
            pending -= good[i].size;
            assert_int_equal(pending, resp_reader_pending(reader));
        }
        assert_int_equal(8, pending);
    }
    assert_in_range(work.allocated, 1, 50000); /* the usual buffer was enough */
    resp_reader_free(reader);
}

static void items_are_found_within_items(void **state)
{
    static const char wire[] =
        "*4\r\n%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n*0\r\n*1\r\n_\r\n$4\r\nlast\r\n";
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value, *map;

    (void)state;
    feed(reader, wire, sizeof wire - 1, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    map = resp_item(value, 0);
    assert_int_equal(RESP_MAP, map->type);
    assert_true(resp_is(resp_item(map, 0), "k"));
    assert_int_equal(2, resp_item(resp_item(map, 1), 1)->integer);
    assert_null(resp_item(map, 2));
    assert_int_equal(RESP_ARRAY, resp_item(value, 1)->type);
    assert_null(resp_item(resp_item(value, 1), 0));
    assert_int_equal(RESP_NIL, resp_item(resp_item(value, 2), 0)->type);
    assert_null(resp_item(resp_item(resp_item(value, 2), 0), 0));
    assert_true(resp_is(resp_item(value, 3), "last"));
    assert_null(resp_item(value, 4));
    assert_null(resp_item(value, UINT32_MAX));
    assert_null(resp_item(NULL, 0));
    resp_reader_free(reader);
}

static void texts_are_compared_and_counted_strictly(void **state)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } numbers[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"+5", true, 5},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"92233720368547758070", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+-1", false, 0},
        {"1 ", false, 0},
        {"0x1", false, 0},
    };
    struct resp_node node = {.type = RESP_INTEGER, .span = 1, .integer = -3};
    int64_t value = 99;

    (void)state;
    assert_true(resp_to_int64(&node, &value) && value == -3);
    for (size_t i = 0; i < 2 * COUNT(numbers); i++) {
        node = (struct resp_node){.type = i % 2 ? RESP_BLOB : RESP_SIMPLE, .span = 1};
        node.text = numbers[i / 2].text;
        node.size = strlen(node.text);
        value = 99;
        assert_int_equal(numbers[i / 2].good, resp_to_int64(&node, &value));
        assert_true(value == (numbers[i / 2].good ? numbers[i / 2].value : 99));
    }
    node = (struct resp_node){.type = RESP_ERROR, .span = 1, .text = "12", .size = 2};
    assert_false(resp_to_int64(&node, &value));
    assert_false(resp_to_int64(NULL, &value));
    assert_true(resp_is(&node, "12"));
    assert_false(resp_is(&node, "1"));
    assert_false(resp_is(&node, "123"));
    assert_false(resp_is(&node, "13"));
    node.type = RESP_DOUBLE;
    assert_false(resp_is(&node, "12"));
    assert_false(resp_to_int64(&node, &value));
    node.type = RESP_NIL;
    node.size = 0;
    assert_false(resp_is(&node, ""));
    assert_false(resp_is(NULL, ""));
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* In pieces of `piece` bytes: the first error, or HF_OK if that was one value and no more. Twice,
 * because the limits begin anew with every value. */
static int read_in_pieces(const char *wire, size_t size, size_t piece, struct resp_limits limits)
{
    struct resp_reader *reader = new_reader(limits);
    const struct resp_node *value = NULL;
    int r = HF_OK;

    for (int round = 0; round < 2 && r == HF_OK; round++) {
        for (size_t at = 0; at < size && r == HF_OK; at += piece) {
            feed(reader, wire + at, size - at < piece ? size - at : piece, 1);
            r = resp_reader_next(reader, &value, NULL);
        }
        assert_true(r != HF_OK || (value && resp_reader_pending(reader) == 0));
    }
    resp_reader_free(reader);
    return r;
}

static void the_limits_of_a_value_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(good); i++) {
        const struct good *g = &good[i / 2];
        size_t piece = i % 2 ? 1 : g->size;
        struct resp_limits limits = {g->size, g->size, g->parts};

        assert_int_equal(HF_OK, read_in_pieces(g->wire, g->size, piece, limits));
        limits.value_max--;
        assert_int_equal(HF_EREFUSED, read_in_pieces(g->wire, g->size, piece, limits));
        /* One byte before its end it is clear that it will be too large. */
        assert_int_equal(HF_EREFUSED, read_in_pieces(g->wire, g->size - 1, piece, limits));
        limits.value_max++;
        limits.nodes_max--;
        assert_int_equal(g->parts > 1 ? HF_EREFUSED : HF_OK, /* itself is always allowed */
                         read_in_pieces(g->wire, g->size, piece, limits));
    }
}

static void the_limit_of_a_string_is_exact(void **state)
{
    static const char marks[] = "$!=";
    char wire[] = "$9\r\ntxt:hello\r\n";

    (void)state;
    for (const char *mark = marks; *mark; mark++) {
        wire[0] = *mark;
        for (size_t piece = 1; piece < sizeof wire; piece++) {
            assert_int_equal(HF_OK, read_in_pieces(wire, sizeof wire - 1, piece,
                                                   (struct resp_limits){9, 100, 1}));
            assert_int_equal(HF_EREFUSED,
                             read_in_pieces(wire, 4, piece, (struct resp_limits){8, 100, 1}));
        }
    }
}

static void the_limit_of_a_line_is_exact(void **state)
{
    static const char marks[] = "+-(:";
    char *wire = malloc(RESP_LINE_MAX + 8);

    (void)state;
    assert_non_null(wire);
    memset(wire, '0', RESP_LINE_MAX + 8);
    for (const char *mark = marks; *mark; mark++) {
        wire[0] = *mark;
        for (size_t piece = *mark == '+' ? 1 : 1000; piece < MB; piece *= 1000) {
            memcpy(wire + 1 + RESP_LINE_MAX, "\r\n0", 3);
            assert_int_equal(HF_OK, read_in_pieces(wire, RESP_LINE_MAX + 3, piece, GENEROUS));
            memcpy(wire + 1 + RESP_LINE_MAX, "0\r\n", 3);
            assert_int_equal(HF_EREFUSED, read_in_pieces(wire, RESP_LINE_MAX + 4, piece, GENEROUS));
            /* Its end need not come. */
            assert_int_equal(HF_EREFUSED, read_in_pieces(wire, RESP_LINE_MAX + 3, piece, GENEROUS));
        }
    }
    free(wire);
}

static void a_limit_is_named_in_one_line(void **state)
{
    static const struct {
        const char *wire, *message;
    } told[] = {
        {"*5000000\r\n", "the other side sent an array of 5000000 items, more than the 10 allowed"},
        {"*5\r\n*5\r\n", "the other side sent a value of 11 parts, more than the 10 allowed"},
        {"$31\r\n", "the other side sent a string of 31 bytes, more than the 30 allowed"},
        {"+fifty-one bytes of a line, with its mark and CRLF.\r\n",
         "the other side sent a value of more than the 50 bytes allowed"},
        {"*2\r\n$20\r\n12345678901234567890\r\n$18\r\n",
         "the other side sent a string of 18 bytes, and with it a value of more than the 50 "
         "allowed"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(told); i++) {
        struct resp_reader *reader = new_reader((struct resp_limits){30, 50, 10});
        const struct resp_node *value;
        struct error_text err = {""};

        feed(reader, told[i].wire, strlen(told[i].wire), 1);
        assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, &err));
        assert_string_equal(told[i].message, err.text);
        resp_reader_free(reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_read_however_it_is_cut),
        cmocka_unit_test(a_truncated_value_asks_for_more),
        cmocka_unit_test(malformed_bytes_are_refused_however_they_are_cut),
        cmocka_unit_test(an_error_leaves_the_output_alone_and_lasts),
        cmocka_unit_test(many_values_share_a_buffer),
        cmocka_unit_test(items_are_found_within_items),
        cmocka_unit_test(texts_are_compared_and_counted_strictly),
        cmocka_unit_test(the_limits_of_a_value_are_exact),
        cmocka_unit_test(the_limit_of_a_string_is_exact),
        cmocka_unit_test(the_limit_of_a_line_is_exact),
        cmocka_unit_test(a_limit_is_named_in_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
