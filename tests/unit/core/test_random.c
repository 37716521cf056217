/* test_random.c: random commands on few names and few leases, so that they meet, and after every
 * entry a table that must be
 *
 *   - what the model says (model.h): effects, holders, tokens, queues, deadlines;
 *   - sound: core_check;
 *   - the same as a second table with another seed, in effects and in its hash;
 *   - the same as a third one that was restored from a snapshot, which had been taken in steps while
 *     entries came, and has caught up since.
 *
 * Everything follows from the seed that a failure prints. */
#include "compare.h"
#include "tools.h"

#define COMMANDS_MAX 8 /* in one entry */
#define LOG_MAX 400    /* entries since a snapshot was begun */

struct entry {
    void *bytes;
    size_t size;
};

struct world {
    uint64_t start, seed;
    bool spends_tokens; /* few are left */
    bool has_users;     /* with limits, beside others */
    int entry;
    struct core *table, *twin, *restored;
    struct model *model;
    struct events of_table, of_twin, of_restored;

    /* The snapshot that is being taken, and what has been applied since it was begun. */
    bool saving;
    uint64_t saved_hash;
    struct entry log[LOG_MAX];
    int log_count;
    uint64_t snapshots, heirs, grants, expiries, refused;
};

/* ---- texts ------------------------------------------------------------------------------------ */

/* The first byte says which; the length is another for each, so that many sizes are in use. */
static struct core_text text_of(char first, int which, size_t size)
{
    static char room[256][520];
    char *bytes = room[(unsigned char)(first + which)];

    memset(bytes, first + which, size);
    return (struct core_text){bytes, size};
}

static struct core_text name_of(int name)
{
    return text_of(COMPARE_NAME_0, name, 1 + (size_t)name * 56);
}

static struct core_text lease_of(int who)
{
    return text_of(COMPARE_LEASE_0, who, 1 + (size_t)who * 3 / 2);
}

static const struct compare_texts texts = {name_of, lease_of};

/* ---- random commands -------------------------------------------------------------------------- */

#define PICK(world, ...)                           \
    pick((world), (const uint64_t[]){__VA_ARGS__}, \
         (uint32_t)COUNT(((const uint64_t[]){__VA_ARGS__})))

static uint64_t pick(struct world *world, const uint64_t *values, uint32_t count)
{
    return values[below(&world->seed, count)];
}

static bool one_in(struct world *world, uint32_t n)
{
    return below(&world->seed, n) == 0;
}

static void random_acquire(struct world *world, struct model_command *command)
{
    struct core_command *base = &command->base;
    static char owner[HF_OWNER_MAX];

    base->ttl_ms = (uint32_t)PICK(world, 100, 150, 400, 1000, 2000, 4000);
    base->delay_ms = PICK(world, 0, 0, 0, 50, 300, 2000);
    base->owner = (struct core_text){owner, below(&world->seed, HF_OWNER_MAX + 1)};
    /* Most names have a mode of their own, so that there is something to share. */
    base->mode = one_in(world, 8) ? (int)below(&world->seed, 3) : command->name % 3;
    if (command->name >= MODEL_ONCE) {
        base->mode = HF_EXCLUSIVE;
        base->flags |= one_in(world, 3) ? CORE_NO_HEIR : 0;
    }
    if (base->mode == HF_PERMIT)
        base->permits = one_in(world, 20) ? 3 : 2;
    if (world->has_users && !one_in(world, 3)) {
        base->flags |= CORE_QUOTA;
        command->user = 1 + (int)below(&world->seed, MODEL_USERS);
        base->quota = (struct core_quota){(uint32_t)PICK(world, 0, 3, 6, 12),
                                          (uint32_t)PICK(world, 0, 4, 8, 16),
                                          (uint32_t)PICK(world, 0, 1, 3, 6)};
    }
    if (one_in(world, 4))
        return;
    base->flags |= CORE_WAITS | (one_in(world, 2) ? CORE_KEPT : 0);
    base->wait_ms = PICK(world, 0, 50, 200, 1000, 10000, CORE_FOREVER, CORE_FOREVER);
}

static void random_renew(struct world *world, struct model_command *command)
{
    command->base.lease_count = 1 + below(&world->seed, COUNT(command->renewed));
    for (uint32_t i = 0; i < command->base.lease_count; i++)
        command->renewed[i] = (int)below(&world->seed, MODEL_LEASES);
    command->base.ttl_ms = (uint32_t)PICK(world, 0, 0, 0, 100, 500, 3000);
}

