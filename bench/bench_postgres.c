/* bench_postgres.c: the PostgreSQL store against the two bare statements that a lock takes, through the same libpq; beside advisory locks,
 * which are what a user would take otherwise.
 *
 *     bench-postgres HOLDFAST
 *
 * One real server (tests/lib/servers/postgres.h), on a disk, with fsync: each of the two statements waits for the disk, as it does where people
 * have their data. A pair is an acquisition and a release. Every figure is a median of interleaved rounds within this one run. */
#include "measure.h"
#include "postgres.h"

#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <libpq-fe.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 25
#define PAIRS_PER_ROUND 100
#define SPAWNS_PER_ROUND 4
#define BARE_TIMES_MAX 1.2  /* what a pair may cost, in bare ones */
#define LATER_PAIRS 3000    /* without a VACUUM, */
#define LATER_TIMES_MAX 1.5 /* after which a pair may cost so many times what it cost before */
#define COMMAND_TIMES_MAX \
    1.5 /* and a command, in psql's that does the same: both load libpq, and connect */

extern char **environ;

static struct postgres server;
static PGconn *connection;
static pid_t main_pid;

static void stop_server(void)
{
    if (getpid() == main_pid)
        postgres_stop(&server);
}

static void die(const char *what, const char *words)
{
    fprintf(stderr, "bench-postgres: %s: %s\n", what, words);
    exit(1);
}

/* ---- bare ------------------------------------------------------------------------------------ */

/* What a lock in a table is at the least: the counter of a name, and who has it; as large as ours. */
static const char *const bare_tables[] = {
    "CREATE TABLE bare (name bytea PRIMARY KEY, token bigint NOT NULL, incarnation text NOT NULL) "
    "WITH (fillfactor = 70)",
    "CREATE TABLE bare_claims (id bigint GENERATED ALWAYS AS IDENTITY, name bytea NOT NULL, lease "
    "bytea NOT NULL, owner bytea NOT NULL, token bigint, ttl_ms bigint NOT NULL, beat bigint NOT "
    "NULL DEFAULT 1, since timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (name, id)) "
    "WITH (fillfactor = 70)",
    "INSERT INTO bare VALUES ('x', 1, 'a server and its timeline, 41 bytes or so')",
};

#define BARE_TAKE                                                                                  \
    "WITH taken AS (UPDATE bare SET token = token + 1 WHERE name = $1 AND NOT EXISTS (SELECT "     \
    "FROM bare_claims AS c WHERE c.name = $1) RETURNING token) INSERT INTO bare_claims (name, "    \
    "lease, owner, token, ttl_ms) SELECT $1, $2, 'somebody@somewhere bench[12345]', token, 30000 " \
    "FROM taken RETURNING token"
#define BARE_GIVE "DELETE FROM bare_claims WHERE name = $1 AND lease = $2 RETURNING id"

static void ask(const char *statement, int count, const char *const *values)
{
    PGresult *result = PQexecParams(connection, statement, count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);

    if ((status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) ||
        (status == PGRES_TUPLES_OK && PQntuples(result) != 1))
        die(statement, PQerrorMessage(connection));
    PQclear(result);
}

static void bare_pair(void)
{
    const char *const values[] = {"x", "0123456789abcdef0123456789abcdef"};

    ask(BARE_TAKE, 2, values);
    ask(BARE_GIVE, 2, values);
}

