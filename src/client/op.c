/* op.c: started operations.
 *
 * Each is a task, a thread that makes the blocking call and then queues the completion; the engines
 * know nothing of it. Everything a caller handed in is copied. An operation belongs to the library
 * from its start until `done` has returned; the caller's pointer is good for hf_op_cancel until
 * then.
 *
 * What an operation brought and nobody took out is given back: a lock is released, what was to be run
 * once likewise, a report freed. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

enum op_kind {
    OP_ACQUIRE,
    OP_RENEW,
    OP_RELEASE,
    OP_CHECK,
    OP_SHOW,
    OP_LIST,
    OP_BREAK,
    OP_ONCE_BEGIN,
    OP_ONCE_FINISH,
    OP_ONCE_READ
};

struct hf_op {
    hf_store *store;
    enum op_kind kind;
    hf_done_fn *done;
    void *arg;
    struct hf_cancel cancel;

    /* What was asked for. */
    hf_options options;
    char *name, *owner, *match;
    hf_lock *subject; /* to renew, release or finish */
    uint64_t token;
    int64_t grace_ms;
    bool all;
    struct once_terms terms;
    void *bytes; /* a result to be kept */
    size_t size;
    int64_t keep_ms;

    /* What came of it; the task's until the event is posted. */
    int result;
    struct error_text err;
    hf_lock *lock;
    hf_once *once;
    hf_report *report;

    struct list node; /* in hf_store.ops; guarded by the store's mutex, like the event */
    struct event event;
};

static bool copy_text(char **ret_copy, const char *text)
{
    if (!text)
        return true;
    *ret_copy = strdup(text);
    return *ret_copy != NULL;
}

static hf_op *op_new(hf_store *store, enum op_kind kind, hf_done_fn *done, void *arg)
{
    hf_op *op = calloc(1, sizeof *op);

    if (!op)
        return NULL;
    op->store = store;
    op->kind = kind;
    op->done = done;
    op->arg = arg;
    op->event.kind = EVENT_DONE;
    list_init(&op->event.node);
    list_init(&op->node);
    cancel_init(&op->cancel);
    return op;
}

static void op_free(hf_op *op)
{
    hf_report_free(op->report);
    if (op->once && !op->once->lock) /* else it belongs to that */
        once_drop(op->once);
    free(op->bytes);
    free(op->name);
    free(op->owner);
    free(op->match);
    free(op);
}

/* ---- running --------------------------------------------------------------------------------- */

static int op_call(hf_op *op)
{
    hf_store *store = op->store;

    switch (op->kind) {
    case OP_ACQUIRE:
        return acquire_run(store, op->name, &op->options, NULL, &op->cancel, &op->err, &op->lock);
    case OP_RENEW:
        return lock_renew(op->subject, &op->err);
    case OP_RELEASE:
        return lock_release(op->subject, CLOCK_NEVER, &op->err);
    case OP_CHECK:
        return query_check(store, op->name, op->token, &op->err);
    case OP_SHOW:
        return query_show(store, op->name, false, &op->err, &op->report);
    case OP_LIST:
        return query_list(store, op->match, op->all, &op->err, &op->report);
    case OP_BREAK:
        return query_break(store, op->name, op->grace_ms, NULL, &op->err);
    case OP_ONCE_BEGIN:
        return once_run(store, op->name, &op->options, &op->terms, &op->cancel, &op->err,
                        &op->once);
    case OP_ONCE_FINISH:
        return lock_finish(op->subject, op->bytes, op->size, op->keep_ms, &op->err);
    case OP_ONCE_READ:
        return query_once(store, op->name, &op->err, &op->once);
    }
    return error_set(&op->err, HF_EINTERNAL, "no such operation");
}

static void op_task(void *arg)
{
    hf_op *op = arg;
    hf_store *store = op->store;

    op->result = op_call(op);
    pthread_mutex_lock(&store->mutex);
    if (op->kind == OP_RENEW) {
        op->subject->pins--;
        pthread_cond_broadcast(&store->changed);
    }
    events_post(store, &op->event);
    pthread_mutex_unlock(&store->mutex);
}

void op_run_event(struct event *event)
{
    hf_op *op = LIST_ENTRY(event, hf_op, event);
    hf_store *store = op->store;

    pthread_mutex_lock(&store->mutex);
    list_remove(&op->node);
    pthread_mutex_unlock(&store->mutex);
    op->done(op, op->result, op->arg);
    if (op->lock)
        lock_release_aside(op->lock);
    if (op->once && op->once->lock) {
        lock_release_aside(op->once->lock);
        op->once = NULL;
    }
    op_free(op);
    pthread_mutex_lock(&store->mutex);
    store->op_count--;
    pthread_mutex_unlock(&store->mutex);
}

