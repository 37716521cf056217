/* inside.h: what the files of raft share. */
#ifndef RAFT_INSIDE_H
#define RAFT_INSIDE_H

#include "base/switches.h"
#include "raft/raft.h"

#include <string.h>

#define NEVER_US INT64_MAX
#define ELECTION_MAX_US INT64_C(3600000000)
#define LEAVING_MAX 2 /* members that were removed and do not know it yet */

/* How a leader sends to a follower. §3.5
 *
 *     PROBE ──yes──▶ REPLICATE          PROBE: one message at a time, until it is known where the logs agree
 *       ▲ ◀──no, down, no progress──┘   REPLICATE: as much as may be in flight
 *       └──sent, given up── SNAPSHOT ◀──gone── both */
enum progress_state { PROGRESS_PROBE, PROGRESS_REPLICATE, PROGRESS_SNAPSHOT };

struct progress {
    uint64_t id, incarnation;
    uint64_t match;       /* all up to here is durable there */
    uint64_t next;        /* the first entry to be sent */
    uint64_t commit_sent; /* the commit index in the last message */
    int64_t sent_us;      /* the last message */
    int64_t acked_us;     /* when the newest message was sent that it has answered (R17) */
    int64_t advanced_us;  /* when match last grew, or there was nothing to send */
    uint64_t
        goal; /* of a learner: what the leader had when this round of catching up began; 0: none */
    int64_t goal_us;
    int64_t
        leaving_us; /* not a member any more; served until then, so that it learns of that. 0: a member */
    uint8_t state; /* of enum progress_state */
    bool probing;  /* PROBE: the message is under way */
    bool
        answered; /* in this term, and since its connection last ended; at first acked_us is when the term began */
    bool caught_up;    /* of a learner */
    bool snapshot_due; /* SNAPSHOT: the caller has not been told */
};

struct window_entry {
    uint64_t term, chain;
    uint64_t total; /* bytes of all entries up to this one */
    uint8_t type;
};

struct config {
    uint64_t index; /* 0: none */
    uint32_t count;
};

enum { LATEST, PREVIOUS, CONFIGS };

struct raft {
    struct raft_limits limits;
    uint64_t id, incarnation;
    uint64_t term, vote;
    uint64_t leader;
    uint64_t seed;
    uint8_t role;      /* of enum raft_role */
    bool stopped;      /* after a fatal error nothing happens any more */
    bool writing;      /* what is recovered is not durable yet */
    bool transferring; /* CANDIDATE: by order of the leader before */

    /* The log. The window holds what is above base, up to last. */
    struct raft_id base;
    uint64_t base_total;
    uint64_t last;
    uint64_t commit;
    uint64_t verified; /* agrees with the leader of this term; at least commit */
    uint64_t written;  /* given to the disk */
    uint64_t durable;
    uint64_t
        epoch; /* rises with each truncation: what the disk says of an earlier one does not count */

    /* FOLLOWER */
    int64_t heard_us; /* the leader; 0: not for an election timeout, or it is known to be gone */
    bool ack_due;
    int64_t ack_round;
    int64_t ack_us; /* when the last one was sent */

    /* PRE_CANDIDATE, CANDIDATE */
    uint64_t yes; /* bits, by the place in the latest configuration */

    /* LEADER */
    uint64_t first_of_term; /* its index */
    uint64_t transferee;
    int64_t transfer_until_us;
    bool timeout_sent;
    bool
        commit_urgent; /* followers are told at once: a change of members, or the first of a term */
    int progress_count;

    int64_t now_us;
    int64_t election_us; /* when to campaign; NEVER_US of a leader */
};

/* ---- the tail of the block */

static inline size_t config_stride(const struct raft *raft)
{
    return sizeof(struct config) + raft->limits.members * sizeof(struct raft_member);
}

static inline struct config *config_of(const struct raft *raft, int which)
{
    return (struct config *)((uintptr_t)raft + sizeof *raft + (size_t)which * config_stride(raft));
}

static inline struct raft_member *members_of(const struct raft *raft, int which)
{
    return (struct raft_member *)(config_of(raft, which) + 1);
}

static inline struct progress *progress_of(const struct raft *raft, int i)
{
    return (struct progress *)config_of(raft, CONFIGS) + i;
}

static inline struct window_entry *window_of(const struct raft *raft, uint64_t index)
{
    struct window_entry *ring =
        (struct window_entry *)progress_of(raft, raft->limits.members + LEAVING_MAX);

    return &ring[index % raft->limits.window];
}

/* ---- raft.c */

void raft_fatal(struct raft *raft, struct raft_output *output, const char *words);
struct raft_message *output_message(struct raft *raft, struct raft_output *output, uint8_t type,
                                    uint64_t to);
