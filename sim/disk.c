#include "sim/disk.h"
#include "base/error.h"
#include "sim/disk_inside.h"

#include <stdlib.h>
#include <string.h>

void *sim_grow(void *array, size_t count, size_t item)
{
    /* Twice as much whenever the count is a power of two: so there is always room up to the next one. */
    if ((count & (count - 1)) == 0)
        array = realloc(array, (count ? count * 2 : 1) * item);
    INVARIANT(array != NULL);
    return array;
}

uint64_t sim_draw(struct sim_disk *disk, uint64_t limit)
{
    uint64_t mixed = disk->seed += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    mixed ^= mixed >> 31;
    return limit ? mixed % limit : mixed;
}

/* ---- names ------------------------------------------------------------------------------------ */

struct name *names_find(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i].name, name) == 0)
            return &names->names[i];
    return NULL;
}

void names_put(struct names *names, const char *name, struct file *file)
{
    struct name *place = names_find(names, name);

    if (!place) {
        names->names = sim_grow(names->names, names->count, sizeof *names->names);
        place = &names->names[names->count++];
        memset(place, 0, sizeof *place);
        memcpy(place->name, name, strlen(name));
    }
    place->file = file;
}

void names_remove(struct names *names, const char *name)
{
    struct name *place = names_find(names, name);

    if (place)
        *place = names->names[--names->count];
}

void names_take(struct names *names, const struct names *from)
{
    size_t room = 1;

    while (room <= from->count) /* as sim_grow has it */
        room *= 2;
    names->names = realloc(names->names, room * sizeof *names->names);
    INVARIANT(names->names != NULL);
    if (from->count > 0)
        memcpy(names->names, from->names, from->count * sizeof *names->names);
    names->count = from->count;
}

/* ---- files ------------------------------------------------------------------------------------ */

struct file *sim_file_new(struct sim_disk *disk)
{
    struct file *file = calloc(1, sizeof *file);

    INVARIANT(file != NULL);
    file->locked = -1;
    disk->files = sim_grow(disk->files, disk->file_count, sizeof *disk->files);
    disk->files[disk->file_count++] = file;
    return file;
}

static void forget_changes(struct file *file)
{
    for (size_t i = 0; i < file->change_count; i++)
        bytes_free(&file->changes[i].bytes);
    free(file->changes);
    file->changes = NULL;
    file->change_count = 0;
}

static void file_free(struct file *file)
{
    forget_changes(file);
    bytes_free(&file->now);
    bytes_free(&file->kept);
    free(file->looked_at);
    free(file);
}

void file_synced(struct file *file)
{
    forget_changes(file);
    bytes_take(&file->kept, &file->now);
}

static void use(const struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        names->names[i].file->used = true;
}

void sim_sweep(struct sim_disk *disk)
{
    size_t left = 0;

    for (size_t i = 0; i < disk->file_count; i++)
        disk->files[i]->used = false;
    for (size_t i = 0; i < disk->directory_count; i++) {
        const struct directory_in_memory *directory = disk->directories[i];

        use(&directory->now);
        use(&directory->durable);
        for (size_t k = 0; k < directory->renaming_count; k++)
            directory->renamings[k].file->used = true;
    }
    for (size_t i = 0; i < disk->handle_count; i++)
        if (disk->handles[i].file)
            disk->handles[i].file->used = true;
    for (size_t i = 0; i < disk->file_count; i++) {
        if (disk->files[i]->used)
            disk->files[left++] = disk->files[i];
        else
            file_free(disk->files[i]);
    }
    disk->file_count = left;
}

/* ---- a crash ---------------------------------------------------------------------------------- */

enum fate { FATE_LOST, FATE_KEPT, FATE_CUT, FATE_HOLES, FATES };

/* The sectors of one write; cut: the first so many. */
static void keep_sectors(struct sim_disk *disk, struct bytes *kept, const struct change *change,
                         enum fate fate, uint64_t cut)
{
    uint64_t end = change->offset + change->size, sector = 0;
    uint64_t before = change->offset - change->offset % PAGE_BYTES;
    unsigned char bytes[SIM_DISK_SECTOR];

