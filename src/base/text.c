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

/* From the largest on; text_to_ms wants them in this order, and each once. */
static const struct {
    const char *name;
    int64_t ms;
} units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

#define UNIT_COUNT (sizeof units / sizeof *units)

/* "1.5", without its unit; moves behind it. Digits below a millisecond are dropped. */
static bool take_number(const char **text, int64_t *ret_whole, int64_t *ret_fraction,
                        int64_t *ret_scale)
{
    const char *at = *text;

    *ret_whole = *ret_fraction = 0;
    *ret_scale = 1;
    if (!is_digit(*at))
        return false;
    for (; is_digit(*at); at++) {
        *ret_whole = *ret_whole * 10 + (*at - '0');
        if (*ret_whole > HF_DURATION_MAX_MS)
            return false;
    }
    if (*at == '.') {
        at++;
        if (!is_digit(*at))
            return false;
        for (; is_digit(*at); at++)
            if (*ret_scale < 1000000) {
                *ret_fraction = *ret_fraction * 10 + (*at - '0');
                *ret_scale *= 10;
            }
    }
    *text = at;
    return true;
}

/* The unit from number `from` on that the text begins with; moves behind it. UNIT_COUNT: none. */
static size_t take_unit(const char **text, size_t from)
{
    size_t size = strcspn(*text, "0123456789."), u = from;

    while (u < UNIT_COUNT &&
           (strlen(units[u].name) != size || strncmp(units[u].name, *text, size) != 0))
        u++;
    if (u < UNIT_COUNT)
        *text += size;
    return u;
}

bool text_to_ms(const char *text, int64_t *ret_ms)
{
    int64_t sum = 0, whole, fraction, scale;
    size_t unit, next = 0;
    bool first = true;

    do {
        if (!take_number(&text, &whole, &fraction, &scale))
            return false;
        unit = first && !*text ? 3 : take_unit(&text, next); /* a bare number is seconds */
        if (unit == UNIT_COUNT || whole > HF_DURATION_MAX_MS / units[unit].ms)
            return false;
        if (scale > 1 && *text) /* a fraction of what is not the last */
            return false;
        sum += whole * units[unit].ms + fraction * units[unit].ms / scale;
        if (sum > HF_DURATION_MAX_MS)
            return false;
        next = unit + 1;
        first = false;
    } while (*text);
    *ret_ms = sum;
    return true;
}

void text_duration(int64_t ms, char ret_text[TEXT_SPAN_MAX])
{
    size_t u = 0;

    while (ms % units[u].ms != 0)
        u++;
    snprintf(ret_text, TEXT_SPAN_MAX, "%lld%s", (long long)(ms / units[u].ms),
             ms == 0 ? "" : units[u].name);
}

const char *text_article(const char *word)
{
    return *word && strchr("aeiou", *word) ? "an" : "a";
}

struct text_kind text_kind(const hf_store_info *info)
{
    struct text_kind words;

    snprintf(words.text, sizeof words.text, "%s %s store%s%s", text_article(info->scheme),
             info->scheme, info->variant ? " with " : "", info->variant ? info->variant : "");
    return words;
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

static int check_name(const char *what, const char *name, struct error_text *err)
{
    if (!name || !*name)
        return error_set(err, HF_EINVAL, "%s must not be empty", what);
    if (strnlen(name, HF_NAME_MAX + 1) > HF_NAME_MAX)
        return error_set(err, HF_EINVAL, "%s has at most %d bytes", what, HF_NAME_MAX);
    return HF_OK;
}

int text_check_name(const char *name, struct error_text *err)
{
    return check_name("a lock's name", name, err);
}

int text_check_key(const char *key, struct error_text *err)
{
    return check_name("a key", key, err);
}