/* At the end of the store. The locks are still in the store's own list, and end with that. */
void op_free_all(hf_store *store, bool forked)
{
    LIST_EACH_SAFE(node, &store->ops)
    {
        hf_op *op = LIST_ENTRY(node, hf_op, node);

        if (forked) { /* the task may have been in the middle of it */
            op->report = NULL;
            op->once = NULL;
            op->bytes = NULL;
        }
        op_free(op);
    }
    list_init(&store->ops);
}

/* ---- starting -------------------------------------------------------------------------------- */

static int op_admit(hf_op *op, struct error_text *err)
{
    hf_store *store = op->store;
    int result = events_start(store, err);

    if (result != HF_OK)
        return result;
    if (store->op_count >= HF_OPS_MAX)
        return error_set(err, HF_ENOMEM, "%d operations are under way at once already", HF_OPS_MAX);
    return task_start_locked(store, op_task, op, err);
}

/* Takes the operation. *ret_op is set before `done` can possibly run. A lock that it consumes is the
 * caller's until it is certain that the operation runs, and of interest to nobody from then on. */
static int op_start(hf_op *op, struct error_text *err, hf_op **ret_op)
{
    bool consumes = op->kind == OP_RELEASE || op->kind == OP_ONCE_FINISH;
    hf_store *store = op->store;
    int result;

    tasks_reap(store);
    pthread_mutex_lock(&store->mutex);
    if (consumes)
        claim_await_callback(op->subject);
    result = op_admit(op, err);
    if (result == HF_OK && consumes)
        claim_silence(op->subject);
    if (result == HF_OK) {
        store->op_count++;
        list_append(&store->ops, &op->node);
        if (op->kind == OP_RENEW)
            op->subject->pins++;
        if (ret_op)
            *ret_op = op;
    }
    pthread_mutex_unlock(&store->mutex);
    if (result != HF_OK)
        op_free(op);
    return result;
}

/* The part all starts have in common: an operation with its name, or an error. */
static int op_make(hf_store *store, enum op_kind kind, const char *name, hf_done_fn *done,
                   void *arg, struct error_text *err, hf_op **ret_op)
{
    int result = store_check(store, err);
    hf_op *op;

    if (result != HF_OK)
        return result;
    if (!done)
        return error_set(err, HF_EINVAL, "no callback given");
    op = op_new(store, kind, done, arg);
    if (!op || !copy_text(&op->name, name)) {
        if (op)
            op_free(op);
        return error_set(err, HF_ENOMEM, "out of memory");
    }
    *ret_op = op;
    return HF_OK;
}

static int op_make_named(hf_store *store, enum op_kind kind, const char *name, hf_done_fn *done,
                         void *arg, struct error_text *err, hf_op **ret_op)
{
    int result = text_check_name(name, err);

    return result == HF_OK ? op_make(store, kind, name, done, arg, err, ret_op) : result;
}

int hf_acquire_start(hf_store *store, const char *name, const hf_options *options, hf_done_fn *done,
                     void *arg, hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_ACQUIRE, name, done, arg, &err, &op);

    if (result != HF_OK)
        return failure_keep(result, &err);
    result = options_read(store, options, &op->options, &err);
    if (result == HF_OK && !copy_text(&op->owner, op->options.owner))
        result = error_set(&err, HF_ENOMEM, "out of memory");
    op->options.owner = op->owner;
    if (result == HF_OK)
        result = op_start(op, &err, ret_op);
    else
        op_free(op);
    return failure_keep(result, &err);
}

static int start_on_lock(hf_lock *lock, enum op_kind kind, hf_done_fn *done, void *arg,
                         hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = lock ? op_make(lock->store, kind, NULL, done, arg, &err, &op)
                      : error_set(&err, HF_EINVAL, "no lock given");

    if (result == HF_OK) {
        op->subject = lock;
        result = op_start(op, &err, ret_op);
    }
    return failure_keep(result, &err);
}

int hf_renew_start(hf_lock *lock, hf_done_fn *done, void *arg, hf_op **ret_op)
{
    return start_on_lock(lock, OP_RENEW, done, arg, ret_op);
}

int hf_release_start(hf_lock *lock, hf_done_fn *done, void *arg, hf_op **ret_op)
{
    return start_on_lock(lock, OP_RELEASE, done, arg, ret_op);
}

int hf_check_start(hf_store *store, const char *name, uint64_t token, hf_done_fn *done, void *arg,
                   hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_CHECK, name, done, arg, &err, &op);

    if (result == HF_OK) {
        op->token = token;
        result = op_start(op, &err, ret_op);
    }
    return failure_keep(result, &err);
}

