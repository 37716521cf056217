/* test_scripts.c: plays the scripts (script.h says what they are) and compares what comes out with
 * what was recorded. HF_RECORD=1 writes it into the files instead: then read every line of the
 * difference, and ask the design whether it should be so. */
#include "script.h"
#include "tools.h"

#include <dirent.h>
#include <limits.h>

#define SCRIPTS_MAX 64

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    size_t size = 0, got;
    char block[4096];

    assert_non_null(file);
    while ((got = fread(block, 1, sizeof block, file)) > 0) {
        bytes = realloc(bytes, size + got + 1);
        assert_non_null(bytes);
        memcpy(bytes + size, block, got);
        size += got;
        bytes[size] = '\0';
    }
    fclose(file);
    assert_non_null(bytes); /* an empty script would be a mistake */
    return bytes;
}

static void write_whole(const char *path, const char *bytes)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_true(fwrite(bytes, 1, strlen(bytes), file) == strlen(bytes));
    assert_int_equal(0, fclose(file));
}

/* Says where two texts part, line by line. */
static void must_be_equal(const char *path, const char *expected, const char *played,
                          const char *how)
{
    int line = 1;

    if (strcmp(expected, played) == 0)
        return;
    while (*expected && *expected == *played) {
        size_t a = strcspn(expected, "\n"), b = strcspn(played, "\n");

        if (a != b || memcmp(expected, played, a) != 0)
            break;
        expected += a + (expected[a] == '\n');
        played += b + (played[b] == '\n');
        line++;
    }
    print_error("%s:%d: %s\n  recorded: %.*s\n  now:      %.*s\n", path, line, how,
                (int)strcspn(expected, "\n"), expected, (int)strcspn(played, "\n"), played);
    fail();
}

static void plays_as_recorded(void **state)
{
    const char *path = *state;
    char *script = read_whole(path), *played = script_play(path, script, false), *reborn;

    if (getenv("HF_RECORD"))
        write_whole(path, played);
    else
        must_be_equal(path, script, played, "it went otherwise");
    reborn = script_play(path, script, true);
    must_be_equal(path, played, reborn, "with a restored table it went otherwise");
    free(script);
    free(played);
    free(reborn);
}

static int is_script(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

int main(void)
{
    static struct CMUnitTest tests[SCRIPTS_MAX];
    static char paths[SCRIPTS_MAX][PATH_MAX];
    struct dirent **entries = NULL;
    int count = scandir(HF_SCRIPTS, &entries, is_script, alphasort);

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
    return _cmocka_run_group_tests("scripts", tests, (size_t)count, NULL, NULL);
}
