/* zookeeper.h: an ensemble of three ZooKeeper servers, as Debian packages them. See servers.h for the rules. */
#ifndef TESTS_SERVERS_ZOOKEEPER_H
#define TESTS_SERVERS_ZOOKEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ZOOKEEPER_NODES 3
#define ZOOKEEPER_DIR_MAX 256

struct zookeeper {
    pid_t pid; /* 0: not running */
    bool paused;
    int id;   /* 1 to 3 */
    int port; /* for clients, on 127.0.0.1 */
    int peer_port, election_port;
    char dir[ZOOKEEPER_DIR_MAX];
    int lifeline; /* ends when the process does */
};

/* Begin with {0}. */
struct ensemble {
    struct zookeeper nodes[ZOOKEEPER_NODES];
    char dir[ZOOKEEPER_DIR_MAX];
};

/* Until all of them serve. Ticks are 100 ms: a session may be as short as 200 ms. */
int ensemble_start(struct ensemble *ensemble);
/* extra: more lines of their configuration. The last of two that set the same counts. */
int ensemble_start_with(struct ensemble *ensemble, const char *extra);
void ensemble_stop(struct ensemble *ensemble);
/* Which of them leads, by its own word; -1: none does. */
int ensemble_leader(const struct ensemble *ensemble);
/* Do all of them serve? */
bool ensemble_is_whole(const struct ensemble *ensemble);
int ensemble_await_whole(const struct ensemble *ensemble);
/* zookeeper://..., without a root. */
void ensemble_url(const struct ensemble *ensemble, char *ret_url, size_t size);

void zookeeper_kill9(struct zookeeper *node);
/* Starts it again, killing it if it runs; does not wait until it serves. */
int zookeeper_begin_again(struct zookeeper *node);
int zookeeper_pause(struct zookeeper *node);
int zookeeper_resume(struct zookeeper *node);
/* One of the four-letter words; the answer is cut to fit. -1: there was none. */
int zookeeper_ask(const struct zookeeper *node, const char *word, char *reply, size_t size);

#endif
