/* storage.h: the real raft_io: a data directory, and time from a libuv loop.
 *
 *     storage_open ──▶ replica_open … replica_close ──▶ storage_close
 *
 * Files in the directory (src/journal says what is in them):
 *
 *     node          whose directory it is: see founding.h
 *     restoring     there while a backup is being restored into it: see restore.h
 *     lock          locked by the process that uses the directory; its number inside
 *     term          term and vote
 *     log-N         segments of the log; the last one may be a spare
 *     end           how far the log went, when it was opened or stopped last
 *     snapshot-I    the table, as it was after entry I
 *
 * Writing to the log is the one thing that is done in the loop itself, and waited for: it takes as long
 * as the disk needs for one block, and nobody could be answered meanwhile. All that takes longer, new
 * segments and snapshots, is done in threads; and so is a large write of a leader whose followers write it, too: the loop
 * reads what comes next.
 *
 * A process that may run into a limit on the size of files ignores SIGXFSZ. */
#ifndef REPLICA_STORAGE_H
#define REPLICA_STORAGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raft_io;
struct storage;
struct uv_loop_s;

struct storage_options {
    const char *path;     /* of the data directory: made if it is not there, in one that is */
    size_t segment_bytes; /* 0: the journal's default */
    /* An operator should know: as in replica.h. NULL: nobody wants to hear of it. Called from within
     * storage_open and, until it is closed, from the loop. */
    void (*note)(void *context, int level, const char *text);
    void *context;
    /* See restore.h; else a directory into which a backup is being restored is refused. */
    bool restoring;
    const char *read_as; /* what is wrong with its files is said of this path; NULL: its own */
};

/* Of the files in the directory: the log and where it ended, the snapshot, the term. Not whose it is. */
bool storage_is_data(const char *name);
/* Those do not make a directory one that is in use: a file system's own, and what a restore or a start that was refused has left. */
bool storage_is_nothing(const char *name);
/* Of a data directory, as far as they are missing. */
int storage_make_parents(const char *path, unsigned mode, struct error_text *err);
/* Reads all that is there. HF_EBUSY: another process uses the directory. HF_EREFUSED: it may not be used.
 * HF_EIO: it cannot be, or what is in it is not whole; nothing in it has been changed then. HF_ENOMEM. */
int storage_open(struct uv_loop_s *loop, const struct storage_options *options,
                 struct storage **ret_storage, struct error_text *err);
/* For replica_open; the storage's own. */
struct raft_io *storage_io(struct storage *storage);
/* Writes what libraft has appended, all in one, and lets it know. To be called in each round of the loop,
 * after replica_pump (by then libraft has sent it to the others, too: they write at the same time). False:
 * there was nothing to write, or no room for it yet, or it is being written by a thread.
 * others_write: nobody can be answered before another node has written it as well. */
bool storage_flush(struct storage *storage, bool others_write);

struct storage_status { /* of writing to the log, since it was opened */
    uint64_t writes, bytes;
    uint64_t total_us, longest_us; /* in which nothing else was done */
};
void storage_status(const struct storage *storage, struct storage_status *ret_status);

/* Only after replica_close has called back, or replica_open has failed. Marks where the log ends. The loop runs
 * on until done is called; what is left on it then closes by itself. */
void storage_close(struct storage *storage, void (*done)(void *context), void *context);

#endif
