/* disk_table.c: what src/journal asks of a disk, done in memory. */
#include "base/error.h"
#include "sim/disk_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_disk *sim_of(const struct disk *table)
{
    return table->context;
}

/* Before each operation: 0, or why it fails. */
static int begin(struct sim_disk *disk)
{
    disk->operations++;
    return disk->stopped || disk->operations == disk->fail_at ? EIO : 0;
}

/* The same before one that changes or syncs something, and has to ask is_cut then. */
static int begin_write(struct sim_disk *disk)
{
    int failure = begin(disk);

    if (!failure)
        disk->writes++;
    return failure;
}

/* The power fails in the middle of this one: it is done, and not durable, and nobody hears of it. */
static bool is_cut(struct sim_disk *disk)
{
    disk->stopped = disk->stop_at > 0 && disk->writes >= disk->stop_at;
    return disk->stopped;
}

/* ---- handles ---------------------------------------------------------------------------------- */

static int handle_new(struct sim_disk *disk, struct directory_in_memory *directory,
                      struct file *file)
{
    disk->handles = sim_grow(disk->handles, disk->handle_count, sizeof *disk->handles);
    disk->handles[disk->handle_count++] =
        (struct handle){.number = disk->next_handle, .directory = directory, .file = file};
    return disk->next_handle++;
}

static struct handle *handle_find(const struct sim_disk *disk, int number)
{
    for (size_t i = 0; i < disk->handle_count; i++)
        if (disk->handles[i].number == number)
            return &disk->handles[i];
    return NULL;
}

static struct directory_in_memory *directory_of(const struct sim_disk *disk, int number)
{
    const struct handle *handle = handle_find(disk, number);

    return handle ? handle->directory : NULL;
}

static struct file *file_of(const struct sim_disk *disk, int number)
{
    const struct handle *handle = handle_find(disk, number);

    return handle ? handle->file : NULL;
}

static int close_handle(const struct disk *table, int number)
{
    struct sim_disk *disk = sim_of(table);
    struct handle *handle = handle_find(disk, number);

    if (!handle)
        return EBADF;
    if (handle->file && handle->file->locked == number)
        handle->file->locked = -1;
    *handle = disk->handles[--disk->handle_count];
    sim_sweep(disk);
    return 0;
}

/* ---- directories ------------------------------------------------------------------------------ */

static int make_directory(const struct disk *table, const char *path, unsigned mode)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory;
    int failure = begin(disk);

    (void)mode;
    if (failure || sim_directory(disk, path))
        return failure ? failure : EEXIST;
    disk->writes++;
    directory = calloc(1, sizeof *directory);
    INVARIANT(directory != NULL);
    snprintf(directory->path, sizeof directory->path, "%s", path);
    disk->directories =
        sim_grow(disk->directories, disk->directory_count, sizeof *disk->directories);
    disk->directories[disk->directory_count++] = directory;
    return is_cut(disk) ? EIO : 0;
}

static int sync_parent(const struct disk *table, const char *path)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = sim_directory(disk, path);
    int failure = begin_write(disk);

    if (failure || is_cut(disk))
        return EIO;
    if (!directory)
        return ENOENT;
    directory->kept = true;
    return 0;
}

static int real_path(const struct disk *table, const char *path, char ret_path[PATH_MAX])
{
    struct sim_disk *disk = sim_of(table);
    int failure = begin(disk);

    if (failure)
        return failure;
    snprintf(ret_path, PATH_MAX, "%s", path);
    return sim_directory(disk, path) ? 0 : ENOENT;
}

static int open_directory(const struct disk *table, const char *path, int *ret_directory)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = sim_directory(disk, path);
    int failure = begin(disk);

    if (failure || !directory)
        return failure ? failure : ENOENT;
    *ret_directory = handle_new(disk, directory, NULL);
    return 0;
}

static int list(const struct disk *table, int number, disk_name_fn *fn, void *context)
{
    struct sim_disk *disk = sim_of(table);
    const struct directory_in_memory *directory = directory_of(disk, number);
    struct names names = {0};
    int failure = begin(disk);

    if (failure || !directory)
        return failure ? failure : EBADF;
    names_take(&names, &directory->now);
    for (size_t i = 0; i < names.count && fn(context, names.names[i].name); i++)
        ;
    free(names.names);
    return 0;
}

