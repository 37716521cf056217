/* redis.c: one Redis; and five of them, with a lock on the majority. */
#include "servers.h"
#include "suite.h"

#include <stdio.h>
#include <string.h>

#define REDLOCK_NODES 5
/* Generous, because a program with a sanitizer in it is slow: no node may be given up for that. */
#define REDLOCK_TIMEOUT "500ms"

static struct redis_server servers[REDLOCK_NODES];

static void stop(void)
{
    for (int i = 0; i < REDLOCK_NODES; i++)
        redis_stop(&servers[i]);
}

static int start_servers(int count)
{
    for (int i = 0; i < count; i++)
        if (redis_start(&servers[i], NULL) < 0) {
            stop();
            return -1;
        }
    return 0;
}

static int start_redis(char ret_url[URL_SIZE])
{
    if (start_servers(1) < 0)
        return -1;
    snprintf(ret_url, URL_SIZE, "redis://127.0.0.1:%d?prefix=%%s/", servers[0].port);
    return 0;
}

static int start_redlock(char ret_url[URL_SIZE])
{
    size_t used;

    if (start_servers(REDLOCK_NODES) < 0)
        return -1;
    snprintf(ret_url, URL_SIZE, "redlock://");
    for (int i = 0; i < REDLOCK_NODES; i++) {
        used = strlen(ret_url);
        snprintf(ret_url + used, URL_SIZE - used, "%s127.0.0.1:%d", i ? "," : "", servers[i].port);
    }
    used = strlen(ret_url);
    snprintf(ret_url + used, URL_SIZE - used, "?prefix=%%s/&timeout=" REDLOCK_TIMEOUT);
    return 0;
}

const struct store_kind redis_kinds[] = {
    {.name = "redis",
     .start = start_redis,
     .stop = stop,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "redlock",
     .start = start_redlock,
     .stop = stop,
     .shows_waiters = false,
     .time_max_s = TIME_MAX_NETWORK_S},
    {0},
};
