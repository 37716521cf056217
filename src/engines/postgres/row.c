/* row.c: ?mode=row: a lock is an open transaction that has a row locked.
 *
 *     BEGIN; SELECT ... FOR UPDATE ──row locked──▶ a token, drawn over another connection ──▶ is the transaction still open? ──▶ held
 *
 * The token is committed by itself, so that a transaction which is aborted does not give it back; and because the transaction is open before
 * and after it was drawn, nobody else can have had the row in between.
 *
 * There is no TTL: the hold ends with its connection, which row_watch.c watches. */
#include "engines/postgres/row.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FIRST_LOOK_MS 20 /* for a row that nobody has */
#define BUSY_TRIES 2     /* somebody may just have looked whether it is held */
#define BUSY_PAUSE_MS 10
#define OBSERVE_MS 1000
#define ASK_MS 3000 /* whoever waits asks so often whether the server answers */

/* What a role may have set would end the hold. The server's own view of the connection: 10 + 3 x 5 s. Settings that this version of
 * the server does not have are left out. */
#define SETTINGS                                                                                  \
    "SELECT pg_catalog.set_config(s.name, v.value, false) FROM pg_catalog.pg_settings AS s JOIN " \
    "(VALUES "                                                                                    \
    "('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'), "                \
    "('statement_timeout', '0'), ('lock_timeout', '0'), ('tcp_keepalives_idle', '10'), "          \
    "('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'), ('tcp_user_timeout', "      \
    "'20000'), ('client_connection_check_interval', '1000')) AS v(name, value) ON v.name = s.name"

static struct row_claim *private_of(struct engine_claim *claim)
{
    struct row_claim *own = claim->private;

    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    list_init(&own->node);
    own->claim = claim;
    own->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    key_of(claim->name, false, &own->key);
    if (claim->lease)
        sha256(claim->lease, strlen(claim->lease), own->lease);
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

static void end_connection(struct engine_store *store, struct row_claim *own)
{
    connection_free(store, own->conn);
    own->conn = NULL;
    own->state = ROW_NONE;
    own->asking = false;
}

/* ---- the transaction ------------------------------------------------------------------------- */

static int run(struct engine_store *store, struct row_claim *own, const char *text,
               int64_t deadline_ms, struct error_text *err)
{
    struct error_text said = {""};
    PGresult *answer = connection_run(own->conn, text, deadline_ms, &said);
    int code = HF_EUNREACH;

    if (!answer)
        return error_set(err, HF_EUNREACH, "%s: %s", store->shown, said.text);
    if (PQresultStatus(answer) != PGRES_FATAL_ERROR)
        code = HF_OK;
    else if (error_read(store, answer, &code, err) != VERDICT_FINAL)
        code = HF_EUNREACH;
    PQclear(answer);
    return code;
}

static int make_row(struct engine_store *store, const struct row_claim *own, int64_t deadline_ms,
                    struct error_text *err)
{
    /* Asked twice it does the same. */
    struct question question = {.statement = STATEMENT_ROW_MAKE, .reads = true};
    PGresult *answer = NULL;
    int result;

    question_add_bytes(&question, own->key.bytes, own->key.size);
    result = store_ask(store, &question, deadline_ms, &answer, err);
    PQclear(answer);
    return result;
}

/* Asks for the row. What comes is for later. */
static int begin(struct engine_store *store, struct row_claim *own, int64_t deadline_ms,
                 struct error_text *err)
{
    char hex[2 * HF_NAME_MAX + 1], text[2 * HF_NAME_MAX + 512], *filled;
    struct contact contact = {.since_ms = clock_boot_ms()};
    struct error_text said = {""};
    int result = store_reach(store, deadline_ms, err);
    enum peer peer;

