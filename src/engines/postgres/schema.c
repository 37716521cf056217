/* schema.c: the tables and functions of the locks.
 *
 *     a connection ──▶ where is TABLE_meta? ──▶ nowhere: make all of it, in one transaction ──▶ which version, which incarnation?
 *
 * The schema is found once: where the search_path finds the table, else the one that new tables go to. From then on every statement names it,
 * and each function runs with a path of PostgreSQL's own schema, so that nobody's search_path leads elsewhere (question.c, tables.sql). Two roles may find two: hf_info names the one that was found. */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/switches.h"
#include "base/text.h"
#include "engines/postgres/store.h"

#include <postgres-schema.h> /* made by tools/embed-sql */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The answer to one statement, an error of it in words. NULL: *ret_code says what it is. */
static PGresult *ask(struct engine_store *store, struct connection *conn, const char *text,
                     bool several, int64_t deadline_ms, int *ret_code, struct error_text *err)
{
    struct question question = {.text = text};
    struct error_text said = {""};
    bool sent = false;
    PGresult *answer = several ? connection_run(conn, text, deadline_ms, &said)
                               : connection_ask(conn, &question, deadline_ms, &sent, &said);
    enum verdict verdict;

    if (!answer) { /* nothing that counts was done */
        *ret_code = error_set(err, HF_EUNREACH, "%s: %s", store->shown, said.text);
        return NULL;
    }
    if (PQresultStatus(answer) != PGRES_FATAL_ERROR)
        return answer;
    verdict = error_read(store, answer, ret_code, err);
    if (verdict != VERDICT_FINAL)
        *ret_code = HF_EUNREACH;
    conn->standby = error_is_read_only(answer);
    PQclear(answer);
    return NULL;
}

static PGresult *ask_filled(struct engine_store *store, struct connection *conn,
                            const struct pgnames *names, const char *text, bool several,
                            int64_t deadline_ms, int *ret_code, struct error_text *err)
{
    char *filled = pgnames_fill(names, text);
    PGresult *answer = NULL;

    if (filled) {
        SWITCHED_TEXT(SWITCH_PG_NO_DELAY, filled,
                      "CASE WHEN k.token IS NULL THEN 0 ELSE k.delay_ms END", "0");
        SWITCHED_TEXT(SWITCH_PG_PERMIT_TOO_MANY, filled, "queue.standing >= a_permits",
                      "queue.standing > a_permits");
        answer = ask(store, conn, filled, several, deadline_ms, ret_code, err);
    } else {
        *ret_code = error_set(err, HF_ENOMEM, "out of memory");
    }
    free(filled);
    return answer;
}

/* ---- where it is ----------------------------------------------------------------------------- */

struct found {
    bool exists;  /* our tables */
    bool another; /* somebody else's table of that name */
    char schema[PGNAMES_MAX + 1];
};

static bool yes(const PGresult *answer, int column)
{
    return strcmp(answer_text(answer, 0, column), "t") == 0;
}

/* Not served, unless it may be about to change: then whoever waits goes on. */
static int refuse_read_only(struct engine_store *store, struct error_text *err)
{
    return error_set(err, atomic_load(&store->settled) ? HF_EUNREACH : HF_EREFUSED,
                     "%s: this server, or this role, is read-only, though it is no standby: "
                     "default_transaction_read_only is on, and locks have to be written",
                     store->shown);
}

/* A standby is refused, unless it may be about to be promoted: then whoever waits goes on. */
static int refuse_standby(struct engine_store *store, struct error_text *err)
{
    return error_set(err, atomic_load(&store->settled) ? HF_EUNREACH : HF_EREFUSED,
                     "%s: this server is a standby: locks are kept on the primary only (several "
                     "hosts in the URL find it)",
                     store->shown);
}

static int find(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                struct found *ret_found, struct error_text *err)
{
    char text[1024];
    char quoted[2 * PGNAMES_MAX + 8];
    int code = HF_EINTERNAL;
    const struct pgnames *wanted = &store->wanted;
    PGresult *answer;

    snprintf(quoted, sizeof quoted, "%s%s%s\"%s_meta\"", wanted->schema[0] ? "\"" : "",
             wanted->schema, wanted->schema[0] ? "\"." : "", wanted->table);
    snprintf(text, sizeof text,
             "SELECT pg_catalog.pg_is_in_recovery(), "
             "pg_catalog.current_setting('transaction_read_only') = 'on', "
             "(SELECT n.nspname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON "
             "n.oid = c.relnamespace "
             "WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('%s')), "
             "pg_catalog.current_schema(), "
             "pg_catalog.to_regclass('%s%s%s\"%s\"') IS NOT "
             "NULL, "
             "pg_catalog.current_setting('server_version_num')::int",
             quoted, wanted->schema[0] ? "\"" : "", wanted->schema, wanted->schema[0] ? "\"." : "",
             wanted->table);
    answer = ask(store, conn, text, false, deadline_ms, &code, err);
    if (!answer)
        return code;
    *ret_found = (struct found){.exists = answer_text(answer, 0, 2)[0], .another = yes(answer, 4)};
    ret_found->another = ret_found->another && !ret_found->exists;
    snprintf(ret_found->schema, sizeof ret_found->schema, "%s",
             ret_found->exists   ? answer_text(answer, 0, 2)
             : wanted->schema[0] ? wanted->schema
                                 : answer_text(answer, 0, 3));
    conn->standby = yes(answer, 0);
    conn->read_only = !conn->standby && yes(answer, 1);
    if (yes(answer, 0))
        code = refuse_standby(store, err);
    else if (yes(answer, 1))
        code = refuse_read_only(store, err);
    else
        code = HF_OK;
    PQclear(answer);
    return code;
}

