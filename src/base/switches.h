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
    SWITCH_TOKENS_REPEAT           /* a restored table gives its last token once more */
};

#ifdef HOLDFAST_SWITCHES
extern unsigned switches_on; /* a bit for each */
#define SWITCHED(name) (switches_on & 1u << (name))
#else
#define SWITCHED(name) 0
#endif

#endif
