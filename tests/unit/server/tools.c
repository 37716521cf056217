#include "tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#define ROTATING 16

static char directory[PATH_BYTES / 2];

int make_directory(void **state)
{
    const char *place = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    snprintf(directory, sizeof directory, "%s/server-XXXXXX", place ? place : "/tmp");
    return mkdtemp(directory) ? 0 : -1;
}

int remove_directory(void **state)
{
    DIR *files = opendir(directory);
    struct dirent *entry;

    (void)state;
    while (files && (entry = readdir(files)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(files), entry->d_name, 0);
    if (files)
        closedir(files);
    return rmdir(directory);
}

const char *path_of(const char *name)
{
    static char paths[ROTATING][PATH_BYTES];
    static unsigned turn;
    char *path = paths[turn++ % ROTATING];

    snprintf(path, PATH_BYTES, "%s/%s", directory, name);
    return path;
}

const char *write_file(const char *name, const void *bytes, size_t size, mode_t mode)
{
    const char *path = path_of(name);
    int fd;

    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(size, write(fd, bytes, size));
    assert_int_equal(0, fchmod(fd, mode)); /* not open's mode: that obeys the umask */
    close(fd);
    return path;
}

char *read_whole(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;

    if (!file)
        fail_msg("cannot open %s: %s", path, strerror(errno));
    if (getdelim(&text, &room, '\0', file) < 0)
        fail_msg("cannot read %s", path);
    fclose(file);
    return text;
}

void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("there is no '%s' in '%s'", part, text);
}
