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
