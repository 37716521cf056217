/* switches.h: known faults that the simulator can put back into the code, to see that it finds them. They are compiled into its own build of
 * these rooms only: everywhere else SWITCHED is 0, and the compiler drops what depends on it. */
#ifndef BASE_SWITCHES_H
#define BASE_SWITCHES_H

enum switch_name {
    SWITCH_CONFIG_AT_FIRST =
        1,                /* a CONFIG entry is noted under the index of its message's first entry */
    SWITCH_LONE_OLD_TERM, /* a lone voter that starts again leads in its old term */
    SWITCH_ACK_BEFORE_DURABLE,     /* a follower acknowledges what its disk does not have yet */
    SWITCH_OLDER_TERM_BY_COUNTING, /* entries of earlier terms are committed by counting */
    SWITCH_LEASE_FROM_ANSWER,      /* a client counts its lease from the answer's arrival */
    SWITCH_TOKENS_REPEAT,          /* a restored table gives its last token once more */
    SWITCH_OLD_COPY_GOES_ON,       /* a node with an older copy of its directory does not stop */
    SWITCH_VERSION_TOO_EARLY,      /* a version comes into effect before all members read it */
    SWITCH_TABLE_DIVERGES,         /* some nodes do not apply some entries */
    SWITCH_VOTE_NOT_DURABLE,       /* a vote for another node is forgotten when the process ends */
    SWITCH_UNKNOWN_AS_REFUSED, /* who was in flight when the leader was deposed is told that nothing happened */
    SWITCH_QUEUE_LOST,         /* a restored table has lost the first of each queue */
    SWITCH_BREAK_NOT_WITHHELD, /* a lock that was broken goes to the next one at once */
    SWITCH_LOG_BEHIND_SNAPSHOT, /* a log that begins right behind the snapshot is dropped at a start */
    SWITCH_LOCAL_READ,          /* who believes that it leads answers reads without asking others */
    SWITCH_BLOCKED_UNKEPT, /* who is blocked at a leader that was deposed and leads again stays blocked */
    SWITCH_BLOCKED_NEXT_TERM, /* who is blocked at a deposed leader is told what the next leader's term brings */
    SWITCH_TERM_ONCE /* a term whose second copy was not written any more stays so after a start */
};

#ifdef HOLDFAST_SWITCHES
extern unsigned switches_on; /* a bit for each */
#define SWITCHED(name) (switches_on & 1u << (name))
#else
#define SWITCHED(name) 0
#endif

#endif
