/* main.c: begins the threads, maltreats the server, watches that nothing hangs, and looks at what is left at the end.
 *
 *     stress-client file|redis|holdfast|postgres
 *
 * $HF_SOAK: five minutes instead of some seconds. $HF_SECONDS: so many. $HF_SEED: chooses as a run did that printed it. */
#include "stress.h"

#include "postgres.h"
#include "servers.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_SHORT 4
#define SECONDS_SOAK 300
#define HANG_MAX_MS \
    120000 /* one call: a server that is away for some seconds, seen through a sanitizer */
#define GRAVES 16384
#define LEFT_MAX_MS 5000 /* until threads of ours that have ended are gone */

struct stress stress;

static const char *const count_names[COUNTS] = {
    "held",     "busy",    "cancelled", "unknown",    "unreached", "lost",
    "shared",   "elected", "once run",  "once found", "started",   "done",
    "observed", "broken",  "adopted",   "forks",      "closed",    "faults"};

/* ---- what all of them use ---------------------------------------------------------------------------- */

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void count(enum count what)
{
    atomic_fetch_add(&stress.counts[what], 1);
}

void doing(struct worker *worker, const char *what)
{
    atomic_store(&worker->doing, what);
    atomic_store(&worker->since_ms, now_ms());
}

_Noreturn void violated(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "VIOLATED (HF_SEED=%" PRIu64 ", %s): ", stress.seed, stress.url);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    for (int i = 0; i < WORKERS; i++) {
        const char *what = atomic_load(&stress.workers[i].doing);
        int64_t since = atomic_load(&stress.workers[i].since_ms);

        fprintf(stderr, "    thread %d: %s, for %" PRId64 " ms\n", i, what ? what : "nothing",
                since == INT64_MAX ? 0 : now_ms() - since);
    }
    abort();
}

void *allocate(size_t size)
{
    void *memory = calloc(1, size);

    if (!memory)
        violated("no memory");
    return memory;
}

static struct {
    pthread_mutex_t mutex;
    void *buried[GRAVES];
    size_t next;
} graves = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void bury(void *memory)
{
    void *old;

    pthread_mutex_lock(&graves.mutex);
    old = graves.buried[graves.next];
    graves.buried[graves.next] = memory;
    graves.next = (graves.next + 1) % GRAVES;
    pthread_mutex_unlock(&graves.mutex);
    free(old);
}

static void empty_graves(void)
{
    for (size_t i = 0; i < GRAVES; i++)
        free(graves.buried[i]);
}

void expect(const char *what, int result, const char *words)
{
    switch (result) {
    case HF_OK:
    case HF_ELOST:
    case HF_ESTALE:
        return;
    case HF_EBUSY:
        count(COUNT_BUSY);
        return;
    case HF_ECANCELED:
        count(COUNT_CANCELED);
        return;
    case HF_EUNKNOWN:
        count(COUNT_UNKNOWN);
        return;
    case HF_EUNREACH:
        count(COUNT_UNREACHED);
        return;
    default:
        violated("%s: %s: %s", what, hf_result_name(result), words ? words : "");
    }
}

/* xorshift64* */
uint64_t draw(struct worker *worker)
{
    uint64_t x = worker->random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    worker->random = x;
    return (x * UINT64_C(2685821657736338717)) >> 16;
}

void nap(struct worker *worker, unsigned us_max)
{
    doing(worker, "nothing");
    usleep(below(worker, us_max));
}

