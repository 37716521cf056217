/* life.h: a journal, a term and snapshots on a disk in memory that may lose its power at any write, and a model of what must be
 * there again: all that was acknowledged, and of the step that was under way all, nothing, or its first records. */
#ifndef TESTS_JOURNAL_LIFE_H
#define TESTS_JOURNAL_LIFE_H

#include "journal/journal.h"
#include "journal/snapshot_file.h"
#include "journal/term.h"
#include "sim/disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIFE_PATH "data"
#define LIFE_INDEXES 160 /* the log is reset before it has more */
#define LIFE_GROUP_MAX 4
#define LIFE_CANDIDATES (LIFE_GROUP_MAX + 1)

struct entry { /* its bytes, chain and commit follow from these and its index */
    uint64_t term;
    uint32_t size;
    uint8_t type;
};

struct model {
    struct entry log[LIFE_INDEXES]; /* by index, from base on */
    uint64_t base, first, next;     /* first and next are equal: it is empty */
    uint64_t kept;                  /* what is below may have been removed */
    uint64_t term, vote;
    uint64_t snapshot; /* the newest snapshot's index; 0: none */
};

enum life_step {
    LIFE_APPEND,
    LIFE_REPLACE, /* as far as there is something to be replaced */
    LIFE_LARGE,   /* more than a segment has room for */
    LIFE_SPARE,
    LIFE_REMOVE,
    LIFE_RESET,
    LIFE_TERM,
    LIFE_SNAPSHOT,
    LIFE_STOP,   /* and start again */
    LIFE_REOPEN, /* after a death of the process alone */
    LIFE_STEPS
};

struct life {
    uint64_t start, seed;
    struct sim_disk *disk;    /* NULL: the disk of this machine */
    const char *path;         /* of the data directory there; borrowed */
    const struct disk *table; /* what is in front of it, or in its place; NULL: it has its own */
    struct directory directory;
    bool entered; /* it is open */
    struct journal *journal;
    struct term term;
    size_t segment_bytes;
    uint64_t stamp;                      /* no two appends have the same term */
    struct model acked;                  /* all this must be there; */
    struct model maybe[LIFE_CANDIDATES]; /* or one of these instead */
    size_t maybe_count;
    size_t tried;          /* so many of these were possible while the last step was under way */
    struct model seen;     /* when it was opened last */
    bool may_fail;         /* a step may, although the power is on: */
    int result;            /* the last one that did, */
    struct error_text err; /* and its words */
    uint64_t crashes;
    char where[96]; /* for messages */
};

void life_begin(struct life *life, uint64_t seed);
/* On the disk of this machine: nothing is lost there. */
void life_begin_at(struct life *life, uint64_t seed, const char *path);
void life_end(struct life *life);
/* False: the power has failed. */
bool life_step(struct life *life, enum life_step step);
/* Everything is closed, and of what was not durable some is gone. */
void life_crash(struct life *life);
/* Opens all again; fails the test if that is refused, or is not what must be there. False: the power has failed again. */
bool life_recover(struct life *life);
/* Opens all, no more: HF_OK, or what it was refused with. What was seen is in life->seen. */
int life_open(struct life *life, struct error_text *err);
void life_close(struct life *life);
/* What was seen is that. */
bool life_has_seen(const struct life *life, const struct model *model);

/* Reads so much of the log while it is open, and compares it with what was acknowledged. Returns how many records there were; -1: the
 * journal says that they are gone, which may be only if they may. */
int life_read_range(struct life *life, uint64_t from, uint64_t to, size_t bytes_max);
/* Any such range. */
void life_read_some(struct life *life);

uint64_t life_draw(uint64_t *seed, uint64_t limit);
/* The record of an entry; bytes: room for it. */
struct journal_record life_record(uint64_t index, const struct entry *entry, unsigned char *bytes);
bool life_is_record(const struct journal_record *record, const struct entry *entry);
/* So many lives or steps; HF_SOAK=1: 50 times as many. */
uint64_t life_count(uint64_t count);

#endif
