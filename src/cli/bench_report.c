/* bench_report.c: the page. It is XML as well as HTML, and asks nothing of anywhere else: no script, no font, no picture. */
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_chart.h"
#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define LABEL_MAX 160

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5c6670;--line:#dde2e7;"
    "--card:#f6f8fa;--good:#12723f;--bad:#b3261e;--c0:#1f6feb;--c1:#c2570c;--c2:#12803f;"
    "--c3:#a0309a;--c4:#8a6d00;--c5:#c0323a;--c6:#0c7f8f;--c7:#5a5f73}\n"
    "@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e3e8ee;--dim:#9aa6b2;"
    "--line:#2b333c;--card:#181e25;--good:#57c785;--bad:#ff8a80;--c0:#6cb0ff;--c1:#ffab5e;"
    "--c2:#5fd38d;--c3:#e48be0;--c4:#e3c44a;--c5:#ff8080;--c6:#56cfe0;--c7:#aab2cc}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:20px 16px 48px;"
    "background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5em;margin:0}h2{font-size:1.2em;margin:2em 0 .2em}p{margin:.3em 0 .8em;"
    "max-width:75ch}.dim{color:var(--dim)}\n"
    ".verdict{border-left:4px solid var(--good);background:var(--card);padding:.6em .8em;"
    "margin:1em 0;overflow-wrap:anywhere}.verdict.bad{border-color:var(--bad)}"
    ".bad strong{color:var(--bad)}.verdict p{margin:0;max-width:none}\n"
    ".legend{list-style:none;margin:.6em 0;padding:0;display:flex;flex-wrap:wrap;gap:.2em 1.4em}"
    ".legend li{overflow-wrap:anywhere}.sign{width:26px;height:12px;margin-right:6px}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));"
    "gap:16px}figure{margin:0;background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:10px 8px 6px;min-width:0}figcaption{font-weight:600;"
    "padding:0 6px 6px}figcaption span{font-weight:400;color:var(--dim);display:block;"
    "font-size:.87em}\n"
    "svg{display:block;width:100%;height:auto}.sign{display:inline-block;vertical-align:middle}"
    "svg text{font:11px system-ui,sans-serif;fill:var(--dim)}.grid{stroke:var(--line)}"
    ".l{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round}.w{stroke:var(--c);"
    "stroke-width:1.2;opacity:.6}.m{fill:var(--c);stroke:var(--card);stroke-width:.8}"
    ".d .l{stroke-dasharray:4 3;opacity:.8}\n"
    ".s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}"
    ".s5{--c:var(--c5)}.s6{--c:var(--c6)}.s7{--c:var(--c7)}\n"
    ".bar{margin:.2em 6px .7em}.bar b{font-variant-numeric:tabular-nums}.bar div{height:12px;"
    "border-radius:3px;background:var(--c);min-width:2px;print-color-adjust:exact;"
    "-webkit-print-color-adjust:exact}.bar span{overflow-wrap:anywhere}\n"
    "table{margin-top:14px;border-collapse:collapse;width:100%;font-size:.92em;font-variant-"
    "numeric:tabular-nums}"
    "th,td{text-align:right;padding:.35em .5em;border-bottom:1px solid var(--line);"
    "white-space:nowrap}th{color:var(--dim);font-weight:600;white-space:normal;"
    "vertical-align:bottom}td.store,th.store{text-align:left;white-space:normal;min-width:14.5em;"
    "overflow-wrap:anywhere}\n"
    "@media screen and (max-width:760px){thead{position:absolute;left:-9999px}tr{display:block;"
    "background:var(--card);border:1px solid var(--line);border-radius:8px;margin:0 0 10px;"
    "padding:6px 10px}td,td.store{display:flex;justify-content:space-between;gap:1em;border:0;"
    "padding:.12em 0;text-align:right}td::before{content:attr(data-is);color:var(--dim);"
    "text-align:left;white-space:nowrap}td.store{font-weight:600;text-align:left}"
    "td.store::before{content:none}td.none{display:none}}\n"
    "dt{font-weight:600}dd{margin:0 0 .6em;max-width:75ch}\n"
    "@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--dim:#444;--line:#ccc;--card:#fff;"
    "--good:#000;--bad:#b3261e;--c0:#1f6feb;--c1:#c2570c;--c2:#12803f;--c3:#a0309a;--c4:#8a6d00;"
    "--c5:#c0323a;--c6:#0c7f8f;--c7:#5a5f73}body{font-size:11px;padding:0;max-width:none}"
    ".plots{grid-template-columns:repeat(2,1fr);gap:8px}table{font-size:8.5px}th,td{padding:2px "
    "3px}td.store,th.store{min-width:0}figure,tr,.bar,dt{break-inside:avoid}"
    "h2,dt,.legend{break-after:avoid}}\n";

