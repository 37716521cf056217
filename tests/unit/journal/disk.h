/* disk.h: what the room asks of the disk goes through here: it is remembered, and may be made to fail.
 * Nothing is synced unless a test wants it: what counts is what was asked for. */
#ifndef TESTS_JOURNAL_DISK_H
#define TESTS_JOURNAL_DISK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DISK_CALLS_MAX 512

/* Reading may fail, and is not remembered. */
enum disk_kind { DISK_OPEN, DISK_WRITE, DISK_SYNC, DISK_RENAME, DISK_REMOVE, DISK_SHORTEN };

struct disk_call {
    enum disk_kind kind;
    char name[64]; /* of the file; "." for the directory */
    off_t offset;  /* of a write */
    size_t size;
    bool durable; /* a write: with RWF_DSYNC; a sync: fdatasync */
};

struct watched_disk {
    struct disk_call calls[DISK_CALLS_MAX]; /* that did not fail, as far as there is room */
    size_t count;
    int fail_in;            /* the n-th call from now fails; 0: none */
    bool fail_on;           /* and so do all after it: the machine is gone */
    int failure;            /* with that errno */
    bool direct_is_unknown; /* stays: as on some file systems, and faster in a test of many steps */
    int dsync_fails;        /* with that errno a write with RWF_DSYNC does; 0: it is known */
    bool direct_fails;      /* to write past the cache does, although a file can be opened for it */
    bool takes_nothing;     /* a write writes 0 bytes */
    size_t write_at_most, read_at_most; /* 0: all of it */
    int interruptions;                  /* so many reads and writes fail with EINTR first */
};

extern struct watched_disk disk;

/* Forgets what was asked for, and fails no more. */
void disk_reset(void);
void disk_fail_in(int calls, int failure);
void disk_die_in(int calls);
/* How often was it asked for? name NULL: of any file. */
size_t disk_count(enum disk_kind kind, const char *name);
/* How many of the calls were to store the mark; at least one. */
size_t disk_of_mark(void);
/* The place of the n-th such call (from 0); fails the test if there is none. */
size_t disk_find(enum disk_kind kind, const char *name, size_t nth);

#endif
