/* tools.h: what the tests of src/journal share: a data directory whose journal writes down what it tells,
 * records whose bytes follow from their numbers, and the files of a directory, to be kept, compared and
 * put back. */
#ifndef TESTS_JOURNAL_TOOLS_H
#define TESTS_JOURNAL_TOOLS_H

#include "journal/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_BYTES ((size_t)4096) /* as on disk: these are the tests' own */
#define RECORD_HEAD ((size_t)64)
#define TOLD_MAX 1024

/* ---- records ---------------------------------------------------------------------------------- */

struct
    told { /* a record that was written, or read; its bytes, chain and commit follow from index and term */
    uint64_t index, term;
    uint8_t type;
    size_t size;
};

struct log {
    struct told told[TOLD_MAX];
    size_t count;
};

/* One group: indexes go up from first; sizes end with SIZE_MAX. */
void log_add(struct log *log, uint64_t first, uint64_t term, const size_t *sizes);
size_t sizes_count(const size_t *sizes);
/* Where the n-th record of such a group begins, from the group's beginning; n may be their number. */
size_t record_begin(const size_t *sizes, size_t n);
void assert_same_log(const struct log *log, const struct log *expected);

/* ---- a directory and its journal -------------------------------------------------------------- */

struct room {
    char home[PATH_MAX], path[PATH_MAX + 8];
    struct directory directory;
    size_t segment_bytes;
    struct journal *journal; /* NULL: not open */
    struct log log;          /* what it told when it was opened last */
    struct error_text err;
    int stop_after; /* it is told to stop at that record; 0: never */
};

void room_init(struct room *room);
void room_free(struct room *room);
/* Opens it, no more. */
int room_read(struct room *room);
/* Opens and, if that went well, begins. */
int room_open(struct room *room);
void room_must_open(struct room *room);
/* As a crash leaves it; what is in the directory is what was written. */
void room_close(struct room *room);
/* As a clean stop leaves it. */
void room_stop(struct room *room);
void room_reopen(struct room *room);
/* Makes a spare segment, if one is wanted. */
void room_make_spare(struct room *room);
int room_try_append(struct room *room, const struct told *told, size_t count);
/* Must be HF_OK; gets a spare if it needs one. */
void room_append_told(struct room *room, const struct told *told, size_t count);
void room_append(struct room *room, uint64_t first, uint64_t term, const size_t *sizes);
/* The same, and the log is told of it. */
void room_log(struct room *room, struct log *log, uint64_t first, uint64_t term,
              const size_t *sizes);
#define SIZES(...) ((const size_t[]){__VA_ARGS__, SIZE_MAX})

void assert_says(const struct error_text *err, const char *words);

/* ---- files ------------------------------------------------------------------------------------ */

#define FILES_MAX 128

struct file {
    char name[NAME_MAX + 1];
    unsigned char *bytes;
    size_t size;
};

struct files { /* by name; without the lock's */
    struct file file[FILES_MAX];
    size_t count;
    struct file mark; /* apart: the file "end"; bytes NULL: there is none */
};

void files_keep(const char *path, struct files *ret_files);
void files_free(struct files *files);
/* Puts the directory back into that state. */
void files_restore(const char *path, const struct files *files);
/* The directory is what it was then, byte for byte. */
void assert_files(const char *path, const struct files *files);
/* NULL: there is none of that name. */
struct file *files_find(struct files *files, const char *name);
size_t files_bytes(const struct files *files);

void file_put(const char *path, const char *name, const void *bytes, size_t size);
void file_set(const char *path, const char *name, size_t offset, unsigned char byte);
void file_flip(const char *path, const char *name, size_t offset);
void file_remove(const char *path, const char *name);

/* Follows from its seed. */
uint64_t draw(uint64_t *seed, uint64_t limit);

#endif