static const char *const about[BENCH_WORKS] = {
    "Each client has names of its own, so nobody waits for anybody: what a lock costs that is "
    "free.",
    "All clients want one lock, which goes from hand to hand: what waiting costs, and whether all "
    "get their turn.",
    "Nine of ten cycles are on names of the client's own, one is on one of four that all want."};

/* ---- parts of plots -------------------------------------------------------------------------- */

static const struct bench_point *point_of(const struct bench *bench, size_t work, size_t clients,
                                          size_t target)
{
    return &bench->points[(work * bench->plan.client_count + clients) * bench->target_count +
                          target];
}

static void legend(struct textbuf *page, const struct bench *bench)
{
    if (bench->target_count < 2)
        return;
    textbuf_words(page, "<ul class=\"legend\">");
    for (size_t t = 0; t < bench->target_count; t++) {
        textbuf_words(page, "<li>");
        chart_sign(page, t);
        page_text(page, bench->targets[t].label);
        textbuf_words(page, "</li>");
    }
    textbuf_words(page, "</ul>\n");
}

static void figure_begin(struct textbuf *page, const char *title, const char *more)
{
    textbuf_words(page, "<figure><figcaption>");
    page_text(page, title);
    textbuf_words(page, "<span>");
    page_text(page, more);
    textbuf_words(page, "</span></figcaption>\n");
}

static void figure_end(struct textbuf *page)
{
    textbuf_words(page, "</figure>\n");
}

static double log_of(uint32_t count)
{
    return log10((double)count);
}

/* Without a series there is no axis: a bar for each store. */
static void bars(struct textbuf *page, const struct bench *bench, const double *values,
                 const char *(*words)(double))
{
    double most = 0;

    for (size_t t = 0; t < bench->target_count; t++)
        most = values[t] > most ? values[t] : most;
    for (size_t t = 0; t < bench->target_count; t++) {
        textbuf_format(page, "<div class=\"bar s%zu\"><b>%s</b> ", t % CHART_COLOURS,
                       values[t] > 0 ? words(values[t]) : "nothing");
        textbuf_words(page, "<span class=\"dim\">");
        page_text(page, bench->targets[t].label);
        textbuf_format(page, "</span><div style=\"width:%.1f%%\"></div></div>\n",
                       most > 0 ? values[t] * 100 / most : 0.0);
    }
}

/* ---- throughput over clients ----------------------------------------------------------------- */

static size_t rates_of(const struct bench *bench, size_t work, size_t target,
                       struct chart_point points[BENCH_SERIES_MAX],
                       char labels[BENCH_SERIES_MAX][LABEL_MAX])
{
    size_t count = 0;

    for (size_t c = 0; c < bench->plan.client_count; c++) {
        const struct bench_point *point = point_of(bench, work, c, target);
        struct bench_medians medians = bench_point_medians(point);

        if (point->round_count == 0)
            continue;
        snprintf(labels[count], LABEL_MAX, "%.80s: %s cycles/s with %u clients",
                 bench->targets[target].label, bench_number(medians.cycles_per_s), point->clients);
        points[count] = (struct chart_point){.x = log_of(point->clients),
                                             .y = medians.cycles_per_s,
                                             .least = medians.cycles_least,
                                             .most = medians.cycles_most,
                                             .label = labels[count]};
        count++;
    }
    return count;
}

