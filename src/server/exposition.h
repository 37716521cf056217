/* exposition.h: the text in which Prometheus reads metrics (version 0.0.4 of its text format): a family has a line of help, one of its type,
 * and then its samples. */
#ifndef SERVER_EXPOSITION_H
#define SERVER_EXPOSITION_H

#include "base/histogram.h"
#include "base/textbuf.h"

#include <stdint.h>

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* kind: "counter", "gauge" or "histogram". help: one line, without backslashes. */
void exposition_family(struct textbuf *out, const char *name, const char *kind, const char *help);
struct exposition_label {
    const char *name; /* NULL: none */
    const char *value;
    size_t size; /* of the value, which is UTF-8 */
};
/* The value in units of a millionth, for times; else as it is. */
void exposition_number(struct textbuf *out, const char *name, struct exposition_label label,
                       uint64_t value);
void exposition_micro(struct textbuf *out, const char *name, struct exposition_label label,
                      uint64_t value_micro);
/* The samples of a histogram, in seconds. */
void exposition_histogram(struct textbuf *out, const char *name, const struct histogram *histogram);

#endif
