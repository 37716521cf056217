#include "base/clock.h"
#include "cli/bench_work.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONTACT_MS 10000 /* to get a lock that nobody else can have */
#define SILENT_MS 2000   /* so long nothing is said of a store that does not answer */
#define TICK_MS 200
#define OUTAGE_SHOWN_MS 1000
#define COLUMNS_DEFAULT 80
#define CLEAR "\r\033[K"

/* What goes on beside the load: signals, and a line on a terminal. */
struct watch {
    struct bench *bench;
    struct signals signals;
    bool has_line, is_quiet;
    size_t round, rounds; /* of all */
    uint64_t cycles;      /* at the last tick */
    int64_t tick_ns;
    double rate;
};

/* ---- signals and the line -------------------------------------------------------------------- */

static void clear_line(const struct watch *watch)
{
    if (watch->has_line)
        fputs(CLEAR, stderr);
}

/* The first asks us to end in order; a second one, not to wait for that. */
static bool take_signals(struct watch *watch)
{
    int number;

    while ((number = signals_take(&watch->signals)) != 0) {
        if (watch->bench->interrupted) {
            clear_line(watch);
            signals_die(number, false);
        }
        watch->bench->interrupted = number;
    }
    return watch->bench->interrupted != 0;
}

static void sleep_or_signal(struct watch *watch, int64_t until_ns)
{
    struct pollfd fd = {.fd = watch->signals.fd, .events = POLLIN};
    int64_t left_ms = (until_ns - clock_boot_ns() + 999999) / 1000000;

    if (left_ms > TICK_MS)
        left_ms = TICK_MS;
    poll(&fd, 1, left_ms > 0 ? (int)left_ms : 0);
}

static void accuse(struct watch *watch, struct bench_target *target)
{
    char text[BENCH_WORDS_MAX];

    if (!bench_names_accuse(&target->names, text, sizeof text))
        return;
    clear_line(watch);
    say("VIOLATION on %s: %s", printable(target->label), text);
}

static int line_columns(void)
{
    struct winsize size = {0};

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col
                                                                           : COLUMNS_DEFAULT;
}

static void draw(struct watch *watch, const struct bench_load *load,
                 const struct bench_point *point, struct bench_target *target)
{
    int64_t now_ns = clock_boot_ns(), outage_ms;
    uint64_t cycles = bench_load_cycles(load), failures = bench_load_failures(load);
    char failed[40] = "", away[64] = "", line[512];

    accuse(watch, target);
    if (!watch->has_line)
        return;
    if (now_ns > watch->tick_ns)
        watch->rate = (double)(cycles - watch->cycles) * 1e9 / (double)(now_ns - watch->tick_ns);
    watch->cycles = cycles;
    watch->tick_ns = now_ns;
    outage_ms = hf_outage_ms(target->handles[0]);
    if (outage_ms >= OUTAGE_SHOWN_MS)
        snprintf(away, sizeof away, ", out of reach for %s", span(outage_ms));
    if (failures > 0)
        snprintf(failed, sizeof failed, ", %llu FAILED", (unsigned long long)failures);
    snprintf(line, sizeof line, "round %zu of %zu: %s, %u client%s, %s cycles/s%s%s, %s",
             watch->round, watch->rounds, bench_work_name(point->work), point->clients,
             point->clients == 1 ? "" : "s", bench_number(watch->rate), failed, away,
             printable(target->label));
    fprintf(stderr, CLEAR "%.*s", line_columns() - 1, line); /* a longer one would stay behind */
}

/* ---- first contact --------------------------------------------------------------------------- */

struct contact {
    bool is_over;
    int result;
    hf_lock *lock;
    char words[BENCH_WORDS_MAX];
};

static void contacted(hf_op *op, int result, void *arg)
{
    struct contact *contact = arg;

    contact->is_over = true;
    contact->result = result;
    contact->lock = hf_op_take_lock(op);
    if (result != HF_OK)
        snprintf(contact->words, sizeof contact->words, "%s", hf_op_error(op));
}

/* Until the answer; a signal gives the wait up. */
static void await_contact(struct watch *watch, struct bench_target *target, struct contact *contact,
                          hf_op *op)
{
    struct pollfd fds[] = {{.fd = hf_fd(target->handles[0]), .events = POLLIN},
                           {.fd = watch->signals.fd, .events = POLLIN}};
    int64_t began_ms = clock_boot_ms();
    bool is_said = watch->is_quiet, is_cancelled = false;

    while (!contact->is_over) {
        if (take_signals(watch) && !is_cancelled) {
            hf_op_cancel(op);
            is_cancelled = true;
        }
        if (!is_said && clock_boot_ms() - began_ms >= SILENT_MS) {
            say("bench: %s has not answered yet; waiting", printable(target->label));
            is_said = true;
        }
        poll(fds, 2, TICK_MS);
        hf_dispatch(target->handles[0]);
    }
}

