/* explore.c: goes through every sequence of commands of a small world, breadth first, and takes every step three times:
 *
 *   - on a table that has lived through the whole way to the state,
 *   - on a twin of another seed that was restored from a snapshot of that table,
 *   - on the model.
 *
 * After it, both tables have had the effects that the model has, and show what the model shows; both are sound (core_check) and have the
 * same hash; and the book (book.h) has seen nothing that clients may not see. From every state, when all connections are gone and time passes,
 * the table becomes empty: nothing in it is immortal. And what makes two states the same is looked at, too (is_same).
 *
 *     test-core-explore [RUN [STATES [SECONDS]]]     only this run; to so many states, or for so long
 *
 * What is wrong is printed as a script of tests/unit/core/scripts with what comes out of the table. */
#include "explore.h"

#include "search.h"
#include "telling.h"
#include "tools.h"

#include <malloc.h>
#include <signal.h>

#define SAME_EVERY 17 /* states: is_same looks at one of the steps from there */
#define SOAK_TIMES 400
#define HEAP_KEPT (64 << 20)

static struct explorer *being_explored; /* for on_abort */

/* ---- ways ------------------------------------------------------------------------------------- */

static struct explore_step step_of_way(const struct search *search, const uint32_t *way, int at)
{
    const struct explorer *explorer = search->owner;
    struct explore_step step;

    if (at <= explorer->begun)
        return explorer->run->begin[at - 1];
    search_step_to(search, way[at - explorer->begun], &step, sizeof step);
    return step;
}

/* Makes a state again: its way, its model, its book, and the snapshot for its twins; and goes one step further, unless that is NULL. */
static void make(struct search *search, uint32_t at, const struct explore_step *further)
{
    struct explorer *explorer = search->owner;
    uint32_t way[SEARCH_DEPTH_MAX];
    int depth = search_way(search, at, way);
    struct core *table = explore_live(explorer, 0);

    explorer->depth = explorer->begun + depth;
    explore_new(explorer, &explorer->state);
    for (int i = 1; i <= explorer->depth; i++) {
        struct explore_step step = step_of_way(search, way, i);

        table = explore_again(explorer, table, &step, i);
    }
    if (further)
        table = explore_again(explorer, table, further, ++explorer->depth);
    explore_save(explorer, table);
}

static void tell(void *context, const struct core_effect *effect)
{
    const struct explore_packed *packed = context;

    tell_effect(stdout, effect, packed->step.count > 1);
}

/* The way to the state, and one step more unless that is NULL, as a script. */
static void print_way(struct explorer *explorer, bool one_more)
{
    struct core *table = explore_live(explorer, 0);
    int depth = explorer->depth + one_more;

    printf("%s: %s, in %d steps:\n", explorer->run->name, explorer->wrong, depth);
    printf("# %s: %s\n", explorer->run->name, explorer->wrong);
    if (explorer->run->first_token)
        printf("floor %llu\n", (unsigned long long)explorer->run->first_token);
    explore_new(explorer, &explorer->next);
    for (int i = 1; i <= depth; i++) {
        const struct explore_step step = explorer->way[i].step;
        const struct core_sink sink = {&explorer->way[i], tell};
        struct model_command commands[STEP_COMMANDS];

        if (explore_is_entry(&step))
            explore_entry(explorer->run, &explorer->next, &step, commands);
        explore_words(stdout, &step, commands);
        explore_step_state(explorer, &explorer->next, &step, commands, NULL);
        table = explore_step_table(table, &explorer->way[i], &sink);
    }
    core_free(table);
}

/* ---- the search ------------------------------------------------------------------------------- */

/* Takes all steps from the state. Where they lead, in whatever order, is one number; 0: something is wrong, and was printed. */
static uint64_t future(struct explorer *explorer)
{
    static struct explore_step steps[EXPLORE_STEPS_MAX];
    int count = explore_steps(explorer->run, &explorer->state, steps);
    uint64_t sum = 1;

    for (int i = 0; i < count; i++) {
        uint64_t fingerprint = explore_take(explorer, &steps[i]);

        if (!fingerprint) {
            print_way(explorer, true);
            return 0;
        }
        sum += search_mix(fingerprint, 1);
    }
    return sum ? sum : 1;
}

/* A step leads to what was taken for a state that is known. Then all that follows is the same, too, or explore_canonical.c
 * leaves something out that matters. */
