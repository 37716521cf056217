/* driver_disk.h: the disk of a driver's node. */
#ifndef TESTS_REPLICA_DRIVER_DISK_H
#define TESTS_REPLICA_DRIVER_DISK_H

#include "driver.h"

struct replica_io disk_io(struct node *node);
/* Something was given to it. */
bool disk_busy(const struct node *node);
/* Does all of that. False: there was nothing, or it is held. */
bool disk_work(struct node *node);
void disk_crash(struct node *node, size_t writes_kept);
void disk_clear(struct driver_disk *disk);
/* All of it; the copy is to be cleared, or put in its place. */
struct driver_disk disk_copy(const struct driver_disk *disk);
void driver_post(struct driver *driver, struct packet packet);

/* With HF_TRACE in the environment: what happens, for a person. */
void driver_trace(const struct node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