static int contact_one(struct watch *watch, struct bench_target *target)
{
    hf_options options = HF_OPTIONS_INIT;
    struct contact contact = {0};
    char name[BENCH_NAME_MAX];
    hf_op *op;
    int result;

    options.wait_ms = CONTACT_MS;
    options.owner = "holdfast bench";
    if (hf_fd(target->handles[0]) < 0)
        return say_result(HF_ENOMEM);
    snprintf(name, sizeof name, "%s/first", watch->bench->prefix);
    result = hf_acquire_start(target->handles[0], name, &options, contacted, &contact, &op);
    if (result != HF_OK)
        return say_result(result);
    await_contact(watch, target, &contact, op);
    if (contact.result == HF_OK) {
        result = hf_release(contact.lock);
        return result == HF_OK ? 0 : say_result(result);
    }
    if (watch->bench->interrupted)
        return 0;
    if (contact.result == HF_EBUSY) { /* of a name that is nobody else's */
        say("%s gave no lock in %s%s", printable(target->label), span(CONTACT_MS),
            leader_advice(contact.words));
        return EXIT_UNAVAILABLE;
    }
    say_failure(contact.words);
    return status_of(contact.result);
}

static bool watch_begin(struct watch *watch, struct bench *bench, bool quiet)
{
    *watch = (struct watch){.bench = bench, .is_quiet = quiet};
    watch->has_line = !quiet && isatty(STDERR_FILENO);
    if (signals_begin_ends(&watch->signals))
        return true;
    say("cannot set up signal handling: %s", strerror(errno));
    return false;
}

static void watch_end(struct watch *watch)
{
    take_signals(watch);
    clear_line(watch);
    close(watch->signals.fd); /* they stay blocked: who was asked to end reports first */
}

int bench_contact(struct bench *bench, bool quiet)
{
    struct watch watch;
    int status = 0;

    if (!watch_begin(&watch, bench, quiet))
        return EXIT_OURS;
    for (size_t i = 0; i < bench->target_count && status == 0 && !bench->interrupted; i++)
        status = contact_one(&watch, &bench->targets[i]);
    watch_end(&watch);
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int64_t cpu_ns(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000000) +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * INT64_C(1000);
}

static void wait_until(struct watch *watch, struct bench_load *load,
                       const struct bench_point *point, int64_t then_ns)
{
    while (clock_boot_ns() < then_ns && !take_signals(watch)) {
        sleep_or_signal(watch, then_ns);
        draw(watch, load, point, &watch->bench->targets[point->target]);
    }
}

/* What a store that went away has not given for a whole round, it will not give in the next one: ending each takes seconds. */
static void judge(struct bench_target *target, const struct bench_round *round)
{
    int64_t outage_ms = hf_outage_ms(target->handles[0]);

    if (round->tally.cycles > 0 || (outage_ms <= 0 && round->tally.failures == 0))
        return;
    target->is_away = true;
    say("%s gave nothing in a whole round, and is left out from here on: %s",
        printable(target->label), round->tally.words[0] ? round->tally.words : hf_error());
}

static int run_round(struct watch *watch, struct bench_point *point)
{
    struct bench *bench = watch->bench;
    struct bench_target *target = &bench->targets[point->target];
    uint64_t violations = atomic_load(&target->names.violations);
    struct bench_round *round = calloc(1, sizeof *round);
    struct bench_load *load =
        round ? bench_load_begin(&bench->plan, target, point->work, point->clients) : NULL;
    int64_t spent_ns;

    if (!load) {
        say("cannot begin a round: %s", strerror(errno));
        free(round);
        return EXIT_UNAVAILABLE;
    }
    watch->cycles = 0;
    watch->tick_ns = clock_boot_ns();
    wait_until(watch, load, point, bench_load_from_ns(load));
    spent_ns = cpu_ns();
    wait_until(watch, load, point, bench_load_until_ns(load));
    spent_ns = cpu_ns() - spent_ns;
    bench_load_stop(load);
    while (!bench_load_is_over(load)) {
        sleep_or_signal(watch, clock_boot_ns() + 5000000);
        take_signals(watch);
    }
    bench_load_end(load, round);
    round->cpu_ns = spent_ns;
    accuse(watch, target);
    point->violations += atomic_load(&target->names.violations) - violations;
    clear_line(watch);
    if (!bench->interrupted)
        judge(target, round);
    if (bench->interrupted) /* cut short, so it has no figures; what went wrong counts */
        bench_point_note(point, &round->tally);
    else
        bench_point_add(point, round);
    free(round);
    return 0;
}

/* Round by round everything once, so that what disturbs the machine for a while disturbs all stores, and all works, alike. */
int bench_run(struct bench *bench, bool quiet)
{
    struct watch watch;
    int status = 0;

    if (!watch_begin(&watch, bench, quiet))
        return EXIT_OURS;
    watch.rounds = bench->plan.rounds * bench->point_count;
    for (uint32_t i = 0; i < bench->plan.rounds; i++)
        for (size_t k = 0; k < bench->point_count && status == 0; k++) {
            struct bench_point *point = &bench->points[k];

            watch.round++;
            if (!bench->interrupted && !bench->targets[point->target].is_away)
                status = run_round(&watch, point);
        }
    watch_end(&watch);
    return status;
}