/* Of a hold that the model knows, if there is one; or an old one, or none. */
static uint64_t random_token(struct world *world, const struct model_command *command)
{
    const struct model_claim *claim = model_find(world->model, command->name, command->who);

    switch (below(&world->seed, 4)) {
    case 0:
        return 0;
    case 1:
        return world->model->last_token ? 1 + below(&world->seed, 1000) : 0;
    default:
        return claim && claim->state == CORE_HOLD ? claim->number : 0;
    }
}

/* Of whoever finished this once-record, or 0. */
static uint64_t finished_token(const struct world *world, int name)
{
    for (int i = 0; i < MODEL_NAMES; i++) {
        const struct model_name *at = &world->model->names[i];

        if (at->used && at->name == name && at->done)
            return at->result_token;
    }
    return 0;
}

static void random_rare(struct world *world, struct model_command *command)
{
    struct core_command *base = &command->base;

    switch (below(&world->seed, 4)) {
    case 0:
        base->op = CORE_FLOOR;
        base->token = world->model->last_token + below(&world->seed, 5);
        base->token -= base->token < 3 ? 0 : 3;
        break;
    case 1:
        if (one_in(world, 20)) {
            base->op = CORE_IDENTITY;
            base->flags = CORE_FORCE;
            base->result = text_of('z', 0, 16);
            break;
        }
        /* fall through */
    default:
        base->op = CORE_READ;
    }
    if (world->spends_tokens && base->op == CORE_FLOOR) /* all at once */
        base->token = world->entry > 500 ? HF_TOKEN_MAX - 300 : 0;
}

/* A hold or a place that there is, or any name and lease. */
static void choose_target(struct world *world, struct model_command *command)
{
    const struct model *model = world->model;

    command->name = (int)below(&world->seed, MODEL_NAMES);
    command->who = (int)below(&world->seed, MODEL_LEASES);
    if (model->claims_end > 0 && !one_in(world, 3)) {
        const struct model_claim *claim =
            &model->claims[below(&world->seed, (uint32_t)model->claims_end)];

        if (claim->used && claim->who != NOBODY) {
            command->name = claim->name;
            command->who = claim->who;
        }
    }
}

static struct model_command random_command(struct world *world)
{
    struct model_command command = {.name = (int)below(&world->seed, MODEL_NAMES)};
    const struct model_claim *claim;
    uint32_t dice = below(&world->seed, 100);

    choose_target(world, &command);
    if (dice < 45) {
        command.base.op = CORE_ACQUIRE;
        if (one_in(world, 2))
            command.who = (int)below(&world->seed, MODEL_LEASES);
        random_acquire(world, &command);
    } else if (dice < 63) {
        command.base.op = CORE_RELEASE;
        command.base.token = random_token(world, &command);
    } else if (dice < 75) {
        command.base.op = CORE_RENEW;
        random_renew(world, &command);
    } else if (dice < 78) {
        command.base.op = CORE_END;
        command.base.ttl_ms = one_in(world, 50) ? 0 : 100 + below(&world->seed, 500);
    } else if (dice < 83) {
        command.base.op = CORE_LEAVE;
        claim = model_find(world->model, command.name, command.who);
        command.base.attachment = claim && !one_in(world, 3) ? claim->attachment : 1;
    } else if (dice < 85) {
        command.base.op = CORE_BREAK;
        command.base.flags = one_in(world, 2) ? CORE_NOW : 0;
    } else if (dice < 93) {
        command.base.op = CORE_FINISH;
        if (command.name < MODEL_ONCE)
            command.name = MODEL_ONCE;
        command.base.token =
            one_in(world, 3) ? finished_token(world, command.name) : random_token(world, &command);
        command.base.keep_ms = PICK(world, 0, 100, 1000);
        command.result = (int)below(&world->seed, 26);
    } else {
        random_rare(world, &command);
    }
    return command;
}

/* The command as the table is to see it. */
static void pack(struct core_packer *packer, const struct model_command *command)
{
    struct core_command real = command->base;
    struct core_text leases[COUNT(command->renewed)];

    real.name = name_of(command->name);
    real.lease = lease_of(command->who);
    real.user = compare_user(command->user);
    if (command->name >= MODEL_ONCE)
        real.flags |= CORE_ONCE;
    if (real.op == CORE_FINISH)
        real.result = text_of('z', 1, (size_t)command->result);
    for (uint32_t i = 0; i < real.lease_count; i++)
        leases[i] = lease_of(command->renewed[i]);
    real.leases = leases;
    core_pack(packer, &real);
}

