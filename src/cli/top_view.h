/* top_view.h: what `holdfast top` shows, on a screen, as a table, or as JSON. */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include "cli/top_look.h"
#include "cli/top_screen.h"

#define TOP_HEAD_LINES 4 /* above the rows, with the columns' titles */

struct top_view {
    const struct top_look *look;
    bool is_paused, is_typing; /* a filter */
    const char *typed;
};

const char *top_order_name(enum top_order order);
void view_draw(const struct top_view *view, struct top_screen *screen);
/* One table on standard output. An exit status. */
int view_table(const struct top_look *look);
/* One line of it. */
void view_json(const struct top_look *look);

#endif
