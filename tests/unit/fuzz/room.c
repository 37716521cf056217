#include "room.h"

void room_begin(struct room *room)
{
    room->disk = sim_disk_new(1);
    REQUIRE(directory_open_on(sim_disk_table(room->disk), "data", &room->directory, NULL) == HF_OK);
}

void room_end(struct room *room)
{
    directory_close(&room->directory);
    sim_disk_free(room->disk);
}

static void write_to(struct room *room, const char *name, enum disk_open how, size_t at,
                     const void *bytes, size_t size)
{
    const struct disk *disk = room->directory.disk;
    int file;

    REQUIRE(disk->open(disk, room->directory.handle, name, how, &file) == 0);
    REQUIRE(size == 0 || disk->write(disk, file, bytes, size, at, true) == 0);
    disk->close(disk, file);
}

void room_put(struct room *room, const char *name, const void *bytes, size_t size)
{
    write_to(room, name, DISK_EMPTIED, 0, bytes, size);
}

void room_patch(struct room *room, const char *name, size_t at, const void *bytes, size_t size)
{
    write_to(room, name, DISK_FOR_WRITING, at, bytes, size);
}

size_t room_get(struct room *room, const char *name, void *ret_bytes, size_t size)
{
    const struct disk *disk = room->directory.disk;
    size_t count = 0;
    int file;

    if (disk->open(disk, room->directory.handle, name, DISK_FOR_READING, &file) != 0)
        return 0;
    REQUIRE(disk->read(disk, file, ret_bytes, size, 0, &count) == 0);
    disk->close(disk, file);
    return count;
}
