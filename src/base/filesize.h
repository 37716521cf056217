/* filesize.h: writing to files under a limit of their size (ulimit -f).
 *
 * The kernel sends SIGXFSZ to the thread that writes beyond the limit, and that ends a program which knows
 * nothing of it: not by our hand. Between enter and leave the signal is blocked in this thread, and one
 * that we have caused is taken away. What is left is the errno: EFBIG. */
#ifndef BASE_FILESIZE_H
#define BASE_FILESIZE_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct filesize_guard {
    bool blocked; /* there is a limit, so the signal may come */
    bool pending; /* one was there before; not ours */
    sigset_t before;
};

/* May be nested. errno is left as it is. */
void filesize_enter(struct filesize_guard *guard);
void filesize_leave(const struct filesize_guard *guard);

/* Writes all of it at that place. 0, or an errno: EFBIG for the limit, ENOSPC also when the disk takes no
 * more without saying why. */
int filesize_write(int fd, const void *bytes, size_t size, off_t offset);

#endif
