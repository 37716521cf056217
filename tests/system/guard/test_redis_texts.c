/* test_redis_texts.c: the Redis guard as a C program sees it. What the texts do is for test_redis.py. */
#include <holdfast/guard.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define THREADS 8

static void the_library_registers_each_operation(void **state)
{
    const char *library = hf_guard_redis_library();

    (void)state;
    assert_int_equal(strncmp(library, "#!lua name=" HF_GUARD_REDIS_LIBRARY "\n", 20), 0);
    assert_non_null(strstr(library, "function_name='holdfast_enter'"));
    assert_non_null(strstr(library, "function_name='holdfast_reset'"));
    assert_ptr_equal(library, hf_guard_redis_library());
}

static void each_operation_has_a_script(void **state)
{
    static const char *const names[] = {"enter", "set", "del", "hset", "reset"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *script = hf_guard_redis_script(names[i]);

        assert_non_null(script);
        assert_null(strstr(script, "register_function"));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(script, hf_guard_redis_script(names[j]));
    }
}

static void what_is_no_operation_has_none(void **state)
{
    static const char *const names[] = {"", "get", "wrap", "enter ", "SET", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_null(hf_guard_redis_script(names[i]));
        assert_non_null(strstr(hf_error(), "there are enter, set, del, hset and reset"));
    }
}

static void a_wrapped_script_is_the_callers(void **state)
{
    char *text = NULL;

    (void)state;
    assert_int_equal(hf_guard_redis_wrap(NULL, "return 1", &text), HF_OK);
    assert_non_null(strstr(text, "return 1\nend\n"));
    assert_null(strstr(text, "register_function"));
    free(text);
    assert_int_equal(hf_guard_redis_wrap("mine", "return 1", &text), HF_OK);
    assert_int_equal(strncmp(text, "#!lua name=holdfast_mine\n", 25), 0);
    assert_non_null(strstr(text, "function_name='mine'"));
    free(text);
}

static void what_cannot_be_wrapped_leaves_the_output_alone(void **state)
{
    char there, *text = &there;

    (void)state;
    assert_int_equal(hf_guard_redis_wrap("mine", "", &text), HF_EINVAL);
    assert_int_equal(hf_guard_redis_wrap("my-name", "return 1", &text), HF_EINVAL);
    assert_non_null(strstr(hf_error(), "'my-name'"));
    assert_int_equal(hf_guard_redis_wrap("mine", NULL, &text), HF_EINVAL);
    assert_ptr_equal(text, &there);
    assert_int_equal(hf_guard_redis_wrap("mine", "return 1", NULL), HF_EINVAL);
}

static void a_mark_that_does_not_fit_leaves_the_output_alone(void **state)
{
    char mark[HF_GUARD_REDIS_MARK_MAX] = "untouched", key[HF_KEY_MAX + 2];

    (void)state;
    assert_int_equal(hf_guard_redis_mark("x", mark, sizeof mark - 1), HF_EINVAL);
    assert_int_equal(hf_guard_redis_mark("", mark, sizeof mark), HF_EINVAL);
    assert_int_equal(hf_guard_redis_mark("a}b", mark, sizeof mark), HF_EINVAL);
    assert_int_equal(hf_guard_redis_mark(NULL, mark, sizeof mark), HF_EINVAL);
    assert_int_equal(hf_guard_redis_mark("x", NULL, sizeof mark), HF_EINVAL);
    memset(key, 'k', sizeof key);
    key[HF_KEY_MAX + 1] = '\0';
    assert_int_equal(hf_guard_redis_mark(key, mark, sizeof mark), HF_EINVAL);
    assert_string_equal(mark, "untouched");
    key[HF_KEY_MAX] = '\0';
    memcpy(key, "{t}", 3);
    assert_int_equal(hf_guard_redis_mark(key, mark, sizeof mark), HF_OK);
    assert_string_equal(mark + strlen(HF_GUARD_REDIS_MARKS "tag:"), key);
    assert_int_equal(hf_guard_redis_mark("x", mark, sizeof mark), HF_OK);
    assert_string_equal(mark, HF_GUARD_REDIS_MARKS "{x}");
}

static void *ask(void *ret_script)
{
    *(const char **)ret_script = hf_guard_redis_script("set");
    return NULL;
}

static void threads_get_the_same_texts(void **state)
{
    const char *scripts[THREADS];
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &scripts[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_string_equal(scripts[i], hf_guard_redis_script("set"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_get_the_same_texts), /* first: it is the one that makes them */
        cmocka_unit_test(the_library_registers_each_operation),
        cmocka_unit_test(each_operation_has_a_script),
        cmocka_unit_test(what_is_no_operation_has_none),
        cmocka_unit_test(a_wrapped_script_is_the_callers),
        cmocka_unit_test(what_cannot_be_wrapped_leaves_the_output_alone),
        cmocka_unit_test(a_mark_that_does_not_fit_leaves_the_output_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
