/* cluster.c: three holdfastd that are one. */
#include "inside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INIT_AGAIN_MS 5000

#define MEMBERS_TEXT_MAX 128
#define STATUS_TEXT_MAX 4096

/* ---- starting and ending --------------------------------------------------------------------- */

static int start_nodes(struct cluster *cluster)
{
    char members[MEMBERS_TEXT_MAX] = "";

    *cluster = (struct cluster){0};
    for (int i = 0; i < CLUSTER_NODES; i++) {
        size_t used = strlen(members);
        int port = free_port();

        if (port < 0)
            return -1;
        snprintf(members + used, sizeof members - used, "%s%d=127.0.0.1:%d", i ? "," : "", i + 1,
                 port);
    }
    for (int i = 0; i < CLUSTER_NODES; i++) {
        struct holdfastd *node = &cluster->nodes[i];
        char id[16];

        snprintf(id, sizeof id, "%d", i + 1);
        if (holdfastd_prepare(node, (const char *const[]){"--id", id, "--cluster", members, NULL}) <
                0 ||
            (node->port = free_port()) < 0 || holdfastd_begin_again(node) < 0) {
            cluster_stop(cluster);
            return -1;
        }
    }
    return 0;
}

/* Has one of them ended? Somebody else may have taken one of its ports first. */
static bool one_has_ended(const struct cluster *cluster)
{
    for (int i = 0; i < CLUSTER_NODES; i++)
        if (servers_await(cluster->nodes[i].lifeline, POLLIN, 0))
            return true;
    return false;
}

static bool all_answer(const struct cluster *cluster)
{
    char reply[256];

    for (int i = 0; i < CLUSTER_NODES; i++)
        if (servers_ask(cluster->nodes[i].socket, reply, sizeof reply,
                        (const char *const[]){"PING", NULL}) != 0)
            return false;
    return true;
}

static void init(const struct cluster *cluster)
{
    char reply[1024];

    servers_ask(cluster->nodes[0].socket, reply, sizeof reply,
                (const char *const[]){"CLUSTER", "INIT", NULL});
}

/* What does not succeed is found out by cluster_await. */
static void found(const struct cluster *cluster)
{
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;

    while (!all_answer(cluster) && !one_has_ended(cluster) && servers_now_ms() < deadline_ms)
        poll(NULL, 0, KNOCK_EVERY_MS);
    if (!one_has_ended(cluster))
        init(cluster);
}

int cluster_begin(struct cluster *cluster)
{
    if (start_nodes(cluster) < 0)
        return -1;
    found(cluster);
    return 0;
}

static bool all_serve(const struct cluster *cluster)
{
    for (int i = 0; i < CLUSTER_NODES; i++)
        if (!holdfastd_serves(&cluster->nodes[i]))
            return false;
    return cluster_leader(cluster) >= 0;
}

static void show_logs(const struct cluster *cluster)
{
    for (int i = 0; i < CLUSTER_NODES; i++)
        holdfastd_show_log(&cluster->nodes[i]);
}

int cluster_await(struct cluster *cluster)
{
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;
    int64_t again_ms = servers_now_ms() + INIT_AGAIN_MS;

    for (int tries = 1; servers_now_ms() < deadline_ms;) {
        if (all_serve(cluster))
            return 0;
        if (servers_now_ms() >=
            again_ms) { /* its nodes may not have found each other in time; twice does no harm */
            init(cluster);
            again_ms = servers_now_ms() + INIT_AGAIN_MS;
        }
        if (one_has_ended(cluster)) {
            if (tries++ == PORT_TRIES)
                break;
            cluster_stop(cluster);
            if (cluster_begin(cluster) < 0)
                return -1;
        }
        poll(NULL, 0, KNOCK_EVERY_MS);
    }
    show_logs(cluster);
    cluster_stop(cluster);
    return servers_complain("a cluster of holdfastd does not start");
}

int cluster_start(struct cluster *cluster)
{
    return cluster_begin(cluster) < 0 ? -1 : cluster_await(cluster);
}

void cluster_stop(struct cluster *cluster)
{
    for (int i = 0; i < CLUSTER_NODES; i++)
        holdfastd_stop(&cluster->nodes[i]);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The term in which this node leads, 0: it does not say that it leads. */
static long leads_in(const struct holdfastd *node)
{
    char text[STATUS_TEXT_MAX];
    const char *term;

    if (node->pid <= 0 || node->paused ||
        servers_ask(node->socket, text, sizeof text,
                    (const char *const[]){"CLUSTER", "STATUS", NULL}) != 0 ||
        strncmp(text, "role\nleader\n", 12) != 0)
        return 0;
    term = strstr(text, "\nterm\n");
    return term ? strtol(term + strlen("\nterm\n"), NULL, 10) : 0;
}

int cluster_leader(const struct cluster *cluster)
{
    long newest = 0;
    int leader = -1;

    for (int i = 0; i < CLUSTER_NODES; i++) {
        long term = leads_in(&cluster->nodes[i]);

        if (term > newest) {
            newest = term;
            leader = i;
        }
    }
    return leader;
}

int cluster_await_leader(const struct cluster *cluster)
{
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;

    while (servers_now_ms() < deadline_ms) {
        int leader = cluster_leader(cluster);

        if (leader >= 0)
            return leader;
        poll(NULL, 0, KNOCK_EVERY_MS);
    }
    show_logs(cluster);
    return servers_complain("nobody leads");
}

void cluster_url(const struct cluster *cluster, int first, char *ret_url, size_t size)
{
    snprintf(ret_url, size, "holdfast://");
    for (int i = 0; i < CLUSTER_NODES; i++) {
        size_t used = strlen(ret_url);

        snprintf(ret_url + used, size - used, "%s127.0.0.1:%d", i ? "," : "",
                 cluster->nodes[(first + i) % CLUSTER_NODES].port);
    }
}