/* ---- making it ------------------------------------------------------------------------------- */

/* Once: whoever meant another table, or another database, notices. */
static void say_made(const struct engine_store *store, const struct pgnames *names)
{
    char text[sizeof store->shown + 2 * PGNAMES_MAX + 80];

    snprintf(text, sizeof text, "made the tables of a new store for locks at %s: %s.%s",
             store->shown, names->schema, names->table);
    store->host->warn(store->host->context, text);
}

static int make(struct engine_store *store, struct connection *conn, const struct pgnames *names,
                int64_t deadline_ms, struct error_text *err)
{
    struct found found = {.exists = false};
    struct error_text ignored = {""};
    int code = HF_EINTERNAL;
    PGresult *answer =
        ask_filled(store, conn, names, sql_text_schema, true, deadline_ms, &code, err);

    if (answer && PQntuples(answer) > 0)
        say_made(store, names);
    PQclear(answer);
    if (answer)
        return HF_OK;
    /* Perhaps somebody else has made it meanwhile, who may what we may not. */
    if (PQstatus(conn->pg) == CONNECTION_OK &&
        find(store, conn, deadline_ms, &found, &ignored) == HF_OK && found.exists)
        return HF_OK;
    if (code == HF_EREFUSED && !strstr(err->text, PG_NO_SCHEMA)) { /* that says what to do */
        struct error_text why = *err;
        char *advice = strstr(why.text, ": " PG_NOT_GRANTED);

        if (advice) /* of those who use tables that are there */
            *advice = '\0';
        error_write(err,
                    "the tables of the locks are not there, and could not be made: %.250s (whoever "
                    "may applies what '%s' prints)",
                    why.text, store->advice);
    }
    return code;
}

/* ---- using it -------------------------------------------------------------------------------- */

/* Whoever has a statement of this name has this statement, whatever else it is used for. */
static void name_statement(const char *text, char ret_name[PG_STATEMENT_NAME_MAX + 1])
{
    unsigned char digest[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];

    sha256(text, strlen(text), digest);
    text_hex(digest, sizeof digest, hex);
    snprintf(ret_name, PG_STATEMENT_NAME_MAX + 1, "holdfast_%.16s", hex);
}

static int fill_texts(struct engine_store *store, const struct pgnames *names,
                      struct error_text *err)
{
    char *texts[STATEMENT_COUNT] = {NULL};
    bool well = true;

    for (int i = 0; i < STATEMENT_COUNT; i++) {
        texts[i] = pgnames_fill(names, statement_texts[i]);
        well = well && texts[i];
    }
    pthread_mutex_lock(&store->mutex);
    if (well && !atomic_load(&store->settled)) {
        memcpy(store->texts, texts, sizeof texts);
        for (int i = 0; i < STATEMENT_COUNT; i++)
            name_statement(texts[i], store->statement_names[i]);
        store->names = *names;
        pg_say_where(store, names, store->where);
        atomic_store(&store->settled, true);
        memset(texts, 0, sizeof texts);
    }
    pthread_mutex_unlock(&store->mutex);
    for (int i = 0; i < STATEMENT_COUNT; i++)
        free(texts[i]);
    return well ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");
}

/* Of HELLO's answer. */
static int check_version(const struct engine_store *store, const struct pgnames *names,
                         const PGresult *answer, struct error_text *err)
{
    int64_t version = 0;

    if (PQntuples(answer) == 0)
        return error_set(err, HF_EREFUSED,
                         "%s: the one row of %s.%s_meta is gone, and with it the floor of tokens: "
                         "apply what '%s' prints once more, then say holdfast floor",
                         store->shown, names->schema, names->table, store->advice);
    if (!answer_number(answer, 0, 0, &version) || version != PG_SCHEMA_VERSION)
        return error_set(err, HF_EREFUSED,
                         "%s: the tables of the locks are of version %lld, and this holdfast has "
                         "%d: use the same version "
                         "everywhere, or name another table with ?table=",
                         store->shown, (long long)version, PG_SCHEMA_VERSION);
    return HF_OK;
}

/* Of HELLO's answer. Once: they are used all the same, with the faults that they have. */
static void check_revision(struct engine_store *store, const PGresult *answer)
{
    char text[sizeof store->advice + 160];
    int64_t revision = 0; /* of before there were any */

    answer_number(answer, 0, 4, &revision);
    if (revision >= PG_REVISION || atomic_exchange(&store->outdated, true))
        return;
    snprintf(text, sizeof text,
             "the functions of the locks in the database are older than this holdfast: whoever may "
             "applies once more what '%s' prints",
             store->advice);
    store->host->warn(store->host->context, text);
}