static void clients_axis(struct chart *chart, const struct bench_plan *plan, uint32_t less)
{
    bool is_first = true;

    for (size_t c = 0; c < plan->client_count; c++) {
        uint32_t count = plan->clients[c] - less;
        char label[16];

        if (plan->clients[c] <= less)
            continue;
        snprintf(label, sizeof label, "%u", count);
        chart_tick(chart, log_of(count), label);
        if (is_first)
            chart->x_least = log_of(count);
        chart->x_most = log_of(count);
        is_first = false;
    }
}

static void rates_plot(struct textbuf *page, const struct bench *bench, size_t work)
{
    struct chart chart = {.title = "Cycles per second over the number of clients",
                          .x_words = "clients"};
    struct chart_point points[BENCH_SERIES_MAX];
    char labels[BENCH_SERIES_MAX][LABEL_MAX];

    clients_axis(&chart, &bench->plan, 0);
    for (size_t t = 0; t < bench->target_count; t++) {
        size_t count = rates_of(bench, work, t, points, labels);

        for (size_t i = 0; i < count; i++)
            chart_reach(&chart, points[i].most);
    }
    chart_begin(&chart, page);
    for (size_t t = 0; t < bench->target_count; t++)
        chart_line(&chart, page, t, false, points, rates_of(bench, work, t, points, labels));
    chart_end(page);
}

static void throughput(struct textbuf *page, const struct bench *bench, size_t work)
{
    double values[BENCH_TARGETS_MAX];

    if (bench->plan.client_count > 1) {
        figure_begin(page, "Cycles per second, over clients",
                     "the median of all rounds; the line through it goes from the least to the "
                     "most");
        rates_plot(page, bench, work);
    } else {
        figure_begin(page, "Cycles per second", "the median of all rounds");
        for (size_t t = 0; t < bench->target_count; t++)
            values[t] = bench_point_medians(point_of(bench, work, 0, t)).cycles_per_s;
        bars(page, bench, values, bench_number);
    }
    figure_end(page);
}

/* ---- latency --------------------------------------------------------------------------------- */

static const double parts[] = {0,    0.1,   0.25,  0.5,   0.75,   0.9,    0.95,   0.98,
                               0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999};
#define PARTS (sizeof parts / sizeof *parts)

/* 90 %, 99 % and 99.9 % are equally far apart: what happens seldom has as much room as what happens often. */
static double place_of(double part)
{
    return -log10(1 - part);
}

static size_t latency_of(const struct bench_histogram *histogram,
                         struct chart_point points[PARTS + 1], char label[LABEL_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < PARTS; i++) {
        bool is_known = (1 - parts[i]) * (double)histogram->count >= 1;

        if (!is_known)
            break;
        points[count++] = (struct chart_point){
            .x = place_of(parts[i]), .y = (double)bench_histogram_at(histogram, parts[i])};
    }
    if (histogram->count > 0) {
        snprintf(label, LABEL_MAX, "the longest: %s", bench_time((double)histogram->max_ns));
        points[count++] = (struct chart_point){
            .x = log10((double)histogram->count), .y = (double)histogram->max_ns, .label = label};
    }
    return count;
}

static void latency_plot(struct textbuf *page, const struct bench *bench, size_t work,
                         size_t clients)
{
    static const struct {
        double part;
        const char *label;
    } ticks[] = {{0.5, "50%"},     {0.9, "90%"},       {0.99, "99%"},
                 {0.999, "99.9%"}, {0.9999, "99.99%"}, {0.99999, "99.999%"}};
    struct chart chart = {.title = "How long acquiring took, by percentile",
                          .x_words = "this part of them took at most ...",
                          .x_most = 1,
                          .y_is_time = true};
    struct chart_point points[PARTS + 1];
    char label[LABEL_MAX];

    for (size_t t = 0; t < bench->target_count; t++) {
        size_t count = latency_of(&point_of(bench, work, clients, t)->total.acquire, points, label);

        for (size_t i = 0; i < count; i++) {
            chart_reach(&chart, points[i].y);
            if (points[i].x > chart.x_most)
                chart.x_most = points[i].x;
        }
    }
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++)
        if (place_of(ticks[i].part) <= chart.x_most)
            chart_tick(&chart, place_of(ticks[i].part), ticks[i].label);
    chart_begin(&chart, page);
    for (size_t t = 0; t < bench->target_count; t++) {
        size_t count = latency_of(&point_of(bench, work, clients, t)->total.acquire, points, label);

        chart_line(&chart, page, t, false, points, count);
    }
    chart_end(page);
}

