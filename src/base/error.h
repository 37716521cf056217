/* error.h: a failure in words. Functions that can fail return HF_OK or a negative HF_E... and put
 * one line for a person into the error_text they were given. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <holdfast/holdfast.h>

#define ERROR_TEXT_MAX 512

struct error_text {
    char text[ERROR_TEXT_MAX];
};

/* Writes the message and gives the code, so that callers can `return error_set(...)`. err may be
 * NULL. A message too long is cut. Control characters that came in from outside are shown as '?'.
 * Macros, so that a checker which sees one file at a time sees the code come back as it went in. */
#define error_set(err, code, ...) error_code((code), error_write((err), __VA_ARGS__))
/* The same, followed by ": " and what errno_value means. The code must not depend on errno. */
#define error_set_errno(err, code, errno_value, ...) \
    error_code((code), error_write_errno((err), (errno_value), __VA_ARGS__))

/* Both return 0. */
int error_write(struct error_text *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int error_write_errno(struct error_text *err, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline int error_code(int code, int written)
{
    (void)written;
    return code;
}

/* "HF_EBUSY" */
const char *error_name(int code);

/* A broken invariant: says where and aborts, in release builds too. Never for bytes from outside.
 */
#define INVARIANT(condition) \
    ((condition) ? (void)0 : error_broken_invariant(__FILE__, __LINE__, #condition))
_Noreturn void error_broken_invariant(const char *file, int line, const char *condition);
/* For a server that must not go on without what it asked for: says so and aborts. Never in a library. */
_Noreturn void error_out_of_memory(size_t size);

#endif
