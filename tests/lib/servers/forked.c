/* forked.c: a forked child that hangs says where. */
#include "forked.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STACK_MAX 64

static const char *volatile current = "nothing";

/* NOLINTBEGIN(bugprone-signal-handler,cert-sig30-c): what hangs already cannot be harmed */
static void on_alarm(int number)
{
    void *stack[STACK_MAX];
    int depth = backtrace(stack, STACK_MAX);
    Dl_info at;

    (void)number;
    for (int i = 1; i < depth; i++) /* the first is its backtrace() */
        if (!CHILD_IS_WHOLE && dladdr(stack[i], &at) && strstr(at.dli_fname, "libasan"))
            _exit(0);
    dprintf(STDERR_FILENO, "a forked child hangs in %s:\n", current);
    backtrace_symbols_fd(stack, depth, STDERR_FILENO);
    _exit(1);
}
/* NOLINTEND(bugprone-signal-handler,cert-sig30-c) */

/* Its first call allocates, which may not be possible any more in the handler. */
__attribute__((constructor)) static void load_backtrace(void)
{
    void *stack[1];

    backtrace(stack, 1);
}

void forked_step(const char *step)
{
    current = step;
}

void forked_end_after(unsigned seconds)
{
    signal(SIGALRM, on_alarm);
    alarm(seconds);
}
