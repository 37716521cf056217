#include "cli/joburl.h"
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* What a path may hold as it is. Not ':' nor '@', between which a password would be looked for. */
#define PLAIN "/-_.~+,"

/* A URL that grows. */
struct text {
    char *at; /* HF_URL_MAX + 1 bytes */
    size_t used;
    bool too_long;
};

/* plain: the characters that stay as they are besides letters and digits; NULL: all. */
static void add(struct text *text, const char *more, const char *plain)
{
    size_t room = HF_URL_MAX + 1 - text->used, length = strlen(more);

    if (text->too_long)
        return;
    if (plain)
        length = text_percent_encode(more, length, plain, text->at + text->used, room);
    else if (length < room)
        memcpy(text->at + text->used, more, length + 1);
    text->too_long = length >= room;
    text->used += length;
}

static bool names_file(const struct url_parameter *parameter)
{
    static const char *const keys[] = {"password-file", "ca-file", "cert-file", "key-file"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(parameter->key, keys[i]) == 0)
            return true;
    return false;
}

static bool is_relative_file(const struct url_parameter *parameter)
{
    return names_file(parameter) && parameter->value[0] != '/';
}

/* Of the file store: "locks", or nothing, which depends on HOME. */
static bool is_relative_store(const struct url *url)
{
    return strcmp(url->scheme, "file") == 0 && url->rest[0] != '/';
}

static bool is_relative(const struct url *url)
{
    for (int i = 0; i < url->parameter_count; i++)
        if (is_relative_file(&url->parameters[i]))
            return true;
    return is_relative_store(url);
}

static int add_directory(struct text *text, const char *where, struct error_text *err)
{
    if (where[0] != '/')
        return error_set(err, HF_EINVAL,
                         "cannot tell the job its HOLDFAST_URL: no path leads to the file store "
                         "from the root directory");
    while (where[1] == '/') /* what follows "//" would be a host */
        where++;
    add(text, where, PLAIN);
    return HF_OK;
}

static int add_parameters(struct text *text, const struct url *url, struct error_text *err)
{
    char here[HF_URL_MAX + 1];

    for (int i = 0; i < url->parameter_count; i++) {
        const struct url_parameter *parameter = &url->parameters[i];

        add(text, i == 0 ? "?" : "&", NULL);
        add(text, parameter->key, NULL);
        add(text, "=", NULL);
        if (is_relative_file(parameter)) {
            if (!getcwd(here, sizeof here))
                return error_set_errno(err, HF_EINVAL, errno,
                                       "cannot tell the job its HOLDFAST_URL, which needs the path "
                                       "of the current directory");
            add(text, here, PLAIN);
            add(text, "/", NULL);
        }
        add(text, parameter->value, PLAIN);
    }
    return HF_OK;
}

int joburl(hf_store *store, char ret_url[HF_URL_MAX + 1], struct error_text *err)
{
    const hf_store_info *info = hf_info(store);
    struct text text = {.at = ret_url};
    struct url url;
    int result = url_parse(info->url, &url, err);

    if (result != HF_OK)
        return result;
    if (!is_relative(&url)) {
        add(&text, info->url, NULL);
        return HF_OK;
    }
    add(&text, url.scheme, NULL);
    add(&text, ":", NULL);
    if (is_relative_store(&url))
        result = add_directory(&text, info->where, err);
    else
        add(&text, url.rest, NULL);
    if (result == HF_OK)
        result = add_parameters(&text, &url, err);
    if (result == HF_OK && text.too_long)
        return error_set(err, HF_EINVAL,
                         "cannot tell the job its HOLDFAST_URL: with absolute paths it is longer "
                         "than %d bytes",
                         HF_URL_MAX);
    return result;
}
