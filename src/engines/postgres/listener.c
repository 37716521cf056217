/* listener.c: the thread behind LISTEN.
 *
 * It has a connection of its own, made for the first who waits or observes, or when a hold is HELD_AFTER_MS old: most are over by then. What
 * comes, and for whom: notifications.c.
 *
 * What a break, or a floor, has ended before it listened is found by looking, once: breaks.c.
 *
 * A pooler that gives each transaction another connection swallows all of it, and nobody says so; and what was told to LISTEN there stays so. Therefore
 * nobody listens through a pooler, unless ?listen= says that this one can be listened through; and a notification is sent over one of
 * the connections for all: until it has come in here, those who wait look by themselves.
 *
 * The same thread keeps the places of observers: observers.c. */
#include "base/clock.h"
#include "base/random.h"
#include "engines/postgres/store.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES 524288
#define HELD_AFTER_MS 500
#define CONNECT_MS 1500
#define TEST_MS 1000 /* for a test to come in */
#define AGAIN_MS 100 /* until it is tried again; doubles */
#define AGAIN_MS_MAX 2000
#define UNHEARD_AGAIN_MS 60000
#define LINGER_MS 5000  /* with nobody to tell */
#define OBSERVE_MS 1000 /* an observer looks so often by itself */
#define LEAVE_MS 500    /* for the places of observers that have ended to be removed */
#define CHANNEL_MAX 64

struct hearing {
    struct connection *conn;
    char channel[CHANNEL_MAX];
    int64_t again_ms, next_ms; /* the pause, and when it is over */
    uint64_t test;             /* 0: it has come */
    int64_t test_until_ms;
    int64_t poll_ms; /* when observers look next by themselves */
    int64_t idle_ms; /* since when there is nobody */
    bool unheard;    /* nothing comes through; said to the first who waits */
    bool proved;     /* something came through this connection */
    uint32_t doubts; /* of store->doubts, how many have led to a test */
};

bool listener_hears(struct engine_store *store)
{
    return atomic_load(&store->hears);
}

/* ---- the connection -------------------------------------------------------------------------- */

static void hang_up(struct engine_store *store, struct hearing *hearing, int64_t after_ms)
{
    atomic_store(&store->hears, false);
    connection_free(store, hearing->conn);
    hearing->conn = NULL;
    hearing->next_ms = clock_after(clock_boot_ms(), after_ms);
}

static void hang_up_for_now(struct engine_store *store, struct hearing *hearing)
{
    hang_up(store, hearing, hearing->again_ms);
    hearing->again_ms = 2 * hearing->again_ms < AGAIN_MS_MAX ? 2 * hearing->again_ms : AGAIN_MS_MAX;
}

/* Sends ourselves something, over a connection that is not this one. */
static bool send_test(struct engine_store *store, struct hearing *hearing)
{
    struct question question = {.statement = STATEMENT_TELL, .reads = true};
    char payload[32];
    struct error_text ignored;
    PGresult *answer = NULL;
    int result;

    do
        random_fill(&hearing->test, sizeof hearing->test);
    while (hearing->test == 0);
    snprintf(payload, sizeof payload, "t%" PRIu64, hearing->test);
    question_add_text(&question, hearing->channel);
    question_add_text(&question, payload);
    result = store_ask(store, &question, clock_after(clock_boot_ms(), TEST_MS), &answer, &ignored);
    PQclear(answer);
    hearing->test_until_ms = clock_after(clock_boot_ms(), TEST_MS);
    return result == HF_OK;
}

static void warn_once(struct engine_store *store, const char *words)
{
    bool warned = store->warned;

    store->warned = true;
    if (!warned)
        store->host->warn(store->host->context, words);
}

static void warn_unheard(struct engine_store *store)
{
    warn_once(store, store->listen == LISTEN_ELSEWHERE ? PG_UNHEARD_ELSEWHERE : PG_UNHEARD);
}

/* The other server answers, or we would not be here. */
static void warn_unreached(struct engine_store *store, const struct error_text *why)
{
    char words[sizeof why->text + 100];
    const char *text = why->text;
    size_t shown = strlen(store->shown); /* the store's own address, which is another */

    if (strncmp(text, store->shown, shown) == 0 && strncmp(text + shown, ": ", 2) == 0)
        text += shown + 2;
    atomic_store(&store->unlistened, true);
    snprintf(words, sizeof words,
             "the URL of listen= cannot be used, and those who wait look once a second: %s", text);
    warn_once(store, words);
}