static void latency(struct textbuf *page, const struct bench *bench, size_t work, size_t clients)
{
    uint32_t count = bench->plan.clients[clients];
    char title[80];

    snprintf(title, sizeof title, "Acquiring, with %u client%s", count, count == 1 ? "" : "s");
    figure_begin(page, title, "all rounds together; the mark is the longest");
    latency_plot(page, bench, work, clients);
    figure_end(page);
}

/* ---- hand-over over waiters ------------------------------------------------------------------ */

static size_t handover_of(const struct bench *bench, size_t work, size_t target, bool is_p99,
                          struct chart_point points[BENCH_SERIES_MAX],
                          char labels[BENCH_SERIES_MAX][LABEL_MAX])
{
    size_t count = 0;

    for (size_t c = 0; c < bench->plan.client_count; c++) {
        const struct bench_point *point = point_of(bench, work, c, target);
        struct bench_medians medians = bench_point_medians(point);
        double y = is_p99 ? medians.handover_p99_ns : medians.handover_p50_ns;

        if (point->total.handover.count == 0 || point->clients < 2 || y <= 0)
            continue;
        snprintf(labels[count], LABEL_MAX, "%.80s: %s with %u waiters (%s)",
                 bench->targets[target].label, bench_time(y), point->clients - 1,
                 is_p99 ? "p99" : "p50");
        points[count] =
            (struct chart_point){.x = log_of(point->clients - 1), .y = y, .label = labels[count]};
        count++;
    }
    return count;
}

static void handover_plot(struct textbuf *page, const struct bench *bench, size_t work)
{
    struct chart chart = {.title = "Hand-over of the hot lock over the number of waiters",
                          .x_words = "waiters",
                          .y_is_time = true};
    struct chart_point points[BENCH_SERIES_MAX];
    char labels[BENCH_SERIES_MAX][LABEL_MAX];

    clients_axis(&chart, &bench->plan, 1);
    for (size_t i = 0; i < bench->target_count * 2; i++) {
        size_t count = handover_of(bench, work, i / 2, i % 2 == 1, points, labels);

        for (size_t k = 0; k < count; k++)
            chart_reach(&chart, points[k].y);
    }
    chart_begin(&chart, page);
    for (size_t i = 0; i < bench->target_count * 2; i++)
        chart_line(&chart, page, i / 2, i % 2 == 1, points,
                   handover_of(bench, work, i / 2, i % 2 == 1, points, labels));
    chart_end(page);
}

static size_t counts_with_waiters(const struct bench *bench)
{
    size_t count = 0;

    for (size_t c = 0; c < bench->plan.client_count; c++)
        count += bench->plan.clients[c] > 1;
    return count;
}

static void handover(struct textbuf *page, const struct bench *bench, size_t work)
{
    double values[BENCH_TARGETS_MAX];
    size_t last = bench->plan.client_count - 1;

    if (counts_with_waiters(bench) == 0 || bench->plan.works[work] != BENCH_HOT)
        return;
    if (counts_with_waiters(bench) > 1) {
        figure_begin(page, "Hand-over, over waiters",
                     "from a release to the next grant; whole lines: p50, broken ones: p99");
        handover_plot(page, bench, work);
    } else {
        figure_begin(page, "Hand-over", "from a release to the next grant, p50; less is better");
        for (size_t t = 0; t < bench->target_count; t++)
            values[t] = bench_point_medians(point_of(bench, work, last, t)).handover_p50_ns;
        bars(page, bench, values, bench_time);
    }
    figure_end(page);
}

/* ---- all figures ----------------------------------------------------------------------------- */

static void data(struct textbuf *page, const char *is, const char *text)
{
    textbuf_format(page, "<td%s data-is=\"%s\">", strcmp(text, "-") == 0 ? " class=\"none\"" : "",
                   is);
    page_text(page, text);
    textbuf_words(page, "</td>");
}

