#include "once_tools.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

hf_once_options once_options_of(const struct context *context)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;

    options.wait_ms = PATIENCE_MS;
    if (context->features & HF_HAS_TTL)
        options.ttl_ms = LONG_TTL_MS;
    return options;
}

hf_once *must_begin(hf_store *store, const char *key, const hf_once_options *options)
{
    hf_once *once = NULL;
    int result = hf_once_begin(store, key, options, &once);

    if (result != HF_OK)
        fail_msg("'%s' was not begun: %s: %s", key, hf_result_name(result), hf_error());
    return once;
}

hf_once *must_run(hf_store *store, const char *key, const hf_once_options *options)
{
    hf_once *once = must_begin(store, key, options);

    if (!hf_once_runs(once))
        fail_msg("'%s' was not given to us to run", key);
    assert_int_equal(HF_ONCE_RUNNING, hf_once_state(once));
    assert_null(hf_once_result(once, NULL));
    assert_true(hf_once_token(once) >= 1);
    return once;
}

void must_finish(hf_once *once, const char *text)
{
    must(HF_OK, hf_once_finish(once, text, strlen(text), KEEP_MS));
}

void must_be_done(hf_once *once, uint64_t token, const void *bytes, size_t size)
{
    size_t got = 0;
    const void *result = hf_once_result(once, &got);

    assert_false(hf_once_runs(once));
    assert_null(hf_once_lock(once));
    assert_int_equal(HF_ONCE_DONE, hf_once_state(once));
    assert_non_null(result);
    assert_int_equal(size, got);
    assert_memory_equal(bytes, result, size);
    if (token)
        assert_true(hf_once_token(once) == token);
    hf_once_free(once);
}

int known(hf_store *store, uint64_t *ret_token)
{
    hf_once *once;
    int state;

    must(HF_OK, hf_once_read(store, "one", &once));
    state = hf_once_state(once);
    if (ret_token)
        *ret_token = hf_once_token(once);
    hf_once_free(once);
    return state;
}

bool knows_nothing(void *arg)
{
    return known(arg, NULL) == HF_ONCE_NOTHING;
}

bool knows_death(void *arg)
{
    return known(arg, NULL) == HF_ONCE_DIED;
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    hf_once *once;
    size_t size = 0;

    if (caller->begun)
        tally_add(caller->begun, 1);
    caller->result = hf_once_begin(caller->store, "one", &caller->options, &once);
    if (caller->result != HF_OK) {
        snprintf(caller->text, sizeof caller->text, "%.60s", hf_error());
        return NULL;
    }
    caller->token = hf_once_token(once);
    caller->ran = hf_once_runs(once);
    if (caller->ran) {
        snprintf(caller->text, sizeof caller->text, "run with token %llu",
                 (unsigned long long)caller->token);
        if (caller->runs)
            tally_add(caller->runs, 1);
        if (caller->go)
            tally_await(caller->go, 1);
        caller->result = hf_once_finish(once, caller->text, strlen(caller->text), KEEP_MS);
        return NULL;
    }
    snprintf(caller->text, sizeof caller->text, "%.*s", 63,
             (const char *)hf_once_result(once, &size));
    caller->text[size < 63 ? size : 63] = '\0';
    hf_once_free(once);
    return NULL;
}

void caller_start(struct caller *caller)
{
    pthread_t thread;

    assert_int_equal(0, pthread_create(&thread, NULL, call, caller));
    caller->thread = thread;
}

void caller_join(struct caller *caller)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(3 * PATIENCE_MS / 1000);
    if (pthread_timedjoin_np(caller->thread, NULL, &until) != 0)
        fail_msg("a caller never came back");
}
