/* test_bytes.c: what comes from a server, or from others through it, is looked at with suspicion: base64, numbers, values, streams. */
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- base64 ---------------------------------------------------------------------------------- */

static void blobs_come_back_as_they_went(void **state)
{
    char bytes[70];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        struct body body = {0};
        size_t got = 99;
        json_t *object;
        char *blob;

        body_add(&body, "{\"key\":");
        body_blob(&body, bytes, size);
        body_add(&body, "}");
        assert_false(body.failed);
        object = json_loads(body.bytes, 0, NULL);
        assert_non_null(object);
        blob = json_blob(object, "key", sizeof bytes, &got);
        assert_non_null(blob);
        assert_int_equal(size, got);
        assert_memory_equal(bytes, blob, size);
        assert_int_equal('\0', blob[size]);
        free(blob);
        json_decref(object);
        body_free(&body);
    }
}

static void what_is_not_base64_is_refused(void **state)
{
    static const char *const wrong[] = {"\"a\"",    "\"ab=\"",  "\"a===\"", "\"ab=c\"",
                                        "\"a-b_\"", "\"ab c\"", "7",        "{}",
                                        "null",     "\"====\"", "\"=abc\""};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *value = json_loads(wrong[i], JSON_DECODE_ANY, NULL), *object = json_object();
        size_t size = 7;
        char *blob;

        assert_non_null(value);
        json_object_set_new(object, "key", value);
        blob = json_blob(object, "key", 1000, &size);
        if (blob)
            fail_msg("%s is taken for %zu bytes", wrong[i], size);
        json_decref(object);
    }
}

