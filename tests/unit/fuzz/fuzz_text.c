/* fuzz_text.c: short texts that people and other programs write: numbers, durations, addresses, sequencers, percent-encoded names. The
 * input's first byte says which. What is taken prints back to the same, and what is refused leaves its output alone. */
#include "base/hostport.h"
#include "base/sequencer.h"
#include "base/text.h"
#include "fuzz.h"
#include "net/address.h"

#include <inttypes.h>

static void number(const char *text)
{
    uint64_t value = 7, again;
    char digits[32];
    bool taken = text_to_u64(text, HF_TOKEN_MAX, &value);

    REQUIRE(taken ? value <= HF_TOKEN_MAX : value == 7);
    if (!taken)
        return;
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    REQUIRE(text_to_u64(digits, value, &again) && again == value);
    REQUIRE(value == 0 || !text_to_u64(digits, value - 1, &again));
    REQUIRE(strcmp(text + strspn(text, "0"), value ? digits : "") == 0);
}

static void duration(const char *text)
{
    int64_t ms = -7, again = -7;
    char span[TEXT_SPAN_MAX];
    bool taken = text_to_ms(text, &ms);

    REQUIRE(taken ? ms >= 0 && ms <= HF_DURATION_MAX_MS : ms == -7);
    if (!taken)
        return;
    text_duration(ms, span);
    REQUIRE(text_to_ms(span, &again) && again == ms);
    text_from_ms(ms, span);
    REQUIRE(span[0] && !strchr(span, '-'));
}

/* ---- addresses --------------------------------------------------------------------------------- */

static void host_port(const char *text, size_t length)
{
    struct hostport is = {.host = "untouched"}, again;
    char shown[HOSTPORT_HOST_MAX + 16];
    enum hostport_fault fault = hostport_parse(text, length, &is);
    int used;

    if (fault != HOSTPORT_OK) {
        REQUIRE(strcmp(is.host, "untouched") == 0);
        return;
    }
    REQUIRE(is.host[0] && is.kind >= HOSTPORT_NAME && is.kind <= HOSTPORT_IPV6);
    used = snprintf(shown, sizeof shown, is.kind == HOSTPORT_IPV6 ? "[%s]" : "%s", is.host);
    if (is.has_port)
        used += snprintf(shown + used, sizeof shown - (size_t)used, ":%u", is.port);
    REQUIRE(hostport_parse(shown, (size_t)used, &again) == HOSTPORT_OK);
    REQUIRE(strcmp(is.host, again.host) == 0 && is.kind == again.kind);
    REQUIRE(is.has_port == again.has_port && is.port == again.port);
    REQUIRE(is.loopback == again.loopback);
}

static void address(const char *text, size_t length)
{
    struct address is, again;
    struct error_text err = {""};
    struct address_parts parts;
    char encoded[3 * ADDRESS_TEXT_MAX];
    int result = address_parse(text, length, "7420", &is, &err);

    REQUIRE(result == HF_OK || err.text[0]);
    if (result == HF_OK) {
        text_percent_encode(is.shown, strlen(is.shown), is.path[0] ? "/" : "[]:-_.", encoded,
                            sizeof encoded);
        REQUIRE(address_parse(encoded, strlen(encoded), "1", &again, &err) == HF_OK);
        REQUIRE(address_same(&is, &again) && strcmp(is.shown, again.shown) == 0);
    }
    err.text[0] = '\0';
    result = address_split(text, &parts, &err);
    REQUIRE(result == HF_OK || err.text[0]);
    if (result == HF_OK)
        REQUIRE(parts.hosts >= text && parts.hosts + parts.hosts_length == parts.path);
}

/* ---- sequencers and encodings ------------------------------------------------------------------ */

