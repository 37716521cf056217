/* supervise.c
 *
 *      RUNNING ──left <= grace, or lost──▶ ENDING ──left = 0, or grace over──▶ KILLED
 *         │  SIGTERM to the group             │        SIGKILL to the group      │
 *         └──────────── the child and, after a loss, its whole group have ended ─┴──▶ done
 *
 * Time here is hf_lock_left_ms and CLOCK_BOOTTIME only. A renewal that succeeds after the SIGTERM
 * does not take it back: the job has been told to stop, and half-stopped jobs help nobody. */
#include "cli/supervise.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REMAINS_CHECK_MS \
    20 /* we hear of the end of what we adopted; others may be init's already */
/* So long after SIGKILL we stop looking: what is left then are zombies that nobody collects (a
 * container without an init), and they cannot hurt. */
#define REMAINS_MAX_MS 1000
#define WORDS_MAX 4096
#define WORDS_MS 1000 /* at the end, for whoever reads what we say */

enum phase { RUNNING, ENDING, KILLED, IGNORING };

struct watch {
    const struct supervision *how;
    struct job job;
    enum phase phase;
    bool lost;
    int64_t zero_ms; /* when the hold runs out, as far as we knew when we last looked */
    int64_t kill_ms; /* ENDING: when SIGKILL is due; KILLED: when it went out */
    int told;        /* the last ending signal passed on */
    int timer, lost_fd;
    int64_t timer_ms; /* what the timer is set to */
    bool speaks;      /* the thread says why it was lost */
    pthread_t words;
    int64_t warn_ms;       /* when to say next that it is held for long; CLOCK_NEVER */
    int64_t warn_after_ms; /* and the time that will have passed by then */
};