hf_store *some_store(struct worker *worker)
{
    return below(worker, 2) ? stress.store : stress.looping;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static action *const actions[] = {
    do_acquire, do_acquire, do_acquire,    do_try,          do_cancel, do_cancel,
    do_elect,   do_share,   do_once,       do_once,         do_ask,    do_break,
    do_adopt,   do_start,   do_start,      do_start,        do_start,  do_observe,
    do_observe, do_fork,    do_start_once, do_start_asking, do_close,  do_close_looping};

static void *work(void *arg)
{
    struct worker *worker = arg;

    while (!atomic_load(&stress.over))
        actions[below(worker, sizeof actions / sizeof *actions)](worker);
    doing(worker, "nothing any more");
    atomic_store(&worker->since_ms, INT64_MAX);
    return NULL;
}

static atomic_bool joined;

static void look_after(struct worker *worker)
{
    int64_t since = atomic_load(&worker->since_ms);

    if (since != INT64_MAX && now_ms() - since > HANG_MAX_MS)
        violated("thread %d hangs", worker->number);
    pthread_mutex_lock(&worker->mutex);
    if (worker->cancel)
        hf_cancel_fire(worker->cancel);
    pthread_mutex_unlock(&worker->mutex);
}

/* Cancels whoever waits to be cancelled, and finds who hangs. */
static void *watch_all(void *arg)
{
    struct worker mine = {.random = stress.seed * 31 + 7};

    (void)arg;
    while (!atomic_load(&joined)) {
        look_after(&stress.workers[below(&mine, WORKERS)]);
        usleep(1000 + below(&mine, 4000));
    }
    return NULL;
}

static void *dispatch(void *arg)
{
    struct pollfd ready = {.fd = hf_fd(stress.looping), .events = POLLIN};

    (void)arg;
    while (!atomic_load(&joined)) {
        poll(&ready, 1, 20);
        if (hf_dispatch(stress.looping) < 0)
            violated("hf_dispatch: %s", hf_error());
    }
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    if (pthread_create(thread, NULL, run, arg) != 0)
        violated("no thread");
}

/* ---- the server ------------------------------------------------------------------------------------------ */

static struct redis_server redis;
static struct holdfastd holdfastd;
static struct postgres postgres;
static char url[HF_URL_MAX], folder[HF_URL_MAX];

static bool is_kind(const char *kind)
{
    return strncmp(stress.url, kind, strlen(kind)) == 0;
}

static void begin_server(const char *kind)
{
    const char *base = getenv("HOLDFAST_TEST_DIR");
    bool failed = false;

    if (strcmp(kind, "file") == 0) {
        snprintf(folder, sizeof folder, "%s/stress-XXXXXX", base ? base : "/tmp");
        failed = !mkdtemp(folder);
        snprintf(url, sizeof url, "file:%.*s", (int)(sizeof url - 6), folder);
    } else if (strcmp(kind, "redis") == 0) {
        failed = redis_start(&redis, NULL) != 0;
        snprintf(url, sizeof url, "redis://127.0.0.1:%d", redis.port);
    } else if (strcmp(kind, "postgres") == 0) {
        failed = postgres_start(&postgres, NULL) != 0;
        snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres", postgres.port);
    } else {
        failed = holdfastd_start(&holdfastd, NULL) != 0;
        snprintf(url, sizeof url, "holdfast://127.0.0.1:%d", holdfastd.port);
    }
    if (failed)
        violated("no server");
}

static void end_server(void)
{
    char command[HF_URL_MAX + 16];

    redis_stop(&redis);
    holdfastd_stop(&holdfastd);
    postgres_stop(&postgres);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (folder[0] && system(command) != 0) /* NOLINT: a path of our own */
        violated("the folder cannot be removed");
}

/* Mostly a moment; sometimes longer than most leases, and than most are ready to wait. */
static void be_away(struct worker *mine)
{
    usleep(below(mine, 5) ? below(mine, 200000) : below(mine, 2500000));
}

static void pause_server(struct worker *mine)
{
    if (is_kind("redis")      ? redis_pause(&redis) != 0
        : is_kind("postgres") ? postgres_pause(&postgres) != 0
                              : holdfastd_pause(&holdfastd) != 0)
        violated("it cannot be paused");
    be_away(mine);
    if (is_kind("redis")      ? redis_resume(&redis) != 0
        : is_kind("postgres") ? postgres_resume(&postgres) != 0
                              : holdfastd_resume(&holdfastd) != 0)
        violated("it cannot be resumed");
}

static void kill_server(struct worker *mine)
{
    if (is_kind("postgres"))
        postgres_kill9(&postgres);
    else
        holdfastd_kill9(&holdfastd);
    be_away(mine);
    if (is_kind("postgres") ? postgres_restart(&postgres) != 0 : holdfastd_restart(&holdfastd) != 0)
        violated("it does not start again");
}

static void hurt_server(struct worker *mine)
{
    count(COUNT_FAULTS);
    if (below(mine, 2))
        pause_server(mine);
    else if (is_kind("redis"))
        REDIS_DO(&redis, NULL, 0, "CLIENT", "KILL", "TYPE", below(mine, 2) ? "normal" : "pubsub");
    else
        kill_server(mine);
}

/* ---- strangers -------------------------------------------------------------------------------------------- */

/* A process of its own, which takes the same locks, and is killed. */
_Noreturn static void be_stranger(const char *at)
{
    struct worker mine = {.random = (uint64_t)getpid() * 7919};
    hf_options options = HF_OPTIONS_INIT;
    hf_store *store;
    hf_lock *lock;
    char name[TEXT_MAX];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hf_open(at, &store) != HF_OK)
        _exit(0);
    options.wait_ms = 1000;
    for (;;) {
        section_name((int)below(&mine, NAMES), name);
        if (hf_acquire(store, name, &options, &lock) == HF_OK) {
            usleep(below(&mine, 2000));
            hf_release(lock);
        }
    }
}

static pid_t call_stranger(void)
{
    pid_t child = fork();

    if (child == 0) {
        execl("/proc/self/exe", "stranger", stress.url, (char *)NULL);
        _exit(1);
    }
    return child;
}

