#include "server/exposition.h"

#include <inttypes.h>

#define MICRO UINT64_C(1000000)

void exposition_family(struct textbuf *out, const char *name, const char *kind, const char *help)
{
    textbuf_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

/* Three characters have a meaning in there. */
static void write_value(struct textbuf *out, const char *value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (value[i] == '\n')
            textbuf_words(out, "\\n");
        else if (value[i] == '"' || value[i] == '\\')
            textbuf_bytes(out, (const char[]){'\\', value[i]}, 2);
        else
            textbuf_bytes(out, &value[i], 1);
}

static void write_name(struct textbuf *out, const char *name, struct exposition_label label)
{
    textbuf_words(out, name);
    if (label.name) {
        textbuf_format(out, "{%s=\"", label.name);
        write_value(out, label.value, label.size);
        textbuf_words(out, "\"}");
    }
}

void exposition_number(struct textbuf *out, const char *name, struct exposition_label label,
                       uint64_t value)
{
    write_name(out, name, label);
    textbuf_format(out, " %" PRIu64 "\n", value);
}

void exposition_micro(struct textbuf *out, const char *name, struct exposition_label label,
                      uint64_t value_micro)
{
    write_name(out, name, label);
    textbuf_format(out, " %" PRIu64 ".%06" PRIu64 "\n", value_micro / MICRO, value_micro % MICRO);
}

/* A bound as somebody would write it: "0.0025", "10". */
static void write_bound(struct textbuf *out, uint64_t us)
{
    uint64_t part = us % MICRO;
    int digits = 6;

    textbuf_format(out, "%" PRIu64, us / MICRO);
    if (part == 0)
        return;
    for (; part % 10 == 0; part /= 10)
        digits--;
    textbuf_format(out, ".%0*" PRIu64, digits, part);
}

void exposition_histogram(struct textbuf *out, const char *name, const struct histogram *histogram)
{
    uint64_t count = 0;

    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        count += histogram->buckets[i];
        textbuf_format(out, "%s_bucket{le=\"", name);
        if (i < HISTOGRAM_BOUNDS)
            write_bound(out, histogram_bounds_us[i]);
        else
            textbuf_words(out, "+Inf");
        textbuf_format(out, "\"} %" PRIu64 "\n", count);
    }
    textbuf_format(out, "%s_sum %" PRIu64 ".%06" PRIu64 "\n%s_count %" PRIu64 "\n", name,
                   histogram->sum_us / MICRO, histogram->sum_us % MICRO, name, count);
}
