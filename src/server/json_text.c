#include "server/json_text.h"
#include "base/error.h"
#include "base/text.h"

#include <string.h>

#define CHARACTER_MAX 4 /* bytes, in UTF-8 */
#define DIGITS_MAX 20   /* of an int64_t, with its sign */

static void begin(struct json_text *json, const char *key)
{
    bool *comma = &json->comma[json->depth];

    if (*comma)
        textbuf_words(&json->out, ",");
    *comma = true;
    if (key) {
        textbuf_bytes(&json->out, "\"", 1);
        textbuf_words(&json->out, key);
        textbuf_bytes(&json->out, "\":", 2);
    }
}

void json_text_open(struct json_text *json, const char *key, char bracket)
{
    begin(json, key);
    textbuf_bytes(&json->out, &bracket, 1);
    INVARIANT(json->depth + 1 < JSON_TEXT_DEPTH_MAX);
    json->comma[++json->depth] = false;
}

void json_text_close(struct json_text *json, char bracket)
{
    textbuf_bytes(&json->out, &bracket, 1);
    json->depth--;
}

static bool is_plain(unsigned char byte)
{
    return byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\' && byte != '<' &&
           byte != '>' && byte != '&';
}

/* Of what stands for itself, from here on: all of it, mostly. */
static size_t plain_size(const char *bytes, size_t left)
{
    size_t size = 0;

    while (size < left && is_plain((unsigned char)bytes[size]))
        size++;
    return size;
}

/* Of the character that begins here; 0: it is none. */
static size_t character_size(const char *bytes, size_t left)
{
    for (size_t size = 1; size <= CHARACTER_MAX && size <= left; size++)
        if (text_is_utf8(bytes, size))
            return size;
    return 0;
}

static void write_byte(struct textbuf *out, unsigned char byte)
{
    if (byte == '"' || byte == '\\')
        textbuf_bytes(out, (const char[]){'\\', (char)byte}, 2);
    else if (byte < ' ' || byte == 0x7f || byte == '<' || byte == '>' || byte == '&')
        textbuf_format(out, "\\u%04x", byte);
    else
        textbuf_bytes(out, (const char *)&byte, 1);
}

void json_text_string(struct json_text *json, const char *key, const char *bytes, size_t size)
{
    begin(json, key);
    textbuf_words(&json->out, "\"");
    for (size_t i = 0; i < size;) {
        size_t plain = plain_size(bytes + i, size - i);
        size_t character = plain ? plain : character_size(bytes + i, size - i);

        if (character == 0)
            textbuf_words(&json->out, "\\ufffd");
        else if (character == 1 && !plain)
            write_byte(&json->out, (unsigned char)bytes[i]);
        else
            textbuf_bytes(&json->out, bytes + i, character);
        i += character ? character : 1;
    }
    textbuf_words(&json->out, "\"");
}

void json_text_words(struct json_text *json, const char *key, const char *words)
{
    json_text_string(json, key, words, strlen(words));
}

void json_text_number(struct json_text *json, const char *key, int64_t number)
{
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    char digits[DIGITS_MAX];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        digits[--at] = '-';
    begin(json, key);
    textbuf_bytes(&json->out, digits + at, sizeof digits - at);
}

void json_text_bool(struct json_text *json, const char *key, bool value)
{
    begin(json, key);
    textbuf_words(&json->out, value ? "true" : "false");
}
