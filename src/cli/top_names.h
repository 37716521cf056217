/* top_names.h: what `holdfast top` knows of the names it has seen, from one look at the store to the next. Knows no
 * terminal, and asks nobody. */
#ifndef CLI_TOP_NAMES_H
#define CLI_TOP_NAMES_H

#include <holdfast/holdfast.h>
#include <stdbool.h>

enum top_order { TOP_LONGEST, TOP_HOTTEST, TOP_BY_NAME, TOP_ORDERS };

struct top_name {
    char *text;
    uint64_t token; /* the greatest that was seen */
    uint64_t
        changes; /* how often that was another one at the next look; what came between two looks is not seen */
    double rate;    /* the same for each second, of the last half minute or so */
    bool is_listed; /* at the last look */
    bool is_asked;  /* who waits, since the last look */
    bool is_known;  /* who waits, as of any look */
    size_t waiters;
    int64_t longest_ms; /* of their waits; -1: not known, or nobody waits */
};

/* One hold; or a name that nobody held at the last look, and that changes often. */
struct top_row {
    size_t name;
    const hf_entry *entry; /* NULL: the latter */
};

struct top_names {
    struct top_name *names; /* by name */
    size_t count;
    hf_report *report; /* of the last look; entries live in it */
    struct top_row *rows;
    size_t row_count, held_count; /* names that are held */
    int64_t began_ms, looked_ms;  /* clock_boot_ms of the first look and the last; 0: never */
    uint64_t changes;
    double rate;
};

/* Takes the report, whatever the answer. False: out of memory, and all is as it was. */
bool top_names_take(struct top_names *known, hf_report *report, enum top_order order,
                    int64_t now_ms);
void top_names_sort(struct top_names *known, enum top_order order);
struct top_name *top_names_find(struct top_names *known, const char *text);
/* Of one name, as hf_show tells. */
void top_names_note_waiters(struct top_name *name, const hf_report *shown);
void top_names_free(struct top_names *known);

#endif
