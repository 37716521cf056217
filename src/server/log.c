#include "server/log.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define END_ROOM 16 /* bytes kept free for what ends a line, with the mark that it was cut */

const char *const log_level_names[] = {"error", "warning", "info", "debug", NULL};
const char *const log_format_names[] = {"text", "json", NULL};

static struct {
    enum log_level level;
    enum log_format format;
    bool journal;             /* stderr goes to systemd's journal */
    int64_t lost;             /* lines that stderr would not take */
    struct log_limit *limits; /* every limit that was ever used */
} logger = {.level = LOG_LEVEL_INFO, .format = LOG_FORMAT_TEXT};

struct line {
    char bytes[LOG_LINE_MAX];
    size_t used, value_max;
    bool full; /* something did not fit; nothing more is taken */
};

/* ---- characters ------------------------------------------------------------------------------ */

static void put(struct line *line, const char *bytes, size_t length)
{
    if (line->full || length > sizeof line->bytes - END_ROOM - line->used) {
        line->full = true;
        return;
    }
    memcpy(line->bytes + line->used, bytes, length);
    line->used += length;
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

/* The character at `at` and its length in bytes, or 0 if it is not UTF-8. */
static size_t character(const char *at, size_t left, uint32_t *ret_point)
{
    for (size_t n = 1; n <= 4 && n <= left; n++) {
        uint32_t point = (unsigned char)at[0];

        if (!text_is_utf8(at, n))
            continue;
        point &= n == 1 ? 0x7f : 0x7fu >> n;
        for (size_t k = 1; k < n; k++)
            point = point << 6 | ((unsigned char)at[k] & 0x3f);
        *ret_point = point;
        return n;
    }
    return 0;
}

/* What a terminal or a viewer of logs would obey instead of showing it: controls, separators of
 * lines, marks that reorder text. */
static bool is_unsafe(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c || point == 0xfeff ||
           (point >= 0x200b && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2060 && point <= 0x206f) || (point >= 0xfff9 && point <= 0xfffb) ||
           (point >= 0xe0000 && point <= 0xe0fff);
}

static void put_json_unsafe(struct line *line, uint32_t point)
{
    char escape[16];

    if (point > 0xffff) /* as a pair of surrogates */
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10),
                 0xdc00 + (point & 0x3ff));
    else
        snprintf(escape, sizeof escape, "\\u%04x", point);
    put_text(line, escape);
}

static void put_hex(struct line *line, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char escape[8];

        snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
        put_text(line, escape);
    }
}

/* Any bytes, made safe. In JSON what is unsafe becomes \uNNNN and what is not UTF-8 U+FFFD, else
 * both become \xNN. special: characters that get a backslash. */
static void put_safe(struct line *line, const char *text, size_t length, const char *special,
                     bool json)
{
    size_t at = 0;

    while (at < length && at < line->value_max) {
        uint32_t point = 0xfffd;
        size_t n = character(text + at, length - at, &point);
        bool plain = n > 0 && !is_unsafe(point);

        if (json && !plain)
            put_json_unsafe(line, point);
        else if (!plain)
            put_hex(line, text + at, n > 0 ? n : 1);
        else if (n == 1 && strchr(special, text[at]))
            put(line, (const char[]){'\\', text[at]}, 2);
        else
            put(line, text + at, n);
        at += n > 0 ? n : 1;
    }
    if (at < length)
        put_text(line, "...");
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_time(struct line *line)
{
    int64_t now_ms = clock_wall_ms();
    time_t now_s = (time_t)(now_ms / 1000);
    struct tm parts;
    char text[64];

    if (!gmtime_r(&now_s, &parts))
        return;
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
             parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
             (int)(now_ms % 1000));
    put_text(line, text);
}

static void put_number(struct line *line, int64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%lld", (long long)number);
    put_text(line, text);
}

/* A word may stand as it is; everything else in quotes, so that no value can pass for two. */
static bool is_word(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f ||
            strchr("\"\\=", text[i]))
            return false;
    return length > 0;
}

static void put_text_field(struct line *line, const struct log_field *field)
{
    put_text(line, " ");
    put_text(line, field->key);
    put_text(line, "=");
    if (!field->text) {
        put_number(line, field->number);
    } else if (is_word(field->text, field->length)) {
        put_safe(line, field->text, field->length, "", false);
    } else {
        put_text(line, "\"");
        put_safe(line, field->text, field->length, "\"\\", false);
        put_text(line, "\"");
    }
}

static void put_json_field(struct line *line, const struct log_field *field)
{
    put_text(line, ",\"");
    put_text(line, field->key);
    put_text(line, "\":");
    if (!field->text) {
        put_number(line, field->number);
    } else {
        put_text(line, "\"");
        put_safe(line, field->text, field->length, "\"\\", true);
        put_text(line, "\"");
    }
}

static void begin_text(struct line *line, enum log_level level, const char *words)
{
    if (!logger.journal) {
        char name[16];

        put_time(line);
        snprintf(name, sizeof name, " %-5s ", log_level_names[level - 1]);
        put_text(line, name);
    }
    put_safe(line, words, strlen(words), "", false);
}

