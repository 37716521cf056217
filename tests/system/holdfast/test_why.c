/* test_why.c: when nobody serves, which of the servers' words reach the user. Each of the fakes says one thing, as holdfastd does. */
#include "fake.h"
#include "tools.h"

#include <stdio.h>
#include <string.h>

#define FAKES 4

/* From what tells least to what tells most. */
static char *const words[FAKES] = {
    "-TRYAGAIN this node was started with --join and belongs to no cluster yet: add it, at a "
    "member "
    "of that cluster, with 'holdfast cluster add'\r\n",
    "-TRYAGAIN there is no leader at the moment\r\n",
    "-TRYAGAIN this node was removed from the cluster\r\n",
    "-STOPPED the log cannot be written: No space left on device\r\n",
};
static const char *const tell[FAKES] = {"add it", "no leader", "was removed", "No space left"};

static enum fake_verdict says(struct fake *fake, const struct fake_command *command,
                              char *ret_reply)
{
    (void)command;
    return fake_reply(ret_reply, fake->context);
}

static void must_tell(const char *url, const char *text)
{
    hf_options options = with_wait(0);
    hf_store *store = open_at("%s?timeout=500ms", url);
    hf_lock *lock;

    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say(text);
    hf_close(store);
}

/* Whoever speaks last: the servers are asked in the order of the URL, and then all of them again and again. */
static void what_tells_most_is_passed_on(void **state)
{
    struct fake fakes[FAKES] = {0};

    (void)state;
    for (int i = 0; i < FAKES; i++) {
        fakes[i] = (struct fake){
            .script = says, .role = "replica", .cluster = i ? NULL : "", .context = words[i]};
        fake_start(&fakes[i]);
    }
    for (int best = 1; best < FAKES; best++) {
        char up[256] = "holdfast://", down[256] = "holdfast://";

        for (int i = 0; i <= best; i++) {
            snprintf(up + strlen(up), sizeof up - strlen(up), "%s127.0.0.1:%d", i ? "," : "",
                     fakes[i].port);
            snprintf(down + strlen(down), sizeof down - strlen(down), "%s127.0.0.1:%d",
                     i ? "," : "", fakes[best - i].port);
        }
        must_tell(up, tell[best]);
        must_tell(down, tell[best]);
    }
    for (int i = 0; i < FAKES; i++)
        fake_stop(&fakes[i]);
}

/* Stopped for as long as its context counts, and then restarted. */
static enum fake_verdict is_restarted(struct fake *fake, const struct fake_command *command,
                                      char *ret_reply)
{
    int *left = fake->context;

    (void)command;
    return fake_reply(ret_reply, words[*left > 0 && (*left)-- > 0 ? FAKES - 1 : 1]);
}

static void of_one_server_the_last_word_counts(void **state)
{
    int left = 2;
    struct fake fake = {.script = is_restarted, .role = "replica", .context = &left};
    struct fake other = {.script = says, .role = "replica", .context = words[1]};
    char url[128];

    (void)state;
    fake_start(&fake);
    fake_start(&other);
    snprintf(url, sizeof url, "holdfast://127.0.0.1:%d,127.0.0.1:%d", fake.port, other.port);
    must_tell(url, "no leader");
    assert_int_equal(0, left);
    fake_stop(&fake);
    fake_stop(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_tells_most_is_passed_on),
        cmocka_unit_test(of_one_server_the_last_word_counts),
    };

    return cmocka_run_group_tests_name("holdfast: why nobody serves", tests, NULL, NULL);
}
