/* zeros.c: libraft reserves a segment of the log by posix_fallocate(3). The blocks of such a file are
 * marked as unwritten, and the first write to each changes the mark: a change of the file system's
 * own records, which cannot be done without waiting. So every write of the log would go to a thread
 * and back, and take the file system's journal with it.
 *
 * A program's own posix_fallocate comes before the C library's. This one writes zeros, which the
 * standard allows just as well, in the thread that libraft prepares segments in. Writes of the log then
 * go straight to the disk. Without this file everything works as well, more slowly. */
#include "replica/zeros.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10)

/* By its name in libraft: headers may rename it for large files. */
int zeros_fallocate(int fd, off_t offset, off_t length) __asm__("posix_fallocate");

__attribute__((weak, visibility("default"))) int zeros_fallocate(int fd, off_t offset, off_t length)
{
    static const char zeros[PIECE_BYTES];

    if (offset < 0 || length <= 0)
        return EINVAL;
    while (length > 0) {
        size_t size = (size_t)length < PIECE_BYTES ? (size_t)length : PIECE_BYTES;
        ssize_t written = pwrite(fd, zeros, size, offset);

        if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            offset += written;
            length -= written;
        }
    }
    return fdatasync(fd) == 0 ? 0 : errno;
}

void zeros_link(void)
{
}
