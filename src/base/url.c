#include "base/url.h"
#include "base/suggest.h"
#include "base/text.h"

#include <string.h>

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static int parse_parameter(struct url *url, char *text, struct error_text *err)
{
    char *equals = strchr(text, '=');
    struct url_parameter *parameter;

    if (!equals || equals == text)
        return error_set(err, HF_EINVAL,
                         "store URL: after the '?' come options of the form key=value");
    if (url->parameter_count == URL_PARAMETERS_MAX)
        return error_set(err, HF_EINVAL, "store URL: more than %d options", URL_PARAMETERS_MAX);
    *equals = '\0';
    if (!text_percent_decode(equals + 1, strlen(equals + 1), equals + 1, strlen(equals + 1) + 1))
        return error_set(err, HF_EINVAL, "store URL: the value of '%s' is badly percent-encoded",
                         text);
    for (int i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].key, text) == 0)
            return error_set(err, HF_EINVAL, "store URL: option '%s' given twice", text);
    parameter = &url->parameters[url->parameter_count++];
    *parameter = (struct url_parameter){.key = text, .value = equals + 1};
    return HF_OK;
}

int url_parse(const char *text, struct url *ret_url, struct error_text *err)
{
    size_t length = strnlen(text, HF_URL_MAX + 1);
    char *colon, *query;

    if (length > HF_URL_MAX)
        return error_set(err, HF_EINVAL, "store URL: longer than %d bytes", HF_URL_MAX);
    /* A file with the line ends of another system, or a blank too many, must not name another store. */
    if (length > 0 && strchr(" \t\r\n", text[length - 1]))
        return error_set(err, HF_EINVAL,
                         "store URL: it ends with a blank or a line end (is it from a file with "
                         "CR LF?)");
    memset(ret_url, 0, sizeof *ret_url);
    memcpy(ret_url->text, text, length + 1);
    colon = strchr(ret_url->text, ':');
    if (colon && ret_url->text + strcspn(ret_url->text, UPPER) < colon)
        return error_set(err, HF_EINVAL, "store URL: write its scheme in small letters");
    if (text[0] == '/')
        return error_set(err, HF_EINVAL,
                         "store URL: it does not begin with a scheme: file:%s is files in that "
                         "directory (see 'holdfast stores')",
                         text);
    if (!colon || colon == ret_url->text ||
        strspn(ret_url->text, "abcdefghijklmnopqrstuvwxyz0123456789+-.") !=
            (size_t)(colon - ret_url->text))
        return error_set(err, HF_EINVAL,
                         "store URL: it does not begin with a scheme such as file: (see 'holdfast "
                         "stores')");
    *colon = '\0';
    ret_url->scheme = ret_url->text;
    ret_url->rest = colon + 1;
    query = strchr(colon + 1, '?');
    if (!query)
        return HF_OK;
    *query++ = '\0';
    /* More likely the end of a password than a part of an option; and what is taken for an option
     * is quoted in messages. */
    if (strchr(query, '@'))
        return error_set(err, HF_EINVAL,
                         "store URL: '@' after '?': in a password write '?' as %%3F, in an option "
                         "write '@' as %%40");
    while (query) {
        char *next = strchr(query, '&');

        if (next)
            *next++ = '\0';
        if (*query) {
            int result = parse_parameter(ret_url, query, err);

            if (result != HF_OK)
                return result;
        }
        query = next;
    }
    return HF_OK;
}

const char *url_get(struct url *url, const char *key)
{
    if (url->asked_count < URL_ASKED_MAX)
        url->asked[url->asked_count++] = key;
    for (int i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].key, key) == 0) {
            url->parameters[i].used = true;
            return url->parameters[i].value;
        }
    return NULL;
}

int url_get_ms(struct url *url, const char *key, int64_t min_ms, int64_t max_ms, int64_t *ret_ms,
               struct error_text *err)
{
    const char *value = url_get(url, key);
    int64_t ms;

    if (!value)
        return HF_OK;
    if (!text_to_ms(value, &ms) || ms < min_ms || ms > max_ms) {
        char least[TEXT_SPAN_MAX], most[TEXT_SPAN_MAX];

        text_duration(min_ms, least);
        text_duration(max_ms, most);
        return error_set(err, HF_EINVAL, "store URL: %s=%s is not a duration from %s to %s", key,
                         value, least, most);
    }
    *ret_ms = ms;
    return HF_OK;
}

