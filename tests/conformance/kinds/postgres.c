/* postgres.c: PostgreSQL, directly, behind pgbouncer in transaction mode, with locks that are transactions, and while it suffers. All
 * tests share a server: each has a table of its own.
 *
 * Where it suffers, the warden has it (warden.h): every few seconds it kills all of its processes and starts it again, or ends all
 * connections, in turn. It is told 's' before a test that is to be spared, 'n' before any other, and 'e' when it is over. */
#include "postgres.h"

#include "suite.h"
#include "warden.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_FAULT_DOUBLINGS 9u /* the first fault comes within 1 ms, or 2, 4, ... 256 ms */
#define FAULT_EVERY_MS 2500
#define ROW_CONNECTIONS "800"

static struct postgres server;
static struct pgbouncer bouncer;
static int port;                /* of whatever is to be asked */
static const char *more_of_url; /* "" or "&..." */

/* A table of its own for each directory: FNV-1a of the path. And time for a first contact, in which it is made, on a machine that is busy with other
 * tests. */
static void make_url(const char *dir, char ret_url[URL_SIZE])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *dir; dir++)
        hash = (hash ^ (unsigned char)*dir) * UINT64_C(0x100000001b3);
    snprintf(ret_url, URL_SIZE,
             "postgres://postgres@127.0.0.1:%d/postgres?timeout=20s&table=locks_%" PRIx64 "%s",
             port, hash, more_of_url);
}

/* ---- calm ------------------------------------------------------------------------------------ */

static int start_with(const char *const *args, const char *more)
{
    more_of_url = more;
    if (postgres_start(&server, args) < 0)
        return -1;
    port = server.port;
    return 0;
}

static int start(char ret_url[URL_SIZE])
{
    (void)ret_url; /* each directory has its own */
    return start_with(NULL, "");
}

static int start_row(char ret_url[URL_SIZE])
{
    (void)ret_url;
    /* A connection for each lock, and some tests have hundreds. */
    return start_with((const char *const[]){"-cmax_connections=" ROW_CONNECTIONS, NULL},
                      "&mode=row");
}

static int start_bouncer(char ret_url[URL_SIZE])
{
    if (start(ret_url) < 0 || pgbouncer_start(&bouncer, server.port, "") < 0)
        return -1;
    port = bouncer.port;
    return 0;
}

static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    make_url(dir, ret_url);
    return 0;
}

static void stop(void)
{
    pgbouncer_stop(&bouncer);
    postgres_stop(&server);
}

/* ---- the warden ------------------------------------------------------------------------------ */

static int faults;
static int64_t fault_ms = INT64_MAX;

static void do_harm(void)
{
    if (faults++ % 2 == 0) {
        postgres_kill9(&server);
        if (postgres_restart(&server) < 0)
            _exit(1);
    } else if (postgres_do(&server,
                           "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                           "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
                           NULL, 0) < 0) {
        _exit(1);
    }
}

static int look_after(void)
{
    if (fault_ms != INT64_MAX && now_ms() >= fault_ms) {
        do_harm();
        fault_ms = now_ms() + FAULT_EVERY_MS;
    }
    return warden_until(fault_ms);
}

static void obey(char order)
{
    fault_ms = order == 'n' ? warden_first_fault(FIRST_FAULT_DOUBLINGS) : INT64_MAX;
    warden_say(&order, 1);
}

static void begin(void)
{
    if (postgres_start(&server, NULL) < 0)
        _exit(1);
    warden_say(&server.port, sizeof server.port);
}

static void end(void)
{
    postgres_stop(&server);
    printf("the server was killed, or its connections were ended, %d times\n", faults);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static int start_killed(char ret_url[URL_SIZE])
{
    static const struct warden warden = {begin, look_after, obey, end};

    (void)ret_url;
    more_of_url = "";
    return warden_start(&warden) == 0 ? warden_hear(&port, sizeof port) : -1;
}

static int start_killed_for(const char *dir, char ret_url[URL_SIZE])
{
    char order;

    make_url(dir, ret_url);
    return warden_tell(steady_server ? 's' : 'n', &order, 1);
}

/* Ends the run if something is wrong: without its server no test means anything. */
static void end_test(void)
{
    char order;

    if (warden_tell('e', &order, 1) < 0)
        exit(1);
}

const struct store_kind postgres_kinds[] = {
    {.name = "postgres",
     .start = start,
     .start_for = start_for,
     .stop = stop,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "postgres-pgbouncer",
     .start = start_bouncer,
     .start_for = start_for,
     .stop = stop,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "postgres-row",
     .start = start_row,
     .start_for = start_for,
     .stop = stop,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "postgres-killed",
     .start = start_killed,
     .start_for = start_killed_for,
     .stop_all = end_test,
     .stop = warden_stop,
     .shows_waiters = true,
     .leaders_fall =
         true, /* it is the only one, and needs a second to recover: as long as an election */
     .time_max_s = TIME_MAX_NETWORK_S},
    {0},
};
