/* bench_renew.c: what it costs a process to keep many locks, which nobody touches.
 *
 *     bench-renew [LOCKS…]
 *
 * A real holdfastd ($HF_HOLDFASTD says which), and for each number of locks a process of its own that takes them all with one
 * handle, waits until their renewals have found their rhythm, and looks at the processor's time that it needs from then on. Beside
 * it the floor: a loop that sends the same leases in as many RENEW over a socket of its own, and reads the numbers that come
 * back. Renewals are counted as whoever holds the locks sees them, from a sample whose time that is left goes up. */
#include "measure.h"
#include "servers.h"

#include <arpa/inet.h>
#include <holdfast/holdfast.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3
#define TTL_MS 10000
#define LOCKS_MAX 1000000
#define COUNTS_MAX 8
#define THREADS 16
#define SAMPLE 100
#define LOOK_MS 50
#define LOOKS 200 /* one TTL: each lock is renewed three times */
#define BARE_LEASES 1024
#define BARE_ROUNDS 40
#define LEASE_BYTES 32
/* Per cent of a core for every 100,000 locks, on a machine that has other things to do: of 2 us for each renewal most is waiting for
 * memory that others have used meanwhile. */
#define SHARE_MAX 8.0
#define SHARE_OF_LOCKS 100000

struct outcome {
    double share;    /* of a core, in per cent */
    double renewals; /* each second */
    double each_us;  /* of a renewal */
    double bare_us;
    double server_share;
    int lost;
};

static struct holdfastd server;
static pid_t main_pid;

static void stop_server(void)
{
    if (getpid() == main_pid)
        holdfastd_stop(&server);
}

