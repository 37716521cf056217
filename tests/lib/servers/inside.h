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
/* Stops it in the middle of whatever it does, and returns when it has stopped. */
int servers_pause(pid_t *pid, int lifeline);
/* Forks; the child calls `become`, which ends with an exec or an _exit and allocates no memory, with its end
 * of the lifeline. The server must keep that open: its standard input is the place. Untouched on failure. */
int servers_spawn(pid_t *ret_pid, int *ret_lifeline,
                  void (*become)(const void *arguments, int lifeline), const void *arguments);
/* A fresh one below $HOLDFAST_TEST_DIR, or /tmp where that path would be too long for a socket. */
int servers_make_directory(const char *name, char ret_dir[SERVER_DIR_MAX]);
void servers_empty_directory(const char *path);
/* Copies the arguments, one after the other with their NULs, for whenever it is started again. */
int servers_keep_arguments(char ret_extra[SERVER_EXTRA_MAX], size_t *ret_size,
                           const char *const *extra_args);
/* What a server that does not start has said, on stderr. */
void servers_show_file(const char *dir, const char *name);
/* Makes its directory and copies its arguments: ready for holdfastd_begin_again, once it has a port. */
int holdfastd_prepare(struct holdfastd *server, const char *const *extra_args);
/* Does it serve, or know who does, or want a password? */
bool holdfastd_serves(const struct holdfastd *server);
void holdfastd_show_log(const struct holdfastd *server);
/* redis_do, without a word when it fails. */
int servers_ask(const char *path, char *reply, size_t size, const char *const argv[]);

#endif
