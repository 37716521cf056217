/* leaks.c: in the tests of a build with AddressSanitizer, looks for leaks only if memory is left at the end.
 *
 * LeakSanitizer goes through a table of all the address space that a process could have: on arm64 that takes four seconds, after a
 * test of twenty milliseconds. Where no more is allocated at the end than at the beginning, nothing has leaked. And a child that
 * leaves in the middle has only what its parent had, which goes on and will be asked. */
#include <stdio.h>
#include <unistd.h>

/* The sanitizers' own; not every compiler comes with their headers. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
size_t __sanitizer_get_current_allocated_bytes(void);
void __lsan_do_leak_check(void);

static size_t at_first;
static pid_t process;

const char *__asan_default_options(void)
{
    return "leak_check_at_exit=0";
}

__attribute__((constructor)) static void remember(void)
{
    static char output[BUFSIZ];

    setvbuf(stdout, output, _IOFBF, sizeof output); /* instead of memory that would be left */
    at_first = __sanitizer_get_current_allocated_bytes();
    process = getpid();
}

__attribute__((destructor)) static void look(void)
{
    if (getpid() == process && __sanitizer_get_current_allocated_bytes() != at_first)
        __lsan_do_leak_check();
}
