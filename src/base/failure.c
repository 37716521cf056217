/* failure.c: the last failure of a thread, in words.
 *
 * Calls collect their message in an error_text of their own and only a failing one is copied here,
 * so that a call which met trouble, tried again and succeeded leaves the older message alone. */
#include "base/failure.h"

#include <string.h>

static _Thread_local struct error_text last_failure;

void failure_note(int result, const struct error_text *err)
{
    if (result >= 0)
        return;
    if (err && err->text[0])
        memcpy(last_failure.text, err->text, strlen(err->text) + 1);
    else
        error_set(&last_failure, result, "%s", error_name(result));
}

const char *hf_error(void)
{
    return last_failure.text;
}

const char *hf_result_name(int result)
{
    return error_name(result);
}

const char *hf_version(void)
{
    return HOLDFAST_VERSION;
}
