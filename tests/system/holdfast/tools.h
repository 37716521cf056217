/* tools.h: what the tests of the holdfast engine share. */
#ifndef TESTS_HOLDFAST_TOOLS_H
#define TESTS_HOLDFAST_TOOLS_H

#include <holdfast/holdfast.h>

/* All that cmocka.h wants to be included before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TTL_MS 60000 /* nothing is renewed in these tests unless it is about that */

/* The URL is made as printf would; fails the test if it cannot be opened. */
hf_store *open_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* With TTL_MS. */
hf_options with_wait(int64_t wait_ms);
void must(int expected, int result);
/* The words of the last failure have these in them. */
void must_say(const char *words);

#endif
