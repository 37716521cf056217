/* disk_inside.h: the disk in memory, for disk.c (what is on it, and what a crash leaves), disk_bytes.c (what is in a file) and disk_table.c
 * (its functions). */
#ifndef SIM_DISK_INSIDE_H
#define SIM_DISK_INSIDE_H

#include "sim/disk.h"

#define NAME_BYTES 64

#define PAGE_BYTES ((size_t)4096)

struct page {
    uint32_t users;    /* so many refer to it; only its single one may change it */
    struct page *next; /* if nobody does */
    unsigned char at[PAGE_BYTES];
};

struct bytes {
    struct page **pages; /* NULL: zeros. What is behind the size is zeros, too */
    size_t page_count, page_room;
    size_t size;
};

struct change { /* of a file, since it was synced */
    bool resized;
    bool durable; /* what a crash keeps in any case */
    uint64_t offset;
    size_t size;        /* of what was written; resized: its new size */
    struct bytes bytes; /* the pages that were written, as they were then; resized: none */
};

struct file {
    struct bytes now, kept; /* as it is, and what is durable of it */
    struct change *changes;
    size_t change_count;
    int locked;        /* by that handle; -1: not */
    bool used;         /* somebody refers to it, while that is found out */
    struct file *copy; /* while a disk is copied */
    unsigned char *looked_at;
};

struct name {
    char name[NAME_BYTES];
    struct file *file;
};

struct names {
    struct name *names;
    size_t count;
};

struct renaming {                          /* a change of names since the directory was synced */
    char from[NAME_BYTES], to[NAME_BYTES]; /* "": it was made; it was removed */
    struct file *file;
};

struct directory_in_memory {
    char path[PATH_MAX];
    bool kept; /* its own name is durable */
    struct names now, durable;
    struct renaming *renamings;
    size_t renaming_count;
};

struct handle {
    int number;
    struct directory_in_memory *directory; /* NULL: it is a file's */
    struct file *file;
};

struct sim_disk {
    struct disk table;
    uint64_t seed;
    struct directory_in_memory **directories;
    size_t directory_count;
    struct file **files;
    size_t file_count;
    struct handle *handles;
    size_t handle_count;
    int next_handle;
    uint64_t writes, stop_at; /* at that number of writes; 0: never */
    uint64_t operations, fail_at, read;
    uint64_t limit;
    bool stopped;
};

/* Room for one more at the end of an array. */
void *sim_grow(void *array, size_t count, size_t item);
uint64_t sim_draw(struct sim_disk *disk, uint64_t limit);

struct directory_in_memory *sim_directory(const struct sim_disk *disk, const char *path);
struct file *sim_file_new(struct sim_disk *disk);
/* NULL: there is none. */
struct name *names_find(const struct names *names, const char *name);
void names_put(struct names *names, const char *name, struct file *file);
void names_remove(struct names *names, const char *name);
/* Becomes as the other. */
void names_take(struct names *names, const struct names *from);

/* Zeros where there was nothing. */
void bytes_resize(struct bytes *bytes, size_t size);
void bytes_put(struct bytes *bytes, uint64_t offset, const void *from, size_t size);
/* What the other has there, at the same place. */
void bytes_put_same(struct bytes *bytes, const struct bytes *from, uint64_t offset, size_t size);
/* All of it is there. */
void bytes_get(const struct bytes *bytes, uint64_t offset, void *to, size_t size);
/* Becomes as the other. */
void bytes_take(struct bytes *bytes, const struct bytes *from);
/* Those of its pages in which this is: they begin at the border before the offset. */
void bytes_take_pages(struct bytes *bytes, const struct bytes *from, uint64_t offset, size_t size);
void bytes_flip(struct bytes *bytes, uint64_t bit);
void bytes_free(struct bytes *bytes);
/* What this thread keeps of pages that nobody uses. */
void bytes_forget(void);
void file_synced(struct file *file);
/* Frees what nobody refers to any more. */
void sim_sweep(struct sim_disk *disk);

void sim_disk_fill_table(struct sim_disk *disk);

#endif
