/* bench_redis.c: the Redis stores against bare hiredis, and each against the other.
 *
 *     bench-redis DIR HOLDFAST
 *
 * DIR is for a file store to compare with; HOLDFAST is the command. The servers are real ones, on free
 * ports (tests/lib/servers/servers.h). Every figure is a median of interleaved rounds within this one run.
 * Here is what happens on the loopback; bench_far.c puts a network between. */
#include "bench_redis.h"
#include "engines/redis/scripts.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIR_ROUNDS 61
#define PAIRS_PER_ROUND 150
#define NOTE_ROUNDS 15
#define REDLOCK_PAIRS_PER_ROUND 50
#define THREADS 8
#define PAIRS_PER_THREAD 250
#define SPAWNS_PER_ROUND 10
#define TTL_MS 30000
#define WAIT_MS 10000 /* nothing here waits so long, unless it is broken */
#define RUN_S_MAX 120 /* then it is ended from outside; a minute is what it should take */

extern char **environ;

static struct redis_server single, nodes[NODES];
static pid_t main_pid;

static void stop_servers(void)
{
    if (getpid() != main_pid)
        return;
    far_stop();
    redis_stop(&single);
    for (int i = 0; i < NODES; i++)
        redis_stop(&nodes[i]);
}

void die(const char *what)
{
    fprintf(stderr, "bench-redis: %s: %s %s\n", what, hf_error(), strerror(errno));
    exit(1);
}

static void start_servers(void)
{
    main_pid = getpid();
    atexit(stop_servers);
    if (redis_start(&single, NULL) < 0)
        die("redis-server");
    for (int i = 0; i < NODES; i++)
        if (redis_start(&nodes[i], NULL) < 0)
            die("redis-server");
}

/* ---- shared ---------------------------------------------------------------------------------- */

static hf_store *open_store(const char *url)
{
    hf_store *store;

    if (hf_open(url, &store) != HF_OK)
        die("open");
    return store;
}

void redis_url(int port, char ret_url[URL_BYTES])
{
    snprintf(ret_url, URL_BYTES, "redis://127.0.0.1:%d?prefix=" PREFIX, port);
}

hf_store *redis_store(int port)
{
    char url[URL_BYTES];

    redis_url(port, url);
    return open_store(url);
}

hf_store *redlock_store(const int ports[NODES])
{
    char url[URL_BYTES] = "redlock://";
    size_t used = strlen(url);

    for (int i = 0; i < NODES; i++)
        used += (size_t)snprintf(url + used, sizeof url - used, "%s127.0.0.1:%d", i ? "," : "",
                                 ports[i]);
    snprintf(url + used, sizeof url - used, "?prefix=" PREFIX);
    return open_store(url);
}

redisContext *bare_connect(int port)
{
    redisContext *context = redisConnect("127.0.0.1", port);

    if (!context || context->err)
        die("hiredis cannot connect");
    return context;
}

hf_lock *acquire(hf_store *store, const char *name, int64_t ttl_ms)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock;

    options.ttl_ms = ttl_ms;
    options.wait_ms = WAIT_MS;
    if (hf_acquire(store, name, &options, &lock) != HF_OK)
        die("acquire");
    return lock;
}

void release(hf_lock *lock)
{
    if (hf_release(lock) != HF_OK)
        die("release");
}

void report_note(const char *what, double ours, double floor, const char *unit)
{
    printf("%-44s %9.2f %-3s", what, ours, unit);
    if (floor > 0)
        printf(" floor %9.2f  ratio %5.2f", floor, ours / floor);
    else
        printf(" %28s", "");
    printf("  for information\n");
    fflush(stdout);
}

/* ---- acquire and release --------------------------------------------------------------------- */

/* A client that sends what the library sends, byte for byte, and does nothing else. */
struct bare {
    redisContext *context;
    struct resp_writer request;
    char lease[HF_LEASE_MAX + 1], owner[HF_OWNER_MAX + 1];
};