/* level: NULL: none. */
static void begin_json(struct line *line, const char *level, const char *what, const char *words)
{
    put_text(line, "{\"time\":\"");
    put_time(line);
    if (level) {
        put_text(line, "\",\"level\":\"");
        put_text(line, level);
    }
    put_text(line, "\",\"");
    put_text(line, what);
    put_text(line, "\":\"");
    put_safe(line, words, strlen(words), "\"\\", true);
    put_text(line, "\"");
}

static void put_fields(struct line *line, bool json, const struct log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = line->used;

        if (json)
            put_json_field(line, &fields[i]);
        else
            put_text_field(line, &fields[i]);
        if (line->full) { /* a field is whole or not there, so that the line stays well-formed */
            line->used = before;
            break;
        }
    }
}

/* The room for it was kept free. */
static void end_line(struct line *line, bool json)
{
    const char *end =
        json ? (line->full ? ",\"cut\":true}\n" : "}\n") : (line->full ? " cut=true\n" : "\n");

    memcpy(line->bytes + line->used, end, strlen(end));
    line->used += strlen(end);
}

static void compose(struct line *line, enum log_level level, const char *words,
                    const struct log_field *fields, size_t count)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    bool json = logger.format == LOG_FORMAT_JSON;

    line->used = 0;
    line->value_max = LOG_VALUE_MAX;
    line->full = false;
    if (logger.journal)
        put_text(line, priorities[level - 1]);
    if (json)
        begin_json(line, log_level_names[level - 1], "message", words);
    else
        begin_text(line, level, words);
    put_fields(line, json, fields, count);
    end_line(line, json);
}

bool log_event(int fd, const char *event, const struct log_field *fields, size_t count)
{
    struct line line = {.value_max = LOG_EVENT_VALUE_MAX};

    begin_json(&line, NULL, "event", event);
    put_fields(&line, true, fields, count);
    end_line(&line, true);
    return write(fd, line.bytes, line.used) == (ssize_t)line.used;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* One write, so that lines of several processes do not mix. A pipe that is ready takes PIPE_BUF
 * bytes at once, and no line is longer. */
static bool write_line(const struct line *line)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) &&
           write(STDERR_FILENO, line->bytes, line->used) == (ssize_t)line->used;
}

static bool say_lost(struct line *line)
{
    const struct log_field count = log_number("count", logger.lost);

    compose(line, LOG_LEVEL_WARNING, "lines of this log were lost: stderr did not take them",
            &count, 1);
    if (!write_line(line))
        return false;
    logger.lost = 0;
    return true;
}

bool log_wants(enum log_level level)
{
    return level <= logger.level;
}

void log_line(enum log_level level, const char *words, const struct log_field *fields, size_t count)
{
    struct line line;

    INVARIANT(level >= LOG_LEVEL_ERROR && level <= LOG_LEVEL_DEBUG);
    if (!log_wants(level))
        return;
    if (logger.lost > 0 && !say_lost(&line)) {
        logger.lost++;
        return;
    }
    compose(&line, level, words, fields, count);
    if (!write_line(&line))
        logger.lost++;
}

/* JOURNAL_STREAM is "device:inode" of the stream that systemd gave us. stderr may have been sent
 * elsewhere since. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat st;

    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    snprintf(ours, sizeof ours, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(stream, ours) == 0;
}

void log_open(enum log_level level, enum log_format format)
{
    logger.level = level;
    logger.format = format;
    logger.journal = stderr_is_journal();
}

/* ---- messages that could come in masses ------------------------------------------------------ */

static void say_left_out(struct log_limit *limit)
{
    if (limit->left_out > 0)
        log_at(limit->level, "more lines like this were left out", log_text("line", limit->words),
               log_number("count", limit->left_out));
    limit->left_out = 0;
}

bool log_allows(struct log_limit *limit, enum log_level level, uint32_t most, const char *words)
{
    int64_t now_ms = clock_boot_ms();

    if (!limit->words) {
        *limit = (struct log_limit){
            .next = logger.limits, .words = words, .level = level, .began_ms = now_ms};
        logger.limits = limit;
    }
    if (now_ms - limit->began_ms >= LOG_LIMIT_MS) {
        say_left_out(limit);
        limit->began_ms = now_ms;
        limit->said = 0;
    }
    if (limit->said < most) {
        limit->said++;
        return true;
    }
    limit->left_out++;
    return false;
}

int64_t log_tick(void)
{
    int64_t now_ms = clock_boot_ms(), soonest = -1;

    for (struct log_limit *limit = logger.limits; limit; limit = limit->next) {
        int64_t left_ms = limit->began_ms + LOG_LIMIT_MS - now_ms;

        if (limit->left_out == 0)
            continue;
        if (left_ms <= 0)
            say_left_out(limit);
        else if (soonest < 0 || left_ms < soonest)
            soonest = left_ms;
    }
    return soonest;
}

void log_close(void)
{
    struct line line;

    for (struct log_limit *limit = logger.limits; limit; limit = limit->next)
        say_left_out(limit);
    if (logger.lost > 0)
        say_lost(&line);
}
