/* bench_far.c: the Redis stores over a network, where what counts is how many round trips something
 * takes. The network is a relay before every server that delays whatever passes. */
#include "bench_redis.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAR "delay 2 2" /* ms up, ms down */
#define FAR_ROUNDS 5
#define ACQUISITIONS_PER_ROUND 40
#define WARM_UPS 5
#define HANG_MS 1200 /* longer than a link may lag before it is given up (LINK_LAG_MS) */
#define HANDOVERS 60
#define POLLED_HANDOVERS 24
#define POLL_MS 200
#define LOOKS_MAX 2000 /* for a waiter to be seen in the queue */

static struct relay single_relay, relays[NODES];

void far_stop(void)
{
    relay_stop(&single_relay);
    for (int i = 0; i < NODES; i++)
        relay_stop(&relays[i]);
}

static void start_relay(struct relay *relay, const struct redis_server *server)
{
    if (relay_start(relay, server->port) < 0 || relay_say(relay, FAR) < 0)
        die("hf-relay");
}

static void pause_ms(double ms)
{
    long us = (long)(ms * 1e3);

    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static double since_ms(int64_t start_ns)
{
    return (double)(measure_now_ns() - start_ns) / 1e6;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

/* Only the acquisition is timed. samples NULL: nothing is kept. */
static void acquire_round(hf_store *store, int count, struct series *samples)
{
    for (int i = 0; i < count; i++) {
        int64_t start = measure_now_ns();
        hf_lock *lock = acquire(store, "far", YOUNG_TTL_MS);
        double took_ms = since_ms(start);

        if (samples)
            series_add(samples, took_ms);
        release(lock);
    }
}

/* One node hangs for the time of a round. */
static void hanging_round(hf_store *redlock, struct redis_server *node, struct series *samples)
{
    if (redis_pause(node) < 0)
        die("pause");
    acquire_round(redlock, WARM_UPS, samples);
    pause_ms(HANG_MS);
    acquire_round(redlock, ACQUISITIONS_PER_ROUND, samples);
    if (redis_resume(node) < 0)
        die("resume");
    acquire_round(redlock, WARM_UPS, NULL); /* it catches up */
}

static void bench_acquire(hf_store *single, hf_store *redlock, struct redis_server nodes[NODES])
{
    struct series one = {0}, five = {0}, four = {0};

    acquire_round(single, WARM_UPS, NULL);
    acquire_round(redlock, WARM_UPS, NULL);
    for (int i = 0; i < FAR_ROUNDS; i++) {
        acquire_round(single, ACQUISITIONS_PER_ROUND, &one);
        acquire_round(redlock, ACQUISITIONS_PER_ROUND, &five);
        hanging_round(redlock, &nodes[i % NODES], &four);
    }
    report_ratio("acquire, 4 ms away, Redlock / Redis", series_median(&five), series_median(&one),
                 "ms", 2.3);
    report_ratio("acquire, Redlock, one node hangs / none", series_median(&four),
                 series_median(&five), "ms", 1.5);
    /* A median would hide a timeout (50 ms) that is paid only now and then. */
    report_note("... the slowest of them / the slowest", four.values[four.count - 1],
                five.values[five.count - 1], "ms");
}

/* ---- hand-over ------------------------------------------------------------------------------- */

struct waiter {
    hf_store *store;    /* waits as the library does, or */
    redisContext *bare; /* asks every POLL_MS */
    sem_t asked;        /* the poller's first attempt was answered */
    int64_t got_ns;
};

static void *wait_for_lock(void *arg)
{
    struct waiter *waiter = arg;
    hf_lock *lock = acquire(waiter->store, "handover", YOUNG_TTL_MS);

    waiter->got_ns = measure_now_ns();
    release(lock);
    return NULL;
}

static redisReply *ask(redisContext *bare, const char *command)
{
    redisReply *reply = redisCommand(bare, command);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        die(reply ? reply->str : bare->errstr);
    return reply;
}

static void *poll_for_lock(void *arg)
{
    struct waiter *waiter = arg;
    bool got = false;

    for (int i = 0; !got && i < LOOKS_MAX; i++) {
        redisReply *reply = ask(waiter->bare, "SET " PREFIX "handover poller NX PX 2000");

        got = reply->type == REDIS_REPLY_STATUS;
        waiter->got_ns = measure_now_ns();
        freeReplyObject(reply);
        if (i == 0)
            sem_post(&waiter->asked);
        if (!got)
            pause_ms(POLL_MS);
    }
    freeReplyObject(ask(waiter->bare, "DEL " PREFIX "handover"));
    return NULL;
}

/* Until somebody is in the queue. */
static void see_waiter(hf_store *near)
{
    for (int i = 0; i < LOOKS_MAX; i++) {
        bool waits = false;
        hf_report *report;

        if (hf_show(near, "handover", &report) != HF_OK)
            die("show");
        for (size_t j = 0; j < hf_report_count(report); j++)
            waits = waits || hf_report_entry(report, j)->kind == HF_ENTRY_WAITER;
        hf_report_free(report);
        if (waits)
            return;
        pause_ms(1);
    }
    die("nobody waits");
}

/* From the call of hf_release until the other has it. */
static double handover(hf_store *holder, struct waiter *waiter, hf_store *near, double phase_ms)
{
    hf_lock *lock = acquire(holder, "handover", YOUNG_TTL_MS);
    pthread_t thread;
    int64_t start;

    if (pthread_create(&thread, NULL, waiter->store ? wait_for_lock : poll_for_lock, waiter) != 0)
        die("thread");
    if (waiter->store)
        see_waiter(near);
    else
        sem_wait(&waiter->asked);
    pause_ms(phase_ms);
    start = measure_now_ns();
    release(lock);
    pthread_join(thread, NULL);
    return (double)(waiter->got_ns - start) / 1e6;
}

static double ping(redisContext *bare)
{
    int64_t start = measure_now_ns();

    freeReplyObject(ask(bare, "PING"));
    return since_ms(start);
}

static void bench_handover(hf_store *holder, hf_store *near)
{
    struct waiter queued = {.store = redis_store(single_relay.port)};
    struct waiter poller = {.bare = bare_connect(single_relay.port)};
    struct series told = {0}, polled = {0}, trips = {0};

    srand48(measure_now_ns());
    sem_init(&poller.asked, 0, 0);
    for (int i = 0; i < WARM_UPS; i++) {
        handover(holder, &queued, near, 10);
        ping(poller.bare);
    }
    for (int i = 0; i < HANDOVERS; i++) {
        series_add(&trips, ping(poller.bare));
        series_add(&told, handover(holder, &queued, near, 10));
        /* The release comes at random within the poller's period, evenly over all of them. */
        if (i < POLLED_HANDOVERS)
            series_add(&polled, handover(holder, &poller, near,
                                         (i + drand48()) * POLL_MS / POLLED_HANDOVERS));
    }
    sem_destroy(&poller.asked);
    hf_close(queued.store);
    redisFree(poller.bare);
    report_ratio("hand-over, library / one round trip", series_median(&told), series_median(&trips),
                 "ms", 3.0);
    report_note("hand-over, SET NX every 200 ms / round trip", series_median(&polled),
                series_median(&trips), "ms");
}

void bench_far(const struct redis_server *single, struct redis_server nodes[NODES])
{
    hf_store *one, *five, *near = redis_store(single->port);
    int ports[NODES];

    start_relay(&single_relay, single);
    for (int i = 0; i < NODES; i++) {
        start_relay(&relays[i], &nodes[i]);
        ports[i] = relays[i].port;
    }
    one = redis_store(single_relay.port);
    five = redlock_store(ports);
    bench_acquire(one, five, nodes);
    bench_handover(one, near);
    hf_close(one);
    hf_close(five);
    hf_close(near);
    far_stop();
}
