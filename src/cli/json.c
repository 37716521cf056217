#include "cli/json.h"
#include "base/text.h"
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

static void comma(struct json *json)
{
    if (json->comma[json->depth])
        putchar(',');
    json->comma[json->depth] = true;
}

static void put_key(struct json *json, const char *key)
{
    comma(json);
    if (key)
        printf("\"%s\":", key);
}

static void descend(struct json *json, char bracket)
{
    putchar(bracket);
    INVARIANT(json->depth + 1 < JSON_DEPTH_MAX);
    json->comma[++json->depth] = false;
}

void json_begin(struct json *json)
{
    *json = (struct json){0};
    descend(json, '{');
}

void json_end(struct json *json)
{
    json_close(json, '}');
    INVARIANT(json->depth == 0);
    putchar('\n');
    flush_output();
}

void json_object(struct json *json, const char *key)
{
    put_key(json, key);
    descend(json, '{');
}

void json_array(struct json *json, const char *key)
{
    put_key(json, key);
    descend(json, '[');
}

void json_close(struct json *json, char bracket)
{
    INVARIANT(json->depth > 0);
    json->depth--;
    putchar(bracket);
}

/* Length of the UTF-8 character at `at`, or 0. */
static size_t character(const char *at, size_t left)
{
    for (size_t n = 1; n <= 4 && n <= left; n++)
        if (text_is_utf8(at, n))
            return n;
    return 0;
}

static void put_text(const char *text)
{
    size_t left = strlen(text);

    putchar('"');
    while (left > 0) {
        unsigned char c = (unsigned char)*text;
        size_t n = character(text, left);

        if (n == 0) {
            fputs("\xef\xbf\xbd", stdout); /* U+FFFD */
            n = 1;
        } else if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c == '\t') {
            fputs("\\t", stdout);
        } else if (c < 0x20 || c == 0x7f) {
            printf("\\u%04x", (unsigned)c);
        } else {
            fwrite(text, 1, n, stdout);
        }
        text += n;
        left -= n;
    }
    putchar('"');
}

void json_string(struct json *json, const char *key, const char *text)
{
    put_key(json, key);
    if (text)
        put_text(text);
    else
        fputs("null", stdout);
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
    put_key(json, key);
    printf("%llu", (unsigned long long)value);
}

void json_real(struct json *json, const char *key, double value, int digits)
{
    put_key(json, key);
    printf("%.*f", digits, value);
}

void json_ms(struct json *json, const char *key, int64_t ms)
{
    put_key(json, key);
    if (ms < 0 || ms == HF_UNLIMITED)
        fputs("null", stdout);
    else
        printf("%lld", (long long)ms);
}

void json_bool(struct json *json, const char *key, bool value)
{
    put_key(json, key);
    fputs(value ? "true" : "false", stdout);
}

static void put_base64(const char *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = (const unsigned char *)bytes;
    size_t left = strlen(bytes);

    putchar('"');
    for (; left > 0; at += left < 3 ? left : 3, left -= left < 3 ? left : 3) {
        unsigned group = (unsigned)at[0] << 16 | (left > 1 ? (unsigned)at[1] << 8 : 0) |
                         (left > 2 ? (unsigned)at[2] : 0);

        putchar(digits[group >> 18]);
        putchar(digits[group >> 12 & 63]);
        putchar(left > 1 ? digits[group >> 6 & 63] : '=');
        putchar(left > 2 ? digits[group & 63] : '=');
    }
    putchar('"');
}

void json_text(struct json *json, const char *key, const char *text)
{
    char key_b64[40];

    json_string(json, key, text);
    if (!text_is_utf8(text, strlen(text))) {
        snprintf(key_b64, sizeof key_b64, "%s_b64", key);
        put_key(json, key_b64);
        put_base64(text);
    }
}

void json_name(struct json *json, const char *name)
{
    json_text(json, "name", name);
}

void json_entry(struct json *json, const hf_entry *entry)
{
    if (entry->kind == HF_ENTRY_HOLDER)
        json_u64(json, "token", entry->token);
    json_string(json, "mode", mode_name(entry->mode));
    if (entry->mode == HF_PERMIT)
        json_u64(json, "permits", entry->permits);
    json_string(json, "owner", entry->owner);
    json_string(json, "lease", *entry->lease ? entry->lease : NULL);
    if (entry->pid > 0)
        json_u64(json, "pid", (uint64_t)entry->pid);
    json_ms(json, "age_ms", entry->age_ms);
    if (entry->kind == HF_ENTRY_HOLDER)
        json_ms(json, "left_ms", entry->left_ms);
}
