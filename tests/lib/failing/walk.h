/* walk.h: goes through all that can fail in a scenario, one at a time, and judges what the public API says meanwhile. */
#ifndef TESTS_FAILING_WALK_H
#define TESTS_FAILING_WALK_H

#include "failing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct walk {
    const char *name;
    enum failing_what what;
    enum failing_whose whose;
    void *context;
    void (*prepare)(void *context); /* or NULL */
    void (*run)(void *context);     /* what is to fail somewhere */
    void (*judge)(void *context);   /* afterwards, when nothing fails any more; or NULL */
};

/* Without a failure first, which must go well and leaves what a process has once; then one for each that may fail, and each way in
 * which it may. After each no descriptor and no memory may be left. Prints a line that says how many. HF_SOAK=1: all ways; else of
 * each call one. */
void walk_all(const struct walk *walk);

/* Is that what was expected? One failure excuses one error of those in the list (which ends with HF_OK), if hf_error has words for
 * it; else the test fails. False: it was such an error. */
bool told(const char *step, int expected, int result, const int *excuses);
/* The words of something that is no call of the API. */
bool told_words(const char *step, int expected, int result, const char *words, const int *excuses);
/* Fails the test, and says what had failed. */
#define walk_fail(...) walk_fails(__FILE__, __LINE__, __VA_ARGS__)
void walk_fails(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define walk_must(condition) ((condition) ? (void)0 : walk_fail("%s", #condition))

#endif
