/* inside.h: what the files of this library share. */
#ifndef TESTS_SERVERS_INSIDE_H
#define TESTS_SERVERS_INSIDE_H

#include "servers.h"

#define REPLY_MAX_MS 10000 /* until one reply must be complete */

int64_t servers_now_ms(void);
/* Says it on stderr. Returns -1, and leaves errno alone. */
int servers_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits for the descriptor until the deadline. */
bool servers_await(int fd, short events, int64_t deadline_ms);
/* redis_do, without a word when it fails. */
int servers_ask(const char *path, char *reply, size_t size, const char *const argv[]);

#endif
