#include "cli/bench_chart.h"
#include "cli/bench.h"
#include "cli/output.h"

#include <math.h>
#include <stdio.h>

#define WIDTH 360.0
#define HEIGHT 230.0
#define LEFT 50.0
#define RIGHT 14.0
#define TOP 10.0
#define BOTTOM 38.0
#define MARK 3.4
#define SHAPES 4u
#define Y_TICKS_MAX 16
#define DECADES_FROM \
    100.0 /* more than that from bottom to top: whole decades are labelled, not 1, 2, 5 */
#define LABEL_GAP 26.0 /* of labels of the x axis */

void page_text(struct textbuf *page, const char *text)
{
    for (const char *c = printable(text); *c; c++) {
        if (*c == '&')
            textbuf_words(page, "&amp;");
        else if (*c == '<')
            textbuf_words(page, "&lt;");
        else if (*c == '>')
            textbuf_words(page, "&gt;");
        else if (*c == '"')
            textbuf_words(page, "&quot;");
        else
            textbuf_bytes(page, c, 1);
    }
}

void chart_reach(struct chart *chart, double y)
{
    if (chart->y_most == 0) /* nothing yet: nothing that is measured takes no time */
        chart->y_least = chart->y_most = y;
    if (y < chart->y_least)
        chart->y_least = y;
    if (y > chart->y_most)
        chart->y_most = y;
}

void chart_tick(struct chart *chart, double at, const char *label)
{
    if (chart->tick_count == CHART_TICKS_MAX)
        return;
    chart->ticks[chart->tick_count].at = at;
    snprintf(chart->ticks[chart->tick_count].label, sizeof chart->ticks[0].label, "%s", label);
    chart->tick_count++;
}

/* ---- where things are ------------------------------------------------------------------------ */

static double x_of(const struct chart *chart, double x)
{
    double range = chart->x_most - chart->x_least;

    return LEFT + 6 + (range > 0 ? (x - chart->x_least) / range : 0.5) * (WIDTH - LEFT - RIGHT - 6);
}

