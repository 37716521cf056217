/* inside.h: what the files of this library share. */
#ifndef TESTS_SERVERS_INSIDE_H
#define TESTS_SERVERS_INSIDE_H

#include "servers.h"

#define REPLY_MAX_MS 10000 /* until one reply must be complete */

#define START_MAX_MS 10000 /* until a server must answer */
#define KNOCK_EVERY_MS 5   /* while a server starts */
#define PORT_TRIES 5       /* somebody may take a free port before the server does */

int64_t servers_now_ms(void);
/* Says it on stderr. Returns -1, and leaves errno alone. */
int servers_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits for the descriptor until the deadline. */
bool servers_await(int fd, short events, int64_t deadline_ms);
/* What a child does before its exec. No memory is allocated: other threads may have been running. */
void servers_become_child(pid_t parent);
/* Ends it, by SIGTERM first if `ask`. lifeline: a pipe whose other end only that process has. Returns
 * its status as waitpid does, -1 if it was not running. */
int servers_end_process(pid_t *pid, int lifeline, bool ask);
void servers_empty_directory(const char *path);
/* Makes its directory and copies its arguments: ready for holdfastd_begin_again, once it has a port. */
int holdfastd_prepare(struct holdfastd *server, const char *const *extra_args);
/* Does it serve, or know who does, or want a password? */
bool holdfastd_serves(const struct holdfastd *server);
void holdfastd_show_log(const struct holdfastd *server);
/* redis_do, without a word when it fails. */
int servers_ask(const char *path, char *reply, size_t size, const char *const argv[]);

#endif