static void a_blob_has_a_limit(void **state)
{
    json_t *object = json_pack("{s:s}", "key", "YWJjZGVmZ2hp"); /* nine bytes */
    size_t size;
    char *blob;

    (void)state;
    blob = json_blob(object, "key", 9, &size);
    assert_non_null(blob);
    free(blob);
    assert_null(json_blob(object, "key", 6, &size));
    json_decref(object);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void numbers_are_strings_or_numbers(void **state)
{
    static const struct {
        const char *text;
        bool well;
        int64_t number;
    } cases[] = {{"{}", true, 0},
                 {"{\"n\":5}", true, 5},
                 {"{\"n\":\"5\"}", true, 5},
                 {"{\"n\":\"-1\"}", true, -1},
                 {"{\"n\":\"9223372036854775807\"}", true, INT64_MAX},
                 {"{\"n\":\"18446744073709551615\"}", true, -1}, /* an id of 64 bits */
                 {"{\"n\":\"18446744073709551616\"}", false, 0},
                 {"{\"n\":\"-9223372036854775809\"}", false, 0},
                 {"{\"n\":\"\"}", false, 0},
                 {"{\"n\":\"5x\"}", false, 0},
                 {"{\"n\":\" 5\"}", false, 0},
                 {"{\"n\":\"1-2\"}", false, 0},
                 {"{\"n\":1.5}", false, 0},
                 {"{\"n\":[]}", false, 0},
                 {"{\"n\":null}", false, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *object = json_loads(cases[i].text, 0, NULL);
        int64_t number = 77;

        assert_non_null(object);
        if (json_number(object, "n", &number) != cases[i].well)
            fail_msg("%s", cases[i].text);
        if (cases[i].well && number != cases[i].number)
            fail_msg("%s is %" PRId64, cases[i].text, number);
        json_decref(object);
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

static int objects;
static char last_object[64];

static void count_object(void *context, const char *object, size_t size)
{
    (void)context;
    objects++;
    snprintf(last_object, sizeof last_object, "%.*s", (int)size, object);
}

/* However it is cut. */
static void a_stream_is_cut_into_objects(void **state)
{
    static const char stream[] = "{\"a\":1}\n{\"b\":\"}\\\"{\"}\r\n  {\"c\":[{},[]]}{}\n";

    (void)state;
    for (size_t piece = 1; piece < sizeof stream; piece++) {
        struct splitter splitter = {0};

        objects = 0;
        for (size_t at = 0; at < sizeof stream - 1; at += piece) {
            size_t left = sizeof stream - 1 - at;

            assert_int_equal(HF_OK, splitter_feed(&splitter, stream + at,
                                                  left < piece ? left : piece, count_object, NULL));
        }
        assert_int_equal(4, objects);
        assert_string_equal("{}", last_object + strspn(last_object, " \r\n"));
        splitter_free(&splitter);
    }
}

static void a_stream_that_is_no_json_ends(void **state)
{
    static const char *const wrong[] = {"HTTP", "}", "]{}", "\"a\"", "{}x", "5"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct splitter splitter = {0};

        if (splitter_feed(&splitter, wrong[i], strlen(wrong[i]), count_object, NULL) !=
            HF_EINTERNAL)
            fail_msg("%s is taken for a stream of objects", wrong[i]);
        splitter_free(&splitter);
    }
}

static void an_object_without_end_has_a_limit(void **state)
{
    static char blanks[65536];
    struct splitter splitter = {0};
    size_t fed = 0;

    (void)state;
    memset(blanks, ' ', sizeof blanks);
    assert_int_equal(HF_OK, splitter_feed(&splitter, "{", 1, count_object, NULL));
    while (splitter_feed(&splitter, blanks, sizeof blanks, count_object, NULL) == HF_OK)
        assert_true((fed += sizeof blanks) <= ETCD_EVENT_MAX);
    splitter_free(&splitter);
}

/* ---- values and keys ------------------------------------------------------------------------- */

static void values_come_back_as_they_went(void **state)
{
    struct value value = {VALUE_PERMIT, 3, 30000, 1794720595875, "somebody, with blanks"}, read;
    char bytes[ETCD_VALUE_MAX];
    size_t size = value_write(&value, bytes);

    (void)state;
    value_read(bytes, size, &read);
    assert_int_equal(VALUE_PERMIT, read.mode);
    assert_int_equal(3, read.permits);
    assert_int_equal(30000, read.ttl_ms);
    assert_true(read.since_ms == value.since_ms);
    assert_string_equal(value.owner, read.owner);
}

static void any_other_value_is_foreign(void **state)
{
    static const char *const wrong[] = {"",
                                        "hf1",
                                        "hf1 x",
                                        "hf1 x 0 1 2",
                                        "hf2 x 0 1 2 me",
                                        "hf1 y 0 1 2 me",
                                        "hf1 s -1 1 2 me",
                                        "hf1 p 0 1 2 me",
                                        "hf1 s 2 1 2 me",
                                        "hf1 p 1025 1 2 me",
                                        "hf1 x 0 99999999999 2 me",
                                        "hf1 x 0 1 99999999999999999999999 me",
                                        "hf1 x  0 1 2 me"};
    struct value value;
    char longest[400] = "hf1 x 0 1 2 ";

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        value_read(wrong[i], strlen(wrong[i]), &value);
        if (value.mode != VALUE_FOREIGN)
            fail_msg("'%s' is taken for ours", wrong[i]);
    }
    memset(longest + strlen(longest), 'o', HF_OWNER_MAX + 1);
    value_read(longest, strlen(longest), &value);
    assert_int_equal(VALUE_FOREIGN, value.mode);
    value_read(longest, strlen(longest) - 1, &value);
    assert_int_equal(VALUE_EXCLUSIVE, value.mode);
}

static void no_key_of_one_name_begins_like_those_of_another(void **state)
{
    static const char *const names[] = {"a", "a/b", "a%2Fb", "a%252Fb", "/",
                                        "%", "//",  "%once", "a/"};
    static struct engine_store store = {.prefix = "p/", .prefix_size = 2};
    struct place places[sizeof names / sizeof *names], once;
    char name[HF_NAME_MAX + 1], key[ETCD_KEY_MAX];
    size_t size;

    (void)state;
    place_of_name(&store, "a", true, &once);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        place_of_name(&store, names[i], false, &places[i]);
        txn_add_tail_key(&places[i], "12ab", key, &size);
        assert_true(place_name_in(&store, key, size, name));
        assert_string_equal(names[i], name);
        for (size_t j = 0; j < i; j++)
            assert_false(strncmp(places[i].bytes, places[j].bytes, places[j].size) == 0 ||
                         strncmp(places[j].bytes, places[i].bytes, places[i].size) == 0);
        assert_int_not_equal(0, strncmp(once.bytes, places[i].bytes, places[i].size));
    }
    txn_add_tail_key(&once, "12ab", key, &size);
    assert_false(place_name_in(&store, key, size, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_come_back_as_they_went),
        cmocka_unit_test(what_is_not_base64_is_refused),
        cmocka_unit_test(a_blob_has_a_limit),
        cmocka_unit_test(numbers_are_strings_or_numbers),
        cmocka_unit_test(a_stream_is_cut_into_objects),
        cmocka_unit_test(a_stream_that_is_no_json_ends),
        cmocka_unit_test(an_object_without_end_has_a_limit),
        cmocka_unit_test(values_come_back_as_they_went),
        cmocka_unit_test(any_other_value_is_foreign),
        cmocka_unit_test(no_key_of_one_name_begins_like_those_of_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