    for (uint64_t at = change->offset; at < end; sector++) {
        uint64_t next = (at / SIM_DISK_SECTOR + 1) * SIM_DISK_SECTOR;

        if (next > end)
            next = end;
        if (fate == FATE_KEPT || (fate == FATE_CUT && sector < cut) ||
            (fate == FATE_HOLES && sim_draw(disk, 2))) {
            bytes_get(&change->bytes, at - before, bytes, next - at);
            bytes_put(kept, at, bytes, next - at);
        }
        at = next;
    }
    /* That it has grown may be known although what it grew by is not there. */
    if (fate == FATE_HOLES && end > kept->size && sim_draw(disk, 2))
        bytes_resize(kept, end);
}

static void crash_file(struct sim_disk *disk, struct file *file)
{
    for (size_t i = 0; i < file->change_count; i++) {
        const struct change *change = &file->changes[i];
        enum fate fate = change->durable ? FATE_KEPT : (enum fate)sim_draw(disk, FATES);

        if (!change->resized)
            keep_sectors(disk, &file->kept, change, fate,
                         sim_draw(disk, change->size / SIM_DISK_SECTOR + 1));
        else if (fate == FATE_KEPT || fate == FATE_CUT)
            bytes_resize(&file->kept, change->size);
    }
    forget_changes(file);
    bytes_take(&file->now, &file->kept);
    file->locked = -1;
}

static void crash_names(struct sim_disk *disk, struct directory_in_memory *directory)
{
    struct names *durable = &directory->durable;

    for (size_t i = 0; i < directory->renaming_count; i++) {
        const struct renaming *renaming = &directory->renamings[i];
        const struct name *from = names_find(durable, renaming->from);

        if (sim_draw(disk, 2))
            continue;
        if (from && from->file == renaming->file)
            names_remove(durable, renaming->from);
        if (renaming->to[0])
            names_put(durable, renaming->to, renaming->file);
    }
    directory->renaming_count = 0;
    names_take(&directory->now, durable);
}

static void directory_free(struct directory_in_memory *directory)
{
    free(directory->now.names);
    free(directory->durable.names);
    free(directory->renamings);
    free(directory);
}

static void crash_directories(struct sim_disk *disk)
{
    size_t left = 0;

    for (size_t i = 0; i < disk->directory_count; i++) {
        struct directory_in_memory *directory = disk->directories[i];

        if (!directory->kept && sim_draw(disk, 2)) {
            directory_free(directory);
            continue;
        }
        directory->kept = true;
        crash_names(disk, directory);
        disk->directories[left++] = directory;
    }
    disk->directory_count = left;
}

void sim_disk_crash(struct sim_disk *disk)
{
    disk->handle_count = 0;
    disk->stopped = false;
    disk->stop_at = disk->fail_at = 0;
    crash_directories(disk);
    sim_sweep(disk);
    for (size_t i = 0; i < disk->file_count; i++)
        crash_file(disk, disk->files[i]);
}

/* ---- failures --------------------------------------------------------------------------------- */

void sim_disk_stop_at(struct sim_disk *disk, uint64_t n)
{
    disk->stop_at = n ? disk->writes + n : 0;
}

bool sim_disk_stopped(const struct sim_disk *disk)
{
    return disk->stopped;
}

uint64_t sim_disk_writes(const struct sim_disk *disk)
{
    return disk->writes;
}

uint64_t sim_disk_read(const struct sim_disk *disk)
{
    return disk->read;
}

void sim_disk_fail_at(struct sim_disk *disk, uint64_t n)
{
    disk->fail_at = n ? disk->operations + n : 0;
}

void sim_disk_limit(struct sim_disk *disk, uint64_t bytes)
{
    disk->limit = bytes;
}

bool sim_disk_flip(struct sim_disk *disk, const char *path, const char *name, uint64_t bit)
{
    const struct directory_in_memory *directory = sim_directory(disk, path);
    const struct name *place = directory ? names_find(&directory->now, name) : NULL;

    if (!place || bit / 8 >= place->file->now.size)
        return false;
    file_synced(place->file);
    bytes_flip(&place->file->now, bit);
    bytes_flip(&place->file->kept, bit);
    return true;
}

