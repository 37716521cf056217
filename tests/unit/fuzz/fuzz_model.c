/* fuzz_model.c: commands that the input chooses, entry after entry, to the lock table and to its model (tests/unit/core/model.h), which is
 * written in another way and as simply as can be. After every entry
 *
 *     both have the same effects, and the same in them
 *     the table is sound, and a second one with another seed is equal to it, though that was made anew from a snapshot whenever the input
 *     said so
 *     a snapshot that was taken in steps, while entries came, restores to what the table was when it was begun
 *
 * What commands mean is chosen as in tests/unit/core/test_random.c: few names, few leases, spans that meet. */
#include "../core/compare.h"
#include "../core/tools.h"
#include "fuzz.h"

#define COMMANDS_MAX 8 /* in one entry */
#define RENEWED_MAX 4
#define ENTRIES_MAX 400

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

struct world {
    struct core *table, *twin;
    struct model *model;
    struct fuzz_input *input;
    bool saving;
    uint64_t saved_hash;
};

/* ---- commands ---------------------------------------------------------------------------------- */

#define PICK(input, ...)                           \
    pick((input), (const uint64_t[]){__VA_ARGS__}, \
         (unsigned)COUNT(((const uint64_t[]){__VA_ARGS__})))

static uint64_t pick(struct fuzz_input *input, const uint64_t *values, unsigned count)
{
    return values[fuzz_byte(input) % count];
}

static void make_acquire(struct fuzz_input *input, struct model_command *command)
{
    struct core_command *base = &command->base;
    static char owner[HF_OWNER_MAX];
    unsigned how = fuzz_byte(input);

    base->ttl_ms = (uint32_t)PICK(input, 100, 150, 400, 1000, 2000, 4000);
    base->delay_ms = PICK(input, 0, 0, 0, 50, 300, 2000);
    base->owner = (struct core_text){owner, how * 2u % (HF_OWNER_MAX + 1)};
    base->mode = how & 1 ? command->name % 3 : (int)(how / 2 % 3);
    if (command->name >= MODEL_ONCE) {
        base->mode = HF_EXCLUSIVE;
        base->flags |= how & 8 ? CORE_NO_HEIR : 0;
    }
    if (base->mode == HF_PERMIT)
        base->permits = how & 16 ? 3 : 2;
    if (!(how & 32))
        return;
    base->flags |= CORE_WAITS | (how & 64 ? CORE_KEPT : 0);
    base->wait_ms = PICK(input, 0, 50, 200, 1000, 10000, CORE_FOREVER);
}

/* Of the hold that this lease has on this name, of who has finished the once-record, or some number. */
static uint64_t make_token(const struct world *world, const struct model_command *command)
{
    const struct model_claim *claim = model_find(world->model, command->name, command->who);
    unsigned how = fuzz_byte(world->input);

    if (how % 4 == 0)
        return how / 4;
    for (int i = 0; i < MODEL_NAMES && how % 4 == 1; i++)
        if (world->model->names[i].used && world->model->names[i].name == command->name)
            return world->model->names[i].result_token;
    return claim && claim->state == CORE_HOLD ? claim->number : 0;
}

static void make_renew(struct fuzz_input *input, struct model_command *command)
{
    command->base.lease_count = 1 + fuzz_byte(input) % RENEWED_MAX;
    for (uint32_t i = 0; i < command->base.lease_count; i++)
        command->renewed[i] = (int)(fuzz_byte(input) % MODEL_LEASES);
    command->base.ttl_ms = (uint32_t)PICK(input, 0, 0, 100, 500, 3000);
}

static void make_finish(const struct world *world, struct model_command *command)
{
    if (command->name < MODEL_ONCE)
        command->name = MODEL_ONCE;
    command->base.token = make_token(world, command);
    command->base.keep_ms = PICK(world->input, 0, 100, 1000);
    command->result = (int)(fuzz_byte(world->input) % 26);
}

static void make_floor(const struct world *world, struct core_command *base)
{
    unsigned how = fuzz_byte(world->input);

    base->token = how == 255 ? HF_TOKEN_MAX - 3 : world->model->last_token + how % 8;
    base->token -= base->token < 3 ? 0 : 3;
    if (base->token > HF_TOKEN_MAX)
        base->token = HF_TOKEN_MAX;
}

static struct model_command make_command(const struct world *world)
{
    static const enum core_op ops[] = {CORE_ACQUIRE, CORE_RELEASE,  CORE_RENEW,  CORE_END,
                                       CORE_LEAVE,   CORE_BREAK,    CORE_FLOOR,  CORE_FINISH,
                                       CORE_READ,    CORE_IDENTITY, CORE_ACQUIRE};
    struct fuzz_input *input = world->input;
    struct model_command command = {.base = {.op = ops[fuzz_byte(input) % COUNT(ops)]}};
    const struct model_claim *claim;

