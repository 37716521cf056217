/* bench_chart.h: plots as SVG inside a page: lines over an axis of their own making. 360 units wide, which is a phone's width: there text has
 * the size of text. Colours are the page's, by class: s0 to s7. */
#ifndef CLI_BENCH_CHART_H
#define CLI_BENCH_CHART_H

#include "base/textbuf.h"

#include <stdbool.h>
#include <stddef.h>

#define CHART_TICKS_MAX 12
#define CHART_COLOURS 8u

struct chart {
    const char *title; /* for those who cannot see it */
    const char *x_words;
    double x_least, x_most;
    struct {
        double at;
        char label[16];
    } ticks[CHART_TICKS_MAX]; /* of the x axis */
    size_t tick_count;
    double y_least, y_most;
    bool y_is_time; /* ns on a logarithmic axis; else a rate from 0 up */
};

struct chart_point {
    double x, y;
    double least, most; /* a whisker, if they differ */
    const char *label;  /* shown to whoever points at it; or NULL: no mark */
};

/* Takes a value into the range of y. Call it for all before chart_begin. */
void chart_reach(struct chart *chart, double y);
void chart_tick(struct chart *chart, double at, const char *label);
void chart_begin(struct chart *chart, struct textbuf *page);
void chart_line(const struct chart *chart, struct textbuf *page, size_t series, bool is_dashed,
                const struct chart_point *points, size_t count);
void chart_end(struct textbuf *page);
/* The sign of a series, as in the plots: for a legend. */
void chart_sign(struct textbuf *page, size_t series);

/* Text in a page: escaped. */
void page_text(struct textbuf *page, const char *text);

#endif
