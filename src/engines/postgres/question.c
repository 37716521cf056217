/* question.c: the statements, and their parameters. */
#include "base/text.h"
#include "engines/postgres/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The keys of all who have entered and not ended. The server's locks are read once for a whole statement, with the first row that asks for them, if any does. */
#define ENTERED_KEYS                                                                            \
    "(SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks AS l JOIN pg_database AS " \
    "d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory' " \
    "AND l.objsubid = 1)"

/* What of a hold is not one any more, and withholds the name: enum claim_state. */
#define CLAIM_STATE                                                                   \
    "CASE WHEN NOT k.broken AND (k.token IS NULL OR k.incarnation = i.now) THEN 'h' " \
    "WHEN k.mode = 'r' OR @_entered_key@(k.name, k.id) IN " ENTERED_KEYS " THEN 'e' " \
    "WHEN k.broken THEN 'b' ELSE 'o' END"

#define CLAIM_COLUMNS                                                                              \
    "k.id, k.beat, k.ttl_ms + k.ttl_ms / 100 + 4 + CASE WHEN k.token IS NULL THEN 0 ELSE "         \
    "k.delay_ms END, CASE WHEN k.seen_beat = k.beat THEN coalesce((k.seen ->> $2::text)::bigint, " \
    "-1) "                                                                                         \
    "ELSE -1 END, k.mode, k.permits, k.token, " CLAIM_STATE ", encode(k.owner, 'hex'), "           \
    "encode(k.lease, 'hex'), (extract(epoch FROM clock_timestamp() - k.since) * "                  \
    "1000::numeric)::bigint, "                                                                     \
    "encode(k.name, 'hex')"

/* What is held by a transaction that has ended is not held, also where the next one has the row locked, and its client is stopped before it comes
 * for its token. Functions of before leave 0 in place of the session. */
#define IS_CLAIM                                                                               \
    "CASE WHEN k.mode = 'r' THEN @_row_is_held@(k.name) AND (k.delay_ms = 0 OR k.delay_ms IN " \
    "(SELECT a.pid FROM pg_catalog.pg_stat_activity AS a)) ELSE k.mode IN ('x', 's', 'p') END"

#define CLAIMS_OF_NAME                                                                          \
    "SELECT i.now, " CLAIM_COLUMNS " FROM (SELECT @_incarnation@() AS now) AS i LEFT JOIN "     \
    "@_claims@ AS k ON k.name = $1 AND k.id >= coalesce((SELECT l.first_id FROM @@ AS l WHERE " \
    "l.name = $1), 0) AND " IS_CLAIM

/* They run with the path of whoever uses the store, in which somebody else may have made functions and operators: PostgreSQL takes its own, or the
 * store's, only if these match without a conversion, or stand under their schema. So each parameter says its type. */
