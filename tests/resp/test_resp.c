/* Unit tests of src/resp. The linker sends its calls of malloc, memchr and memmove through here
 * (see meson.build): work is counted, not timed, and memory can be made to run out. */
#include "resp/resp.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MB ((size_t)1 << 20)
#define GENEROUS ((struct resp_limits){8 * MB, 16 * MB, 1000000})
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define WIRE(text) (text), sizeof(text) - 1 /* text may contain NUL */

/* ---- counting -------------------------------------------------------------------------------- */

static struct {
    size_t calls, allocated; /* allocations, and their bytes */
    size_t live;             /* bytes allocated and not freed */
    size_t searched, moved;  /* bytes, by memchr and memmove */
    size_t fail_at;          /* the so-manieth allocation fails, and all after it; 0: none */
} work;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__real_memchr(const void *bytes, int byte, size_t size);
void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
void __wrap_free(void *memory);
void *__wrap_memchr(const void *bytes, int byte, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);

static bool may_allocate(size_t size)
{
    work.calls++;
    work.allocated += size;
    return work.fail_at == 0 || work.calls < work.fail_at;
}

void *__wrap_calloc(size_t count, size_t size)
{
    void *memory = may_allocate(count * size) ? __real_calloc(count, size) : NULL;

    work.live += memory ? malloc_usable_size(memory) : 0;
    return memory;
}

