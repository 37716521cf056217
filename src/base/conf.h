/* conf.h: reading configuration files, of holdfastd and of its clients. Lines of the form
 *
 *     name = value        # a comment, which begins at the beginning of a line or after a blank
 *
 * without quotes. What a name means is the caller's business. */
#ifndef BASE_CONF_H
#define BASE_CONF_H

#include "base/error.h"

#include <stddef.h>

#define CONF_FILE_MAX 65536 /* bytes */
#define CONF_PATH_MAX 1024  /* bytes of a path, with its NUL */

struct conf_line {
    const char *path;
    unsigned number; /* from 1 */
    const char *name, *value;
};

/* 0 to go on; anything else ends the reading and is its result. */
typedef int conf_fn(void *context, const struct conf_line *line, struct error_text *err);

/* All of an open file, which stays the caller's. 0, what fn returned, or `code` with the file and the line in words. A `code` of enum
 * hf_result is for what is in the file: where memory or the disk fails, HF_ENOMEM or HF_EIO takes its place. */
int conf_read(int fd, const char *path, int code, conf_fn *fn, void *context,
              struct error_text *err);
/* The same of a file that may have `max` bytes in place of CONF_FILE_MAX. */
int conf_read_max(int fd, const char *path, size_t max, int code, conf_fn *fn, void *context,
                  struct error_text *err);
/* The same of what has been read already: text has room for a NUL behind its length, and is changed. */
int conf_parse(char *text, size_t length, const char *path, int code, conf_fn *fn, void *context,
               struct error_text *err);

#endif
