/* inside.h: what stands in front of the C library asks failing.c. */
#ifndef TESTS_FAILING_INSIDE_H
#define TESTS_FAILING_INSIDE_H

#include "failing.h"

#define FAILING_SHORT (-1) /* among errnos: it does a part of it */
#define FAILING_WAYS_MAX 8

/* 0: it does not fail. Else the errno, which is also in errno, or FAILING_SHORT. ways: errnos, up to a 0. */
int failing_strike(enum failing_what what, const char *name, const int *ways);
void failing_allocated(const void *memory);
void failing_freed(const void *memory);

#endif
