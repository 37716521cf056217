/* etcd.c: three nodes of etcd. */
#include "etcd.h"
#include "inside.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ARGUMENT_MAX 600
#define ARGUMENTS 12
#define STATUS_MAX_MS 500
#define CLUSTER_START_MAX_MS 30000

/* Short, so that another leader is there soon; and a lease may be as short as a second. */
#define HEARTBEAT_MS 30
#define ELECTION_MS 300

struct arguments {
    char texts[ARGUMENTS][ARGUMENT_MAX];
    char *argv[ARGUMENTS + 2];
    char output[SERVER_DIR_MAX + 16];
};

/* ---- asking ---------------------------------------------------------------------------------- */

static int dial(int port, int64_t deadline_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)deadline_ms; /* of the loopback, connections are made or refused at once */
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int ask(int port, const char *path, const char *body, char *reply, size_t size,
               int64_t deadline_ms)
{
    static char whole[ETCD_REPLY_MAX];
    char head[512];
    size_t got = 0;
    const char *text;
    int fd = dial(port, deadline_ms), head_size;

    if (fd < 0)
        return -1;
    /* HTTP/1.0: the answer comes in one piece, and the connection ends with it. */
    head_size = snprintf(head, sizeof head,
                         "POST %s HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n", path,
                         strlen(body));
    if (send(fd, head, (size_t)head_size, MSG_NOSIGNAL) == head_size &&
        send(fd, body, strlen(body), MSG_NOSIGNAL) == (ssize_t)strlen(body))
        while (got < sizeof whole - 1 && servers_await(fd, POLLIN, deadline_ms)) {
            ssize_t more = read(fd, whole + got, sizeof whole - 1 - got);

            if (more <= 0)
                break;
            got += (size_t)more;
        }
    close(fd);
    whole[got] = '\0';
    text = strstr(whole, "\r\n\r\n");
    if (!text || strlen(text + 4) >= size)
        return -1;
    memcpy(reply, text + 4, strlen(text + 4) + 1);
    return 0;
}

int etcd_node_do(const struct etcd_node *node, const char *path, const char *body, char *reply,
                 size_t size)
{
    if (ask(node->port, path, body, reply, size, servers_now_ms() + REPLY_MAX_MS) == 0)
        return 0;
    return servers_complain("etcd on port %d does not answer %s", node->port, path);
}

/* The value of a number that is written as a string; "" if it is not there. */
static void find_number(const char *text, const char *key, char ret_number[32])
{
    const char *at = strstr(text, key);

    ret_number[0] = '\0';
    if (at)
        snprintf(ret_number, 32, "%.*s", (int)strspn(at + strlen(key), "0123456789"),
                 at + strlen(key));
}

/* 1: it leads; 0: it knows who does; -1: it does not. */
static int standing(const struct etcd_node *node)
{
    char reply[2048], own[32], leader[32];

    if (node->pid <= 0 || node->paused ||
        ask(node->port, "/v3/maintenance/status", "{}", reply, sizeof reply,
            servers_now_ms() + STATUS_MAX_MS) < 0)
        return -1;
    find_number(reply, "\"member_id\":\"", own);
    find_number(reply, "\"leader\":\"", leader);
    if (!own[0] || !leader[0])
        return -1;
    return strcmp(own, leader) == 0;
}

int etcd_cluster_leader(const struct etcd_cluster *cluster)
{
    for (int i = 0; i < ETCD_NODES; i++)
        if (standing(&cluster->nodes[i]) == 1)
            return i;
    return -1;
}

int etcd_cluster_await_leader(const struct etcd_cluster *cluster)
{
    int64_t deadline_ms = servers_now_ms() + CLUSTER_START_MAX_MS;

    while (servers_now_ms() < deadline_ms) {
        int leader = etcd_cluster_leader(cluster);

        if (leader >= 0)
            return leader;
        poll(NULL, 0, KNOCK_EVERY_MS);
    }
    return servers_complain("no etcd leads");
}

/* ---- starting and ending --------------------------------------------------------------------- */

