/* explore.c: goes through every sequence of commands of a small world, breadth first, and takes every step three times:
 *
 *   - on a table that has lived through the whole way to the state,
 *   - on a twin of another seed that was restored from a snapshot of that table,
 *   - on the model.
 *
 * After it, both tables have had the effects that the model has, and show what the model shows; both are sound (core_check) and have the
 * same hash; and the book (book.h) has seen nothing that clients may not see. From every state, when all connections are gone and time passes,
 * the table becomes empty: nothing in it is immortal.
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

#define PACKED_MAX 512u /* bytes of an entry */
#define DRAIN_MAX 40    /* entries, until nothing is left */
#define HEAP_KEPT (64 << 20)

/* One step of the way as the table takes it. */
struct packed {
    struct explore_step step;
    unsigned char bytes[PACKED_MAX];
    size_t size;
};

struct explorer {
    const struct explore_run *run;
    struct explore_state state, next; /* that is being looked at, and after one more step */
    int depth;
    struct packed way[SEARCH_DEPTH_MAX + 1]; /* from 1 on; the entry before it, if any, is 0 */
    void *saved;                             /* the table of `state`, for twins */
    size_t saved_size;
    struct core_packer packer;
    struct events of_lived, of_twin;
    char wrong[WRONG_MAX];
};

static struct explorer *being_explored; /* for on_abort */

static bool wrong(struct explorer *explorer, const char *words)
{
    snprintf(explorer->wrong, sizeof explorer->wrong, "%s", words);
    return false;
}

/* ---- states ----------------------------------------------------------------------------------- */

static void copy_state(struct explore_state *to, const struct explore_state *from)
{
    struct model *model = to->model;

    memcpy(model->leases, from->model->leases, sizeof model->leases);
    memcpy(model->claims, from->model->claims, EXPLORE_CLAIMS * sizeof *model->claims);
    memcpy(model->names, from->model->names, sizeof model->names);
    model->now_ms = from->model->now_ms;
    model->last_token = from->model->last_token;
    model->last_ticket = from->model->last_ticket;
    model->last_attachment = from->model->last_attachment;
    model->claims_end = from->model->claims_end;
    *to = *from;
    to->model = model;
}

static void state_new(struct explorer *explorer, struct explore_state *state)
{
    struct model *model = state->model;
    uint64_t first = explorer->run->first_token;

    memset(model->leases, 0, sizeof model->leases);
    memset(model->claims, 0, EXPLORE_CLAIMS * sizeof *model->claims);
    memset(model->names, 0, sizeof model->names);
    *state = (struct explore_state){.model = model};
    model->now_ms = state->book.now_ms = 1; /* as the table's clock begins */
    model->last_token = state->book.last_token = first;
    model->last_ticket = 0;
    model->last_attachment = 0;
    model->claims_end = 0;
}

/* ---- tables ----------------------------------------------------------------------------------- */

static void table_take(struct core *table, const struct packed *packed,
                       const struct core_sink *sink)
{
    struct error_text err = {""};

    if (core_apply(table, packed->bytes, packed->size, sink, &err) != HF_OK)
        fail_msg("%s", err.text);
}

/* The step on a table that has lived so far; it may be another one afterwards. */
static struct core *take_step(struct core *table, const struct packed *packed,
                              const struct core_sink *sink)
{
    size_t size = 0;

    switch (packed->step.kind) {
    case STEP_SNAPSHOT:
        core_snapshot_begin(table);
        break;
    case STEP_WRITE:
        if (core_snapshot_step(table, 1))
            free(core_snapshot_end(table, &size));
        break;
    case STEP_RESTORE:
        return table_reborn(table, 3);
    default:
        table_take(table, packed, sink);
    }
    return table;
}

/* A table that has lived through the first so many steps of the way. */
static struct core *live(struct explorer *explorer, int depth)
{
    struct core *table = table_new(1);

    for (int i = explorer->way[0].size ? 0 : 1; i <= depth; i++)
        table = take_step(table, &explorer->way[i], NULL);
    return table;
}

