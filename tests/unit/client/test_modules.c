/* Loading stores that are modules: what a missing or unfitting one says. */
#include "fixture.h"

#include "engines/engine.h"

#include <stdlib.h>
#include <string.h>

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
        cmocka_unit_test(a_module_is_looked_for_where_the_variable_says),
        cmocka_unit_test(a_module_is_loaded_with_its_first_use),
        cmocka_unit_test(a_module_of_another_version_is_refused),
        cmocka_unit_test(a_missing_module_is_named),
        cmocka_unit_test(the_build_knows_its_engines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