/* ---- comparing -------------------------------------------------------------------------------- */

#define MUST(world, condition) ((condition) ? (void)0 : must_not_be((world), #condition, __LINE__))

static void must_not_be(const struct world *world, const char *what, int line)
{
    print_error("seed %llu, entry %d, line %d: %s\n", (unsigned long long)world->start,
                world->entry, line, what);
    fail();
}

static void compare_with(const struct world *world, const struct model_event *expected, int count,
                         const struct events *events)
{
    char wrong[WRONG_MAX];

    if (!compare_events(expected, count, events, wrong))
        must_not_be(world, wrong, __LINE__);
}

static void compare_with_model(struct world *world)
{
    const struct model *model = world->model;
    uint64_t token = model->last_token ? 1 + next_random(&world->seed) % model->last_token : 1;
    char wrong[WRONG_MAX];
    bool alive = false;

    if (!compare_table(world->table, model, &texts, wrong))
        must_not_be(world, wrong, __LINE__);
    for (int i = 0; i < model->claims_end && !alive; i++)
        alive = model->claims[i].used && model->claims[i].state == CORE_HOLD &&
                model->claims[i].name == 0 && model->claims[i].number == token;
    MUST(world, core_alive(world->table, name_of(0), token) == alive);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

static void clear_log(struct world *world)
{
    for (int i = 0; i < world->log_count; i++)
        free(world->log[i].bytes);
    world->log_count = 0;
}

/* The restored table is as the other one was; then it catches up. */
static void put_into_service(struct world *world, const void *bytes, size_t size)
{
    struct error_text err = {""};

    if (core_restore(world->restored, bytes, size, &err) != HF_OK)
        print_error("%s\n", err.text);
    MUST(world, core_hash(world->restored) == world->saved_hash);
    for (int i = 0; i < world->log_count; i++)
        MUST(world, core_apply(world->restored, world->log[i].bytes, world->log[i].size, NULL,
                               &err) == HF_OK);
    clear_log(world);
    MUST(world, core_hash(world->restored) == core_hash(world->table));
    world->snapshots++;
}

static void save_a_little(struct world *world)
{
    size_t size = 0;
    void *bytes;

    if (!world->saving) {
        if (!one_in(world, 20))
            return;
        world->saving = true;
        world->saved_hash = core_hash(world->table);
        core_snapshot_begin(world->table);
    }
    if (one_in(world, 3) || world->log_count == LOG_MAX) {
        bool complete = core_snapshot_step(
            world->table, world->log_count == LOG_MAX ? SIZE_MAX / 2 : below(&world->seed, 200));

        if (!complete && !one_in(world, 100))
            return;
        bytes = core_snapshot_end(world->table, &size);
        MUST(world, complete == (bytes != NULL));
        if (complete)
            put_into_service(world, bytes, size);
        else
            clear_log(world); /* given up half-way */
        free(bytes);
        world->saving = false;
    }
}

static void remember(struct world *world, const struct core_packer *packer)
{
    struct entry *entry = &world->log[world->log_count++];

    entry->size = packer->size;
    entry->bytes = malloc(packer->size);
    assert_non_null(entry->bytes);
    memcpy(entry->bytes, packer->bytes, packer->size);
}

/* ---- entries ---------------------------------------------------------------------------------- */

static void apply(struct world *world, struct core *table, const struct core_packer *packer,
                  struct events *events)
{
    const struct core_sink sink = {events, events_note};
    struct error_text err = {""};

    events->count = 0;
    events->texts = &texts;
    if (core_apply(table, packer->bytes, packer->size, &sink, &err) != HF_OK ||
        core_check(table, &err) != HF_OK) {
        print_error("%s\n", err.text);
        must_not_be(world, "the table is not sound", __LINE__);
    }
}

static void count_what_happened(struct world *world)
{
    for (int i = 0; i < world->of_table.count; i++) {
        const struct model_event *event = &world->of_table.event[i];

        world->grants += event->kind == EFFECT_GRANTED;
        world->expiries += event->kind == EFFECT_CHANGED && event->why == WHY_EXPIRED;
        world->refused += event->kind == EFFECT_ANSWER && event->answer >= ANSWER_OVER_LEASES &&
                          event->answer <= ANSWER_OVER_PLACES;
        world->heirs += event->kind == EFFECT_LEFT && event->why == WHY_DIED;
    }
}

static uint32_t one_entry(struct world *world, struct core_packer *packer)
{
    struct model_command commands[COMMANDS_MAX];
    uint32_t count = below(&world->seed, COMMANDS_MAX + 1);
    uint32_t elapsed_ms = (uint32_t)PICK(world, 0, 0, 1, 10, 50, 100, 250);
    bool new_term = one_in(world, 60);

    if (one_in(world, 50))
        elapsed_ms = CORE_ELAPSED_MAX_MS;
    for (uint32_t i = 0; i < count; i++) {
        commands[i] = random_command(world);
        pack(packer, &commands[i]);
    }
    core_packer_finish(packer, elapsed_ms, new_term, 1, (uint64_t)world->entry);
    model_apply(world->model, commands, count, elapsed_ms, new_term);
    apply(world, world->table, packer, &world->of_table);
    apply(world, world->twin, packer, &world->of_twin);
    compare_with(world, world->model->events, world->model->event_count, &world->of_table);
    compare_with(world, world->of_table.event, world->of_table.count, &world->of_twin);
    if (world->saving)
        remember(world, packer);
    if (world->snapshots > 0) {
        apply(world, world->restored, packer, &world->of_restored);
        compare_with(world, world->of_table.event, world->of_table.count, &world->of_restored);
        MUST(world, core_hash(world->table) == core_hash(world->restored));
    }
    MUST(world, core_hash(world->table) == core_hash(world->twin));
    compare_with_model(world);
    count_what_happened(world);
    core_packer_clear(packer);
    return count;
}

static struct world *world_new(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);

    assert_non_null(world);
    world->start = seed;
    world->seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world->table = table_new(1);
    world->twin = table_new(2);
    world->restored = table_new(3);
    world->model = calloc(1, sizeof *world->model);
    assert_non_null(world->model);
    world->model->now_ms = core_now(world->table);
    return world;
}