int url_check_all_used(const struct url *url, struct error_text *err)
{
    for (int i = 0; i < url->parameter_count; i++) {
        const char *key = url->parameters[i].key, *near;

        if (url->parameters[i].used)
            continue;
        near = suggest_nearest(key, url->asked, (size_t)url->asked_count);
        return error_set(err, HF_EINVAL, "store URL: '%s' is not an option of %s %s store%s%s%s",
                         key, text_article(url->scheme), url->scheme,
                         near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return HF_OK;
}

/* ---- what may be shown ----------------------------------------------------------------------- */

/* A URL, or the decoded value of an option that may be one. */
struct shown {
    char text[HF_URL_MAX + 1];
    size_t length;
    size_t from[HF_URL_MAX + 1]; /* where each byte, and the end, is in the text that was given */
};

/* Bytes of the text that was given that nobody is to see. */
struct hidden {
    bool byte[HF_URL_MAX + 1];
};

static void hide(const struct shown *shown, size_t begin, size_t end, struct hidden *hidden)
{
    for (size_t i = shown->from[begin]; i < shown->from[end]; i++)
        hidden->byte[i] = true;
}

/* "password" and "sslpassword"; not "password-file". libpq decodes the keys of its URLs, too. */
static bool is_password_key(const char *key, size_t length)
{
    static const char ending[] = "password";
    size_t size = sizeof ending - 1;
    char plain[64];

    if (length >= sizeof plain || !text_percent_decode(key, length, plain, sizeof plain))
        return false;
    length = strlen(plain);
    return length >= size && strcmp(plain + length - size, ending) == 0;
}

/* Between the first ':' after "://" and the last '@' before the options, even if that takes more than it should. Returns where the
 * options begin. */
static size_t hide_in_authority(const struct shown *shown, struct hidden *hidden)
{
    size_t options = strcspn(shown->text, "?");
    const char *authority = strstr(shown->text, "://"), *at = NULL, *colon;

    if (authority && authority < shown->text + options) {
        authority += 3;
        at = memrchr(authority, '@', (size_t)(shown->text + options - authority));
    }
    colon = at ? memchr(authority, ':', (size_t)(at - authority)) : NULL;
    if (colon)
        hide(shown, (size_t)(colon - shown->text), (size_t)(at - shown->text), hidden);
    return options;
}

/* The option that begins at `begin` and ends before `end` goes with the mark behind it, or, if it is the last, with the one before it. */
static bool hide_password_option(const struct shown *shown, size_t begin, size_t end,
                                 struct hidden *hidden)
{
    const char *key = shown->text + begin;
    bool is_last = shown->text[end] == '\0';
    size_t length = strcspn(key, "=&");

    if (key[length] != '=' || !is_password_key(key, length))
        return false;
    hide(shown, is_last ? begin - 1 : begin, is_last ? end : end + 1, hidden);
    return true;
}

/* The value from `begin` on, decoded once, as its own reader will see it. */
static bool decode_value(const struct shown *outer, size_t begin, size_t end,
                         struct shown *ret_inner)
{
    ret_inner->length = 0;
    for (size_t i = begin; i < end; ret_inner->length++) {
        size_t span = outer->text[i] == '%' ? 3 : 1;

        if (i + span > end ||
            !text_percent_decode(outer->text + i, span, ret_inner->text + ret_inner->length, 2))
            return false;
        ret_inner->from[ret_inner->length] = outer->from[i];
        i += span;
    }
    ret_inner->text[ret_inner->length] = '\0';
    ret_inner->from[ret_inner->length] = outer->from[end];
    return true;
}

/* A URL within an option, if its value is one: such have no further URL in them. */
static void hide_in_value(const struct shown *outer, size_t begin, size_t end,
                          struct hidden *hidden)
{
    struct shown inner;
    size_t value = begin + strcspn(outer->text + begin, "=&");

    if (value >= end)
        return;
    if (!decode_value(outer, value + 1, end, &inner)) {
        hide(outer, value + 1, end, hidden); /* whoever opens it refuses it */
        return;
    }
    if (strstr(inner.text, "://"))
        for (size_t i = hide_in_authority(&inner, hidden); i < inner.length;) {
            size_t next = i + 1 + strcspn(inner.text + i + 1, "&");

            hide_password_option(&inner, i + 1, next, hidden);
            i = next;
        }
    explicit_bzero(&inner, sizeof inner);
}

void url_without_passwords(const char *text, char ret_text[HF_URL_MAX + 1])
{
    struct shown shown;
    struct hidden hidden = {{false}};
    size_t used = 0;

    shown.length = strnlen(text, HF_URL_MAX);
    memcpy(shown.text, text, shown.length);
    shown.text[shown.length] = '\0';
    for (size_t i = 0; i <= shown.length; i++)
        shown.from[i] = i;
    for (size_t i = hide_in_authority(&shown, &hidden); i < shown.length;) {
        size_t next = i + 1 + strcspn(shown.text + i + 1, "&");

        if (!hide_password_option(&shown, i + 1, next, &hidden))
            hide_in_value(&shown, i + 1, next, &hidden);
        i = next;
    }
    for (size_t i = 0; i < shown.length; i++)
        if (!hidden.byte[i])
            ret_text[used++] = text[i];
    ret_text[used] = '\0';
    explicit_bzero(&shown, sizeof shown);
}
