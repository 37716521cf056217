/* writer.c: values into bytes. Nothing here fails but for want of memory, and that is remembered.
 */
#include "resp/resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITER_FIRST 256

/* A mark, at most 20 digits with a sign, CR LF. */
#define HEADER_MAX 32

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

/* What begins an aggregate or a blob. */
static void write_count(struct resp_writer *writer, char mark, size_t count)
{
    char text[HEADER_MAX];
    int size = snprintf(text, sizeof text, "%c%zu\r\n", mark, count);

    resp_write_raw(writer, text, (size_t)size);
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
    int size = snprintf(text, sizeof text, "%" PRId64, number);

    resp_write_blob(writer, text, (size_t)size);
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
    int size = snprintf(text, sizeof text, ":%" PRId64 "\r\n", number);

    resp_write_raw(writer, text, (size_t)size);
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