static void world_free(struct world *world)
{
    clear_log(world);
    core_free(world->table);
    core_free(world->twin);
    core_free(world->restored);
    free(world->model);
    free(world);
}

static void live(struct world *world, uint32_t commands)
{
    struct core_packer packer = {0};

    for (uint32_t done = 0; done < commands; world->entry++) {
        done += one_entry(world, &packer);
        save_a_little(world);
    }
    core_packer_free(&packer);
}

/* ---- tests ------------------------------------------------------------------------------------ */

#define COMMANDS (SLOW ? 1500u : 40000u)
#define SEEDS 6

static void the_table_does_what_the_model_does(void **state)
{
    uint64_t grants = 0, expiries = 0, heirs = 0, snapshots = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world *world = world_new(seed);

        live(world, COMMANDS);
        grants += world->grants;
        expiries += world->expiries;
        heirs += world->heirs;
        snapshots += world->snapshots;
        world_free(world);
    }
    /* It would be easy to compare nothing with nothing. */
    assert_true(grants > COMMANDS / 20 && expiries > COMMANDS / 10);
    assert_true(heirs > COMMANDS / 1000 && snapshots > COMMANDS / 1000);
}

/* The same with users who may not have as much as they like. */
static void users_have_no_more_than_they_may(void **state)
{
    uint64_t refused = 0, expiries = 0, snapshots = 0;

    (void)state;
    for (uint64_t seed = 101; seed <= 100 + SEEDS; seed++) {
        struct world *world = world_new(seed);

        world->has_users = true;
        live(world, COMMANDS);
        refused += world->refused;
        expiries += world->expiries;
        snapshots += world->snapshots;
        world_free(world);
    }
    assert_true(refused > COMMANDS / 10 && expiries > COMMANDS / 20);
    assert_true(snapshots > COMMANDS / 1000);
}

/* The same when tokens run out: nobody is granted any more, and nothing breaks. */
static void the_last_tokens_are_given_like_the_first(void **state)
{
    struct world *world = world_new(77);
    struct core_counts counts;

    (void)state;
    world->spends_tokens = true;
    live(world, 8000);
    core_count(world->table, &counts);
    assert_true(counts.last_token == HF_TOKEN_MAX);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_does_what_the_model_does),
        cmocka_unit_test(users_have_no_more_than_they_may),
        cmocka_unit_test(the_last_tokens_are_given_like_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