/* How many of these characters it begins with. */
static size_t skip(const char *text, const char *characters, size_t max)
{
    size_t size = strspn(text, characters);

    return size <= max ? size : 0;
}

/* ID.ERA.SYSTEM.TIMELINE: two that are drawn (tables.sql, _incarnation), the server's system identifier, and eight digits of the name of
 * a file of the WAL. */
bool schema_is_incarnation(const char *text)
{
    static const struct {
        const char *characters;
        size_t min, max;
        char end;
    } parts[] = {{"0123456789abcdef", PG_ID_DIGITS, PG_ID_DIGITS, '.'},
                 {"0123456789abcdef", PG_ERA_DIGITS, PG_ERA_DIGITS, '.'},
                 {"0123456789", 1, PG_SYSTEM_DIGITS_MAX, '.'},
                 {"0123456789ABCDEF", PG_TIMELINE_DIGITS, PG_TIMELINE_DIGITS, '\0'}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t size = skip(text, parts[i].characters, parts[i].max);

        if (size < parts[i].min || text[size] != parts[i].end)
            return false;
        text += size + (parts[i].end != '\0');
    }
    return true;
}

/* An id goes into the name of the channel, and so into the text of LISTEN. */
static int check_incarnation(const struct engine_store *store, const struct pgnames *names,
                             const char *incarnation, struct error_text *err)
{
    if (!incarnation[0])
        return error_set(err, HF_EINTERNAL, "%s: the server does not say which one it is",
                         store->shown);
    if (!schema_is_incarnation(incarnation))
        return error_set(err, HF_EREFUSED,
                         "%s: the id or the era in the row of %s.%s_meta is not one that holdfast "
                         "draws: somebody "
                         "who may write to that table has put it there",
                         store->shown, names->schema, names->table);
    return HF_OK;
}

static int hello(struct engine_store *store, struct connection *conn, const struct pgnames *names,
                 int64_t deadline_ms, char ret_incarnation[PG_INCARNATION_MAX + 1],
                 struct error_text *err)
{
    int code = HF_EINTERNAL;
    int64_t pid = 0;
    PGresult *answer = ask_filled(store, conn, names, statement_texts[STATEMENT_HELLO], false,
                                  deadline_ms, &code, err);
    const char *incarnation;

    if (!answer)
        return code;
    incarnation = answer_text(answer, 0, 1);
    code = check_version(store, names, answer, err);
    if (code == HF_OK)
        code = check_incarnation(store, names, incarnation, err);
    if (code == HF_OK && (conn->read_only = yes(answer, 3)))
        code = refuse_read_only(store, err);
    if (code == HF_OK) {
        check_revision(store, answer);
        snprintf(ret_incarnation, PG_INCARNATION_MAX + 1, "%s", incarnation);
        if (answer_number(answer, 0, 2, &pid)) /* as connection_peer has it */
            atomic_store(&store->pooled, pid != PQbackendPID(conn->pg));
        conn->direct = pid == PQbackendPID(conn->pg);
    }
    PQclear(answer);
    return code;
}

int schema_settle(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                  char ret_incarnation[PG_INCARNATION_MAX + 1], struct error_text *err)
{
    struct pgnames names = store->wanted;
    struct found found = {.exists = false};
    int result;

    if (atomic_load(&store->settled))
        return hello(store, conn, &store->names, deadline_ms, ret_incarnation, err);
    result = find(store, conn, deadline_ms, &found, err);
    if (result == HF_OK && found.another) /* or somebody has made ours just between the two looks */
        result = find(store, conn, deadline_ms, &found, err);
    if (result == HF_OK && found.another)
        result = error_set(
            err, HF_EREFUSED,
            "%s: there is a table %s that is not one of holdfast's: name another one with ?table=",
            store->shown, names.table);
    if (result == HF_OK && strpbrk(found.schema, "\"'\\@"))
        result = error_set(err, HF_EREFUSED, "%s: a schema with such a name cannot be used: '%s'",
                           store->shown, found.schema);
    if (result == HF_OK && !found.schema[0])
        result =
            error_set(err, HF_EREFUSED,
                      "%s: the role's search_path has no schema: name one with ?table=SCHEMA.TABLE",
                      store->shown);
    if (result != HF_OK)
        return result;
    snprintf(names.schema, sizeof names.schema, "%s", found.schema);
    if (!found.exists)
        result = make(store, conn, &names, deadline_ms, err);
    if (result == HF_OK)
        result = hello(store, conn, &names, deadline_ms, ret_incarnation, err);
    return result == HF_OK ? fill_texts(store, &names, err) : result;
}

void schema_free(struct engine_store *store)
{
    for (int i = 0; i < STATEMENT_COUNT; i++)
        free(store->texts[i]);
}
