/* test_notes.c: a note with a checksum: no bit of it can change unnoticed. */
#include "journal/text_file.h"
#include "tools.h"

#define LINES "2 91f0c4a7e2d35b68 4711\n3 - 12\n"

static struct room room;
static char text[TEXT_FILE_MAX + 1];

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    room_must_open(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    return 0;
}

static size_t written(char *ret_bytes)
{
    assert_int_equal(text_file_write_checked(&room.directory, "note", LINES, &room.err), HF_OK);
    assert_int_equal(text_file_read(&room.directory, "note", ret_bytes, &room.err), HF_OK);
    return strlen(ret_bytes);
}

static void test_lines_come_back_without_the_checksum(void **state)
{
    char bytes[TEXT_FILE_MAX + 1];

    (void)state;
    assert_true(written(bytes) > strlen(LINES));
    assert_int_equal(text_file_read_checked(&room.directory, "note", text, &room.err), HF_OK);
    assert_string_equal(text, LINES);
    assert_int_equal(text_file_write_checked(&room.directory, "note", "", &room.err), HF_OK);
    assert_int_equal(text_file_read_checked(&room.directory, "note", text, &room.err), HF_OK);
    assert_string_equal(text, "");
}

static void test_one_from_before_has_none(void **state)
{
    (void)state;
    assert_int_equal(text_file_write(&room.directory, "note", LINES, &room.err), HF_OK);
    assert_int_equal(text_file_read_checked(&room.directory, "note", text, &room.err), HF_OK);
    assert_string_equal(text, LINES);
}

/* Refused; or, if the word "checksum" is hit, there is a line that none of those who read notes knows. */
static void test_any_bit(void **state)
{
    char bytes[TEXT_FILE_MAX + 1];
    size_t size = written(bytes);

    (void)state;
    for (size_t i = 0; i < size; i++)
        for (unsigned bit = 1; bit < 256; bit *= 2) {
            int result;

            file_set(room.path, "note", i, (unsigned char)((unsigned char)bytes[i] ^ bit));
            result = text_file_read_checked(&room.directory, "note", text, &room.err);
            if (result == HF_OK)
                assert_true(strlen(text) > strlen(LINES));
            else
                assert_says(&room.err, "is damaged");
            file_set(room.path, "note", i, (unsigned char)bytes[i]);
        }
}

/* A crash may leave zeros, of the file's full length: no file that is not there, and none that ends before them. */
static void test_zeros_are_no_text(void **state)
{
    char bytes[TEXT_FILE_MAX + 1];
    size_t size = written(bytes);

    (void)state;
    for (size_t from = 0; from < size; from += strlen(LINES) / 2) {
        for (size_t i = from; i < size; i++)
            file_set(room.path, "note", i, 0);
        assert_int_equal(text_file_read(&room.directory, "note", text, &room.err), HF_EIO);
        assert_says(&room.err, "is damaged");
        written(bytes);
    }
}

static void test_one_that_would_be_too_long(void **state)
{
    char longest[TEXT_FILE_MAX + 1];

    (void)state;
    memset(longest, 'x', TEXT_FILE_MAX);
    longest[TEXT_FILE_MAX] = '\0';
    assert_int_equal(text_file_write_checked(&room.directory, "note", longest, &room.err),
                     HF_EINVAL);
    assert_int_equal(text_file_read_checked(&room.directory, "note", text, &room.err), HF_OK);
    assert_string_equal(text, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_lines_come_back_without_the_checksum),
        TEST(test_one_from_before_has_none),
        TEST(test_any_bit),
        TEST(test_zeros_are_no_text),
        TEST(test_one_that_would_be_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
