/* main.c: conformance KIND [PATTERN] runs the suite over one kind of store. */
#include "base/text.h"
#include "suite.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TESTS_MAX 256

/* The tables of kinds/, as meson.build lists them. */
#define KINDS(file) extern const struct store_kind file##_kinds[];
#include "kinds.h"
#undef KINDS
#define KINDS(file) file##_kinds,
static const struct store_kind *const all_kinds[] = {
#include "kinds.h"
};

static const struct suite_test *const all_tests[] = {
    acquiring_tests, waiting_tests, dying_tests, asking_tests,   breaking_tests, started_tests,
    mode_tests,      lease_tests,   once_tests,  once_end_tests, progress_tests,
};

static const struct store_kind *kind;
static char kind_url[URL_SIZE]; /* with its %s */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int url_in(const char *dir, char ret_url[URL_SIZE])
{
    char place[URL_SIZE];
    size_t length = strlen(dir);
    int size;

    if (kind->start_for)
        return kind->start_for(dir, ret_url);
    if (kind->start)
        length = text_percent_encode(dir, length, "/-._~", place, sizeof place);
    else
        memcpy(place, dir, length + 1);
    size = snprintf(ret_url, URL_SIZE, kind_url, place);
    if (length < sizeof place && size >= 0 && size < URL_SIZE)
        return 0;
    fprintf(stderr, "the path is too long: %s\n", dir);
    return -1;
}

static int make_context(struct context *context)
{
    const char *base = getenv("HOLDFAST_TEST_DIR");

    *context = (struct context){.kind = kind};
    snprintf(context->dir, sizeof context->dir, "%s/conformance.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(context->dir))
        return -1;
    if (url_in(context->dir, context->url) < 0) {
        rmdir(context->dir);
        return -1;
    }
    if (hf_open(context->url, &context->store) != HF_OK) {
        fprintf(stderr, "cannot open %s: %s\n", context->url, hf_error());
        if (kind->stop_all)
            kind->stop_all();
        rmdir(context->dir);
        return -1;
    }
    context->features = hf_info(context->store)->features;
    return 0;
}

static void drop_context(struct context *context)
{
    helpers_end(context);
    hf_close(context->store);
    if (kind->stop_all)
        kind->stop_all();
    nftw(context->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

bool steady_server;

static int set_up(void **state)
{
    const struct suite_test *test = *state;
    struct context *context = calloc(1, sizeof *context);

    steady_server = test->steady || (kind->leaders_fall && test->fragile);
    if (!context || make_context(context) < 0)
        return -1;
    *state = context;
    return 0;
}

static int tear_down(void **state)
{
    drop_context(*state);
    free(*state);
    return 0;
}

static const struct {
    uint32_t bit;
    const char *name;
} feature_names[] = {
    {HF_HAS_TTL, "TTL"},      {HF_HAS_SHARED, "shared"}, {HF_HAS_PERMITS, "permits"},
    {HF_HAS_FIFO, "FIFO"},    {HF_HAS_DELAY, "delay"},   {HF_HAS_DETACH, "detach"},
    {HF_HAS_PASS_FD, "pass"}, {HF_HAS_BREAK, "break"},   {HF_HAS_FLOOR, "floor"},
    {HF_HAS_ONCE, "once"},
};

static bool applies(const struct suite_test *test, uint32_t features)
{
    uint32_t missing = test->needs & ~features, unwanted = test->needs_no & features;

    if (!missing && !unwanted)
        return true;
    for (size_t i = 0; i < sizeof feature_names / sizeof *feature_names; i++) {
        if (missing & feature_names[i].bit)
            printf("not run: %s (a %s store does not declare %s)\n", test->name, kind->name,
                   feature_names[i].name);
        if (unwanted & feature_names[i].bit)
            printf("not run: %s (only for stores without %s)\n", test->name, feature_names[i].name);
    }
    return false;
}

static bool is_wanted(const struct suite_test *test, uint32_t features)
{
    if (!applies(test, features) || (kind->leaders_fall && !test->brief && !getenv("HF_SOAK")))
        return false;
    if (kind->leaders_fall && (test->fragile || test->steady))
        printf("spared: %s (%s)\n", test->name, test->fragile ? test->fragile : HOLDS_BRIEFLY);
    return true;
}

static int run_suite(const char *pattern)
{
    static struct CMUnitTest tests[TESTS_MAX];
    struct context probe;
    size_t count = 0;

    if (make_context(&probe) < 0)
        return 1;
    for (size_t i = 0; i < sizeof all_tests / sizeof *all_tests; i++)
        for (const struct suite_test *test = all_tests[i]; test->name; test++)
            if (count < TESTS_MAX && is_wanted(test, probe.features))
                tests[count++] = (struct CMUnitTest){test->name, test->run, set_up, tear_down,
                                                     (void *)(uintptr_t)test};
    drop_context(&probe);
    fflush(stdout);
    if (pattern)
        cmocka_set_test_filter(pattern);
    return _cmocka_run_group_tests(kind->name, tests, count, NULL, NULL);
}

static const struct store_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof all_kinds / sizeof *all_kinds; i++)
        for (const struct store_kind *found = all_kinds[i]; found->name; found++)
            if (strcmp(found->name, name) == 0)
                return found;
    return NULL;
}

static void say_usage(void)
{
    fprintf(stderr, "usage: conformance KIND [PATTERN], KIND one of:");
    for (size_t i = 0; i < sizeof all_kinds / sizeof *all_kinds; i++)
        for (const struct store_kind *known = all_kinds[i]; known->name; known++)
            fprintf(stderr, " %s", known->name);
    fprintf(stderr, "\n");
}

char program_path[4096];

int main(int argc, char **argv)
{
    int failed;

    if (!realpath(argv[0], program_path))
        return 1;
    if (argc > 1 && strcmp(argv[1], "--hold") == 0)
        return helper_main(argc, argv);
    kind = argc > 1 ? find_kind(argv[1]) : NULL;
    if (!kind) {
        say_usage();
        return 64;
    }
    signal(SIGPIPE, SIG_IGN); /* a helper that was killed */
    alarm(kind->time_max_s ? kind->time_max_s : TIME_MAX_S);
    snprintf(kind_url, sizeof kind_url, "%s", kind->url ? kind->url : "");
    if (kind->start && kind->start(kind_url) < 0)
        return 1;
    failed = run_suite(argc > 2 ? argv[2] : NULL);
    if (kind->stop)
        kind->stop();
    return failed;
}