const char *const statement_texts[STATEMENT_COUNT] = {
    [STATEMENT_HELLO] =
        "SELECT m.version, @_incarnation@(), pg_catalog.pg_backend_pid(), "
        "pg_catalog.current_setting('transaction_read_only') = 'on', "
        /* read, and not called: those of before do not have it */
        "(SELECT substring(p.prosrc FROM '[0-9]+') FROM pg_catalog.pg_proc AS p WHERE p.oid "
        "OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure(@'_revision'@ || '()')) FROM @_meta@ AS "
        "m",
    [STATEMENT_ACQUIRE] =
        "SELECT code, incarnation, claim, token, others, encode(result, 'hex'), "
        "keep_ms, seen_ms, beat FROM @_acquire@($1::text, $2::integer, $3::bytea, "
        "$4::bytea, $5::bytea, $6::\"char\", $7::integer, $8::bigint, $9::bigint, "
        "$10::bigint, $11::boolean, $12::boolean, $13::boolean, $14::boolean, "
        "$15::bigint, $16::text, $17::bigint, $18::bigint[], $19::bigint[], "
        "$20::bigint)",
    [STATEMENT_RENEW] =
        "SELECT code, incarnation, lefts, beats FROM @_renew@($1::text, $2::integer, "
        "$3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], "
        "$8::bigint[], $9::text, $10::bigint)",
    [STATEMENT_RELEASE] =
        "SELECT code, incarnation FROM @_release@($1::text, $2::integer, $3::bytea, "
        "$4::bytea, $5::bigint, $6::bigint, $7::text, $8::bigint[], $9::bigint[], "
        "$10::bigint[])",
    [STATEMENT_NOTE] = "SELECT code, incarnation FROM @_note@($1::text, $2::bytea, $3::text, "
                       "$4::bigint[], $5::bigint[], $6::bigint[])",
    [STATEMENT_SWEEP] = "SELECT code, incarnation FROM @_sweep@($1::text, $2::integer, $3::bytea, "
                        "$4::bigint[], $5::bigint[], $6::bigint)",
    [STATEMENT_SOME_CLAIMS] = "SELECT encode(name, 'hex'), id, beat, span_ms, at_ms FROM "
                              "@_some_claims@($1::integer, $2::text)",
    [STATEMENT_NOTE_MANY] =
        "SELECT code, incarnation FROM @_note_many@($1::text, $2::text, $3::bytea[], "
        "$4::bigint[], $5::bigint[], $6::bigint[])",
    [STATEMENT_SWEEP_MANY] = "SELECT code, incarnation FROM @_sweep_many@($1::text, $2::integer, "
                             "$3::bytea[], $4::bigint[], $5::bigint[])",
    [STATEMENT_BREAK] = "SELECT code, incarnation, broken FROM @_break@($1::text, $2::integer, "
                        "$3::bytea, $4::boolean)",
    [STATEMENT_FLOOR] = "SELECT code, incarnation, at, ends FROM @_floor@($1::text, $2::integer, "
                        "$3::bigint, $4::boolean)",
    [STATEMENT_OBSERVE] =
        "SELECT code, incarnation, claim FROM @_observe@($1::text, $2::integer, "
        "$3::bytea, $4::bytea, $5::bytea, $6::bigint, $7::bigint, $8::text, $9::bigint)",
    [STATEMENT_UNOBSERVE] = "DELETE FROM @_claims@ WHERE name = $1 AND id = $2 AND lease = $3 AND "
                            "mode = 'o' RETURNING true",
    [STATEMENT_FINISH] =
        "SELECT code, incarnation FROM @_finish@($1::text, $2::integer, $3::bytea, "
        "$4::bytea, $5::bigint, $6::bytea, $7::bigint, $8::text, $9::bigint)",
    /* Of these the first column is always there: a standby, or another server, does not pass for an empty store. */
    [STATEMENT_ONCE_READ] =
        "SELECT incarnation, state, token, keep_ms, seen_ms, encode(result, 'hex') FROM "
        "@_once_read@($1::bytea, $2::integer, $3::text)",
    /* Some of a page that this host has not noted. */
    [STATEMENT_ONCE_PAGE] = "SELECT encode(name, 'hex'), token FROM @_once_unnoted@($1::text)",
    [STATEMENT_NOTE_RECORDS] =
        "SELECT code, incarnation FROM @_note_records@($1::text, $2::text, $3::bytea[], "
        "$4::bigint[], $5::bigint)",
    [STATEMENT_SHOW] = CLAIMS_OF_NAME " ORDER BY k.token IS NULL, k.id LIMIT 4096",
    /* However many share the name. */
    [STATEMENT_CHECK] = CLAIMS_OF_NAME " AND k.token = $3::bigint",
    [STATEMENT_LIST] =
        "SELECT i.now, " CLAIM_COLUMNS " FROM (SELECT @_incarnation@() AS now) AS i LEFT JOIN "
        "@_claims@ AS k ON get_byte(k.name, 0) <> 0 AND " IS_CLAIM
        " AND k.token IS NOT NULL AND (k.name, k.id) > ($1, $3::bigint) ORDER BY k.name, k.id "
        "LIMIT 1000",
    [STATEMENT_ROW_MAKE] =
        "INSERT INTO @_rows@ VALUES ($1) ON CONFLICT (name) DO NOTHING RETURNING true",
    [STATEMENT_ROW_GRANT] =
        "SELECT code, incarnation, token FROM @_row_grant@($1::text, $2::integer, "
        "$3::bytea, $4::bytea, $5::bytea, $6::integer)",
    [STATEMENT_ROW_ALIVE] = "SELECT m.id || '.' || m.era || '.' || @_server@() FROM @_meta@ AS m",
    /* NULL: it is not there any more, and nothing says why. Of what `break --now` has removed a mark is left that says it. */
    [STATEMENT_BROKEN] =
        "SELECT u.n, k.broken FROM unnest($1::bytea[], $2::bytea[]) WITH "
        "ORDINALITY AS u(name, lease, n) LEFT JOIN @_claims@ AS k ON k.name = "
        "u.name AND k.lease = u.lease AND (k.mode <> 'e' OR k.broken) WHERE k.broken IS NOT FALSE",
    [STATEMENT_TELL] = "SELECT pg_catalog.pg_notify($1::text, $2::text)",
};