/* ---- the disk --------------------------------------------------------------------------------- */

struct directory_in_memory *sim_directory(const struct sim_disk *disk, const char *path)
{
    for (size_t i = 0; i < disk->directory_count; i++)
        if (strcmp(disk->directories[i]->path, path) == 0)
            return disk->directories[i];
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->name, ((const struct name *)b)->name);
}

/* In one piece. */
static const unsigned char *look_at(struct file *file)
{
    file->looked_at = realloc(file->looked_at, file->now.size + 1);
    INVARIANT(file->looked_at != NULL);
    bytes_get(&file->now, 0, file->looked_at, file->now.size);
    return file->looked_at;
}

void sim_disk_each(const struct sim_disk *disk, const char *path, sim_disk_file_fn *fn,
                   void *context)
{
    const struct directory_in_memory *directory = sim_directory(disk, path);
    struct names names = {0};

    if (!directory)
        return;
    names_take(&names, &directory->now);
    if (names.count > 0)
        qsort(names.names, names.count, sizeof *names.names, by_name);
    for (size_t i = 0; i < names.count; i++)
        fn(context, names.names[i].name, look_at(names.names[i].file),
           names.names[i].file->now.size);
    free(names.names);
}

const struct disk *sim_disk_table(struct sim_disk *disk)
{
    return &disk->table;
}

struct sim_disk *sim_disk_new(uint64_t seed)
{
    struct sim_disk *disk = calloc(1, sizeof *disk);

    INVARIANT(disk != NULL);
    disk->seed = seed;
    disk->limit = UINT64_MAX;
    sim_disk_fill_table(disk);
    return disk;
}

void sim_disk_free(struct sim_disk *disk)
{
    if (!disk)
        return;
    for (size_t i = 0; i < disk->directory_count; i++)
        directory_free(disk->directories[i]);
    for (size_t i = 0; i < disk->file_count; i++)
        file_free(disk->files[i]);
    free(disk->directories);
    free(disk->files);
    free(disk->handles);
    free(disk);
    bytes_forget();
}

/* ---- copying ---------------------------------------------------------------------------------- */

static void copy_file(struct sim_disk *copy, struct file *file)
{
    struct file *other = sim_file_new(copy);

    file->copy = other;
    bytes_take(&other->now, &file->now);
    bytes_take(&other->kept, &file->kept);
    for (size_t i = 0; i < file->change_count; i++) {
        struct change change = file->changes[i];

        change.bytes = (struct bytes){NULL};
        bytes_take(&change.bytes, &file->changes[i].bytes);
        other->changes = sim_grow(other->changes, other->change_count, sizeof *other->changes);
        other->changes[other->change_count++] = change;
    }
}

static void copy_names(struct names *copy, const struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        names_put(copy, names->names[i].name, names->names[i].file->copy);
}

static void copy_directory(struct sim_disk *copy, const struct directory_in_memory *directory)
{
    struct directory_in_memory *other = calloc(1, sizeof *other);

    INVARIANT(other != NULL);
    memcpy(other->path, directory->path, sizeof other->path);
    other->kept = directory->kept;
    copy_names(&other->now, &directory->now);
    copy_names(&other->durable, &directory->durable);
    for (size_t i = 0; i < directory->renaming_count; i++) {
        other->renamings =
            sim_grow(other->renamings, other->renaming_count, sizeof *other->renamings);
        other->renamings[other->renaming_count] = directory->renamings[i];
        other->renamings[other->renaming_count++].file = directory->renamings[i].file->copy;
    }
    copy->directories =
        sim_grow(copy->directories, copy->directory_count, sizeof *copy->directories);
    copy->directories[copy->directory_count++] = other;
}

struct sim_disk *sim_disk_copy(const struct sim_disk *disk, uint64_t seed)
{
    struct sim_disk *copy = sim_disk_new(seed);

    for (size_t i = 0; i < disk->file_count; i++)
        copy_file(copy, disk->files[i]);
    for (size_t i = 0; i < disk->directory_count; i++)
        copy_directory(copy, disk->directories[i]);
    return copy;
}
