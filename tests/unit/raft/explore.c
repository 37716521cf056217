/* explore.c: goes through every way in which a few nodes can be moved, breadth first.
 *
 *     test-raft-explore [RUN [STATES [SECONDS]]]     only this run; to so many states, or for so long
 *
 * A state that was seen is known by a 64-bit fingerprint of all that decides (raft_canonical of the nodes, disks, network,
 * ghosts). Of each only its predecessor and the step from there are kept: it is made again from those, along with its
 * neighbours, so that little memory holds many. The first state that is wrong is therefore at the end of a shortest way,
 * which is printed as a script with what comes out: it can be put beside the others.
 *
 * HF_SOAK=1: to 40 times as many states. Without, it ends after 20 seconds in any case. */
#include "explore.h"
#include "script.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MAX 120
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20
#else
#define SLOWER 1
#endif
#define SOAK_TIMES 40
#define SECONDS_MAX 20 /* all runs together, however slow the machine is */
#define SOAK_SECONDS_MAX 1800
#define HEAL_EVERY 1024
#define STATES_MIN 1024

struct record {
    uint32_t parent;
    struct explore_step step;
};

struct explorer {
    const struct explore_run *run;
    uint64_t states_max, count;
    double until; /* seconds */
    struct record *records;
    uint64_t *seen; /* open addressing; 0: free */
    uint64_t slots;
    /* The way to the state that was looked at last. */
    int depth;
    uint32_t way[DEPTH_MAX];
    struct explore_state *states[DEPTH_MAX];
    struct explore_state *next, *scratch;
};

