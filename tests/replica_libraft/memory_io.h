/* memory_io.h: a raft_io without a disk, a network or a clock. Nothing happens until the test says
 * so: appends, snapshots and messages wait for memory_io_settle, time for memory_io_tick.
 *
 * What is durable is what a settled append or put has stored: memory_io_crash throws the rest away.
 * All other members can be played by the io itself: `peers_answer`. */
#ifndef TESTS_REPLICA_MEMORY_IO_H
#define TESTS_REPLICA_MEMORY_IO_H

#include <raft.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_WAITING_MAX 256

struct memory_append {
    struct raft_io_append *req;
    const struct raft_entry *entries;
    unsigned n;
    raft_index index;
};

struct memory_put {
    struct raft_io_snapshot_put *req;
    const struct raft_snapshot *snapshot;
    unsigned trailing;
};

struct memory_sent {
    struct raft_io_send *req;
    struct raft_message message; /* what it points to lives until req is answered */
};

struct memory_io {
    struct raft_io io; /* first */

    /* durable */
    raft_term term;
    raft_id voted_for;
    raft_index first; /* of the entries */
    size_t count, capacity;
    struct raft_entry *entries;
    struct raft_snapshot snapshot; /* index 0: none */
    struct raft_buffer snapshot_bytes;

    /* of the running node */
    raft_id id;
    bool running;
    raft_time now_ms;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    raft_index next;
    struct memory_append appends[MEMORY_WAITING_MAX];
    struct memory_put puts[MEMORY_WAITING_MAX];
    struct raft_io_snapshot_get *gets[MEMORY_WAITING_MAX];
    struct memory_sent sent[MEMORY_WAITING_MAX];
    unsigned append_count, put_count, get_count, sent_count;
    raft_io_close_cb closed;

    /* the test's wishes */
    bool hold_appends, hold_puts, hold_gets;
    bool peers_answer; /* votes are given, entries acknowledged; else messages get lost */
    raft_id silent;    /* this one does not answer; 0: all do */
    raft_id empty;     /* this one has no log, until it gets a snapshot; 0: all have one */
    raft_id empty_too; /* likewise */
    raft_id slow;      /* a snapshot to this one stays under way; 0: to none */
    struct memory_sent slow_sent;
    raft_index ack_max; /* no entry above this is acknowledged; 0: all are */
    int fail_set_term, fail_set_vote, fail_append, fail_put; /* at once, with this code */
    int spoil_append, spoil_put;                             /* when settled, with this code */
    int spoil_get;

    unsigned append_calls, put_calls, get_calls, installs;
    unsigned installed;       /* to whom, a bit for each id */
    raft_index install_index; /* of the last snapshot that was sent to another node */
    raft_term install_term;
    struct raft_append_entries_result told; /* what a leader was told last, */
    struct raft_request_vote_result voted;  /* and a candidate */
};

void memory_io_init(struct memory_io *memory);
/* Forgets what is not durable. Only when it is closed. */
void memory_io_crash(struct memory_io *memory);
void memory_io_free(struct memory_io *memory);

/* Lets everything happen that is not held, until nothing more does. */
void memory_io_settle(struct memory_io *memory);
/* So many milliseconds go by, and libraft hears of it. */
void memory_io_tick(struct memory_io *memory, unsigned ms);
/* A message comes in. */
void memory_io_receive(struct memory_io *memory, struct raft_message *message);
/* An AppendEntries from `id`, which leads in `term`: with one entry of `size` bytes after prev_index,
 * or none if bytes is NULL. */
void memory_io_receive_entry(struct memory_io *memory, raft_id id, raft_term term,
                             raft_index prev_index, raft_term prev_term, raft_index commit,
                             const void *bytes, size_t size);
/* The same with any number of entries. */
void memory_io_receive_entries(struct memory_io *memory, raft_id id, raft_term term,
                               raft_index prev_index, raft_term prev_term, raft_index commit,
                               const struct raft_buffer *entries, unsigned count);
/* The durable entry with this index, or NULL. */
const struct raft_entry *memory_io_entry(const struct memory_io *memory, raft_index index);
raft_index memory_io_last(const struct memory_io *memory);

#endif
