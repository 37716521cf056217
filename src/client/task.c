/* task.c: threads that belong to a store and that hf_close waits for.
 *
 * A finished task puts itself on a list, and whoever comes by joins it. A detached thread could
 * still be on its last instructions inside our library, or at our mutex, when hf_close frees the
 * store. */
#include "client/client.h"

#include <signal.h>
#include <stdlib.h>

struct task {
    struct list node; /* in hf_store.tasks, then in hf_store.finished */
    hf_store *store;
    pthread_t thread;
    void (*run)(void *);
    void *arg;
};

int thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *arg,
                 const char *name)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed = pthread_attr_init(&attributes);

    if (failed)
        return failed;
    if (stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    /* The thread inherits the mask: it never takes a signal meant for the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(ret_thread, &attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!failed)
        pthread_setname_np(*ret_thread, name);
    return failed;
}

static void *task_main(void *arg)
{
    struct task *task = arg;
    hf_store *store = task->store;

    task->run(task->arg);
    pthread_mutex_lock(&store->mutex);
    list_remove(&task->node);
    list_append(&store->finished, &task->node);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

int task_start_locked(hf_store *store, void (*run)(void *), void *arg, struct error_text *err)
{
    struct task *task;
    int failed;

    if (store->closed)
        return error_set(err, HF_ECANCELED, "the store is being closed");
    task = malloc(sizeof *task);
    if (!task)
        return error_set(err, HF_ENOMEM, "out of memory");
    *task = (struct task){.store = store, .run = run, .arg = arg};
    failed = thread_start(&task->thread, TASK_STACK_BYTES, task_main, task, "holdfast-task");
    if (failed) {
        free(task);
        return error_set_errno(err, HF_ENOMEM, failed, "cannot start a thread");
    }
    list_append(&store->tasks, &task->node); /* the thread needs the mutex to leave this list */
    return HF_OK;
}

int task_start(hf_store *store, void (*run)(void *), void *arg, struct error_text *err)
{
    int result;

    tasks_reap(store);
    pthread_mutex_lock(&store->mutex);
    result = task_start_locked(store, run, arg, err);
    pthread_mutex_unlock(&store->mutex);
    return result;
}

static struct task *take_finished(hf_store *store)
{
    struct task *task = NULL;

    pthread_mutex_lock(&store->mutex);
    if (!list_empty(&store->finished)) {
        task = LIST_ENTRY(store->finished.next, struct task, node);
        list_remove(&task->node);
    }
    pthread_mutex_unlock(&store->mutex);
    return task;
}

void tasks_reap(hf_store *store)
{
    struct task *task;

    while ((task = take_finished(store))) {
        pthread_join(task->thread, NULL);
        free(task);
    }
}

void tasks_join(hf_store *store)
{
    pthread_mutex_lock(&store->mutex);
    while (!list_empty(&store->tasks))
        pthread_cond_wait(&store->changed, &store->mutex);
    pthread_mutex_unlock(&store->mutex);
    tasks_reap(store);
}

void tasks_free_forked(hf_store *store)
{
    LIST_EACH_SAFE(node, &store->tasks)
    {
        free(LIST_ENTRY(node, struct task, node));
    }
    LIST_EACH_SAFE(node, &store->finished)
    {
        free(LIST_ENTRY(node, struct task, node));
    }
}
