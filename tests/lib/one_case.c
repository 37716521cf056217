/* one_case.c: HF_CASE=PATTERN chooses the cases of a test in C, as -k does of one in Python: '*' and '?' as in a shell. In all programs
 * that use cmocka. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose(void)
{
    const char *pattern = getenv("HF_CASE");

    if (pattern && *pattern)
        cmocka_set_test_filter(pattern);
}