static double y_of(const struct chart *chart, double y)
{
    double part;

    if (chart->y_is_time)
        part = log10(y / chart->y_least) / log10(chart->y_most / chart->y_least);
    else
        part = y / chart->y_most;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2, 5, 10, ... : the one that is at most y, or at least, with `up`. */
static double round_125(double y, bool up)
{
    static const double steps[] = {1, 2, 5, 10};
    double decade = pow(10, floor(log10(y) + 1e-9)), found = decade;

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double one = decade * steps[i];

        if (up && one >= y * (1 - 1e-9))
            return one;
        if (!up && one <= y * (1 + 1e-9))
            found = one;
    }
    return found;
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* "1 ms", "50k" */
static void y_label(const struct chart *chart, double y, char *ret_text, size_t size)
{
    if (!chart->y_is_time && y >= 1e6)
        snprintf(ret_text, size, "%gM", y / 1e6);
    else if (!chart->y_is_time && y >= 1e3)
        snprintf(ret_text, size, "%gk", y / 1e3);
    else if (!chart->y_is_time)
        snprintf(ret_text, size, "%g", y);
    else if (y >= 1e9)
        snprintf(ret_text, size, "%g s", y / 1e9);
    else if (y >= 1e6)
        snprintf(ret_text, size, "%g ms", y / 1e6);
    else
        snprintf(ret_text, size, "%g us", y / 1e3);
}

static void y_tick(const struct chart *chart, struct textbuf *page, double y)
{
    char label[32];

    y_label(chart, y, label, sizeof label);
    textbuf_format(page,
                   "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                   "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   LEFT, WIDTH - RIGHT, y_of(chart, y), y_of(chart, y), LEFT - 5,
                   y_of(chart, y) + 3.8, label);
}

static void y_axis(const struct chart *chart, struct textbuf *page)
{
    bool by_decades = chart->y_is_time && chart->y_most / chart->y_least > DECADES_FROM;
    double step = chart->y_is_time ? 0 : round_125(chart->y_most / 5, true);
    double y = chart->y_is_time ? chart->y_least : 0;

    for (int i = 0; i < Y_TICKS_MAX && y <= chart->y_most * 1.001; i++) {
        y_tick(chart, page, y);
        y = !chart->y_is_time ? step * (i + 1) : by_decades ? y * 10 : round_125(y * 1.01, true);
    }
}

/* A label that would touch the one before it is left out. */
static void x_axis(const struct chart *chart, struct textbuf *page)
{
    double free_from = 0;

    for (size_t i = 0; i < chart->tick_count; i++) {
        double at = x_of(chart, chart->ticks[i].at);

        textbuf_format(page,
                       "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>", at,
                       at, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4);
        if (at < free_from)
            continue;
        textbuf_format(page, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", at,
                       HEIGHT - BOTTOM + 15, chart->ticks[i].label);
        free_from = at + LABEL_GAP;
    }
    textbuf_format(page,
                   "<text class=\"axis\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, chart->x_words);
}

void chart_begin(struct chart *chart, struct textbuf *page)
{
    if (chart->y_is_time) {
        chart->y_least = chart->y_least > 0 ? chart->y_least : 1;
        chart->y_most = chart->y_most > 0 ? chart->y_most : 1;
        if (chart->y_most / chart->y_least > DECADES_FROM)
            chart->y_least = pow(10, floor(log10(chart->y_least) + 1e-9));
        else
            chart->y_least = round_125(chart->y_least, false);
        chart->y_most = round_125(chart->y_most * 1.02, true);
    } else {
        chart->y_most = chart->y_most > 0 ? chart->y_most * 1.05 : 1;
    }
    textbuf_format(page, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH,
                   HEIGHT);
    page_text(page, chart->title);
    textbuf_words(page, "\">\n");
    y_axis(chart, page);
    x_axis(chart, page);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Colour alone does not tell series apart, on paper least of all. */
static void mark(struct textbuf *page, size_t series, double x, double y)
{
    double r = MARK;

    switch (series % SHAPES) {
    case 0:
        textbuf_format(page, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
        break;
    case 1:
        textbuf_format(page,
                       "<rect class=\"m\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                       x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
        break;
    case 2:
        textbuf_format(page, "<path class=\"m\" d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - r * 1.2,
                       r * 1.2, r * 2.2, -r * 2.4);
        break;
    default:
        textbuf_format(page, "<path class=\"m\" d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>",
                       x, y - r * 1.3, r * 1.3, r * 1.3, -r * 1.3, r * 1.3, -r * 1.3, -r * 1.3);
    }
}

void chart_sign(struct textbuf *page, size_t series)
{
    textbuf_format(
        page,
        "<svg class=\"sign\" viewBox=\"0 0 26 12\" aria-hidden=\"true\"><g class=\"s%zu\">"
        "<path class=\"l\" d=\"M1 6h24\"/>",
        series % CHART_COLOURS);
    mark(page, series, 13, 6);
    textbuf_words(page, "</g></svg>");
}

static void point(const struct chart *chart, struct textbuf *page, size_t series,
                  const struct chart_point *at)
{
    double x = x_of(chart, at->x);

    if (at->least < at->most)
        textbuf_format(page, "<path class=\"w\" d=\"M%.1f %.1fV%.1f\"/>", x, y_of(chart, at->least),
                       y_of(chart, at->most));
    if (!at->label)
        return;
    textbuf_words(page, "<g><title>");
    page_text(page, at->label);
    textbuf_words(page, "</title>");
    mark(page, series, x, y_of(chart, at->y));
    textbuf_words(page, "</g>\n");
}

void chart_line(const struct chart *chart, struct textbuf *page, size_t series, bool is_dashed,
                const struct chart_point *points, size_t count)
{
    if (count == 0)
        return;
    textbuf_format(page, "<g class=\"s%zu%s\"><path class=\"l\" d=\"", series % CHART_COLOURS,
                   is_dashed ? " d" : "");
    for (size_t i = 0; i < count; i++)
        textbuf_format(page, "%s%.1f %.1f", i == 0 ? "M" : "L", x_of(chart, points[i].x),
                       y_of(chart, points[i].y));
    textbuf_words(page, "\"/>\n");
    for (size_t i = 0; i < count; i++)
        point(chart, page, series, &points[i]);
    textbuf_words(page, "</g>\n");
}

void chart_end(struct textbuf *page)
{
    textbuf_words(page, "</svg>\n");
}
