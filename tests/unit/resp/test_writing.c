/* test_writing.c: what is written, and that it can be read. */
#include "tools.h"

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
        cmocka_unit_test(what_is_written_is_this),
        cmocka_unit_test(what_is_written_can_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