void *__wrap_realloc(void *old, size_t size)
{
    size_t old_size = old ? malloc_usable_size(old) : 0;
    void *memory = may_allocate(size) ? __real_realloc(old, size) : NULL;

    if (memory)
        work.live += malloc_usable_size(memory) - old_size;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return __wrap_realloc(NULL, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return __wrap_realloc(old, count * size);
}

void __wrap_free(void *memory)
{
    work.live -= memory ? malloc_usable_size(memory) : 0;
    __real_free(memory);
}

void *__wrap_memchr(const void *bytes, int byte, size_t size)
{
    const char *found = __real_memchr(bytes, byte, size);

    work.searched += found ? (size_t)(found - (const char *)bytes) + 1 : size;
    return (void *)found;
}

void *__wrap_memmove(void *to, const void *from, size_t size)
{
    work.moved += size;
    return __real_memmove(to, from, size);
}

static void count_from_here(void)
{
    work.calls = work.allocated = work.searched = work.moved = work.fail_at = 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

static const struct good {
    const char *wire;
    size_t size, parts; /* parts: what counts against nodes_max */
    const char *shown;
} good[] = {
    {WIRE("+OK\r\n"), 1, "+OK"},
    {WIRE("+\r\n"), 1, "+"},
    {WIRE("+a\0b\r\n"), 1, "+a\\00b"},
    {WIRE("-ERR no such thing\r\n"), 1, "-ERR no such thing"},
    {WIRE(":42\r\n"), 1, ":42"},
    {WIRE(":+7\r\n"), 1, ":7"},
    {WIRE(":-0\r\n"), 1, ":0"},
    {WIRE(":9223372036854775807\r\n"), 1, ":9223372036854775807"},
    {WIRE(":-9223372036854775808\r\n"), 1, ":-9223372036854775808"},
    {WIRE("$5\r\nhello\r\n"), 1, "$hello"},
    {WIRE("$0\r\n\r\n"), 1, "$"},
    {WIRE("$9\r\na\r\nb\n\0$1\r\r\n"), 1, "$a\\0d\\0ab\\0a\\00$1\\0d"},
    {WIRE("$-1\r\n"), 1, "_"},
    {WIRE("*-1\r\n"), 1, "_"},
    {WIRE("*0\r\n"), 1, "*0"},
    {WIRE("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n"), 4, "*3 $SET $k $\\0d\\0a"},
    {WIRE("*4\r\n$-1\r\n:1\r\n*-1\r\n*0\r\n"), 5, "*4 _ :1 _ *0"},
    {WIRE("*2\r\n*2\r\n:1\r\n+a\r\n*1\r\n$1\r\nb\r\n"), 6, "*2 *2 :1 +a *1 $b"},
    {WIRE("*3\r\n*0\r\n*1\r\n*0\r\n:5\r\n"), 5, "*3 *0 *1 *0 :5"},
    {WIRE("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), 9,
     "*1 *1 *1 *1 *1 *1 *1 *1 :1"},
    {WIRE("_\r\n"), 1, "_"},
    {WIRE("#t\r\n"), 1, "#1"},
    {WIRE("#f\r\n"), 1, "#0"},
    {WIRE(",3.14\r\n"), 1, ",3.14"},
    {WIRE(",-inf\r\n"), 1, ",-inf"},
    {WIRE(",nan\r\n"), 1, ",nan"},
    {WIRE(",1e-7\r\n"), 1, ",1e-7"},
    {WIRE("(-3492890328409238509324850943850943825024385\r\n"), 1,
     "(-3492890328409238509324850943850943825024385"},
    {WIRE("!21\r\nSYNTAX invalid syntax\r\n"), 1, "-SYNTAX invalid syntax"},
    {WIRE("=9\r\ntxt:hello\r\n"), 1, "$hello"},
    {WIRE("=4\r\nmkd:\r\n"), 1, "$"},
    {WIRE("~2\r\n:1\r\n#t\r\n"), 3, "~2 :1 #1"},
    {WIRE("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n"), 6, "%4 +a :1 +b *1 _"},
    {WIRE("%0\r\n"), 1, "%0"},
    {WIRE(">2\r\n+message\r\n$2\r\nhi\r\n"), 3, ">2 +message $hi"},
    {WIRE(">0\r\n"), 1, ">0"},
    {WIRE("|1\r\n+ttl\r\n:9\r\n:5\r\n"), 4, ":5"},
    {WIRE("|0\r\n|0\r\n:5\r\n"), 3, ":5"},
    {WIRE("|1\r\n+a\r\n:9\r\n>1\r\n+x\r\n"), 5, ">1 +x"},
    {WIRE("*2\r\n+a\r\n|1\r\n*1\r\n+k\r\n|1\r\n:1\r\n:2\r\n:3\r\n$1\r\nb\r\n"), 10, "*2 +a $b"},
};

/* Each list ends with NULL. A NUL within the bytes is written as '@', which RESP has no use for. */
static const struct bad {
    const char *words; /* of the message */
    const char *wires[16];
} bad[] = {
    /* No need to wait for the rest of these. */
    {"not RESP: no value begins with byte 0x50", {"P"}},
    {"not RESP: no value begins with byte 0x00", {"@"}},
    {"not RESP: no value begins with byte 0xff", {"\xff"}},
    {"not RESP", {"\n", "\r\n", " ", "*2\r\n:1\r\nPING", ".\r\n", ";4\r\n", "*1\r\n\r\n"}},
    {"does not end with CR LF", {"+OK\n", "+\n", "+OK\rx\n", "$5\nhello\r\n", "_\n"}},
    {"or has a CR within", {"+a\rb\r\n", "+a\r\r\n", "+\r\r\n", "$5\r\r\n"}},
    {"a string of another length than it said",
     {"$5\r\nhello!\r", "$5\r\nhello\r\r", "$5\r\nhello\n\n", "$5\r\nhe\r\n+OK\r\n",
      "$0\r\n+\r\n"}},
    {"a string with a malformed length",
     {"$\r\n", "$-\r\n", "$-2\r\n", "$-0\r\n", "$-01\r\n", "$-1 \r\n", "$+5\r\n", "$ 5\r\n",
      "$5 \r\n", "$0x5\r\n", "$5@\r\n", "$9223372036854775808\r\n", "$18446744073709551617\r\n"}},
    {"an array with a malformed length",
     {"*\r\n", "*-2\r\n", "*+1\r\n", "*1.5\r\n", "*18446744073709551617\r\n"}},
    {"an error with a malformed length", {"!-1\r\n"}},
    {"a verbatim string with a malformed length", {"=-1\r\n"}},
    {"a set with a malformed length", {"~-1\r\n"}},
    {"a map with a malformed length", {"%-1\r\n"}},
    {"a push with a malformed length", {">-1\r\n"}},
    {"an attribute with a malformed length", {"|-1\r\n"}},
    {"an array of 4294967297 items, more than the 1000000 allowed", {"*4294967297\r\n"}},
    {"a map of 18446744073709551614 items, more than", {"%9223372036854775807\r\n"}},
    {"a map of 9223372036854775808 items, more than", {"%4611686018427387904\r\n"}},
    {"a map of 4294967296 items, more than", {"%2147483648\r\n"}},
    {"an attribute of 18446744073709551614 items", {"|9223372036854775807\r\n"}},
    {"in pieces of unknown number", {"$?\r\n", "*?\r\n", "%?\r\n", "~?\r\n"}},
    {"an integer that is malformed",
     {":\r\n", ":-\r\n", ":--1\r\n", ":1a\r\n", ": 1\r\n", ":9223372036854775808\r\n",
      ":-9223372036854775809\r\n", ":99999999999999999999\r\n"}},
    {"a boolean that is malformed", {"#\r\n", "#x\r\n", "#tt\r\n", "#T\r\n"}},
    {"a nil that is malformed", {"_x\r\n"}},
    {"a double that is malformed", {",\r\n", ",1 5\r\n", ",1@\r\n", ",1\x1b\r\n"}},
    {"a big number that is malformed", {"(\r\n", "(1.5\r\n"}},
    {"without its format", {"=3\r\ntxt\r\n", "=0\r\n\r\n+:\r\n", "=9\r\ntxt-hello\r\n"}},
    {"a push within another value", {"*1\r\n>", "|1\r\n+a\r\n>0\r\n"}},
    {"nested more than 8 deep",
     {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n",
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n|0\r\n"}},
};

/* ---- tools ----------------------------------------------------------------------------------- */

/* Adds a value to a text: what it is, and whether every span in it is right. */
static void show(const struct resp_node *value, char *text, size_t room)
{
    static const char marks[] = {
        [RESP_SIMPLE] = '+', [RESP_ERROR] = '-', [RESP_INTEGER] = ':', [RESP_BLOB] = '$',
        [RESP_NIL] = '_',    [RESP_BOOL] = '#',  [RESP_DOUBLE] = ',',  [RESP_BIG] = '(',
        [RESP_ARRAY] = '*',  [RESP_SET] = '~',   [RESP_MAP] = '%',     [RESP_PUSH] = '>'};
    size_t at = strlen(text);

    for (uint32_t i = value->span; i-- > 0;) {
        uint32_t next = i + 1;

        for (uint32_t k = 0; k < value[i].count; k++)
            next += value[next].span;
        assert_int_equal(value[i].span, next - i);
    }
    for (uint32_t i = 0; i < value->span && room - at > 64; i++) {
        const struct resp_node *node = &value[i];

        at += (size_t)snprintf(text + at, room - at, at ? " %c" : "%c", marks[node->type]);
        if (node->type >= RESP_ARRAY)
            at += (size_t)snprintf(text + at, room - at, "%u", node->count);
        else if (node->type == RESP_INTEGER || node->type == RESP_BOOL)
            at += (size_t)snprintf(text + at, room - at, "%lld", (long long)node->integer);
        else
            assert_int_equal(0, node->integer);
        for (size_t k = 0; k < node->size && room - at > 64; k++) {
            unsigned char c = (unsigned char)node->text[k];

            at += (size_t)snprintf(text + at, room - at, c < 0x20 ? "\\%02x" : "%c", c);
        }
    }
}

static struct resp_reader *new_reader(struct resp_limits limits)
{
    struct resp_reader *reader = resp_reader_new(&limits);

    assert_non_null(reader);
    return reader;
}

/* With `least` large enough the buffer moves. What is behind the bytes must not matter, so it is
 * made to look like the end of a line. */
static void feed(struct resp_reader *reader, const char *bytes, size_t size, size_t least)
{
    size_t room = 0;
    char *to = resp_reader_room(reader, least > size ? least : size, &room);

    assert_non_null(to);
    assert_true(room >= size && room >= least);
    memset(to, '\n', room < size + 64 ? room : size + 64);
    if (size > 0)
        memcpy(to, bytes, size);
    resp_reader_filled(reader, size);
}

/* Feeds a reader that has read something before the bytes up to the first cut, to the second, and
 * the rest, in a buffer that is in another place every time. Gives the first error, or HF_OK and
 * in `shown` the value, which must come with the last byte and not before. */
static int read_cut(const char *wire, size_t size, const size_t cuts[2], struct resp_limits limits,
                    char shown[256], struct error_text *err)
{
    const size_t ends[] = {cuts[0], cuts[1], size};
    struct resp_reader *reader = new_reader(limits);
    const struct resp_node *value = NULL;
    int r = HF_OK;

    feed(reader, "_\r\n", 3, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, err));
    assert_non_null(value);
    for (size_t i = 0, at = 0; i < COUNT(ends) && r == HF_OK; at = ends[i++]) {
        feed(reader, wire + at, ends[i] - at, (size_t)20000 << 2 * i);
        r = resp_reader_next(reader, &value, err);
        if (r == HF_OK && ends[i] < size)
            assert_null(value);
    }
    shown[0] = '\0';
    if (r == HF_OK && value) {
        show(value, shown, 256);
        assert_int_equal(0, resp_reader_pending(reader));
    } else if (r != HF_OK) { /* and it stays so */
        assert_int_equal(r, resp_reader_next(reader, &value, NULL));
    }
    resp_reader_free(reader);
    return r;
}

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

/* ---- work ------------------------------------------------------------------------------------ */

static void announcements_take_no_memory(void **state)
{
    static const char *const headers[] = {
        "*1000000000\r\n", "~1000000000\r\n", "%1000000000\r\n",
        ">1000000000\r\n", "|1000000000\r\n", "$1000000000\r\n",
        "!1000000000\r\n", "=1000000000\r\n", "*1000000000\r\n*1000000000\r\n*1000000000\r\n",
    };
    const struct resp_limits limits[] = {{1000, 1000, 1000}, {SIZE_MAX, SIZE_MAX, SIZE_MAX}};

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(headers); i++) {
        const struct resp_node *value = NULL;
        struct resp_reader *reader;

        count_from_here();
        reader = new_reader(limits[i % 2]);
        feed(reader, headers[i / 2], strlen(headers[i / 2]), 1);
        assert_int_equal(i % 2 ? HF_OK : HF_EREFUSED, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        feed(reader, "", 0, 1);
        assert_in_range(work.allocated, 1, 30000);
        resp_reader_free(reader);
    }
}

static void limits_that_are_none_are_limits(void **state)
{
    struct resp_reader *reader = new_reader((struct resp_limits){SIZE_MAX, SIZE_MAX, SIZE_MAX});
    const struct resp_node *value, untouched;

    (void)state;
    feed(reader, "*4294967295\r\n", 13, 1); /* and itself: more than a span can say */
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
    reader = new_reader((struct resp_limits){SIZE_MAX, SIZE_MAX, SIZE_MAX});
    feed(reader, "$9223372036854775807\r\n", 22, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
    reader = new_reader((struct resp_limits){0, 0, 0});
    value = &untouched;
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_null(value);
    feed(reader, "+", 1, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
}

/* A value of `size` bytes, in pieces: the work must be in proportion to its size. */
static void read_counted(const char *wire, size_t size, size_t piece)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value = NULL;

    count_from_here();
    for (size_t at = 0; at < size; at += piece) {
        assert_null(value);
        feed(reader, wire + at, size - at < piece ? size - at : piece, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        if (work.searched + work.moved + work.allocated > 60 * size + 100000) /* now, not later */
            fail_msg("at %zu of %zu: searched %zu, moved %zu, allocated %zu", at, size,
                     work.searched, work.moved, work.allocated);
    }
    assert_non_null(value);
    assert_in_range(work.searched, 1, 2 * size + 100);
    assert_in_range(work.moved, 0, 2 * size + 20000);
    assert_in_range(work.calls, 1, 64);
    resp_reader_free(reader);
}

static void a_value_in_many_pieces_is_looked_at_once(void **state)
{
    size_t blob_size = 4 * MB, items = 8000, size;
    char *wire = malloc(blob_size + 64);

    (void)state;
    assert_non_null(wire);
    memset(wire, 'x', blob_size + 64);
    size = (size_t)snprintf(wire, 32, "$%zu\r\n", blob_size);
    wire[size] = 'x';
    memcpy(wire + size + blob_size, "\r\n", 2);
    read_counted(wire, size + blob_size + 2, 100);
    memset(wire, 'x', RESP_LINE_MAX + 1);
    wire[0] = '+';
    memcpy(wire + 1 + RESP_LINE_MAX, "\r\n", 2);
    read_counted(wire, RESP_LINE_MAX + 3, 1);
    read_counted(wire, RESP_LINE_MAX + 3, 100);
    size = (size_t)snprintf(wire, 32, "*%zu\r\n", items);
    for (size_t i = 0; i < items; i++)
        size += (size_t)snprintf(wire + size, 32, i % 2 ? "$3\r\nabc\r\n" : ":%zu\r\n", i);
    read_counted(wire, size, 1);
    read_counted(wire, size, 100);
    free(wire);
}

/* Texts must be where they are said to be when the buffer has moved many times in between. */
static void a_large_value_survives_the_moves_of_its_buffer(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value = NULL;
    char item[64];

    (void)state;
    feed(reader, "+first\r\n*30000\r\n", 16, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_true(resp_is(value, "first"));
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        snprintf(item, sizeof item, i % 2 ? "$15\r\nblob %010d\r\n" : "+line %010d\r\n", i);
        feed(reader, item, strlen(item), 1);
    }
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_non_null(value);
    for (int i = 0; i < 30000; i++) {
        snprintf(item, sizeof item, i % 2 ? "blob %010d" : "line %010d", i);
        assert_true(resp_is(resp_item(value, (uint32_t)i), item));
    }
    resp_reader_free(reader);
}

static void the_memory_of_a_huge_value_is_given_back(void **state)
{
    size_t items = 100000, size, before;
    char *wire = malloc(4 * items + 32);

    (void)state;
    assert_non_null(wire);
    size = (size_t)snprintf(wire, 32, "*%zu\r\n", items);
    for (size_t i = 0; i < items; i++, size += 4)
        memcpy(wire + size, ":1\r\n", 4);
    memcpy(wire + size, "$5\r\nhe", 6);
    before = work.live;
    for (size_t rest = 0; rest <= 6; rest += 6) { /* without, and with a part of the next value */
        struct resp_reader *reader = new_reader(GENEROUS);
        const struct resp_node *value;

        feed(reader, wire, size + rest, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_int_equal(items, value->count);
        assert_true(work.live - before > 4 * MB);
        if (rest == 0) {
            assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
            assert_null(value);
            assert_in_range(work.live - before, 1, 50000);
            feed(reader, "$5\r\nhe", 6, 1);
        }
        feed(reader, "llo\r\n", 5, 1);
        assert_in_range(work.live - before, 1, 50000);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_true(resp_is(value, "hello"));
        resp_reader_free(reader);
    }
    assert_true(before == work.live);
    free(wire);
}

/* The buffer ends where the largest value ends, and what was asked for beyond it. */
static void the_buffer_has_a_ceiling(void **state)
{
    struct resp_limits limits = {MB, MB, 10};
    struct resp_reader *reader = new_reader(limits);
    const struct resp_node *value;
    size_t before = work.live, room = 0;

    (void)state;
    assert_non_null(resp_reader_room(reader, 0, &room));
    assert_true(room > 0);
    feed(reader, "$1000000\r\n", 10, 1);
    for (int i = 0; i < 1000; i++) {
        char *to = resp_reader_room(reader, 4096, &room);

        assert_non_null(to);
        memset(to, 'x', 1000);
        resp_reader_filled(reader, 1000);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        assert_in_range(work.live - before, 1, MB + 16384 + 1000);
    }
    assert_null(resp_reader_room(reader, SIZE_MAX, &room));
    assert_null(resp_reader_room(reader, SIZE_MAX / 2, &room));
    feed(reader, "\r\n", 2, 0);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_int_equal(1000000, value->size);
    assert_in_range(work.live - before, 1, MB + 16384 + 1000); /* with the nodes, ten at most */
    resp_reader_free(reader);
}

/* True: all of it was read, although the fail_at-th allocation was to fail. */
static bool read_without_memory(const char *wire, size_t size, size_t fail_at)
{
    const struct resp_limits limits = GENEROUS;
    const struct resp_node *value = NULL;
    struct resp_reader *reader;
    int r = HF_OK;

    count_from_here();
    work.fail_at = fail_at;
    reader = resp_reader_new(&limits);
    for (size_t at = 0; reader && at < size && r == HF_OK; at += 100) {
        size_t piece = size - at < 100 ? size - at : 100, room = 77;
        char *to = resp_reader_room(reader, piece, &room);

        if (!to) {
            assert_int_equal(77, room);
            break;
        }
        memcpy(to, wire + at, piece);
        resp_reader_filled(reader, piece);
        r = resp_reader_next(reader, &value, NULL);
        assert_true(r == HF_OK || r == HF_ENOMEM);
    }
    resp_reader_free(reader);
    work.fail_at = 0;
    return value;
}

static void running_out_of_memory_is_an_answer(void **state)
{
    struct resp_writer writer = {0};
    size_t before = work.live, n = 1, size;

    (void)state;
    resp_write_array(&writer, 1000);
    for (int i = 0; i < 1000; i++)
        resp_write_text(&writer, "a string that takes some room");
    assert_false(writer.failed);
    while (!read_without_memory(writer.bytes, writer.size, n))
        n++;
    assert_in_range(n, 5, 50);
    for (n = 1;; n++) {
        resp_writer_free(&writer);
        count_from_here();
        work.fail_at = n;
        for (int i = 0; i < 1000; i++)
            resp_write_simple(&writer, "OK");
        work.fail_at = 0;
        if (!writer.failed)
            break;
        size = writer.size;
        resp_write_integer(&writer, 1); /* nothing follows a gap */
        assert_true(writer.failed && writer.size == size && size < 5000);
        resp_writer_clear(&writer);
        resp_write_text(&writer, "again");
        assert_true(!writer.failed && writer.size == 11);
    }
    assert_int_equal(5000, writer.size);
    assert_in_range(n, 3, 20);
    resp_writer_free(&writer);
    assert_true(before == work.live);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13; /* xorshift64 */
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static size_t mutate(char *wire, size_t size, size_t room, uint64_t *seed)
{
    static const char telling[] = "+-:_#,($!=*~%>|\r\n\r\n0123459?tf";
    size_t at = next_random(seed) % size, n = 1 + next_random(seed) % 4;

    switch (next_random(seed) % 5) {
    case 0:
        wire[at] = (char)next_random(seed);
        break;
    case 1:
        wire[at] = telling[next_random(seed) % (sizeof telling - 1)];
        break;
    case 2:
        wire[at] = (char)(wire[at] + (next_random(seed) % 2 ? 1 : -1));
        break;
    case 3: /* take some away */
        n = n < size - at ? n : size - at - 1;
        memmove(wire + at, wire + at + n, size - at - n);
        size -= n;
        break;
    default: /* repeat some */
        n = n < size - at ? n : size - at;
        n = n < room - size ? n : room - size;
        memmove(wire + at + n, wire + at, size - at);
        size += n;
    }
    return size;
}

enum { VALUES, WAITING, REFUSED, ENDS };

/* What comes of these bytes, in pieces of up to `piece`, as a text; and how it ended. */
static int outcome(const char *wire, size_t size, size_t piece, uint64_t *seed, char *shown,
                   size_t room)
{
    struct resp_reader *reader = new_reader((struct resp_limits){200, 400, 40});
    const struct resp_node *value = NULL;
    int r = HF_OK, end;

    shown[0] = '\0';
    for (size_t at = 0, n; at < size && r == HF_OK; at += n) {
        n = piece < size ? 1 + next_random(seed) % piece : size;
        n = n < size - at ? n : size - at;
        feed(reader, wire + at, n, next_random(seed) % 64 ? 1 : 20000);
        do {
            r = resp_reader_next(reader, &value, NULL);
            if (r == HF_OK && value)
                show(value, shown, room);
        } while (r == HF_OK && value);
    }
    assert_true(r == HF_OK || r == HF_EREFUSED);
    end = r != HF_OK ? REFUSED : resp_reader_pending(reader) > 0 ? WAITING : VALUES;
    resp_reader_free(reader);
    return end;
}

/* A sanitizer makes it a hundred times slower, and would find in fewer rounds what it finds. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MUTATIONS 10000
#else
#define MUTATIONS 200000
#endif

static void mutated_bytes_do_no_harm(void **state)
{
    uint64_t seed = 20240229;
    int ends[ENDS] = {0};

    (void)state;
    for (int round = 0; round < MUTATIONS; round++) {
        char wire[512], whole[1024], pieces[1024];
        size_t size = 0;
        int end;

        for (int k = 0; k < 3; k++) {
            const struct good *g = &good[next_random(&seed) % COUNT(good)];

            memcpy(wire + size, g->wire, g->size);
            size += g->size;
        }
        for (uint64_t k = 1 + next_random(&seed) % 2; k > 0; k--)
            size = mutate(wire, size, sizeof wire, &seed);
        end = outcome(wire, size, size, &seed, whole, sizeof whole);
        assert_int_equal(
            end, outcome(wire, size, 1 + next_random(&seed) % 32, &seed, pieces, sizeof pieces));
        assert_string_equal(whole, pieces);
        ends[end]++;
    }
    for (int end = 0; end < ENDS; end++)
        assert_true(ends[end] > MUTATIONS / 40);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void what_is_written_is_this(void **state)
{
    struct resp_writer writer = {0};

    (void)state;
    for (int resp3 = 0; resp3 < 2; resp3++) {
        static const char *const wires[] = {
            "*2\r\n$3\r\nGET\r\n$2\r\n-7\r\n+OK\r\n-ERR a  b\r\n:-5\r\n$-1\r\n*4\r\n*3\r\n",
            "*2\r\n$3\r\nGET\r\n$2\r\n-7\r\n+OK\r\n-ERR a  b\r\n:-5\r\n_\r\n%2\r\n>3\r\n",
        };

        resp_writer_clear(&writer);
        resp_write_array(&writer, 2);
        resp_write_text(&writer, "GET");
        resp_write_number(&writer, -7);
        resp_write_simple(&writer, "OK");
        resp_write_error(&writer, "ERR a\r\nb");
        resp_write_integer(&writer, -5);
        resp_write_nil(&writer, resp3);
        resp_write_map(&writer, 2, resp3);
        resp_write_push(&writer, 3, resp3);
        assert_false(writer.failed);
        assert_int_equal(strlen(wires[resp3]), writer.size);
        assert_memory_equal(wires[resp3], writer.bytes, writer.size);
    }
    resp_write_map(&writer, SIZE_MAX / 2 + 1, false);
    assert_true(writer.failed);
    resp_writer_free(&writer);
}

static void what_is_written_can_be_read(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    struct resp_writer writer = {0};
    const struct resp_node *value;
    char every[256], shown[256] = "";
    int64_t number;

    (void)state;
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    resp_write_push(&writer, 9, true);
    resp_write_blob(&writer, every, sizeof every);
    resp_write_number(&writer, INT64_MIN);
    resp_write_integer(&writer, INT64_MAX);
    resp_write_blob(&writer, NULL, 0);
    resp_write_error(&writer, "\r\nERR\n");
    resp_write_simple(&writer, "+OK\r\n:1");
    resp_write_map(&writer, 1, true);
    resp_write_nil(&writer, true);
    resp_write_nil(&writer, false);
    resp_write_array(&writer, 0);
    resp_write_raw(&writer, ",0.5\r\n", 6);
    feed(reader, writer.bytes, writer.size, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_int_equal(9, value->count);
    assert_int_equal(sizeof every, resp_item(value, 0)->size);
    assert_memory_equal(every, resp_item(value, 0)->text, sizeof every);
    assert_true(resp_to_int64(resp_item(value, 1), &number) && number == INT64_MIN);
    assert_true(resp_to_int64(resp_item(value, 2), &number) && number == INT64_MAX);
    assert_true(resp_is(resp_item(value, 3), ""));
    assert_true(resp_is(resp_item(value, 4), "  ERR "));
    assert_int_equal(RESP_ERROR, resp_item(value, 4)->type);
    assert_true(resp_is(resp_item(value, 5), "+OK  :1"));
    show(resp_item(value, 6), shown, sizeof shown);
    assert_string_equal("%2 _ _", shown);
    assert_int_equal(RESP_ARRAY, resp_item(value, 7)->type);
    assert_int_equal(RESP_DOUBLE, resp_item(value, 8)->type);
    assert_int_equal(0, resp_reader_pending(reader));
    resp_writer_free(&writer);
    resp_reader_free(reader);
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
        cmocka_unit_test(announcements_take_no_memory),
        cmocka_unit_test(limits_that_are_none_are_limits),
        cmocka_unit_test(a_value_in_many_pieces_is_looked_at_once),
        cmocka_unit_test(a_large_value_survives_the_moves_of_its_buffer),
        cmocka_unit_test(the_memory_of_a_huge_value_is_given_back),
        cmocka_unit_test(the_buffer_has_a_ceiling),
        cmocka_unit_test(running_out_of_memory_is_an_answer),
        cmocka_unit_test(mutated_bytes_do_no_harm),
        cmocka_unit_test(what_is_written_is_this),
        cmocka_unit_test(what_is_written_can_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
