/* row_watch.c: the thread that watches open transactions (?mode=row).
 *
 * It asks over each connection every few seconds, also whether a floor has ended what was held before. A holder whose server does not answer counts as lost before that server can have given up the
 * connection: what ASK_MS and UNANSWERED_MS make together is less than what the session's keep-alives make. Whoever ends a session
 * (pg_terminate_backend, a restart) may let in the next one before the holder knows. */
#include "base/clock.h"
#include "engines/postgres/row.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define STACK_BYTES 524288
#define ASK_MS 3000
#define UNANSWERED_MS 3000
#define WATCHED_MAX 4096

/* With the mutex. Why it is lost; NULL: it is not, as far as is known without waiting. */
static const char *why_lost(struct engine_store *store, struct row_claim *own, int64_t now_ms)
{
    static const char ended[] = "its connection to the server ended, and the lock with it";
    PGresult *answer;

    if (!PQconsumeInput(own->conn->pg) || PQstatus(own->conn->pg) != CONNECTION_OK)
        return ended;
    while (own->asking && !PQisBusy(own->conn->pg)) {
        answer = PQgetResult(own->conn->pg);
        if (!answer) {
            own->asking = false;
        } else if (PQresultStatus(answer) != PGRES_TUPLES_OK) {
            PQclear(answer);
            return ended;
        } else if (strcmp(answer_text(answer, 0, 0), own->incarnation) != 0) {
            PQclear(answer);
            return ROW_BY_FLOOR;
        }
        PQclear(answer);
    }
    if (own->asking)
        return now_ms - own->asked_ms >= UNANSWERED_MS ? ended : NULL;
    if (now_ms - own->asked_ms < ASK_MS)
        return PQtransactionStatus(own->conn->pg) != PQTRANS_INTRANS ? ended : NULL;
    own->asked_ms = now_ms;
    own->asking = PQsendQuery(own->conn->pg, store->texts[STATEMENT_ROW_ALIVE]) == 1;
    return !own->asking || PQflush(own->conn->pg) < 0 ? ended : NULL;
}

static void *watcher_main(void *arg)
{
    struct engine_store *store = arg;
    struct pollfd *fds = calloc(WATCHED_MAX + 1, sizeof *fds);

    pthread_mutex_lock(&store->mutex);
    while (!store->stop && fds) {
        int64_t now_ms = clock_boot_ms(), next_ms = clock_after(now_ms, ASK_MS);
        nfds_t count = 1;
        eventfd_t ignored;

        fds[0] = (struct pollfd){.fd = store->bell_fd, .events = POLLIN};
        LIST_EACH_SAFE(node, &store->rows)
        {
            struct row_claim *own = LIST_ENTRY(node, struct row_claim, node);
            const char *why = why_lost(store, own, now_ms);
            int64_t due_ms;

            if (why) {
                list_remove(node);
                store->host->lost(store->host->context, own->claim, why);
                continue;
            }
            due_ms = clock_after(own->asked_ms, own->asking ? UNANSWERED_MS : ASK_MS);
            next_ms = due_ms < next_ms ? due_ms : next_ms;
            if (count <= WATCHED_MAX)
                fds[count++] = (struct pollfd){.fd = PQsocket(own->conn->pg), .events = POLLIN};
        }
        pthread_mutex_unlock(&store->mutex);
        next_ms -= clock_boot_ms();
        poll(fds, count, next_ms > 0 ? (int)next_ms : 0);
        if (fds[0].revents)
            eventfd_read(store->bell_fd, &ignored);
        pthread_mutex_lock(&store->mutex);
    }
    pthread_mutex_unlock(&store->mutex);
    free(fds);
    return NULL;
}

bool row_watch(struct engine_store *store, struct row_claim *own)
{
    sigset_t all, before;
    pthread_attr_t attributes;

    pthread_mutex_lock(&store->mutex);
    if (store->bell_fd < 0)
        store->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!store->watcher_runs && store->bell_fd >= 0) {
        sigfillset(&all);
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        store->watcher_runs =
            pthread_create(&store->watcher, &attributes, watcher_main, store) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (store->watcher_runs) {
        own->asked_ms = clock_boot_ms();
        list_append(&store->rows, &own->node);
        eventfd_write(store->bell_fd, 1);
    }
    pthread_mutex_unlock(&store->mutex);
    return store->watcher_runs;
}

void row_unwatch(struct engine_store *store, struct row_claim *own)
{
    pthread_mutex_lock(&store->mutex);
    list_remove(&own->node);
    pthread_mutex_unlock(&store->mutex);
}

void row_stop(struct engine_store *store)
{
    if (!store->watcher_runs || store->forked)
        return;
    pthread_mutex_lock(&store->mutex);
    store->stop = true;
    pthread_mutex_unlock(&store->mutex);
    eventfd_write(store->bell_fd, 1);
    pthread_join(store->watcher, NULL);
}
