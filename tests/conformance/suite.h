/* suite.h: what the files of the conformance suite share.
 *
 * The suite runs unchanged over every store, through the public API only. What a store does not declare is
 * not asked of it, and main.c says so.
 *
 * A kind is a store as the suite meets it: its URL, and the servers behind it. To run the suite over a new
 * store, write kinds/NAME.c, which ends with a table
 *
 *     const struct store_kind NAME_kinds[] = {{.name = "NAME", ...}, {0}};
 *
 * and add a line to the list in meson.build. kinds/file.c is the shortest, kinds/redis.c has a server that
 * all tests share, kinds/holdfast.c one for each test. Servers are started by tests/lib/servers; where they are to fail meanwhile, a process of
 * its own has them (warden.h). */
#ifndef TESTS_CONFORMANCE_SUITE_H
#define TESTS_CONFORMANCE_SUITE_H

#include <holdfast/holdfast.h>
#include <holdfast/once.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#define PATIENCE_MS \
    INT64_C(10000) /* what must happen must happen by then, also on a busy machine */
/* What is only awaited, without a word about how soon: a server may just have been killed, and be slow to start. */
#define AWAIT_MS INT64_C(30000)
#define SHORT_TTL_MS INT64_C(600)  /* for tests that wait for it to run out: through ttl_of */
#define LONG_TTL_MS INT64_C(20000) /* for tests in which nothing may run out */
#define HELPERS_MAX 8
#define LINE_SIZE 3072
#define URL_SIZE 1024

#define TIME_MAX_S 110 /* a hang becomes a failure, before the test runner calls it one */
#define TIME_MAX_NETWORK_S 290

struct context;

struct store_kind {
    const char *name;
    const char *url; /* with one %s: a fresh directory */
    /* Does hf_show tell of those who wait? If not, a test that needs to know gives them time. */
    bool shows_waiters;
    /* A store with servers: they are started before the first test, and live as long as this run. Says the
     * URL, in which %s is a fresh directory's path as well, but percent-encoded, to be made a prefix of. */
    int (*start)(char ret_url[URL_SIZE]);
    void (*stop)(void);
    /* Instead: a store that is all of a server. Each fresh directory has one of its own, which is stopped
     * after the test. */
    int (*start_for)(const char *dir, char ret_url[URL_SIZE]);
    void (*stop_all)(void);
    unsigned int time_max_s; /* 0: TIME_MAX_S */
    /* The shortest TTL of a store whose time is coarse, such as one that counts whole seconds; 0: any will do. Tests
     * that wait for a TTL to run out take no shorter one (ttl_of), which makes them slow: leave it out if you can. */
    int64_t short_ttl_ms;
    bool leaders_fall; /* and only some tests are run, unless HF_SOAK is set */
};

/* Another process, running this program with --hold; see helper.c. */
struct helper {
    pid_t pid;
    int to, from;
    char unread[LINE_SIZE];
    size_t unread_size;
};

struct context {
    const struct store_kind *kind;
    char dir[512];
    char url[URL_SIZE];
    hf_store *store;
    uint32_t features;
    struct helper helpers[HELPERS_MAX];
    int helper_count;
};

/* TTL of a hold that a test keeps by renewals: in a third of it, a disk that other tests fill must have synced one.
 * Likewise through ttl_of. */
#define RENEWED_TTL_MS 2000

struct suite_test {
    const char *name;
    void (*run)(void **state);
    uint32_t needs;    /* features without which it is not run */
    uint32_t needs_no; /* features with which it is not run */
    /* It has a hold with a TTL that a server may need to be started again, or does something that is not known to be done if the
     * answer is lost, as a break: the server is not killed in this test. */
    bool steady;
    /* Why it is also spared where a leader falls, and another one has to be chosen; or NULL. */
    const char *fragile;
    bool brief; /* also run where servers suffer and HF_SOAK is not set */
};

#define SUITE_TEST(function, ...)                       \
    {                                                   \
        .name = #function, .run = function, __VA_ARGS__ \
    }

