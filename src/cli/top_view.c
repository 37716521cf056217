#include "cli/top_view.h"
#include "base/clock.h"
#include "cli/json.h"
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

enum { NAME, MODE, HELD, LEFT, WAIT, LONGEST, CHANGES, TOKEN, OWNER, COLUMNS };

#define CELL_MAX 256     /* bytes: more than a screen is wide would be cut anyway */
#define NAME_WIDTH_MIN 8 /* of a narrow screen */
#define LINE_BYTES 8192

static const char *const titles[COLUMNS] = {"NAME",    "MODE",    "HELD",  "LEFT", "WAIT",
                                            "LONGEST", "CHANGES", "TOKEN", "OWNER"};

const char *top_order_name(enum top_order order)
{
    static const char *const names[TOP_ORDERS] = {"longest", "hottest", "name"};

    return names[order];
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void write_rate(double rate, char ret_text[CELL_MAX])
{
    if (rate * 60 < 0.05)
        snprintf(ret_text, CELL_MAX, "-");
    else if (rate < 1)
        snprintf(ret_text, CELL_MAX, "%.1f/min", rate * 60);
    else
        snprintf(ret_text, CELL_MAX, "%.1f/s", rate);
}

static void put(char cell[CELL_MAX], const char *text)
{
    size_t width;
    int size = (int)screen_cut(text, CELL_MAX / 4, &width); /* whole characters */

    snprintf(cell, CELL_MAX, "%.*s", size, text);
}

static void write_cells(const struct top_look *look, const struct top_row *row,
                        char cells[COLUMNS][CELL_MAX])
{
    const struct top_name *name = &look->known.names[row->name];
    const hf_entry *entry = row->entry;

    put(cells[NAME], printable(name->text));
    put(cells[MODE], entry ? mode_name(entry->mode) : "free");
    put(cells[HELD], entry ? span(entry->age_ms) : "-");
    put(cells[LEFT], !entry || entry->left_ms == HF_UNLIMITED ? "-" : span(entry->left_ms));
    snprintf(cells[WAIT], CELL_MAX, "%zu", name->waiters);
    if (!name->is_known || name->waiters == 0)
        put(cells[WAIT], name->is_known ? "-" : "?");
    put(cells[LONGEST], name->is_known && name->waiters > 0 ? span(name->longest_ms) : "-");
    write_rate(name->rate, cells[CHANGES]);
    snprintf(cells[TOKEN], CELL_MAX, "%llu", (unsigned long long)name->token);
    if (entry)
        snprintf(cells[TOKEN], CELL_MAX, "%llu", (unsigned long long)entry->token);
    put(cells[OWNER], entry ? printable(entry->owner) : "-");
}

static size_t last_row(const struct top_look *look)
{
    size_t last = look->first + look->rows;

    return last < look->known.row_count ? last : look->known.row_count;
}

/* ---- the screen ------------------------------------------------------------------------------ */

static void add_cell(char line[LINE_BYTES], size_t *used, const char *cell, size_t width,
                     bool is_last)
{
    size_t shown, size = screen_cut(cell, width, &shown);
    int pad = is_last ? 0 : (int)(width - shown) + 2;

    if (*used + size + (size_t)pad + 1 > LINE_BYTES)
        return;
    *used +=
        (size_t)snprintf(line + *used, LINE_BYTES - *used, "%.*s%*s", (int)size, cell, pad, "");
}

static void draw_row(struct top_screen *screen, bool is_title, char cells[COLUMNS][CELL_MAX],
                     const size_t widths[COLUMNS])
{
    char line[LINE_BYTES] = "";
    size_t used = 0, width;

    for (int i = 0; i < COLUMNS; i++)
        add_cell(line, &used, cells[i], widths[i], i == COLUMNS - 1);
    screen_cut(line, SIZE_MAX, &width);
    while (is_title && width++ < (size_t)screen->columns && used < LINE_BYTES - 1)
        line[used++] = ' '; /* the bar goes to the edge */
    line[used] = '\0';
    screen_line(screen, is_title, line);
}

static void measure(char cells[COLUMNS][CELL_MAX], size_t widths[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        size_t width;

        screen_cut(cells[i], SIZE_MAX, &width);
        if (width > widths[i])
            widths[i] = width;
    }
}

static void draw_rows(const struct top_look *look, struct top_screen *screen)
{
    char cells[COLUMNS][CELL_MAX];
    size_t widths[COLUMNS] = {0}, name_max = (size_t)screen->columns / 3;

    for (int i = 0; i < COLUMNS; i++)
        put(cells[i], titles[i]);
    measure(cells, widths);
    for (size_t i = look->first; i < last_row(look); i++) {
        write_cells(look, &look->known.rows[i], cells);
        measure(cells, widths);
    }
    if (name_max < NAME_WIDTH_MIN)
        name_max = NAME_WIDTH_MIN;
    if (widths[NAME] > name_max)
        widths[NAME] = name_max;
    for (int i = 0; i < COLUMNS; i++)
        put(cells[i], titles[i]);
    draw_row(screen, true, cells, widths);
    for (size_t i = look->first; i < last_row(look); i++) {
        write_cells(look, &look->known.rows[i], cells);
        draw_row(screen, false, cells, widths);
    }
}

static void draw_head(const struct top_view *view, struct top_screen *screen)
{
    const struct top_look *look = view->look;
    const struct top_names *known = &look->known;
    char text[2048], rate[CELL_MAX];

    snprintf(text, sizeof text, "holdfast top - %s", printable(hf_info(look->store)->where));
    screen_line(screen, false, text);
    write_rate(known->rate, rate);
    snprintf(text, sizeof text, "%s  %zu names held, changes of holder seen: %llu (%s)%s%s",
             clock_time(0), known->held_count, (unsigned long long)known->changes, rate,
             look->match ? "  only " : "", look->match ? printable(look->match) : "");
    screen_line(screen, false, text);
    if (view->is_typing)
        snprintf(text, sizeof text, "only names that match: %s_", printable(view->typed));
    else if (look->failure != HF_OK)
        snprintf(text, sizeof text, "no list: %s%s", look->words, leader_advice(look->words));
    else if (look->is_listing && clock_boot_ms() - look->began_ms > 2000)
        snprintf(text, sizeof text, "no list for %s; still asking",
                 span(clock_boot_ms() - look->began_ms));
    else
        snprintf(text, sizeof text, "%s%s first  s order  / filter  p pause  q quit",
                 view->is_paused ? "PAUSED  " : "", top_order_name(look->order));
    screen_line(screen, false, text);
}

void view_draw(const struct top_view *view, struct top_screen *screen)
{
    screen_frame(screen);
    draw_head(view, screen);
    draw_rows(view->look, screen);
    screen_show(screen);
}

/* ---- for others than people at a terminal ---------------------------------------------------- */

int view_table(const struct top_look *look)
{
    size_t left = look->known.row_count - last_row(look);
    char cells[COLUMNS][CELL_MAX];
    struct table table;
    int status;

    if (look->known.row_count == 0)
        return EXIT_DONE;
    table_begin(&table, COLUMNS - 1); /* changes need two looks */
    for (int i = 0; i < COLUMNS; i++)
        if (i != CHANGES)
            table_cell(&table, titles[i]);
    for (size_t i = look->first; i < last_row(look); i++) {
        write_cells(look, &look->known.rows[i], cells);
        for (int k = 0; k < COLUMNS; k++)
            if (k != CHANGES)
                table_cell(&table, cells[k]);
    }
    status = table_end(&table);
    if (left > 0)
        printf("... and %zu more (--rows shows up to %d)\n", left, TOP_ROWS_MAX);
    return status;
}

static void json_row(struct json *json, const struct top_look *look, const struct top_row *row)
{
    const struct top_name *name = &look->known.names[row->name];

    json_object(json, NULL);
    json_name(json, name->text);
    json_bool(json, "held", row->entry != NULL);
    if (row->entry)
        json_entry(json, row->entry);
    if (name->is_known)
        json_u64(json, "waiters", name->waiters);
    if (name->is_known && name->waiters > 0)
        json_ms(json, "longest_wait_ms", name->longest_ms);
    json_u64(json, "changes", name->changes);
    json_u64(json, "changes_per_hour", (uint64_t)(name->rate * 3600 + 0.5));
    json_close(json, '}');
}

void view_json(const struct top_look *look)
{
    struct json json;

    json_begin(&json);
    json_u64(&json, "look", look->looks);
    json_string(&json, "error", look->failure == HF_OK ? NULL : look->words);
    if (look->failure == HF_OK) {
        json_string(&json, "sort", top_order_name(look->order));
        json_u64(&json, "names_held", look->known.held_count);
        json_u64(&json, "changes", look->known.changes);
        json_u64(&json, "changes_per_hour", (uint64_t)(look->known.rate * 3600 + 0.5));
        json_array(&json, "rows");
        for (size_t i = look->first; i < last_row(look); i++)
            json_row(&json, look, &look->known.rows[i]);
        json_close(&json, ']');
    }
    json_end(&json);
}