static redisReply *bare_ask(struct bare *bare)
{
    void *reply = NULL;

    if (bare->request.failed ||
        redisAppendFormattedCommand(bare->context, bare->request.bytes, bare->request.size) !=
            REDIS_OK ||
        redisGetReply(bare->context, &reply) != REDIS_OK)
        die(bare->context->errstr);
    resp_writer_clear(&bare->request);
    return reply;
}

/* As claims.c has it. */
static redisReply *bare_acquire(struct bare *bare, const char *name)
{
    struct resp_writer *request = &bare->request;

    script_write(request, SCRIPT_ACQUIRE, false, PREFIX, name, bare->lease, 7);
    resp_write_text(request, bare->lease);
    resp_write_number(request, TTL_MS);
    resp_write_text(request, "x");
    resp_write_number(request, 0);
    resp_write_number(request, 0);
    resp_write_text(request, bare->owner);
    resp_write_text(request, "");
    return bare_ask(bare);
}

static redisReply *bare_release(struct bare *bare, const char *name, const char *token)
{
    struct resp_writer *request = &bare->request;

    script_write(request, SCRIPT_RELEASE, false, PREFIX, name, bare->lease, 3);
    resp_write_text(request, bare->lease);
    resp_write_text(request, token);
    resp_write_number(request, 0);
    return bare_ask(bare);
}

static void bare_pair(struct bare *bare, const char *name)
{
    redisReply *grant = bare_acquire(bare, name), *end;

    if (grant->type != REDIS_REPLY_ARRAY || grant->elements != 2 || grant->element[0]->integer != 1)
        die(grant->type == REDIS_REPLY_ERROR ? grant->str : "bare acquire");
    end = bare_release(bare, name, grant->element[1]->str);
    if (end->type != REDIS_REPLY_INTEGER || end->integer != 1)
        die(end->type == REDIS_REPLY_ERROR ? end->str : "bare release");
    freeReplyObject(grant);
    freeReplyObject(end);
}

/* Its lease and owner are those of a hold of the library, which also has both scripts loaded. */
static void bare_init(struct bare *bare, int port, hf_store *store)
{
    hf_lock *lock = acquire(store, "bare", TTL_MS);
    hf_report *report;

    if (hf_show(store, "bare", &report) != HF_OK || hf_report_count(report) != 1)
        die("show");
    snprintf(bare->owner, sizeof bare->owner, "%s", hf_report_entry(report, 0)->owner);
    snprintf(bare->lease, sizeof bare->lease, "%s", hf_lock_lease(lock));
    hf_report_free(report);
    release(lock);
    bare->context = bare_connect(port);
}

static double bare_round(struct bare *bare)
{
    int64_t start = measure_now_ns();

    for (int i = 0; i < PAIRS_PER_ROUND; i++)
        bare_pair(bare, "pair");
    return (double)(measure_now_ns() - start) / PAIRS_PER_ROUND / 1e3;
}

static double library_round(hf_store *store, int pairs, int64_t ttl_ms)
{
    int64_t start = measure_now_ns();

    for (int i = 0; i < pairs; i++)
        release(acquire(store, "pair", ttl_ms));
    return (double)(measure_now_ns() - start) / pairs / 1e3;
}

static void bench_pair(void)
{
    struct series floor = {0}, library = {0};
    hf_store *store = redis_store(single.port);
    struct bare bare = {0};

    bare_init(&bare, single.port, store);
    bare_round(&bare);
    library_round(store, PAIRS_PER_ROUND, TTL_MS);
    for (int i = 0; i < PAIR_ROUNDS; i++) {
        if (i % 2)
            series_add(&library, library_round(store, PAIRS_PER_ROUND, TTL_MS));
        series_add(&floor, bare_round(&bare));
        if (i % 2 == 0)
            series_add(&library, library_round(store, PAIRS_PER_ROUND, TTL_MS));
    }
    hf_close(store);
    redisFree(bare.context);
    resp_writer_free(&bare.request);
    report_ratio("acquire+release, library / bare hiredis", series_median(&library),
                 series_median(&floor), "us", 1.1);
}

