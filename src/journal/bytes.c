#include "journal/bytes.h"
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT_ONCE \
    ((size_t)1 << 30) /* of bytes: a write of 2 GB and more is cut short by the kernel */

/* A write that is durable in itself is not known everywhere: gVisor and emulators answer EOPNOTSUPP, old
 * kernels ENOSYS or EINVAL. Then it is written, and then synced. */
atomic_bool bytes_sync_apart;

bool journal_syncs_apart(void)
{
    return bytes_sync_apart;
}

static bool is_unknown(int failure)
{
    return failure == EOPNOTSUPP || failure == ENOSYS || failure == EINVAL;
}

/* A file system may open a file for writing past the cache and then refuse to. */
static bool can_go_through_cache(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static ssize_t write_piece(int fd, const void *bytes, size_t size, off_t offset)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, size};
    ssize_t count;

    if (!bytes_sync_apart) {
        count = pwritev2(fd, &piece, 1, offset, RWF_DSYNC);
        if (count >= 0 || !is_unknown(errno))
            return count;
    }
    count = pwrite(fd, bytes, size, offset);
    if (count < 0 && errno == EINVAL && can_go_through_cache(fd))
        count = pwrite(fd, bytes, size, offset);
    if (count > 0)
        bytes_sync_apart = true;
    return count;
}

static int sync_data(int fd)
{
    while (fdatasync(fd) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

int write_durably(int fd, const void *bytes, size_t size, off_t offset)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t count = write_piece(fd, at, size < AT_ONCE ? size : AT_ONCE, offset);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? errno : EIO;
        at += count;
        offset += count;
        size -= (size_t)count;
    }
    return bytes_sync_apart ? sync_data(fd) : 0;
}

int read_whole(int fd, void *bytes, size_t size, off_t offset, size_t *ret_count)
{
    size_t got = 0;

    while (got < size) {
        size_t piece = size - got < AT_ONCE ? size - got : AT_ONCE;
        ssize_t count = pread(fd, (char *)bytes + got, piece, offset + (off_t)got);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        got += (size_t)count;
    }
    *ret_count = got;
    return 0;
}

void *blocks_new(size_t size)
{
    void *memory = aligned_alloc(BLOCK, round_up(size, BLOCK));

    if (memory)
        memset(memory, 0, round_up(size, BLOCK));
    return memory;
}
