/* kept.h: the files of a directory, and of the folders in it, kept to be put back after each flipped bit. */
#ifndef TESTS_POWER_KEPT_H
#define TESTS_POWER_KEPT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEPT_MAX 64

struct kept {
    struct kept_file {
        char path[PATH_MAX]; /* below the directory */
        bool is_directory;
        unsigned char *bytes;
        size_t size;
    } files[KEPT_MAX];
    size_t count;
};

void kept_take(struct kept *kept, const char *directory);
/* Into an empty one; one bit of one of them is not what it was. flipped: its place; -1: none. */
void kept_put(const struct kept *kept, const char *directory, int flipped, uint64_t bit);
void kept_free(struct kept *kept);

/* Which bits of a file are flipped. step: of what is not zeros each so manyth; 0: in full, all eight of each byte of a small file or
 * one of each byte of a large one. The next one at or behind `from`, or UINT64_MAX. */
uint64_t kept_next_bit(const struct kept_file *file, uint64_t from, unsigned step);

#endif
