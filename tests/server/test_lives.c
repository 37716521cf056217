/* test_lives.c: what members tell each other of their lives, in full: src/server/lives.c */
#include "replica/network.h"
#include "replica/storing.h"
#include "server/lives.h"
#include "tools.h"

#include <inttypes.h>

#define LIFE "0123456789abcdef0123456789abcdef"

static struct error_text err;

static struct storage *open_storage(const char *name)
{
    struct storage *storage = calloc(1, sizeof *storage);

    assert_non_null(storage);
    assert_int_equal(mkdir(path_of(name), 0700), 0);
    assert_int_equal(directory_open(path_of(name), &storage->directory, &err), HF_OK);
    return storage;
}

static void close_storage(struct storage *storage)
{
    directory_close(&storage->directory);
    free(storage);
}

static void tell_one(struct lives *lives, const struct storage *storage, uint64_t id,
                     const char *life, uint64_t index)
{
    char text[128];

    snprintf(text, sizeof text, "%" PRIu64 "/%s/%" PRIu64, id, life, index);
    assert_int_equal(lives_told(lives, storage, 1, text, &err), HF_OK);
}

/* As many as there may be, each as long as it may be: it is told whole, nothing is written behind it, and others take it in. */
static void the_longest_text_is_told(void **state)
{
    struct storage *storage = open_storage("long"), *other = open_storage("other");
    struct lives lives = {0}, told = {0};
    struct {
        char text[LIVES_TEXT_MAX + 1], behind[512];
    } told_text;

    (void)state;
    memset(&told_text, '!', sizeof told_text);
    for (unsigned i = 0; i < LIVES_MAX; i++)
        tell_one(&lives, storage, UINT64_MAX - i, LIFE, UINT64_MAX - i);
    assert_int_equal(lives.count, LIVES_MAX);
    lives_tell(&lives, told_text.text);
    for (size_t i = 0; i < sizeof told_text.behind; i++)
        assert_int_equal(told_text.behind[i], '!');
    assert_true(strlen(told_text.text) + sizeof "lives 0 " <= NETWORK_WORDS_MAX);
    assert_int_equal(lives_told(&told, other, 1, told_text.text, &err), HF_OK);
    assert_int_equal(told.count, LIVES_MAX);
    for (unsigned i = 0; i < LIVES_MAX; i++)
        assert_string_equal(lives_text(&told, UINT64_MAX - i).bytes, LIFE);
    assert_int_equal(lives_load(&told, other, &err), HF_OK);
    assert_int_equal(told.count, LIVES_MAX);
    close_storage(storage);
    close_storage(other);
}

/* [S1] What is older than what one knows does not count, and nobody is told of its own life. */
static void only_what_is_newer_counts(void **state)
{
    struct storage *storage = open_storage("newer");
    struct lives lives = {0};

    (void)state;
    tell_one(&lives, storage, 2, "aaaa", 10);
    tell_one(&lives, storage, 2, "bbbb", 9);
    assert_string_equal(lives_text(&lives, 2).bytes, "aaaa");
    tell_one(&lives, storage, 2, "-", 11);
    assert_int_equal(lives_text(&lives, 2).size, 0);
    assert_non_null(lives_find(&lives, 2));
    tell_one(&lives, storage, 2, "bbbb", 12);
    assert_string_equal(lives_text(&lives, 2).bytes, "bbbb");
    tell_one(&lives, storage, 1, "cccc", 99);
    assert_null(lives_find(&lives, 1));
    close_storage(storage);
}

/* An id may be removed as often as one likes: the removals of longest ago make room. */
static void those_that_were_removed_make_room(void **state)
{
    struct storage *storage = open_storage("removed");
    struct lives lives = {0};

    (void)state;
    for (uint64_t id = 2; id < 2 + 3 * LIVES_MAX; id++) {
        tell_one(&lives, storage, id, "aaaa", 2 * id);
        tell_one(&lives, storage, id, "-", 2 * id + 1);
    }
    assert_int_equal(lives.count, LIVES_MAX);
    assert_null(lives_find(&lives, 2));
    assert_non_null(lives_find(&lives, 1 + 3 * LIVES_MAX));
    close_storage(storage);
}

static void what_is_no_such_text_is_ignored(void **state)
{
    static const char *const texts[] = {"",
                                        "2",
                                        "2/",
                                        "2/aaaa",
                                        "2/aaaa/",
                                        "/aaaa/1",
                                        "x/aaaa/1",
                                        "-2/aa/1",
                                        "2/AAAA/1",
                                        "2/a a/1",
                                        "2//1",
                                        "99999999999999999999/aa/1",
                                        "2/aa/99999999999999999999",
                                        "2/0123456789abcdef0123456789abcdef0/1"};
    struct storage *storage = open_storage("ignored");
    struct lives lives = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_int_equal(lives_told(&lives, storage, 1, texts[i], &err), HF_OK);
        assert_int_equal(lives.count, 0);
    }
    close_storage(storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_text_is_told),
        cmocka_unit_test(only_what_is_newer_counts),
        cmocka_unit_test(those_that_were_removed_make_room),
        cmocka_unit_test(what_is_no_such_text_is_ignored),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
