/* writer.c: values into bytes. Nothing here fails but for want of memory, and that is remembered.
 */
#include "resp/resp.h"

#include <stdlib.h>
#include <string.h>

#define WRITER_FIRST 256

/* At most 20 digits, and a sign. */
#define HEADER_MAX 24

void resp_writer_free(struct resp_writer *writer)
{
    free(writer->bytes);
    *writer = (struct resp_writer){0};
}

void resp_writer_clear(struct resp_writer *writer)
{
    writer->size = 0;
    writer->failed = false;
}

/* `size` bytes at the end, to be written to. NULL: there is no memory, or there was none before,
 * and what follows a gap must not be written. */
static char *extend(struct resp_writer *writer, size_t size)
{
    size_t need = writer->size + size;

    if (writer->failed || size > SIZE_MAX / 4 || need > SIZE_MAX / 4) {
        writer->failed = true;
        return NULL;
    }
    if (need > writer->capacity) {
        size_t capacity = 2 * need > WRITER_FIRST ? 2 * need : WRITER_FIRST;
        char *bytes = realloc(writer->bytes, capacity);

        if (!bytes) {
            writer->failed = true;
            return NULL;
        }
        writer->bytes = bytes;
        writer->capacity = capacity;
    }
    writer->size = need;
    return writer->bytes + need - size;
}

void resp_write_raw(struct resp_writer *writer, const void *bytes, size_t size)
{
    char *to;

    if (size == 0)
        return;
    to = extend(writer, size);
    if (to)
        memcpy(to, bytes, size);
}

/* The digits of a number, at the end of `text`; returns where they begin. By hand: a command has a
 * dozen of them, and printf costs more than the rest of it. */
static char *digits_of(uint64_t number, char text[HEADER_MAX])
{
    char *at = text + HEADER_MAX;

    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return at;
}

static char *signed_digits_of(int64_t number, char text[HEADER_MAX])
{
    char *at = digits_of(number < 0 ? -(uint64_t)number : (uint64_t)number, text);

    if (number < 0)
        *--at = '-';
    return at;
}

/* A mark, digits (which end where `text` does) and CR LF. */
static void write_header(struct resp_writer *writer, char mark, const char *digits,
                         const char text[HEADER_MAX])
{
    size_t size = (size_t)(text + HEADER_MAX - digits);
    char *to = extend(writer, size + 3);

    if (!to)
        return;
    *to++ = mark;
    memcpy(to, digits, size);
    memcpy(to + size, "\r\n", 2);
}

/* What begins an aggregate or a blob. */
static void write_count(struct resp_writer *writer, char mark, size_t count)
{
    char text[HEADER_MAX];

    write_header(writer, mark, digits_of(count, text), text);
}

void resp_write_array(struct resp_writer *writer, size_t count)
{
    write_count(writer, '*', count);
}

void resp_write_blob(struct resp_writer *writer, const void *bytes, size_t size)
{
    write_count(writer, '$', size);
    resp_write_raw(writer, bytes, size);
    resp_write_raw(writer, "\r\n", 2);
}

void resp_write_text(struct resp_writer *writer, const char *text)
{
    resp_write_blob(writer, text, strlen(text));
}

void resp_write_number(struct resp_writer *writer, int64_t number)
{
    char text[HEADER_MAX];
    const char *digits = signed_digits_of(number, text);

    resp_write_blob(writer, digits, (size_t)(text + HEADER_MAX - digits));
}

/* A line ends at its first CR LF, whoever meant it: text must not bring its own. */
static void write_line(struct resp_writer *writer, char mark, const char *text)
{
    size_t size = strlen(text);
    char *to = extend(writer, size + 3);

    if (!to)
        return;
    *to++ = mark;
    for (; *text; text++)
        *to++ = *text == '\r' || *text == '\n' ? ' ' : *text;
    *to++ = '\r';
    *to = '\n';
}

void resp_write_simple(struct resp_writer *writer, const char *text)
{
    write_line(writer, '+', text);
}

void resp_write_error(struct resp_writer *writer, const char *text)
{
    write_line(writer, '-', text);
}

void resp_write_integer(struct resp_writer *writer, int64_t number)
{
    char text[HEADER_MAX];

    write_header(writer, ':', signed_digits_of(number, text), text);
}

void resp_write_nil(struct resp_writer *writer, bool resp3)
{
    if (resp3)
        resp_write_raw(writer, "_\r\n", 3);
    else
        resp_write_raw(writer, "$-1\r\n", 5);
}

void resp_write_map(struct resp_writer *writer, size_t pairs, bool resp3)
{
    if (pairs > SIZE_MAX / 2) /* nobody has so many; but a wrong header would be worse than none */
        writer->failed = true;
    else
        write_count(writer, resp3 ? '%' : '*', resp3 ? pairs : 2 * pairs);
}

void resp_write_push(struct resp_writer *writer, size_t count, bool resp3)
{
    write_count(writer, resp3 ? '>' : '*', count);
}