static void end_stranger(pid_t *child)
{
    if (*child > 0) {
        kill(*child, SIGKILL);
        waitpid(*child, NULL, 0);
    }
    *child = 0;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static unsigned entries_of(const char *path)
{
    DIR *directory = opendir(path);
    unsigned entries = 0;

    while (directory && readdir(directory))
        entries++;
    if (directory)
        closedir(directory);
    return entries;
}

static void open_stores(void)
{
    const hf_store_info *info;

    if (hf_open(stress.url, &stress.store) != HF_OK ||
        hf_open(stress.url, &stress.looping) != HF_OK)
        violated("no store: %s", hf_error());
    if (hf_fd(stress.looping) < 0)
        violated("no descriptor: %s", hf_error());
    info = hf_info(stress.store);
    stress.strict = info->exclusion == HF_STRICT;
    stress.has_ttl = info->features & HF_HAS_TTL;
    stress.has_detach = info->features & HF_HAS_DETACH;
}

static void close_stores(void)
{
    hf_close(stress.store);
    hf_close(stress.looping);
    started_closed(NULL, stress.store);
    started_closed(NULL, stress.looping);
}

/* So that whatever stays for good is there before anything is counted. */
static void warm_up(void)
{
    hf_lock *lock;

    open_stores();
    if (hf_acquire(stress.store, "warm", NULL, &lock) != HF_OK || hf_release(lock) != HF_OK)
        violated("it does not work: %s", hf_error());
    close_stores();
}

static void hurt_for(int64_t ms)
{
    struct worker mine = {.random = stress.seed * 131 + 17};
    int64_t until = now_ms() + ms;
    pid_t stranger = 0;

    while (now_ms() < until) {
        usleep(below(&mine, 400000));
        end_stranger(&stranger);
        if (below(&mine, 2))
            stranger = call_stranger();
        if (!is_kind("file") && below(&mine, 3))
            hurt_server(&mine);
    }
    end_stranger(&stranger);
}

static void run(int64_t ms)
{
    pthread_t watcher, dispatcher;

    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &stress.workers[i];

        worker->number = i;
        worker->random = stress.seed * 1000003 + (uint64_t)i + 1;
        worker->since_ms = now_ms();
        pthread_mutex_init(&worker->mutex, NULL);
    }
    start(&watcher, watch_all, NULL);
    start(&dispatcher, dispatch, NULL);
    for (int i = 0; i < WORKERS; i++)
        start(&stress.workers[i].thread, work, &stress.workers[i]);
    hurt_for(ms);
    atomic_store(&stress.over, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(stress.workers[i].thread, NULL);
    atomic_store(&joined, true);
    pthread_join(watcher, NULL);
    pthread_join(dispatcher, NULL);
}

/* What they are, for whoever has to find out why there are too many. */
static void show_descriptors(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], target[256];
        ssize_t size;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        size = readlink(path, target, sizeof target);
        if (size > 0)
            fprintf(stderr, "    descriptor %d: %.*s\n", fd, (int)size, target);
    }
}

static void look_at_what_is_left(unsigned descriptors, unsigned threads)
{
    int64_t until = now_ms() + LEFT_MAX_MS;

    while ((entries_of("/proc/self/fd") > descriptors || entries_of("/proc/self/task") > threads) &&
           now_ms() < until)
        usleep(10000);
    if (entries_of("/proc/self/fd") > descriptors)
        show_descriptors();
    if (entries_of("/proc/self/fd") > descriptors)
        violated("%u descriptors at the beginning, %u at the end", descriptors,
                 entries_of("/proc/self/fd"));
    if (entries_of("/proc/self/task") > threads)
        violated("%u threads at the beginning, %u at the end", threads,
                 entries_of("/proc/self/task"));
    if (waitpid(-1, NULL, WNOHANG) > 0 && is_kind("file"))
        violated("a child is left");
}

static int64_t seconds(void)
{
    const char *said = getenv("HF_SECONDS"), *soak = getenv("HF_SOAK");

    if (said && *said)
        return strtol(said, NULL, 10);
    return soak && *soak && *soak != '0' ? SECONDS_SOAK : SECONDS_SHORT;
}

int main(int argc, char **argv)
{
    const char *seed = getenv("HF_SEED");
    unsigned descriptors, threads;

    if (argc == 2 && strcmp(argv[0], "stranger") == 0)
        be_stranger(argv[1]);
    if (argc != 2)
        return 2;
    stress.url = url;
    stress.seed = seed && *seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) % 1000000 + 1;
    begin_server(argv[1]);
    warm_up();
    descriptors = entries_of("/proc/self/fd");
    threads = entries_of("/proc/self/task");
    open_stores();
    run(seconds() * 1000);
    close_stores();
    look_at_what_is_left(descriptors, threads);
    end_server();
    empty_graves();
    printf("%s, HF_SEED=%" PRIu64 ":", argv[1], stress.seed);
    for (int i = 0; i < COUNTS; i++)
        printf(" %llu %s%s", atomic_load(&stress.counts[i]), count_names[i],
               i + 1 < COUNTS ? "," : "\n");
    return 0;
}
