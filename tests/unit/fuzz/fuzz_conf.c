/* fuzz_conf.c: a configuration file: its lines, and what the server takes each of its settings for. The rest of the input after its first
 * byte is the file; that byte says which setting takes the whole of it for its value, too. What is refused is refused with the file and
 * the line, or in words; what a setting has taken is shown as something that it takes for the same. */
#include "base/conf.h"
#include "fuzz.h"
#include "server/settings.h"

#include <sys/mman.h>
#include <unistd.h>

#define PATH "the.conf"

/* ---- settings ---------------------------------------------------------------------------------- */

static bool same_setting(const struct setting *row, const struct config *one,
                         const struct config *other)
{
    static char a[SETTING_TEXT_MAX], b[SETTING_TEXT_MAX];

    setting_get(row, one, a);
    setting_get(row, other, b);
    return strcmp(a, b) == 0;
}

static void set(const struct setting *row, const char *text)
{
    static struct config config, again, untouched;
    static char shown[SETTING_TEXT_MAX];
    const void *bytes = &config, *as_before = &untouched;
    struct error_text err = {""};
    int result;

    memset(&config, 0x55, sizeof config);
    memset(&again, 0x55, sizeof again);
    memset(&untouched, 0x55, sizeof untouched);
    result = setting_set(row, text, &config, &err);
    REQUIRE(result == HF_OK || (result == HF_EINVAL && err.text[0]));
    if (result != HF_OK) {
        REQUIRE(memcmp(bytes, as_before, sizeof config) == 0);
        return;
    }
    setting_get(row, &config, shown);
    if (setting_set(row, shown, &again, &err) != HF_OK)
        fuzz_failed(__FILE__, __LINE__, "a value that is shown is not taken:", err.text);
    REQUIRE(same_setting(row, &config, &again));
}

/* ---- files ------------------------------------------------------------------------------------- */

struct lines {
    unsigned last; /* line */
    bool ends;     /* the next one is not liked */
};

static bool has_blank_end(const char *text)
{
    return strchr(" \t\r", text[0]) || strchr(" \t\r", text[strlen(text) - 1]);
}

static int take_line(void *context, const struct conf_line *line, struct error_text *err)
{
    struct lines *lines = context;

    REQUIRE(strcmp(line->path, PATH) == 0 && line->number > lines->last);
    REQUIRE(line->value[0] && !has_blank_end(line->value) && !strchr(line->value, '\n'));
    REQUIRE(!line->name[0] || !has_blank_end(line->name));
    REQUIRE(!strchr(line->name, '='));
    lines->last = line->number;
    for (size_t row = 0; row < setting_count; row++)
        if (strcmp(settings[row].name, line->name) == 0)
            set(&settings[row], line->value);
    return lines->ends ? error_set(err, -77, "not liked") : 0;
}

static void read_file(const uint8_t *bytes, size_t size, bool ends)
{
    struct lines lines = {.ends = ends};
    struct error_text err = {""};
    int fd = memfd_create("conf", MFD_CLOEXEC), result;

    REQUIRE(fd >= 0);
    REQUIRE(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    result = conf_read(fd, PATH, -78, take_line, &lines, &err);
    close(fd);
    REQUIRE(result == 0 || result == -78 || (ends && result == -77));
    REQUIRE((result == 0) == !err.text[0]);
    if (result == -78)
        REQUIRE(strncmp(err.text, PATH ":", sizeof PATH) == 0);
}

const int fuzz_rounds = 60000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1)
        return 0;
    text = fuzz_text(data + 1, size - 1);
    set(&settings[data[0] % setting_count], text);
    free(text);
    read_file(data + 1, size - 1, data[0] & 128);
    return 0;
}

static const char *some_value(const struct setting *row)
{
    static const struct {
        const char *kind, *value;
    } values[] = {{"ADDRESS,...", "[::1]:99,127.0.0.1:98,/run/s.sock"},
                  {"ID=ADDRESS,...", "1=127.0.0.1:99, 2=db2:98"},
                  {"HOST:PORT", "10.1.2.3:99"},
                  {"MODE", "0640"},
                  {"N", "77"},
                  {"SIZE", "2MiB"},
                  {"DURATION", "1m7.5s"}};

    for (size_t i = 0; i < COUNT(values); i++)
        if (strcmp(setting_value_name(row), values[i].kind) == 0)
            return values[i].value;
    return row->choices ? row->choices[0] : "/var/lib/x";
}

/* Each setting by itself, and files. */
size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const files[] = {
        "# all of it\nlisten = 127.0.0.1:7420 # here\n\n id=3\r\n\tkeepalive = 5s\n",
        "\xef\xbb\xbfmax-clients = 100\nlog-level = debug\nsnapshot-bytes = 1GiB",
        "cluster = 1=a:1,2=b:2\nsecret-file = /etc/s#x\njoin = yes\n",
        "listen = \"quoted\"\n",
        "no equals\n",
    };
    const char *text;

    if (n >= setting_count + COUNT(files))
        return 0;
    text = n < setting_count ? some_value(&settings[n]) : files[n - setting_count];
    ret_bytes[0] = (uint8_t)(n < setting_count ? n : 0);
    memcpy(ret_bytes + 1, text, strlen(text));
    return 1 + strlen(text);
}
