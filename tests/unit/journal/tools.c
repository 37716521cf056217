#include "tools.h"

#include "disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- records ---------------------------------------------------------------------------------- */

static void fill(unsigned char *bytes, const struct told *told)
{
    uint64_t seed = told->index * UINT64_C(0x9e3779b97f4a7c15) + told->term;

    for (size_t i = 0; i < told->size; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (unsigned char)(seed >> 56);
    }
}

static uint64_t chain_of(const struct told *told)
{
    return (told->index ^ told->term << 40) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t commit_of(const struct told *told)
{
    return told->index / 2;
}

size_t sizes_count(const size_t *sizes)
{
    size_t count = 0;

    while (sizes[count] != SIZE_MAX)
        count++;
    return count;
}

size_t record_begin(const size_t *sizes, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        at += (RECORD_HEAD + sizes[i] + 7) / 8 * 8;
    return at;
}

void log_add(struct log *log, uint64_t first, uint64_t term, const size_t *sizes)
{
    for (size_t i = 0; sizes[i] != SIZE_MAX; i++) {
        assert_true(log->count < TOLD_MAX);
        log->told[log->count++] = (struct told){.index = first + i,
                                                .term = term,
                                                .type = (uint8_t)(200 + (first + i) % 50),
                                                .size = sizes[i]};
    }
}

void assert_same_log(const struct log *log, const struct log *expected)
{
    size_t count = log->count < expected->count ? log->count : expected->count;

    for (size_t i = 0; i < count; i++) {
        const struct told *is = &log->told[i], *should = &expected->told[i];

        if (is->index != should->index || is->term != should->term || is->type != should->type ||
            is->size != should->size)
            fail_msg("record %zu: index %ju term %ju type %d of %zu bytes, and not "
                     "index %ju term %ju type %d of %zu",
                     i, (uintmax_t)is->index, (uintmax_t)is->term, is->type, is->size,
                     (uintmax_t)should->index, (uintmax_t)should->term, should->type, should->size);
    }
    assert_int_equal(log->count, expected->count);
}

/* ---- a directory and its journal -------------------------------------------------------------- */

void room_init(struct room *room)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    memset(room, 0, sizeof *room);
    disk.direct_is_unknown = disk.direct_fails = false;
    disk.dsync_fails = 0;
    disk_reset();
    snprintf(room->home, sizeof room->home, "%s/journal-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(room->home));
    snprintf(room->path, sizeof room->path, "%s/data", room->home);
    assert_int_equal(directory_open(room->path, &room->directory, &room->err), HF_OK);
    room->segment_bytes = 16 * BLOCK_BYTES;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void room_free(struct room *room)
{
    disk_reset();
    if (room->journal)
        room_close(room);
    directory_close(&room->directory);
    nftw(room->home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int write_down(void *context, const struct journal_record *record, struct error_text *err)
{
    struct room *room = context;
    struct told told = {record->index, record->term, record->type, record->size};
    unsigned char *bytes = malloc(told.size + 1);

    assert_non_null(bytes);
    fill(bytes, &told);
    assert_memory_equal(bytes, record->bytes, told.size);
    assert_true(record->chain == chain_of(&told) && record->commit == commit_of(&told));
    free(bytes);
    assert_true(room->log.count < TOLD_MAX);
    room->log.told[room->log.count++] = told;
    if (room->stop_after > 0 && room->log.count == (size_t)room->stop_after)
        return error_set(err, HF_EREFUSED, "not this one");
    return HF_OK;
}

int room_read(struct room *room)
{
    int result;

    assert_null(room->journal);
    room->log.count = 0;
    room->err.text[0] = '\0';
    result = journal_open(&room->directory, room->segment_bytes, write_down, room, &room->journal,
                          &room->err);
    assert_true((result == HF_OK) == (room->journal != NULL));
    return result;
}

int room_open(struct room *room)
{
    int result = room_read(room);

    if (result == HF_OK)
        result = journal_begin(room->journal, &room->err);
    if (result != HF_OK && room->journal)
        room_close(room);
    return result;
}

void room_must_open(struct room *room)
{
    int result = room_open(room);

    if (result != HF_OK)
        fail_msg("cannot open: %d, %s", result, room->err.text);
}

void room_close(struct room *room)
{
    journal_close(room->journal);
    room->journal = NULL;
}

void room_stop(struct room *room)
{
    assert_int_equal(journal_stop(room->journal, &room->err), HF_OK);
    room_close(room);
}

void room_reopen(struct room *room)
{
    room_close(room);
    room_must_open(room);
}

void room_make_spare(struct room *room)
{
    struct journal_spare spare;

    if (!journal_wants_spare(room->journal))
        return;
    spare = journal_spare_begin(room->journal);
    journal_spare_make(&spare);
    assert_string_equal(spare.failure.text, "");
    journal_spare_end(room->journal, &spare);
}

int room_try_append(struct room *room, const struct told *told, size_t count)
{
    struct journal_record *records = calloc(count + 1, sizeof *records);
    int result;

    assert_non_null(records);
    for (size_t i = 0; i < count; i++) {
        unsigned char *bytes = malloc(told[i].size + 1);

        assert_non_null(bytes);
        fill(bytes, &told[i]);
        records[i] = (struct journal_record){.index = told[i].index,
                                             .term = told[i].term,
                                             .chain = chain_of(&told[i]),
                                             .commit = commit_of(&told[i]),
                                             .type = told[i].type,
                                             .bytes = told[i].size ? bytes : NULL,
                                             .size = told[i].size};
        if (told[i].size == 0)
            free(bytes);
    }
    room->err.text[0] = '\0';
    result = journal_append(room->journal, records, count, &room->err);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)records[i].bytes);
    free(records);
    return result;
}

void room_append_told(struct room *room, const struct told *told, size_t count)
{
    int result = room_try_append(room, told, count);

    if (result == HF_EBUSY) {
        room_make_spare(room);
        result = room_try_append(room, told, count);
    }
    if (result != HF_OK)
        fail_msg("cannot append: %d, %s", result, room->err.text);
}

void room_append(struct room *room, uint64_t first, uint64_t term, const size_t *sizes)
{
    static struct log group;

    group.count = 0;
    log_add(&group, first, term, sizes);
    room_append_told(room, group.told, group.count);
}

void room_log(struct room *room, struct log *log, uint64_t first, uint64_t term,
              const size_t *sizes)
{
    room_append(room, first, term, sizes);
    log_add(log, first, term, sizes);
}

void assert_says(const struct error_text *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}

/* ---- files ------------------------------------------------------------------------------------ */

static void path_of(const char *path, const char *name, char ret_path[2 * PATH_MAX])
{
    snprintf(ret_path, 2 * PATH_MAX, "%s/%s", path, name);
}

static void read_file(const char *path, struct file *file)
{
    char whole[2 * PATH_MAX];
    struct stat info;
    int fd;

    path_of(path, file->name, whole);
    fd = open(whole, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    file->size = (size_t)info.st_size;
    file->bytes = malloc(file->size + 1);
    assert_non_null(file->bytes);
    assert_int_equal(pread(fd, file->bytes, file->size, 0), file->size);
    close(fd);
}

#define MARK "end"

void files_keep(const char *path, struct files *ret_files)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, alphasort);

    assert_true(count >= 0);
    ret_files->count = 0;
    ret_files->mark.bytes = NULL;
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, "lock") != 0) {
            bool mark = strcmp(names[i]->d_name, MARK) == 0;
            struct file *file = mark ? &ret_files->mark : &ret_files->file[ret_files->count];

            assert_true(ret_files->count < FILES_MAX);
            snprintf(file->name, sizeof file->name, "%s", names[i]->d_name);
            read_file(path, file);
            ret_files->count += !mark;
        }
        free(names[i]);
    }
    free(names);
}