/* The same without what snapshots were written meanwhile, so that one can be taken now. */
static struct core *live_entries(struct explorer *explorer, int depth)
{
    struct core *table = table_new(1);

    for (int i = explorer->way[0].size ? 0 : 1; i <= depth; i++)
        if (i == 0 || explore_is_entry(&explorer->way[i].step))
            table_take(table, &explorer->way[i], NULL);
    return table;
}

static struct core *twin_of_state(struct explorer *explorer)
{
    struct core *twin = table_new(2);
    struct error_text err = {""};

    if (core_restore(twin, explorer->saved, explorer->saved_size, &err) != HF_OK) {
        snprintf(explorer->wrong, sizeof explorer->wrong, "its snapshot is refused: %s", err.text);
        core_free(twin);
        return NULL;
    }
    return twin;
}

/* ---- a step ----------------------------------------------------------------------------------- */

/* Puts the step on the way, behind the state of that depth. */
static void put_on_way(struct explorer *explorer, const struct explore_step *step, int depth,
                       const struct explore_state *state,
                       struct model_command ret_commands[STEP_COMMANDS])
{
    struct packed *packed = &explorer->way[depth];

    packed->step = *step;
    packed->size = 0;
    if (!explore_is_entry(step))
        return;
    explore_entry(explorer->run, state, step, ret_commands);
    core_packer_clear(&explorer->packer);
    explore_pack(step, ret_commands, &explorer->packer);
    assert_true(explorer->packer.size <= PACKED_MAX);
    memcpy(packed->bytes, explorer->packer.bytes, explorer->packer.size);
    packed->size = explorer->packer.size;
}

/* The step with the model, and with the book as far as the table's effects are concerned. */
static bool step_with_state(struct explorer *explorer, struct explore_state *state,
                            const struct explore_step *step, const struct model_command *commands,
                            const struct events *events)
{
    bool new_term = step->kind == STEP_TERM;

    if (explorer->run->most[step->kind] != EXPLORE_ANY)
        state->done[step->kind]++;
    if (!explore_is_entry(step))
        return true;
    model_apply(state->model, commands, step->count, step->elapsed_ms, new_term);
    assert_true(state->model->claims_end < EXPLORE_CLAIMS);
    return !events || book_entry(&state->book, commands, step->count, step->elapsed_ms, new_term,
                                 events, explorer->wrong);
}

static bool is_sound(struct explorer *explorer, const struct core *table)
{
    struct error_text err = {""};

    return core_check(table, &err) == HF_OK || wrong(explorer, err.text);
}

/* A snapshot was written in steps, while entries came: it is the table as it was when it was begun, and goes on like the other one. */
static bool restored_catches_up(struct explorer *explorer, struct core *lived, int depth)
{
    const struct explore_state *state = &explorer->next;
    struct error_text err = {""};
    size_t size = 0;
    void *bytes = core_snapshot_end(lived, &size);
    struct core *restored = table_new(4);
    bool right = core_restore(restored, bytes, size, &err) == HF_OK || wrong(explorer, err.text);

    free(bytes);
    if (right && core_hash(restored) != state->saved_hash)
        right = wrong(explorer, "the snapshot is not what the table was when it was begun");
    for (int i = state->saved_at + 1; right && i <= depth; i++)
        if (explore_is_entry(&explorer->way[i].step))
            table_take(restored, &explorer->way[i], NULL);
    if (right && core_hash(restored) != core_hash(lived))
        right = wrong(explorer, "the table restored from the snapshot has gone another way");
    core_free(restored);
    return right;
}

/* One of the steps that the model does not know, on the table that has lived so far. */
static bool step_of_snapshot(struct explorer *explorer, struct core **lived, int depth)
{
    struct explore_state *state = &explorer->next;

    switch (explorer->way[depth].step.kind) {
    case STEP_SNAPSHOT:
        state->saving = true;
        state->saved_at = depth;
        state->saved_hash = core_hash(*lived);
        state->saving_way = explore_canonical(*lived);
        core_snapshot_begin(*lived);
        return true;
    case STEP_WRITE:
        state->saving_way = search_mix(state->saving_way, explore_canonical(*lived));
        if (!core_snapshot_step(*lived, 1))
            return true;
        state->saving = false;
        return restored_catches_up(explorer, *lived, depth);
    default:
        *lived = table_reborn(*lived, 3);
        return true;
    }
}

