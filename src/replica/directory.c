#include "replica/directory.h"
#include "replica/segments.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "lock"
#define METADATA_SIZE 32 /* format, version, term, vote: numbers of 8 bytes, the lowest first */

/* ---- names ------------------------------------------------------------------------------------ */

static bool skip(const char **text, const char *expected)
{
    size_t length = strlen(expected);

    if (strncmp(*text, expected, length) != 0)
        return false;
    *text += length;
    return true;
}

static bool read_number(const char **text, uint64_t *ret_number)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *ret_number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* "0000000000000001-0000000000000042" */
static bool is_closed_segment(const char *name)
{
    uint64_t first, last;

    return read_number(&name, &first) && skip(&name, "-") && read_number(&name, &last) && !*name;
}

/* "snapshot-3-42-1500", with an ending */
static bool is_snapshot(const char *name, const char *ending, uint64_t *ret_term,
                        uint64_t *ret_index)
{
    uint64_t stamp;

    return skip(&name, "snapshot-") && read_number(&name, ret_term) && skip(&name, "-") &&
           read_number(&name, ret_index) && skip(&name, "-") && read_number(&name, &stamp) &&
           strcmp(name, ending) == 0;
}

/* ---- what is in it ---------------------------------------------------------------------------- */

struct content {
    bool metadata[2]; /* metadata1 and metadata2, of the right size */
    bool log;         /* closed segments or snapshots */
};

typedef void each_fn(int fd, const char *name, void *context);

static bool each_file(int fd, each_fn *fn, void *context)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = own >= 0 ? fdopendir(own) : NULL;
    struct dirent *entry;

    if (!listing) {
        if (own >= 0)
            close(own);
        return false;
    }
    while (errno = 0, (entry = readdir(listing)) != NULL)
        fn(fd, entry->d_name, context);
    own = errno;
    closedir(listing);
    return own == 0;
}

static off_t size_of(int fd, const char *name)
{
    struct stat info;

    return fstatat(fd, name, &info, 0) == 0 ? info.st_size : -1;
}

static void look_at(int fd, const char *name, void *context)
{
    struct content *content = context;
    uint64_t term, index;

    if (strcmp(name, "metadata1") == 0)
        content->metadata[0] = size_of(fd, name) == METADATA_SIZE;
    else if (strcmp(name, "metadata2") == 0)
        content->metadata[1] = size_of(fd, name) == METADATA_SIZE;
    else if (is_closed_segment(name) || is_snapshot(name, "", &term, &index))
        content->log = true;
}

/* libraft founds a cluster by storing term 1, and then the first entry. After a crash between the
 * two it would wait for ever to be added to somebody else's. */
