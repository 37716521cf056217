/* disk.h: all that this room asks of a disk, as a table of functions: the system's own disk is one, the simulator's, which
 * loses and tears what was not synced, another.
 *
 * Each returns 0, or an errno: whoever asked knows which file it was about, and makes words of both. A handle stands for an
 * open file or directory; what number it is, is the disk's business, but never below 0. For any thread, if the disk's
 * owner does not say otherwise. */
#ifndef JOURNAL_DISK_H
#define JOURNAL_DISK_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum disk_open {
    DISK_FOR_READING = 1,
    DISK_FOR_WRITING,
    DISK_MADE_IF_MISSING, /* for both */
    DISK_EMPTIED,         /* for writing: made, or as if it had been */
    DISK_EMPTIED_DIRECT /* the same, past the system's cache if that can be: whole blocks, at a border */
};

/* False: that was enough. */
typedef bool disk_name_fn(void *context, const char *name);

struct disk {
    void *context; /* the disk's own */

    /* ---- directories, by path ---- */
    /* EEXIST: there is one. Its name is not durable before sync_parent. */
    int (*make_directory)(const struct disk *disk, const char *path, unsigned mode);
    int (*sync_parent)(const struct disk *disk, const char *path);
    /* Absolute, without links. */
    int (*real_path)(const struct disk *disk, const char *path, char ret_path[PATH_MAX]);
    int (*open_directory)(const struct disk *disk, const char *path, int *ret_directory);

    /* ---- the names in one ---- */
    /* Each of them, in no order. fn may remove files. */
    int (*list)(const struct disk *disk, int directory, disk_name_fn *fn, void *context);
    /* 0: it is there. ENOENT: it is not. */
    int (*look)(const struct disk *disk, int directory, const char *name);
    int (*rename)(const struct disk *disk, int directory, const char *from, const char *to);
    /* gently: some file systems take milliseconds for it, and let nobody write meanwhile; the call lasts longer, so that others
     * get their turn before the next one. */
    int (*remove)(const struct disk *disk, int directory, const char *name, bool gently);
    /* Its names are durable as they are now. */
    int (*sync_directory)(const struct disk *disk, int directory);

    /* ---- files ---- */
    int (*open)(const struct disk *disk, int directory, const char *name, enum disk_open how,
                int *ret_file);
    /* Of a directory, too. */
    int (*close)(const struct disk *disk, int handle);
    /* Against all others, until it is closed; a number that says who has it is its content. EAGAIN, EACCES: another has it. */
    int (*lock)(const struct disk *disk, int file);
    int (*size)(const struct disk *disk, int file, uint64_t *ret_size);
    /* Up to the end of the file; what was read is counted. */
    int (*read)(const struct disk *disk, int file, void *bytes, size_t size, uint64_t offset,
                size_t *ret_count);
    /* All of it. durable: it is when this returns 0. */
    int (*write)(const struct disk *disk, int file, const void *bytes, size_t size, uint64_t offset,
                 bool durable);
    /* At least so many bytes, zeros where there were none. */
    int (*make_room)(const struct disk *disk, int file, uint64_t size);
    int (*truncate)(const struct disk *disk, int file, uint64_t size);
    int (*sync)(const struct disk *disk, int file);

    /* ---- and chance, for salts ---- */
    void (*random)(const struct disk *disk, void *bytes, size_t size);
};

/* The one this process runs on. Its handles are file descriptors. */
const struct disk *disk_system(void);
/* It was tried to write what is durable in itself, and that is not known there. A test may forget it. */
extern atomic_bool disk_system_syncs_apart;

#endif
