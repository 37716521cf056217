#include "cli/top_screen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINES_DEFAULT 24
#define COLUMNS_DEFAULT 80
#define LINES_MAX 1000
#define COLUMNS_MAX 1000

#define ENTER "\033[?1049h\033[?25l" /* the other screen; no cursor */
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define REVERSE "\033[7m"
#define PLAIN "\033[0m"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
/* Around a frame, so that none is seen half drawn; terminals that do not know these leave them out. */
#define FRAME_BEGIN "\033[?2026h"
#define FRAME_END "\033[?2026l"

static void put_all(const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, size);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* the terminal has gone: SIGHUP says so, too */
        bytes += written;
        size -= (size_t)written;
    }
}

void screen_measure(struct top_screen *screen)
{
    struct winsize size = {0};

    screen->lines = LINES_DEFAULT;
    screen->columns = COLUMNS_DEFAULT;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_row > 0)
        screen->lines = size.ws_row < LINES_MAX ? size.ws_row : LINES_MAX;
    if (size.ws_col > 0)
        screen->columns = size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

void screen_begin(struct top_screen *screen)
{
    screen_measure(screen);
    if (screen->is_on)
        return;
    screen->has_keys = tcgetattr(STDIN_FILENO, &screen->before) == 0;
    if (screen->has_keys) {
        struct termios keys = screen->before;

        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: Ctrl-C and Ctrl-Z are signals */
        keys.c_cc[VMIN] = 0;
        keys.c_cc[VTIME] = 0;
        screen->has_keys = tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
    }
    put_all(ENTER, strlen(ENTER));
    screen->is_on = true;
}

void screen_end(struct top_screen *screen)
{
    if (!screen->is_on)
        return;
    put_all(LEAVE, strlen(LEAVE));
    if (screen->has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->before);
    screen->is_on = false;
}

void screen_free(struct top_screen *screen)
{
    screen_end(screen);
    free(screen->frame);
    screen->frame = NULL;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void add(struct top_screen *screen, const char *bytes, size_t size)
{
    if (screen->room - screen->used < size) {
        size_t room = (screen->used + size) * 2;
        char *frame = realloc(screen->frame, room);

        if (!frame)
            return; /* a part is missing until there is memory again */
        screen->frame = frame;
        screen->room = room;
    }
    memcpy(screen->frame + screen->used, bytes, size);
    screen->used += size;
}

size_t screen_cut(const char *text, size_t columns, size_t *ret_width)
{
    size_t size = 0, width = 0;

    for (; text[size]; size++) {
        if (((unsigned char)text[size] & 0xc0) == 0x80)
            continue;
        if (width == columns)
            break;
        width++;
    }
    *ret_width = width;
    return size;
}

void screen_frame(struct top_screen *screen)
{
    screen->used = 0;
    screen->line = 0;
    add(screen, FRAME_BEGIN HOME, strlen(FRAME_BEGIN HOME));
}

void screen_line(struct top_screen *screen, bool is_title, const char *text)
{
    size_t width;

    if (screen->line >= screen->lines)
        return;
    if (screen->line++ > 0)
        add(screen, "\r\n", 2);
    if (is_title)
        add(screen, REVERSE, strlen(REVERSE));
    add(screen, text, screen_cut(text, (size_t)screen->columns, &width));
    if (is_title)
        add(screen, PLAIN, strlen(PLAIN));
    if (width < (size_t)screen->columns) /* else it would clear the last character */
        add(screen, CLEAR_LINE, strlen(CLEAR_LINE));
}

void screen_show(struct top_screen *screen)
{
    if (screen->line < screen->lines)
        add(screen, CLEAR_BELOW, strlen(CLEAR_BELOW));
    add(screen, FRAME_END, strlen(FRAME_END));
    put_all(screen->frame, screen->used);
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct sequence {
    const char *text;
    int key;
};

static const struct sequence sequences[] = {
    {"\033[A", KEY_UP},   {"\033[B", KEY_DOWN},     {"\033OA", KEY_UP},
    {"\033OB", KEY_DOWN}, {"\033[5~", KEY_PAGE_UP}, {"\033[6~", KEY_PAGE_DOWN},
    {"\033[H", KEY_HOME}, {"\033[F", KEY_END},      {"\033[1~", KEY_HOME},
    {"\033[4~", KEY_END}, {"\033OH", KEY_HOME},     {"\033OF", KEY_END},
};

static int take(struct top_screen *screen, size_t size, int key)
{
    screen->unread_size -= size;
    memmove(screen->unread, screen->unread + size, screen->unread_size);
    return key;
}

/* A sequence that we do not know is none of several keys: ESC [ parameters letter. */
static size_t unknown_sequence(const struct top_screen *screen)
{
    size_t size = 2;

    while (size < screen->unread_size && ((unsigned char)screen->unread[size] < 0x40 ||
                                          (unsigned char)screen->unread[size] > 0x7e))
        size++;
    return size < screen->unread_size ? size + 1 : size;
}

int screen_key(struct top_screen *screen)
{
    ssize_t got;

    if (screen->unread_size == 0) {
        got = read(STDIN_FILENO, screen->unread, sizeof screen->unread);
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return KEY_GONE;
        if (got <= 0)
            return KEY_NONE;
        screen->unread_size = (size_t)got;
    }
    if (screen->unread[0] != '\033')
        return take(screen, 1, (unsigned char)screen->unread[0]);
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        size_t size = strlen(sequences[i].text);

        if (screen->unread_size >= size && memcmp(screen->unread, sequences[i].text, size) == 0)
            return take(screen, size, sequences[i].key);
    }
    if (screen->unread_size > 1 && (screen->unread[1] == '[' || screen->unread[1] == 'O')) {
        take(screen, unknown_sequence(screen), 0);
        return screen_key(screen);
    }
    return take(screen, 1, KEY_ESCAPE);
}