/* The effects of an entry on both tables. */
static bool step_with_tables(struct explorer *explorer, struct core *lived, struct core *twin,
                             const struct packed *packed)
{
    const struct core_sink of_lived = {&explorer->of_lived, events_note};
    const struct core_sink of_twin = {&explorer->of_twin, events_note};
    const struct model *model = explorer->next.model;

    explorer->of_lived.count = explorer->of_twin.count = 0;
    table_take(lived, packed, &of_lived);
    table_take(twin, packed, &of_twin);
    return compare_events(model->events, model->event_count, &explorer->of_lived,
                          explorer->wrong) &&
           compare_events(model->events, model->event_count, &explorer->of_twin, explorer->wrong);
}

static bool compare_all(struct explorer *explorer, const struct core *lived,
                        const struct core *twin)
{
    const struct model *model = explorer->next.model;

    return is_sound(explorer, lived) && is_sound(explorer, twin) &&
           compare_table(lived, model, &explore_texts, explorer->wrong) &&
           compare_table(twin, model, &explore_texts, explorer->wrong) &&
           (core_hash(lived) == core_hash(twin) ||
            wrong(explorer, "the twin that was restored before this step is another table now"));
}

/* Takes a step from the state, as the last of the way. The fingerprint of where it leads, or 0: something is wrong. */
static uint64_t one_step(struct explorer *explorer, const struct explore_step *step)
{
    struct model_command commands[STEP_COMMANDS];
    int depth = explorer->depth + 1;
    struct core *lived = live(explorer, explorer->depth), *twin = twin_of_state(explorer);
    bool right = twin != NULL;
    uint64_t fingerprint = 0;

    copy_state(&explorer->next, &explorer->state);
    put_on_way(explorer, step, depth, &explorer->state, commands);
    if (right && explore_is_entry(step)) {
        /* The book first: what it says is the plainer fault. */
        step_with_state(explorer, &explorer->next, step, commands, NULL);
        right = step_with_tables(explorer, lived, twin, &explorer->way[depth]);
        if (!book_entry(&explorer->next.book, commands, step->count, step->elapsed_ms,
                        step->kind == STEP_TERM, &explorer->of_lived, explorer->wrong))
            right = false;
    } else if (right) {
        step_with_state(explorer, &explorer->next, step, commands, NULL);
        right = step_of_snapshot(explorer, &lived, depth);
    }
    if (right && compare_all(explorer, lived, twin))
        fingerprint = explore_fingerprint(lived, &explorer->next);
    core_free(lived);
    core_free(twin);
    return fingerprint;
}

/* ---- ways ------------------------------------------------------------------------------------- */

/* Makes the state again: its way, its model, its book, and the snapshot for its twins. */
static void make(struct search *search, uint32_t at, int depth)
{
    struct explorer *explorer = search->owner;
    struct explore_state *state = &explorer->state;
    const struct core_sink sink = {&explorer->of_lived, events_note};
    struct model_command commands[STEP_COMMANDS];
    uint32_t way[SEARCH_DEPTH_MAX];
    struct core *table = live(explorer, 0);

    search_way(search, at, depth, way);
    state_new(explorer, state);
    for (int i = 1; i <= depth; i++) {
        struct explore_step step;

        search_step_to(search, way[i], &step, sizeof step);
        put_on_way(explorer, &step, i, state, commands);
        copy_state(&explorer->next, state);
        if (!explore_is_entry(&step)) {
            step_with_state(explorer, &explorer->next, &step, commands, NULL);
            step_of_snapshot(explorer, &table, i);
        } else {
            explorer->of_lived.count = 0;
            table_take(table, &explorer->way[i], &sink);
            step_with_state(explorer, &explorer->next, &step, commands, &explorer->of_lived);
        }
        copy_state(state, &explorer->next);
    }
    explorer->depth = depth;
    free(explorer->saved);
    if (state->saving) {
        core_free(table);
        table = live_entries(explorer, depth);
    }
    explorer->saved = snapshot_whole(table, &explorer->saved_size);
    core_free(table);
}

