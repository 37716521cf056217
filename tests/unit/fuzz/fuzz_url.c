/* fuzz_url.c: a URL of a store, as somebody has typed it, or as a file has it. What is refused is refused in words; what is taken apart
 * is, put together again, the same to the parser; and what may be shown has no password in it. The input's first byte says which of
 * these, and where a password is. */
#include "base/text.h"
#include "base/url.h"
#include "fuzz.h"

#define PASSWORD "Hu9ter2"

/* ---- taking apart ------------------------------------------------------------------------------ */

static void is_sound(const struct url *url)
{
    REQUIRE(url->scheme[0] && !strpbrk(url->scheme, ":/?&=% ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
    REQUIRE(url->parameter_count >= 0 && url->parameter_count <= URL_PARAMETERS_MAX);
    for (int i = 0; i < url->parameter_count; i++) {
        REQUIRE(url->parameters[i].key[0] && !strpbrk(url->parameters[i].key, "=&@"));
        for (int k = 0; k < i; k++)
            REQUIRE(strcmp(url->parameters[i].key, url->parameters[k].key) != 0);
    }
}

static void is_same_again(const struct url *url)
{
    static struct url again;
    static char text[3 * HF_URL_MAX], value[3 * HF_URL_MAX];
    size_t used = (size_t)snprintf(text, sizeof text, "%s:%s", url->scheme, url->rest);

    for (int i = 0; i < url->parameter_count; i++) {
        const struct url_parameter *parameter = &url->parameters[i];

        text_percent_encode(parameter->value, strlen(parameter->value), "-_.~/", value,
                            sizeof value);
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%s=%s", i ? '&' : '?',
                                 parameter->key, value);
    }
    if (used > HF_URL_MAX || strpbrk(text + used - 1, " \t\r\n"))
        return; /* longer than it was, since more of it is encoded; or the blank was before an '?' */
    REQUIRE(url_parse(text, &again, NULL) == HF_OK);
    REQUIRE(strcmp(again.scheme, url->scheme) == 0 && strcmp(again.rest, url->rest) == 0);
    REQUIRE(again.parameter_count == url->parameter_count);
    for (int i = 0; i < url->parameter_count; i++)
        REQUIRE(strcmp(again.parameters[i].key, url->parameters[i].key) == 0 &&
                strcmp(again.parameters[i].value, url->parameters[i].value) == 0);
}

static void is_asked(struct url *url)
{
    struct error_text err = {""};
    int64_t ms = -7;
    int result = url_get_ms(url, "timeout", 50, 60000, &ms, &err);

    REQUIRE(result == HF_OK ? ms == -7 || (ms >= 50 && ms <= 60000) : ms == -7 && err.text[0]);
    err.text[0] = '\0';
    result = url_check_all_used(url, &err);
    REQUIRE(result == HF_OK ? url->parameter_count == (url_get(url, "timeout") != NULL)
                            : err.text[0] != '\0');
    for (int i = 0; i < url->parameter_count; i++)
        REQUIRE(url_get(url, url->parameters[i].key) == url->parameters[i].value);
    REQUIRE(url_check_all_used(url, NULL) == HF_OK);
}

static void take_apart(const char *text)
{
    static struct url url;
    struct error_text err = {""};
    int result = url_parse(text, &url, &err);

    REQUIRE(result == HF_OK || (result == HF_EINVAL && err.text[0]));
    if (result != HF_OK)
        return;
    is_sound(&url);
    is_same_again(&url);
    is_asked(&url);
}

/* ---- showing ----------------------------------------------------------------------------------- */

static void show(const char *text, char ret_shown[HF_URL_MAX + 1])
{
    char again[HF_URL_MAX + 1];

    url_without_passwords(text, ret_shown);
    REQUIRE(strlen(ret_shown) <= strlen(text));
    url_without_passwords(ret_shown, again);
    REQUIRE(strlen(again) <= strlen(ret_shown));
}

/* No digit that the password has comes from elsewhere, nor what would move the place of a part. */
static void tame(char *text, const char *bad)
{
    for (; *text; text++)
        *text = strchr(bad, *text) ? '_' : *text;
}

/* The rest of the input is on both sides of the password. */
static void hide(unsigned where, char *before, char *behind)
{
    static char text[4 * FUZZ_MAX + 64], nested[2 * FUZZ_MAX], encoded[4 * FUZZ_MAX];
    char shown[HF_URL_MAX + 1];

    tame(before, where == 1 ? "9" : "9?");
    tame(behind, where == 1 ? "9&" : "9?");
    if (where == 0) {
        snprintf(text, sizeof text, "redis://u:%s" PASSWORD "%s@host", before, behind);
    } else if (where == 1) {
        snprintf(text, sizeof text, "postgres://host/%s?a=b&ssl%%70assword=" PASSWORD "%s", before,
                 behind);
    } else {
        snprintf(nested, sizeof nested, "postgres://u:%s" PASSWORD "%s@h/d?c=d", before, behind);
        text_percent_encode(nested, strlen(nested), "", encoded, sizeof encoded);
        snprintf(text, sizeof text, "etcd://host?a=b&listen=%s", encoded);
    }
    if (strlen(text) > HF_URL_MAX)
        return;
    show(text, shown);
    REQUIRE(!strstr(shown, PASSWORD));
}

const int fuzz_rounds = 150000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned how = fuzz_byte(&input) % 4;
    char *text = fuzz_text(input.at, input.left), *behind, shown[HF_URL_MAX + 1];

    if (how == 3) {
        take_apart(text);
        if (strlen(text) <= HF_URL_MAX)
            show(text, shown);
    } else {
        size_t middle = strlen(text) / 2;

        behind = fuzz_text(text + middle, strlen(text + middle));
        text[middle] = '\0';
        hide(how, text, behind);
        free(behind);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const urls[] = {
        "file:///var/lib/holdfast?timeout=5s",
        "redis://user:p%40ss@db1:6379,[::1]:6380/?prefix=a%2Fb&timeout=250ms",
        ("postgres://u:p@host:5432/"
         "db?mode=row&listen=postgres%3A%2F%2Fu%3Ap%40h%2Fd%3Fsslpassword%3Dx"),
        "etcd://a,b,c/prefix?ca-file=/etc/ca.pem&&timeout=1m30s",
        "holdfast+unix:%2Frun%2Fholdfastd.sock",
        "file:?timeout=",
    };
    size_t size;

    if (n >= COUNT(urls) + 3)
        return 0;
    size = n < COUNT(urls) ? strlen(urls[n]) : 12;
    ret_bytes[0] = (uint8_t)(n < COUNT(urls) ? 3 : n - COUNT(urls));
    memcpy(ret_bytes + 1, n < COUNT(urls) ? urls[n] : "a:b@c/%20%41", size);
    return size + 1;
}
