/* top.c: holdfast top [GLOB] */
#include "base/clock.h"
#include "cli/args.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/slow.h"
#include "cli/top_view.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define INTERVAL_DEFAULT_MS 2000
#define INTERVAL_MIN_MS 100
#define ROWS_DEFAULT 50 /* without a screen */
#define DRAW_MS 200     /* answers to who waits are shown together: so long after the last frame */
#define WAITED_LOOK_MS 1000 /* a store that does not answer: so often it is said for how long */

enum { OPT_INTERVAL = 'i', OPT_ONCE = '1', OPT_QUIET = 'q', OPT_SORT = 256, OPT_ROWS };

static const struct option_spec options[] = {
    {OPT_INTERVAL, "interval", "DUR", "how often the store is asked (2s; 100ms or more)"},
    {OPT_SORT, "sort", "ORDER", "longest (default), hottest or name"},
    {OPT_ONCE, "once", NULL, "look once, and print a table, as without a terminal"},
    {OPT_ROWS, "rows", "N", "without a screen: at most N rows (50)"},
    {OPT_QUIET, "quiet", NULL, "do not print that the store is slow to answer, nor warnings"},
    {0},
};

struct top {
    struct top_look look;
    struct top_view view;
    struct top_screen screen;
    bool is_once, is_live;
    int store_fd, signal_fd;
    int ended_by; /* a signal; 0: by a key */
    bool is_over, is_dirty;
    int64_t drawn_ms;
    char pattern[TOP_PATTERN_MAX + 3]; /* with two '*' */
    char typed[TOP_PATTERN_MAX + 1];
};

/* ---- keys ------------------------------------------------------------------------------------ */

static size_t page(const struct top *top)
{
    return top->look.rows > 1 ? top->look.rows - 1 : 1;
}

static void scroll_to(struct top *top, size_t first)
{
    size_t count = top->look.known.row_count;
    size_t most = count > top->look.rows ? count - top->look.rows : 0;

    top->look.first = first < most ? first : most;
}

/* What has no sign of a pattern is looked for anywhere in a name. */
static void filter(struct top *top)
{
    bool is_glob = strpbrk(top->typed, "*?[") != NULL;

    snprintf(top->pattern, sizeof top->pattern, "%s%s%s", is_glob ? "" : "*", top->typed,
             is_glob ? "" : "*");
    top_look_change(&top->look, top->typed[0] ? top->pattern : NULL);
}

static void type(struct top *top, int key)
{
    size_t size = strlen(top->typed);

    if (key == '\n' || key == '\r') {
        top->view.is_typing = false;
        filter(top);
    } else if (key == KEY_ESCAPE) {
        top->view.is_typing = false;
    } else if (key == 0x7f || key == '\b') {
        while (size > 0 && ((unsigned char)top->typed[--size] & 0xc0) == 0x80)
            ;
        top->typed[size] = '\0';
    } else if (key == 0x15) { /* Ctrl-U */
        top->typed[0] = '\0';
    } else if (key >= ' ' && key < 256 && size < TOP_PATTERN_MAX) {
        top->typed[size] = (char)key;
        top->typed[size + 1] = '\0';
    }
}

static void set_order(struct top *top, enum top_order order)
{
    top->look.order = order;
    top_names_sort(&top->look.known, order);
    top->look.first = 0;
}

