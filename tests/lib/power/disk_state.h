/* disk_state.h: what is on a disk for sure, and what may be there, after each call of a trace (trace.h).
 *
 * For sure is what was synced: the content of a file by fsync or fdatasync of the file, or by a write that is durable in itself, and
 * no more than that write; a name by fsync of the directory it is in. All else is pending: if the power fails now, each of these
 * calls may have reached the disk or not, in any order, a write in part. That is more than any file system in use allows. */
#ifndef TESTS_POWER_DISK_STATE_H
#define TESTS_POWER_DISK_STATE_H

#include "content.h"
#include "trace.h"

#include <stdbool.h>
#include <stddef.h>

#define DISK_OBJECTS_MAX 4096
#define DISK_PENDING_MAX 4096
#define DISK_ENTRIES_MAX 512

struct disk_names {
    struct disk_entry {
        char name[NAME_MAX + 1];
        int object;
    } * entries;
    size_t count;
};

struct disk_object { /* a file, or a directory; the first is the one below which everything is */
    uint64_t inode;
    bool is_directory;
    struct content content;  /* of a file, */
    struct disk_names names; /* or of a directory: what is there for sure */
};

struct disk_pending {
    const struct trace_record *record;
    int object; /* whose content or names it changes, */
    int named;  /* and what it gives a name to */
    bool must;  /* it is there, and waits only for those before it */
};

struct disk_state {
    unsigned char *trace;
    size_t size, at;
    struct disk_object *objects;
    int object_count;
    struct disk_pending *pending;
    int pending_count;
    uint64_t marks; /* so many have been passed, */
    uint64_t mark;  /* and the last said this */
    uint64_t number;
};

/* root: the inode of the directory below which was recorded. Fails the test if the trace cannot be read. */
void disk_state_load(struct disk_state *ret_state, const char *trace, uint64_t root);
void disk_state_free(struct disk_state *state);
/* The next call. False: that was all. */
bool disk_state_step(struct disk_state *state);

const unsigned char *trace_bytes(const struct trace_record *record);
/* To what is there: content of a file; `count` bytes of a write, from `from` on. */
void disk_names_apply(struct disk_names *names, const struct disk_pending *pending);
void disk_content_apply(struct content *content, const struct trace_record *record);
void disk_names_free(struct disk_names *names);
struct disk_names disk_names_copy(const struct disk_names *names);

#endif
