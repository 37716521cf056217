#include "base/textbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTBUF_MIN 4096u
#define FORMATTED_MAX 1024u /* bytes of one textbuf_format: longer texts go through textbuf_bytes */

static bool make_room(struct textbuf *text, size_t size)
{
    size_t capacity = text->capacity ? text->capacity : TEXTBUF_MIN;
    char *bytes;

    if (text->failed)
        return false;
    while (capacity - text->size < size)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    bytes = realloc(text->bytes, capacity);
    text->failed = !bytes;
    if (!bytes)
        return false;
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void textbuf_bytes(struct textbuf *text, const char *bytes, size_t size)
{
    if (size == 0 || !make_room(text, size))
        return;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

void textbuf_words(struct textbuf *text, const char *words)
{
    textbuf_bytes(text, words, strlen(words));
}

void textbuf_format(struct textbuf *text, const char *format, ...)
{
    va_list arguments;
    int size;

    if (!make_room(text, FORMATTED_MAX))
        return;
    va_start(arguments, format);
    size = vsnprintf(text->bytes + text->size, FORMATTED_MAX, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= FORMATTED_MAX)
        text->failed = true;
    else
        text->size += (size_t)size;
}

void textbuf_free(struct textbuf *text)
{
    free(text->bytes);
    *text = (struct textbuf){0};
}
