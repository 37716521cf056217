/* disk.h: a disk in memory, for tests and the simulator, that keeps no more than it has promised.
 *
 * Of each file it has what is durable, and what was done since, in order; of each directory the same for names. A crash
 * takes of what was not synced some, and not the rest:
 *
 *   - a write is lost, kept, cut short at a sector, or kept in some sectors of 512 bytes and not in others; each by itself, so
 *     that a later one may be there and an earlier one not;
 *   - a change of size is lost or kept; so is each name that was made, changed or removed, by itself. A name may be there and
 *     what is in its file not.
 *
 * What was written as durable, synced, or had its directory synced, is kept. All chance is drawn from the seed. There is no
 * clock in it, no thread and no system call. For one thread. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "journal/disk.h"

#define SIM_DISK_SECTOR ((size_t)512)

struct sim_disk;

/* Memory that runs out ends the process, here and everywhere in this file. */
struct sim_disk *sim_disk_new(uint64_t seed);
void sim_disk_free(struct sim_disk *disk);
/* All that is on it, and what is not durable yet; nothing is open on the copy, nothing will fail, and its chance is its own. */
struct sim_disk *sim_disk_copy(const struct sim_disk *disk, uint64_t seed);
/* The disk's, as long as it lives. */
const struct disk *sim_disk_table(struct sim_disk *disk);

/* The power fails, and comes back: what was open is not any more, what was not durable may be gone, and no failure that was
 * asked for is left. Handles of before are refused, and may be closed. */
void sim_disk_crash(struct sim_disk *disk);

/* ---- failures: none unless asked for ---- */

/* The power fails in the middle of the n-th write operation from now (1: the next): it and all that follow fail until
 * sim_disk_crash, which decides how much of it there is. 0: never. Write operations are all that change or sync something. */
void sim_disk_stop_at(struct sim_disk *disk, uint64_t n);
bool sim_disk_stopped(const struct sim_disk *disk);
/* So many write operations there have been. */
uint64_t sim_disk_writes(const struct sim_disk *disk);
/* So many bytes were read. */
uint64_t sim_disk_read(const struct sim_disk *disk);
/* The n-th operation from now, reading too, does nothing and answers EIO. 0: none. */
void sim_disk_fail_at(struct sim_disk *disk, uint64_t n);
/* There is room for so many bytes in all files together: beyond it ENOSPC. UINT64_MAX: no limit. */
void sim_disk_limit(struct sim_disk *disk, uint64_t bytes);
/* A bit has changed, durably. False: there is no such file, or it has not so many. */
bool sim_disk_flip(struct sim_disk *disk, const char *path, const char *name, uint64_t bit);

/* ---- looking ---- */

/* Calls fn for each file in the directory, by name. The bytes stay as long as the file does, or until it is looked at again. */
typedef void sim_disk_file_fn(void *context, const char *name, const unsigned char *bytes,
                              size_t size);
void sim_disk_each(const struct sim_disk *disk, const char *path, sim_disk_file_fn *fn,
                   void *context);

#endif
