/* forks.h: descriptors that must not live on in the child of a fork.
 *
 * A lock lives as long as its open file description, and a child would keep that alive. So every
 * descriptor that locks is opened here and noted in a bitmap, which a child can walk without taking
 * a lock, and closed there before fork() returns. */
#ifndef ENGINES_FILE_FORKS_H
#define ENGINES_FILE_FORKS_H

#include <stddef.h>

/* As directory_open_file. */
int forks_open(int dirfd, const char *file_name, int flags);
void forks_close(int fd);

/* Maps the beginning of a file through an open file description of its own. A mapping keeps the
 * description alive that it was made from, in a child too, and with it that description's locks. NULL
 * and errno when it fails. */
void *forks_map(int fd, size_t size);

#endif
