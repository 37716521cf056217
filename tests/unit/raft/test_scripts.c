/* test_scripts.c: plays the scripts (script.h says what they are) and compares what comes out with what was recorded.
 *
 *     test-raft-scripts [SCRIPT]     only this one, and prints it as it comes out
 *
 * HF_RECORD=1 writes it into the files instead: then read every line of the difference, and ask the thesis and the invariants
 * in raft.h whether it should be so. */
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPTS_MAX 96
#define SCRIPT_BYTES_MAX 65536

static struct cluster cluster;

static void read_whole(const char *path, char bytes[SCRIPT_BYTES_MAX])
{
    FILE *file = fopen(path, "rb");
    size_t size;

    assert_non_null(file);
    size = fread(bytes, 1, SCRIPT_BYTES_MAX - 1, file);
    assert_true(size > 0 && feof(file));
    bytes[size] = '\0';
    fclose(file);
}

static void write_whole(const char *path, const char *bytes)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_true(fwrite(bytes, 1, strlen(bytes), file) == strlen(bytes));
    assert_int_equal(0, fclose(file));
}

/* Says where two texts part, line by line. */
static void must_be_equal(const char *path, const char *expected, const char *played)
{
    int line = 1;

    if (strcmp(expected, played) == 0)
        return;
    for (size_t a, b; (a = strcspn(expected, "\n")) == (b = strcspn(played, "\n")) &&
                      memcmp(expected, played, a) == 0 && expected[a] && played[b];
         line++) {
        expected += a + 1;
        played += b + 1;
    }
    print_error("%s:%d: it went otherwise\n  recorded: %.*s\n  now:      %.*s\n", path, line,
                (int)strcspn(expected, "\n"), expected, (int)strcspn(played, "\n"), played);
    fail();
}

static char *play(const char *path, const char *script)
{
    char wrong[SCRIPT_WRONG_MAX];
    char *played = script_play(script, &cluster, wrong);

    if (!played) {
        print_error("%s: %s\n", path, wrong);
        fail();
    }
    return played;
}

static void plays_as_recorded(void **state)
{
    static char script[SCRIPT_BYTES_MAX];
    const char *path = *state;
    char *played;

    read_whole(path, script);
    played = play(path, script);
    if (getenv("HF_RECORD"))
        write_whole(path, played);
    else
        must_be_equal(path, script, played);
    if (strstr(played, "WRONG")) {
        print_error("%s: a ghost has seen something\n", path);
        fail();
    }
    free(played);
}

static void print_one(void **state)
{
    static char script[SCRIPT_BYTES_MAX];
    char *played;

    read_whole(*state, script);
    played = play(*state, script);
    fputs(played, stdout);
    free(played);
}

static int is_script(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[SCRIPTS_MAX];
    static char paths[SCRIPTS_MAX][PATH_MAX];
    struct CMUnitTest one = {.name = "script", .test_func = print_one};
    struct dirent **entries = NULL;
    int count;

    if (argc > 1) {
        one.initial_state = argv[1];
        return _cmocka_run_group_tests("script", &one, 1, NULL, NULL);
    }
    count = scandir(HF_SCRIPTS, &entries, is_script, alphasort);
    if (count < 1 || count > SCRIPTS_MAX) {
        print_error("there are no scripts, or too many, in %s\n", HF_SCRIPTS);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", HF_SCRIPTS, entries[i]->d_name);
        tests[i] = (struct CMUnitTest){.name = strrchr(paths[i], '/') + 1,
                                       .test_func = plays_as_recorded,
                                       .initial_state = paths[i]};
        free(entries[i]);
    }
    free(entries);
    return _cmocka_run_group_tests("raft-scripts", tests, (size_t)count, NULL, NULL);
}
