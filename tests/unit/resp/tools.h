/* tools.h: what the tests of src/resp share. The linker sends their calls of malloc, memchr and
 * memmove through tools.c (see meson.build): work is counted, not timed, and memory can be made to
 * run out. */
#ifndef TESTS_RESP_TOOLS_H
#define TESTS_RESP_TOOLS_H

#include "resp/resp.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MB ((size_t)1 << 20)
#define GENEROUS ((struct resp_limits){8 * MB, 16 * MB, 1000000})
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define WIRE(text) (text), sizeof(text) - 1 /* text may contain NUL */

struct work {
    size_t calls, allocated; /* allocations, and their bytes */
    size_t live;             /* bytes allocated and not freed */
    size_t searched, moved;  /* bytes, by memchr and memmove */
    size_t fail_at;          /* the so-manieth allocation fails, and all after it; 0: none */
};
extern struct work work;

void count_from_here(void);

/* tools.c says of each what it does. */
void show(const struct resp_node *value, char *text, size_t room);
struct resp_reader *new_reader(struct resp_limits limits);
void feed(struct resp_reader *reader, const char *bytes, size_t size, size_t least);
int read_cut(const char *wire, size_t size, const size_t cuts[2], struct resp_limits limits,
             char shown[256], struct error_text *err);

#endif
