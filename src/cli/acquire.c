#include "cli/acquire.h"
#include "base/clock.h"
#include "cli/outage.h"
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define FIRST_REPORT_MS 1000 /* nobody wants a line about a wait they did not notice */
#define NEXT_REPORT_MS 60000
#define HURRY_MS 200   /* after the first signal, another one is meant */
#define AGAIN_MS 5000  /* when it could not be found out */
#define SILENT_MS 2000 /* nobody waits longer without a word */
#define SILENT_ENDING_MS \
    2500 /* a first contact, or who does not wait, has mostly failed by then, and says so */
#define LEAVING_MS 1000   /* whoever has pressed Ctrl-C waits so long without a word */
#define LEAVE_MAX_MS 5000 /* for so long the library tells the store that we leave */

/* What was acquired. */
struct taken {
    hf_lock *lock;
    hf_once *once; /* of a key */
};

/* One wait. Lives on acquire's stack. */
struct waiting {
    const struct acquisition *wanted;
    struct error_text *err;
    bool done;
    int result;
    struct taken *taken;
    int64_t began_ms;
    int64_t report_ms;       /* when to look who holds it */
    uint64_t reported_token; /* of the holder we told about last */
    bool reported;
    bool was_vacant; /* at the last look nobody ran the key */
    struct outage outage;
    int64_t silent_ms;   /* when to say that nothing has come from the store */
    bool answered;       /* something has, or we have said that it is away */
    int64_t canceled_ms; /* when the first signal came; 0: none has */
    bool told_leaving;
};

/* The question about the holder: one at a time. It may be answered after the wait has ended, and then forgets who asked; or never, where the
 * store is closed before. */
static struct inquiry {
    bool under_way;
    struct waiting *asker; /* NULL: nobody wants to know any more */
} inquiry;

static void describe_wait(hf_store *store, const hf_report *report, char *ret_text, size_t size,
                          uint64_t *ret_token)
{
    char first[512] = "", withheld[160];
    size_t holders = 0;

    *ret_token = 0;
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (entry->kind != HF_ENTRY_HOLDER)
            continue;
        if (holders++ == 0) {
            describe_holder(store, entry, first, sizeof first);
            *ret_token = entry->token;
        }
    }
    describe_withheld(report, withheld, sizeof withheld);
    if (holders == 0)
        snprintf(ret_text, size, "%s", *withheld ? withheld : "nobody holds it at this moment");
    else if (holders == 1)
        snprintf(ret_text, size, "held by %s", first);
    else
        snprintf(ret_text, size, "held by %s, and %zu more", first, holders - 1);
}

/* The same of a key. */
static void describe_run(hf_store *store, const hf_once *once, char *ret_text, size_t size,
                         uint64_t *ret_token)
{
    hf_entry runner = {
        .owner = hf_once_owner(once), .token = hf_once_token(once), .age_ms = hf_once_age_ms(once)};
    char text[512];

    *ret_token = 0;
    if (hf_once_state(once) != HF_ONCE_RUNNING) {
        snprintf(ret_text, size, "%s",
                 hf_once_withheld(once) ? WITHHELD_RUN : "nobody runs it at this moment");
        return;
    }
    *ret_token = runner.token;
    describe_holder(store, &runner, text, sizeof text);
    snprintf(ret_text, size, "run by %s", text);
}

/* Whoever holds or runs it; but not at the first look that nobody runs a key, which is so for a moment between a run and those who
 * wait for it. */
static void tell_holder(struct waiting *waiting, const hf_report *report, const hf_once *once)
{
    const struct acquisition *wanted = waiting->wanted;
    bool was_vacant = waiting->was_vacant;
    char text[1024];
    uint64_t token;

    if (wanted->once)
        describe_run(wanted->store, once, text, sizeof text, &token);
    else
        describe_wait(wanted->store, report, text, sizeof text, &token);
    waiting->was_vacant = wanted->once && token == 0 && !hf_once_withheld(once);
    if (waiting->was_vacant && !was_vacant) {
        waiting->report_ms = clock_after(clock_boot_ms(), FIRST_REPORT_MS);
        return;
    }
    if (!waiting->reported || token != waiting->reported_token)
        say("waiting for '%s' in %s: %s", printable(wanted->name),
            printable(hf_info(wanted->store)->where), text);
    waiting->reported = true;
    waiting->reported_token = token;
}

