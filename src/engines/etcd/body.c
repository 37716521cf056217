/* body.c: JSON and base64. What goes out is written as text; what comes in was read by jansson, and is looked at with
 * suspicion: the gateway writes numbers of 64 bits as strings, bytes as base64, and leaves out what is zero. */
#include "engines/etcd/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_FIRST 1024

/* ---- out ------------------------------------------------------------------------------------- */

static bool make_room(struct body *body, size_t more)
{
    size_t room = body->room ? body->room : BODY_FIRST;
    char *bytes;

    if (body->failed)
        return false;
    if (body->size + more < body->room)
        return true;
    while (room <= body->size + more)
        room *= 2;
    bytes = realloc(body->bytes, room);
    if (!bytes) {
        body->failed = true;
        return false;
    }
    body->bytes = bytes;
    body->room = room;
    return true;
}

void body_add(struct body *body, const char *format, ...)
{
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || !make_room(body, (size_t)size + 1)) {
        body->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(body->bytes + body->size, (size_t)size + 1, format, args);
    va_end(args);
    body->size += (size_t)size;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void body_blob(struct body *body, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    char *out;

    if (!make_room(body, size / 3 * 4 + 8))
        return;
    out = body->bytes + body->size;
    *out++ = '"';
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t three = (uint32_t)at[i] << 16 | (left > 1 ? (uint32_t)at[i + 1] << 8 : 0) |
                         (left > 2 ? (uint32_t)at[i + 2] : 0);

        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        *out++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[three & 63] : '=';
    }
    *out++ = '"';
    *out = '\0';
    body->size = (size_t)(out - body->bytes);
}

void body_free(struct body *body)
{
    free(body->bytes);
    *body = (struct body){0};
}

/* ---- in -------------------------------------------------------------------------------------- */

bool json_number(const json_t *object, const char *key, int64_t *ret_number)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    char *end;
    long long number;

    if (!value || json_is_integer(value)) {
        *ret_number = value ? (int64_t)json_integer_value(value) : 0;
        return true;
    }
    if (!text || !*text || strspn(text, "-0123456789") != strlen(text))
        return false;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno == ERANGE && text[0] != '-') { /* an id of 64 bits */
        errno = 0;
        number = (long long)strtoull(text, &end, 10);
    }
    if (errno || *end)
        return false;
    *ret_number = number;
    return true;
}

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool decode(const char *text, size_t size, char *ret_bytes, size_t *ret_size)
{
    size_t used = 0;

    if (size % 4 != 0)
        return false;
    for (size_t i = 0; i < size; i += 4) {
        bool last = i + 4 == size;
        int pads = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        uint32_t three = 0;

        for (int j = 0; j < 4; j++) {
            int digit = j >= 4 - pads ? 0 : digit_of(text[i + (size_t)j]);

            if (digit < 0)
                return false;
            three = three << 6 | (uint32_t)digit;
        }
        for (int j = 0; j < 3 - pads; j++)
            ret_bytes[used++] = (char)(three >> (16 - 8 * j) & 255);
    }
    *ret_size = used;
    return true;
}

char *json_blob(const json_t *object, const char *key, size_t max, size_t *ret_size)
{
    const json_t *value = json_object_get(object, key);
    size_t length = json_string_length(value), size = 0;
    char *bytes;

    if ((value && !json_is_string(value)) || length / 4 * 3 > max + 2)
        return NULL;
    bytes = malloc(length / 4 * 3 + 1);
    if (!bytes)
        return NULL;
    if (length > 0 && !decode(json_string_value(value), length, bytes, &size)) {
        free(bytes);
        return NULL;
    }
    bytes[size] = '\0';
    *ret_size = size;
    return bytes;
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool keep(struct splitter *splitter, const char *bytes, size_t size)
{
    size_t room = splitter->room ? splitter->room : BODY_FIRST;
    char *grown;

    if (size > ETCD_EVENT_MAX - splitter->size)
        return false;
    while (room < splitter->size + size)
        room *= 2;
    if (room != splitter->room) {
        grown = realloc(splitter->bytes, room);
        if (!grown)
            return false;
        splitter->bytes = grown;
        splitter->room = room;
    }
    memcpy(splitter->bytes + splitter->size, bytes, size);
    splitter->size += size;
    return true;
}

/* The size of the first object, 0: it is not whole yet, -1: that is no object. */
static ssize_t first_object(struct splitter *splitter)
{
    for (; splitter->looked < splitter->size; splitter->looked++) {
        char c = splitter->bytes[splitter->looked];

        if (splitter->in_string) {
            if (splitter->escaped)
                splitter->escaped = false;
            else if (c == '\\')
                splitter->escaped = true;
            else
                splitter->in_string = c != '"';
        } else if (c == '"') {
            splitter->in_string = true;
        } else if (c == '{' || c == '[') {
            splitter->depth++;
        } else if ((c == '}' || c == ']') && --splitter->depth == 0) {
            return (ssize_t)++splitter->looked;
        }
        if (splitter->depth <= 0 && !strchr(" \t\r\n", c))
            return -1;
    }
    return 0;
}

int splitter_feed(struct splitter *splitter, const char *bytes, size_t size,
                  void (*fn)(void *context, const char *object, size_t size), void *context)
{
    ssize_t whole;

    if (!keep(splitter, bytes, size))
        return HF_EINTERNAL;
    while ((whole = first_object(splitter)) > 0) {
        fn(context, splitter->bytes, (size_t)whole);
        splitter->size -= (size_t)whole;
        memmove(splitter->bytes, splitter->bytes + whole, splitter->size);
        splitter->looked = 0;
    }
    return whole < 0 ? HF_EINTERNAL : HF_OK;
}

void splitter_free(struct splitter *splitter)
{
    free(splitter->bytes);
    *splitter = (struct splitter){0};
}