/* Of several hosts, the one where notifications are sent. */
static int settle(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                  struct error_text *err)
{
    struct question question = {.text = "SELECT pg_catalog.pg_is_in_recovery()"};
    struct error_text said = {""};
    bool sent;
    PGresult *answer;
    int result = HF_OK;

    conn->host = NULL; /* if it is slow, those who wait look by themselves */
    answer = connection_ask(conn, &question, deadline_ms, &sent, &said);
    if (!answer)
        result = error_set(err, HF_EUNREACH, "%s: %s", store->shown, said.text);
    else if (PQresultStatus(answer) == PGRES_TUPLES_OK &&
             strcmp(answer_text(answer, 0, 0), "t") == 0)
        result = error_set(err, HF_EUNREACH, "this server is a standby: it sends no notifications");
    PQclear(answer);
    return result;
}

/* Of the tables as they are now: those that were made anew have another one. */
static void name_channel(struct engine_store *store, char ret_channel[CHANNEL_MAX])
{
    pthread_mutex_lock(&store->mutex);
    snprintf(ret_channel, CHANNEL_MAX, "holdfast_%.*s", (int)strcspn(store->incarnation, "."),
             store->incarnation);
    pthread_mutex_unlock(&store->mutex);
}

/* A session that listens is idle for as long as nothing comes: the server is not to end it for that. Where it refuses, or does not know the
 * setting (before version 14), all stays as it is. */
static void stay_when_idle(struct hearing *hearing, int64_t deadline_ms)
{
    struct error_text ignored;

    PQclear(connection_run(
        hearing->conn,
        "SELECT pg_catalog.set_config('idle_session_timeout', '0', false) WHERE "
        "pg_catalog.current_setting('idle_session_timeout', true) OPERATOR(pg_catalog.<>) '0'",
        deadline_ms, &ignored));
}

/* LISTEN takes no parameter. The channel has an id that was in a table: it is checked where it is read (schema.c), and is no more than a
 * name here all the same. */
static PGresult *say_listen(struct hearing *hearing, int64_t deadline_ms, struct error_text *why)
{
    char text[2 * CHANNEL_MAX + 16];
    char *quoted =
        PQescapeIdentifier(hearing->conn->pg, hearing->channel, strlen(hearing->channel));

    if (!quoted) {
        error_write(why, "out of memory");
        return NULL;
    }
    snprintf(text, sizeof text, "LISTEN %s", quoted);
    PQfreemem(quoted);
    return connection_run(hearing->conn, text, deadline_ms, why);
}

static void listen_anew(struct engine_store *store, struct hearing *hearing)
{
    const struct parameters *parameters =
        store->listen == LISTEN_ELSEWHERE ? &store->listen_parameters : &store->parameters;
    int64_t deadline_ms = clock_after(clock_boot_ms(), CONNECT_MS);
    struct contact contact = {.since_ms = clock_boot_ms()};
    struct error_text why = {""};
    PGresult *answer = NULL;
    enum peer peer = PEER_UNKNOWN;
    bool well = false;

    hearing->proved = false;
    hearing->doubts = atomic_load(&store->doubts);
    name_channel(store, hearing->channel);
    if (connection_new(store, (const char *const *)parameters->keywords,
                       (const char *const *)parameters->values, settle, deadline_ms, &contact,
                       &hearing->conn, &why) == HF_OK) {
        peer = store->listen == LISTEN_ELSEWHERE
                   ? PEER_SERVER
                   : connection_peer(hearing->conn, deadline_ms, &why);
        if (peer == PEER_SERVER)
            stay_when_idle(hearing, deadline_ms);
        answer = peer != PEER_SERVER ? NULL : say_listen(hearing, deadline_ms, &why);
        well = answer && PQresultStatus(answer) == PGRES_COMMAND_OK;
        if (answer && !well)
            connection_words(PQresultErrorMessage(answer), &why);
        PQclear(answer);
    }
    if (peer == PEER_POOLER) {
        hang_up(store, hearing, UNHEARD_AGAIN_MS);
        hearing->unheard = true;
    } else if (!well || !send_test(store, hearing)) {
        if (store->listen == LISTEN_ELSEWHERE && !well && why.text[0])
            warn_unreached(store, &why);
        hang_up_for_now(store, hearing);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Whoever only holds a lock loses nothing by it: a job by night would be a mail each day. */
static bool somebody_waits(struct engine_store *store)
{
    bool waits = false;

    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        waits = waits || own->observes || own->queued;
    }
    pthread_mutex_unlock(&store->mutex);
    return waits;
}

/* With the mutex. Is there anybody to be told? ret_next_ms: when there will be, or when an observer is to be renewed. */
static bool is_wanted(struct engine_store *store, int64_t now_ms, int64_t *ret_next_ms)
{
    bool wanted = false;

    *ret_next_ms = CLOCK_NEVER;
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);
        bool observes = own->observes;
        int64_t when_ms = observes ? own->renew_ms : own->listed_ms + HELD_AFTER_MS;

        if (observes || own->queued || when_ms <= now_ms)
            wanted = true;
        if ((observes || when_ms > now_ms) && when_ms < *ret_next_ms)
            *ret_next_ms = when_ms;
    }
    return wanted;
}