static int look(const struct disk *table, int number, const char *name)
{
    struct sim_disk *disk = sim_of(table);
    const struct directory_in_memory *directory = directory_of(disk, number);
    int failure = begin(disk);

    if (failure || !directory)
        return failure ? failure : EBADF;
    return names_find(&directory->now, name) ? 0 : ENOENT;
}

static void note_renaming(struct directory_in_memory *directory, const char *from, const char *to,
                          struct file *file)
{
    struct renaming *renaming;

    directory->renamings =
        sim_grow(directory->renamings, directory->renaming_count, sizeof *directory->renamings);
    renaming = &directory->renamings[directory->renaming_count++];
    *renaming = (struct renaming){.file = file};
    snprintf(renaming->from, sizeof renaming->from, "%s", from);
    snprintf(renaming->to, sizeof renaming->to, "%s", to);
}

static int rename_file(const struct disk *table, int number, const char *from, const char *to)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = directory_of(disk, number);
    const struct name *name;
    struct file *file;
    int failure = begin_write(disk);

    if (failure || !directory || strlen(to) >= NAME_BYTES)
        return failure ? failure : directory ? ENAMETOOLONG : EBADF;
    name = names_find(&directory->now, from);
    if (!name)
        return ENOENT;
    file = name->file;
    note_renaming(directory, from, to, file);
    names_remove(&directory->now, from);
    names_put(&directory->now, to, file);
    return is_cut(disk) ? EIO : 0;
}

static int remove_file(const struct disk *table, int number, const char *name, bool gently)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = directory_of(disk, number);
    const struct name *place;
    int failure = begin_write(disk);

    (void)gently;
    if (failure || !directory)
        return failure ? failure : EBADF;
    place = names_find(&directory->now, name);
    if (!place)
        return ENOENT;
    note_renaming(directory, name, "", place->file);
    names_remove(&directory->now, name);
    return is_cut(disk) ? EIO : 0;
}

static int sync_directory(const struct disk *table, int number)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = directory_of(disk, number);
    int failure = begin_write(disk);

    if (failure || !directory)
        return failure ? failure : EBADF;
    if (is_cut(disk))
        return EIO;
    directory->renaming_count = 0;
    names_take(&directory->durable, &directory->now);
    sim_sweep(disk);
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------ */

/* How it is now is done already. */
static void note_change(struct file *file, bool resized, uint64_t offset, size_t size, bool durable)
{
    struct change change = {.resized = resized, .durable = durable, .offset = offset, .size = size};

    if (!resized && size > 0)
        bytes_take_pages(&change.bytes, &file->now, offset, size);
    file->changes = sim_grow(file->changes, file->change_count, sizeof *file->changes);
    file->changes[file->change_count++] = change;
}

static int open_file(const struct disk *table, int number, const char *name, enum disk_open how,
                     int *ret_file)
{
    struct sim_disk *disk = sim_of(table);
    struct directory_in_memory *directory = directory_of(disk, number);
    const struct name *place = directory ? names_find(&directory->now, name) : NULL;
    struct file *file = place ? place->file : NULL;
    bool made = !file && how >= DISK_MADE_IF_MISSING;
    bool emptied = file && how >= DISK_EMPTIED && file->now.size > 0;
    int failure = made || emptied ? begin_write(disk) : begin(disk);

    *ret_file = -1;
    if (failure || !directory)
        return failure ? failure : EBADF;
    if (!file && !made)
        return ENOENT;
    if (strlen(name) >= NAME_BYTES)
        return ENAMETOOLONG;
    if (made) {
        file = sim_file_new(disk);
        names_put(&directory->now, name, file);
        note_renaming(directory, "", name, file);
    }
    if (emptied) {
        bytes_resize(&file->now, 0);
        note_change(file, true, 0, 0, false);
    }
    if ((made || emptied) && is_cut(disk))
        return EIO;
    *ret_file = handle_new(disk, NULL, file);
    return 0;
}

