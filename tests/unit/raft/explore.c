/* explore.c: goes through every way in which a few nodes can be moved, breadth first.
 *
 *     test-raft-explore [RUN [STATES [SECONDS]]]     only this run; to so many states, or for so long
 *
 * tests/lib/explore/search.h says how. A state is known by all that decides: raft_canonical of the nodes, disks, network, ghosts. The first
 * state that is wrong is printed as a script with what comes out: it can be put beside the others. */
#include "explore.h"
#include "script.h"

#include "search.h"

#include <stdlib.h>
#include <string.h>

#define HEAL_EVERY 1024
#define SOAK_TIMES 40

struct explorer {
    const struct explore_run *run;
    /* The way to the state that was looked at last. */
    int depth;
    uint32_t way[SEARCH_DEPTH_MAX];
    struct explore_state *states[SEARCH_DEPTH_MAX];
    struct explore_state *next, *scratch;
};

/* ---- ways ------------------------------------------------------------------------------------ */

static struct explore_step step_to(const struct search *search, uint32_t state)
{
    struct explore_step step;

    search_step_to(search, state, &step, sizeof step);
    return step;
}

/* Makes a state again; all before where the way parts from the last one are there. */
static struct explore_state *make(struct search *search, uint32_t at)
{
    struct explorer *explorer = search->owner;
    uint32_t way[SEARCH_DEPTH_MAX];
    int depth = search_way(search, at, way), same = 0;

    while (same <= depth && same <= explorer->depth && explorer->way[same] == way[same])
        same++;
    for (int i = same; i <= depth; i++) {
        struct explore_step step = step_to(search, way[i]);

        if (!explorer->states[i])
            explorer->states[i] = malloc(sizeof *explorer->states[i]);
        explore_copy(explorer->states[i], explorer->states[i - 1]);
        explore_apply(explorer->states[i], &step, explorer->run);
        explorer->way[i] = way[i];
    }
    explorer->depth = depth;
    return explorer->states[depth];
}

/* The way to the last state, and one step more, as a script that is played. */
static void print_way(struct search *search, const struct explore_step *last, const char *wrong)
{
    struct explorer *explorer = search->owner;
    char *script = NULL, *played, why[SCRIPT_WRONG_MAX];
    size_t size = 0;
    FILE *out = open_memstream(&script, &size);

    fprintf(out, "# %s: %s\n%s", explorer->run->name, wrong, explorer->run->script);
    for (int i = 1; i <= explorer->depth; i++) {
        struct explore_step step = step_to(search, explorer->way[i]);

        explore_words(out, explorer->states[i - 1], &step);
    }
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

/* ---- steps ----------------------------------------------------------------------------------- */

static bool expand(struct search *search, uint32_t at)
{
    struct explorer *explorer = search->owner;
    struct explore_step steps[EXPLORE_STEPS_MAX];
    struct explore_state *state = make(search, at), *next = explorer->next;
    int count = explore_steps(explorer->run, state, steps);

    for (int i = 0; i < count && !search_is_full(search); i++) {
        explore_copy(next, state);
        explore_apply(next, &steps[i], explorer->run);
        if (next->cluster.wrong[0]) {
            printf("%s: %s, in %d steps:\n", explorer->run->name, next->cluster.wrong,
                   explorer->depth + 1);
            print_way(search, &steps[i], next->cluster.wrong);
            return false;
        }
        search_found(search, at, &steps[i], sizeof steps[i], explore_fingerprint(next));
    }
    if (at % HEAL_EVERY == 0 && !explore_heals(state, explorer->scratch)) {
        printf("%s: %s, in %d steps:\n", explorer->run->name, explorer->scratch->cluster.wrong,
               explorer->depth);
        print_way(search, NULL, "nobody gets on afterwards");
        return false;
    }
    return true;
}

static void describe(int run, struct search *search)
{
    search->name = explore_runs[run].name;
    search->bounds = explore_runs[run].bounds;
    search->short_states = explore_runs[run].states;
    search->soak_states = SOAK_TIMES * explore_runs[run].states;
}

static uint64_t begin(struct search *search, int run)
{
    struct explorer *explorer = calloc(1, sizeof *explorer);
    char wrong[SCRIPT_WRONG_MAX], *played;
    uint64_t first = 0;

    search->owner = explorer;
    explorer->run = &explore_runs[run];
    explorer->states[0] = calloc(1, sizeof *explorer->states[0]);
    explorer->next = calloc(1, sizeof *explorer->next);
    explorer->scratch = calloc(1, sizeof *explorer->scratch);
    played = script_play(explorer->run->script, &explorer->states[0]->cluster, wrong);
    if (played)
        first = explore_fingerprint(explorer->states[0]);
    else
        printf("%s: its beginning is no script: %s\n", search->name, wrong);
    free(played);
    return first;
}

static void end(struct search *search)
{
    struct explorer *explorer = search->owner;

    for (int i = 0; i < SEARCH_DEPTH_MAX; i++)
        free(explorer->states[i]);
    free(explorer->next);
    free(explorer->scratch);
    free(explorer);
}

int main(int argc, char **argv)
{
    const struct search_owner owner = {.run_count = explore_run_count,
                                       .describe = describe,
                                       .begin = begin,
                                       .expand = expand,
                                       .end = end};

    return search_main(argc, argv, &owner);
}
