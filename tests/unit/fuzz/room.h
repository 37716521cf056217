/* room.h: a data directory on a disk in memory, for the targets that have to do with files. */
#ifndef TESTS_FUZZ_ROOM_H
#define TESTS_FUZZ_ROOM_H

#include "fuzz.h"
#include "journal/directory.h"
#include "sim/disk.h"

struct room {
    struct sim_disk *disk;
    struct directory directory;
};

void room_begin(struct room *room);
void room_end(struct room *room);
/* A file with these bytes, and no others. */
void room_put(struct room *room, const char *name, const void *bytes, size_t size);
/* Some bytes of a file that is there; made longer if need be. */
void room_patch(struct room *room, const char *name, size_t at, const void *bytes, size_t size);
/* Up to so many bytes of a file; 0 if there is none. */
size_t room_get(struct room *room, const char *name, void *ret_bytes, size_t size);

#endif
