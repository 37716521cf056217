/* lone.h: a node alone on a real directory, with no loop, no threads and no clock: what its replica asks for is done at once. */
#ifndef TESTS_NODE_LONE_H
#define TESTS_NODE_LONE_H

#include "node/recovery.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONE_BLOCK 4096 /* of the log: each entry that is smaller has one to itself */

struct lone {
    char home[PATH_MAX - 32]; /* removed by lone_free */
    char path[PATH_MAX];      /* the data directory, in home */
    struct replica_options options;
    size_t segment_bytes;
    struct recovery recovery;
    struct replica *replica; /* NULL: it is down */
    int64_t now_us;
    uint64_t written; /* the last append that the replica does not know to be durable; 0: none */
    bool snapshot_stored;
    enum replica_role role;
    unsigned answers;
    uint64_t token; /* the last one that was given */
    char stopped[ERROR_TEXT_MAX];
};

/* Node 1, in a new home below $HOLDFAST_TEST_DIR; its directory is not there yet. */
void lone_init(struct lone *lone);
void lone_free(struct lone *lone);
/* Reads what is there, and nothing more. If it fails, all is closed again. */
int lone_load(struct lone *lone, struct error_text *err);
/* Starts what was loaded; an empty one is founded. */
int lone_begin(struct lone *lone, struct error_text *err);
/* Both, and until it leads. */
void lone_serve(struct lone *lone);
/* Pumps until it has nothing more to do now. */
void lone_settle(struct lone *lone);
void lone_close(struct lone *lone);
/* Nothing is said to the disk any more. */
void lone_crash(struct lone *lone);
/* Name `number` is held from now on. */
void lone_hold(struct lone *lone, unsigned number);
/* So many of them, in one entry. */
void lone_hold_many(struct lone *lone, unsigned number, unsigned count);
struct core_counts lone_counts(const struct lone *lone);

/* ---- files ---- */
/* The last by name that begins so. */
bool lone_find_file(const struct lone *lone, const char *begins, char ret_path[2 * PATH_MAX]);
void flip_byte(const char *path, long offset);
bool has_file(const char *directory, const char *name);
void put_file(const char *directory, const char *name, const char *text);
/* Of the names and contents of all files but the lock's. */
uint64_t sum_of_directory(const char *path);
void remove_directory(const char *path);

#endif
