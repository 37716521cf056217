#include "journal/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT_ONCE \
    ((size_t)1 << 30) /* of bytes: a write of 2 GB and more is cut short by the kernel */

int write_durably(int fd, const void *bytes, size_t size, off_t offset)
{
    const char *at = bytes;

    while (size > 0) {
        struct iovec piece = {(void *)(uintptr_t)at, size < AT_ONCE ? size : AT_ONCE};
        ssize_t count = pwritev2(fd, &piece, 1, offset, RWF_DSYNC);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? errno : EIO;
        at += count;
        offset += count;
        size -= (size_t)count;
    }
    return 0;
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