static void become_etcd(const void *context, int lifeline)
{
    const struct arguments *arguments = context;
    int output = open(arguments->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (output < 0 || dup2(lifeline, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(1);
    execvp("etcd", arguments->argv);
    _exit(127);
}

int etcd_node_begin_again(struct etcd_cluster *cluster, int index)
{
    static struct arguments arguments;
    struct etcd_node *node = &cluster->nodes[index];
    char(*at)[ARGUMENT_MAX] = arguments.texts;

    etcd_node_kill9(node);
    setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 1); /* it is not asked for elsewhere */
    snprintf(*at++, ARGUMENT_MAX, "--name=n%d", index);
    snprintf(*at++, ARGUMENT_MAX, "--data-dir=%s/data", node->dir);
    snprintf(*at++, ARGUMENT_MAX, "--listen-client-urls=http://127.0.0.1:%d", node->port);
    snprintf(*at++, ARGUMENT_MAX, "--advertise-client-urls=http://127.0.0.1:%d", node->port);
    snprintf(*at++, ARGUMENT_MAX, "--listen-peer-urls=http://127.0.0.1:%d", node->peer_port);
    snprintf(*at++, ARGUMENT_MAX, "--initial-advertise-peer-urls=http://127.0.0.1:%d",
             node->peer_port);
    snprintf(*at++, ARGUMENT_MAX, "--initial-cluster=%s", cluster->members);
    snprintf(*at++, ARGUMENT_MAX, "--heartbeat-interval=%d", HEARTBEAT_MS);
    snprintf(*at++, ARGUMENT_MAX, "--election-timeout=%d", ELECTION_MS);
    snprintf(*at++, ARGUMENT_MAX, "--logger=zap");
    snprintf(*at++, ARGUMENT_MAX, "--log-level=warn");
    snprintf(*at++, ARGUMENT_MAX, "--log-outputs=stderr");
    arguments.argv[0] = (char *)(uintptr_t) "etcd";
    for (int i = 0; i < ARGUMENTS; i++)
        arguments.argv[i + 1] = arguments.texts[i];
    snprintf(arguments.output, sizeof arguments.output, "%s/output", node->dir);
    return servers_spawn(&node->pid, &node->lifeline, become_etcd, &arguments);
}

static int prepare(struct etcd_cluster *cluster)
{
    const char *base = getenv("HOLDFAST_TEST_DIR");

    *cluster = (struct etcd_cluster){0};
    for (int i = 0; i < ETCD_NODES; i++) {
        struct etcd_node *node = &cluster->nodes[i];
        size_t used = strlen(cluster->members);

        snprintf(node->dir, sizeof node->dir, "%s/etcd.XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                 : base                        ? base
                                               : "/tmp");
        node->port = free_port();
        node->peer_port = free_port();
        if (node->port < 0 || node->peer_port < 0 || !mkdtemp(node->dir))
            return servers_complain("no place for an etcd: %m");
        snprintf(cluster->members + used, sizeof cluster->members - used,
                 "%sn%d=http://127.0.0.1:%d", i ? "," : "", i, node->peer_port);
    }
    return 0;
}

bool etcd_cluster_is_whole(const struct etcd_cluster *cluster)
{
    for (int i = 0; i < ETCD_NODES; i++)
        if (standing(&cluster->nodes[i]) < 0)
            return false;
    return true;
}

int etcd_cluster_start(struct etcd_cluster *cluster)
{
    for (int try = 0; try < PORT_TRIES; try++) {
        int64_t deadline_ms = servers_now_ms() + CLUSTER_START_MAX_MS;
        bool ended = prepare(cluster) < 0;

        for (int i = 0; i < ETCD_NODES; i++)
            ended = ended || etcd_node_begin_again(cluster, i) < 0;
        while (!ended && servers_now_ms() < deadline_ms) {
            if (etcd_cluster_is_whole(cluster))
                return 0;
            for (int i = 0; i < ETCD_NODES; i++) /* somebody else may have taken a port first */
                ended = ended || servers_await(cluster->nodes[i].lifeline, POLLIN, 0);
            poll(NULL, 0, KNOCK_EVERY_MS);
        }
        for (int i = 0; i < ETCD_NODES && try == PORT_TRIES - 1; i++)
            servers_show_file(cluster->nodes[i].dir, "output");
        etcd_cluster_stop(cluster);
    }
    return servers_complain("etcd does not start");
}

void etcd_node_kill9(struct etcd_node *node)
{
    servers_end_process(&node->pid, node->lifeline, false);
    node->paused = false;
}

void etcd_cluster_stop(struct etcd_cluster *cluster)
{
    for (int i = 0; i < ETCD_NODES; i++) {
        etcd_node_kill9(&cluster->nodes[i]);
        if (!cluster->nodes[i].dir[0])
            continue;
        servers_empty_directory(cluster->nodes[i].dir);
        rmdir(cluster->nodes[i].dir);
    }
    *cluster = (struct etcd_cluster){0};
}

void etcd_cluster_url(const struct etcd_cluster *cluster, char *ret_url, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < ETCD_NODES && used < size; i++)
        used += (size_t)snprintf(ret_url + used, size - used, "%s127.0.0.1:%d", i ? "," : "etcd://",
                                 cluster->nodes[i].port);
    if (used < size)
        snprintf(ret_url + used, size - used, "/%%s");
}

int etcd_node_pause(struct etcd_node *node)
{
    if (servers_pause(&node->pid, node->lifeline) < 0)
        return -1;
    node->paused = true;
    return 0;
}

int etcd_node_resume(struct etcd_node *node)
{
    node->paused = false;
    if (node->pid <= 0 || kill(node->pid, SIGCONT) < 0)
        return servers_complain("no etcd to resume");
    return 0;
}