static int lock(const struct disk *table, int number)
{
    struct sim_disk *disk = sim_of(table);
    struct file *file = file_of(disk, number);
    int failure = begin(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    if (file->locked >= 0 && file->locked != number)
        return EAGAIN;
    file->locked = number;
    return 0;
}

static int file_size(const struct disk *table, int number, uint64_t *ret_size)
{
    struct sim_disk *disk = sim_of(table);
    const struct file *file = file_of(disk, number);
    int failure = begin(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    *ret_size = file->now.size;
    return 0;
}

static int read_file(const struct disk *table, int number, void *bytes, size_t size,
                     uint64_t offset, size_t *ret_count)
{
    struct sim_disk *disk = sim_of(table);
    const struct file *file = file_of(disk, number);
    int failure = begin(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    if (offset >= file->now.size)
        size = 0;
    else if (size > file->now.size - offset)
        size = file->now.size - offset;
    bytes_get(&file->now, offset, bytes, size);
    *ret_count = size;
    disk->read += size;
    return 0;
}

static bool has_room(const struct sim_disk *disk, const struct file *file, uint64_t size)
{
    uint64_t used = 0;

    if (size <= file->now.size || disk->limit == UINT64_MAX)
        return true;
    for (size_t i = 0; i < disk->file_count; i++)
        used += disk->files[i] == file ? size : disk->files[i]->now.size;
    return used <= disk->limit;
}

static int write_file(const struct disk *table, int number, const void *bytes, size_t size,
                      uint64_t offset, bool durable)
{
    struct sim_disk *disk = sim_of(table);
    struct file *file = file_of(disk, number);
    int failure = begin_write(disk);
    bool cut;

    if (failure || !file)
        return failure ? failure : EBADF;
    if (!has_room(disk, file, offset + size))
        return ENOSPC;
    cut = is_cut(disk);
    bytes_put(&file->now, offset, bytes, size);
    if (durable && !cut && file->change_count == 0)
        bytes_put_same(&file->kept, &file->now, offset, size);
    else
        note_change(file, false, offset, size, durable && !cut);
    return cut ? EIO : 0;
}

static int resize_file(struct sim_disk *disk, struct file *file, uint64_t size)
{
    if (!has_room(disk, file, size))
        return ENOSPC;
    bytes_resize(&file->now, size);
    note_change(file, true, 0, size, false);
    return is_cut(disk) ? EIO : 0;
}

static int make_room(const struct disk *table, int number, uint64_t size)
{
    struct sim_disk *disk = sim_of(table);
    struct file *file = file_of(disk, number);
    int failure = begin_write(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    return size <= file->now.size ? 0 : resize_file(disk, file, size);
}

static int truncate_file(const struct disk *table, int number, uint64_t size)
{
    struct sim_disk *disk = sim_of(table);
    struct file *file = file_of(disk, number);
    int failure = begin_write(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    return resize_file(disk, file, size);
}

static int sync_file(const struct disk *table, int number)
{
    struct sim_disk *disk = sim_of(table);
    struct file *file = file_of(disk, number);
    int failure = begin_write(disk);

    if (failure || !file)
        return failure ? failure : EBADF;
    if (is_cut(disk))
        return EIO;
    file_synced(file);
    return 0;
}

static void randomize(const struct disk *table, void *bytes, size_t size)
{
    unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)sim_draw(sim_of(table), 256);
}

void sim_disk_fill_table(struct sim_disk *disk)
{
    disk->table = (struct disk){
        .context = disk,
        .make_directory = make_directory,
        .sync_parent = sync_parent,
        .real_path = real_path,
        .open_directory = open_directory,
        .list = list,
        .look = look,
        .rename = rename_file,
        .remove = remove_file,
        .sync_directory = sync_directory,
        .open = open_file,
        .close = close_handle,
        .lock = lock,
        .size = file_size,
        .read = read_file,
        .write = write_file,
        .make_room = make_room,
        .truncate = truncate_file,
        .sync = sync_file,
        .random = randomize,
    };
}