    if (result == HF_OK)
        result = make_row(store, own, deadline_ms, err);
    own->era = store_era(store);
    if (result == HF_OK)
        result = connection_new(store, (const char *const *)store->parameters.keywords,
                                (const char *const *)store->parameters.values, pool_settle,
                                deadline_ms, &contact, &own->conn, err);
    if (result != HF_OK)
        return result;
    peer = connection_peer(own->conn, deadline_ms, &said);
    if (peer == PEER_POOLER)
        result = error_set(err, HF_EREFUSED,
                           "%s: a pooler is between here and the server: mode=row needs a "
                           "connection of its own",
                           store->shown);
    else if (peer == PEER_UNKNOWN)
        result = error_set(err, HF_EUNREACH, "%s: %s", store->shown, said.text);
    if (result == HF_OK)
        result = run(store, own, SETTINGS, deadline_ms, err);
    text_hex(own->key.bytes, own->key.size, hex);
    snprintf(text, sizeof text,
             "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT true FROM @_rows@ WHERE name "
             "= decode('%s', 'hex') FOR UPDATE%s",
             hex, own->claim->will_wait ? "" : " SKIP LOCKED");
    filled = result == HF_OK ? pgnames_fill(&store->names, text) : NULL;
    if (result == HF_OK && (!filled || PQsendQuery(own->conn->pg, filled) != 1))
        result = error_set(err, HF_EUNREACH, "%s: the connection ended", store->shown);
    free(filled);
    if (result != HF_OK) {
        end_connection(store, own);
        return result;
    }
    own->state = ROW_ASKED;
    own->asked_ms = clock_boot_ms();
    return HF_OK;
}

/* Whoever waits for a row hears nothing of a server that hangs. One of the connections for all is asked: if there is no answer, or it is with another server by now, this one is
 * left, and the row is asked for once more. */
static int check_server(struct engine_store *store, struct row_claim *own, int64_t deadline_ms,
                        struct error_text *err)
{
    struct question question = {.statement = STATEMENT_ROW_ALIVE, .reads = true};
    PGresult *answer = NULL;
    int result;

    if (clock_boot_ms() - own->asked_ms < ASK_MS)
        return HF_OK;
    result = store_ask(store, &question, deadline_ms, &answer, err);
    PQclear(answer);
    own->asked_ms = clock_boot_ms();
    if (result != HF_OK || store_era(store) != own->era)
        end_connection(store, own);
    return result;
}

/* ENGINE_HELD: the row is ours. ENGINE_QUEUED: nothing has come yet. */
static int look(struct engine_store *store, struct row_claim *own, int64_t until_ms,
                struct error_text *err)
{
    PGresult *last = NULL, *next;
    int result;

    for (;;) {
        struct pollfd ready = {.fd = PQsocket(own->conn->pg), .events = POLLIN};
        int64_t left_ms = until_ms - clock_boot_ms();

        PQflush(own->conn->pg);
        if (!PQisBusy(own->conn->pg)) {
            next = PQgetResult(own->conn->pg);
            if (!next)
                break;
            PQclear(last);
            last = next;
            if (PQresultStatus(last) == PGRES_FATAL_ERROR)
                break;
            continue;
        }
        /* The answer to BEGIN alone is no reason to wait for the other's. */
        if (poll(&ready, 1, left_ms > 0 ? (int)left_ms : 0) <= 0) {
            PQclear(last);
            return ENGINE_QUEUED;
        }
        if (!PQconsumeInput(own->conn->pg)) {
            PQclear(last);
            connection_words(PQerrorMessage(own->conn->pg), err);
            end_connection(store, own);
            return HF_EUNREACH;
        }
    }
    if (last && PQresultStatus(last) == PGRES_TUPLES_OK) {
        result = PQntuples(last) == 1 ? ENGINE_HELD : ENGINE_BUSY;
    } else {
        int code = HF_EUNREACH;

        result = last && error_read(store, last, &code, err) == VERDICT_FINAL ? code : HF_EUNREACH;
    }
    PQclear(last);
    if (result != ENGINE_HELD)
        end_connection(store, own);
    return result;
}

static int draw_token(struct engine_store *store, struct row_claim *own, int64_t deadline_ms,
                      struct error_text *err)
{
    const char *owner = own->claim->owner ? own->claim->owner : "";
    struct question question = {.statement = STATEMENT_ROW_GRANT, .patience = true, .urgent = true};
    int64_t code = 0, token = 0;
    PGresult *answer = NULL;
    int result;

    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, own->key.bytes, own->key.size);
    question_add_bytes(&question, own->lease, sizeof own->lease);
    question_add_bytes(&question, owner, strlen(owner));
    question_add_number(&question, PQbackendPID(own->conn->pg));
    result = store_ask_anyhow(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK && answer_number(answer, 0, 0, &code) && code == -2)
        result = error_set(err, HF_EMODE, "'%.100s' is in use otherwise: without mode=row",
                           own->claim->name);
    else if (result == HF_OK && code == -1)
        result = error_set(err, HF_EUNREACH, "%s: the connection ended", store->shown);
    else if (result == HF_OK &&
             (!answer_number(answer, 0, 2, &token) || token < 1 || (uint64_t)token > HF_TOKEN_MAX))
        result = error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
    if (result == HF_OK)
        snprintf(own->incarnation, sizeof own->incarnation, "%s", answer_text(answer, 0, 1));
    PQclear(answer);
    if (result == HF_OK)
        result = run(store, own, "SELECT true", deadline_ms, err); /* is it still ours? */
    if (result == HF_OK)
        own->claim->token = (uint64_t)token;
    return result == HF_EUNKNOWN ? HF_EUNREACH : result; /* a token that nobody uses is no hold */
}