static void row(struct textbuf *page, const struct bench *bench, const struct bench_point *point)
{
    struct bench_medians medians = bench_point_medians(point);
    char text[80];

    textbuf_words(page, "<tr><td class=\"store\">");
    page_text(page, bench->targets[point->target].label);
    textbuf_words(page, "</td>");
    snprintf(text, sizeof text, "%u", point->clients);
    data(page, "clients", text);
    data(page, "cycles/s", bench_number(medians.cycles_per_s));
    data(page, "p50", bench_time(medians.p50_ns));
    data(page, "p99", bench_time(medians.p99_ns));
    data(page, "p99.9", bench_time(medians.p999_ns));
    snprintf(text, sizeof text, "%s%s", medians.max_is_least ? "> " : "",
             bench_time((double)medians.max_ns));
    data(page, "longest", text);
    snprintf(text, sizeof text, "%s / %s", bench_time(medians.handover_p50_ns),
             bench_time(medians.handover_p99_ns));
    data(page, "hand-over p50 / p99", point->total.handover.count > 0 ? text : "-");
    snprintf(text, sizeof text, "%.3f (%.2f-%.2f)", medians.jain, medians.share_least,
             medians.share_most);
    data(page, "fairness (least-most)", point->clients > 1 && point->total.cycles > 0 ? text : "-");
    data(page, "CPU per cycle", bench_time(medians.cpu_ns));
    snprintf(text, sizeof text, "%" PRIu64, bench_point_failed(point) + point->violations);
    data(page, "failed", text);
    textbuf_words(page, "</tr>\n");
}

static void figures(struct textbuf *page, const struct bench *bench, size_t work)
{
    textbuf_words(page,
                  "<table><thead><tr><th class=\"store\">store</th><th>clients</th><th>cycles/s"
                  "</th><th>p50</th><th>p99</th><th>p99.9</th><th>longest</th><th>hand-over "
                  "p50&#160;/&#160;p99</th><th>fairness (least-most)</th><th>CPU per "
                  "cycle</th><th>failed</th></tr></thead><tbody>\n");
    for (size_t c = 0; c < bench->plan.client_count; c++)
        for (size_t t = 0; t < bench->target_count; t++)
            if (point_of(bench, work, c, t)->round_count > 0)
                row(page, bench, point_of(bench, work, c, t));
    textbuf_words(page, "</tbody></table>\n");
}

