/* bench_zookeeper.c: the ZooKeeper store against the bare requests that it has to make, through the same library; and the
 * command beside etcdctl, where there is etcd.
 *
 *     bench-zookeeper HOLDFAST
 *
 * Three real servers (tests/lib/servers/zookeeper.h). A pair is an acquisition and a release: create, list, delete. Every figure
 * is a median of interleaved rounds within this one run. */
#include "measure.h"
#include "zookeeper.h"
#ifdef HAVE_ETCD
#include "etcd.h"
#endif

#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define ROUNDS 15
#define PAIRS_PER_ROUND 40
#define SPAWNS_PER_ROUND 4
#define BARE_TIMES_MAX 1.2 /* what a pair may cost, in bare ones */
/* And a command, in those of etcdctl on etcd, which begins and ends a lease where ours begins and ends a session. */
#define COMMAND_TIMES_MAX 1.3
#define SESSION_MS 30000
#define PATIENCE_S 20

extern char **environ;

static struct ensemble ensemble;
static pid_t main_pid;
#ifdef HAVE_ETCD
static struct etcd_cluster etcd;
static char endpoints[512];
#endif

static void stop_servers(void)
{
    if (getpid() != main_pid)
        return;
    ensemble_stop(&ensemble);
#ifdef HAVE_ETCD
    etcd_cluster_stop(&etcd);
#endif
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench-zookeeper: %s: %s\n", what, why);
    exit(1);
}

/* ---- bare ------------------------------------------------------------------------------------ */

static zhandle_t *bare;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool connected;

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)path;
    (void)context;
    pthread_mutex_lock(&mutex);
    connected = type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void zk_must(int rc, const char *what)
{
    if (rc != ZOK)
        die(what, zerror(rc));
}

static void bare_open(const char *url)
{
    struct timespec until;

    zoo_set_debug_level(0);
    bare = zookeeper_init(strchr(url, '/') + 2, on_event, SESSION_MS, NULL, NULL, 0);
    if (!bare)
        die("a session", "out of memory");
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&mutex);
    while (!connected)
        if (pthread_cond_timedwait(&changed, &mutex, &until) != 0)
            die("a session", "does not begin");
    pthread_mutex_unlock(&mutex);
    zk_must(zoo_create(bare, "/bare", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0),
            "/bare");
    zk_must(zoo_create(bare, "/bare/x", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0),
            "/bare/x");
}

/* With as many bytes as ours. */
static void bare_pair(void)
{
    static const char data[] = "hf1 30000 somebody@somewhere bench[12345]";
    char path[256];
    struct String_vector names;
    struct Stat stat;

    zk_must(zoo_create2(bare, "/bare/x/ours-0123456789abcdef0123456789abcdef-", data,
                        sizeof data - 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, path,
                        sizeof path, &stat),
            "create");
    zk_must(zoo_get_children(bare, "/bare/x", 0, &names), "list");
    deallocate_String_vector(&names);
    zk_must(zoo_delete(bare, path, stat.version), "delete");
}

/* ---- ours, and commands ---------------------------------------------------------------------- */

static void our_pair(hf_store *store)
{
    hf_lock *lock;

    if (hf_acquire(store, "x", NULL, &lock) != HF_OK || hf_release(lock) != HF_OK)
        die("a pair", hf_error());
}

static void spawn(const char *const argv[])
{
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    int status, failed;

    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    failed = posix_spawnp(&pid, argv[0], &quiet, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (failed != 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die(argv[0], "has failed");
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

static void measure_pairs(const char *url)
{
    static struct series theirs, ours;
    hf_store *store;

    bare_open(url);
    if (hf_open(url, &store) != HF_OK)
        die(url, hf_error());
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&theirs, pair_us(NULL));
        series_add(&ours, pair_us(store));
    }
    hf_close(store);
    zookeeper_close(bare);
    report_ratio("zookeeper: acquire+release / the bare requests", series_median(&ours),
                 series_median(&theirs), "us", BARE_TIMES_MAX);
}

#ifdef HAVE_ETCD
static void measure_commands(const char *holdfast, const char *url)
{
    static struct series ours, theirs;
    const char *const our_words[] = {holdfast, "--on", url, "run", "y", "--", "true", NULL};
    const char *const their_words[] = {"etcdctl", "--endpoints", endpoints, "lock",
                                       "bare/y",  "true",        NULL};

    if (etcd_cluster_start(&etcd) < 0)
        die("etcd", "does not start");
    for (int i = 0; i < ETCD_NODES; i++) {
        size_t used = strlen(endpoints);

        snprintf(endpoints + used, sizeof endpoints - used, "%shttp://127.0.0.1:%d", i ? "," : "",
                 etcd.nodes[i].port);
    }
    setenv("ETCDCTL_API", "3", 1);
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&theirs, spawn_us(their_words));
        series_add(&ours, spawn_us(our_words));
    }
    report_ratio("zookeeper: holdfast run NAME -- true / etcdctl lock on etcd",
                 series_median(&ours), series_median(&theirs), "us", COMMAND_TIMES_MAX);
}
#endif

int main(int argc, char **argv)
{
    char url[256];

    if (argc != 2)
        return 64;
    main_pid = getpid();
    atexit(stop_servers);
    if (ensemble_start(&ensemble) < 0)
        return 1;
    ensemble_url(&ensemble, url, sizeof url);
    measure_pairs(url);
#ifdef HAVE_ETCD
    measure_commands(argv[1], url);
#endif
    return report_broken() > 0;
}