extern const struct suite_test acquiring_tests[], waiting_tests[], dying_tests[], asking_tests[],
    breaking_tests[], started_tests[], mode_tests[], lease_tests[], once_tests[], once_end_tests[],
    progress_tests[];

/* main.c: the URL of a store of this kind whose place is `dir`. 0, or -1 with words on stderr. */
int url_in(const char *dir, char ret_url[URL_SIZE]);

/* main.c: the present test wants a server that stays. */
extern bool steady_server;

/* Reasons to be fragile. A new leader is there after a second or two. */
#define WAITS_BRIEFLY "its wait is over before another leads: then the store cannot be reached"
#define HOLDS_BRIEFLY "its hold ends before another leads"
#define BREAKS "a break whose answer is lost is unknown"
#define RELEASES_WHAT_IS_LOST "a release whose answer is lost does not say that it came too late"

/* main.c: where this program is. */
extern char program_path[4096];

/* ---- support.c */

int64_t now_ms(void);
void sleep_ms(int64_t ms);
/* Options with a wait of PATIENCE_MS, and LONG_TTL_MS where there is a TTL. */
hf_options options_of(const struct context *context);
/* A TTL of so many ms, or the shortest that this kind of store has. */
int64_t ttl_of(const struct context *context, int64_t ttl_ms);
/* The same as options_of with SHORT_TTL_MS. */
hf_options short_options_of(const struct context *context);
hf_store *open_another(const struct context *context);
/* Somebody holds it. Where leaders fall, a store may not be reached for longer than one try lasts: then it is asked again. */
void must_be_busy(const struct context *context, hf_store *store, const char *name,
                  const hf_options *options);
/* hf_try, for a name that is free. Where servers are killed, both answers that it waits for may be lost: then again. */
int try_free(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_lock);
/* Acquires or fails the test, with the reason in words. */
hf_lock *must_acquire(hf_store *store, const char *name, const hf_options *options);
void must(int expected, int result);
int count_entries(hf_store *store, const char *name, int kind);
/* Until that many wait for the name, as far as the store tells. */
void await_waiters(const struct context *context, const char *name, int count);
/* Until the callback says so. For what has no event to wait for. */
void eventually(bool (*condition)(void *arg), void *arg, const char *what);
/* Until the lock's descriptor says it is lost. */
void await_lost(hf_lock *lock);

/* A counter that one thread raises and another waits for. */
struct tally {
    void *inside; /* mutex and condition, made by tally_new */
};
void tally_new(struct tally *tally);
void tally_free(struct tally *tally);
void tally_add(struct tally *tally, int count);
int tally_now(struct tally *tally);
void tally_await(struct tally *tally, int least);

/* An hf_acquire on a thread of its own. */
struct waiter {
    hf_store *store;
    const char *name;
    hf_options options;
    hf_lock *lock;
    int result;
    int64_t ended_ms;
    unsigned long thread;
};
void waiter_start(struct waiter *waiter, hf_store *store, const char *name,
                  const hf_options *options);
/* Its result. */
int waiter_join(struct waiter *waiter);

/* ---- helper.c */

/* Starts a process that acquires the name. extra: words such as "ttl=500", "mode=shared",
 * "permits=3", "delay=700", "once" (then the name is the key of what it is to run); or NULL. A TTL is what
 * ttl_of makes of it, and none on a store without. Belongs to the context, which ends it after the test. */
struct helper *helper_start(struct context *context, const char *name, const char *extra);
void helper_say(struct helper *helper, const char *line);
/* The rest of the next line, which must begin with `word`. Lives until the next call. */
const char *helper_hear(struct helper *helper, const char *word);
/* Starts it and waits until it holds; returns its token. */
uint64_t helper_hold(struct context *context, const char *name, const char *extra,
                     struct helper **ret_helper);
void helper_kill(struct helper *helper);
void helpers_end(struct context *context);
/* The process itself. */
int helper_main(int argc, char **argv);

#endif
