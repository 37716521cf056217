/* trace.h: what a recorded process asked of the kernel, as bytes in a file: one record behind the other, in the order in which
 * the calls returned. Written by recorder.c, read by disk_state.c. */
#ifndef TESTS_POWER_TRACE_H
#define TESTS_POWER_TRACE_H

#include <limits.h>
#include <stdint.h>

enum trace_kind {
    TRACE_MARK = 1,   /* the process says that something was acknowledged: `offset` is its number */
    TRACE_CREATE,     /* directory, name: a new file or directory `inode` */
    TRACE_LINK,       /* directory, name: another name of `inode` */
    TRACE_UNLINK,     /* directory, name */
    TRACE_RENAME,     /* directory, name → other_directory, other_name: `inode` */
    TRACE_WRITE,      /* inode, offset, bytes */
    TRACE_STORED,     /* the same, by a store into memory that is mapped */
    TRACE_SIZE,       /* inode: it has `offset` bytes from now on */
    TRACE_ROOM,       /* inode: at least so many */
    TRACE_DURABLE,    /* the write just before, of this inode, was made durable by itself */
    TRACE_SYNC_BEGIN, /* inode: what was done to it until now is durable when the next one is there */
    TRACE_SYNC_END    /* `offset`: the number of its TRACE_SYNC_BEGIN */
};

struct trace_record { /* then the bytes, up to a multiple of 8 */
    uint32_t kind;
    uint32_t size;   /* of the bytes */
    uint64_t number; /* 1, 2, 3… */
    uint64_t inode, offset;
    uint64_t directory, other_directory;
    uint32_t is_directory, pad;
    char name[NAME_MAX + 1], other_name[NAME_MAX + 1];
};

#endif