/* Also from LEADER. leader 0: not known. */
void become_follower(struct raft *raft, uint64_t term, uint64_t leader, struct raft_output *output);
uint64_t draw(struct raft *raft, uint64_t below);
void commit_to(struct raft *raft, uint64_t index, struct raft_output *output);
/* Is this what comes after the last entry of the log? */
bool can_follow(const struct raft *raft, const struct raft_entry *entry);

/* ---- window.c */

bool window_has(const struct raft *raft, uint64_t index); /* base counts */
bool window_tight(
    const struct raft *raft); /* no more proposals: the rest is for what leaders add themselves */
uint64_t window_term(const struct raft *raft, uint64_t index);
uint64_t window_total(const struct raft *raft, uint64_t index);
struct raft_id window_id(const struct raft *raft, uint64_t index);
bool window_full(const struct raft *raft);
/* Behind last; the window is not full. */
void window_append(struct raft *raft, uint64_t term, uint8_t type, uint32_t size, uint64_t chain);
/* All from this index on are gone; it is above commit. */
void window_cut(struct raft *raft, uint64_t index);

/* ---- members.c */

/* Its place in a configuration; -1: not there. */
int member_find(const struct raft *raft, int which, uint64_t id);
bool is_voter(const struct raft *raft, int which, uint64_t id);
/* This very node, and not an earlier one of the same number (R20). */
bool is_voter_itself(const struct raft *raft, int which);
bool members_are_sound(const struct raft_members *members, int count_max);
int voter_count(const struct raft *raft, int which);
int majority(const struct raft *raft);
/* A configuration was appended at `last`. */
void config_push(struct raft *raft, const struct raft_members *members);
void config_set(struct raft *raft, int which, const struct raft_members *members);
/* Entries from this index on were cut off. */
bool config_cut(struct raft *raft, uint64_t index);
void members_change(struct raft *raft, const struct raft_event *event, struct raft_output *output);
/* A learner has caught up? §4.2.1 */
void members_catch_up(struct raft *raft, struct progress *progress, struct raft_output *output);
/* The latest configuration may have been committed. */
void members_committed(struct raft *raft, struct raft_output *output);

/* ---- election.c */

/* A lone voter has nobody to wait for: it campaigns at once. */
bool election_is_settled(const struct raft *raft);
void election_postpone(struct raft *raft);
void election_begin(struct raft *raft, bool by_order, struct raft_output *output);
void election_on_vote(struct raft *raft, const struct raft_message *message,
                      struct raft_output *output);
void election_on_reply(struct raft *raft, const struct raft_message *message,
                       struct raft_output *output);

/* ---- append.c: a follower's side */

/* The sender leads in this term. Fatal if we do. */
void append_hear(struct raft *raft, const struct raft_message *message, struct raft_output *output);
void append_on_entries(struct raft *raft, const struct raft_message *message,
                       struct raft_output *output);
/* R21. Of an append that is not of an earlier term. */
bool append_is_lost(const struct raft *raft, const struct raft_message *message);
void append_acknowledge(struct raft *raft, struct raft_output *output);
uint64_t acknowledged(const struct raft *raft);

/* ---- replicate.c: a leader's side */

void replicate_begin(struct raft *raft, struct raft_output *output);
/* The members have changed. */
void replicate_members(struct raft *raft);
struct progress *progress_find(const struct raft *raft, uint64_t id);
void replicate_on_reply(struct raft *raft, const struct raft_message *message,
                        struct raft_output *output);
void replicate_send(struct raft *raft, struct raft_output *output);
void replicate_probe(struct raft *raft, struct progress *progress);
void replicate_snapshot(struct raft *raft, struct progress *progress, struct raft_output *output);
/* All that a majority has, of this term. */
void replicate_commit(struct raft *raft, struct raft_output *output);
/* R17. Has a majority of the voters answered lately? Whoever has not answered in this term is taken to be there for an election
 * timeout. */
bool majority_answers(const struct raft *raft);
/* R22. Would a majority be there with one voter left out, and a learner counted as one (0: none)? Whoever has answered a message
 * that was sent later than since_us is. */
bool majority_would_answer(const struct raft *raft, uint64_t without, uint64_t with,
                           int64_t since_us);
int64_t replicate_next_us(const struct raft *raft);

/* ---- transfer.c */

void transfer_begin(struct raft *raft, uint64_t to, struct raft_output *output);
/* Tells the target, if it has everything. */
void transfer_try(struct raft *raft, struct raft_output *output);
void transfer_end(struct raft *raft);
void transfer_on_timeout_now(struct raft *raft, const struct raft_message *message,
                             struct raft_output *output);

/* ---- snapshot.c */

void snapshot_installed(struct raft *raft, const struct raft_event *event,
                        struct raft_output *output);

#endif