static void sleep_until(struct engine_store *store, struct hearing *hearing, int64_t next_ms)
{
    struct pollfd fds[2] = {
        {.fd = store->bell_fd, .events = POLLIN},
        {.fd = hearing->conn ? PQsocket(hearing->conn->pg) : -1, .events = POLLIN}};
    int64_t left_ms = next_ms - clock_boot_ms();
    eventfd_t ignored;

    if (next_ms != CLOCK_NEVER && left_ms <= 0)
        left_ms = 0;
    poll(fds, 2, next_ms == CLOCK_NEVER ? -1 : left_ms > 60000 ? 60000 : (int)left_ms);
    if (fds[0].revents)
        eventfd_read(store->bell_fd, &ignored);
    if (hearing->conn && fds[1].revents &&
        !notifications_take(store, hearing->conn->pg, hearing->channel, &hearing->test))
        hang_up_for_now(store, hearing);
}

/* Another connection had no answer, or the server is another one now: is this one still of use? It may be to a host that hangs, or was left for another.
 * On a channel where nobody sends any more it hears its own test, and nothing else. */
static void test_again(struct engine_store *store, struct hearing *hearing)
{
    char channel[CHANNEL_MAX];

    name_channel(store, channel);
    if (strcmp(channel, hearing->channel) != 0) {
        hang_up(store, hearing, 0);
        return;
    }
    atomic_store(&store->hears, false);
    hearing->doubts = atomic_load(&store->doubts);
    if (!send_test(store, hearing))
        hang_up_for_now(store, hearing);
}

/* Nothing was heard. That says something of the way only if the server answers: one that hangs tells nobody anything. */
static void conclude_unheard(struct engine_store *store, struct hearing *hearing)
{
    if (!send_test(store, hearing)) {
        hang_up_for_now(store, hearing);
        return;
    }
    hang_up(store, hearing, UNHEARD_AGAIN_MS);
    hearing->unheard = true;
}

static void look_after(struct engine_store *store, struct hearing *hearing, bool wanted,
                       bool suspects, int64_t now_ms)
{
    bool reachable = atomic_load(&store->settled);

    if (suspects)
        breaks_look_at_suspects(store);

    if (wanted && reachable && store->listen != LISTEN_OFF && !hearing->conn &&
        now_ms >= hearing->next_ms)
        listen_anew(store, hearing);
    else if (hearing->conn && hearing->test == 0 && hearing->doubts != atomic_load(&store->doubts))
        test_again(store, hearing);
    if (hearing->conn && hearing->test == 0 && !atomic_load(&store->hears)) {
        atomic_store(&store->hears, true);
        hearing->proved = true;
        atomic_store(&store->unlistened, false);
        hearing->unheard = false;
        hearing->again_ms = AGAIN_MS;
        notifications_tell_all(store, true); /* whatever was missed */
        breaks_look(store);
    } else if (hearing->conn && hearing->test != 0 && hearing->proved &&
               clock_boot_ms() >= hearing->test_until_ms) {
        hang_up_for_now(store, hearing);
    } else if (hearing->conn && hearing->test != 0 && clock_boot_ms() >= hearing->test_until_ms) {
        conclude_unheard(store, hearing);
    }
    if (hearing->unheard && !store->warned && somebody_waits(store))
        warn_unheard(store);
    if (!wanted && hearing->conn && now_ms - hearing->idle_ms >= LINGER_MS)
        hang_up(store, hearing, 0);
    /* Nobody tells of a holder's death: it is found out by looking. */
    if (wanted && now_ms >= hearing->poll_ms) {
        hearing->poll_ms = clock_after(now_ms, OBSERVE_MS);
        notifications_tell_all(store, false);
    }
}