/* ---- the engine's ---------------------------------------------------------------------------- */

static int acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                   struct error_text *err)
{
    struct row_claim *own = private_of(claim);
    int64_t soon_ms = clock_after(clock_boot_ms(), FIRST_LOOK_MS);
    int result = ENGINE_BUSY;

    if (!own || own->bell_fd < 0)
        return error_set(err, HF_ENOMEM, "out of memory, or of descriptors");
    for (int i = 0; i < BUSY_TRIES && result == ENGINE_BUSY; i++) {
        if (i > 0)
            poll(NULL, 0, BUSY_PAUSE_MS);
        result = own->state == ROW_ASKED ? check_server(store, own, deadline_ms, err) : HF_OK;
        if (result == HF_OK && own->state == ROW_NONE)
            result = begin(store, own, deadline_ms, err);
        if (result == HF_OK)
            result = look(store, own,
                          claim->will_wait && soon_ms < deadline_ms ? soon_ms : deadline_ms, err);
        if (result == ENGINE_QUEUED && !claim->will_wait) {
            end_connection(store, own);
            return error_set(err, HF_EUNREACH, "%s: the server did not answer in time",
                             store->shown);
        }
    }
    if (result != ENGINE_HELD)
        return result;
    result = draw_token(store, own, deadline_ms, err);
    if (result == HF_EMODE && sweep_name(store, &own->key, deadline_ms) > 0)
        result = draw_token(store, own, deadline_ms, err); /* it was only what dead ones left */
    if (result == HF_OK && !row_watch(store, own))
        result = error_set(err, HF_ENOMEM, "cannot start a thread");
    if (result != HF_OK) {
        end_connection(store, own);
        return result;
    }
    own->state = ROW_HELD;
    return ENGINE_HELD;
}

static int row_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                       struct error_text *err)
{
    int result;

    connection_heed(&claim->interrupted);
    result = acquire(store, claim, deadline_ms, err);
    connection_heed(NULL);
    return result;
}

static int row_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
                    struct error_text *err)
{
    struct row_claim *own = private_of(claim);
    bool observes = claim->mode == ENGINE_OBSERVE;
    int64_t left_ms;
    eventfd_t ignored;

    (void)store;
    if (!own || own->bell_fd < 0)
        return error_set(err, HF_ENOMEM, "out of memory, or of descriptors");
    if (observes && !own->observed) {
        own->observed = true;
        return HF_OK;
    }
    left_ms = until_ms - clock_boot_ms();
    if (left_ms > OBSERVE_MS)
        left_ms = OBSERVE_MS;
    if (left_ms > 0) {
        struct pollfd fds[2] = {{.fd = own->bell_fd, .events = POLLIN},
                                {.fd = own->conn ? PQsocket(own->conn->pg) : -1, .events = POLLIN}};

        poll(fds, 2, (int)left_ms);
    }
    eventfd_read(own->bell_fd, &ignored);
    return HF_OK;
}

