/* postgres.h: a real PostgreSQL server, replicas of it, and pgbouncer before it. As servers.h says of the others: start them
 * from the main thread.
 *
 * PostgreSQL does not run as root: then it is Debian's user postgres who has it. Data are in memory (/dev/shm) where there is some,
 * unless $HF_POSTGRES_ON_DISK is set, and fsync stays on: what a killed process had written is kept there, too. Everybody may
 * log in from 127.0.0.1 and through the socket, as any role, without a password. */
#ifndef TESTS_SERVERS_POSTGRES_H
#define TESTS_SERVERS_POSTGRES_H

#include "servers.h"

#define POSTGRES_REPLY_MAX 65536

/* Begin with {0}. */
struct postgres {
    pid_t pid; /* of the postmaster; 0: not running */
    bool paused;
    int port;                 /* on 127.0.0.1 */
    char dir[SERVER_DIR_MAX]; /* data/, output, and the socket */
    char extra[SERVER_EXTRA_MAX];
    size_t extra_size;
    int lifeline; /* ends when the last of its processes does */
};

/* Until it serves. extra_args: more arguments of postgres(1), such as "-c", "max_connections=5"; or NULL. Databases are copies of
 * one that initdb made once for each build directory, so all have one system identifier. */
int postgres_start(struct postgres *server, const char *const *extra_args);
/* The same with an initdb of its own: another server than all others. */
int postgres_start_fresh(struct postgres *server, const char *const *extra_args);
/* A streaming replica, by pg_basebackup: until it answers. The primary knows it as `name`, for
 * synchronous_standby_names. */
int postgres_start_replica(struct postgres *replica, int primary_port, const char *name,
                           const char *const *extra_args);
/* Until it is a primary. */
int postgres_promote(struct postgres *replica);
/* Ends it without waiting for anybody, and removes its directory. */
void postgres_stop(struct postgres *server);
/* Ends all of its processes as a crash would. The directory stays, for postgres_restart. */
void postgres_kill9(struct postgres *server);
/* A fast shutdown: connections are ended, what was committed is written. The directory stays. */
void postgres_shut_down(struct postgres *server);
/* Again, on the same port; a running one is shut down before. Until it serves. */
int postgres_restart(struct postgres *server);
/* Stops all of its processes in the middle of whatever they do. Connections are still made, by the kernel. */
int postgres_pause(struct postgres *server);
int postgres_resume(struct postgres *server);
/* One statement, by psql, as the role postgres: its rows as text, a line for each, columns separated by '|'. -1: it failed, or the
 * rows did not fit. reply may be NULL. */
int postgres_do(const struct postgres *server, const char *statement, char *reply, size_t size);

/* Begin with {0}. */
struct pgbouncer {
    pid_t pid; /* 0: not running */
    int port;  /* on 127.0.0.1 */
    char dir[SERVER_DIR_MAX];
    int lifeline;
};

/* In transaction mode, with 20 connections for each database and role. extra: more lines of its section [pgbouncer], of which
 * the last of two that set the same counts; or "". */
int pgbouncer_start(struct pgbouncer *bouncer, int server_port, const char *extra);
void pgbouncer_stop(struct pgbouncer *bouncer);

#endif