static void press(struct top *top, int key)
{
    size_t first = top->look.first;

    top->is_dirty = true;
    if (key == KEY_GONE) {
        top->is_over = true;
    } else if (top->view.is_typing) {
        type(top, key);
    } else if (key == 'q') {
        top->is_over = true;
    } else if (key == 's') {
        set_order(top, (top->look.order + 1) % TOP_ORDERS);
    } else if (key == '/') {
        top->view.is_typing = true;
        top->typed[0] = '\0';
    } else if (key == 'p' || key == ' ') {
        top->view.is_paused = !top->view.is_paused;
    } else if (key == KEY_UP || key == 'k') {
        scroll_to(top, first > 0 ? first - 1 : 0);
    } else if (key == KEY_DOWN || key == 'j') {
        scroll_to(top, first + 1);
    } else if (key == KEY_PAGE_UP) {
        scroll_to(top, first > page(top) ? first - page(top) : 0);
    } else if (key == KEY_PAGE_DOWN) {
        scroll_to(top, first + page(top));
    } else if (key == KEY_HOME || key == 'g') {
        scroll_to(top, 0);
    } else if (key == KEY_END || key == 'G') {
        scroll_to(top, top->look.known.row_count);
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

static void measure(struct top *top)
{
    screen_measure(&top->screen);
    top->look.rows =
        top->screen.lines > TOP_HEAD_LINES ? (size_t)(top->screen.lines - TOP_HEAD_LINES) : 0;
    scroll_to(top, top->look.first);
    top->is_dirty = true;
}

static void take_signals(struct top *top)
{
    struct signalfd_siginfo info;

    while (read(top->signal_fd, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;

        if (number == SIGWINCH) {
            measure(top);
        } else if (number == SIGTSTP) {
            screen_end(&top->screen);
            signals_stop(SIGTSTP, false);
            screen_begin(&top->screen);
            measure(top);
        } else if (number == SIGCONT) {
            top->is_dirty = true;
        } else {
            top->ended_by = number;
            top->is_over = true;
        }
    }
}

static bool begin_signals(struct top *top)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return false;
    top->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return top->signal_fd >= 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int timeout_of(const struct top *top, int64_t now_ms)
{
    const struct top_look *look = &top->look;
    int64_t left_ms;

    if (top->is_live && look->has_news)
        return DRAW_MS;
    if (look->is_listing)
        return top->is_live ? WAITED_LOOK_MS : -1;
    if (top->view.is_paused || (top->is_once && look->looks > 0))
        return -1;
    left_ms = look->next_ms - now_ms;
    return left_ms < 0 ? 0 : left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
}

static void wait_for_news(struct top *top)
{
    struct pollfd fds[] = {
        {.fd = top->store_fd, .events = POLLIN},
        {.fd = top->is_live ? top->signal_fd : -1, .events = POLLIN},
        {.fd = top->is_live && top->screen.has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    int ready = poll(fds, 3, timeout_of(top, clock_boot_ms())), key;

    top->is_dirty = top->is_dirty || ready == 0;
    hf_dispatch(top->look.store);
    if (top->is_live)
        take_signals(top);
    if (ready > 0 && fds[2].revents & (POLLHUP | POLLERR | POLLNVAL))
        top->is_over = true;
    else if (ready > 0 && fds[2].revents & POLLIN)
        while (!top->is_over && (key = screen_key(&top->screen)) != KEY_NONE)
            press(top, key);
}

/* One that is paused is asked nothing, but for who waits in what is scrolled to. */
static void ask(struct top *top)
{
    struct top_look *look = &top->look;
    int64_t now_ms = clock_boot_ms();
    bool is_due = !look->is_listing && now_ms >= look->next_ms && !top->view.is_paused;

    if (is_due && (!top->is_once || look->looks == 0))
        top_look_begin(look, now_ms);
    top_look_ask(look);
}

static bool is_to_be_drawn(const struct top *top)
{
    bool is_time = clock_boot_ms() - top->drawn_ms >= DRAW_MS;

    return top->is_dirty || (top->look.has_news && (is_time || top_look_is_over(&top->look)));
}

static void run_live(struct top *top)
{
    while (!top->is_over) {
        ask(top);
        if (is_to_be_drawn(top)) {
            scroll_to(top, top->look.first);
            view_draw(&top->view, &top->screen);
            top->look.has_news = top->is_dirty = false;
            top->drawn_ms = clock_boot_ms();
        }
        wait_for_news(top);
    }
}

/* Until a look is over, with who waits. */
static void look_once(struct top *top)
{
    uint64_t looks = top->look.looks;

    do {
        ask(top);
        if (top->look.looks > looks && top_look_is_over(&top->look))
            return;
        wait_for_news(top);
    } while (true);
}

static int run_lines(struct top *top, struct cli *cli, struct slow *slow)
{
    for (;;) {
        int status = EXIT_DONE;

        look_once(top);
        slow_end(slow);
        if (top->look.failure != HF_OK && (top->look.looks == 1 || top->is_once)) {
            say_failure(top->look.words);
            return status_of(top->look.failure);
        }
        if (cli->json)
            view_json(&top->look);
        else
            status = view_table(&top->look);
        if (top->is_once || status != EXIT_DONE || ferror(stdout))
            return finish_output(status);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool take_sort(struct top *top, const struct args *args)
{
    for (int i = 0; i < TOP_ORDERS; i++)
        if (strcmp(args->value, top_order_name((enum top_order)i)) == 0) {
            top->look.order = (enum top_order)i;
            return true;
        }
    args_complain(args, "--sort '%s' is not one of longest, hottest, name", printable(args->value));
    return false;
}

static int parse(struct top *top, struct cli *cli, struct args *args)
{
    uint64_t rows = ROWS_DEFAULT;
    bool fine = true;
    int id;

    while (fine && (id = args_next(args)) != ARGS_END) {
        if (id == OPT_INTERVAL)
            fine = args_duration(args, "--interval", INTERVAL_MIN_MS, HF_TTL_MAX_MS,
                                 &top->look.interval_ms);
        else if (id == OPT_SORT)
            fine = take_sort(top, args);
        else if (id == OPT_ROWS)
            fine = args_number(args, "--rows", 1, TOP_ROWS_MAX, &rows);
        else if (id == OPT_ONCE)
            top->is_once = true;
        else if (id == OPT_QUIET)
            cli->quiet = true;
        else if (id == ARGS_WORD && !top->look.match)
            top->look.match = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one pattern at a time; quote it for the shell: 'jobs/*'");
        else
            return args_status(id);
    }
    top->look.rows = (size_t)rows;
    return fine ? -1 : EXIT_USAGE;
}

/* The first list comes before the screen: what is wrong then is said as by any command. */
static int run_screen(struct top *top, struct slow *slow)
{
    look_once(top);
    slow_end(slow);
    if (top->look.failure != HF_OK) {
        say_failure(top->look.words);
        return status_of(top->look.failure);
    }
    if (!begin_signals(top)) {
        say("cannot set up signal handling: %s", strerror(errno));
        return EXIT_OURS;
    }
    top->is_live = true;
    screen_begin(&top->screen);
    measure(top);
    run_live(top);
    screen_end(&top->screen);
    return EXIT_DONE;
}

static int run(struct cli *cli, struct args *args)
{
    struct top top = {.look = {.interval_ms = INTERVAL_DEFAULT_MS}, .signal_fd = -1};
    struct slow slow = {0};
    int status = parse(&top, cli, args);
    bool has_screen;

    if (status >= 0)
        return status;
    status = cli_open(cli);
    if (status != 0)
        return status;
    top.look.store = cli->store;
    top.view = (struct top_view){.look = &top.look, .typed = top.typed};
    top.store_fd = hf_fd(cli->store);
    if (top.store_fd < 0)
        return say_result(top.store_fd);
    has_screen = !cli->json && !top.is_once && isatty(STDOUT_FILENO);
    top.is_once = top.is_once || (!cli->json && !has_screen);
    slow_begin(&slow, cli, "top", "no list", SLOW_NO_LIMIT);
    status = has_screen ? run_screen(&top, &slow) : run_lines(&top, cli, &slow);
    screen_free(&top.screen);
    hf_close(cli->store); /* what is under way may still tell us something */
    cli->store = NULL;
    top_names_free(&top.look.known);
    if (top.ended_by == SIGINT) /* as asked for: a loop in a script need not end */
        return EXIT_DONE;
    if (top.ended_by != 0)
        signals_die(top.ended_by, false);
    return status;
}

const struct command command_top = {
    .name = "top",
    .summary = "watch who holds what, and who waits, live",
    .usage = "[GLOB] [OPTION...]",
    .description =
        "Shows the holds of all names that match GLOB (all without one), what is held longest "
        "first,\n"
        "who waits for them, and how often they change hands, until q or Ctrl-C. Without a "
        "terminal,\n"
        "or with --once, prints one table; with --json a line for each look.\n"
        "Keys: q quits, s changes the order, / filters, p pauses, arrows and page keys scroll.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast top\n  holdfast top 'jobs/*' --sort hottest\n"
                "  holdfast top --json --interval 10s >> locks.jsonl\n",
    .statuses = "  0 also when there are none   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
