/* failing.h: one allocation, or one system call, of a program fails: the n-th. So a test goes through all of them: it counts those of
 * a short scenario, and repeats it with the first failing, then with the second, and so on.
 *
 * The linker puts our functions in front of the C library's (--wrap, in meson.build here), for whatever is linked into the program
 * statically; not for what is inside of libraries, and that is the same under sanitizers.
 *
 * A thread that the test has is deterministic; what the library's own threads do is not. So calls are counted of one or of the
 * others. A system call can fail in several ways: `way` chooses, from 0. Where the call that is struck has not so many, nothing
 * fails, and failing_ways says how many it has. */
#ifndef TESTS_FAILING_FAILING_H
#define TESTS_FAILING_FAILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum failing_what { FAILING_ALLOCATIONS = 1, FAILING_CALLS };
enum failing_whose {
    FAILING_OURS = 1, /* of the thread that says so */
    FAILING_OTHERS    /* of all others */
};

#define FAILING_ANY_WAY (~0u) /* one of them, which follows from n */

/* From now on the n-th fails, once; 0: they are only counted. The test ends, with words, if that lasts for minutes. */
void failing_begin(enum failing_what what, enum failing_whose whose, uint64_t n, unsigned way);
/* Returns how many there were. What failed stays known. */
uint64_t failing_end(void);
/* Within, what the test itself asks for: neither counted nor struck. Of this thread, and of all others if it is they who are
 * counted. */
void failing_pause(void);
void failing_resume(void);

bool failing_struck(void);
/* Of the one that was to fail; 0: there were not so many. */
unsigned failing_ways(void);
/* Its function; "": none. */
const char *failing_name(void);
/* With which errno; 0: none, -1: it was cut short. */
int failing_errno(void);
/* In words, for messages: "the 12th call, openat64: Too many open files". */
const char *failing_words(void);

/* Blocks of memory that our code has allocated, not within a pause, and not freed yet. */
size_t failing_memory(void);
/* Descriptors that are open. */
size_t failing_descriptors(void);

#endif