static void section(struct textbuf *page, const struct bench *bench, size_t work)
{
    textbuf_format(page, "<h2>%s</h2>\n<p>%s</p>\n", bench_work_name(bench->plan.works[work]),
                   about[bench->plan.works[work]]);
    legend(page, bench);
    textbuf_words(page, "<div class=\"plots\">\n");
    throughput(page, bench, work);
    handover(page, bench, work);
    for (size_t c = 0; c < bench->plan.client_count; c++)
        latency(page, bench, work, c);
    textbuf_words(page, "</div>\n");
    figures(page, bench, work);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void head(struct textbuf *page, const struct bench *bench)
{
    struct utsname machine = {.machine = ""};
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm local;
    char when[64] = "";

    if (localtime_r(&now, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    uname(&machine);
    textbuf_words(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
                        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>"
                        "<title>holdfast bench</title><style>\n");
    textbuf_words(page, style);
    textbuf_words(page, "</style></head><body>\n<h1>holdfast bench</h1>\n<p class=\"dim\">");
    page_text(page, when);
    textbuf_words(page, ", on ");
    page_text(page, machine.nodename);
    textbuf_format(page,
                   ": %s %s, %ld CPUs; holdfast %s; %u round%s of %.3g s, %.0f s in all</p>\n",
                   machine.sysname, machine.machine, sysconf(_SC_NPROCESSORS_ONLN), hf_version(),
                   (unsigned)bench->plan.rounds, bench->plan.rounds == 1 ? "" : "s",
                   (double)bench->plan.round_ms / 1000, bench->elapsed_s);
}

static void verdict(struct textbuf *page, const struct bench *bench)
{
    uint64_t cycles = 0, wrong = 0, failed = 0;

    for (size_t i = 0; i < bench->point_count; i++) {
        cycles += bench->points[i].total.cycles;
        wrong += bench->points[i].violations;
        failed += bench_point_failed(&bench->points[i]);
    }
    textbuf_format(page, "<div class=\"verdict%s\">", wrong > 0 || failed > 0 ? " bad" : "");
    if (wrong > 0)
        textbuf_format(page,
                       "<p><strong>%" PRIu64 " VIOLATIONS:</strong> two holders of one name at "
                       "once, or a token that did not grow.</p>\n",
                       wrong);
    else
        textbuf_format(page,
                       "<p>%s locks were taken and given up. Each was checked: never two holders, "
                       "tokens always grew.</p>\n",
                       bench_number((double)cycles));
    for (size_t i = 0; i < bench->point_count; i++) {
        const struct bench_point *point = &bench->points[i];

        if (bench_point_failed(point) == 0)
            continue;
        textbuf_format(page, "<p><strong>%" PRIu64 " failed</strong> (%s, %u clients): ",
                       bench_point_failed(point), bench_work_name(point->work), point->clients);
        page_text(page, point->total.words);
        textbuf_words(page, "</p>\n");
    }
    if (bench->interrupted)
        textbuf_words(page, "<p><strong>Interrupted</strong>: some rounds are missing.</p>\n");
    textbuf_words(page, "</div>\n");
}

static void explain(struct textbuf *page, const struct bench *bench)
{
    const struct bench_plan *plan = &bench->plan;

    textbuf_format(
        page,
        "<h2>How it was measured</h2>\n<dl>"
        "<dt>Cycle</dt><dd>Acquire, hold for %s, release; the next one begins at once. %" PRIu64
        " names, %u handle%s; %s.</dd>\n",
        plan->hold_ms > 0 ? span(plan->hold_ms) : "no time", plan->names, (unsigned)plan->threads,
        plan->threads == 1 ? "" : "s",
        plan->is_blocking
            ? "each client is a thread that waits in its calls"
            : "the clients are started operations, which a thread for each handle drives");
    textbuf_format(page,
                   "<dt>Rounds</dt><dd>Every work on every store took its turn %u times, for %.3g "
                   "s after a warm-up of %.2g s, so that noise meets all alike. Shown are medians; "
                   "the longest is that of all rounds.</dd>\n",
                   (unsigned)plan->rounds, (double)plan->round_ms / 1000,
                   (double)plan->warm_ms / 1000);
    textbuf_words(
        page,
        "<dt>Times</dt><dd>As the program sees them, from asking to having the lock: with all "
        "queues, the library's and the bench's. Percentiles are at most 3&#160;% too high.</dd>\n"
        "<dt>Hand-over</dt><dd>From the call that releases to the next holder's having the lock, "
        "where that one had asked before.</dd>\n"
        "<dt>Fairness</dt><dd>Jain's index over the clients' cycles: 1 if all had the same, 1/n if "
        "one had all; in brackets the shares of those who had least and most, where 1 is the "
        "mean.</dd>\n");
    textbuf_format(page,
                   "<dt>CPU per cycle</dt><dd>Of this process, library and bench, not of the "
                   "store. The bench's own loop takes %s of it, measured with a store that does "
                   "nothing.</dd>\n",
                   bench_time(bench->loop_ns));
    textbuf_words(page, "<dt>Round trips</dt><dd>Not shown: the library does not tell how many it "
                        "needed.</dd>\n</dl>\n");
}

static void stores(struct textbuf *page, const struct bench *bench)
{
    textbuf_words(page, "<ul class=\"legend\">");
    for (size_t t = 0; t < bench->target_count; t++) {
        const hf_store_info *info = hf_info(bench->targets[t].handles[0]);

        textbuf_words(page, "<li>");
        chart_sign(page, t);
        textbuf_words(page, "<strong>");
        page_text(page, bench->targets[t].label);
        textbuf_format(page, "</strong> <span class=\"dim\">%s; ",
                       info->exclusion == HF_STRICT ? "strict" : "best effort");
        page_text(page, info->survives);
        textbuf_words(page, "</span></li>\n");
    }
    textbuf_words(page, "</ul>\n");
}

void bench_write_page(struct textbuf *page, const struct bench *bench)
{
    head(page, bench);
    verdict(page, bench);
    stores(page, bench);
    for (size_t w = 0; w < bench->plan.work_count; w++)
        section(page, bench, w);
    explain(page, bench);
    textbuf_words(page, "</body></html>\n");
}
