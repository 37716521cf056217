/* search.h: goes through all states that can be reached from a first one, breadth first. What a state is and what may happen in
 * it is its owner's: consensus (tests/unit/raft) and the lock table (tests/unit/core) have one each.
 *
 * A state that was seen is known by a 64-bit fingerprint. Of each only its predecessor and the step from there are kept: its owner
 * makes it again from those, so that little memory holds many (some 40 bytes each). The first state that is wrong is therefore
 * at the end of a shortest way.
 *
 *     PROGRAM [RUN [STATES [SECONDS]]]     only this run; to so many states, or for so long
 *     PROGRAM --list                       the names of its runs
 *
 * HF_SOAK=1: to many more states, for up to half an hour. Without, a program ends after 20 seconds in any case. */
#ifndef TESTS_EXPLORE_SEARCH_H
#define TESTS_EXPLORE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEARCH_STEP_BYTES 8u
#define SEARCH_DEPTH_MAX 120

struct search_record {
    uint32_t parent;
    unsigned char step[SEARCH_STEP_BYTES];
};

struct search {
    /* Said by search_owner.describe. Borrowed. */
    const char *name, *bounds;
    uint64_t short_states; /* how many are enough in the short form */
    uint64_t soak_states;  /* and with HF_SOAK=1 */

    void *owner; /* what search_owner.begin wants to keep */
    uint64_t count, steps, states_max;
    double until; /* seconds */
    struct search_record *records;
    uint64_t *seen;    /* open addressing; 0: free */
    uint32_t *numbers; /* of the states in `seen`; NULL: nobody wants them */
    uint64_t slots;
};

struct search_owner {
    int run_count;
    void (*describe)(int run, struct search *search);
    /* Makes the first state and returns its fingerprint. 0: something is wrong with the run, and was printed. */
    uint64_t (*begin)(struct search *search, int run);
    /* Takes every step from a state, and calls search_found for each. False: something is wrong, and was printed. */
    bool (*expand)(struct search *search, uint32_t state);
    void (*end)(struct search *search); /* also after a begin that failed */
    bool numbers;                       /* search_found says which state it is */
};

/* What main returns. */
int search_main(int argc, char **argv, const struct search_owner *owner);

/* The step (of at most SEARCH_STEP_BYTES) from this state leads to one of this fingerprint, which is not 0. The number of the first state of
 * that fingerprint, this one or an earlier one; SEARCH_NONE: there is no room for it, or the owner does not want to know. */
#define SEARCH_NONE UINT32_MAX
uint32_t search_found(struct search *search, uint32_t from, const void *step, size_t size,
                      uint64_t fingerprint);
bool search_is_full(const struct search *search);
/* The states from the first one to this one. How many steps there are between them. */
int search_way(const struct search *search, uint32_t state, uint32_t ret_way[SEARCH_DEPTH_MAX]);
/* The step that led to a state. */
void search_step_to(const struct search *search, uint32_t state, void *ret_step, size_t size);

/* For fingerprints. */
static inline uint64_t search_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

#endif
