/* test_sqlite_helper.c: hf_guard_sqlite and hf_guard_sqlite_token in a program that uses SQLite, and
 * hf_guard_sql as a function. */
#include <holdfast/guard.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static sqlite3 *open_guarded(void)
{
    hf_guard_sql_options options = HF_GUARD_SQL_OPTIONS_INIT;
    sqlite3 *db;
    char *text;

    options.dialect = HF_SQL_SQLITE;
    options.table = "batches";
    options.setting = 1;
    options.require = 1;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "CREATE TABLE batches (id INTEGER PRIMARY KEY, fence_token INT, n INT)",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(hf_guard_sql(&options, &text), HF_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    free(text);
    return db;
}

static int run(sqlite3 *db, const char *statement)
{
    return sqlite3_exec(db, statement, NULL, NULL, NULL);
}

static void test_a_transaction_with_its_token(void **state)
{
    sqlite3 *db = open_guarded();

    (void)state;
    assert_int_equal(hf_guard_sqlite(db), HF_OK);
    assert_int_equal(run(db, "BEGIN"), SQLITE_OK);
    assert_int_equal(hf_guard_sqlite_token(db, 34), HF_OK);
    assert_int_equal(hf_guard_sqlite(db), HF_OK); /* again is harmless, even now */
    assert_int_equal(run(db, "INSERT INTO batches (id, n) VALUES (7, 0)"), SQLITE_OK);
    assert_int_equal(run(db, "COMMIT"), SQLITE_OK);

    assert_int_equal(run(db, "UPDATE batches SET n = 1"), SQLITE_CONSTRAINT);
    assert_string_equal(sqlite3_errmsg(db), "no fencing token");

    assert_int_equal(run(db, "BEGIN"), SQLITE_OK);
    assert_int_equal(hf_guard_sqlite_token(db, 33), HF_OK);
    assert_int_equal(run(db, "UPDATE batches SET n = 1"), SQLITE_CONSTRAINT);
    assert_string_equal(sqlite3_errmsg(db), "stale fencing token (see holdfast_marks)");
    assert_int_equal(hf_guard_sqlite_token(db, 0), HF_OK);
    assert_int_equal(run(db, "UPDATE batches SET n = 1"), SQLITE_CONSTRAINT);
    assert_string_equal(sqlite3_errmsg(db), "no fencing token");
    assert_int_equal(hf_guard_sqlite_token(db, HF_TOKEN_MAX), HF_OK);
    assert_int_equal(run(db, "UPDATE batches SET n = 1"), SQLITE_OK);
    assert_int_equal(run(db, "COMMIT"), SQLITE_OK);
    sqlite3_close(db);
}

static void test_what_cannot_be_is_said(void **state)
{
    sqlite3 *db = open_guarded();

    (void)state;
    assert_int_equal(hf_guard_sqlite(NULL), HF_EINVAL);
    assert_int_equal(hf_guard_sqlite_token(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_guard_sqlite_token(db, 1), HF_EREFUSED);
    assert_non_null(strstr(hf_error(), "no such function: holdfast_token"));
    assert_int_equal(hf_guard_sqlite(db), HF_OK);
    assert_int_equal(hf_guard_sqlite_token(db, 1), HF_EREFUSED);
    assert_non_null(strstr(hf_error(), "BEGIN a transaction first"));
    assert_int_equal(hf_guard_sqlite_token(db, HF_TOKEN_MAX + 1), HF_EINVAL);
    sqlite3_close(db);
}

/* It is allowed for the call only: SQL must not load anything afterwards. */
static void test_loading_stays_forbidden(void **state)
{
    sqlite3 *db = open_guarded();
    int on;

    (void)state;
    sqlite3_enable_load_extension(db, 0);
    assert_int_equal(hf_guard_sqlite(db), HF_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, -1, &on);
    assert_int_equal(on, 0);
    assert_int_equal(run(db, "SELECT load_extension('x')"), SQLITE_ERROR);
    assert_string_equal(sqlite3_errmsg(db), "not authorized");
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    assert_int_equal(hf_guard_sqlite(db), HF_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, -1, &on);
    assert_int_equal(on, 1);
    sqlite3_close(db);
}

static void test_options(void **state)
{
    hf_guard_sql_options options = HF_GUARD_SQL_OPTIONS_INIT;
    struct {
        hf_guard_sql_options known;
        int more;
    } later = {HF_GUARD_SQL_OPTIONS_INIT, 0};
    char *text = NULL, *other;

    (void)state;
    assert_int_equal(hf_guard_sql(NULL, &text), HF_EINVAL);
    assert_int_equal(hf_guard_sql(&options, &text), HF_EINVAL); /* no dialect */
    options.dialect = HF_SQL_POSTGRES;
    options.size = 0;
    assert_int_equal(hf_guard_sql(&options, &text), HF_EINVAL);
    options.size = (size_t)-1;
    assert_int_equal(hf_guard_sql(&options, &text), HF_EINVAL);
    options.size = sizeof options;
    options.table = "t";
    options.mode = 2;
    assert_int_equal(hf_guard_sql(&options, &text), HF_EINVAL);
    assert_null(text);

    options.mode = HF_NEWER;
    assert_int_equal(hf_guard_sql(&options, &text), HF_OK);
    later.known = options;
    later.known.size = sizeof later;
    assert_int_equal(hf_guard_sql(&later.known, &other), HF_OK);
    assert_string_equal(text, other);
    free(other);
    later.more = 1;
    assert_int_equal(hf_guard_sql(&later.known, &other), HF_EINVAL);
    options.schema = "not there in an older struct";
    options.size = offsetof(hf_guard_sql_options, schema);
    assert_int_equal(hf_guard_sql(&options, &other), HF_OK);
    assert_string_equal(text, other);
    free(other);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_transaction_with_its_token),
        cmocka_unit_test(test_what_cannot_be_is_said),
        cmocka_unit_test(test_loading_stays_forbidden),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests_name("sqlite-helper", tests, NULL, NULL);
}
