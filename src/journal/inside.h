/* inside.h: the journal, for journal.c (writing), spare.c (new segments), removing.c, reading.c (opening),
 * range.c (reading later) and tail.c (what is behind the last record). */
#ifndef JOURNAL_INSIDE_H
#define JOURNAL_INSIDE_H

#include "journal/bytes.h"
#include "journal/end.h"
#include "journal/journal.h"
#include "journal/places.h"

#define SEGMENT_PREFIX "log-"
#define SEGMENT_NAME_SIZE 32
#define SEGMENT_MAGIC UINT64_C(0x32676f6c64664648) /* "HFfdlog2" */
/* "HFfdlog1": of the versions before 0.1.0, whose records have neither chain nor commit. */
#define SEGMENT_MAGIC_OLD UINT64_C(0x31676f6c64664648)
#define SEGMENT_FRESH 1u /* flag: all segments before it are void */
/* Magic, first index, flags, number of its first group: numbers of 8 bytes; then the checksum. Written with
 * the first group. */
#define SEGMENT_SUMMED 32
/* The salt, the segment's number, the bytes it was made with, and their checksum, in another sector: there
 * from the beginning, so that a first write that is cut short leaves them alone. */
#define SALT_AT 2048
#define SALT_SUMMED 24

/* Before the bytes of a record: checksum (4) of all that follows; size (4), index (8), term (8), number of
 * its group (8), salt of its segment (8), chain (8), commit (8), how many records of the group are still to come
 * (4), type (1); of the checksum of these, without the first, three bytes (3). Records begin at multiples of
 * 8. */
#define RECORD_HEADER JOURNAL_RECORD_HEADER
#define RECORD_STEP ((size_t)8)
#define HEADER_SUMMED ((size_t)57) /* from its size to its type */

/* [J5] The least that a disk writes: all of it, or nothing. */
#define SECTOR ((size_t)512)

struct segment {
    uint64_t number, first; /* index of its first record */
};

struct placed { /* a record in its group */
    struct journal_record record;
    uint64_t group; /* its number, */
    uint32_t left;  /* and how many records of it are still to come */
    uint32_t checksum;
};

/* A segment that was found. */
struct found {
    uint64_t number;
    bool begun;     /* it has a header that is whole */
    uint64_t first; /* index, */
    bool fresh;     /* as its header says, */
    uint64_t group; /* and the number of its first group */
    bool salted;    /* its salt is whole: */
    uint64_t salt;
    uint64_t made;        /* with so many bytes */
    unsigned char *bytes; /* all of it, while it is being read */
    size_t size;
    size_t end; /* up to here it is whole */
};

struct leftover { /* found when the journal was opened */
    uint64_t number;
    size_t end; /* the file is longer than what is whole in it; 0: it goes altogether */
};

struct journal {
    const struct directory *directory;
    size_t segment_bytes;
    struct segment *segments; /* with records in them, oldest first */
    size_t count, capacity;
    struct leftover *leftovers;
    size_t leftover_count;
    uint64_t next_number;
    int file;              /* of the one being written, the last; -1: none yet */
    size_t room;           /* its bytes, */
    size_t at;             /* where its next group goes, */
    uint64_t group_number; /* and the number of the last, of all segments */
    uint64_t salt;         /* of its segment */
    bool fresh;
    struct end end;           /* the last record that is durable, */
    struct end marked;        /* and what the mark says */
    bool failed;              /* an append has */
    bool resetting;           /* a reset has: what is there may be void */
    struct journal_torn torn; /* segment 0: nothing */

    struct places places; /* of the records in effect */

    struct journal_spare spare; /* file -1: none */
    bool making;

    unsigned char *group; /* room for one, at a border */
    size_t group_capacity;
};

/* Into the first block of a segment. */
void salt_write(unsigned char *block, uint64_t salt, uint64_t number, uint64_t made);
/* Three bytes of a checksum, of a record's header. */
uint32_t header_checksum(const unsigned char *header);
void segment_name(uint64_t number, char ret_name[SEGMENT_NAME_SIZE]);
/* gently: see disk.h. */
int segment_remove(const struct directory *directory, uint64_t number, bool gently,
                   struct error_text *err);
int journal_add_segment(struct journal *journal, uint64_t number, uint64_t first,
                        struct error_text *err);

void journal_close_segment(struct journal *journal);
/* The mark says that it goes as far as it does now; open: and more may come. */
int journal_mark_end(struct journal *journal, bool open, struct error_text *err);

/* reading.c */
/* Is there a whole record at that place? */
bool segment_record_at(const struct found *found, size_t at, struct placed *ret_placed);
int journal_read(struct journal *journal, journal_record_fn *fn, void *context,
                 struct error_text *err);

/* tail.c */
enum tail {
    TAIL_EMPTY = 1, /* nothing was written there */
    TAIL_TORN,      /* a write that was cut short: it had not been acknowledged */
    TAIL_DAMAGED    /* no such write leaves this */
};
/* What is at that place, where there is no record that may follow the last one? */
enum tail tail_judge(const struct found *found, size_t at, const struct placed *last);
/* And in a segment without a header that is whole? */
enum tail tail_judge_unbegun(const struct found *found);
/* Bytes from there on, up to the end of the last sector that was written. */
size_t tail_bytes(const struct found *found, size_t at);

#endif