static void inquiry_done(hf_op *op, int result, void *arg)
{
    struct waiting *waiting = inquiry.asker;
    hf_report *report = hf_op_take_report(op);
    hf_once *once = hf_op_take_once(op);

    (void)arg;
    inquiry = (struct inquiry){.under_way = false};
    if (waiting) {
        bool is_told = !waiting->done && waiting->canceled_ms == 0;

        waiting->answered = waiting->answered || (result != HF_EUNREACH && result != HF_EUNKNOWN);
        if (result == HF_EUNREACH || result == HF_EUNKNOWN)
            waiting->report_ms = clock_after(clock_boot_ms(), AGAIN_MS);
        else if (result != HF_OK && is_told)
            say("waiting for '%s': %s; still trying", printable(waiting->wanted->name),
                hf_op_error(op));
        else if (is_told)
            tell_holder(waiting, report, once);
    }
    hf_report_free(report);
    hf_once_free(once);
}

static int inquiry_start(const struct acquisition *wanted)
{
    hf_op *op;

    if (wanted->once)
        return hf_once_read_start(wanted->store, wanted->name, inquiry_done, NULL, &op);
    return hf_show_start(wanted->store, wanted->name, inquiry_done, NULL, &op);
}

static void inquire(struct waiting *waiting)
{
    waiting->report_ms = clock_after(clock_boot_ms(), NEXT_REPORT_MS);
    if (!inquiry.under_way && inquiry_start(waiting->wanted) == HF_OK)
        inquiry = (struct inquiry){.under_way = true, .asker = waiting};
}

static void acquired(hf_op *op, int result, void *arg)
{
    struct waiting *waiting = arg;

    waiting->done = true;
    waiting->result = result;
    if (result == HF_OK)
        *waiting->taken = (struct taken){hf_op_take_lock(op), hf_op_take_once(op)};
    else
        error_set(waiting->err, result, "%s", hf_op_error(op));
}

/* When there is something to look at, clock_boot_ms. */
static int64_t next_look(const struct waiting *waiting)
{
    if (waiting->wanted->quiet)
        return CLOCK_NEVER;
    if (waiting->canceled_ms != 0)
        return waiting->told_leaving ? CLOCK_NEVER : clock_after(waiting->canceled_ms, LEAVING_MS);
    return waiting->answered || waiting->report_ms < waiting->silent_ms ? waiting->report_ms
                                                                        : waiting->silent_ms;
}

static int poll_timeout(const struct waiting *waiting)
{
    int64_t next_ms = next_look(waiting), left;

    if (next_ms == CLOCK_NEVER)
        return -1;
    left = next_ms - clock_boot_ms();
    if (left > OUTAGE_LOOK_MS)
        return OUTAGE_LOOK_MS;
    return left < 0 ? 0 : (int)left;
}

/* Nothing has come, not even an answer to who holds it. */
static void tell_silence(struct waiting *waiting, const char *what)
{
    const struct acquisition *wanted = waiting->wanted;
    int64_t now_ms = clock_boot_ms();

    if (waiting->answered || now_ms < waiting->silent_ms)
        return;
    if ((wanted->options.wait_ms == 0 || hf_reached(wanted->store) == 0) &&
        now_ms < clock_after(waiting->began_ms, SILENT_ENDING_MS)) {
        waiting->silent_ms = clock_after(waiting->began_ms, SILENT_ENDING_MS);
        return;
    }
    if (hf_outage_ms(wanted->store) > 0)
        outage_tell(&waiting->outage, what);
    else
        say("%s: no word of it from %s for %s; still trying", what,
            printable(hf_info(wanted->store)->where), span(now_ms - waiting->began_ms));
    waiting->answered = true;
}

/* It waits for nobody any more, and has not ended: the store does not confirm that it has left. */
static void tell_leaving(struct waiting *waiting)
{
    if (waiting->told_leaving || clock_boot_ms() < clock_after(waiting->canceled_ms, LEAVING_MS))
        return;
    say("leaving the queue for '%s': the store is being told, for up to %s (another signal ends "
        "that)",
        printable(waiting->wanted->name), span(LEAVE_MAX_MS));
    waiting->told_leaving = true;
}