    command.name = (int)(fuzz_byte(input) % MODEL_NAMES);
    command.who = (int)(fuzz_byte(input) % MODEL_LEASES);
    claim = model_find(world->model, command.name, command.who);
    switch (command.base.op) {
    case CORE_ACQUIRE:
        make_acquire(input, &command);
        break;
    case CORE_RELEASE:
        command.base.token = make_token(world, &command);
        break;
    case CORE_RENEW:
        make_renew(input, &command);
        break;
    case CORE_END:
        command.base.ttl_ms = (uint32_t)PICK(input, 0, 100, 333, 500);
        break;
    case CORE_LEAVE:
        command.base.attachment = claim && fuzz_byte(input) % 4 ? claim->attachment : 1;
        break;
    case CORE_BREAK:
        command.base.flags = fuzz_byte(input) % 2 ? CORE_NOW : 0;
        break;
    case CORE_FLOOR:
        make_floor(world, &command.base);
        break;
    case CORE_FINISH:
        make_finish(world, &command);
        break;
    case CORE_IDENTITY:
        command.base.flags = CORE_FORCE;
        break;
    default:
        break;
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
    if (command->name >= MODEL_ONCE)
        real.flags |= CORE_ONCE;
    if (real.op == CORE_FINISH)
        real.result = text_of('z', 1, (size_t)command->result);
    if (real.op == CORE_IDENTITY)
        real.result = text_of('z', 0, 16);
    for (uint32_t i = 0; i < real.lease_count; i++)
        leases[i] = lease_of(command->renewed[i]);
    real.leases = leases;
    REQUIRE(core_pack(packer, &real) != CORE_NOT_PACKED);
}

/* ---- comparing --------------------------------------------------------------------------------- */

static struct events of_table, of_twin;

static void apply(struct core *table, const struct core_packer *packer, struct events *events)
{
    const struct core_sink sink = {events, events_note};
    struct error_text err = {""};

    events->count = 0;
    events->texts = &texts;
    if (core_apply(table, packer->bytes, packer->size, &sink, &err) != HF_OK ||
        core_check(table, &err) != HF_OK)
        fuzz_failed(__FILE__, __LINE__, "the table is not sound:", err.text);
}

static void compare(const struct world *world)
{
    const struct model *model = world->model;
    char wrong[WRONG_MAX] = "";

    if (!compare_events(model->events, model->event_count, &of_table, wrong) ||
        !compare_events(of_table.event, of_table.count, &of_twin, wrong) ||
        !compare_table(world->table, model, &texts, wrong))
        fuzz_failed(__FILE__, __LINE__, "table and model differ:", wrong);
    REQUIRE(core_hash(world->table) == core_hash(world->twin));
}

/* The snapshot goes on, or another one is begun. */
static void save_a_little(struct world *world)
{
    size_t size = 0;
    void *bytes;

    if (!world->saving) {
        world->saving = true;
        world->saved_hash = core_hash(world->table);
        core_snapshot_begin(world->table);
        return;
    }
    if (!core_snapshot_step(world->table, fuzz_byte(world->input) * 4u))
        return;
    world->saving = false;
    bytes = core_snapshot_end(world->table, &size);
    REQUIRE(bytes && restored_hash(bytes, size) == world->saved_hash);
    free(bytes);
}

static void one_entry(struct world *world, struct core_packer *packer, unsigned entry)
{
    struct model_command commands[COMMANDS_MAX];
    unsigned how = fuzz_byte(world->input), count = how % (COMMANDS_MAX + 1);
    uint32_t elapsed_ms = (uint32_t)PICK(world->input, 0, 1, 10, 50, 100, 250, CORE_ELAPSED_MAX_MS);
    bool new_term = how >= 240;

    for (unsigned i = 0; i < count; i++) {
        commands[i] = make_command(world);
        pack(packer, &commands[i]);
    }
    core_packer_finish(packer, elapsed_ms, new_term, 1, entry);
    model_apply(world->model, commands, count, elapsed_ms, new_term);
    apply(world->table, packer, &of_table);
    apply(world->twin, packer, &of_twin);
    core_packer_clear(packer);
    compare(world);
    if (how & 16)
        save_a_little(world);
    if ((how & 96) == 96)
        world->twin = table_reborn(world->twin, (unsigned char)how);
}

const int fuzz_rounds = 100;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model model;
    struct fuzz_input input = {data, size};
    struct core_packer packer = {0};
    struct world world = {
        .table = table_new(1), .twin = table_new(2), .model = &model, .input = &input};

    memset(&model, 0, offsetof(struct model, events));
    model.event_count = model.claims_end = 0;
    model.now_ms = core_now(world.table);
    for (unsigned entry = 0; input.left > 0 && entry < ENTRIES_MAX; entry++)
        one_entry(&world, &packer, entry);
    core_packer_free(&packer);
    core_free(world.table);
    core_free(world.twin);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    uint64_t seed = 88172645463325252u + n;

    if (n >= 8)
        return 0;
    for (size_t i = 0; i < 400; i++)
        ret_bytes[i] = (uint8_t)next_random(&seed);
    return 400;
}
