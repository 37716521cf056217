/* top_screen.h: a terminal to draw on, and to leave as it was found. Plain ANSI sequences, which all terminals of today know. */
#ifndef CLI_TOP_SCREEN_H
#define CLI_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

enum top_key {
    KEY_NONE,
    KEY_UP = 256, /* below: the character itself */
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_ESCAPE,
    KEY_GONE /* nobody types there any more */
};

struct top_screen {
    int lines, columns;
    bool is_on;
    bool has_keys; /* standard input is a terminal, too */
    struct termios before;
    char *frame; /* what is to be drawn, in one write */
    size_t used, room;
    int line;
    char unread[64]; /* of what was typed */
    size_t unread_size;
};

/* Takes the screen, or takes it again. */
void screen_begin(struct top_screen *screen);
/* As it was before. Also when it was not taken. */
void screen_end(struct top_screen *screen);
void screen_free(struct top_screen *screen);
void screen_measure(struct top_screen *screen);

/* A frame, line by line; what is too long for a line is cut, what is below the last line left out. */
void screen_frame(struct top_screen *screen);
void screen_line(struct top_screen *screen, bool is_title, const char *text);
void screen_show(struct top_screen *screen);

/* The next key, or KEY_NONE: after standard input was readable until there is none. */
int screen_key(struct top_screen *screen);

/* Bytes of the first `columns` characters of printable text, and how many characters those are. */
size_t screen_cut(const char *text, size_t columns, size_t *ret_width);

#endif