/* Whom it waits for, or that the store is away. When that is over, it may be somebody else. */
static void tell_progress(struct waiting *waiting)
{
    char what[1024];
    enum outage_news news;

    if (waiting->canceled_ms != 0) {
        tell_leaving(waiting);
        return;
    }
    snprintf(what, sizeof what, "%s '%s'",
             waiting->wanted->options.wait_ms == 0 ? "asking for" : "waiting for",
             printable(waiting->wanted->name));
    tell_silence(waiting, what);
    if (waiting->report_ms == CLOCK_NEVER)
        return;
    news = outage_look(&waiting->outage, waiting->wanted->store, what);
    waiting->answered = waiting->answered || waiting->outage.told;
    if (news == OUTAGE_OVER) {
        waiting->reported = false;
        waiting->report_ms = clock_boot_ms();
    }
    if (clock_boot_ms() < waiting->report_ms)
        return;
    if (news == OUTAGE_LASTS || hf_reached(waiting->wanted->store) != 1)
        waiting->report_ms = clock_after(clock_boot_ms(), OUTAGE_LOOK_MS);
    else
        inquire(waiting);
}

/* The first signal cancels the wait, which takes as long as the store does. Whoever sends another one does not want to wait for
 * that: what is left in the store ends with its TTL. One that comes at once is the same wish, by process group and by pid. */
static void take_signal(struct waiting *waiting, hf_op *op, int number, int *ret_signal)
{
    int64_t now_ms = clock_boot_ms();

    if (number == SIGTSTP) {
        signals_stop(SIGTSTP, false);
    } else if (signals_ends(number) && *ret_signal == 0) {
        *ret_signal = number;
        waiting->canceled_ms = now_ms;
        hf_op_cancel(op);
    } else if (signals_ends(number) && now_ms - waiting->canceled_ms >= HURRY_MS) {
        say("ended while the store was being told that '%s' is not waited for any more: its place "
            "there ends with its TTL",
            printable(waiting->wanted->name));
        waiting->wanted->signals->hurried = true;
        waiting->done = true; /* no callback comes any more: they run in hf_dispatch only */
        waiting->result = HF_ECANCELED;
    }
}

/* Waits for the started acquisition; a signal cancels it, and then it still has to end, so that we
 * know that nothing of it is left in the store. */
static void wait_for_it(struct waiting *waiting, hf_op *op, int store_fd, int *ret_signal)
{
    struct pollfd fds[] = {{.fd = store_fd, .events = POLLIN},
                           {.fd = waiting->wanted->signals->fd, .events = POLLIN}};

    while (!waiting->done) {
        int ready = poll(fds, 2, poll_timeout(waiting)), number;

        if (ready < 0 && errno != EINTR) {
            waiting->done = true;
            waiting->result = error_set_errno(waiting->err, HF_EINTERNAL, errno, "poll");
            return;
        }
        while ((number = signals_take(waiting->wanted->signals)) != 0)
            take_signal(waiting, op, number, ret_signal);
        if (waiting->done)
            return;
        if (hf_dispatch(waiting->wanted->store) < 0) {
            waiting->done = true;
            waiting->result = error_set(waiting->err, HF_EINTERNAL, "%s", hf_error());
            return;
        }
        if (!waiting->done && !waiting->wanted->quiet)
            tell_progress(waiting);
    }
}

static int start(struct waiting *waiting, int64_t wait_ms, hf_op **ret_op)
{
    const struct acquisition *wanted = waiting->wanted;
    hf_options options = wanted->options;
    hf_once_options once;

    options.wait_ms = wait_ms;
    if (!wanted->once)
        return hf_acquire_start(wanted->store, wanted->name, &options, acquired, waiting, ret_op);
    once = *wanted->once;
    once.wait_ms = wait_ms;
    return hf_once_begin_start(wanted->store, wanted->name, &once, acquired, waiting, ret_op);
}

/* Acquires by a started operation, so that signals are heard meanwhile. */
static int acquire_started(const struct acquisition *wanted, int64_t wait_ms,
                           struct taken *ret_taken, int *ret_signal, struct error_text *err)
{
    int64_t now_ms = clock_boot_ms();
    struct waiting waiting = {.wanted = wanted,
                              .taken = ret_taken,
                              .err = err,
                              .began_ms = now_ms,
                              .silent_ms = clock_after(now_ms, SILENT_MS),
                              .report_ms = clock_after(now_ms, FIRST_REPORT_MS)};
    int store_fd, result;
    hf_op *op;

