/* test_postgres.c: the servers of postgres.h do what they say. */
#include "postgres.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct postgres server;

static const char *ask(const struct postgres *of, const char *statement)
{
    static char reply[POSTGRES_REPLY_MAX];

    assert_int_equal(0, postgres_do(of, statement, reply, sizeof reply));
    return reply;
}

static int stop(void **state)
{
    (void)state;
    postgres_stop(&server);
    return 0;
}

static void what_was_committed_outlives_a_crash(void **state)
{
    char dir[SERVER_DIR_MAX];
    struct stat st;

    (void)state;
    assert_int_equal(0, postgres_start(&server, (const char *const[]){"-c", "work_mem=5MB", NULL}));
    assert_string_equal("5MB", ask(&server, "SHOW work_mem"));
    assert_string_equal("on", ask(&server, "SHOW fsync"));
    ask(&server, "CREATE TABLE kept AS SELECT 7 AS number, 'a|b' AS text");
    postgres_kill9(&server);
    assert_int_equal(0, server.pid);
    assert_int_equal(-1, postgres_do(&server, "SELECT 1", NULL, 0));
    assert_int_equal(0, postgres_restart(&server));
    assert_string_equal("7|a|b", ask(&server, "SELECT * FROM kept"));
    assert_int_equal(0, postgres_restart(&server)); /* in peace */
    assert_string_equal("5MB", ask(&server, "SHOW work_mem"));
    snprintf(dir, sizeof dir, "%s", server.dir);
    postgres_stop(&server);
    assert_int_equal(-1, stat(dir, &st));
}

static void a_paused_one_goes_on(void **state)
{
    (void)state;
    assert_int_equal(0, postgres_start(&server, NULL));
    assert_int_equal(0, postgres_pause(&server));
    assert_int_equal(0, postgres_resume(&server));
    assert_string_equal("1", ask(&server, "SELECT 1"));
    assert_int_equal(0, postgres_pause(&server));
    postgres_kill9(&server); /* also while it is paused */
    assert_int_equal(0, postgres_restart(&server));
    assert_string_equal("1", ask(&server, "SELECT 1"));
}

static void a_replica_is_promoted(void **state)
{
    struct postgres replica = {0};

    (void)state;
    assert_int_equal(0, postgres_start(&server, NULL));
    assert_int_equal(0, postgres_start_replica(&replica, server.port, "standby1", NULL));
    assert_string_equal("t", ask(&replica, "SELECT pg_is_in_recovery()"));
    ask(&server, "ALTER SYSTEM SET synchronous_standby_names = 'standby1'");
    ask(&server, "SELECT pg_reload_conf()");
    ask(&server, "CREATE TABLE kept AS SELECT 7 AS number"); /* returns when the replica has it */
    postgres_kill9(&server);
    assert_int_equal(0, postgres_promote(&replica));
    assert_string_equal("f", ask(&replica, "SELECT pg_is_in_recovery()"));
    postgres_stop(&replica);
}

static void a_fresh_one_is_another_server(void **state)
{
    static const char statement[] = "SELECT system_identifier FROM pg_control_system()";
    struct postgres fresh = {0};
    char identifier[64];

    (void)state;
    assert_int_equal(0, postgres_start(&server, NULL));
    assert_int_equal(0, postgres_start_fresh(&fresh, NULL));
    snprintf(identifier, sizeof identifier, "%.60s", ask(&server, statement));
    assert_string_not_equal(identifier, ask(&fresh, statement));
    postgres_stop(&fresh);
}

static void pgbouncer_stands_before_it(void **state)
{
    struct pgbouncer bouncer = {0};
    struct postgres through;

    (void)state;
    if (access("/usr/sbin/pgbouncer", X_OK) < 0)
        skip();
    assert_int_equal(0, postgres_start(&server, NULL));
    assert_int_equal(0, pgbouncer_start(&bouncer, server.port, "default_pool_size = 1"));
    through = server;
    through.port = bouncer.port;
    snprintf(through.dir, sizeof through.dir, "127.0.0.1");
    ask(&server, "CREATE ROLE anybody LOGIN");
    assert_string_equal("1", ask(&through, "SELECT 1"));
    pgbouncer_stop(&bouncer);
    assert_int_equal(-1, postgres_do(&through, "SELECT 1", NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_was_committed_outlives_a_crash, stop),
        cmocka_unit_test_teardown(a_paused_one_goes_on, stop),
        cmocka_unit_test_teardown(a_replica_is_promoted, stop),
        cmocka_unit_test_teardown(a_fresh_one_is_another_server, stop),
        cmocka_unit_test_teardown(pgbouncer_stands_before_it, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