static void tell(void *context, const struct core_effect *effect)
{
    tell_effect(context, effect, true);
}

/* The way to the state, and one step more unless that is NULL, as a script. */
static void print_way(struct explorer *explorer, bool one_more)
{
    const struct core_sink sink = {stdout, tell};
    struct core *table = live(explorer, 0);
    int depth = explorer->depth + one_more;

    printf("%s: %s, in %d steps:\n", explorer->run->name, explorer->wrong, depth);
    printf("# %s: %s\n", explorer->run->name, explorer->wrong);
    if (explorer->run->first_token)
        printf("floor %llu\n", (unsigned long long)explorer->run->first_token);
    state_new(explorer, &explorer->next);
    for (int i = 1; i <= depth; i++) {
        const struct explore_step step = explorer->way[i].step;
        struct model_command commands[STEP_COMMANDS];

        if (explore_is_entry(&step))
            explore_entry(explorer->run, &explorer->next, &step, commands);
        explore_words(stdout, &step, commands);
        step_with_state(explorer, &explorer->next, &step, commands, NULL);
        table = take_step(table, &explorer->way[i], &sink);
    }
    core_free(table);
}

/* ---- the search ------------------------------------------------------------------------------- */

/* All connections are gone, and time passes: the table becomes empty. */
static bool drains(struct explorer *explorer)
{
    struct core *table = twin_of_state(explorer);
    struct core_packer packer = {0};
    struct core_counts counts = {.locks = 1};

    for (int i = 0; table && i < DRAIN_MAX && counts.locks + counts.leases + counts.ended > 0;
         i++) {
        table_apply(table, &packer, CORE_ELAPSED_MAX_MS, true, NULL);
        core_count(table, &counts);
    }
    core_packer_free(&packer);
    core_free(table);
    return (counts.locks == 0 && counts.leases == 0 && counts.ended == 0 && counts.holds == 0 &&
            counts.places == 0 && counts.ghosts == 0) ||
           wrong(explorer, "[B5] something is left for ever");
}

static bool expand(struct search *search, uint32_t at, int depth)
{
    static struct explore_step steps[EXPLORE_STEPS_MAX];
    struct explorer *explorer = search->owner;
    int count;

    make(search, at, depth);
    count = explore_steps(explorer->run, &explorer->state, steps);
    for (int i = 0; i < count && !search_is_full(search); i++) {
        uint64_t fingerprint = one_step(explorer, &steps[i]);

        if (!fingerprint) {
            print_way(explorer, true);
            return false;
        }
        search_found(search, at, &steps[i], sizeof steps[i], fingerprint);
    }
    if (!drains(explorer)) {
        print_way(explorer, false);
        return false;
    }
    return true;
}

static void describe(int run, struct search *search)
{
    search->name = explore_runs[run].name;
    search->bounds = explore_runs[run].bounds;
    search->short_states = explore_runs[run].states;
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
    state_new(explorer, &explorer->state);
    table = live(explorer, 0);
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

/* A table that finds an invariant of its own broken aborts: the way to there is printed first, as far as it goes. */
static void on_abort(int number)
{
    (void)number;
    signal(SIGABRT, SIG_DFL);
    if (!being_explored)
        return;
    wrong(being_explored, "the table has aborted");
    setvbuf(stdout, NULL, _IONBF, 0);
    print_way(being_explored, true);
}

int main(int argc, char **argv)
{
    const struct search_owner owner = {explore_run_count, describe, begin, expand, end};

    /* Tables come and go all the time: their memory is not to be given back to the system, and asked for again. */
    signal(SIGABRT, on_abort);
    mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
    mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
    return search_main(argc, argv, &owner);
}