static void sequencer(const char *text, size_t size)
{
    struct sequencer is = {.mode = -7}, again;
    char written[HF_SEQUENCER_MAX];
    struct error_text err = {""};
    int result = sequencer_parse(text, size, &is, &err);
    size_t length;

    REQUIRE(result == HF_OK || (result == HF_EINVAL && err.text[0] && is.mode == -7));
    if (result != HF_OK)
        return;
    REQUIRE(is.token > 0 && is.token <= HF_TOKEN_MAX && is.mode >= 0 && is.mode <= 2);
    REQUIRE(is.name[0] && text_check_name(is.name, NULL) == HF_OK);
    length = sequencer_write(&is, written);
    REQUIRE(length == strlen(written) && length < HF_SEQUENCER_MAX);
    REQUIRE(sequencer_parse(written, length, &again, NULL) == HF_OK);
    REQUIRE(strcmp(is.store, again.store) == 0 && strcmp(is.name, again.name) == 0);
    REQUIRE(is.token == again.token && is.mode == again.mode);
}

static void percent(const char *text, size_t size)
{
    char *encoded = malloc(3 * size + 1), *decoded = malloc(size + 1);
    size_t length;

    REQUIRE(encoded && decoded);
    length = text_percent_encode(text, size, "-_.", encoded, 3 * size + 1);
    REQUIRE(length == strlen(encoded));
    REQUIRE(text_percent_decode(encoded, length, decoded, size + 1) == !memchr(text, '\0', size));
    REQUIRE(memchr(text, '\0', size) || memcmp(decoded, text, size) == 0);
    if (!memchr(text, '\0', size) && text_percent_decode(text, size, decoded, size + 1)) {
        size_t used = strlen(decoded);

        REQUIRE(used <= size && (used == 0 || !text_percent_decode(text, size, decoded, used)));
        REQUIRE(text_percent_decode(text, size, decoded, used + 1));
    }
    free(encoded);
    free(decoded);
}

/* Whole characters, each by itself, are what a text is made of. */
static void utf8(const char *text, size_t size)
{
    bool all = text_is_utf8(text, size), parts = true;

    for (size_t at = 0; at < size && parts;) {
        size_t length = 1;

        while (length <= 4 && length <= size - at && !text_is_utf8(text + at, length))
            length++;
        parts = length <= 4 && length <= size - at;
        at += length;
    }
    REQUIRE(all == parts);
}

const int fuzz_rounds = 400000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *bytes;

    if (size < 1)
        return 0;
    size--;
    text = fuzz_text(data + 1, size);
    bytes = (char *)fuzz_copy(data + 1, size);
    switch (data[0] % 8) {
    case 0:
        number(text);
        break;
    case 1:
        duration(text);
        break;
    case 2:
        host_port(bytes, size);
        break;
    case 3:
        address(text, strlen(text));
        break;
    case 4:
    case 5:
        sequencer(bytes, size);
        break;
    case 6:
        percent(bytes, size);
        break;
    default:
        utf8(bytes, size);
    }
    free(text);
    free(bytes);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const texts[] = {"9007199254740991",
                                        "1h30m5.5s",
                                        "[fe80::1]:7420",
                                        "%2Frun%2Fs.sock",
                                        "hf1.ab%2ecd.x.42.jobs/nightly",
                                        "hf1.s.p.1.a",
                                        "a%20b%c3%a9",
                                        "a\xc3\xa9\xf0\x9f\x98\x80",
                                        "18446744073709551616",
                                        "366d",
                                        "db-1.example.:80",
                                        "//u:p@h1,h2:5/path",
                                        "500ms",
                                        "1.5",
                                        "127.0.0.1:65535",
                                        "::1"};
    size_t size;

    if (n >= COUNT(texts))
        return 0;
    size = strlen(texts[n]);
    ret_bytes[0] = (uint8_t)(n % 8);
    memcpy(ret_bytes + 1, texts[n], size);
    if (n == 10 || n == 14 || n == 15)
        ret_bytes[0] = 2;
    if (n == 12 || n == 13)
        ret_bytes[0] = 1;
    return size + 1;
}
