/* debts.c: nodes that must go, and nobody waits for that.
 *
 * Ephemeral nodes end with their session, and that may serve other claims for days. So whoever gives up a claim whose
 * node may still be there leaves a debt, which is paid when the session is connected; after a create whose answer was
 * lost it has to be found first, by its id. The sync before the listing is sent on the same connection, so that the
 * listing has all that the session did before. */
#include "engines/zookeeper/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct debt {
    struct list node; /* in session->debts; guarded by the mutex */
    struct session *session;
    bool asked; /* a request is under way */
    char id[ZK_ID_SIZE];
    char parent[ZK_PARENT_MAX];
    char path[ZK_PATH_MAX]; /* "": to be found */
};

static void settle(struct debt *debt, bool paid)
{
    struct engine_store *store = debt->session->store;

    pthread_mutex_lock(&store->mutex);
    debt->asked = false;
    if (paid)
        list_remove(&debt->node);
    pthread_mutex_unlock(&store->mutex);
    if (paid)
        free(debt);
}

/* The session may be closed while an answer is under way: then `then` is not called, and debts_drop frees it. */
static void deleted(struct call *call)
{
    settle(call->context, call->rc == ZOK || call->rc == ZNONODE || call->rc == ZSESSIONEXPIRED ||
                              call->rc == ZNOAUTH);
}

static void delete_it(struct debt *debt)
{
    int result;
    struct call *call = call_delete(debt->session, debt->path, -1, &result, NULL);

    if (call)
        call_leave(call, deleted, debt);
    else
        settle(debt, false);
}

static void listed(struct call *call)
{
    struct debt *debt = call->context;
    struct queue queue = {0};
    int at = -1;

    if (call->rc == ZOK && queue_read(debt->session->store->names, &call->names, &queue))
        at = queue_find(&queue, debt->id);
    if (at >= 0) {
        zk_child_path(debt->parent, queue.contenders[at].name, debt->path);
        delete_it(debt);
    } else {
        settle(debt, call->rc == ZOK || call->rc == ZNONODE || call->rc == ZSESSIONEXPIRED);
    }
    queue_free(&queue);
}

static void find_it(struct debt *debt)
{
    int result;
    struct call *sync = call_sync(debt->session, debt->parent, &result, NULL);
    struct call *list = sync ? call_list(debt->session, debt->parent, 0, &result, NULL) : NULL;

    if (sync)
        call_leave(sync, NULL, NULL);
    if (list)
        call_leave(list, listed, debt);
    else
        settle(debt, false);
}

/* Each at most once: one that cannot be asked for now goes to the end. */
static struct debt *next_due(struct session *session)
{
    LIST_EACH(node, &session->debts)
    {
        struct debt *debt = LIST_ENTRY(node, struct debt, node);

        if (debt->asked)
            continue;
        debt->asked = true;
        list_remove(&debt->node);
        list_append(&session->debts, &debt->node);
        return debt;
    }
    return NULL;
}

void debts_pay(struct session *session)
{
    struct engine_store *store = session->store;
    int count = 0;

    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &session->debts)
    {
        count++;
    }
    pthread_mutex_unlock(&store->mutex);
    while (count-- > 0) {
        struct debt *debt;

        pthread_mutex_lock(&store->mutex);
        debt = session->state == ZK_CONNECTED ? next_due(session) : NULL;
        pthread_mutex_unlock(&store->mutex);
        if (!debt)
            return;
        if (debt->path[0])
            delete_it(debt);
        else
            find_it(debt);
    }
}

void debt_add(struct session *session, const char *parent, const char *id, const char *path)
{
    struct engine_store *store = session->store;
    struct debt *debt = calloc(1, sizeof *debt);

    if (!debt)
        return;
    debt->session = session;
    snprintf(debt->id, sizeof debt->id, "%s", id);
    snprintf(debt->parent, sizeof debt->parent, "%s", parent);
    snprintf(debt->path, sizeof debt->path, "%s", path);
    pthread_mutex_lock(&store->mutex);
    list_append(&session->debts, &debt->node);
    pthread_mutex_unlock(&store->mutex);
    debts_pay(session);
}

void debt_expire(struct session *session, const char *path)
{
    int result;
    struct call *call = call_delete(session, path, -1, &result, NULL);

    if (call)
        call_leave(call, NULL, NULL);
}

void debts_drop(struct session *session)
{
    LIST_EACH_SAFE(node, &session->debts)
    {
        free(LIST_ENTRY(node, struct debt, node));
    }
    list_init(&session->debts);
}
