/* zookeeper.c: Debian's ZooKeeper, run by hand: its scripts want a system of their own. */
#include "zookeeper.h"

#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JARS "/usr/share/java/"
#define CLASSPATH                                                               \
    JARS "zookeeper.jar:" JARS "zookeeper-jute.jar:" JARS "slf4j-api.jar:" JARS \
         "slf4j-nop.jar:" JARS "metrics-core.jar:" JARS "snappy-java.jar:" JARS "netty-all.jar"
#define WHOLE_MAX_MS 60000 /* three Java machines on a busy computer */
#define ASK_MS 500         /* a paused server accepts connections and says nothing */
#define ENSEMBLE_TRIES 3   /* somebody may take a free port before the server does */

/* ---- one node -------------------------------------------------------------------------------- */

static void exec_node(const char *config, const char *log_path, int lifeline)
{
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    /* Its output may be inherited by nobody else, so its end is the process's. */
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || fcntl(lifeline, F_SETFD, 0) < 0)
        _exit(1);
    execlp("java", "java", "-Xmx96m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
           "-Djava.awt.headless=true", "-Dzookeeper.admin.enableServer=false",
           "-Dzookeeper.forceSync=no", "-cp", CLASSPATH,
           "org.apache.zookeeper.server.quorum.QuorumPeerMain", config, (char *)NULL);
    _exit(127);
}

int zookeeper_begin_again(struct zookeeper *node)
{
    char config[ZOOKEEPER_DIR_MAX + 16], log[ZOOKEEPER_DIR_MAX + 16];
    pid_t parent = getpid();
    int ends[2];

    zookeeper_kill9(node);
    snprintf(config, sizeof config, "%s/zoo.cfg", node->dir);
    snprintf(log, sizeof log, "%s/log", node->dir);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return servers_complain("pipe: %m");
    fflush(NULL);
    node->lifeline = ends[0];
    node->pid = fork();
    if (node->pid == 0) {
        servers_become_child(parent);
        exec_node(config, log, ends[1]);
    }
    close(ends[1]);
    if (node->pid > 0)
        return 0;
    node->pid = 0;
    close(ends[0]);
    return servers_complain("fork: %m");
}

void zookeeper_kill9(struct zookeeper *node)
{
    servers_end_process(&node->pid, node->lifeline, false);
    node->paused = false;
}

int zookeeper_pause(struct zookeeper *node)
{
    int status;

    if (node->pid <= 0 || kill(node->pid, SIGSTOP) < 0)
        return servers_complain("no ZooKeeper to pause");
    while (waitpid(node->pid, &status, WUNTRACED) < 0)
        if (errno != EINTR)
            return servers_complain("waitpid: %m");
    node->paused = WIFSTOPPED(status);
    return node->paused ? 0 : servers_complain("the ZooKeeper to pause has ended");
}

int zookeeper_resume(struct zookeeper *node)
{
    if (node->pid <= 0 || kill(node->pid, SIGCONT) < 0)
        return servers_complain("no ZooKeeper to resume");
    node->paused = false;
    return 0;
}

int zookeeper_ask(const struct zookeeper *node, const char *word, char *reply, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)node->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int64_t deadline_ms = servers_now_ms() + ASK_MS;
    size_t used = 0;
    ssize_t got = 0;

    if (fd < 0)
        return -1;
    if (node->pid > 0 && !node->paused &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, word, strlen(word), MSG_NOSIGNAL) == (ssize_t)strlen(word))
        while (used + 1 < size && servers_await(fd, POLLIN, deadline_ms)) {
            got = read(fd, reply + used, size - 1 - used);
            if (got <= 0)
                break;
            used += (size_t)got;
        }
    close(fd);
    reply[used] = '\0';
    return used > 0 ? 0 : -1;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t size = (ssize_t)strlen(text);

    if (fd < 0 || write(fd, text, (size_t)size) != size) {
        servers_complain("%s: %m", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    close(fd);
    return 0;
}

static int configure(struct ensemble *ensemble, struct zookeeper *node, const char *extra)
{
    char path[ZOOKEEPER_DIR_MAX + 16], text[4096];
    size_t used;

    snprintf(path, sizeof path, "%s/data", node->dir);
    if (mkdir(node->dir, 0700) < 0 || mkdir(path, 0700) < 0)
        return servers_complain("%s: %m", path);
    snprintf(path, sizeof path, "%s/data/myid", node->dir);
    snprintf(text, sizeof text, "%d\n", node->id);
    if (write_file(path, text) < 0)
        return -1;
    used = (size_t)snprintf(
        text, sizeof text,
        "tickTime=100\ninitLimit=100\nsyncLimit=10\ndataDir=%s/data\nclientPort=%d\n"
        "clientPortAddress=127.0.0.1\nmaxSessionTimeout=200000000\nmaxClientCnxns=0\n"
        "preAllocSize=64\n4lw.commands.whitelist=*\n",
        node->dir, node->port);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "server.%d=127.0.0.1:%d:%d\n", i + 1,
                             ensemble->nodes[i].peer_port, ensemble->nodes[i].election_port);
    if (used < sizeof text)
        snprintf(text + used, sizeof text - used, "%s\n", extra);
    snprintf(path, sizeof path, "%s/zoo.cfg", node->dir);
    return write_file(path, text);
}

