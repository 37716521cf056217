/* servers.h: real servers for tests and benches: Redis, holdfastd, and a relay that can be cut, slowed
 * and made to lose what passes through it.
 *
 * All of them die with the thread that started them (PR_SET_PDEATHSIG): start them from the main
 * thread. Functions return 0, or -1 with the reason in words on stderr, and can be told to stop what
 * is not running. No part of this may be used by two threads at once, except redis_do and holdfastd_do.
 *
 * Each kind of server has a file of its own here, over what inside.h has for all of them. To add one: a
 * struct and its functions below, NAME.c (redis.c is the one to copy), and find_program in meson.build. */
#ifndef TESTS_SERVERS_SERVERS_H
#define TESTS_SERVERS_SERVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_DIR_MAX 96     /* so that the socket's path fits into a sockaddr_un */
#define SERVER_SOCKET_MAX 108 /* of sun_path, with its NUL */
#define SERVER_EXTRA_MAX 2048 /* bytes of all extra arguments, each with its NUL */

/* Begin with {0}. */
struct redis_server {
    pid_t pid; /* 0: not running */
    int port;  /* on 127.0.0.1 */
    char dir[SERVER_DIR_MAX];
    char socket[SERVER_SOCKET_MAX];
    char extra[SERVER_EXTRA_MAX];
    size_t extra_size;
    int lifeline; /* ends when the process does */
};

/* Starts a redis-server that keeps nothing, in a fresh directory below $HOLDFAST_TEST_DIR, or /tmp where
 * that path would be too long for a socket. Returns when it answers. extra_args: more arguments, up to a
 * NULL, copied; or NULL. */
int redis_start(struct redis_server *server, const char *const *extra_args);
/* Ends it and removes its directory. */
void redis_stop(struct redis_server *server);
/* Ends it as a crash would. The directory stays, for redis_restart. */
void redis_kill9(struct redis_server *server);
/* Again, on the same port and in the same directory; a running server is killed before. keep_data: a
 * running server saves its data first, and what a killed one had written is read again. */
int redis_restart(struct redis_server *server, bool keep_data);
/* Stops it in the middle of whatever it does (SIGSTOP). Connections are still made, by the kernel. */
int redis_pause(struct redis_server *server);
int redis_resume(struct redis_server *server);

/* One command, over a connection of its own to the Unix socket. The reply becomes text, as redis-cli
 * prints it into a pipe: one item per line, nested or not, nil an empty line, no newline at the end. 1: it
 * is an error. -1: there was no reply in time, or it did not fit. argv ends with NULL. reply may be NULL. */
int redis_do(const struct redis_server *server, char *reply, size_t size, const char *const argv[]);
#define REDIS_DO(server, reply, size, ...) \
    redis_do(server, reply, size, (const char *const[]){__VA_ARGS__, NULL})

/* A holdfastd, alone or one of a cluster. Begin with {0}. $HF_HOLDFASTD says where the program is. */
struct holdfastd {
    pid_t pid;   /* 0: not running */
    bool paused; /* by holdfastd_pause */
    int port;    /* on 127.0.0.1 */
    char dir[SERVER_DIR_MAX];
    char socket[SERVER_SOCKET_MAX];
    char extra[SERVER_EXTRA_MAX];
    size_t extra_size;
    int lifeline; /* ends when the process does */
};

/* As the functions for Redis above. It keeps its data: what it acknowledged is there after a restart. */
int holdfastd_start(struct holdfastd *server, const char *const *extra_args);
void holdfastd_stop(struct holdfastd *server);     /* without asking: most tests are done with it */
int holdfastd_terminate(struct holdfastd *server); /* by SIGTERM; its status, as waitpid's */
void holdfastd_kill9(struct holdfastd *server);
int holdfastd_restart(struct holdfastd *server);
/* The same, and does not wait until it serves: one of a cluster needs the others for that. */
int holdfastd_begin_again(struct holdfastd *server);
int holdfastd_pause(struct holdfastd *server);
int holdfastd_resume(struct holdfastd *server);
int holdfastd_do(const struct holdfastd *server, char *reply, size_t size,
                 const char *const argv[]);
#define HOLDFASTD_DO(server, reply, size, ...) \
    holdfastd_do(server, reply, size, (const char *const[]){__VA_ARGS__, NULL})

#define CLUSTER_NODES 3

/* A cluster of holdfastd, whose nodes obey the functions above. Begin with {0}. */
struct cluster {
    struct holdfastd nodes[CLUSTER_NODES];
};

/* Until one of them leads and all know where. */
int cluster_start(struct cluster *cluster);
/* The same in two steps, since most of it is waiting for an election. */
int cluster_begin(struct cluster *cluster);
int cluster_await(struct cluster *cluster);
void cluster_stop(struct cluster *cluster);
/* Which of those that run leads, by its own word; -1: none does. */
int cluster_leader(const struct cluster *cluster);
/* Until one does, which is returned; -1 and words if that takes too long. */
int cluster_await_leader(const struct cluster *cluster);
/* Its store, with all addresses, the one of `first` before the others. */
void cluster_url(const struct cluster *cluster, int first, char *ret_url, size_t size);

/* A port of 127.0.0.1 that nobody has now, and no other test is given as long as this process lives: its server may be down for
 * a while (tests/system/cli/ports.py keeps to the same). Not one of those that outgoing connections get: a server must
 * find its port free after a restart, and who knocks at a dead server's port must not be given that very
 * port to knock from: it would be connected to itself. -1: none. */
int free_port(void);

#define RELAY_LINE_MAX 256

/* hf-relay (hf_relay.c says what it obeys). Begin with {0}. */
struct relay {
    pid_t pid; /* 0: not running */
    int port;  /* on 127.0.0.1: connect to this instead */
    int fd;    /* its input and output */
    char unread[RELAY_LINE_MAX];
    size_t unread_size;
};

struct relay_counts {
    uint64_t connections; /* accepted, since it was started */
    uint64_t up_bytes, down_bytes;
    uint64_t up_chunks, down_chunks;
};

/* Relays to a port of 127.0.0.1. $HF_RELAY says where the program is. */
int relay_start(struct relay *relay, int upstream_port);
/* Returns when it is done: after "cut both" not one more byte arrives. */
int relay_say(struct relay *relay, const char *line);
int relay_count(struct relay *relay, struct relay_counts *ret_counts);
void relay_stop(struct relay *relay);

#endif
