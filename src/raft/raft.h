/* raft.h: consensus, and nothing of locks.
 *
 * Raft as in Diego Ongaro's thesis; § is its section. Pure: an event goes in (a message, the time, "this much is on disk", a
 * proposal), and out comes what to persist, send and commit. No I/O, no clock, no allocation, no randomness but a seed. The
 * state is one block without pointers: memcpy copies it, and a simulator or explorer runs this very code.
 *
 *                     election timeout                     majority of pre-votes             majority of votes
 *     ┌──────────┐ ──────────────────▶ ┌───────────────┐ ──────────────────▶ ┌───────────┐ ──────────────────▶ ┌────────┐
 *     │ FOLLOWER │                     │ PRE_CANDIDATE │   (term + 1)        │ CANDIDATE │                     │ LEADER │
 *     └──────────┘ ◀────────────────── └───────────────┘                     └───────────┘                     └────────┘
 *          ▲         leader, or higher term                leader, or higher term │        higher term, no majority │
 *          └──────────────────────────────────────────────────────────────────────┴────────────────────────────────┘
 *     A lone voter, and whoever is told TIMEOUT_NOW, skips the pre-vote. Nobody skips the new term.
 *
 * Invariants
 *  R1  At most one leader in a term. §3.4
 *  R2  A leader only appends. R3  Two logs with the same index and term agree up to there. §3.5
 *  R4  A leader has all that is committed. R5  One entry is applied at an index. §3.6
 *  R6  Term and vote are durable before any message that depends on them. §3.8 Whoever leads has raised the term durably in
 *      this process, a lone voter too.
 *  R7  One's own disk counts when the entry is durable there, as anybody's. §10.2.1 A follower acknowledges what is durable
 *      *and* verified against the leader of this term.
 *  R8  Only entries of the leader's own term are committed by counting. §3.6.2
 *  R9  The commit index never goes back. Whoever contradicts what is committed is a fatal error, and what begins at or below
 *      it matches.
 *  R10 The configuration in effect is the last in the log; where it is cut off, the one before is in effect again. §4.1
 *  R11 A change needs the one before it committed, and an entry of the leader's own term. So a configuration in the log proves
 *      that its predecessor is committed, and two of them are all that must be kept.
 *  R12 A snapshot has the configuration as of its index. Installed, it replaces ours, unless the log holds the snapshot's entry.
 *  R13 Learners do not campaign, count, or obey TIMEOUT_NOW. But who is asked answers: the asker's configuration decides. §4.1
 *  R14 A voter that its latest configuration leaves out may campaign until it knows that it is committed, without counting
 *      itself. §4.2.2 A leader that is left out steps down when that is committed.
 *  R15 A pre-vote changes nothing at whoever is asked. §9.6 The reply has the asked one's term, which the asker adopts.
 *  R16 Who leads, or has heard a leader within the election timeout, ignores votes and pre-votes, §4.2.3 but not those of that
 *      very leader, nor a transfer's. Only a leader's message or a vote that was granted puts off one's own election.
 *  R17 A leader steps down when no majority has answered a message that was sent within the election timeout. §6.2
 *  R18 A transfer stops proposals, waits until the target has everything, and is given up after an election timeout. §3.10
 *  R19 chain(i) is a checksum of all entries up to i. Same index and term but another chain: nobody knows who is wrong, and
 *      the one who sees it stops.
 *  R20 A member is an id and an incarnation, which is drawn with its data directory. Whoever counts checks both.
 *  R21 An append says what its receiver, that incarnation of it, has acknowledged in this term, as far as the leader knows.
 *      Whoever does not have that, or was never in that term, has lost what a majority may count on: its directory is an older
 *      copy of itself. It stops before it helps to forget. An honest node is never hit:
 *      - What it acknowledged was durable, and so was the term (R6, R7): a restart loses neither. A term is never left for an
 *        earlier one, and in a later one the append is not looked at: so it is still in that term.
 *      - In that term nothing up to there is replaced: it agrees with the log of the term's leader, who only appends (R2), so
 *        entries of that leader match, however late or often they come. A snapshot that this leader sends has the same entry if
 *        it is not above what was acknowledged, and the log stays (R12); if it is above, the log goes further than before. One
 *        of an earlier leader is refused (RAFT_ON_INSTALLED); if that one's was complete when the term began, then nothing but what is
 *        committed is acknowledged until it is installed, and it goes further than that.
 *      - What the append says was true when it left, so it is true whenever it comes. A learner, or one that is being removed,
 *        acknowledges like any other; one that is added again, or has a new directory, is another incarnation (R20), of which
 *        the append does not speak.
 *      A copy that comes back when another leads in a later term cannot be told from a node that was away: copies are not for
 *      putting back.
 *  R22 A change of the voters is appended only if a majority of the voters as they would be has answered messages that the leader
 *      sent after it was asked for the change: whoever was heard just before may be gone, and then nobody could take it back.
 */
