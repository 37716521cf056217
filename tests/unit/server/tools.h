/* tools.h: what the tests of src/server share: a directory of their own, and files in it. */
#ifndef TESTS_SERVER_TOOLS_H
#define TESTS_SERVER_TOOLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PATH_BYTES 512

/* Group set-up and tear-down: makes and removes the directory with all that is in it. */
int make_directory(void **state);
int remove_directory(void **state);
/* The path of a file in it; valid until the sixteenth call after this one. */
const char *path_of(const char *name);
/* Writes a file there with just this mode, and returns its path. */
const char *write_file(const char *name, const void *bytes, size_t size, mode_t mode);
/* All of a file, NUL-terminated; to be freed. */
char *read_whole(const char *path);

/* Says what it looked for, which assert_non_null(strstr()) does not. */
void assert_contains(const char *text, const char *part);

#endif