/* ---- for information ------------------------------------------------------------------------- */

static void note_redlock(void)
{
    struct series one = {0}, five = {0};
    hf_store *store = redis_store(single.port), *redlock;
    int ports[NODES];

    for (int i = 0; i < NODES; i++)
        ports[i] = nodes[i].port;
    redlock = redlock_store(ports);
    library_round(redlock, 1, YOUNG_TTL_MS);
    for (int i = 0; i < NOTE_ROUNDS; i++) {
        series_add(&one, library_round(store, REDLOCK_PAIRS_PER_ROUND, YOUNG_TTL_MS));
        series_add(&five, library_round(redlock, REDLOCK_PAIRS_PER_ROUND, YOUNG_TTL_MS));
    }
    hf_close(store);
    hf_close(redlock);
    report_note("acquire+release, loopback, Redlock / Redis", series_median(&five),
                series_median(&one), "us");
}

struct worker {
    pthread_t thread;
    hf_store *store;
    char name[16];
};

static void *work(void *arg)
{
    struct worker *worker = arg;

    for (int i = 0; i < PAIRS_PER_THREAD; i++)
        release(acquire(worker->store, worker->name, TTL_MS));
    return NULL;
}

/* Thousands of pairs per second. */
static double rate_round(hf_store *store, int threads)
{
    struct worker workers[THREADS];
    int64_t start = measure_now_ns();

    for (int i = 0; i < threads; i++) {
        workers[i].store = store;
        snprintf(workers[i].name, sizeof workers[i].name, "thread/%d", i);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            die("thread");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    return (double)(threads * PAIRS_PER_THREAD) / ((double)(measure_now_ns() - start) / 1e6);
}

static void note_threads(void)
{
    struct series one = {0}, many = {0};
    hf_store *store = redis_store(single.port);

    rate_round(store, THREADS);
    for (int i = 0; i < NOTE_ROUNDS; i++) {
        series_add(&one, rate_round(store, 1));
        series_add(&many, rate_round(store, THREADS));
    }
    hf_close(store);
    report_note("pairs, 8 threads and names / 1, one handle", series_median(&many),
                series_median(&one), "k/s");
}

static double spawn_round(char *const argv[])
{
    int64_t start = measure_now_ns();

    for (int i = 0; i < SPAWNS_PER_ROUND; i++) {
        int status;
        pid_t pid;

        if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 ||
            waitpid(pid, &status, 0) < 0 || status != 0)
            die(argv[0]);
    }
    return (double)(measure_now_ns() - start) / SPAWNS_PER_ROUND / 1e3;
}

static void note_command(const char *dir, char *holdfast)
{
    char file_url[4096], url[URL_BYTES];
    char *on_file[] = {holdfast, "--on", file_url, "run", "bench", "--", "true", NULL};
    char *on_redis[] = {holdfast, "--on", url, "run", "bench", "--", "true", NULL};
    struct series file = {0}, redis = {0};

    snprintf(file_url, sizeof file_url, "file:%s/command", dir);
    redis_url(single.port, url);
    for (int i = 0; i < NOTE_ROUNDS; i++) {
        series_add(&file, spawn_round(on_file));
        series_add(&redis, spawn_round(on_redis));
    }
    report_note("holdfast run NAME -- true, Redis / file", series_median(&redis),
                series_median(&file), "us");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench-redis DIR HOLDFAST\n");
        return 64;
    }
    alarm(RUN_S_MAX);
    start_servers();
    bench_pair();
    bench_far(&single, nodes);
    note_redlock();
    note_threads();
    note_command(argv[1], argv[2]);
    return report_broken() ? 1 : 0;
}
