#include "base/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* that editors of other systems put before UTF-8 */

static const char blanks[] = " \t\r";

static char *trim(char *text)
{
    size_t length;

    text += strspn(text, blanks);
    length = strlen(text);
    while (length > 0 && strchr(blanks, text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* A '#' in the middle of a word stays: a path may have one. */
static void cut_comment(char *text)
{
    for (char *at = text; (at = strchr(at, '#')); at++)
        if (at == text || strchr(blanks, at[-1])) {
            *at = '\0';
            return;
        }
}

struct reading {
    const char *path;
    int code;
    conf_fn *fn;
    void *context;
};

static int take_line(const struct reading *reading, unsigned number, char *text,
                     struct error_text *err)
{
    struct conf_line line = {.path = reading->path, .number = number};
    char *name, *equals;

    cut_comment(text);
    name = trim(text);
    if (!*name)
        return 0;
    equals = strchr(name, '=');
    if (!equals) /* not quoted: it may be a password that somebody meant to give */
        return error_set(err, reading->code, "%s:%u: not of the form 'name = value'", line.path,
                         number);
    *equals = '\0';
    line.name = trim(name);
    line.value = trim(equals + 1);
    if (!*line.value)
        return error_set(err, reading->code,
                         "%s:%u: %.64s has no value: give one, or remove the line", line.path,
                         number, line.name);
    if (*line.value == '"' || *line.value == '\'')
        return error_set(err, reading->code, "%s:%u: %.64s: write the value without quotes",
                         line.path, number, line.name);
    return reading->fn(reading->context, &line, err);
}

static int take_text(const struct reading *reading, char *text, size_t length,
                     struct error_text *err)
{
    unsigned number = 0;
    char *next;
    int result = 0;

    text[length] = '\0';
    if (strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0) {
        text += strlen(BYTE_ORDER_MARK);
        length -= strlen(BYTE_ORDER_MARK);
    }
    for (char *line = text; line && result == 0; line = next) {
        number++;
        next = memchr(line, '\n', (size_t)(text + length - line));
        if (next)
            *next++ = '\0';
        if (strlen(line) != (size_t)((next ? next - 1 : text + length) - line))
            return error_set(err, reading->code, "%s:%u: has a NUL byte", reading->path, number);
        result = take_line(reading, number, line, err);
    }
    return result;
}

/* Up to `size` bytes. Returns 0 or an errno. */
static int read_bytes(int fd, char *bytes, size_t size, size_t *ret_length)
{
    size_t used = 0;

    while (used < size) {
        ssize_t n = read(fd, bytes + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    *ret_length = used;
    return 0;
}

int conf_read(int fd, const char *path, int code, conf_fn *fn, void *context,
              struct error_text *err)
{
    return conf_read_max(fd, path, CONF_FILE_MAX, code, fn, context, err);
}

int conf_parse(char *text, size_t length, const char *path, int code, conf_fn *fn, void *context,
               struct error_text *err)
{
    const struct reading reading = {.path = path, .code = code, .fn = fn, .context = context};

    return take_text(&reading, text, length, err);
}

int conf_read_max(int fd, const char *path, size_t max, int code, conf_fn *fn, void *context,
                  struct error_text *err)
{
    char *text = malloc(max + 1);
    size_t length = 0;
    int failure = text ? read_bytes(fd, text, max + 1, &length) : ENOMEM, result;

    if (failure && code < 0)
        code = failure == ENOMEM ? HF_ENOMEM : failure == EIO ? HF_EIO : code;
    if (failure)
        result = error_set_errno(err, code, failure, "cannot read %s", path);
    else if (length > max)
        result = error_set(err, code, "%s has more than %zu bytes", path, max);
    else
        result = conf_parse(text, length, path, code, fn, context, err);
    free(text);
    return result;
}
