/* test_shipped.c: what is shipped beside the server agrees with its table of settings. */
#include "server/settings.h"
#include "tools.h"

static char *shipped(const char *name)
{
    const char *root = getenv("HF_SOURCE_ROOT");
    char path[PATH_BYTES];

    assert_non_null(root);
    snprintf(path, sizeof path, "%s/%s", root, name);
    return read_whole(path);
}

/* As it is shipped, everything in it is a comment. */
static void assert_changes_nothing(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
        assert_true(line[0] == '#' || line[0] == '\n' || line[0] == '\0');
}

/* dist/holdfastd.conf has every row of the table in its order, with its help and its default. */
static void the_shipped_file_agrees_with_the_table(void **state)
{
    char *text = shipped("dist/holdfastd.conf"), *at = text;
    size_t lines = 0;

    (void)state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &settings[i];
        const char *value = row->standard[0] ? row->standard : row->example;
        char group[128], help[256], line[256], *found;

        snprintf(group, sizeof group, "\n## %s\n", row->group);
        snprintf(help, sizeof help, "\n# %s\n", row->help);
        snprintf(line, sizeof line, "\n#%s = %s\n", row->name, value);
        if (i == 0 || strcmp(row->group, settings[i - 1].group) != 0)
            assert_contains(at, group);
        assert_contains(at, help);
        found = strstr(at, help);
        at = found + strlen(help) - 1;
        assert_contains(at, line);
        at = strstr(at, line) + strlen(line) - 1;
        /* Between help and value there is nothing but more words about it. */
        for (found += 1; found < at - strlen(line) + 1; found = strchr(found, '\n') + 1)
            assert_memory_equal("# ", found, 2);
    }
    for (at = text; at; at = strchr(at, '\n'), at += at != NULL) /* and nothing else */
        lines += at[0] == '#' && at[1] >= 'a' && at[1] <= 'z';
    assert_int_equal(setting_count, lines);
    assert_changes_nothing(text);
    free(text);
}

static void the_manual_agrees_with_the_table(void **state)
{
    char *text = shipped("man/holdfastd.conf.5"), *at = text;
    size_t items = 0;

    (void)state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &settings[i];
        char item[256];

        snprintf(item, sizeof item,
                 row->standard[0] ? "\n.It Cm %s No = Ar %s Pq Li %s\n"
                                  : "\n.It Cm %s No = Ar %s\n",
                 row->name, setting_value_name(row), row->standard);
        assert_contains(at, item);
        at = strstr(at, item) + 1;
    }
    for (at = text; (at = strstr(at, "\n.It Cm ")); at++)
        items++;
    assert_int_equal(setting_count, items);
    free(text);
}

static void the_unit_knows_our_exit_statuses(void **state)
{
    char *text = shipped("dist/holdfastd.service.in"), expected[64];

    (void)state;
    snprintf(expected, sizeof expected, "\nRestartPreventExitStatus=%d %d\n", CONFIG_USAGE,
             CONFIG_WRONG);
    assert_contains(text, expected);
    free(text);
}

/* The server's user can read neither of the two files: systemd hands both on. */
static void the_unit_hands_on_both_secrets(void **state)
{
    char *text = shipped("dist/holdfastd.service.in");

    (void)state;
    assert_contains(text, "\n#LoadCredential=password:/etc/holdfast/password\n");
    assert_contains(text, "\n#Environment=HOLDFASTD_PASSWORD_FILE=%d/password\n");
    assert_contains(text, "\n#LoadCredential=secret:/etc/holdfast/secret\n");
    assert_contains(text, "\n#Environment=HOLDFASTD_SECRET_FILE=%d/secret\n");
    free(text);
}

static void the_installed_unit_names_the_installed_program(void **state)
{
    const char *unit = getenv("HF_UNIT"), *program = getenv("HF_INSTALLED");
    char *text, expected[PATH_BYTES];

    (void)state;
    assert_true(unit && program && program[0] == '/');
    text = read_whole(unit);
    snprintf(expected, sizeof expected, "\nExecStart=%s\n", program);
    assert_contains(text, expected);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_file_agrees_with_the_table),
        cmocka_unit_test(the_manual_agrees_with_the_table),
        cmocka_unit_test(the_unit_knows_our_exit_statuses),
        cmocka_unit_test(the_unit_hands_on_both_secrets),
        cmocka_unit_test(the_installed_unit_names_the_installed_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