static bool is_interrupted_founding(const struct directory *directory,
                                    const struct content *content)
{
    static const unsigned char term_one[METADATA_SIZE] = {[0] = 1, [8] = 1, [16] = 1};
    unsigned char bytes[METADATA_SIZE];
    int fd;
    ssize_t got;

    if (content->log || !content->metadata[0] || content->metadata[1])
        return false;
    fd = openat(directory->fd, "metadata1", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    got = read(fd, bytes, sizeof bytes);
    close(fd);
    return got == METADATA_SIZE && memcmp(bytes, term_one, sizeof bytes) == 0;
}

static int check_content(const struct directory *directory, bool founding, struct error_text *err)
{
    struct content content = {0};

    if (!each_file(directory->fd, look_at, &content))
        return error_set_errno(err, HF_EIO, errno, "cannot list %s", directory->path);
    if (content.log && !content.metadata[0] && !content.metadata[1])
        return error_set(err, HF_EIO,
                         "%s holds a log, and neither metadata1 nor metadata2 is whole: restore "
                         "them, or the directory, from a backup",
                         directory->path);
    if (founding && is_interrupted_founding(directory, &content) &&
        (unlinkat(directory->fd, "metadata1", 0) < 0 || fsync(directory->fd) < 0))
        return error_set_errno(err, HF_EIO, errno, "cannot begin anew in %s", directory->path);
    return HF_OK;
}

struct newest {
    bool found;
    uint64_t term, index;
};

static void look_for_newest(int fd, const char *name, void *context)
{
    struct newest *newest = context;
    uint64_t term, index;
    char data[NAME_MAX + 1];

    if (!is_snapshot(name, ".meta", &term, &index))
        return;
    snprintf(data, sizeof data, "%.*s", (int)(strlen(name) - strlen(".meta")), name);
    if (size_of(fd, data) <= 0) /* libraft was interrupted before it was there */
        return;
    if (newest->found && (term < newest->term || (term == newest->term && index < newest->index)))
        return;
    *newest = (struct newest){true, term, index};
}

bool directory_newest_snapshot(const struct directory *directory, uint64_t *ret_term,
                               uint64_t *ret_index)
{
    struct newest newest = {0};

    if (!each_file(directory->fd, look_for_newest, &newest) || !newest.found)
        return false;
    *ret_term = newest.term;
    *ret_index = newest.index;
    return true;
}

/* ---- having it -------------------------------------------------------------------------------- */

/* A directory whose name is not on disk would take all that is in it along when the power fails. */
static int sync_parent(const char *path, struct error_text *err)
{
    char parent[PATH_MAX + 4];
    int fd, failure = 0;

    snprintf(parent, sizeof parent, "%s/..", path);
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        failure = errno;
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot make the name of %s durable", path);
    return HF_OK;
}

static int make(const char *path, struct error_text *err)
{
    if (mkdir(path, 0700) == 0)
        return sync_parent(path, err);
    if (errno == EEXIST)
        return HF_OK;
    return error_set_errno(err, errno == EACCES || errno == EPERM ? HF_EREFUSED : HF_EIO, errno,
                           "cannot make the data directory %s", path);
}

static int in_use(const struct directory *directory, struct error_text *err)
{
    char holder[24] = "";
    ssize_t got = pread(directory->lock_fd, holder, sizeof holder - 1, 0);
    long number = got > 0 ? strtol(holder, NULL, 10) : 0;

    if (number > 0)
        return error_set(err, HF_EBUSY, "%s is in use by process %ld", directory->path, number);
    return error_set(err, HF_EBUSY, "%s is in use by another process", directory->path);
}

static int lock(struct directory *directory, struct error_text *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    directory->lock_fd = openat(directory->fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (directory->lock_fd < 0)
        return error_set_errno(err, errno == EACCES || errno == EPERM ? HF_EREFUSED : HF_EIO, errno,
                               "cannot write to %s", directory->path);
    if (fcntl(directory->lock_fd, F_OFD_SETLK, &whole) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return in_use(directory, err);
        return error_set_errno(err, HF_EIO, errno, "cannot lock %s", directory->path);
    }
    /* For people only; a disk too full for it is found out soon enough. */
    if (ftruncate(directory->lock_fd, 0) == 0)
        dprintf(directory->lock_fd, "%ld\n", (long)getpid());
    return HF_OK;
}

static int enter(const char *path, struct directory *directory, struct error_text *err)
{
    if (!realpath(path, directory->path))
        return error_set_errno(err, HF_EIO, errno, "cannot find %s", path);
    directory->fd = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0)
        return error_set_errno(err, errno == EACCES ? HF_EREFUSED : HF_EIO, errno, "cannot open %s",
                               path);
    return HF_OK;
}

int directory_open(const char *path, bool founding, uint64_t torn_max,
                   struct directory *ret_directory, struct error_text *err)
{
    struct directory directory = {.fd = -1, .lock_fd = -1};
    int result = make(path, err);

    if (result == HF_OK)
        result = enter(path, &directory, err);
    if (result == HF_OK)
        result = lock(&directory, err);
    if (result == HF_OK)
        result = segments_check(directory.fd, directory.path, torn_max, err);
    if (result == HF_OK)
        result = check_content(&directory, founding, err);
    if (result != HF_OK) {
        directory_close(&directory);
        return result;
    }
    *ret_directory = directory;
    return HF_OK;
}

void directory_close(struct directory *directory)
{
    if (directory->lock_fd >= 0)
        close(directory->lock_fd);
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = directory->lock_fd = -1;
}