static bool is_same(struct search *search, uint32_t from, const struct explore_step *step,
                    uint32_t known)
{
    struct explorer *explorer = search->owner;
    uint64_t expected, came;

    make(search, known, NULL);
    expected = future(explorer);
    if (!expected)
        return false;
    make(search, from, step);
    came = future(explorer);
    if (came == expected || !came)
        return came;
    explore_wrong(explorer, "this state and the next one were taken for the same");
    print_way(explorer, false);
    make(search, known, NULL);
    print_way(explorer, false);
    return false;
}

static bool expand(struct search *search, uint32_t at)
{
    static struct explore_step steps[EXPLORE_STEPS_MAX];
    struct explorer *explorer = search->owner;
    struct explore_step again = {.kind = 0};
    uint32_t known = SEARCH_NONE;
    int count;

    make(search, at, NULL);
    count = explore_steps(explorer->run, &explorer->state, steps);
    for (int i = 0; i < count && !search_is_full(search); i++) {
        uint64_t fingerprint = explore_take(explorer, &steps[i]), before = search->count;
        uint32_t number;

        if (!fingerprint) {
            print_way(explorer, true);
            return false;
        }
        number = search_found(search, at, &steps[i], sizeof steps[i], fingerprint);
        if (search->count == before && number != at &&
            (known == SEARCH_NONE || i < (int)(at % (uint32_t)count))) {
            known = number;
            again = steps[i];
        }
    }
    if (!explore_drains(explorer)) {
        print_way(explorer, false);
        return false;
    }
    return at % SAME_EVERY != 1 || known == SEARCH_NONE || is_same(search, at, &again, known);
}

static void describe(int run, struct search *search)
{
    search->name = explore_runs[run].name;
    search->bounds = explore_runs[run].bounds;
    search->short_states = explore_runs[run].states;
    search->soak_states = SOAK_TIMES * explore_runs[run].states;
}

/* The entry before the first state. */
static void begin_with_floor(struct explorer *explorer)
{
    struct core_command floor = {.op = CORE_FLOOR, .token = explorer->run->first_token};

    core_pack(&explorer->packer, &floor);
    core_packer_finish(&explorer->packer, 0, false, 0, 0);
    memcpy(explorer->way[0].bytes, explorer->packer.bytes, explorer->packer.size);
    explorer->way[0].size = explorer->packer.size;
}

static uint64_t begin(struct search *search, int run)
{
    struct explorer *explorer = calloc(1, sizeof *explorer);
    struct core *table;
    uint64_t fingerprint;

    assert_non_null(explorer);
    search->owner = being_explored = explorer;
    explorer->run = &explore_runs[run];
    explorer->state.model = calloc(1, sizeof *explorer->state.model);
    explorer->next.model = calloc(1, sizeof *explorer->next.model);
    assert_true(explorer->state.model && explorer->next.model);
    explorer->of_lived.texts = explorer->of_twin.texts = &explore_texts;
    if (explorer->run->first_token)
        begin_with_floor(explorer);
    while (explorer->begun < EXPLORE_BEGIN_MAX && explorer->run->begin[explorer->begun].kind)
        explorer->begun++;
    make(search, 0, NULL);
    table = explore_live(explorer, explorer->depth);
    fingerprint = explore_fingerprint(table, &explorer->state);
    core_free(table);
    return fingerprint;
}

static void end(struct search *search)
{
    struct explorer *explorer = search->owner;

    free(explorer->state.model);
    free(explorer->next.model);
    free(explorer->saved);
    core_packer_free(&explorer->packer);
    free(explorer);
    being_explored = NULL;
}

/* A table that finds an invariant of its own broken aborts: the way to there is printed first, as far as it goes. The signal is this thread's own, from
 * abort(), in no library call that could be entered twice; and if it comes again, that is the end. */
static void on_abort(int number)
{
    (void)number;
    if (!being_explored)
        return;
    explore_wrong(being_explored, "the table has aborted");
    setvbuf(stdout, NULL, _IONBF, 0);
    print_way(being_explored, true);
}

int main(int argc, char **argv)
{
    const struct search_owner owner = {.run_count = explore_run_count,
                                       .describe = describe,
                                       .begin = begin,
                                       .expand = expand,
                                       .end = end,
                                       .numbers = true};
    const struct sigaction aborts = {.sa_handler = on_abort, .sa_flags = (int)SA_RESETHAND};

    /* Tables come and go all the time: their memory is not to be given back to the system, and asked for again. */
    sigaction(SIGABRT, &aborts, NULL);
    mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
    mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
    return search_main(argc, argv, &owner);
}
