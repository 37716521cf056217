#include "tools.h"

#include <stdio.h>
#include <string.h>

hf_store *open_at(const char *format, ...)
{
    hf_store *store = NULL;
    char url[512];
    va_list args;

    va_start(args, format);
    vsnprintf(url, sizeof url, format, args);
    va_end(args);
    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s: %s", url, hf_error());
    return store;
}

hf_options with_wait(int64_t wait_ms)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = TTL_MS;
    options.wait_ms = wait_ms;
    return options;
}

void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

void must_say(const char *words)
{
    if (!strstr(hf_error(), words))
        fail_msg("'%s' does not say '%s'", hf_error(), words);
}
