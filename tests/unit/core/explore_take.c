/* explore_take.c: one step, on a table that has lived so far, on its restored twin, and on the model; and all that must hold after it. */
#include "explore.h"

#include "search.h"
#include "tools.h"

#define DRAIN_MAX 40 /* entries, until nothing is left */

bool explore_wrong(struct explorer *explorer, const char *words)
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

void explore_new(struct explorer *explorer, struct explore_state *state)
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

static void table_take(struct core *table, const struct explore_packed *packed,
                       const struct core_sink *sink)
{
    struct error_text err = {""};

    if (core_apply(table, packed->bytes, packed->size, sink, &err) != HF_OK)
        fail_msg("%s", err.text);
}

/* The step on a table that has lived so far; it may be another one afterwards. */
struct core *explore_step_table(struct core *table, const struct explore_packed *packed,
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
    case STEP_GIVE_UP:
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
struct core *explore_live(struct explorer *explorer, int depth)
{
    struct core *table = table_new(1);

    for (int i = explorer->way[0].size ? 0 : 1; i <= depth; i++)
        table = explore_step_table(table, &explorer->way[i], NULL);
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
    struct explore_packed *packed = &explorer->way[depth];

    packed->step = *step;
    packed->size = 0;
    if (!explore_is_entry(step))
        return;
    explore_entry(explorer->run, state, step, ret_commands);
    core_packer_clear(&explorer->packer);
    explore_pack(step, ret_commands, &explorer->packer);
    assert_true(explorer->packer.size <= EXPLORE_PACKED_MAX);
    memcpy(packed->bytes, explorer->packer.bytes, explorer->packer.size);
    packed->size = explorer->packer.size;
}

/* The step with the model, and with the book as far as the table's effects are concerned. */
bool explore_step_state(struct explorer *explorer, struct explore_state *state,
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

    return core_check(table, &err) == HF_OK || explore_wrong(explorer, err.text);
}

/* The rest of a snapshot is written, which was begun some steps ago: it is the table as it was then, and goes on like the other one. */
static bool snapshot_is_right(struct explorer *explorer, struct core *lived, int depth)
{
    const struct explore_state *state = &explorer->next;
    struct core *restored = table_new(4);
    struct error_text err = {""};
    size_t size = 0;
    void *bytes;
    bool right;

    core_snapshot_step(lived, SIZE_MAX / 2);
    bytes = core_snapshot_end(lived, &size);
    right = core_restore(restored, bytes, size, &err) == HF_OK || explore_wrong(explorer, err.text);
    free(bytes);
    if (right && core_hash(restored) != state->saved_hash)
        right = explore_wrong(explorer, "the snapshot is not what the table was when it was begun");
    for (int i = state->saved_at + 1; right && i <= depth; i++)
        if (explore_is_entry(&explorer->way[i].step))
            table_take(restored, &explorer->way[i], NULL);
    if (right && core_hash(restored) != core_hash(lived))
        right =
            explore_wrong(explorer, "the table restored from the snapshot has gone another way");
    core_free(restored);
    return right;
}

/* One of the steps that the model does not know, on the table that has lived so far. */
static struct core *step_of_snapshot(struct explorer *explorer, struct core *lived, int depth)
{
    struct explore_state *state = &explorer->next;
    const struct explore_packed *packed = &explorer->way[depth];

    if (packed->step.kind == STEP_SNAPSHOT) {
        state->saving = true;
        state->saved_at = depth;
        state->saved_hash = core_hash(lived);
        state->saving_way = 0;
    }
    state->saving_way = search_mix(state->saving_way, explore_canonical(lived));
    lived = explore_step_table(lived, packed, NULL);
    state->saving = explore_is_saving(lived);
    return lived;
}

/* The effects of an entry on both tables. */
static void step_with_tables(struct explorer *explorer, struct core *lived, struct core *twin,
                             const struct explore_packed *packed)
{
    const struct core_sink of_lived = {&explorer->of_lived, events_note};
    const struct core_sink of_twin = {&explorer->of_twin, events_note};

    explorer->of_lived.count = explorer->of_twin.count = 0;
    table_take(lived, packed, &of_lived);
    table_take(twin, packed, &of_twin);
}

static bool compare_effects(struct explorer *explorer)
{
    const struct model *model = explorer->next.model;

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
            explore_wrong(explorer,
                          "the twin that was restored before this step is another table now"));
}

/* Takes a step from the state, as the last of the way. The fingerprint of where it leads, or 0: something is wrong. */
uint64_t explore_take(struct explorer *explorer, const struct explore_step *step)
{
    struct model_command commands[STEP_COMMANDS];
    int depth = explorer->depth + 1;
    struct core *lived = explore_live(explorer, explorer->depth), *twin = twin_of_state(explorer);
    bool right = twin != NULL;
    uint64_t fingerprint = 0;

    copy_state(&explorer->next, &explorer->state);
    put_on_way(explorer, step, depth, &explorer->state, commands);
    if (right && explore_is_entry(step)) {
        step_with_tables(explorer, lived, twin, &explorer->way[depth]);
        /* The book first: what it says is the plainer fault. */
        right =
            explore_step_state(explorer, &explorer->next, step, commands, &explorer->of_lived) &&
            compare_effects(explorer);
    } else if (right) {
        explore_step_state(explorer, &explorer->next, step, commands, NULL);
        lived = step_of_snapshot(explorer, lived, depth);
    }
    if (right && compare_all(explorer, lived, twin))
        fingerprint = explore_fingerprint(lived, &explorer->next);
    if (fingerprint && explorer->next.saving && !snapshot_is_right(explorer, lived, depth))
        fingerprint = 0;
    core_free(lived);
    core_free(twin);
    return fingerprint;
}

/* One more step on a way that was gone before. */
struct core *explore_again(struct explorer *explorer, struct core *table,
                           const struct explore_step *step, int depth)
{
    const struct core_sink sink = {&explorer->of_lived, events_note};
    struct model_command commands[STEP_COMMANDS];

    put_on_way(explorer, step, depth, &explorer->state, commands);
    copy_state(&explorer->next, &explorer->state);
    explorer->of_lived.count = 0;
    if (explore_is_entry(step))
        table_take(table, &explorer->way[depth], &sink);
    else
        table = step_of_snapshot(explorer, table, depth);
    explore_step_state(explorer, &explorer->next, step, commands, &explorer->of_lived);
    copy_state(&explorer->state, &explorer->next);
    return table;
}

/* The snapshot for twins. This table has lived through the way, and is freed. */
void explore_save(struct explorer *explorer, struct core *table)
{
    if (explorer->state.saving) { /* one at a time: it is taken of a table that had none */
        core_free(table);
        table = live_entries(explorer, explorer->depth);
    }
    free(explorer->saved);
    explorer->saved = snapshot_whole(table, &explorer->saved_size);
    core_free(table);
}

/* All connections are gone, and time passes: the table becomes empty. */
bool explore_drains(struct explorer *explorer)
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
           explore_wrong(explorer, "[B5] something is left for ever");
}