#ifndef RAFT_RAFT_H
#define RAFT_RAFT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAFT_MEMBERS_MAX 32
#define RAFT_WINDOW_MAX 65536
#define RAFT_TERM_MAX INT64_MAX  /* whoever speaks of a later one is not believed */
#define RAFT_INDEX_MAX INT64_MAX /* of a log: likewise */
/* Each member gets an append or a vote, and one more of something else. */
#define RAFT_MESSAGES_MAX (2 * RAFT_MEMBERS_MAX + 2)
#define RAFT_CONFIG_BYTES_MAX (2 + RAFT_MEMBERS_MAX * 17)

/* ---- what it is made of ---------------------------------------------------------------------- */

struct raft_limits {
    uint16_t members; /* at most RAFT_MEMBERS_MAX */
    uint32_t window;  /* entries that may be above the commit index; at most RAFT_WINDOW_MAX */
    uint32_t in_flight_bytes; /* to a follower, not acknowledged; one entry may always be */
    int64_t election_us, heartbeat_us;
};

/* Where a log is, and everything before it. */
struct raft_id {
    uint64_t index, term, chain;
};

enum raft_entry_type {
    RAFT_COMMAND = 1,
    RAFT_FIRST_OF_TERM,
    RAFT_CONFIG,
    RAFT_VERSION /* the caller's, like a command, but not for its state machine */
};

struct raft_entry {
    uint64_t term, chain;
    uint32_t size, sum; /* of its bytes; the CRC-32C */
    uint8_t type;       /* of enum raft_entry_type */
    const void *bytes;  /* read only of a RAFT_CONFIG; else it may be NULL */
};

struct raft_member {
    uint64_t id; /* not 0 */
    uint64_t incarnation;
    bool votes; /* else it is a learner */
};

struct raft_members {
    uint64_t index; /* of its entry; 0: none */
    int count;
    struct raft_member at[RAFT_MEMBERS_MAX];
};

/* The members at the beginning of a CONFIG entry's bytes; what follows there is the caller's. Returns the size. */
size_t raft_members_write(const struct raft_members *members,
                          uint8_t ret_bytes[RAFT_CONFIG_BYTES_MAX]);
/* False: bytes that are no configuration. index is not touched. */
bool raft_members_read(const void *bytes, size_t size, struct raft_members *ret_members);
uint64_t raft_chain(uint64_t before, uint64_t term, uint8_t type, uint32_t size, uint32_t sum);

/* ---- messages -------------------------------------------------------------------------------- */

enum raft_message_type {
    RAFT_APPEND = 1, /* a heartbeat is one without entries */
    RAFT_APPEND_REPLY,
    RAFT_VOTE,
    RAFT_VOTE_REPLY,
    RAFT_PRE_VOTE,
    RAFT_PRE_VOTE_REPLY,
    RAFT_TIMEOUT_NOW,
    RAFT_SNAPSHOT /* this follower needs one, which the caller sends in its own way. Incoming: some of it has come, see
                     RAFT_ON_INSTALLED */
};

struct raft_message {
    uint8_t type; /* of enum raft_message_type */
    uint64_t from, to;
    uint64_t incarnation; /* of the sender */
    uint64_t term;        /* the sender's; of a pre-vote, the one it would campaign in */

