/* failure.h: what hf_error() says. For the public functions of every room. */
#ifndef BASE_FAILURE_H
#define BASE_FAILURE_H

#include "base/error.h"

/* Keeps the words of a failure, those of this thread; a result that is none changes nothing. */
void failure_note(int result, const struct error_text *err);

static inline int failure_keep(int result, const struct error_text *err)
{
    failure_note(result, err);
    return result;
}

#endif