static void set_timer(struct watch *watch, int64_t at_ms)
{
    struct itimerspec when = {.it_value = {0}};

    if (at_ms == watch->timer_ms)
        return;
    watch->timer_ms = at_ms;

    if (at_ms != CLOCK_NEVER) {
        if (at_ms < 1)
            at_ms = 1; /* all zero would switch it off */
        when.it_value.tv_sec = at_ms / 1000;
        when.it_value.tv_nsec = at_ms % 1000 * 1000000;
    }
    timerfd_settime(watch->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* The job is to report progress, and does not. */
static bool is_silent(const struct supervision *how)
{
    return how->heartbeat->every_ms > 0 &&
           clock_boot_ms() - how->heartbeat->heard_ms >= how->heartbeat->every_ms;
}

/* Why it was lost, in words. Only a store without TTL is asked, where the library answers at once:
 * with one, a renewal may be hanging, and we have a SIGKILL to send in time. */
static const char *why_lost(const struct watch *watch, int64_t left_ms)
{
    const struct supervision *how = watch->how;
    int64_t held_ms = clock_boot_ms() - how->granted_ms;
    static char text[WORDS_MAX / 2];
    bool failing = hf_lock_unrenewed_ms(how->lock) > 0;
    const char *reason;

    /* We may have counted from later than the library, if the machine was busy. Without a TTL nothing but
     * the maximum lets a hold run out while we look at it. */
    if (how->max_hold_ms > 0 && (held_ms + left_ms + how->margin_ms >= how->max_hold_ms ||
                                 (!how->has_ttl && left_ms > 0))) {
        if (left_ms > how->margin_ms)
            snprintf(text, sizeof text,
                     "%s are left of its maximum of %s, so that the job has time to end",
                     span(left_ms), span(how->max_hold_ms));
        else
            snprintf(text, sizeof text, "it was held for its maximum of %s",
                     span(how->max_hold_ms));
        return text;
    }
    if (left_ms > 0 && is_silent(how)) {
        snprintf(text, sizeof text,
                 "no progress was reported for %s (--progress %s), so it %s, and %s are left",
                 span(clock_boot_ms() - how->heartbeat->heard_ms), span(how->heartbeat->every_ms),
                 how->has_ttl ? "is not renewed" : "is given up", span(left_ms));
        return text;
    }
    if (left_ms > 0) {
        snprintf(text, sizeof text, "it could not be renewed, and %s are left%s%s", span(left_ms),
                 failing ? ": " : "", failing ? hf_error() : "");
        return text;
    }
    reason = hf_lock_lost_why(how->lock);
    if (*reason && is_silent(how))
        return reason;
    if (how->has_ttl && (failing || clock_boot_ms() < watch->zero_ms))
        return *reason ? reason : "the store says that it has ended";
    if (how->has_ttl)
        return "its lease has expired";
    if (hf_renew(how->lock) != HF_ELOST)
        return "it has ended";
    reason = strstr(hf_error(), "was lost: ");
    return reason ? reason + strlen("was lost: ") : hf_error();
}

static void *say_words(void *text)
{
    say("%s", (char *)text);
    free(text);
    return NULL;
}

/* From a thread: whoever reads our stderr may stand still (^S at a terminal), and a SIGKILL may be due. It is said
 * once at most. */
static void say_lost(struct watch *watch, int64_t left_ms, const char *what_now)
{
    const struct supervision *how = watch->how;
    char *text = malloc(WORDS_MAX);

    if (!text)
        return;
    snprintf(text, WORDS_MAX, "lost '%s' (token %llu): %s; %s", printable(hf_lock_name(how->lock)),
             (unsigned long long)hf_lock_token(how->lock), why_lost(watch, left_ms), what_now);
    if (how->capture)
        capture_say(how->capture, "%s", text);
    else
        watch->speaks = pthread_create(&watch->words, NULL, say_words, text) == 0;
    if (!watch->speaks)
        free(text);
}

static void *say_words_aside(void *text)
{
    pthread_detach(pthread_self());
    return say_words(text);
}

/* --warn-after: nothing is done about it. From a thread as well. Those that were missed, in a sleep of the machine, are not made up for. */
static void warn(struct watch *watch, int64_t now_ms)
{
    const struct supervision *how = watch->how;
    int64_t held_ms = now_ms - how->granted_ms;
    pthread_t thread;
    char *text;

    while (watch->warn_ms <= now_ms) {
        watch->warn_after_ms *= 2;
        watch->warn_ms = clock_after(how->granted_ms, watch->warn_after_ms);
    }
    text = malloc(WORDS_MAX);
    if (!text)
        return;
    snprintf(text, WORDS_MAX, "'%s' (token %llu) has been held for %s, and the job runs on",
             printable(hf_lock_name(how->lock)), (unsigned long long)hf_lock_token(how->lock),
             span(held_ms));
    if (how->capture)
        capture_say(how->capture, "%s", text);
    if (how->capture || pthread_create(&thread, NULL, say_words_aside, text) != 0)
        free(text);
}

/* So that our words come before those of whoever called us. */
static void await_words(struct watch *watch)
{
    int64_t end_ms = clock_wall_ms() + WORDS_MS; /* the only clock that this can be told in */
    struct timespec end = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};

    if (!watch->speaks)
        return;
    if (pthread_timedjoin_np(watch->words, NULL, &end) != 0)
        pthread_detach(watch->words);
}

static void kill_job(struct watch *watch)
{
    watch->phase = KILLED;
    watch->kill_ms = clock_boot_ms();
    job_signal(&watch->job, SIGKILL);
}

static void end_job(struct watch *watch, int64_t kill_ms)
{
    watch->phase = ENDING;
    watch->kill_ms = kill_ms;
    job_signal(&watch->job, SIGTERM);
    job_signal(&watch->job, SIGCONT); /* a stopped job could not obey */
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void on_loss(struct watch *watch, int64_t left_ms, int64_t now_ms)
{
    const struct supervision *how = watch->how;
    /* Past the time we counted on, the next holder may be at work: we were stopped, or asleep. */
    bool too_late = left_ms <= 0 && now_ms >= watch->zero_ms;

    watch->lost = true;
    switch (how->on_lost) {
    case ON_LOST_IGNORE:
        watch->phase = IGNORING;
        say_lost(watch, left_ms, "the job runs on, as --on-lost ignore says");
        return;
    case ON_LOST_KILL:
        job_adopt_orphans(true);
        kill_job(watch);
        break;
    case ON_LOST_TERM:
        job_adopt_orphans(true);
        if (too_late)
            kill_job(watch);
        else if (left_ms > 0)
            end_job(watch, now_ms + left_ms - how->margin_ms);
        else
            end_job(watch, earlier(clock_after(now_ms, how->grace_ms), watch->zero_ms));
        break;
    }
    /* First the signal, then the words: stderr may be slow. */
    say_lost(watch, left_ms, "stopping the job");
}

/* How much must be left for the job to go on undisturbed. */
static int64_t needed_ms(const struct supervision *how)
{
    return how->on_lost == ON_LOST_TERM   ? how->grace_ms
           : how->on_lost == ON_LOST_KILL ? how->margin_ms
                                          : 0;
}

/* Looks at the lock and the clock and does what is due. */
static void look(struct watch *watch)
{
    int64_t now_ms = clock_boot_ms(), left_ms;

    switch (watch->phase) {
    case RUNNING:
        left_ms = hf_lock_left_ms(watch->how->lock);
        if (left_ms <= needed_ms(watch->how))
            on_loss(watch, left_ms, now_ms);
        else
            watch->zero_ms = left_ms == HF_UNLIMITED ? CLOCK_NEVER : clock_after(now_ms, left_ms);
        if (watch->phase == RUNNING && now_ms >= watch->warn_ms)
            warn(watch, now_ms);
        break;
    case ENDING:
        if (now_ms >= watch->kill_ms)
            kill_job(watch);
        break;
    case KILLED:
    case IGNORING:
        break;
    }
}

static int64_t next_look_ms(const struct watch *watch)
{
    int64_t next = CLOCK_NEVER;

    if (watch->phase == RUNNING)
        next = earlier(watch->warn_ms, watch->zero_ms == CLOCK_NEVER
                                           ? CLOCK_NEVER
                                           : watch->zero_ms - needed_ms(watch->how));
    else if (watch->phase == ENDING)
        next = watch->kill_ms;
    if (watch->job.ended && watch->lost)
        next = earlier(next, clock_boot_ms() + REMAINS_CHECK_MS);
    return earlier(next, heartbeat_next_ms(watch->how->heartbeat, clock_boot_ms()));
}

/* Signals to us are for the job. */
static void pass_on_signals(struct watch *watch)
{
    int number;

    while ((number = signals_take(watch->how->signals)) != 0) {
        if (number == SIGCHLD)
            continue;
        if (number == SIGCONT) {
            if (watch->job.stopped_by)
                job_continue(&watch->job);
            continue;
        }
        if (!watch->job.ended)
            job_signal(&watch->job, number);
        if (number == SIGTSTP || number == SIGUSR1 || number == SIGUSR2)
            continue;
        watch->told = number; /* also if the job has ended: whoever started us wants an end */
        /* A stopped job could not obey; and whether it is stopped we may not have heard yet. */
        if (!watch->job.ended)
            job_continue(&watch->job);
    }
}

static void look_after_job(struct watch *watch)
{
    int before = watch->job.stopped_by;

    job_look(&watch->job);
    if (watch->job.stopped_by == 0 || watch->job.stopped_by == before)
        return;
    if (watch->phase != RUNNING && watch->phase != IGNORING) {
        job_signal(&watch->job, SIGCONT); /* being ended: no time to stand still */
        return;
    }
    before = watch->job.stopped_by;
    job_follow_stop(&watch->job);
    if (before == SIGSTOP && !watch->job.foreground)
        return; /* stays stopped until whoever stopped it lets it go on */
    /* We may have stood still for hours: first the lock, then the job. */
    look(watch);
    job_continue(&watch->job);
}

/* What it writes is read to its end, so that it does not stand still in front of a full pipe when it is told to end; but
 * then it is no progress any more. */
static void hear_progress(const struct watch *watch)
{
    if (!heartbeat_take(watch->how->heartbeat, clock_boot_ms()) || watch->phase != RUNNING)
        return;
    hf_progress(watch->how->lock); /* if that comes too late, the lock says so itself */
    heartbeat_report();            /* a run around us waits for the same job */
}

static bool is_over(const struct watch *watch)
{
    if (!watch->job.ended)
        return false;
    /* After a loss nobody of the group may run on; on a normal end whoever is left (a daemon the
     * job started) is left alone. */
    if (!watch->lost || watch->phase == IGNORING || !job_has_remains(&watch->job))
        return true;
    return watch->phase == KILLED && clock_boot_ms() - watch->kill_ms > REMAINS_MAX_MS;
}

static void run_job(struct watch *watch)
{
    struct pollfd fds[] = {{.fd = watch->how->signals->fd, .events = POLLIN},
                           {.fd = watch->timer, .events = POLLIN},
                           {.fd = watch->lost_fd, .events = POLLIN},
                           {.events = POLLIN}};

    for (;;) {
        hear_progress(watch);
        look(watch);
        pass_on_signals(watch);
        look_after_job(watch);
        if (is_over(watch))
            return;
        if (watch->phase == KILLED && watch->job.ended)
            job_signal(&watch->job, SIGKILL); /* whoever forked while we killed */
        set_timer(watch, next_look_ms(watch));
        if (watch->phase != RUNNING)
            fds[2].fd = -1; /* it stays readable, and we know */
        fds[3].fd = heartbeat_fd(watch->how->heartbeat, clock_boot_ms());
        if (poll(fds, 4, -1) < 0 && errno != EINTR)
            say("poll: %s", strerror(errno));
        if (fds[1].revents & POLLIN) {
            uint64_t expirations;

            (void)!read(watch->timer, &expirations, sizeof expirations);
            watch->timer_ms = CLOCK_NEVER; /* it fires once */
        }
    }
}

/* The job has ended, and reports no more: we do, in its place. */
static int report_for_job(const struct watch *watch)
{
    int64_t half_ms = watch->how->heartbeat->every_ms / 2;

    if (half_ms == 0)
        return -1;
    hf_progress(watch->how->lock);
    return half_ms < INT_MAX ? (int)half_ms : INT_MAX;
}

/* --hold-at-least: the job is done, but the lock is kept so that a host whose clock runs behind
 * finds it taken. */
static void hold_on(struct watch *watch, int *ret_signal)
{
    int64_t until_ms = clock_after(watch->how->granted_ms, watch->how->hold_at_least_ms);
    struct pollfd fds[] = {{.fd = watch->how->signals->fd, .events = POLLIN},
                           {.fd = watch->timer, .events = POLLIN},
                           {.fd = watch->lost_fd, .events = POLLIN}};

    if (signals_ends(watch->told)) { /* while the job ran, or as it ended: it is not said again */
        *ret_signal = watch->told;
        return;
    }
    set_timer(watch, until_ms);
    while (clock_boot_ms() < until_ms) {
        int number;

        while ((number = signals_take(watch->how->signals)) != 0) {
            if (number == SIGTSTP)
                signals_stop(SIGTSTP, false);
            if (signals_ends(number)) {
                *ret_signal = number;
                return;
            }
        }
        if (poll(fds, 3, report_for_job(watch)) < 0 && errno != EINTR)
            return;
        if (fds[2].revents & POLLIN) {
            say("lost '%s' (token %llu) after the job had ended, while holding on to it: %s",
                printable(hf_lock_name(watch->how->lock)),
                (unsigned long long)hf_lock_token(watch->how->lock),
                hf_lock_lost_why(watch->how->lock));
            return;
        }
    }
}

void supervise(const struct supervision *how, struct outcome *ret_outcome)
{
    struct watch watch = {.how = how,
                          .zero_ms = CLOCK_NEVER,
                          .timer = -1,
                          .timer_ms = CLOCK_NEVER,
                          .warn_after_ms = how->warn_after_ms,
                          .warn_ms = how->warn_after_ms > 0
                                         ? clock_after(how->granted_ms, how->warn_after_ms)
                                         : CLOCK_NEVER};
    int64_t left_ms;

    *ret_outcome = (struct outcome){0};
    watch.lost_fd = hf_lock_lost_fd(how->lock);
    watch.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (watch.lost_fd < 0 || watch.timer < 0) {
        /* Without these a loss would go unnoticed: then rather no job. */
        ret_outcome->failure = EMFILE;
        if (how->pass_fd >= 0)
            close(how->pass_fd);
        if (how->capture)
            capture_job_has_it(how->capture);
        return;
    }
    /* What is left now is the measure if we are stopped before we look again. */
    left_ms = hf_lock_left_ms(how->lock);
    if (left_ms != HF_UNLIMITED)
        watch.zero_ms = clock_after(clock_boot_ms(), left_ms);
    ret_outcome->failure = job_start(&watch.job, how->argv, how->envp,
                                     how->capture ? how->capture->job_ends : NULL, how->signals);
    if (how->pass_fd >= 0)
        close(how->pass_fd); /* the job has its own copy; ours would outlive the release */
    heartbeat_job_has_it(how->heartbeat);
    if (how->capture)
        capture_job_has_it(how->capture);
    if (ret_outcome->failure == 0) {
        run_job(&watch);
        ret_outcome->was_foreground = watch.job.foreground;
        ret_outcome->told = watch.told;
        job_finish(&watch.job);
        if (watch.lost)
            job_adopt_orphans(false);
        /* Lost in the last instant, before we looked. */
        if (!watch.lost && hf_lock_left_ms(how->lock) <= 0) {
            watch.lost = true;
            say_lost(&watch, 0, "the job had just ended");
        }
        ret_outcome->lost = watch.lost;
        ret_outcome->wait_status = watch.job.wait_status;
        if (!watch.lost && how->hold_at_least_ms > 0)
            hold_on(&watch, &ret_outcome->signal);
    }
    await_words(&watch);
    close(watch.timer);
}

bool supervise_interrupted(const struct outcome *outcome)
{
    return outcome->was_foreground && WIFSIGNALED(outcome->wait_status) &&
           (WTERMSIG(outcome->wait_status) == SIGINT || WTERMSIG(outcome->wait_status) == SIGQUIT);
}

int exit_status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? EXIT_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

int status_of_failure(int failure)
{
    return failure == ENOENT || failure == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

const char *hint_of_failure(const char *program, int failure)
{
    return status_of_failure(failure) == EXIT_NOT_FOUND && strchr(program, ' ')
               ? " (-c TEXT runs TEXT with the shell)"
               : "";
}

int say_cannot_run(const char *program, int failure)
{
    say("cannot run '%s': %s%s", printable(program), strerror(failure),
        hint_of_failure(program, failure));
    return status_of_failure(failure);
}
