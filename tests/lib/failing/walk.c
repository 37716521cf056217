#include "walk.h"

#include <errno.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Waits take another number of calls each time, and other threads do altogether: so many times there may be no n-th. */
#define MISSES_MAX 3
#define OTHERS_MAX 400

static int errors; /* that the failure of this run has been an excuse for */

void walk_fails(const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_error("%s:%d: %s, after %s\n", file, line, text, failing_words());
    failing_end();
    fail();
}

bool told_words(const char *step, int expected, int result, const char *words, const int *excuses)
{
    if (result == expected)
        return true;
    if (!failing_struck() || errors++ > 0)
        walk_fail("%s: %s instead of %s, for no reason: %s", step, hf_result_name(result),
                  hf_result_name(expected), words);
    if (!*words || strchr(words, '\n'))
        walk_fail("%s: %s, without words", step, hf_result_name(result));
    while (*excuses && *excuses != result)
        excuses++;
    /* A disk or /proc that cannot be read may be no place for a store: then the words say why. */
    if (!*excuses &&
        (result != HF_EREFUSED || failing_errno() != EIO || !strstr(words, strerrordesc_np(EIO))))
        walk_fail("%s: %s instead of %s: %s", step, hf_result_name(result),
                  hf_result_name(expected), words);
    if (getenv("HF_TELL"))
        fprintf(stderr, "    %s, after %s: %s: %s\n", step, failing_words(), hf_result_name(result),
                words);
    return false;
}

bool told(const char *step, int expected, int result, const int *excuses)
{
    return told_words(step, expected, result, result < 0 ? hf_error() : "", excuses);
}

/* One scenario. Returns how many such calls it made. */
static uint64_t run_once(const struct walk *walk, uint64_t n, unsigned way)
{
    size_t memory, descriptors;
    uint64_t count;

    if (walk->prepare)
        walk->prepare(walk->context);
    errors = 0;
    memory = failing_memory();
    descriptors = failing_descriptors();
    failing_begin(walk->what, walk->whose, n, way);
    walk->run(walk->context);
    count = failing_end();
    if (n > 0 && failing_memory() > memory)
        walk_fail("%zu blocks of memory are left", failing_memory() - memory);
    if (n > 0 && failing_descriptors() != descriptors)
        walk_fail("there were %zu descriptors, and are %zu", descriptors, failing_descriptors());
    errors = 1; /* from now on there is no excuse */
    if (walk->judge)
        walk->judge(walk->context);
    return count;
}

void walk_all(const struct walk *walk)
{
    const char *soak = getenv("HF_SOAK");
    bool all = soak && *soak;
    unsigned struck = 0, misses = 0;
    uint64_t count = run_once(walk, 0, 0), n;

    for (n = 1; misses < MISSES_MAX && n <= (walk->whose == FAILING_OURS ? UINT64_MAX : OTHERS_MAX);
         n++) {
        unsigned ways = 1;

        for (unsigned way = 0; way < ways; way++) {
            run_once(walk, n, all ? way : FAILING_ANY_WAY);
            struck += failing_struck();
            if (all && failing_ways() > ways)
                ways = failing_ways();
        }
        misses = failing_ways() > 0 ? 0 : misses + 1;
    }
    printf("%s: %llu %s of %s, %u failures\n", walk->name, (unsigned long long)count,
           walk->what == FAILING_ALLOCATIONS ? "allocations" : "calls",
           walk->whose == FAILING_OURS ? "one thread" : "other threads", struck);
    walk_must(walk->whose == FAILING_OTHERS || struck >= count / 10 * 9);
}
