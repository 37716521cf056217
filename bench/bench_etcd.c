/* bench_etcd.c: the etcd store against the bare requests that it has to make, through the same libcurl; and the command beside etcdctl.
 *
 *     bench-etcd HOLDFAST
 *
 * Three real nodes (tests/lib/servers/etcd.h). A pair is an acquisition and a release: grant, create, delete, revoke. Every figure is a median
 * of interleaved rounds within this one run. */
#include "etcd.h"
#include "measure.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 15
#define PAIRS_PER_ROUND 40
#define SPAWNS_PER_ROUND 4
#define BARE_TIMES_MAX 1.2 /* what a pair may cost, in bare ones */
#define COMMAND_TIMES_MAX \
    1.3 /* and a command, in etcdctl's: to load libcurl takes as long as a Go program takes to start */

extern char **environ;

static struct etcd_cluster cluster;
static char hosts[512], endpoints[512];
static pid_t main_pid;

static void stop_servers(void)
{
    if (getpid() == main_pid)
        etcd_cluster_stop(&cluster);
}

static void die(const char *what)
{
    fprintf(stderr, "bench-etcd: %s: %s\n", what, hf_error());
    exit(1);
}

/* ---- bare ------------------------------------------------------------------------------------ */

static CURL *curl;
static struct curl_slist *headers;

static size_t ignore(char *bytes, size_t one, size_t size, void *context)
{
    (void)bytes;
    (void)context;
    return one * size;
}

static void post(const char *path, const char *body)
{
    char url[128];
    long status = 0;

    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", cluster.nodes[0].port, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (curl_easy_perform(curl) != CURLE_OK ||
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status) != CURLE_OK || status != 200)
        die(path);
}

/* The key is that of "bare/x/1", and its range; the value as large as ours. */
#define KEY "\"YmFyZS94LzE=\""
#define RANGE "{\"request_range\":{\"key\":\"YmFyZS94Lw==\",\"range_end\":\"YmFyZS94MA==\"}}"
#define VALUE "\"aGYxIHggMCAzMDAwMCAxNzk0NzIwNTk1ODc1IHNvbWVib2R5QHNvbWV3aGVyZSBiZW5jaFsxMjM0NV0=\""

static void bare_pair(void)
{
    static int64_t lease = 1000;
    char body[1024];

    lease++;
    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\",\"TTL\":\"30\"}", lease);
    post("/v3/lease/grant", body);
    snprintf(body, sizeof body,
             "{\"compare\":[{\"target\":\"CREATE\",\"key\":" KEY ",\"create_revision\":\"0\"}],"
             "\"success\":[{\"request_put\":{\"key\":" KEY ",\"value\":" VALUE
             ",\"lease\":\"%" PRId64 "\"}}," RANGE "],\"failure\":[" RANGE "]}",
             lease);
    post("/v3/kv/txn", body);
    post("/v3/kv/txn", "{\"compare\":[{\"target\":\"CREATE\",\"result\":\"GREATER\",\"key\":" KEY
                       ",\"create_revision\":\"0\"}],\"success\":[{\"request_delete_range\":{"
                       "\"key\":" KEY "}}," RANGE "],\"failure\":[" RANGE "]}");
    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", lease);
    post("/v3/lease/revoke", body);
}

/* ---- ours, and commands ---------------------------------------------------------------------- */

static void our_pair(hf_store *store)
{
    hf_lock *lock;

    if (hf_acquire(store, "x", NULL, &lock) != HF_OK || hf_release(lock) != HF_OK)
        die("a pair");
}

static void spawn(const char *const argv[])
{
    posix_spawn_file_actions_t quiet; /* of what the store says of old servers, each time */
    pid_t pid;
    int status, failed;

    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    failed = posix_spawnp(&pid, argv[0], &quiet, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (failed != 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die(argv[0]);
}

static double pair_us(hf_store *store)
{
    int64_t began_ns = measure_now_ns();

    for (int i = 0; i < PAIRS_PER_ROUND; i++)
        if (store)
            our_pair(store);
        else
            bare_pair();
    return (double)(measure_now_ns() - began_ns) / PAIRS_PER_ROUND / 1e3;
}

static double spawn_us(const char *const argv[])
{
    int64_t began_ns = measure_now_ns();

    for (int i = 0; i < SPAWNS_PER_ROUND; i++)
        spawn(argv);
    return (double)(measure_now_ns() - began_ns) / SPAWNS_PER_ROUND / 1e3;
}

int main(int argc, char **argv)
{
    static struct series bare, ours, our_runs, their_runs;
    char url[1024];
    hf_store *store;

    if (argc != 2)
        return 64;
    main_pid = getpid();
    atexit(stop_servers);
    if (etcd_cluster_start(&cluster) < 0)
        return 1;
    for (int i = 0; i < ETCD_NODES; i++) {
        size_t used = strlen(hosts), more = strlen(endpoints);

        snprintf(hosts + used, sizeof hosts - used, "%s127.0.0.1:%d", i ? "," : "",
                 cluster.nodes[i].port);
        snprintf(endpoints + more, sizeof endpoints - more, "%shttp://127.0.0.1:%d", i ? "," : "",
                 cluster.nodes[i].port);
    }
    snprintf(url, sizeof url, "etcd://%s", hosts);
    setenv("ETCDCTL_API", "3", 1);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    curl = curl_easy_init();
    headers = curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    if (hf_open(url, &store) != HF_OK)
        die(url);
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&bare, pair_us(NULL));
        series_add(&ours, pair_us(store));
        series_add(&their_runs, spawn_us((const char *const[]){"etcdctl", "--endpoints", endpoints,
                                                               "lock", "bare/y", "true", NULL}));
        series_add(&our_runs, spawn_us((const char *const[]){argv[1], "--on", url, "run", "y", "--",
                                                             "true", NULL}));
    }
    hf_close(store);
    report_ratio("etcd: acquire+release / the bare requests", series_median(&ours),
                 series_median(&bare), "us", BARE_TIMES_MAX);
    report_ratio("etcd: holdfast run NAME -- true / etcdctl lock", series_median(&our_runs),
                 series_median(&their_runs), "us", COMMAND_TIMES_MAX);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return report_broken() > 0;
}
