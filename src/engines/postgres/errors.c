/* errors.c: what an SQLSTATE means. */
#include "engines/postgres/store.h"

#include <stdio.h>
#include <string.h>

struct refusal {
    const char *
        state; /* the first two characters stand for a class; the server's words may come behind it */
    enum verdict verdict;
    int code;          /* with VERDICT_FINAL */
    const char *words; /* what to do about it, %s: store->advice; NULL: the server's own say it */
};

#define STATE_NO_FUNCTION "42883"

/* The first that fits. */
static const struct refusal refusals[] = {
    {"40001", VERDICT_AGAIN, 0, NULL}, /* serialization_failure: the role's default may be that */
    {"40P01", VERDICT_AGAIN, 0, NULL}, /* deadlock_detected */
    {PG_STATE_ISOLATION, VERDICT_AGAIN, 0, NULL}, /* sent otherwise from then on */
    {"23505", VERDICT_AGAIN, 0,
     NULL}, /* unique_violation: ids began again; the next try draws another */
    {"55P03", VERDICT_UNDONE, 0,
     "another transaction has had the row locked all the time, or waits for a standby with it (see "
     "pg_locks, pg_stat_activity)"},
    {"57014", VERDICT_FINAL, HF_EUNREACH,
     "the statement was cancelled: a statement_timeout of the role or the server is too short for "
     "it, or somebody "
     "cancelled it"},
    {"57P01", VERDICT_BROKEN, 0, NULL}, /* admin_shutdown */
    {"57P02", VERDICT_BROKEN, 0, NULL}, /* crash_shutdown */
    {"57P03", VERDICT_BROKEN, 0, NULL}, /* cannot_connect_now */
    {"57P05", VERDICT_BROKEN, 0, NULL}, /* idle_session_timeout */
    {"08", VERDICT_BROKEN, 0, NULL},
    {"25006 this server is a standby", VERDICT_UNDONE, 0, NULL}, /* our own words: helpers.sql */
    {"25006", VERDICT_UNDONE, 0,
     "the server is read-only: a standby, or default_transaction_read_only is on; locks need the "
     "primary"},
    {"53100", VERDICT_FINAL, HF_EIO, "the server's disk is full"},
    {"53200", VERDICT_UNDONE, 0, "the server is out of memory"},
    {"53", VERDICT_UNDONE, 0, NULL},
    {"58", VERDICT_FINAL, HF_EIO, NULL},
    {"42501 could not ", VERDICT_FINAL, HF_EIO, NULL}, /* the server's own files */
    {"42501", VERDICT_FINAL, HF_EREFUSED, PG_NOT_GRANTED "what '%s' prints after COMMIT"},
    {"42P01", VERDICT_FINAL, HF_EREFUSED,
     "a table of the locks is missing: apply what '%s' prints"},
    {STATE_NO_FUNCTION, VERDICT_FINAL, HF_EREFUSED, NULL}, /* write_no_function */
    {"42703", VERDICT_FINAL, HF_EREFUSED,
     "the tables are of another shape than this version of holdfast makes: name another one with "
     "?table="},
    {"3F000", VERDICT_FINAL, HF_EREFUSED,
     PG_NO_SCHEMA ": make it, or name another one with ?table=SCHEMA.TABLE"},
};

/* "function acquire(unknown, unknown, ...) does not exist": without its arguments, behind what to do, it can be read. */
static void write_no_function(const struct engine_store *store, const char *said,
                              struct error_text *err)
{
    error_write(err, "%s: a function of the locks is missing: apply what '%s' prints (%.*s)",
                store->shown, store->advice, (int)strcspn(said, "("), said);
}

bool error_is_read_only(const PGresult *answer)
{
    const char *state = PQresultErrorField(answer, PG_DIAG_SQLSTATE);

    return state && strcmp(state, "25006") == 0;
}

enum verdict error_read(const struct engine_store *store, const PGresult *answer, int *ret_code,
                        struct error_text *err)
{
    const char *state = PQresultErrorField(answer, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(answer, PG_DIAG_MESSAGE_PRIMARY);
    struct error_text said = {""};
    char whole[64];

    *ret_code = HF_EREFUSED;
    connection_words(message ? message : PQresultErrorMessage(answer), &said);
    if (!state) { /* libpq's own: the connection broke */
        error_write(err, "%s: %s", store->shown, said.text);
        return VERDICT_BROKEN;
    }
    snprintf(whole, sizeof whole, "%s %.40s", state, said.text);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];