static void row_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct row_claim *own = __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);

    pool_interrupt(store);
    if (own && own->bell_fd >= 0)
        eventfd_write(own->bell_fd, 1);
}

static int row_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                       struct error_text *err)
{
    struct row_claim *own = claim->private;

    (void)deadline_ms;
    (void)err;
    if (!own)
        return HF_OK;
    row_unwatch(store, own);
    end_connection(store, own); /* and what the server has with it ends, too */
    return HF_OK;
}

static int row_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                       struct error_text *err)
{
    struct row_claim *own = claim->private;
    char hex[2 * HF_NAME_MAX + 1], lease[2 * sizeof own->lease + 1], text[2 * HF_NAME_MAX + 512],
        *filled;
    struct error_text ignored;
    PGresult *alive;
    bool open, ended; /* when it was asked last; by a floor */
    int result = HF_EUNREACH;

    if (own && own->conn) {
        row_unwatch(store, own);
        if (own->asking) /* that answer comes first */
            result = look(store, own, deadline_ms, err);
        own->asking = false;
    }
    if (!own || !own->conn || result == ENGINE_QUEUED) {
        if (own)
            end_connection(store, own);
        return error_set(err, HF_ELOST, "'%.100s': its connection had ended", claim->name);
    }
    alive = connection_run(own->conn, store->texts[STATEMENT_ROW_ALIVE], deadline_ms, &ignored);
    open = alive && PQresultStatus(alive) == PGRES_TUPLES_OK;
    ended = open && strcmp(answer_text(alive, 0, 0), own->incarnation) != 0;
    PQclear(alive);
    text_hex(own->key.bytes, own->key.size, hex);
    text_hex(own->lease, sizeof own->lease, lease);
    snprintf(text, sizeof text,
             "DELETE FROM @_claims@ WHERE name = decode('%s', 'hex') AND mode = 'r' AND lease = "
             "decode('%s', 'hex'); COMMIT",
             hex, lease);
    filled = pgnames_fill(&store->names, text);
    result = filled ? run(store, own, filled, deadline_ms, err)
                    : error_set(err, HF_ENOMEM, "out of memory");
    free(filled);
    end_connection(store, own);
    if (ended)
        return error_set(err, HF_ELOST, "'%.100s': " ROW_BY_FLOOR, claim->name);
    if (result == HF_EUNREACH && !open)
        return error_set(err, HF_ELOST, "'%.100s': its connection had ended", claim->name);
    return result == HF_EUNREACH ? HF_EUNKNOWN : result; /* it was ours until we gave it up */
}

static void row_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct row_claim *own = claim->private;

    if (!own)
        return;
    claim->private = NULL;
    if (!store->forked) {
        row_unwatch(store, own);
        end_connection(store, own);
    }
    if (own->bell_fd >= 0)
        close(own->bell_fd);
    free(own);
}

const struct engine pg_row_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "postgres",
               .url = "postgres://...?mode=row",
               .features = HF_HAS_FLOOR | HF_HAS_PUSH,
               .exclusion = HF_BEST_EFFORT,
               .tokens = HF_STRICT,
               .survives =
                   "lasts as long as its connection, an open transaction: VACUUM waits for it",
               .wakes = "woken by the server, in about their order",
               .variant = "mode=row"},
    .remote = true,
    .open = pg_open,
    .close = pg_close,
    .after_fork = pg_after_fork,
    .id = pg_id,
    .acquire = row_acquire,
    .wait = row_wait,
    .wake = row_wake,
    .abandon = row_abandon,
    .release = row_release,
    .dispose = row_dispose,
    .show = pg_show,
    .list = pg_list,
    .check = pg_check,
    .floor_replaces = true,
    .floor = pg_floor,
};
