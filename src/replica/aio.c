/* aio.c: libraft has an AIO context for each segment that it writes, and destroys it in the loop when
 * the segment is full or a snapshot is taken. io_destroy(2) waits until all processors have let go of
 * it, which takes 30 to 50 ms: nobody would be answered meanwhile.
 *
 * libraft makes its system calls by way of the C library's syscall(), and a program's own function of
 * that name comes first. This one hands io_destroy to a thread and passes on everything else. The
 * context has no requests any more, its number is not given again before it is destroyed, and libraft
 * does not look at the result. Without this file everything works as well, in jerks. */
#include "replica/aio.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

#define THREAD_STACK_BYTES ((size_t)256 << 10)

/* The arguments that a call does not have are whatever is in the registers, as in the C library. */
long aio_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");

typedef long syscall_fn(long number, ...);

static syscall_fn *c_library(void)
{
    static syscall_fn *found;

    if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        void *symbol = dlsym(RTLD_NEXT, "syscall");

        __atomic_store_n((void **)&found, symbol, __ATOMIC_RELEASE);
    }
    return found;
}

static void *destroy(void *context)
{
    c_library()(SYS_io_destroy, (long)(intptr_t)context);
    return NULL;
}

/* Signals are the loop's business. */
static int start_thread(long context)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int failure = pthread_attr_init(&attributes);

    if (failure)
        return failure;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&thread, &attributes, destroy, (void *)(intptr_t)context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failure;
}

/* Weak, so that a test may have its own. */
__attribute__((weak, visibility("default"))) long aio_syscall(long number, long a, long b, long c,
                                                              long d, long e, long f)
{
    if (number == SYS_io_destroy && start_thread(a) == 0)
        return 0;
    return c_library()(number, a, b, c, d, e, f);
}

void aio_link(void)
{
}
