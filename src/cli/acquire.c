#include "cli/acquire.h"
#include "base/clock.h"
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_REPORT_MS 1000 /* nobody wants a line about a wait they did not notice */
#define NEXT_REPORT_MS 60000

struct inquiry;

/* One wait. Lives on acquire's stack. */
struct waiting {
    const struct acquisition *wanted;
    struct error_text *err;
    bool done;
    int result;
    hf_lock *lock;
    int64_t report_ms;       /* when to look who holds it */
    uint64_t reported_token; /* of the holder we told about last */
    bool reported;
    struct inquiry *inquiry; /* under way, or NULL */
};

/* A question about the holder. It may be answered after the wait has ended, so it is on the heap
 * and forgets who asked. */
struct inquiry {
    struct waiting *asker; /* NULL: nobody wants to know any more */
};

static void describe_wait(const hf_report *report, char *ret_text, size_t size, uint64_t *ret_token)
{
    char first[512] = "";
    size_t holders = 0;

    *ret_token = 0;
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (entry->kind != HF_ENTRY_HOLDER)
            continue;
        if (holders++ == 0) {
            describe_holder(entry, first, sizeof first);
            *ret_token = entry->token;
        }
    }
    if (holders == 0)
        snprintf(ret_text, size, "nobody holds it at this moment");
    else if (holders == 1)
        snprintf(ret_text, size, "held by %s", first);
    else
        snprintf(ret_text, size, "held by %s, and %zu more", first, holders - 1);
}

static void inquiry_done(hf_op *op, int result, void *arg)
{
    struct inquiry *inquiry = arg;
    struct waiting *waiting = inquiry->asker;
    hf_report *report = hf_op_take_report(op);

    if (waiting) {
        const struct acquisition *wanted = waiting->wanted;
        char text[1024];
        uint64_t token;

        waiting->inquiry = NULL;
        if (result != HF_OK && !waiting->done) {
            say("waiting for '%s': %s; still trying", printable(wanted->name), hf_op_error(op));
        } else if (!waiting->done) {
            describe_wait(report, text, sizeof text, &token);
            if (!waiting->reported || token != waiting->reported_token)
                say("waiting for '%s' in %s: %s", printable(wanted->name),
                    printable(hf_info(wanted->store)->where), text);
            waiting->reported = true;
            waiting->reported_token = token;
        }
    }
    hf_report_free(report);
    free(inquiry);
}

static void inquire(struct waiting *waiting)
{
    struct inquiry *inquiry;
    hf_op *op;

    waiting->report_ms = clock_after(clock_boot_ms(), NEXT_REPORT_MS);
    if (waiting->inquiry)
        return;
    inquiry = malloc(sizeof *inquiry);
    if (!inquiry)
        return; /* the line is a courtesy */
    inquiry->asker = waiting;
    if (hf_show_start(waiting->wanted->store, waiting->wanted->name, inquiry_done, inquiry, &op) !=
        HF_OK) {
        free(inquiry);
        return;
    }
    waiting->inquiry = inquiry;
}

static void acquired(hf_op *op, int result, void *arg)
{
    struct waiting *waiting = arg;

    waiting->done = true;
    waiting->result = result;
    if (result == HF_OK)
        waiting->lock = hf_op_take_lock(op);
    else
        error_set(waiting->err, result, "%s", hf_op_error(op));
}

static int poll_timeout(const struct waiting *waiting)
{
    int64_t left;

    if (waiting->wanted->quiet)
        return -1;
    if (waiting->report_ms == CLOCK_NEVER)
        return -1;
    left = waiting->report_ms - clock_boot_ms();
    return left < 0 ? 0 : (int)left;
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
        while ((number = signals_take(waiting->wanted->signals)) != 0) {
            if (number == SIGTSTP) {
                signals_stop(SIGTSTP, false);
            } else if (signals_ends(number) && *ret_signal == 0) {
                *ret_signal = number;
                hf_op_cancel(op);
            }
        }
        if (hf_dispatch(waiting->wanted->store) < 0) {
            waiting->done = true;
            waiting->result = error_set(waiting->err, HF_EINTERNAL, "%s", hf_error());
            return;
        }
        if (!waiting->done && !waiting->wanted->quiet && clock_boot_ms() >= waiting->report_ms)
            inquire(waiting);
    }
}

/* Acquires by a started operation, so that signals are heard meanwhile. */
static int acquire_started(const struct acquisition *wanted, int64_t wait_ms, hf_lock **ret_lock,
                           int *ret_signal, struct error_text *err)
{
    hf_options options = wanted->options;
    struct waiting waiting = {
        .wanted = wanted, .err = err, .report_ms = clock_after(clock_boot_ms(), FIRST_REPORT_MS)};
    int store_fd, result;
    hf_op *op;

    store_fd = hf_fd(wanted->store);
    if (store_fd < 0)
        return error_set(err, store_fd, "%s", hf_error());
    options.wait_ms = wait_ms;
    if (wait_ms == 0) /* nobody waits, so there is no line to say for whom */
        waiting.report_ms = CLOCK_NEVER;
    result = hf_acquire_start(wanted->store, wanted->name, &options, acquired, &waiting, &op);
    if (result != HF_OK)
        return error_set(err, result, "%s", hf_error());
    wait_for_it(&waiting, op, store_fd, ret_signal);
    if (waiting.inquiry)
        waiting.inquiry->asker = NULL;
    if (waiting.result == HF_OK)
        *ret_lock = waiting.lock;
    return waiting.result;
}

/* Adds who holds it to the words of a refusal. */
static void describe_busy(const struct acquisition *wanted, struct error_text *err)
{
    hf_report *report;
    uint64_t token;
    char text[1024];

    if (hf_show(wanted->store, wanted->name, &report) != HF_OK)
        return;
    describe_wait(report, text, sizeof text, &token);
    if (token != 0)
        error_set(err, HF_EBUSY, "'%.200s' is busy: %s", printable(wanted->name), text);
    hf_report_free(report);
}

int acquire(const struct acquisition *wanted, hf_lock **ret_lock, int *ret_signal,
            struct error_text *err)
{
    int number = 0, result = HF_EBUSY;

    *ret_signal = 0;
    /* The first attempt does not wait. Where it cannot take long it is made here and now, without a second
     * thread: an uncontended run must start as flock(1) does. Elsewhere it shows whether the store is there
     * at all: once we wait, the library sits out every outage, which somebody who mistyped a host
     * name would take for a lock that is held for ever. */
    if (!(hf_info(wanted->store)->features & HF_HAS_TTL)) {
        result = hf_try(wanted->store, wanted->name, &wanted->options, ret_lock);
        if (result != HF_OK)
            error_set(err, result, "%s", hf_error());
    } else if (!wanted->patient) {
        result = acquire_started(wanted, 0, ret_lock, &number, err);
    }
    if (result == HF_EBUSY && number == 0 && wanted->options.wait_ms != 0)
        result = acquire_started(wanted, wanted->options.wait_ms, ret_lock, &number, err);
    while (number == 0 && result == HF_OK) { /* asked to stop before there is a job to ask */
        int next = signals_take(wanted->signals);

        if (next == 0)
            break;
        if (signals_ends(next))
            number = next;
    }
    if (number != 0) {
        if (result == HF_OK)
            hf_release(*ret_lock);
        *ret_signal = number;
        return HF_ECANCELED;
    }
    if (result == HF_EBUSY && wanted->say_busy && !wanted->quiet)
        describe_busy(wanted, err);
    return result;
}
