/* test_lookup.c: names that take their time. The resolver is the test's: it is at work until it is let go, and counts. Each test has its own
 * names: a search that is just ending would be joined. */
#include "net/lookup.h"
#include "net/stream.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 30000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int begun, ended; /* searches */
static bool lets_go;
static bool in_child; /* where nobody is waited for */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found)
{
    int result;

    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, ret_found);
    if (in_child)
        return __real_getaddrinfo("127.0.0.1", port, hints, ret_found);
    pthread_mutex_lock(&mutex);
    begun++;
    pthread_cond_broadcast(&changed);
    while (!lets_go)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    result = strcmp(host, "nowhere.test") == 0
                 ? EAI_NONAME
                 : __real_getaddrinfo("127.0.0.1", port, hints, ret_found);
    pthread_mutex_lock(&mutex);
    ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return result;
}

static int set_up(void **state)
{
    (void)state;
    begun = ended = 0;
    lets_go = false;
    return 0;
}

static void let_go(void)
{
    pthread_mutex_lock(&mutex);
    lets_go = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void await(const int *count, int expected)
{
    pthread_mutex_lock(&mutex);
    while (*count < expected)
        pthread_cond_wait(&changed, &mutex);
    assert_int_equal(expected, *count);
    pthread_mutex_unlock(&mutex);
}

static struct address address_of(const char *text)
{
    struct error_text err;
    struct address address;

    assert_int_equal(HF_OK, address_parse(text, strlen(text), "7420", &address, &err));
    return address;
}

static struct lookup *begin(const struct address *address)
{
    struct error_text err;
    struct lookup *lookup = NULL;

    assert_int_equal(HF_OK, lookup_begin(address, &lookup, &err));
    return lookup;
}

static bool is_readable(const struct lookup *lookup, int ms)
{
    struct pollfd over = {.fd = lookup_fd(lookup), .events = POLLIN};

    return poll(&over, 1, ms) == 1;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void it_is_told_when_it_is_over(void **state)
{
    struct address address = address_of("told.test");
    struct lookup *lookup = begin(&address);
    const struct addrinfo *found = NULL;
    struct error_text err;

    (void)state;
    await(&begun, 1);
    assert_int_equal(LOOKUP_AGAIN, lookup_result(lookup, &found, &err));
    assert_false(is_readable(lookup, 0));
    let_go();
    assert_true(is_readable(lookup, PATIENCE_MS));
    assert_int_equal(HF_OK, lookup_result(lookup, &found, &err));
    assert_int_equal(AF_INET, found->ai_family);
    lookup_end(lookup);
}

static void a_name_that_is_not_there_is_said(void **state)
{
    struct address address = address_of("nowhere.test");
    struct lookup *lookup = begin(&address);
    const struct addrinfo *found = NULL;
    struct error_text err;

    (void)state;
    let_go();
    assert_true(is_readable(lookup, PATIENCE_MS));
    assert_int_equal(HF_EUNREACH, lookup_result(lookup, &found, &err));
    assert_non_null(strstr(err.text, "nowhere.test:7420: "));
    lookup_end(lookup);
}

static void those_who_ask_for_one_name_share_a_search(void **state)
{
    struct address address = address_of("shared.test"), other = address_of("slower.test");
    struct lookup *lookups[] = {begin(&address), begin(&address), begin(&address), begin(&other)};
    const struct addrinfo *found = NULL;
    struct error_text err;

    (void)state;
    await(&begun, 2);
    lookup_end(lookups[0]);
    let_go();
    for (int i = 1; i < 4; i++) {
        assert_true(is_readable(lookups[i], PATIENCE_MS));
        assert_int_equal(HF_OK, lookup_result(lookups[i], &found, &err));
    }
    lookup_end(lookups[1]);
    assert_int_equal(HF_OK, lookup_result(lookups[2], &found, &err)); /* there for who has it */
    assert_int_equal(AF_INET, found->ai_family);
    lookup_end(lookups[2]);
    lookup_end(lookups[3]);
    lookup_end(begin(&address)); /* what is over is asked for anew */
    await(&begun, 3);
    await(&ended, 3);
}

static void whoever_gives_up_does_not_wait(void **state)
{
    struct address address = address_of("given-up.test");

    (void)state;
    for (int i = 0; i < 100; i++)
        lookup_end(begin(&address));
    await(&begun, 1); /* and not another one each time */
    let_go();
    await(&ended, 1);
}

/* The thread is not there: the child's own question is another one. */
static void a_child_asks_for_itself(void **state)
{
    struct address address = address_of("child.test");
    struct lookup *lookup = begin(&address);
    int status = 0;
    pid_t child;

    (void)state;
    await(&begun, 1);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct lookup *own;
        struct error_text err;

        lookup_after_fork(lookup);
        in_child = true;
        if (lookup_begin(&address, &own, &err) != HF_OK)
            _exit(1);
        _exit(is_readable(own, PATIENCE_MS) ? 0 : 2);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    let_go();
    assert_true(is_readable(lookup, PATIENCE_MS));
    lookup_end(lookup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_is_told_when_it_is_over, set_up),
        cmocka_unit_test_setup(a_name_that_is_not_there_is_said, set_up),
        cmocka_unit_test_setup(those_who_ask_for_one_name_share_a_search, set_up),
        cmocka_unit_test_setup(whoever_gives_up_does_not_wait, set_up),
        cmocka_unit_test_setup(a_child_asks_for_itself, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
