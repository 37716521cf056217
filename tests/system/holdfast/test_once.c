/* test_once.c: once-records, by a server that says what the test wants: what is asked, what a push means, what
 * happens when an answer is lost, and answers that cannot be. */
#include "fake.h"
#include "tools.h"

#include <holdfast/once.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define KEEP_MS 60000
#define HANGS_UP "" /* instead of an answer */

/* What it says: each list is answered from in order, its last entry for ever. NULL: the usual. */
struct says {
    const char **claim, **finish, **read, **renew;
};

static enum fake_verdict next_of(const char ***list, char *ret_reply)
{
    const char *text = **list;

    if ((*list)[1])
        (*list)++;
    return strcmp(text, HANGS_UP) == 0 ? FAKE_HANGS_UP : fake_reply(ret_reply, text);
}

static enum fake_verdict says(struct fake *fake, const struct fake_command *command,
                              char *ret_reply)
{
    struct says *what = fake->context;
    const char *word = command->words[1];

    if (fake_is(command, "RENEW") && what->renew)
        return next_of(&what->renew, ret_reply);
    if (!fake_is(command, "ONCE"))
        return fake_usual(command, ret_reply);
    if (strcmp(word, "CLAIM") == 0)
        return what->claim ? next_of(&what->claim, ret_reply)
                           : fake_reply(ret_reply, "*2\r\n$3\r\nRUN\r\n:7\r\n");
    if (strcmp(word, "FINISH") == 0 && what->finish)
        return next_of(&what->finish, ret_reply);
    if (strcmp(word, "READ") == 0)
        return what->read ? next_of(&what->read, ret_reply) : fake_reply(ret_reply, "_\r\n");
    return fake_reply(ret_reply, ":1\r\n");
}

#define LIST(...) ((const char *[]){__VA_ARGS__, NULL})

static hf_once_options with_wait_once(int64_t wait_ms)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;

    options.ttl_ms = TTL_MS;
    options.wait_ms = wait_ms;
    return options;
}

static hf_store *open_fake(struct fake *fake, struct says *what)
{
    *fake = (struct fake){.script = says, .context = what};
    fake_start(fake);
    return open_at("holdfast://127.0.0.1:%d?prefix=p/", fake->port);
}

static void end(struct fake *fake, hf_store *store)
{
    hf_close(store);
    fake_stop(fake);
}

/* ---- what is asked --------------------------------------------------------------------------- */

/* The words of the index-th ONCE, with blanks between them; LEASE for the lease. */
static const char *asked(struct fake *fake, int index)
{
    struct fake_command command = fake_command(fake, "ONCE", index);
    static char text[512];
    size_t used = 0;

    for (int i = 0; i < command.count; i++)
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%s", i ? " " : "",
            i == 3 && strcmp(command.words[1], "READ") != 0 ? "LEASE" : command.words[i]);
    return text;
}

static void the_words(void **state)
{
    struct says what = {0};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    hf_once_options options = with_wait_once(0);
    hf_once *once;

    (void)state;
    options.owner = "me";
    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    assert_string_equal("ONCE CLAIM p/one LEASE TTL 60000 KEEP 86400000 OWNER me", asked(&fake, 0));
    must(HF_OK, hf_once_finish(once, "re sult", 7, KEEP_MS));
    assert_string_equal("ONCE FINISH p/one LEASE TOKEN 7 KEEP 60000 re sult", asked(&fake, 1));
    assert_string_equal(fake_command(&fake, "ONCE", 0).words[3],
                        fake_command(&fake, "ONCE", 1).words[3]);
    options.wait_ms = 1000;
    options.fail_if_died = 1;
    options.death_ms = 5000;
    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    assert_string_equal("ONCE CLAIM p/one LEASE TTL 60000 KEEP 5000 PUSH NOHEIR OWNER me",
                        asked(&fake, 2));
    must(HF_OK, hf_once_release(once));
    assert_string_equal("ONCE RELEASE p/one LEASE TOKEN 7", asked(&fake, 3));
    must(HF_OK, hf_once_read(store, "one", &once));
    assert_string_equal("ONCE READ p/one", asked(&fake, 4));
    assert_int_equal(HF_ONCE_NOTHING, hf_once_state(once));
    hf_once_free(once);
    assert_int_equal(0, fake_count(&fake, "END"));
    end(&fake, store);
}

