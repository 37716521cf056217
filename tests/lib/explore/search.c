/* search.c: see search.h. */
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20
#else
#define SLOWER 1
#endif
#define SECONDS_MAX 20 /* all runs together, however slow the machine is */
#define SOAK_SECONDS_MAX 1800
#define STATES_MIN 1024

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Where the fingerprint is, or has its place. */
static uint64_t slot_of(const struct search *search, uint64_t fingerprint)
{
    uint64_t slot = fingerprint & (search->slots - 1);

    while (search->seen[slot] != 0 && search->seen[slot] != fingerprint)
        slot = (slot + 1) & (search->slots - 1);
    return slot;
}

bool search_is_full(const struct search *search)
{
    return search->count >= search->states_max;
}

uint32_t search_found(struct search *search, uint32_t from, const void *step, size_t size,
                      uint64_t fingerprint)
{
    struct search_record *record = &search->records[search->count];
    uint64_t slot = slot_of(search, fingerprint);

    search->steps++;
    if (search->seen[slot] == 0) {
        if (search_is_full(search))
            return SEARCH_NONE;
        search->seen[slot] = fingerprint;
        if (search->numbers)
            search->numbers[slot] = (uint32_t)search->count;
        record->parent = from;
        memcpy(record->step, step, size);
        search->count++;
    }
    return search->numbers ? search->numbers[slot] : SEARCH_NONE;
}

int search_way(const struct search *search, uint32_t state, uint32_t ret_way[SEARCH_DEPTH_MAX])
{
    int depth = 0;

    for (uint32_t at = state; at != 0; at = search->records[at].parent)
        depth++;
    for (int i = depth; i >= 0; i--) {
        ret_way[i] = state;
        state = search->records[state].parent;
    }
    return depth;
}

void search_step_to(const struct search *search, uint32_t state, void *ret_step, size_t size)
{
    memcpy(ret_step, search->records[state].step, size);
}

/* ---- breadth first --------------------------------------------------------------------------- */

static bool go(struct search *search, const struct search_owner *owner)
{
    uint64_t at = 0, end = 1;
    double began = seconds();
    int depth = 0;
    bool right = true;

    while (right && at < end && depth < SEARCH_DEPTH_MAX - 1 && !search_is_full(search)) {
        while (right && at < end && !search_is_full(search)) {
            right = owner->expand(search, (uint32_t)at++);
            if (seconds() > search->until)
                search->states_max = search->count;
        }
        if (at == end) {
            end = search->count;
            depth++;
        }
    }
    printf("%s (%s): %llu states, %s depth %d, %llu steps, %.0f states/s%s\n", search->name,
           search->bounds, (unsigned long long)search->count,
           right && at == search->count ? "all of them, to" : "all up to", depth - (at == end),
           (unsigned long long)search->steps, (double)search->count / (seconds() - began + 0.001),
           right ? "" : ": WRONG");
    return right;
}

static bool explore(const struct search_owner *owner, int run, struct search *search,
                    double limit_s)
{
    uint64_t first;
    bool right;

    if (search->states_max < STATES_MIN)
        search->states_max = STATES_MIN;
    if (search->states_max > UINT32_MAX)
        search->states_max = UINT32_MAX;
    search->until = seconds() + limit_s;
    search->slots = 1;
    while (search->slots < 2 * search->states_max)
        search->slots *= 2;
    search->records = calloc(search->states_max + 1, sizeof *search->records);
    search->seen = calloc(search->slots, sizeof *search->seen);
    if (owner->numbers)
        search->numbers = calloc(search->slots, sizeof *search->numbers);
    if (!search->records || !search->seen || (owner->numbers && !search->numbers)) {
        printf("%s: too little memory for %llu states\n", search->name,
               (unsigned long long)search->states_max);
        exit(1);
    }
    search->count = 1;
    first = owner->begin(search, run);
    if (first)
        search->seen[slot_of(search, first)] = first;
    right = first && go(search, owner);
    owner->end(search);
    free(search->records);
    free(search->seen);
    free(search->numbers);
    return right;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int list(const struct search_owner *owner)
{
    for (int i = 0; i < owner->run_count; i++) {
        struct search search = {0};

        owner->describe(i, &search);
        printf("%s\n", search.name);
    }
    return 0;
}

int search_main(int argc, char **argv, const struct search_owner *owner)
{
    const char *soak = getenv("HF_SOAK");
    bool is_soak = soak && soak[0] == '1';
    double end = seconds() + (is_soak || argc > 2 ? SOAK_SECONDS_MAX : SECONDS_MAX);
    int bad = 0, found = 0;

    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list(owner);
    for (int i = 0; i < owner->run_count; i++) {
        struct search search = {0};
        uint64_t states;

        owner->describe(i, &search);
        if (argc > 1 && strcmp(argv[1], search.name) != 0)
            continue;
        found++;
        states = is_soak ? search.soak_states : search.short_states;
        search.states_max = argc > 2 ? strtoull(argv[2], NULL, 10) : states / SLOWER;
        bad +=
            !explore(owner, i, &search,
                     argc > 3 ? strtod(argv[3], NULL) : (end - seconds()) / (owner->run_count - i));
        fflush(stdout);
    }
    if (found == 0)
        printf("there is no such run: %s\n", argv[1]);
    return bad > 0 || found == 0;
}
