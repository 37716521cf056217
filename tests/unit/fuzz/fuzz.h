/* fuzz.h: what a fuzz target is. tools/fuzz builds the targets with libFuzzer, which then looks for
 * bytes that do harm; mutate.c is a main for ordinary builds, which makes do with blind mutations,
 * so that the targets are compiled and run with all other tests. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
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

/* An input that is read piece by piece, for targets to which it says what to do. What is not there reads as zeros. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

static inline const uint8_t *fuzz_take(struct fuzz_input *input, size_t *size)
{
    const uint8_t *at = input->at;

    *size = *size < input->left ? *size : input->left;
    input->at += *size;
    input->left -= *size;
    return at;
}

static inline uint64_t fuzz_number(struct fuzz_input *input, size_t size)
{
    const uint8_t *at = fuzz_take(input, &size);
    uint64_t number = 0;

    for (size_t i = 0; i < size; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

static inline unsigned fuzz_byte(struct fuzz_input *input)
{
    return (unsigned)fuzz_number(input, 1);
}

#define REQUIRE(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition, ""))
static inline _Noreturn void fuzz_failed(const char *file, int line, const char *what,
                                         const char *why)
{
    fprintf(stderr, "%s:%d: %s %s\n", file, line, what, why);
    abort();
}

/* In memory of just that size, so that a sanitizer sees a byte too many; the caller frees it. */
static inline uint8_t *fuzz_copy(const void *bytes, size_t size)
{
    uint8_t *copy = calloc(1, size ? size : 1);

    REQUIRE(copy);
    if (size)
        memcpy(copy, bytes, size);
    return copy;
}

/* The same with a NUL behind it: up to the first one that it has itself. */
static inline char *fuzz_text(const void *bytes, size_t size)
{
    char *text = size ? strndup(bytes, size) : strdup("");

    REQUIRE(text);
    return text;
}

#endif