    /* APPEND: what precedes the entries. Outgoing, term and chain are 0 if that is below the window: the caller has the log.
     * VOTE, PRE_VOTE: the last entry of the log. TIMEOUT_NOW: likewise, the leader's. */
    struct raft_id id;

    /* APPEND. Outgoing: entries first to last, which the caller adds; incoming: entries, count. */
    uint64_t first, last;
    const struct raft_entry *entries; /* borrowed */
    uint32_t count;
    uint64_t commit;
    int64_t round; /* when it was sent, by the leader's clock; the reply repeats it */
    uint64_t acked,
        acked_by; /* R21: all up to here is durable at that incarnation of the receiver */

    /* Replies. */
    bool yes;
    uint64_t asked_term; /* of a vote or pre-vote */
    uint64_t
        index; /* APPEND_REPLY: yes, all up to here is durable; no, `id` of this index did not fit */
    uint64_t hint_index,
        hint_term; /* no: try before the first entry of that term; term 0: the log ends before */

    bool transfer; /* VOTE: by order of the leader */
};

/* ---- events ---------------------------------------------------------------------------------- */

enum raft_event_type {
    RAFT_ON_MESSAGE = 1,
    RAFT_ON_TIME,          /* raft_next_us has come, or any other time */
    RAFT_ON_PROPOSE,       /* entry_type, size, sum: result, index */
    RAFT_ON_PERSISTED,     /* all up to index is durable, as of that epoch */
    RAFT_ON_FLUSH,         /* the end of a round: now appends, acknowledgements and writes leave */
    RAFT_ON_CHANGE,        /* member, change, since_us, bytes: result, index */
    RAFT_ON_TRANSFER,      /* to member.id, or 0: any */
    RAFT_ON_PEER_DOWN,     /* the connection with member.id ended */
    RAFT_ON_GONE,          /* a follower needs entries that the log has no more */
    RAFT_ON_SNAPSHOT_SENT, /* to member.id, or given up */
    /* A snapshot of id, with members, is durable and in use. Before any of it was, a message of type RAFT_SNAPSHOT with its
     * sender and the sender's term was fed, and the result was RAFT_OK: only then is the term durable in which it is
     * committed, and a leader of an earlier one is not told that its own entries are here. */
    RAFT_ON_INSTALLED
};

enum raft_change {
    RAFT_ADD = 1,
    RAFT_PROMOTE,
    RAFT_REMOVE,
    RAFT_MOVE /* the members are as they were, and what the caller has about this one is not */
};

struct raft_event {
    uint8_t type; /* of enum raft_event_type */
    int64_t now_us;
    struct raft_message message;
    uint8_t entry_type; /* RAFT_VERSION; else it is a RAFT_COMMAND */
    uint32_t size, sum;
    uint64_t index, epoch;
    uint8_t change; /* of enum raft_change */
    struct raft_member member;
    int64_t since_us;  /* ON_CHANGE: when it was asked for, as now_us counts (R22) */
    const void *bytes; /* ON_CHANGE: what is to follow the members in the entry; borrowed */
    size_t bytes_size;
    struct raft_id id;
    const struct raft_members *members; /* ON_INSTALLED; borrowed */
};

enum raft_result {
    RAFT_OK,
    RAFT_NOT_LEADER, /* also: the sender of a snapshot is none */
    RAFT_BUSY, /* too much is in flight, a transfer or a change is under way, or this term has committed nothing yet */
    RAFT_NO_SUCH,     /* member */
    RAFT_NOT_NEEDED,  /* it is so already */
    RAFT_TOO_MANY,    /* members */
    RAFT_NO_MAJORITY, /* of the voters as they would be has answered yet (R22): ask again */
    RAFT_LAST_VOTER   /* would be removed */
};

