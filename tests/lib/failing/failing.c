#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANGS_S 100
#define BLOCKS_MAX (1u << 17) /* a power of two */

static struct {
    _Atomic int what; /* 0: nothing is counted */
    enum failing_whose whose;
    uint64_t n;
    unsigned way;
    _Atomic uint64_t count;
    _Atomic bool struck;
    _Atomic unsigned ways;
    _Atomic int failure;
    const char *name;
    char words[160];
} plan;

static _Thread_local bool is_ours;
static _Thread_local int paused;
static _Atomic int
    paused_others; /* where it is others who are struck: what the test asks for may be done by a thread, too */

/* ---- which one fails -------------------------------------------------------------------------- */

static void describe(void)
{
    snprintf(plan.words, sizeof plan.words, "call %llu, %s: %s", (unsigned long long)plan.n,
             plan.name,
             plan.failure == FAILING_SHORT ? "cut short" : strerrordesc_np(plan.failure));
}

int failing_strike(enum failing_what what, const char *name, const int *ways)
{
    unsigned count = 0;

    if (plan.what != (int)what || paused > 0 || paused_others > 0 ||
        is_ours != (plan.whose == FAILING_OURS) || atomic_fetch_add(&plan.count, 1) + 1 != plan.n)
        return 0;
    while (ways[count])
        count++;
    plan.name = name;
    plan.ways = count;
    if (plan.way == FAILING_ANY_WAY && count > 0)
        plan.failure = ways[plan.n % count];
    else if (plan.way < count)
        plan.failure = ways[plan.way];
    else
        return 0;
    describe();
    plan.struck = true;
    if (plan.failure != FAILING_SHORT)
        errno = plan.failure;
    return plan.failure;
}

/* What the library aborts over, or hangs at, is told. */
static void tell(int number)
{
    static const char hangs[] = "it hangs, with ", aborts[] = "it aborts, with ";
    bool alarmed = number == SIGALRM;
    ssize_t written = write(2, alarmed ? hangs : aborts, strlen(alarmed ? hangs : aborts));

    written += write(2, plan.words, strlen(plan.words));
    written += write(2, "\n", 1);
    (void)written;
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
}

void failing_begin(enum failing_what what, enum failing_whose whose, uint64_t n, unsigned way)
{
    signal(SIGALRM, tell);
    signal(SIGABRT, tell);
    alarm(HANGS_S);
    plan.whose = whose;
    paused_others = 0;
    plan.n = n;
    plan.way = way;
    plan.count = 0;
    plan.struck = false;
    plan.ways = 0;
    plan.failure = 0;
    plan.name = "";
    snprintf(plan.words, sizeof plan.words, "nothing that failed");
    is_ours = true;
    plan.what = (int)what;
}

uint64_t failing_end(void)
{
    plan.what = 0;
    is_ours = false;
    alarm(0);
    return plan.count;
}

void failing_pause(void)
{
    paused++;
    paused_others += plan.what && plan.whose == FAILING_OTHERS;
}

void failing_resume(void)
{
    paused--;
    paused_others -= plan.what && plan.whose == FAILING_OTHERS;
}

bool failing_struck(void)
{
    return plan.struck;
}

unsigned failing_ways(void)
{
    return plan.ways;
}

const char *failing_name(void)
{
    return plan.struck ? plan.name : "";
}

int failing_errno(void)
{
    return plan.failure;
}

const char *failing_words(void)
{
    return plan.words;
}

/* ---- what is left ----------------------------------------------------------------------------- */

/* Open addressing. A place that was left is 1, so that those behind it are found. */
static const void *blocks[BLOCKS_MAX];
static size_t block_count;
static pthread_mutex_t blocks_mutex = PTHREAD_MUTEX_INITIALIZER;

#define LEFT ((const void *)1)

static size_t place_of(const void *memory)
{
    return ((uintptr_t)memory >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
}

void failing_allocated(const void *memory)
{
    size_t at = place_of(memory);

    if (!memory || paused > 0)
        return;
    pthread_mutex_lock(&blocks_mutex);
    for (size_t tries = 0; tries < BLOCKS_MAX; tries++, at++)
        if (!blocks[at % BLOCKS_MAX] || blocks[at % BLOCKS_MAX] == LEFT) {
            blocks[at % BLOCKS_MAX] = memory;
            block_count++;
            break;
        }
    pthread_mutex_unlock(&blocks_mutex);
}

/* What libraries have allocated is not in the table. */
void failing_freed(const void *memory)
{
    size_t at = place_of(memory);

    if (!memory)
        return;
    pthread_mutex_lock(&blocks_mutex);
    for (size_t tries = 0; tries < BLOCKS_MAX && blocks[at % BLOCKS_MAX]; tries++, at++)
        if (blocks[at % BLOCKS_MAX] == memory) {
            blocks[at % BLOCKS_MAX] = LEFT;
            if (--block_count == 0)
                memset(blocks, 0, sizeof blocks);
            break;
        }
    pthread_mutex_unlock(&blocks_mutex);
}

size_t failing_memory(void)
{
    size_t count;

    pthread_mutex_lock(&blocks_mutex);
    count = block_count;
    pthread_mutex_unlock(&blocks_mutex);
    return count;
}

size_t failing_descriptors(void)
{
    DIR *own = opendir("/proc/self/fd");
    size_t count = 0;

    while (own && readdir(own))
        count++;
    if (own)
        closedir(own);
    return count;
}
