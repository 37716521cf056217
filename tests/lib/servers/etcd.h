/* etcd.h: a real etcd of three nodes. As servers.h says of the others: start it from the main thread. */
#ifndef TESTS_SERVERS_ETCD_H
#define TESTS_SERVERS_ETCD_H

#include "servers.h"

#define ETCD_NODES 3
#define ETCD_REPLY_MAX 65536

struct etcd_node {
    pid_t pid; /* 0: not running */
    bool paused;
    int port, peer_port; /* on 127.0.0.1 */
    char dir[SERVER_DIR_MAX];
    int lifeline;
};

/* Begin with {0}. */
struct etcd_cluster {
    struct etcd_node nodes[ETCD_NODES];
    char members[512];
};

/* Until one of them leads and all know it. In memory (/dev/shm) where there is some: what a killed process had written is kept
 * there, too. */
int etcd_cluster_start(struct etcd_cluster *cluster);
void etcd_cluster_stop(struct etcd_cluster *cluster);
/* Its store, with all addresses, and "/%s" behind them. */
void etcd_cluster_url(const struct etcd_cluster *cluster, char *ret_url, size_t size);
/* Which of those that run and are not paused leads, by its own word; -1: none does. */
int etcd_cluster_leader(const struct etcd_cluster *cluster);
int etcd_cluster_await_leader(const struct etcd_cluster *cluster);
/* Do all of them serve, and know who leads? */
bool etcd_cluster_is_whole(const struct etcd_cluster *cluster);
void etcd_node_kill9(struct etcd_node *node);
/* Again, with its data; does not wait until it serves. */
int etcd_node_begin_again(struct etcd_cluster *cluster, int index);
int etcd_node_pause(struct etcd_node *node);
int etcd_node_resume(struct etcd_node *node);
/* One request to the gateway; the body of the answer as text, whatever its status. -1: there was none in time. */
int etcd_node_do(const struct etcd_node *node, const char *path, const char *body, char *reply,
                 size_t size);

#endif
