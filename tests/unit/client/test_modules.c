/* Loading stores that are modules: what a missing or unfitting one says. */
#include "fixture.h"

#include "engines/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void a_module_is_loaded_with_its_first_use(void **state)
{
    const struct engine *engine = NULL, *again = NULL;
    struct error_text err = {""};

    (void)state;
    assert_int_equal(HF_OK, engines_find("test", &engine, &err));
    assert_int_equal(ENGINE_ABI, engine->abi);
    assert_string_equal("test", engine->traits.scheme);
    assert_int_equal(HF_OK, engines_find("test", &again, &err));
    assert_ptr_equal(engine, again);
}

static void a_module_of_another_version_is_refused(void **state)
{
    const struct engine *engine = NULL;
    struct error_text err = {""};
    int result = engines_find("testabi", &engine, &err);

    (void)state;
    assert_int_equal(HF_EMODULE, result);
    assert_null(engine);
    assert_non_null(strstr(err.text, "does not fit"));
}

static void a_missing_module_is_named(void **state)
{
    const struct engine *engine = NULL;
    struct error_text err = {""};
    int result = engines_find("nothing-of-the-kind", &engine, &err);

    (void)state;
    assert_int_equal(HF_EINVAL, result);
    assert_non_null(strstr(err.text, "nothing-of-the-kind"));
    assert_null(engine);
}

/* Whoever has a package of the command and asks for a store of another one. */
static void a_module_that_is_not_installed_names_its_package(void **state)
{
    static const char *const stores[][2] = {{"etcd", "etcd"},
                                            {"etcds", "etcd"},
                                            {"postgres", "postgres"},
                                            {"postgresql", "postgres"},
                                            {"zookeeper", "zookeeper"}};
    const char *dir = getenv("HOLDFAST_MODULE_DIR");
    char *saved = strdup(dir ? dir : "");

    (void)state;
    assert_non_null(saved);
    setenv("HOLDFAST_MODULE_DIR", "/nowhere", 1);
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        const struct engine *engine = NULL;
        struct error_text err = {""};
        char words[64];

        snprintf(words, sizeof words, "; install holdfast-%s: the package", stores[i][1]);
        assert_int_equal(HF_EMODULE, engines_find(stores[i][0], &engine, &err));
        assert_non_null(strstr(err.text, words));
        assert_true(strlen(err.text) < sizeof err.text - 1); /* and is told to its end */
    }
    setenv("HOLDFAST_MODULE_DIR", saved, 1);
    free(saved);
}

/* An engine of somebody else, which cannot be loaded: we do not know who brings it. */
static void a_module_of_somebody_else_names_no_package(void **state)
{
    const char *dir = getenv("HOLDFAST_MODULE_DIR");
    char *saved = strdup(dir ? dir : ""), folder[] = "modules-XXXXXX", path[64];
    const struct engine *engine = NULL;
    struct error_text err = {""};
    FILE *file;

    (void)state;
    assert_non_null(saved);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/holdfast-theirs.so", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(0, fclose(file));
    setenv("HOLDFAST_MODULE_DIR", folder, 1);
    assert_int_equal(HF_EMODULE, engines_find("theirs", &engine, &err));
    assert_non_null(strstr(err.text, "holdfast-theirs.so"));
    assert_null(strstr(err.text, "install"));
    setenv("HOLDFAST_MODULE_DIR", saved, 1);
    assert_int_equal(0, unlink(path));
    assert_int_equal(0, rmdir(folder));
    free(saved);
}

static void a_module_is_looked_for_where_the_variable_says(void **state)
{
    const char *dir = getenv("HOLDFAST_MODULE_DIR");
    const struct engine *engine = NULL;
    struct error_text err = {""};
    char *saved = strdup(dir ? dir : "");

    (void)state;
    assert_non_null(saved);
    setenv("HOLDFAST_MODULE_DIR", "/nowhere", 1);
    assert_int_not_equal(HF_OK, engines_find("testweak", &engine, &err));
    setenv("HOLDFAST_MODULE_DIR", saved, 1);
    assert_int_equal(HF_OK, engines_find("testweak", &engine, &err));
    assert_int_equal(HF_BEST_EFFORT, engine->traits.exclusion);
    free(saved);
}

static void count_engine(const hf_store_info *info, void *arg)
{
    int *found = arg;

    assert_true(info->size == sizeof *info);
    assert_true(strlen(info->scheme) > 0);
    if (strcmp(info->scheme, "file") == 0) {
        ++*found;
        assert_null(info->missing);
        assert_int_equal(HF_STRICT, info->exclusion);
        assert_int_equal(HF_STRICT, info->tokens);
        assert_false(info->features & HF_HAS_TTL);
    }
}

static void the_build_knows_its_engines(void **state)
{
    int found = 0;

    (void)state;
    assert_int_equal(HF_OK, hf_engines(count_engine, &found));
    assert_int_equal(1, found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_that_is_not_installed_names_its_package),
        cmocka_unit_test(a_module_of_somebody_else_names_no_package),
        cmocka_unit_test(a_module_is_looked_for_where_the_variable_says),
        cmocka_unit_test(a_module_is_loaded_with_its_first_use),
        cmocka_unit_test(a_module_of_another_version_is_refused),
        cmocka_unit_test(a_missing_module_is_named),
        cmocka_unit_test(the_build_knows_its_engines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
