/* journal.h: the log on disk: numbered records, durable when journal_append returns.
 *
 * Files "log-1", "log-2" and so on, the segments. A segment is filled with zeros before it is used, in the
 * background, so that an append is one write into blocks that are there, and nothing else has to reach the
 * disk with it:
 *
 *     block 0     header: index of the first record, number of the first group, checksum; salt
 *     blocks 1…   groups: the records of one append, one after the other; then zeros, up to a block's end
 *     the rest    zeros
 *
 * [J1] A block that holds a record of an earlier append is never written again: whatever happens to a
 *      write, it cannot harm what was acknowledged before.
 * [J2] One append at a time. So a write that was cut short can only be the last of its segment. Groups are
 *      numbered through all segments: a later one after damage, or a number that is missing, shows that what
 *      is gone had been acknowledged, and the journal is refused. A salt, which only the segment knows, keeps
 *      what is in a record from being taken for one.
 * [J3] After a restart appends go into a new segment: what a torn write left behind is never taken for
 *      records that follow.
 * [J4] A record whose index is not above that of the one before replaces it, and all from there on.
 * [J5] A disk writes a sector of 512 bytes whole or not at all. All were zeros before. So of a write that was
 *      cut short some sectors are zeros, and the others are right: what is wrong in sectors that are not
 *      zeros had been written and was damaged later, and the journal is refused. Only the write after which
 *      there is none, and of which a sector is missing, is dropped.
 * [J6] A mark says how far the log went when it was opened, when its last segment began, and when it was
 *      stopped: what is short of it is damage, whatever it looks like. See end.h.
 *
 * For one thread at a time, but for what says otherwise. */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H

#include "journal/directory.h"

#include <stddef.h>

#define JOURNAL_FIRST_BYTES ((size_t)1 << 20) /* of the first segment; then twice as many, up to */
#define JOURNAL_SEGMENT_BYTES ((size_t)8 << 20)
#define JOURNAL_RECORD_HEADER ((size_t)64)    /* bytes before those of a record */
#define JOURNAL_RECORD_MAX ((size_t)64 << 20) /* bytes in one record */

struct journal;

struct journal_record {
    uint64_t index, term;
    uint64_t chain;  /* the running checksum of the log up to this entry, as src/raft counts it */
    uint64_t commit; /* the commit index that was known when it was written */
    uint8_t type;
    const void *bytes;
    size_t size;
};

/* For each record: when the journal is opened in the order in which they were written, see [J4]. It lasts as long as the call.
 * Returns HF_OK to go on. */
typedef int journal_record_fn(void *context, const struct journal_record *record,
                              struct error_text *err);

/* directory: borrowed until closed. segment_bytes 0: the default. HF_EIO: records are damaged or missing,
 * or the disk cannot be read. */
int journal_open(const struct directory *directory, size_t segment_bytes, journal_record_fn *fn,
                 void *context, struct journal **ret_journal, struct error_text *err);
/* What was read is as it should be: marks how far it goes, and removes what is left over from before, spare
 * segments and the rest of a write that was cut short. Nothing is changed before, and nothing else may be
 * called. */
int journal_begin(struct journal *journal, struct error_text *err);
/* Marks how far it goes: then only journal_close may be called. Without it a write that was damaged afterwards
 * may look like one that was cut short. */
int journal_stop(struct journal *journal, struct error_text *err);
void journal_close(struct journal *journal);

/* The rest of a write that was cut short, which nobody was told of: it is dropped. */
struct journal_torn {
    uint64_t segment; /* 0: there was none */
    size_t at, bytes;
};
/* As it was found when the journal was opened; only then: it is not found again after journal_begin. */
struct journal_torn journal_torn(const struct journal *journal);
/* For any thread. The system does not know a write that is durable in itself: so far as one has been tried,
 * each is followed by fdatasync. */
bool journal_syncs_apart(void);

/* At least one. Indexes go up by one; the first is at most one above the last of the append before, unless the journal
 * has been reset. HF_OK: all of it is durable. HF_EBUSY: it needs a spare segment first, nothing was
 * written. HF_EIO: it may or may not be there, and the journal must not be used any more. */
int journal_append(struct journal *journal, const struct journal_record *records, size_t count,
                   struct error_text *err);
/* Bytes on disk that the append would take. */
size_t journal_size_of(const struct journal_record *records, size_t count);

#define JOURNAL_GONE 1 /* no error: the log begins behind what was asked for */

/* The records from `from` to `to` that are in effect [J4], in order, as many as have bytes_max bytes together (with
 * JOURNAL_RECORD_HEADER for each), but at least one; what is behind the last is left out. If records are replaced meanwhile it ends
 * early: those it gave were in effect together. What it costs does not depend on how long the log is. JOURNAL_GONE: `from` is below
 * the oldest that is kept, or none is. HF_EIO: damaged, or cannot be read. What fn returns ends it, if that is not HF_OK. For any
 * thread, also while others append, remove and reset. */
int journal_read_range(struct journal *journal, uint64_t from, uint64_t to, size_t bytes_max,
                       journal_record_fn *fn, void *context, struct error_text *err);

/* A segment in the making. */
struct journal_spare {
    const struct directory *directory;
    uint64_t number;
    size_t bytes;
    uint64_t salt;
    int file;                  /* the disk's */
    struct error_text failure; /* "": it is ready */
};

/* True: there is neither a spare segment nor one in the making. */
bool journal_wants_spare(const struct journal *journal);
struct journal_spare journal_spare_begin(struct journal *journal);
/* For any thread. Takes as long as a disk needs for 8 MB. */
void journal_spare_make(struct journal_spare *spare);
/* Takes it over; one that failed is dropped. */
void journal_spare_end(struct journal *journal, struct journal_spare *spare);

/* The number of the oldest segment with a record in it that has the index or is above it. */
uint64_t journal_needed(const struct journal *journal, uint64_t index);
/* Removes the files of older ones, the oldest first. For any thread. */
int journal_remove(const struct directory *directory, uint64_t needed, struct error_text *err);
/* And that is known. */
void journal_removed(struct journal *journal, uint64_t needed);
/* Removes everything. The next append may begin with any index. HF_EIO: it may be there or not; nothing can be appended before a
 * reset has succeeded, or the journal was opened again. */
int journal_reset(struct journal *journal, struct error_text *err);

#endif
