#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

int error_write(struct error_text *err, const char *format, ...)
{
    va_list args;

    if (!err)
        return 0;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    make_printable(err->text);
    return 0;
}

int error_write_errno(struct error_text *err, int errno_value, const char *format, ...)
{
    char reason[128];
    va_list args;
    size_t used;

    if (!err)
        return 0;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s",
             strerror_r(errno_value, reason, sizeof reason));
    make_printable(err->text);
    return 0;
}

const char *error_name(int code)
{
    static const char *const names[] = {
        "HF_OK",     "HF_EBUSY",   "HF_EUNKNOWN", "HF_ELOST",    "HF_ECANCELED", "HF_EINVAL",
        "HF_EMODE",  "HF_ENOTSUP", "HF_EWEAK",    "HF_EREFUSED", "HF_EUNREACH",  "HF_EIO",
        "HF_ENOMEM", "HF_EFORK",   "HF_EMODULE",  "HF_ESTORE",   "HF_EINTERNAL", "HF_ESTALE",
    };

    if (code > 0 || code < -(int)(sizeof names / sizeof *names) + 1)
        return "HF_E?";
    return names[-code];
}

void error_broken_invariant(const char *file, int line, const char *condition)
{
    fprintf(stderr, "holdfast: broken invariant at %s:%d: %s\n", file, line, condition);
    abort();
}

void error_out_of_memory(size_t size)
{
    fprintf(stderr, "holdfast: out of memory: %zu bytes are not to be had\n", size);
    abort();
}