        if (strncmp(whole, refusal->state, strlen(refusal->state)) != 0)
            continue;
        if (strcmp(refusal->state, STATE_NO_FUNCTION) == 0) {
            write_no_function(store, said.text, err);
        } else if (refusal->words) {
            const char *gap = strstr(refusal->words, "%s");
            size_t before = gap ? (size_t)(gap - refusal->words) : strlen(refusal->words);

            error_write(err, "%s: %s: %.*s%s%s", store->shown, said.text, (int)before,
                        refusal->words, gap ? store->advice : "", gap ? gap + 2 : "");
        } else
            error_write(err, "%s: %s", store->shown, said.text);
        *ret_code = refusal->code;
        return refusal->verdict;
    }
    error_write(err, "%s: %s (SQLSTATE %s)", store->shown, said.text, state);
    return VERDICT_FINAL;
}

/* libpq has no SQLSTATE for a connection that was refused, only words. What is not known here is taken for something that passes. */
static const struct {
    const char *message;
    const char *words;
} final_words[] = {
    {"password authentication failed",
     "is the password right? (HOLDFAST_PASSWORD, ?password-file=, .pgpass)"},
    {"no password supplied", "it wants a password: HOLDFAST_PASSWORD, ?password-file=, or .pgpass"},
    {"authentication failed", NULL},
    {"no pg_hba.conf entry", "the server's pg_hba.conf lets nobody in from here"},
    {"pg_hba.conf rejects", NULL},
    {"certificate", NULL},
    {"not permitted to log in", NULL},
    {"permission denied for database", NULL},
    {"no such database", "create it first, or name another one in the URL"},
    {"server does not support SSL", NULL},
    {"invalid ", NULL},
    {"definition of service", NULL},
};

/* Of what libpq says when the first byte that comes is not the protocol's; that byte comes behind it. */
static const char *const other_protocol[] = {
    "invalid response to SSL negotiation: ",
    "invalid response to GSSAPI negotiation: ",
    "expected authentication request from server, but received ",
};

/* HF_OK: nothing says that it is another kind of server. */
static int refuse_other_protocol(const struct engine_store *store, const char *said,
                                 struct error_text *err)
{
    for (size_t i = 0; i < sizeof other_protocol / sizeof *other_protocol; i++) {
        const char *at = strstr(said, other_protocol[i]);
        char byte = '\0';

        if (!at)
            continue;
        byte = at[strlen(other_protocol[i])];
        if (byte == '-' || byte == '+') /* RESP; the same exit status as of other wrong schemes */
            return error_set(err, HF_EINVAL,
                             "%s is not a PostgreSQL server (a holdfastd or a Redis server? then "
                             "use holdfast:// or redis://)",
                             store->shown);
        return error_set(err, HF_EREFUSED,
                         "%s is no PostgreSQL server: it answered in another protocol",
                         store->shown);
    }
    return HF_OK;
}

static bool nobody_listens(const char *said)
{
    return strstr(said, "Connection refused") ||
           (strstr(said, "socket") && strstr(said, "No such file or directory"));
}

/* Whoever gives none is taken for the user of this machine, or for PGUSER. */
static bool names_user(const struct parameters *parameters)
{
    for (int i = 0; i < parameters->count; i++)
        if (strcmp(parameters->keywords[i], "user") == 0 ||
            strcmp(parameters->keywords[i], "service") == 0)
            return true;
    return false;
}

int error_of_connection(const struct engine_store *store, const char *message,
                        struct error_text *err)
{
    const char *fatal = strstr(message, "FATAL:");
    struct error_text said = {""};
    int result;

    connection_words(fatal ? fatal : message, &said);
    if (fatal && strstr(said.text, "database \"") && strstr(said.text, "does not exist"))
        return error_set(err, HF_EREFUSED,
                         "%s: %s: create it first, or name another one in the URL", store->shown,
                         said.text);
    if (fatal && strstr(said.text, "role \"") && strstr(said.text, "does not exist"))
        return error_set(err, HF_EREFUSED, "%s: %s%s", store->shown, said.text,
                         names_user(&store->parameters)
                             ? ""
                             : ": the URL names no user: postgres://USER@HOST/DATABASE");
    result = refuse_other_protocol(store, said.text, err);
    if (result != HF_OK)
        return result;
    for (size_t i = 0; i < sizeof final_words / sizeof *final_words; i++)
        if (strstr(said.text, final_words[i].message)) {
            if (final_words[i].words)
                return error_set(err, HF_EREFUSED, "%s: %s: %s", store->shown, said.text,
                                 final_words[i].words);
            return error_set(err, HF_EREFUSED, "%s: %s", store->shown, said.text);
        }
    return error_set(err, HF_EUNREACH, "%s: %s%s", store->shown, said.text,
                     nobody_listens(said.text) ? "; is the server running there?" : "");
}
