/* contract.h: what the test_contract_* share. They pin what src/replica_libraft relies on in libraft, so that one
 * that breaks it is noticed.
 *
 * The subject is one real node, number 1: libraft as it is installed, without src/replica_libraft's gate and
 * batches. The other members are played by hand: what they say is put into its ear (hear_…), what it says
 * is kept (told_…). Time is the test's. Its raft_io is the one in memory, or the real one in a directory;
 * for whatever is about a restart it is the latter.
 *
 * An entry is written as in the paper, index^term, and that is also what is in it. The state machine is the
 * list of those that were applied: "2^1 3^2". A snapshot is this list, too. */
#ifndef TESTS_REPLICA_CONTRACT_H
#define TESTS_REPLICA_CONTRACT_H

#include "memory_io.h"
#include "replica_libraft/storage.h"

#include <raft.h>

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#define ELECTION_MS 1000u /* followers: up to twice that */
#define HEARTBEAT_MS 100u
#define TOLD_MAX 512
#define STATE_MAX 1024
#define ENTRIES_MAX 8 /* in one message */
#define SEGMENT_BYTES 16384

/* A message that libraft has sent. What it pointed to is gone. */
struct told {
    struct raft_message message;
    raft_term terms[ENTRIES_MAX];
    raft_term
        stored_term; /* if it acknowledges an entry: of the one that the io in memory had then */
};

struct subject {
    struct raft raft;
    struct raft_fsm fsm;
    struct raft_io *io, saved;
    unsigned members;
    raft_time now_ms;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    bool running, closed;

    char state[STATE_MAX]; /* of the state machine */
    unsigned restores;
    struct told told[TOLD_MAX];
    unsigned told_count;
    struct raft_apply proposals[16];
    unsigned proposal_count;

    struct memory_io memory;

    /* in a directory; home "": in memory */
    char home[PATH_MAX - 64];
    char path[PATH_MAX]; /* of the data, in home; another one after a crash */
    char kept[PATH_MAX]; /* the directory as it was at some moment; "": none */
    unsigned copies;
    enum raft_message_type
        keep_at; /* when such a message is sent the directory is kept; 0: never */
    uv_loop_t loop;
    uv_timer_t beat;
    struct storage *storage;
};

/* ---- its life --------------------------------------------------------------------------------- */

/* Of so many members. */
void subject_init(struct subject *subject, unsigned members);
/* The same, in a new directory below $HOLDFAST_TEST_DIR. */
void subject_init_on_disk(struct subject *subject, unsigned members);
/* Founds the cluster if there is nothing yet: 1^1 is the members. */
void subject_start(struct subject *subject);
void subject_stop(struct subject *subject);
void subject_free(struct subject *subject);

/* A round of the loop: on disk. In memory everything that is not held ends. */
void subject_turn(struct subject *subject);
/* Time goes by, with a tick for each heartbeat. */
void subject_pass(struct subject *subject, unsigned ms);
/* Time goes by until it stands for election: it asks for pre-votes. */
void subject_stand(struct subject *subject);
/* It stands, and 2 and up give it their votes, as many as it needs. */
void subject_lead(struct subject *subject);
/* Proposes an entry. */
int subject_propose(struct subject *subject);

#define SUBJECT_PATIENCE_TURNS 30000 /* of a millisecond at most: what takes longer will not come */
#define SUBJECT_UNTIL(subject, condition)                      \
    do {                                                       \
        for (int turns = 0; !(condition); turns++) {           \
            if (turns == SUBJECT_PATIENCE_TURNS)               \
                fail_msg("waited in vain for %s", #condition); \
            subject_turn(subject);                             \
        }                                                      \
    } while (0)

/* ---- what it hears ---------------------------------------------------------------------------- */

struct append { /* AppendEntries: the entries are prev + 1 ^ terms[0] and so on */
    raft_id from;
    raft_term term;
    raft_index prev;
    raft_term prev_term;
    raft_index commit;
    unsigned count;
    raft_term terms[ENTRIES_MAX];
};
void hear_append(struct subject *subject, struct append append);

struct vote_request {
    raft_id from;
    raft_term term;
    raft_index last;
    raft_term last_term;
    bool pre, disrupt;
};
/* True: it is granted. */
bool hear_vote_request(struct subject *subject, struct vote_request request);
void hear_vote(struct subject *subject, raft_id from, raft_term term, bool pre);
/* The log of `from` is like the subject's up to this entry: to a leader. */
void hear_acknowledged(struct subject *subject, raft_id from, raft_index index);

struct install { /* InstallSnapshot: the state up to index^last_term */
    raft_id from;
    raft_term term;
    raft_index index;
    raft_term last_term;
    unsigned members;
    const char *state;
};
void hear_install(struct subject *subject, struct install install);
void hear_timeout_now(struct subject *subject, raft_id from, raft_term term, raft_index last,
                      raft_term last_term);

/* ---- what it says ----------------------------------------------------------------------------- */

void told_forget(struct subject *subject);
/* The last message of that kind to that member, or NULL. */
const struct told *told_last(const struct subject *subject, enum raft_message_type type,
                             raft_id to);
unsigned told_count(const struct subject *subject, enum raft_message_type type, raft_id to);
/* The highest index that it has acknowledged to that member; 0: none. */
raft_index told_acknowledged(const struct subject *subject, raft_id to);

/* ---- a directory ------------------------------------------------------------------------------ */

/* Keeps the directory as it is now: that is what a process leaves behind that is killed. */
void subject_keep(struct subject *subject);
/* It ends, and begins again with what was kept. */
void subject_crash(struct subject *subject);
/* For contract.c: the raft_io of the directory, and its end after libraft's. */
void disk_enter(struct subject *subject);
void disk_leave(struct subject *subject);
void disk_remove(struct subject *subject);
/* Copies the files whose names begin like this and that are not there yet. */
void copy_files(const char *from, const char *to, const char *begins);
unsigned count_files(const char *path, const char *begins);

#endif