static bool is_new(struct explorer *explorer, uint64_t fingerprint)
{
    uint64_t slot = fingerprint & (explorer->slots - 1);

    while (explorer->seen[slot] != 0 && explorer->seen[slot] != fingerprint)
        slot = (slot + 1) & (explorer->slots - 1);
    if (explorer->seen[slot] == fingerprint)
        return false;
    explorer->seen[slot] = fingerprint;
    return true;
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* Makes a state of that depth again; all before where the way parts from the last one are there. */
static struct explore_state *make(struct explorer *explorer, uint32_t at, int depth)
{
    uint32_t way[DEPTH_MAX];
    int same = 0;

    for (int i = depth; i >= 0; i--) {
        way[i] = at;
        at = explorer->records[at].parent;
    }
    while (same <= depth && same <= explorer->depth && explorer->way[same] == way[same])
        same++;
    for (int i = same; i <= depth; i++) {
        if (!explorer->states[i])
            explorer->states[i] = malloc(sizeof *explorer->states[i]);
        explore_copy(explorer->states[i], explorer->states[i - 1]);
        explore_apply(explorer->states[i], &explorer->records[way[i]].step, explorer->run);
        explorer->way[i] = way[i];
    }
    explorer->depth = depth;
    return explorer->states[depth];
}

/* The way to the last state, and one step more, as a script that is played. */
static void print_way(struct explorer *explorer, const struct explore_step *last, const char *wrong)
{
    char *script = NULL, *played, why[SCRIPT_WRONG_MAX];
    size_t size = 0;
    FILE *out = open_memstream(&script, &size);

    fprintf(out, "# %s: %s\n%s", explorer->run->name, wrong, explorer->run->script);
    for (int i = 1; i <= explorer->depth; i++)
        explore_words(out, explorer->states[i - 1], &explorer->records[explorer->way[i]].step);
    if (last)
        explore_words(out, explorer->states[explorer->depth], last);
    fclose(out);
    played = script_play(script, &explorer->scratch->cluster, why);
    printf("%s\n", played ? played : script);
    if (!played)
        printf("(not played: %s)\n", why);
    free(script);
    free(played);
}

/* ---- breadth first --------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool expand(struct explorer *explorer, uint32_t at, int depth)
{
    struct explore_step steps[EXPLORE_STEPS_MAX];
    struct explore_state *state = make(explorer, at, depth);
    int count = explore_steps(explorer->run, state, steps);

    for (int i = 0; i < count && explorer->count < explorer->states_max; i++) {
        struct explore_state *next = explorer->next;

        explore_copy(next, state);
        explore_apply(next, &steps[i], explorer->run);
        if (next->cluster.wrong[0]) {
            printf("%s: %s, in %d steps:\n", explorer->run->name, next->cluster.wrong, depth + 1);
            print_way(explorer, &steps[i], next->cluster.wrong);
            return false;
        }
        if (is_new(explorer, explore_fingerprint(next)))
            explorer->records[explorer->count++] = (struct record){at, steps[i]};
    }
    if (at % HEAL_EVERY == 0 && seconds() > explorer->until)
        explorer->states_max = explorer->count;
    if (at % HEAL_EVERY == 0 && !explore_heals(state, explorer->scratch)) {
        printf("%s: %s, in %d steps:\n", explorer->run->name, explorer->scratch->cluster.wrong,
               depth);
        print_way(explorer, NULL, "nobody gets on afterwards");
        return false;
    }
    return true;
}

static bool go(struct explorer *explorer)
{
    uint64_t at = 0, end = 1;
    double began = seconds();
    int depth = 0;
    bool right = true;

    while (right && at < end && depth < DEPTH_MAX - 1 && explorer->count < explorer->states_max) {
        while (right && at < end && explorer->count < explorer->states_max)
            right = expand(explorer, (uint32_t)at++, depth);
        if (at == end) {
            end = explorer->count;
            depth++;
        }
    }
    printf("%s (%s): %llu states, %s depth %d, %.0f states/s%s\n", explorer->run->name,
           explorer->run->bounds, (unsigned long long)explorer->count,
           right && at == explorer->count ? "all of them, to" : "all up to", depth - (at == end),
           (double)explorer->count / (seconds() - began + 0.001), right ? "" : ": WRONG");
    return right;
}

static bool explore(const struct explore_run *run, uint64_t states_max, double limit_s)
{
    struct explorer explorer = {
        .run = run, .states_max = states_max, .until = seconds() + limit_s, .slots = 1, .count = 1};
    char wrong[SCRIPT_WRONG_MAX], *played;
    bool right = false;

    if (states_max < STATES_MIN || states_max > UINT32_MAX)
        explorer.states_max = states_max = states_max < STATES_MIN ? STATES_MIN : UINT32_MAX;
    while (explorer.slots < 2 * states_max)
        explorer.slots *= 2;
    explorer.records = calloc(states_max, sizeof *explorer.records);
    explorer.seen = calloc(explorer.slots, sizeof *explorer.seen);
    explorer.states[0] = calloc(1, sizeof *explorer.states[0]);
    explorer.next = calloc(1, sizeof *explorer.next);
    explorer.scratch = calloc(1, sizeof *explorer.scratch);
    if (!explorer.records || !explorer.seen || !explorer.states[0] || !explorer.next ||
        !explorer.scratch) {
        printf("%s: too little memory for %llu states\n", run->name,
               (unsigned long long)states_max);
        exit(1);
    }
    played = script_play(run->script, &explorer.states[0]->cluster, wrong);
    if (!played)
        printf("%s: its beginning is no script: %s\n", run->name, wrong);
    else
        right = go(&explorer);
    free(played);
    for (int i = 0; i < DEPTH_MAX; i++)
        free(explorer.states[i]);
    free(explorer.next);
    free(explorer.scratch);
    free(explorer.records);
    free(explorer.seen);
    return right;
}

int main(int argc, char **argv)
{
    const char *soak = getenv("HF_SOAK");
    uint64_t times = soak && soak[0] == '1' ? SOAK_TIMES : 1, states;
    double end = seconds() + (times > 1 || argc > 2 ? SOAK_SECONDS_MAX : SECONDS_MAX);
    int bad = 0, found = 0;

    for (int i = 0; i < explore_run_count; i++) {
        if (argc > 1 && strcmp(argv[1], explore_runs[i].name) != 0)
            continue;
        found++;
        states = explore_runs[i].states * times / SLOWER;
        bad += !explore(&explore_runs[i], argc > 2 ? strtoull(argv[2], NULL, 10) : states,
                        argc > 3 ? strtod(argv[3], NULL)
                                 : (end - seconds()) / (explore_run_count - i));
        fflush(stdout);
    }
    if (found == 0)
        printf("there is no such run: %s\n", argv[1]);
    return bad > 0 || found == 0;
}