/* ---- text ------------------------------------------------------------------------------------ */

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (size < 0)
        text->failed = true;
    if (!text->failed && text->size + (size_t)size + 1 > text->room) {
        size_t room = 2 * (text->size + (size_t)size + 1);
        char *bytes = realloc(text->bytes, room);

        if (!bytes) {
            text->failed = true;
            return;
        }
        text->bytes = bytes;
        text->room = room;
    }
    if (text->failed)
        return;
    va_start(arguments, format);
    vsnprintf(text->bytes + text->size, text->room - text->size, format, arguments);
    va_end(arguments);
    text->size += (size_t)size;
}

void text_add_name(struct text *text, const void *bytes, size_t size)
{
    char hex[2 * (HF_NAME_MAX + 2) + 1];

    text_hex(bytes, size, hex);
    text_add(text, "%s\"\\\\x%s\"", text->size > 1 ? "," : "", hex);
}

void text_add_number(struct text *text, int64_t number)
{
    text_add(text, "%s%" PRId64, text->size > 1 ? "," : "", number);
}

void text_drop(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void add(struct question *question, const char *value, size_t size, int format)
{
    INVARIANT(question->count < PG_PARAMETERS_MAX);
    question->values[question->count] = value;
    question->lengths[question->count] = (int)size;
    question->formats[question->count++] = format;
}

void question_add_expected(struct question *question)
{
    INVARIANT(question->count == 0);
    question->expects = true;
    add(question, "", 0, 0);
}

void question_add_number(struct question *question, int64_t number)
{
    char *text = question->numbers[question->count];

    snprintf(text, sizeof question->numbers[0], "%" PRId64, number);
    add(question, text, 0, 0);
}

void question_add_bool(struct question *question, bool yes)
{
    add(question, yes ? "t" : "f", 0, 0);
}

void question_add_text(struct question *question, const char *text)
{
    add(question, text, 0, 0);
}

void question_add_bytes(struct question *question, const void *bytes, size_t size)
{
    add(question, size ? bytes : "", size, 1); /* a NULL pointer would be NULL in SQL */
}

/* What stands for a parameter. E'' means the same whatever standard_conforming_strings is. */
static void add_literal(struct text *text, const struct question *question, int index)
{
    const char *value = question->values[index];
    const unsigned char *bytes = (const unsigned char *)value;

    text_add(text, "E'");
    if (question->formats[index] == 1) {
        text_add(text, "\\\\x");
        for (int i = 0; i < question->lengths[index]; i++)
            text_add(text, "%02x", bytes[i]);
    } else {
        for (; *value; value++)
            text_add(text, *value == '\'' || *value == '\\' ? "%c%c" : "%c", *value, *value);
    }
    text_add(text, "'");
}

/* Several statements in one message are one transaction, and the first of them says of which level. That is one round trip, and leaves nothing
 * behind in the session, which may be a pooler's. A message with several has no parameters. */
char *question_isolated(const struct question *question)
{
    struct text text = {0};
    char quote = '\0';

    text_add(&text, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ");
    for (const char *at = question->text; *at;) {
        char *end = NULL;
        long index = *at == '$' && !quote ? strtol(at + 1, &end, 10) : 0;

        if (index >= 1 && index <= question->count) {
            add_literal(&text, question, (int)index - 1);
            at = end;
            continue;
        }
        if (quote ? *at == quote : *at == '"' || *at == '\'') /* a name may have a $ in it */
            quote = quote ? '\0' : *at;
        text_add(&text, "%c", *at++);
    }
    if (text.failed)
        text_drop(&text);
    return text.bytes;
}

/* ---- answers --------------------------------------------------------------------------------- */

bool answer_number(const PGresult *answer, int row, int column, int64_t *ret_number)
{
    const char *text;
    char *end;
    long long number;

    if (row >= PQntuples(answer) || column >= PQnfields(answer) || PQgetisnull(answer, row, column))
        return false;
    text = PQgetvalue(answer, row, column);
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || *end || errno == ERANGE)
        return false;
    *ret_number = number;
    return true;
}

const char *answer_text(const PGresult *answer, int row, int column)
{
    if (row >= PQntuples(answer) || column >= PQnfields(answer) || PQgetisnull(answer, row, column))
        return "";
    return PQgetvalue(answer, row, column);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *answer_hex(const PGresult *answer, int row, int column, size_t max, size_t *ret_size)
{
    const char *text = answer_text(answer, row, column);
    size_t length = strlen(text);
    char *bytes = length % 2 || length / 2 > max ? NULL : malloc(length / 2 + 1);

    if (!bytes)
        return NULL;
    for (size_t i = 0; i < length / 2; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            free(bytes);
            return NULL;
        }
        bytes[i] = (char)(high * 16 + low);
    }
    bytes[length / 2] = '\0';
    *ret_size = length / 2;
    return bytes;
}
