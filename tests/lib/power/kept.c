#include "kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SMALL 1024 /* bytes: of such a file all bits are flipped */
#define BORDER 64  /* bytes around what is not zero: more interesting than zeros among zeros */
#define ZERO_STEP 9973

static void take_file(struct kept_file *file, const char *path, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    file->size = size;
    file->bytes = malloc(size + 1);
    assert_non_null(file->bytes);
    assert_int_equal(read(fd, file->bytes, size), size);
    close(fd);
}

static void take_below(struct kept *kept, const char *directory, const char *below)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct dirent **names;
    int count;

    snprintf(folder, sizeof folder, "%s%s", directory, below);
    count = scandir(folder, &names, NULL, alphasort);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        struct kept_file *file = &kept->files[kept->count];
        struct stat info;

        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            assert_true(kept->count < KEPT_MAX);
            snprintf(file->path, sizeof file->path, "%s/%s", below, name);
            snprintf(path, sizeof path, "%s%s", directory, file->path);
            assert_int_equal(lstat(path, &info), 0);
            file->is_directory = S_ISDIR(info.st_mode);
            kept->count++;
            if (file->is_directory)
                take_below(kept, directory, file->path);
            else
                take_file(file, path, (size_t)info.st_size);
        }
        free(names[i]);
    }
    free(names);
}

void kept_take(struct kept *kept, const char *directory)
{
    memset(kept, 0, sizeof *kept);
    take_below(kept, directory, "");
}

void kept_put(const struct kept *kept, const char *directory, int flipped, uint64_t bit)
{
    for (size_t i = 0; i < kept->count; i++) {
        const struct kept_file *file = &kept->files[i];
        char path[PATH_MAX];
        int fd;

        snprintf(path, sizeof path, "%s%s", directory, file->path);
        if (file->is_directory) {
            assert_int_equal(mkdir(path, 0700), 0);
            continue;
        }
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, file->bytes, file->size), file->size);
        if ((int)i == flipped) {
            unsigned char byte = (unsigned char)(file->bytes[bit / 8] ^ 1 << bit % 8);

            assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
    }
}

void kept_free(struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        free(kept->files[i].bytes);
    kept->count = 0;
}

static bool is_among_zeros(const struct kept_file *file, size_t at)
{
    size_t from = at > BORDER ? at - BORDER : 0, to = at + BORDER;

    for (size_t i = from; i < to && i < file->size; i++)
        if (file->bytes[i])
            return false;
    return true;
}

uint64_t kept_next_bit(const struct kept_file *file, uint64_t from, unsigned step)
{
    for (uint64_t bit = from; bit < 8 * (uint64_t)file->size; bit++) {
        size_t at = (size_t)(bit / 8);
        bool of_this_byte = bit % 8 == (at * 2654435761U >> 7) % 8;

        if (step == 0 ? file->size <= SMALL || of_this_byte
                      : bit % (is_among_zeros(file, at) ? ZERO_STEP : step) == 0)
            return bit;
    }
    return UINT64_MAX;
}
