#include "once_folder.h"

#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct driver driver, other;

int folder_start(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    driver_open(&driver, url);
    driver_open(&other, url);
    return 0;
}

int folder_stop(void **state)
{
    clock_test_shift_ms(0);
    driver_close(&driver);
    driver_close(&other);
    return remove_directory(state);
}

const char *path_of(const char *file)
{
    static char path[5000];

    snprintf(path, sizeof path, "%s/once/%s", dir, file);
    return path;
}

bool is_there(const char *file)
{
    struct stat st;

    return lstat(path_of(file), &st) == 0;
}

void overwrite(const char *file, off_t at, const void *bytes, size_t size)
{
    int fd = open(path_of(file), O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(size, pwrite(fd, bytes, size, at));
    close(fd);
}

void damage(const char *file, off_t at)
{
    int fd = open(path_of(file), O_RDONLY);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(1, pread(fd, &byte, 1, at));
    close(fd);
    byte ^= 0xff;
    overwrite(file, at, &byte, 1);
}

int outcome_of(const char *key, bool no_heir)
{
    uint64_t token;

    return ask_once(&driver, key, no_heir, &token);
}