static void *listener_main(void *arg)
{
    struct engine_store *store = arg;
    struct hearing hearing = {.again_ms = AGAIN_MS};

    pthread_mutex_lock(&store->mutex);
    while (!store->stop) {
        int64_t now_ms = clock_boot_ms(), next_ms;
        bool wanted = is_wanted(store, now_ms, &next_ms), suspects = store->suspects, due;

        store->listener_sleeps = store->suspects = false;
        if (wanted)
            hearing.idle_ms = now_ms;
        pthread_mutex_unlock(&store->mutex);
        due = observers_renew_one(store, now_ms);
        observers_let_leave(store, clock_after(now_ms, LEAVE_MS));
        look_after(store, &hearing, wanted, suspects, now_ms);
        if (wanted && hearing.poll_ms < next_ms)
            next_ms = hearing.poll_ms;
        if (wanted && !hearing.conn && store->listen != LISTEN_OFF && hearing.next_ms < next_ms)
            next_ms = hearing.next_ms;
        if (hearing.conn && hearing.test != 0 && hearing.test_until_ms < next_ms)
            next_ms = hearing.test_until_ms;
        if (!wanted && hearing.conn && hearing.idle_ms + LINGER_MS < next_ms)
            next_ms = hearing.idle_ms + LINGER_MS;
        pthread_mutex_lock(&store->mutex);
        if (due || store->suspects || store->stop) /* there may be more */
            continue;
        /* For a while after the last one it looks by itself, so that whoever holds one lock after the other need not wake it. */
        if (next_ms == CLOCK_NEVER && now_ms - hearing.idle_ms < LINGER_MS)
            next_ms = clock_after(now_ms, HELD_AFTER_MS);
        store->listener_sleeps = next_ms == CLOCK_NEVER;
        pthread_mutex_unlock(&store->mutex);
        sleep_until(store, &hearing, next_ms);
        pthread_mutex_lock(&store->mutex);
    }
    pthread_mutex_unlock(&store->mutex);
    observers_let_leave(store, clock_after(clock_boot_ms(), LEAVE_MS));
    hang_up(store, &hearing, 0);
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

/* With the mutex. */
static bool start_thread(struct engine_store *store)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed;

    if (store->listener_runs)
        return true;
    if (store->bell_fd < 0)
        store->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->bell_fd < 0)
        return false;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->listener, &attributes, listener_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return false;
    pthread_setname_np(store->listener, "holdfast-pg");
    store->listener_runs = true;
    return true;
}

void listener_add(struct engine_store *store, struct pg_claim *own)
{
    bool urgent = own->queued || own->observes, wake;

    pthread_mutex_lock(&store->mutex);
    wake = !own->listens;
    if (!own->listens && start_thread(store)) {
        own->listens = true;
        own->serial = ++store->serials;
        own->listed_ms = clock_boot_ms();
        own->renew_ms = 0;
        list_append(&store->listening, &own->node);
    }
    if (notifications_catch_up(store, own, wake))
        urgent = true;
    wake = own->listens && (store->listener_sleeps || (wake && urgent));
    pthread_mutex_unlock(&store->mutex);
    if (wake)
        eventfd_write(store->bell_fd, 1);
}

void listener_drop(struct engine_store *store, struct pg_claim *own)
{
    bool observed = own->observes;

    if (!own->listens)
        return;
    pthread_mutex_lock(&store->mutex);
    own->listens = false;
    list_remove(&own->node);
    if (observed)
        observers_leave(store, own);
    pthread_mutex_unlock(&store->mutex);
    if (observed)
        eventfd_write(store->bell_fd, 1);
}

void listener_doubt(struct engine_store *store)
{
    bool runs;

    atomic_fetch_add(&store->doubts, 1);
    pthread_mutex_lock(&store->mutex);
    runs = store->listener_runs;
    pthread_mutex_unlock(&store->mutex);
    if (runs)
        eventfd_write(store->bell_fd, 1);
}

void listener_stop(struct engine_store *store)
{
    if (store->listener_runs && !store->forked) {
        pthread_mutex_lock(&store->mutex);
        store->stop = true;
        pthread_mutex_unlock(&store->mutex);
        eventfd_write(store->bell_fd, 1);
        pthread_join(store->listener, NULL);
    }
    observers_free(store);
    if (store->bell_fd >= 0)
        close(store->bell_fd);
}