/* ---- answers that are lost, and no ----------------------------------------------------------- */

static void the_server_says_stale(void **state)
{
    struct says what = {.finish = LIST("-STALE the newest token is 9\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    hf_once_options options = with_wait_once(0);
    hf_once *once;

    (void)state;
    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    must(HF_ESTALE, hf_once_finish(once, "x", 1, KEEP_MS));
    must_say("(token 7) is not kept");
    must_say("the newest token is 9");
    end(&fake, store);
}

static void a_lost_answer_to_a_finish_is_asked_for_again(void **state)
{
    struct says what = {.finish = LIST(HANGS_UP, HANGS_UP, ":1\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    hf_once_options options = with_wait_once(0);
    hf_once *once;
    char first[512];

    (void)state;
    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    must(HF_OK, hf_once_finish(once, "x", 1, KEEP_MS));
    assert_int_equal(4, fake_count(&fake, "ONCE"));
    snprintf(first, sizeof first, "%s", asked(&fake, 1));
    assert_string_equal(first, asked(&fake, 2));
    assert_string_equal(first, asked(&fake, 3));
    end(&fake, store);
}

/* The first may still arrive, when what it was about is forgotten: the lease ends, however it goes on. */
static void a_lost_answer_to_a_claim_ends_its_lease(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct says what = {.claim =
                                LIST(HANGS_UP, i == 2 ? "*3\r\n$4\r\nDONE\r\n:7\r\n$2\r\n42\r\n"
                                                      : "*2\r\n$3\r\nRUN\r\n:7\r\n")};
        struct fake fake;
        hf_store *store = open_fake(&fake, &what);
        hf_once_options options = with_wait_once(0);
        hf_once *once;

        must(HF_OK, hf_once_begin(store, "one", &options, &once));
        assert_string_equal(fake_command(&fake, "ONCE", 0).words[3],
                            fake_command(&fake, "ONCE", 1).words[3]);
        if (i == 0)
            must(HF_OK, hf_once_finish(once, "x", 1, KEEP_MS));
        else
            must(HF_OK, hf_once_release(once));
        fake_await(&fake, "END", 1);
        assert_string_equal(fake_command(&fake, "ONCE", 0).words[3],
                            fake_command(&fake, "END", 0).words[1]);
        end(&fake, store);
    }
}

/* ---- pushes ---------------------------------------------------------------------------------- */

struct waits {
    hf_store *store;
    hf_once_options options;
    hf_once *once;
    int result;
    char error[256];
    pthread_t thread;
};

static void *wait_main(void *arg)
{
    struct waits *waits = arg;

    waits->result = hf_once_begin(waits->store, "one", &waits->options, &waits->once);
    if (waits->result != HF_OK)
        snprintf(waits->error, sizeof waits->error, "%s", hf_error());
    return NULL;
}

static void wait_start(struct waits *waits, hf_store *store)
{
    *waits = (struct waits){.store = store, .options = with_wait_once(10000)};
    pthread_create(&waits->thread, NULL, wait_main, waits);
}

/* A push to whoever made the first claim: `word` before its lease, `rest` after it. */
static void push(struct fake *fake, int items, const char *word, const char *name, const char *rest)
{
    char text[512], lease[FAKE_WORD_MAX];

    snprintf(lease, sizeof lease, "%s", fake_command(fake, "ONCE", 0).words[3]);
    snprintf(text, sizeof text, ">%d\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n%s", items,
             strlen(word), word, strlen(name), name, strlen(lease), lease, rest);
    fake_say(fake, text);
}

static void what_is_pushed_is_the_answer(void **state)
{
    struct says what = {.claim = LIST("+QUEUED\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    struct waits waits;
    size_t size;

    (void)state;
    wait_start(&waits, store);
    fake_await(&fake, "ONCE", 1);
    push(&fake, 5, "done", "p/another",
         ":8\r\n$3\r\nno!\r\n"); /* of another key: nothing of ours */
    push(&fake, 5, "done", "p/one", ":7\r\n$2\r\n42\r\n");
    pthread_join(waits.thread, NULL);
    must(HF_OK, waits.result);
    assert_int_equal(HF_ONCE_DONE, hf_once_state(waits.once));
    assert_int_equal(7, hf_once_token(waits.once));
    assert_memory_equal("42", hf_once_result(waits.once, &size), 2);
    assert_int_equal(2, size);
    hf_once_free(waits.once);
    assert_int_equal(1, fake_count(&fake, "ONCE")); /* nothing more was asked */
    assert_int_equal(0, fake_count(&fake, "END"));
    end(&fake, store);
}

static void a_death_that_is_pushed_is_the_answer(void **state)
{
    struct says what = {.claim = LIST("+QUEUED\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    struct waits waits;

    (void)state;
    wait_start(&waits, store);
    fake_await(&fake, "ONCE", 1);
    push(&fake, 5, "left", "p/one", "$4\r\ndied\r\n:6\r\n");
    pthread_join(waits.thread, NULL);
    must(HF_ELOST, waits.result);
    assert_non_null(strstr(waits.error, "(token 6) died"));
    assert_int_equal(1, fake_count(&fake, "ONCE"));
    end(&fake, store);
}

/* It is asked again, and that answer counts. */
static void a_push_that_cannot_be_is_a_reason_to_ask(void **state)
{
    static const struct {
        int items;
        const char *word, *rest;
    } pushes[] = {{4, "done", ":7\r\n"},         {5, "done", ":0\r\n$1\r\nx\r\n"},
                  {5, "done", ":7\r\n:5\r\n"},   {5, "done", "$4\r\nmany\r\n$1\r\nx\r\n"},
                  {4, "left", "$4\r\ndied\r\n"}, {5, "left", "$4\r\ndied\r\n$3\r\nwho\r\n"},
                  {4, "granted", ":7\r\n"}};

    (void)state;
    for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
        struct says what = {.claim = LIST("+QUEUED\r\n", "*2\r\n$3\r\nRUN\r\n:9\r\n")};
        struct fake fake;
        hf_store *store = open_fake(&fake, &what);
        struct waits waits;

        wait_start(&waits, store);
        fake_await(&fake, "ONCE", 1);
        push(&fake, pushes[i].items, pushes[i].word, "p/one", pushes[i].rest);
        pthread_join(waits.thread, NULL);
        must(HF_OK, waits.result);
        assert_true(hf_once_runs(waits.once));
        assert_int_equal(9, hf_once_token(waits.once));
        must(HF_OK, hf_once_release(waits.once));
        end(&fake, store);
    }
}

/* It comes together with the news that its lease is gone, which is why: it does not begin again. */
static void a_result_comes_with_the_end_of_the_lease(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        char renewed[512];
        struct says what = {.claim = LIST("+QUEUED\r\n")};
        struct fake fake;
        hf_store *store = open_fake(&fake, &what);
        struct waits waits = {.store = store, .options = with_wait_once(10000)};
        char lease[FAKE_WORD_MAX];

        waits.options.ttl_ms = 300;
        pthread_create(&waits.thread, NULL, wait_main, &waits);
        fake_await(&fake, "ONCE", 1);
        snprintf(lease, sizeof lease, "%s", fake_command(&fake, "ONCE", 0).words[3]);
        snprintf(renewed, sizeof renewed,
                 ">5\r\n$4\r\ndone\r\n$5\r\np/one\r\n$%zu\r\n%s\r\n:7\r\n$2\r\n42\r\n*1\r\n:-1\r\n",
                 strlen(lease), lease);
        pthread_mutex_lock(&fake.mutex);
        what.renew = LIST(renewed);
        pthread_mutex_unlock(&fake.mutex);
        pthread_join(waits.thread, NULL);
        must(HF_OK, waits.result);
        assert_int_equal(HF_ONCE_DONE, hf_once_state(waits.once));
        hf_once_free(waits.once);
        assert_int_equal(1, fake_count(&fake, "ONCE"));
        assert_int_equal(0, fake_count(&fake, "END"));
        end(&fake, store);
    }
}

/* ---- answers that cannot be ------------------------------------------------------------------ */

static void answers_that_cannot_be(void **state)
{
    static const char *const claims[] = {
        ":7\r\n",
        "+RUN\r\n",
        "*1\r\n$3\r\nRUN\r\n",
        "*2\r\n$3\r\nRUN\r\n:0\r\n",
        "*2\r\n$3\r\nRUN\r\n:9007199254740992\r\n",
        "*2\r\n$4\r\nWALK\r\n:7\r\n",
        "*2\r\n$4\r\nDONE\r\n:7\r\n",
        "*3\r\n$4\r\nDONE\r\n:7\r\n:1\r\n",
        "*3\r\n$4\r\nDONE\r\n$1\r\nx\r\n$1\r\nx\r\n",
    };
    static const char *const reads[] = {
        "+OK\r\n",
        "*1\r\n$4\r\nDONE\r\n",
        "*2\r\n$7\r\nRUNNING\r\n:0\r\n",
        "*3\r\n$4\r\nDONE\r\n:7\r\n$1\r\nx\r\n",
        "*4\r\n$4\r\nDONE\r\n:7\r\n_\r\n:1\r\n",
        "*2\r\n$4\r\nDIED\r\n:7\r\n",
        "*3\r\n$4\r\nDIED\r\n:-7\r\n:1\r\n",
    };
    struct says what = {.finish = LIST(":2\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    hf_once_options options = with_wait_once(0);
    hf_once *once;

    (void)state;
    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    must(HF_EINTERNAL, hf_once_finish(once, "x", 1, KEEP_MS));
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        pthread_mutex_lock(&fake.mutex);
        what.claim = LIST(claims[i]);
        pthread_mutex_unlock(&fake.mutex);
        must(HF_EINTERNAL, hf_once_begin(store, "one", &options, &once));
    }
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        pthread_mutex_lock(&fake.mutex);
        what.read = LIST(reads[i]);
        pthread_mutex_unlock(&fake.mutex);
        must(HF_EINTERNAL, hf_once_read(store, "one", &once));
    }
    end(&fake, store);
}

/* A server may know less of who runs it. */
static void somebody_runs_it(void **state)
{
    struct says what = {.read = LIST("*1\r\n$7\r\nRUNNING\r\n",
                                     "*5\r\n$7\r\nRUNNING\r\n:7\r\n$2\r\nme\r\n:12\r\n:34\r\n")};
    struct fake fake;
    hf_store *store = open_fake(&fake, &what);
    hf_once *once;

    (void)state;
    must(HF_OK, hf_once_read(store, "one", &once));
    assert_int_equal(HF_ONCE_RUNNING, hf_once_state(once));
    assert_string_equal("", hf_once_owner(once));
    assert_int_equal(-1, hf_once_age_ms(once));
    assert_int_equal(-1, hf_once_left_ms(once));
    hf_once_free(once);
    must(HF_OK, hf_once_read(store, "one", &once));
    assert_int_equal(7, hf_once_token(once));
    assert_string_equal("me", hf_once_owner(once));
    assert_int_equal(12, hf_once_age_ms(once));
    assert_int_equal(34, hf_once_left_ms(once));
    hf_once_free(once);
    end(&fake, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words),
        cmocka_unit_test(the_server_says_stale),
        cmocka_unit_test(a_lost_answer_to_a_finish_is_asked_for_again),
        cmocka_unit_test(a_lost_answer_to_a_claim_ends_its_lease),
        cmocka_unit_test(what_is_pushed_is_the_answer),
        cmocka_unit_test(a_death_that_is_pushed_is_the_answer),
        cmocka_unit_test(a_push_that_cannot_be_is_a_reason_to_ask),
        cmocka_unit_test(a_result_comes_with_the_end_of_the_lease),
        cmocka_unit_test(answers_that_cannot_be),
        cmocka_unit_test(somebody_runs_it),
    };

    return cmocka_run_group_tests_name("once", tests, NULL, NULL);
}