static int try_to_start(struct ensemble *ensemble, const char *extra)
{
    const char *base = getenv("HOLDFAST_TEST_DIR");

    *ensemble = (struct ensemble){0};
    snprintf(ensemble->dir, sizeof ensemble->dir, "%.200s/zookeeper.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(ensemble->dir)) {
        servers_complain("%s: %m", ensemble->dir);
        ensemble->dir[0] = '\0';
        return -1;
    }
    for (int i = 0; i < ZOOKEEPER_NODES; i++) {
        struct zookeeper *node = &ensemble->nodes[i];

        node->id = i + 1;
        node->port = free_port();
        node->peer_port = free_port();
        node->election_port = free_port();
        snprintf(node->dir, sizeof node->dir, "%.230s/%d", ensemble->dir, node->id);
        if (node->port < 0 || node->peer_port < 0 || node->election_port < 0)
            return -1;
    }
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (configure(ensemble, &ensemble->nodes[i], extra) < 0 ||
            zookeeper_begin_again(&ensemble->nodes[i]) < 0)
            return -1;
    return ensemble_await_whole(ensemble);
}

int ensemble_start(struct ensemble *ensemble)
{
    return ensemble_start_with(ensemble, "");
}

int ensemble_start_with(struct ensemble *ensemble, const char *extra)
{
    for (int i = 0; i < ENSEMBLE_TRIES; i++) {
        if (try_to_start(ensemble, extra) == 0)
            return 0;
        ensemble_stop(ensemble);
    }
    return servers_complain("ZooKeeper does not start");
}

void ensemble_stop(struct ensemble *ensemble)
{
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        zookeeper_kill9(&ensemble->nodes[i]);
    if (ensemble->dir[0]) {
        servers_empty_directory(ensemble->dir);
        rmdir(ensemble->dir);
    }
    *ensemble = (struct ensemble){0};
}

static bool serves(const struct zookeeper *node, const char *mode)
{
    char reply[1024];

    return zookeeper_ask(node, "srvr", reply, sizeof reply) == 0 && strstr(reply, mode);
}

int ensemble_leader(const struct ensemble *ensemble)
{
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (serves(&ensemble->nodes[i], "Mode: leader"))
            return i;
    return -1;
}

bool ensemble_is_whole(const struct ensemble *ensemble)
{
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (!serves(&ensemble->nodes[i], "Mode: "))
            return false;
    return true;
}

int ensemble_await_whole(const struct ensemble *ensemble)
{
    int64_t deadline_ms = servers_now_ms() + WHOLE_MAX_MS;

    while (!ensemble_is_whole(ensemble)) {
        for (int i = 0; i < ZOOKEEPER_NODES; i++) {
            struct pollfd ended = {.fd = ensemble->nodes[i].lifeline, .events = POLLIN};

            if (poll(&ended, 1, KNOCK_EVERY_MS) > 0)
                return servers_complain("a ZooKeeper server has ended: see %s/log",
                                        ensemble->nodes[i].dir);
        }
        if (servers_now_ms() > deadline_ms)
            return servers_complain("the ZooKeeper servers do not find each other");
    }
    return 0;
}

void ensemble_url(const struct ensemble *ensemble, char *ret_url, size_t size)
{
    snprintf(ret_url, size, "zookeeper://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
             ensemble->nodes[0].port, ensemble->nodes[1].port, ensemble->nodes[2].port);
}