/* The same two, prepared once: as little as the server can do for them. */
static void prepared_pair(void)
{
    const char *const values[] = {"x", "0123456789abcdef0123456789abcdef"};
    static const char *const names[] = {"take", "give"};
    static const char *const texts[] = {BARE_TAKE, BARE_GIVE};
    static bool prepared;

    for (int i = 0; i < 2; i++) {
        PGresult *result = prepared ? NULL : PQprepare(connection, names[i], texts[i], 0, NULL);

        PQclear(result);
        result = PQexecPrepared(connection, names[i], 2, values, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
            die(names[i], PQerrorMessage(connection));
        PQclear(result);
    }
    prepared = true;
}

/* Nothing is written: it is gone with the connection, has no token, and strands behind a pooler. */
static void advisory_pair(void)
{
    const char *const values[] = {"4711"};

    ask("SELECT pg_advisory_lock($1)", 1, values);
    ask("SELECT pg_advisory_unlock($1)", 1, values);
}

/* ---- ours, and commands ---------------------------------------------------------------------- */

static hf_store *store;

static void our_pair(void)
{
    hf_lock *lock;

    if (hf_acquire(store, "x", NULL, &lock) != HF_OK || hf_release(lock) != HF_OK)
        die("a pair", hf_error());
}

static double pair_us(void (*pair)(void))
{
    int64_t began_ns = measure_now_ns();

    for (int i = 0; i < PAIRS_PER_ROUND; i++)
        pair();
    return (double)(measure_now_ns() - began_ns) / PAIRS_PER_ROUND / 1e3;
}

static void spawn(const char *const argv[])
{
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    int status, failed;

    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    failed = posix_spawnp(&pid, argv[0], &quiet, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (failed != 0 || waitpid(pid, &status, 0) != pid || status != 0)
        die(argv[0], "failed");
}

static double spawn_us(const char *const argv[])
{
    int64_t began_ns = measure_now_ns();

    for (int i = 0; i < SPAWNS_PER_ROUND; i++)
        spawn(argv);
    return (double)(measure_now_ns() - began_ns) / SPAWNS_PER_ROUND / 1e3;
}

static void prepare(char *ret_url, size_t size, char *ret_conninfo, size_t conninfo_size)
{
    if (postgres_start(&server, NULL) < 0)
        exit(1);
    snprintf(ret_url, size, "postgres://postgres@127.0.0.1:%d/postgres", server.port);
    snprintf(ret_conninfo, conninfo_size, "host=127.0.0.1 port=%d user=postgres dbname=postgres",
             server.port);
    connection = PQconnectdb(ret_conninfo);
    if (PQstatus(connection) != CONNECTION_OK)
        die("connecting", PQerrorMessage(connection));
    for (size_t i = 0; i < sizeof bare_tables / sizeof *bare_tables; i++)
        ask(bare_tables[i], 0, NULL);
    if (hf_open(ret_url, &store) != HF_OK)
        die(ret_url, hf_error());
    our_pair(); /* makes its tables */
}

int main(int argc, char **argv)
{
    static struct series bare, prepared, advisory, ours, later, our_runs, their_runs;
    char url[256], conninfo[256];

    if (argc != 2)
        return 64;
    main_pid = getpid();
    atexit(stop_server);
    setenv("HF_POSTGRES_ON_DISK", "1", 1);
    prepare(url, sizeof url, conninfo, sizeof conninfo);
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&bare, pair_us(bare_pair));
        series_add(&prepared, pair_us(prepared_pair));
        series_add(&ours, pair_us(our_pair));
        series_add(&advisory, pair_us(advisory_pair));
    }
    for (int i = 0; i < LATER_PAIRS / PAIRS_PER_ROUND; i++) {
        double us = pair_us(our_pair);

        if (i >= LATER_PAIRS / PAIRS_PER_ROUND - ROUNDS)
            series_add(&later, us);
    }
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&their_runs, spawn_us((const char *const[]){
                                    "psql", "-Xq", conninfo, "-c",
                                    "UPDATE bare SET token = token + 1 WHERE name = 'x'", "-c",
                                    "UPDATE bare SET token = token + 1 WHERE name = 'x'", NULL}));
        series_add(&our_runs, spawn_us((const char *const[]){argv[1], "--on", url, "run", "y", "--",
                                                             "true", NULL}));
    }
    hf_close(store);
    PQfinish(connection);
    report_ratio("postgres: acquire+release / two bare statements", series_median(&ours),
                 series_median(&bare), "us", BARE_TIMES_MAX);
    report_ratio("postgres: the same, 3000 pairs later / before", series_median(&later),
                 series_median(&ours), "us", LATER_TIMES_MAX);
    report_ratio("postgres: holdfast run NAME -- true / psql, two statements",
                 series_median(&our_runs), series_median(&their_runs), "us", COMMAND_TIMES_MAX);
    printf(
        "postgres: acquire+release / the two bare statements, prepared: %.0f us, %.2f times (ours "
        "are prepared, too, where no pooler is in between)\n",
        series_median(&prepared), series_median(&ours) / series_median(&prepared));
    printf("postgres: pg_advisory_lock+unlock, which writes nothing: %.0f us\n",
           series_median(&advisory));
    return report_broken() > 0;
}