void files_free(struct files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->file[i].bytes);
    files->count = 0;
    free(files->mark.bytes);
    files->mark.bytes = NULL;
}

struct file *files_find(struct files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->file[i].name, name) == 0)
            return &files->file[i];
    return NULL;
}

size_t files_bytes(const struct files *files)
{
    size_t bytes = 0;

    for (size_t i = 0; i < files->count; i++)
        bytes += files->file[i].size;
    return bytes;
}

void files_restore(const char *path, const struct files *files)
{
    static struct files now;

    files_keep(path, &now);
    for (size_t i = 0; i < now.count; i++)
        if (!files_find((struct files *)(uintptr_t)files, now.file[i].name))
            file_remove(path, now.file[i].name);
    if (now.mark.bytes && !files->mark.bytes)
        file_remove(path, MARK);
    files_free(&now);
    if (files->mark.bytes)
        file_put(path, MARK, files->mark.bytes, files->mark.size);
    for (size_t i = 0; i < files->count; i++)
        file_put(path, files->file[i].name, files->file[i].bytes, files->file[i].size);
}

void assert_files(const char *path, const struct files *files)
{
    static struct files now;

    files_keep(path, &now);
    assert_int_equal(now.count, files->count);
    for (size_t i = 0; i < now.count; i++) {
        assert_string_equal(now.file[i].name, files->file[i].name);
        assert_int_equal(now.file[i].size, files->file[i].size);
        assert_memory_equal(now.file[i].bytes, files->file[i].bytes, now.file[i].size);
    }
    assert_true((now.mark.bytes != NULL) == (files->mark.bytes != NULL));
    if (now.mark.bytes) {
        assert_int_equal(now.mark.size, files->mark.size);
        assert_memory_equal(now.mark.bytes, files->mark.bytes, now.mark.size);
    }
    files_free(&now);
}

/* Not by O_TRUNC: some file systems then write it to the disk when it is closed. */
void file_put(const char *path, const char *name, const void *bytes, size_t size)
{
    char whole[2 * PATH_MAX];
    struct stat info;
    int fd;

    path_of(path, name, whole);
    fd = open(whole, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, 0), size);
    assert_int_equal(fstat(fd, &info), 0);
    if (info.st_size > (off_t)size)
        assert_int_equal(truncate(whole, (off_t)size), 0);
    close(fd);
}

static int open_file(const char *path, const char *name)
{
    char whole[2 * PATH_MAX];
    int fd;

    path_of(path, name, whole);
    fd = open(whole, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

void file_set(const char *path, const char *name, size_t offset, unsigned char byte)
{
    int fd = open_file(path, name);

    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

void file_flip(const char *path, const char *name, size_t offset)
{
    int fd = open_file(path, name);
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
    file_set(path, name, offset, byte ^ 0x10);
}

void file_remove(const char *path, const char *name)
{
    char whole[2 * PATH_MAX];

    path_of(path, name, whole);
    assert_int_equal(unlink(whole), 0);
}

uint64_t draw(uint64_t *seed, uint64_t limit)
{
    uint64_t mixed = *seed += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) % limit;
}