    store_fd = hf_fd(wanted->store);
    if (store_fd < 0)
        return error_set(err, store_fd, "%s", hf_error());
    if (wait_ms == 0) /* nobody waits, so there is no line to say for whom */
        waiting.report_ms = CLOCK_NEVER;
    result = start(&waiting, wait_ms, &op);
    if (result != HF_OK)
        return error_set(err, result, "%s", hf_error());
    wait_for_it(&waiting, op, store_fd, ret_signal);
    inquiry.asker = NULL;
    return waiting.result;
}

/* Here and now, without waiting. */
static int acquire_now(const struct acquisition *wanted, struct taken *ret_taken,
                       struct error_text *err)
{
    hf_once_options once;
    int result;

    if (wanted->once) {
        once = *wanted->once;
        once.wait_ms = 0;
        result = hf_once_begin(wanted->store, wanted->name, &once, &ret_taken->once);
    } else {
        result = hf_try(wanted->store, wanted->name, &wanted->options, &ret_taken->lock);
    }
    return result == HF_OK ? HF_OK : error_set(err, result, "%s", hf_error());
}

/* Adds who holds it to the words of a refusal. */
static void describe_busy(const struct acquisition *wanted, struct error_text *err)
{
    hf_report *report;
    hf_once *once;
    uint64_t token;
    bool is_withheld;
    char text[1024];

    if (wanted->once) {
        if (hf_once_read(wanted->store, wanted->name, &once) != HF_OK)
            return;
        describe_run(wanted->store, once, text, sizeof text, &token);
        if (token != 0 || hf_once_withheld(once))
            error_set(err, HF_EBUSY, "'%.200s' is not finished: %s", printable(wanted->name), text);
        hf_once_free(once);
        return;
    }
    if (hf_show(wanted->store, wanted->name, &report) != HF_OK)
        return;
    describe_withheld(report, text, sizeof text);
    is_withheld = text[0];
    describe_wait(wanted->store, report, text, sizeof text, &token);
    if (token != 0 || is_withheld)
        error_set(err, HF_EBUSY, "'%.200s' is busy: %s", printable(wanted->name), text);
    hf_report_free(report);
}

/* What was not asked for on the command line can be overridden there. */
static void add_override(const struct acquisition *wanted, struct error_text *err)
{
    int need = wanted->once ? wanted->once->need_strict : wanted->options.need_strict;
    struct error_text plain = *err;

    if (need == 0)
        error_write(err, "%s; --need best-effort overrides that", plain.text);
}

static int acquire_any(const struct acquisition *wanted, struct taken *ret_taken, int *ret_signal,
                       struct error_text *err)
{
    bool is_here = strcmp(hf_info(wanted->store)->scheme, "file") == 0;
    int number = 0, result = HF_EBUSY;

    *ret_signal = 0;
    /* The first attempt does not wait where it cannot take long. It is made here and now, without a second
     * thread: an uncontended run must start as flock(1) does. A directory is there: what keeps us from it is
     * another process that is stopped for now, and that is waited for. */
    if (is_here)
        result = acquire_now(wanted, ret_taken, err);
    if (!is_here || ((result == HF_EBUSY || result == HF_EUNREACH) && wanted->options.wait_ms != 0))
        result = acquire_started(wanted, wanted->options.wait_ms, ret_taken, &number, err);
    while (number == 0 && result == HF_OK) { /* asked to stop before there is a job to ask */
        int next = signals_take(wanted->signals);

        if (next == 0)
            break;
        if (signals_ends(next))
            number = next;
    }
    if (number != 0) {
        if (result == HF_OK) {
            hf_release(ret_taken->lock);
            hf_once_release(ret_taken->once);
        }
        *ret_signal = number;
        return HF_ECANCELED;
    }
    if (result == HF_EBUSY && wanted->say_busy && !wanted->quiet)
        describe_busy(wanted, err);
    if (result == HF_EWEAK)
        add_override(wanted, err);
    return result;
}

int acquire(const struct acquisition *wanted, hf_lock **ret_lock, int *ret_signal,
            struct error_text *err)
{
    struct taken taken = {NULL, NULL};
    int result = acquire_any(wanted, &taken, ret_signal, err);

    if (result == HF_OK)
        *ret_lock = taken.lock;
    return result;
}

int acquire_once(const struct acquisition *wanted, hf_once **ret_once, int *ret_signal,
                 struct error_text *err)
{
    struct taken taken = {NULL, NULL};
    int result = acquire_any(wanted, &taken, ret_signal, err);

    if (result == HF_OK)
        *ret_once = taken.once;
    return result;
}
