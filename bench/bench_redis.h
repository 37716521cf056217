/* bench_redis.h: what the two files of bench-redis share. */
#ifndef BENCH_BENCH_REDIS_H
#define BENCH_BENCH_REDIS_H

#include "measure.h"
#include "servers.h"

#include <hiredis/hiredis.h>
#include <holdfast/holdfast.h>
#include <stddef.h>

#define NODES 5
#define PREFIX "bench:"
#define URL_BYTES 256
/* With Redlock: less than its servers have been up when it is their turn. With more, the store would
 * warn that they are young. */
#define YOUNG_TTL_MS 2000

_Noreturn void die(const char *what);

/* On 127.0.0.1. Whatever fails ends the program, in all of these. */
hf_store *redis_store(int port);
hf_store *redlock_store(const int ports[NODES]);
void redis_url(int port, char ret_url[URL_BYTES]);
redisContext *bare_connect(int port);

hf_lock *acquire(hf_store *store, const char *name, int64_t ttl_ms);
void release(hf_lock *lock);

/* One line without a bound. floor 0: there is none. */
void report_note(const char *what, double ours, double floor, const char *unit);

/* bench_far.c: everything behind relays that delay what passes. */
void bench_far(const struct redis_server *single, struct redis_server nodes[NODES]);
/* Can be called at any time. */
void far_stop(void);

#endif
