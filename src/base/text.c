#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool text_to_u64(const char *text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        uint64_t digit;

        if (!is_digit(*text))
            return false;
        digit = (uint64_t)(*text - '0');
        if (digit > max || value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret_value = value;
    return true;
}

bool text_to_ms(const char *text, int64_t *ret_ms)
{
    static const struct {
        const char *suffix;
        int64_t ms;
    } units[] = {{"ms", 1},        {"s", 1000},        {"", 1000},
                 {"m", 60 * 1000}, {"h", 3600 * 1000}, {"d", 86400 * 1000}};
    int64_t whole = 0, fraction = 0, scale = 1;
    size_t u;

    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++) {
        whole = whole * 10 + (*text - '0');
        if (whole > HF_DURATION_MAX_MS)
            return false;
    }
    if (*text == '.') {
        text++;
        if (!is_digit(*text))
            return false;
        for (; is_digit(*text); text++) {
            if (scale < 1000000) { /* further digits are below a millisecond: dropped */
                fraction = fraction * 10 + (*text - '0');
                scale *= 10;
            }
        }
    }
    for (u = 0; u < sizeof units / sizeof *units; u++) {
        int64_t ms;

        if (strcmp(text, units[u].suffix) != 0)
            continue;
        if (whole > HF_DURATION_MAX_MS / units[u].ms)
            return false;
        ms = whole * units[u].ms + fraction * units[u].ms / scale;
        if (ms > HF_DURATION_MAX_MS)
            return false;
        *ret_ms = ms;
        return true;
    }
    return false;
}

void text_from_ms(int64_t ms, char ret_text[TEXT_SPAN_MAX])
{
    long long s = ms / 1000;

    if (ms < 1000)
        snprintf(ret_text, TEXT_SPAN_MAX, "%lld ms", (long long)ms);
    else if (s < 60)
        snprintf(ret_text, TEXT_SPAN_MAX, "%lld.%lld s", s, (long long)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(ret_text, TEXT_SPAN_MAX, "%lld min %lld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(ret_text, TEXT_SPAN_MAX, "%lld h %lld min", s / 3600, s % 3600 / 60);
    else
        snprintf(ret_text, TEXT_SPAN_MAX, "%lld d %lld h", s / 86400, s % 86400 / 3600);
}

static const char hex_digits[] = "0123456789abcdef";

size_t text_percent_encode(const char *bytes, size_t length, const char *keep, char *ret_text,
                           size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char c = bytes[i];
        bool plain = is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c && strchr(keep, c));
        char out[3] = {c, 0, 0};
        size_t n = 1;

        if (!plain) {
            out[0] = '%';
            out[1] = hex_digits[(unsigned char)c >> 4];
            out[2] = hex_digits[(unsigned char)c & 15];
            n = 3;
        }
        for (size_t k = 0; k < n; k++, used++)
            if (used + 1 < size)
                ret_text[used] = out[k];
    }
    if (size > 0)
        ret_text[used < size ? used : size - 1] = '\0';
    return used;
}

static int hex_value(char c)
{
    const char *at;

    if (c >= 'A' && c <= 'F')
        c = (char)(c - 'A' + 'a');
    at = c ? strchr(hex_digits, c) : NULL;
    return at ? (int)(at - hex_digits) : -1;
}

bool text_percent_decode(const char *text, size_t length, char *ret_bytes, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char c = text[i];

        if (c == '%') {
            int high, low;

            if (length - i < 3)
                return false;
            high = hex_value(text[i + 1]);
            low = hex_value(text[i + 2]);
            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (used + 1 >= size)
            return false;
        ret_bytes[used++] = c;
    }
    if (size == 0)
        return false;
    ret_bytes[used] = '\0';
    return true;
}

void text_hex(const void *bytes, size_t size, char *ret_text)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++) {
        ret_text[2 * i] = hex_digits[at[i] >> 4];
        ret_text[2 * i + 1] = hex_digits[at[i] & 15];
    }
    ret_text[2 * size] = '\0';
}

bool text_is_utf8(const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes;

    for (size_t i = 0; i < length;) {
        unsigned char c = at[i];
        size_t more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : 9;
        uint32_t point = more == 0 ? c : c & (0x3fu >> more);

        if (more == 9 || length - i <= more)
            return false;
        for (size_t k = 1; k <= more; k++) {
            if (at[i + k] >> 6 != 2)
                return false;
            point = point << 6 | (at[i + k] & 0x3f);
        }
        if ((more == 1 && point < 0x80) || (more == 2 && point < 0x800) ||
            (more == 3 && point < 0x10000) || point > 0x10ffff ||
            (point >= 0xd800 && point <= 0xdfff))
            return false;
        i += more + 1;
    }
    return true;
}

int text_check_name(const char *name, struct error_text *err)
{
    if (!name || !*name)
        return error_set(err, HF_EINVAL, "a lock's name must not be empty");
    if (strnlen(name, HF_NAME_MAX + 1) > HF_NAME_MAX)
        return error_set(err, HF_EINVAL, "a lock's name has at most %d bytes", HF_NAME_MAX);
    return HF_OK;
}