enum raft_role { RAFT_FOLLOWER, RAFT_PRE_CANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

/* To be carried out in this order. */
struct raft_output {
    bool
        persist; /* 1: term and vote. A barrier: nothing that follows is done, and no event comes in, until they are durable */
    uint64_t term, vote;
    int message_count; /* 2 */
    struct raft_message messages[RAFT_MESSAGES_MAX];
    uint64_t
        taken; /* entries of this message, from that index to the last of the log, are new; 0: none. For the caller's log */
    bool append; /* 3: write these entries; what the log has from append_first on is replaced */
    uint64_t append_first, append_last, append_epoch;
    bool committed; /* 4: all up to here, also across a snapshot that was installed */
    uint64_t commit;
    bool changed;       /* 5: role, leader, or members in effect */
    uint64_t caught_up; /* a learner that can be promoted; 0: none */
    const char *fatal;  /* 6: static words; the node must stop */

    int result; /* of enum raft_result: of a proposal, change or transfer */
    /* An entry that raft itself has appended, for the caller's log: a leader's first, or the change that was asked for. Its
     * index is 0 if there is none. A proposal's index is here too. */
    uint64_t index;
    struct raft_entry made;
    uint8_t
        made_bytes[RAFT_CONFIG_BYTES_MAX]; /* the beginning of `made`; the event's bytes follow */
    size_t made_size;
};

/* ---- the thing itself ------------------------------------------------------------------------ */

struct raft;

/* What was found on disk. raft_boot_check says what is wrong with it. */
struct raft_boot {
    uint64_t id, incarnation;
    uint64_t term, vote;
    struct raft_id snapshot;            /* index 0: none */
    const struct raft_members *members; /* as of the snapshot; borrowed */
    uint64_t
        commit; /* known to be committed, at least the snapshot; the entries above fit into the window */
    bool writing; /* the entries of raft_recover are not durable before RAFT_ON_PERSISTED says so */
    uint64_t seed;
    int64_t now_us;
};

/* NULL: nothing is wrong. */
const char *raft_boot_check(const struct raft_limits *limits, const struct raft_boot *boot);
size_t raft_size(const struct raft_limits *limits);
/* ret: raft_size bytes, of what passes raft_boot_check. Then raft_recover for each entry of the log above the snapshot, in their order. */
void raft_init(struct raft *ret, const struct raft_limits *limits, const struct raft_boot *boot);
/* False: an entry that cannot follow, or is no configuration though it says so. */
bool raft_recover(struct raft *raft, const struct raft_entry *entry);
void raft_step(struct raft *raft, const struct raft_event *event, struct raft_output *output);
/* When RAFT_ON_TIME is due next. */
int64_t raft_next_us(const struct raft *raft);

enum raft_role raft_role(const struct raft *raft);
uint64_t raft_term(const struct raft *raft);
uint64_t raft_leader(const struct raft *raft); /* 0: not known */
uint64_t raft_commit(const struct raft *raft);
uint64_t raft_last(const struct raft *raft);
void raft_members(const struct raft *raft, struct raft_members *ret_members);
/* The configuration that would be in effect again if the latest were cut off; count 0: none is kept. */
void raft_members_before(const struct raft *raft, struct raft_members *ret_members);
/* False: it is not in the window, or not in the log. */
bool raft_id_of(const struct raft *raft, uint64_t index, struct raft_id *ret_id);
/* Would a proposal be taken now? */
bool raft_may_propose(const struct raft *raft);
uint64_t raft_transferee(const struct raft *raft); /* 0: no transfer is under way */

struct raft_progress {
    bool answered;  /* this leader, at all */
    uint64_t match; /* all up to here is durable there */
    int64_t
        acked_us; /* when the newest message was sent that it has answered; at first, when this leader began */
    bool probing;      /* one message is under way, and nothing follows until it is answered */
    bool snapshotting; /* it waits for a snapshot, or gets one */
};
/* Of a follower. False: this node does not lead, or has no such follower. */
bool raft_progress(const struct raft *raft, uint64_t id, struct raft_progress *ret_progress);

/* Does it contradict itself? NULL: no. */
const char *raft_check(const struct raft *raft);
/* All that decides what it will do, without times and chance, for a hash. At most raft_size bytes. */
size_t raft_canonical(const struct raft *raft, int64_t now_us, void *ret_bytes);

#endif
