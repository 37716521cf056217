/* log.h: what operators read, one line per message on stderr.
 *
 *     log_warning("closed a client that does not read", log_text("client", address),
 *                 log_number("output_bytes", n));
 *
 *     2026-11-15T07:51:26.123Z warning closed a client that does not read client=[::1]:50112 ...
 *
 * Words are literals; what came from outside goes into fields. Neither can put a control character,
 * half a character or a second line into the log. Leases and passwords are no business of the log:
 * give a digest.
 *
 * A message that a client can cause at will goes through log_limited.
 *
 * Nobody waits for the log: a line that stderr would not take at once is dropped, and counted in a
 * line that follows when it can. A server that stands still because its log does would lose locks.
 *
 * Everything here belongs to one thread. The program ignores SIGPIPE. */
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOG_LINE_MAX 4096        /* bytes with the newline: PIPE_BUF, so that lines do not mix */
#define LOG_VALUE_MAX 640        /* bytes of the words or of one value; what is longer is cut */
#define LOG_EVENT_VALUE_MAX 1536 /* the same of log_event, for a command with a name in quotes */
#define LOG_LIMIT_MS 10000       /* the span that log_limited counts in */

/* The numbers are known to replica.h. */
enum log_level {
    LOG_LEVEL_ERROR = 1, /* something is broken: an operator has to do something */
    LOG_LEVEL_WARNING,   /* something is wrong, and the server goes on */
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};
enum log_format { LOG_FORMAT_TEXT = 1, LOG_FORMAT_JSON };

/* By number less one; NULL at the end. */
extern const char *const log_level_names[], *const log_format_names[];

/* Until then: from info up, as text. Under systemd, if stderr is the journal's stream, lines have
 * a priority in front and, as text, no time. */
void log_open(enum log_level level, enum log_format format);
/* Says what was left out so far. The log stays usable. */
void log_close(void);

/* ---- messages -------------------------------------------------------------------------------- */

struct log_field {
    const char *key; /* a literal of letters, digits and '_' */
    const char *text;
    size_t length;
    int64_t number; /* if there is no text */
};

static inline struct log_field log_bytes(const char *key, const char *text, size_t length)
{
    return (struct log_field){.key = key, .text = text ? text : "", .length = text ? length : 0};
}

static inline struct log_field log_text(const char *key, const char *text)
{
    return log_bytes(key, text, text ? strlen(text) : 0);
}

static inline struct log_field log_number(const char *key, int64_t number)
{
    return (struct log_field){.key = key, .number = number};
}

/* log_error("words", fields...), and so on. Fields are looked at only if the level is wanted. */
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* words: need not be a literal here. The first field is nobody's: C has no empty array. */
#define log_at(level, words, ...)                                                          \
    do {                                                                                   \
        if (log_wants(level)) {                                                            \
            const struct log_field fields_[] = {{0}, ##__VA_ARGS__};                       \
            log_line((level), (words), fields_ + 1, sizeof fields_ / sizeof *fields_ - 1); \
        }                                                                                  \
    } while (0)

bool log_wants(enum log_level level);
void log_line(enum log_level level, const char *words, const struct log_field *fields,
              size_t count);

/* One line of JSON in the same form, to another file: what happened, by one word. False: it did not go out. */
bool log_event(int fd, const char *event, const struct log_field *fields, size_t count);

/* ---- messages that could come in masses ------------------------------------------------------ */

/* At most `most` of them per 10 s from this line of the program; then one line says how many were
 * left out. The words must be a literal. */
#define log_limited(level, most, words, ...)                                    \
    do {                                                                        \
        static struct log_limit limit_;                                         \
        if (log_wants(level) && log_allows(&limit_, (level), (most), "" words)) \
            log_at(level, words, ##__VA_ARGS__);                                \
    } while (0)

struct log_limit {
    struct log_limit *next; /* of those that were ever used */
    const char *words;
    enum log_level level;
    int64_t began_ms;
    uint32_t said;
    int64_t left_out;
};

/* limit: all zero at first, and for ever there. words: kept, not copied. */
bool log_allows(struct log_limit *limit, enum log_level level, uint32_t most, const char *words);
/* Says what was left out in spans that are over. To be called now and then; returns in how many
 * milliseconds there may be something to say, or -1. */
int64_t log_tick(void);

#endif
