/* storing.h: the storage, for the files that make it up:
 *
 *     storage.c   opening and closing; the log; time
 *     loading.c   what is there when it is opened; term and vote; founding
 *     images.c    snapshots, to the disk and from it */
#ifndef REPLICA_STORING_H
#define REPLICA_STORING_H

#include "journal/directory.h"
#include "journal/image.h"
#include "journal/journal.h"
#include "journal/term.h"
#include "replica_libraft/storage.h"

#include <raft.h>

#include <uv.h>

#define TRY_AGAIN_TICKS 10u /* what the disk refused, and can wait, is tried again after so many */

/* What was in the directory, until libraft asks for it. */
struct loaded {
    struct image image;
    struct raft_entry *entries;
    size_t count, capacity;
    raft_index first; /* of the entries */
    char *block;      /* that the last of them lie in */
    size_t used, room;
};

struct waiting_append {
    struct raft_io_append *req;
    const struct raft_entry *entries;
    unsigned count;
    raft_index index;
};

struct putting { /* a snapshot on its way to the disk */
    struct raft_io_snapshot_put *req;
    uv_work_t work;
    struct image image;
    struct iovec configuration; /* encoded */
    bool whole_log;             /* it takes the place of all entries, those after it too */
    raft_index keep;            /* else entries from here on stay */
    uint64_t needed;            /* and this is the oldest segment with such */
    bool running;
    bool waits;     /* for a write to the log, which it replaces */
    unsigned again; /* ticks until it is tried again */
    bool told;      /* the operator, that it failed */
    struct error_text err;
    int result; /* the thread's */
};

struct writing { /* to the log, by a thread */
    uv_work_t work;
    bool running;
    size_t appends, records; /* the first so many of those that wait */
    int result;              /* the thread's, */
    uint64_t took_us;        /* and this */
    struct error_text err;
};

struct getting { /* a snapshot on its way to a follower */
    struct raft_io_snapshot_get *req;
    struct storage *storage;
    uv_work_t work;
    struct image image;
    struct error_text err;
    int result;
};

struct storage {
    struct raft_io io; /* first: libraft hands it back to us */
    struct directory directory;
    uv_loop_t *loop;
    void (*note)(void *context, int level, const char *text);
    void *context;
    bool told_of_syncs;
    struct term term;
    struct journal *journal;
    struct loaded loaded;

    raft_index next; /* index of the next entry to be appended */
    struct waiting_append *appends;
    size_t append_count, append_capacity;
    struct journal_record *records; /* a thread's, while it writes */
    size_t record_capacity;
    struct writing writing;
    uv_mutex_t journal_mutex; /* the journal is that thread's as well */

    struct journal_spare spare; /* being made */
    uv_work_t spare_work;
    bool spare_running;
    bool spare_needed;    /* an append waits for it */
    unsigned spare_again; /* ticks until it is tried again */

    struct putting put;
    unsigned gets;
    struct storage_status status;

    uv_timer_t timer; /* open until the end */
    raft_io_tick_cb tick;
    bool closing, timer_closed;
    raft_io_close_cb io_closed;
    void (*done)(void *context);
    void *done_context;
};

static inline struct storage *storage_of(struct raft_io *io)
{
    return (struct storage *)(void *)io;
}

/* Room for one more. Memory that runs out ends the process. */
void *storage_grown(void *array, size_t *capacity, size_t count, size_t item);
/* Leaves the words for libraft's caller, and gives the status. */
int storage_say(struct storage *storage, int status, const struct error_text *err);
/* Tells libraft that those behind the first `from` have ended. While a snapshot of the leader is being stored it takes no
 * notice of them. */
void storage_end_appends_behind(struct storage *storage, size_t from, int status);
/* Something has ended: perhaps that was the last thing. */
void storage_maybe_finish(struct storage *storage);

/* ---- loading.c ---- */
int loading_read(struct storage *storage, const struct storage_options *options,
                 struct error_text *err);
void loading_forget(struct storage *storage); /* what nobody asked for */
int loading_on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                    struct raft_snapshot **ret_snapshot, raft_index *ret_start_index,
                    struct raft_entry *ret_entries[], size_t *ret_count);
int loading_on_set_term(struct raft_io *io, raft_term term);
int loading_on_set_vote(struct raft_io *io, raft_id id);
int loading_on_bootstrap(struct raft_io *io, const struct raft_configuration *members);
int loading_on_recover(struct raft_io *io, const struct raft_configuration *members);
/* The newest configuration in what was loaded; no members: there is nothing. */
int loading_members(struct storage *storage, struct raft_configuration *ret_members,
                    struct error_text *err);
/* Appends a configuration that nobody has agreed to: for a node that has nobody to ask. */
int loading_replace_members(struct storage *storage, const struct raft_configuration *members,
                            struct error_text *err);

/* ---- images.c ---- */
/* The configuration is decoded into the snapshot, the data handed over. */
int image_to_snapshot(struct image *image, struct raft_snapshot **ret_snapshot);
int images_on_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                  const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done);
int images_on_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                  raft_io_snapshot_get_cb done);
/* Begins what had to wait for a write to the log. */
void images_go_on(struct storage *storage);
/* Tries again what could not be written. */
void images_try_again(struct storage *storage);
/* Ends what is not in a thread. */
void images_cancel(struct storage *storage);

#endif