static void die(const char *what)
{
    fprintf(stderr, "bench-renew: %s: %s\n", what, hf_error());
    exit(1);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static double own_cpu_us(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static double server_cpu_us(void)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(server.pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        die("the time that the server took");
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* ---- taking them ----------------------------------------------------------------------------- */

struct taking {
    hf_store *store;
    hf_lock **locks;
    int from, until;
    pthread_t thread;
};

static void *take(void *arg)
{
    const struct taking *taking = arg;
    hf_options options = HF_OPTIONS_INIT;
    char name[32];

    options.ttl_ms = TTL_MS;
    for (int i = taking->from; i < taking->until; i++) {
        snprintf(name, sizeof name, "renew/%d", i);
        if (hf_try(taking->store, name, &options, &taking->locks[i]) != HF_OK)
            die("try");
    }
    return NULL;
}

static void take_all(hf_store *store, hf_lock **locks, int count)
{
    struct taking takings[THREADS];

    for (int i = 0; i < THREADS; i++) {
        takings[i] = (struct taking){.store = store,
                                     .locks = locks,
                                     .from = (int)((long)count * i / THREADS),
                                     .until = (int)((long)count * (i + 1) / THREADS)};
        if (pthread_create(&takings[i].thread, NULL, take, &takings[i]) != 0)
            die("thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(takings[i].thread, NULL);
}

/* ---- the floor ------------------------------------------------------------------------------- */

static int bare_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("a socket of its own");
    return fd;
}

static void bare_renew(int fd, hf_lock *const *locks, int count)
{
    static char bytes[(LEASE_BYTES + 16) * BARE_LEASES + 64];
    size_t size, done = 0;
    int lines = 0;

    snprintf(bytes, sizeof bytes, "*%d\r\n$5\r\nRENEW\r\n", count + 1);
    size = strlen(bytes);
    for (int i = 0; i < count; i++) {
        memcpy(bytes + size, "$32\r\n", 5);
        memcpy(bytes + size + 5, hf_lock_lease(locks[i]), LEASE_BYTES);
        memcpy(bytes + size + 5 + LEASE_BYTES, "\r\n", 2);
        size += 7 + LEASE_BYTES;
    }
    while (done < size) {
        ssize_t sent = send(fd, bytes + done, size - done, MSG_NOSIGNAL);

        if (sent <= 0)
            die("send");
        done += (size_t)sent;
    }
    while (lines < count + 1) {
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);

        if (got <= 0 || (lines == 0 && bytes[0] != '*'))
            die("a bare RENEW");
        for (ssize_t i = 0; i < got; i++)
            lines += bytes[i] == '\n';
    }
}

static double thread_cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Microseconds of the processor for each lease. */
static double bare(hf_lock *const *locks, int count)
{
    int fd = bare_connect(), some = count < BARE_LEASES ? count : BARE_LEASES;
    double before_us = thread_cpu_us(), after_us;

    for (int i = 0; i < BARE_ROUNDS; i++)
        bare_renew(fd, locks + (long)i * some % (count - some + 1), some);
    after_us = thread_cpu_us();
    close(fd);
    return (after_us - before_us) / (BARE_ROUNDS * (double)some);
}

/* ---- one process ----------------------------------------------------------------------------- */

static struct outcome watch(hf_lock *const *locks, int count)
{
    double cpu_us = own_cpu_us(), server_us = server_cpu_us(), span_us;
    int64_t began_ns = measure_now_ns();
    int64_t left_ms[SAMPLE] = {0};
    struct outcome outcome = {0};
    int renewals = 0;

    for (int look = 0; look < LOOKS; look++) {
        for (int i = 0; i < SAMPLE; i++) {
            int64_t now_ms = hf_lock_left_ms(locks[(long)count * i / SAMPLE]);

            renewals += look > 0 && now_ms > left_ms[i];
            left_ms[i] = now_ms;
        }
        pause_ms(LOOK_MS);
    }
    span_us = (double)(measure_now_ns() - began_ns) / 1e3;
    outcome.share = (own_cpu_us() - cpu_us) / span_us * 100;
    outcome.server_share = (server_cpu_us() - server_us) / span_us * 100;
    outcome.renewals = (double)renewals / SAMPLE * count / span_us * 1e6;
    outcome.each_us = outcome.share * 1e4 / outcome.renewals;
    for (int i = 0; i < count; i++)
        outcome.lost += hf_lock_left_ms(locks[i]) == 0;
    return outcome;
}

/* Nothing is given back: the next round has a server of its own. */
static void hold(int count, int result_fd)
{
    hf_lock **locks = calloc((size_t)count, sizeof *locks);
    struct outcome outcome;
    hf_store *store = NULL;
    char url[64];

    snprintf(url, sizeof url, "holdfast://127.0.0.1:%d", server.port);
    if (!locks || hf_open(url, &store) != HF_OK)
        die("open");
    take_all(store, locks, count);
    pause_ms(TTL_MS);
    outcome = watch(locks, count);
    outcome.bare_us = bare(locks, count);
    if (write(result_fd, &outcome, sizeof outcome) != sizeof outcome)
        die("pipe");
    _exit(0);
}

static struct outcome run(int count)
{
    struct outcome outcome;
    int fds[2], status;
    pid_t child;

    if (holdfastd_start(&server, NULL) < 0 || pipe(fds) != 0)
        die("holdfastd");
    child = fork();
    if (child < 0)
        die("fork");
    if (child == 0)
        hold(count, fds[1]);
    close(fds[1]);
    if (read(fds[0], &outcome, sizeof outcome) != sizeof outcome)
        die("the process that holds");
    close(fds[0]);
    waitpid(child, &status, 0);
    holdfastd_stop(&server);
    return outcome;
}

static void report(int count, struct series series[4])
{
    double share_max = SHARE_MAX * count / SHARE_OF_LOCKS;
    char what[64];

    snprintf(what, sizeof what, "%d locks, TTL %d s: of a core, %%", count, TTL_MS / 1000);
    report_limit(what, series_median(&series[0]), "%", share_max);
    printf("  %.0f renewals/s, each %.2f us (a bare RENEW of %d: %.2f us a lease); the server %.1f "
           "%% of a core\n",
           series_median(&series[1]), series_median(&series[0]) * 1e4 / series_median(&series[1]),
           BARE_LEASES, series_median(&series[2]), series_median(&series[3]));
}

int main(int argc, char **argv)
{
    static struct series series[COUNTS_MAX][4];
    int counts[COUNTS_MAX] = {10000, 50000, 100000}, some = 3, lost = 0;

    main_pid = getpid();
    atexit(stop_server);
    for (int i = 1; i < argc && i <= COUNTS_MAX; i++) {
        counts[i - 1] = (int)strtol(argv[i], NULL, 10);
        some = i;
        if (counts[i - 1] < SAMPLE || counts[i - 1] > LOCKS_MAX)
            die("from 100 to 1000000 locks");
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < some; i++) {
            struct outcome outcome = run(counts[i]);

            series_add(&series[i][0], outcome.share);
            series_add(&series[i][1], outcome.renewals);
            series_add(&series[i][2], outcome.bare_us);
            series_add(&series[i][3], outcome.server_share);
            lost += outcome.lost;
        }
    for (int i = 0; i < some; i++)
        report(counts[i], series[i]);
    report_limit("locks lost", lost, "", 0);
    return report_broken() > 0;
}
