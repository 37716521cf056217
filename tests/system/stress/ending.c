/* ending.c: processes that fork, and stores that are closed in the middle of everything. */
#include "forked.h"
#include "stress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_MAX_S 20 /* then one that has not ended says where it is */

static void complain(const char *what)
{
    fprintf(stderr, "in a forked child: %s\n", what);
    _exit(1);
}

/* A store that it opens itself is its own. */
static void use_own(void)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_store *store = NULL;
    hf_lock *lock = NULL;

    options.wait_ms = 100;
    forked_step("hf_open of a store of its own");
    if (hf_open(stress.url, &store) != HF_OK)
        return; /* the server may be away */
    forked_step("hf_acquire on a store of its own");
    if (hf_acquire(store, "stress-own", &options, &lock) == HF_OK)
        hf_release(lock);
    forked_step("hf_close of a store of its own");
    hf_close(store);
}

/* What the parent has is not the child's: it can do nothing with it but free it. */
_Noreturn static void be_child(struct worker *worker, hf_store *store, hf_lock *lock)
{
    hf_lock *other = NULL;
    hf_report *report = NULL;

#ifdef __SANITIZE_THREAD__
    /* Its memory may be locked here by a thread that was not copied, and then it lets no signal through: to be forked must do. */
    _exit(0);
#endif
    forked_end_after(CHILD_MAX_S);
    forked_step("hf_try");
    if (hf_try(store, "stress-child", NULL, &other) != HF_EFORK)
        complain("hf_try does not answer HF_EFORK");
    forked_step("hf_list");
    if (hf_list(store, NULL, &report) != HF_EFORK)
        complain("hf_list does not answer HF_EFORK");
    forked_step("hf_renew");
    if (lock && hf_renew(lock) != HF_EFORK)
        complain("hf_renew does not answer HF_EFORK");
    forked_step("hf_release");
    if (lock && below(worker, 2))
        hf_release(lock);
    forked_step("hf_close");
    if (below(worker, 2))
        hf_close(store);
    if (CHILD_IS_WHOLE && below(worker, 4) == 0)
        use_own();
    _exit(0);
}

static void await_child(struct worker *worker, pid_t child)
{
    int status = 0;
    pid_t ended;

    doing(worker, "waitpid");
    do
        ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        violated("a forked child did not end well: status %d", status);
    count(COUNT_FORKS);
}

void do_fork(struct worker *worker)
{
    struct hold *hold = hold_new((int)below(worker, NAMES));
    hf_store *store = some_store(worker);
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    pid_t child;
    int result;

    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    doing(worker, "hf_try before a fork");
    result = hf_try(store, name, &options, &lock);
    if (result == HF_OK)
        hold_enter(hold, lock);
    else
        expect("hf_try", result, hf_error());
    doing(worker, "fork");
    child = fork();
    if (child < 0)
        violated("no fork: %s", strerror(errno));
    if (child == 0)
        be_child(worker, store, result == HF_OK ? lock : NULL);
    await_child(worker, child);
    hold_leave(hold);
    if (result == HF_OK)
        give_up(worker, store, hold);
    else
        hold_over(hold);
}

/* ---- closing ------------------------------------------------------------------------------------------- */

static void close_store(struct worker *worker, bool loops)
{
    struct hold *hold = hold_new(-1);
    struct watcher *watcher = NULL;
    hf_observer *observer = NULL;
    hf_store *store = NULL;
    hf_lock *lock = NULL;
    hf_options options;
    char name[TEXT_MAX];
    int result;

    doing(worker, "hf_open");
    result = hf_open(stress.url, &store);
    if (result != HF_OK) {
        expect("hf_open", result, hf_error());
        hold_over(hold);
        return;
    }
    if (loops && hf_fd(store) < 0)
        violated("no descriptor: %s", hf_error());
    start_some(worker, store);
    section_name((int)below(worker, NAMES), name);
    if (below(worker, 2)) {
        doing(worker, "hf_observe, to close");
        watcher = watch(store, name, false, &observer);
    }
    if (below(worker, 2)) {
        hold_options(worker, hold, &options);
        options.wait_ms = 0;
        doing(worker, "hf_try, to close");
        result = hf_try(store, name, &options, &lock);
        if (result != HF_OK)
            expect("hf_try", result, hf_error());
    }
    nap(worker, 5000);
    if (loops && below(worker, 2))
        hf_dispatch(store);
    doing(worker, "hf_close");
    hf_close(store);
    watch_over(watcher);
    started_closed(worker, store);
    hold_over(hold);
    count(COUNT_CLOSED);
}

void do_close(struct worker *worker)
{
    close_store(worker, false);
}

void do_close_looping(struct worker *worker)
{
    close_store(worker, true);
}