int hf_show_start(hf_store *store, const char *name, hf_done_fn *done, void *arg, hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_SHOW, name, done, arg, &err, &op);

    if (result == HF_OK)
        result = op_start(op, &err, ret_op);
    return failure_keep(result, &err);
}

int hf_list_start(hf_store *store, const hf_list_options *options, hf_done_fn *done, void *arg,
                  hf_op **ret_op)
{
    struct error_text err = {""};
    hf_list_options checked;
    hf_op *op;
    int result = list_options_read(options, &checked, &err);

    if (result == HF_OK)
        result = op_make(store, OP_LIST, NULL, done, arg, &err, &op);
    if (result == HF_OK && !copy_text(&op->match, checked.match)) {
        op_free(op);
        result = error_set(&err, HF_ENOMEM, "out of memory");
    }
    if (result == HF_OK) {
        op->all = checked.all != 0;
        result = op_start(op, &err, ret_op);
    }
    return failure_keep(result, &err);
}

int hf_break_start(hf_store *store, const char *name, int64_t grace_ms, hf_done_fn *done, void *arg,
                   hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_BREAK, name, done, arg, &err, &op);

    if (result == HF_OK) {
        op->grace_ms = grace_ms;
        result = op_start(op, &err, ret_op);
    }
    return failure_keep(result, &err);
}

int hf_once_begin_start(hf_store *store, const char *key, const hf_once_options *options,
                        hf_done_fn *done, void *arg, hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_ONCE_BEGIN, key, done, arg, &err, &op);

    if (result != HF_OK)
        return failure_keep(result, &err);
    result = once_options_read(store, options, &op->options, &op->terms, &err);
    if (result == HF_OK && !copy_text(&op->owner, op->options.owner))
        result = error_set(&err, HF_ENOMEM, "out of memory");
    op->options.owner = op->owner;
    if (result == HF_OK)
        result = op_start(op, &err, ret_op);
    else
        op_free(op);
    return failure_keep(result, &err);
}

int hf_once_finish_start(hf_once *once, const void *bytes, size_t size, int64_t keep_ms,
                         hf_done_fn *done, void *arg, hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = once_check_finish(once, bytes, size, keep_ms, &err);

    if (result == HF_OK)
        result = op_make(once->lock->store, OP_ONCE_FINISH, NULL, done, arg, &err, &op);
    if (result != HF_OK)
        return failure_keep(result, &err);
    op->subject = once->lock;
    op->size = size;
    op->keep_ms = keep_ms;
    op->bytes = malloc(size + 1);
    if (!op->bytes) {
        op_free(op);
        return failure_keep(error_set(&err, HF_ENOMEM, "out of memory"), &err);
    }
    if (size > 0)
        memcpy(op->bytes, bytes, size);
    return failure_keep(op_start(op, &err, ret_op), &err);
}

int hf_once_release_start(hf_once *once, hf_done_fn *done, void *arg, hf_op **ret_op)
{
    return start_on_lock(hf_once_lock(once), OP_RELEASE, done, arg, ret_op);
}

int hf_once_read_start(hf_store *store, const char *key, hf_done_fn *done, void *arg,
                       hf_op **ret_op)
{
    struct error_text err = {""};
    hf_op *op;
    int result = op_make_named(store, OP_ONCE_READ, key, done, arg, &err, &op);

    if (result == HF_OK)
        result = op_start(op, &err, ret_op);
    return failure_keep(result, &err);
}

/* ---- the caller's side ------------------------------------------------------------------------
 */

hf_lock *hf_op_take_lock(hf_op *op)
{
    hf_lock *lock = op ? op->lock : NULL;

    if (!lock)
        return NULL;
    op->lock = NULL;
    pthread_mutex_lock(&op->store->mutex);
    claim_unpark(lock);
    pthread_mutex_unlock(&op->store->mutex);
    return lock;
}

hf_report *hf_op_take_report(hf_op *op)
{
    hf_report *report = op ? op->report : NULL;

    if (report)
        op->report = NULL;
    return report;
}

hf_once *hf_op_take_once(hf_op *op)
{
    hf_once *once = op ? op->once : NULL;

    if (once)
        op->once = NULL;
    return once;
}

const char *hf_op_error(hf_op *op)
{
    if (!op || op->result == HF_OK)
        return "";
    return op->err.text[0] ? op->err.text : error_name(op->result);
}

void hf_op_cancel(hf_op *op)
{
    if (op && !store_forked(op->store))
        hf_cancel_fire(&op->cancel);
}
