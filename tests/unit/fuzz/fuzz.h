/* fuzz.h: what a fuzz target is. tools/fuzz builds the targets with libFuzzer, which then looks for
 * bytes that do harm; mutate.c is a main for ordinary builds, which makes do with blind mutations,
 * so that the targets are compiled and run with all other tests. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FUZZ_MAX 4096 /* bytes of an input: libFuzzer's default too */

/* Aborts if these bytes do harm. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The n-th input that is known to be sound, for the search to begin with. 0: there are no more. */
size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX]);

/* How many mutations take about a second. */
extern const int fuzz_rounds;

#define REQUIRE(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition, ""))
static inline _Noreturn void fuzz_failed(const char *file, int line, const char *what,
                                         const char *why)
{
    fprintf(stderr, "%s:%d: %s %s\n", file, line, what, why);
    abort();
}

#endif
