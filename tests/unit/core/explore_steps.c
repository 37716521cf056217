/* explore_steps.c: what may happen in a state, and how that is said to the model, to the table and in a script. */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

#define RESULT_BYTES 2
#define TIMES_MAX 6

/* ---- texts ------------------------------------------------------------------------------------ */

static struct core_text letter(char first, int which)
{
    static char letters[256];
    unsigned char at = (unsigned char)(first + which);

    letters[at] = (char)at;
    return (struct core_text){&letters[at], 1};
}

static struct core_text name_of(int name)
{
    return letter(COMPARE_NAME_0, name);
}

static struct core_text lease_of(int who)
{
    return letter(COMPARE_LEASE_0, who);
}

const struct compare_texts explore_texts = {name_of, lease_of};

/* ---- what an op is about ---------------------------------------------------------------------- */

static bool has_name(enum core_op op)
{
    return op == CORE_ACQUIRE || op == CORE_RELEASE || op == CORE_LEAVE || op == CORE_BREAK ||
           op == CORE_FINISH;
}

static bool has_lease(const struct explore_command *command)
{
    enum core_op op = command->base.op;

    return (has_name(op) && op != CORE_BREAK) || op == CORE_END ||
           (op == CORE_RENEW && !command->all);
}

static bool knows_lease(const struct model *model, int who)
{
    for (int i = 0; i < MODEL_LEASES; i++)
        if (model->leases[i].used && model->leases[i].who == who)
            return true;
    return false;
}

static const struct model_name *find_name(const struct model *model, int name)
{
    for (int i = 0; i < MODEL_NAMES; i++)
        if (model->names[i].used && model->names[i].name == name)
            return &model->names[i];
    return NULL;
}

/* The token or attachment that is right. 0: there is none, or the hold was never a place. */
static uint64_t right_number(const struct model *model, enum core_op op, int name, int who)
{
    const struct model_claim *claim = model_find(model, name, who);
    const struct model_name *record = find_name(model, name);

    if (op == CORE_LEAVE)
        return claim ? claim->attachment : 0;
    if (claim && claim->state == CORE_HOLD)
        return claim->number;
    return op == CORE_FINISH && record && record->done ? record->result_token : 0;
}

/* Is there anything that such a number could be about? */
static bool has_number(const struct model *model, enum core_op op, int name, int who)
{
    return op == CORE_LEAVE ? model_find(model, name, who) != NULL
                            : right_number(model, op, name, who) != 0;
}

/* ---- steps ------------------------------------------------------------------------------------ */

struct steps {
    const struct explore_run *run;
    const struct explore_state *state;
    struct explore_target targets[EXPLORE_STEPS_MAX];
    int target_count;
    uint16_t times[TIMES_MAX];
    int time_count;
    struct explore_step *steps;
    int count;
};

/* Leases that the table does not know are all alike, and so are names: the first of them is enough. */
static bool is_first_unknown_lease(const struct steps *steps, int who)
{
    for (int lower = 0; lower < who; lower++)
        if (!knows_lease(steps->state->model, lower))
            return false;
    return true;
}

static bool is_first_unknown_name(const struct steps *steps, int first, int name)
{
    for (int lower = first; lower < name; lower++)
        if (!find_name(steps->state->model, lower))
            return false;
    return true;
}

static void add_target(struct steps *steps, int command, int name, int who)
{
    const struct explore_command *what = &steps->run->commands[command];
    const struct model *model = steps->state->model;
    int first = what->base.flags & CORE_ONCE ? MODEL_ONCE : 0;

    if (has_lease(what) && !knows_lease(model, who) && !is_first_unknown_lease(steps, who))
        return;
    if (has_name(what->base.op) && !find_name(model, name) &&
        !is_first_unknown_name(steps, first, name))
        return;
    if (has_name(what->base.op) && what->number != NUMBER_NONE &&
        !has_number(model, what->base.op, name, who))
        return;
    steps->targets[steps->target_count++] =
        (struct explore_target){(uint8_t)command, (uint8_t)name & 15u, (uint8_t)who & 15u};
}

static void find_targets(struct steps *steps)
{
    const struct explore_run *run = steps->run;

    for (int i = 0; i < EXPLORE_COMMANDS_MAX && run->commands[i].base.op; i++) {
        const struct explore_command *command = &run->commands[i];
        bool once = command->base.flags & CORE_ONCE;
        int first = once ? MODEL_ONCE : 0, names = once ? run->once_keys : run->names;

        for (int name = first; name < first + (has_name(command->base.op) ? names : 1); name++)
            for (int who = 0; who < (has_lease(command) ? run->leases : 1); who++)
                add_target(steps, i, name, who);
    }
}

static void add_time(struct steps *steps, int64_t ms)
{
    if (ms < 0 || ms > CORE_ELAPSED_MAX_MS || steps->time_count == TIMES_MAX)
        return;
    for (int i = 0; i < steps->time_count; i++)
        if (steps->times[i] == (uint16_t)ms)
            return;
    steps->times[steps->time_count++] = (uint16_t)ms;
}

static int64_t last_deadline(const struct model *model)
{
    int64_t last = 0;

    for (int i = 0; i < MODEL_LEASES; i++)
        if (model->leases[i].used && model->leases[i].deadline_ms > last)
            last = model->leases[i].deadline_ms;
    for (int i = 0; i < model->claims_end; i++)
        if (model->claims[i].used && model->claims[i].deadline_ms != INT64_MAX &&
            model->claims[i].deadline_ms > last)
            last = model->claims[i].deadline_ms;
    for (int i = 0; i < MODEL_NAMES; i++)
        if (model->names[i].used && (model->names[i].done || model->names[i].died) &&
            model->names[i].deadline_ms > last)
            last = model->names[i].deadline_ms;
    return last;
}

static void find_times(struct steps *steps)
{
    const struct model *model = steps->state->model;
    int64_t next = model_next_deadline(model), last = last_deadline(model);

    if (next < 0)
        return;
    if (next <= model->now_ms)
        add_time(steps, 0); /* a WAIT of nothing: any entry ends it */
    if (steps->run->time == TIME_GRID) {
        add_time(steps, GRID_MS);
        add_time(steps, 2 * (int64_t)GRID_MS);
        return;
    }
    for (int64_t ms = -1; ms <= 1; ms++) {
        if (next + ms > model->now_ms)
            add_time(steps, next + ms - model->now_ms);
        if (ms >= 0 && last + ms > model->now_ms)
            add_time(steps, last + ms - model->now_ms);
    }
}

static bool allowed(const struct steps *steps, enum explore_kind kind)
{
    return steps->run->most[kind] == EXPLORE_ANY ||
           steps->state->done[kind] < steps->run->most[kind];
}

static void add(struct steps *steps, struct explore_step step)
{
    if (steps->count < EXPLORE_STEPS_MAX)
        steps->steps[steps->count++] = step;
    else
        abort(); /* a run that is too large: its bounds would not be what it says */
}

static void add_pairs(struct steps *steps)
{
    for (int i = 0; i < steps->target_count; i++)
        for (int j = 0; j < steps->target_count; j++)
            for (int time = -1; time < steps->time_count; time++)
                add(steps, (struct explore_step){STEP_PAIR,
                                                 2,
                                                 time < 0 ? 0 : steps->times[time],
                                                 {steps->targets[i], steps->targets[j]}});
}

int explore_steps(const struct explore_run *run, const struct explore_state *state,
                  struct explore_step ret_steps[EXPLORE_STEPS_MAX])
{
    static struct steps steps;

    memset(&steps, 0, sizeof steps);
    steps.run = run;
    steps.state = state;
    steps.steps = ret_steps;
    find_targets(&steps);
    find_times(&steps);
    for (int i = 0; allowed(&steps, STEP_COMMAND) && i < steps.target_count; i++)
        add(&steps, (struct explore_step){STEP_COMMAND, 1, 0, {steps.targets[i]}});
    for (int i = 0; allowed(&steps, STEP_TIME) && i < steps.time_count; i++)
        add(&steps, (struct explore_step){.kind = STEP_TIME, .elapsed_ms = steps.times[i]});
    if (allowed(&steps, STEP_PAIR))
        add_pairs(&steps);
    if (allowed(&steps, STEP_TERM))
        add(&steps, (struct explore_step){.kind = STEP_TERM});
    if (allowed(&steps, STEP_SNAPSHOT) && !state->saving)
        add(&steps, (struct explore_step){.kind = STEP_SNAPSHOT});
    if (allowed(&steps, STEP_WRITE) && state->saving)
        add(&steps, (struct explore_step){.kind = STEP_WRITE});
    if (allowed(&steps, STEP_GIVE_UP) && state->saving)
        add(&steps, (struct explore_step){.kind = STEP_GIVE_UP});
    if (allowed(&steps, STEP_RESTORE) && !state->saving)
        add(&steps, (struct explore_step){.kind = STEP_RESTORE});
    return steps.count;
}

bool explore_is_entry(const struct explore_step *step)
{
    return step->kind <= STEP_TERM;
}

/* ---- entries ---------------------------------------------------------------------------------- */

static struct model_command one_command(const struct explore_run *run, const struct model *model,
                                        const struct explore_target *target)
{
    const struct explore_command *what = &run->commands[target->command];
    struct model_command command = {
        .base = what->base, .name = target->name, .who = target->who, .user = what->user};
    uint64_t right = right_number(model, what->base.op, target->name, target->who);
    uint64_t other = right > 1 ? right - 1 : right + 1;

    command.base.flags &= ~(uint32_t)CORE_ONCE; /* the model knows by the name */
    if (what->base.op == CORE_FLOOR)
        command.base.token = what->number == NUMBER_RIGHT ? model->last_token + 2
                             : model->last_token > 0      ? model->last_token - 1
                                                          : 0;
    else if (what->base.op == CORE_LEAVE)
        command.base.attachment = (uint32_t)(what->number == NUMBER_RIGHT ? right : other);
    else if (what->number != NUMBER_NONE)
        command.base.token = what->number == NUMBER_RIGHT ? right : other;
    if (what->base.op == CORE_FINISH)
        command.result = RESULT_BYTES;
    if (what->base.op == CORE_RENEW) {
        command.base.lease_count = what->all ? (uint32_t)run->leases : 1;
        for (int i = 0; i < run->leases; i++)
            command.renewed[i] = what->all ? i : target->who;
    }
    return command;
}

void explore_entry(const struct explore_run *run, const struct explore_state *state,
                   const struct explore_step *step,
                   struct model_command ret_commands[STEP_COMMANDS])
{
    for (int i = 0; i < step->count; i++)
        ret_commands[i] = one_command(run, state->model, &step->targets[i]);
}

static void pack_one(struct core_packer *packer, const struct model_command *command)
{
    struct core_command real = command->base;
    struct core_text leases[8];

    if (has_name(real.op)) {
        real.name = name_of(command->name);
        real.flags |= command->name >= MODEL_ONCE ? CORE_ONCE : 0;
    }
    if ((has_name(real.op) && real.op != CORE_BREAK) || real.op == CORE_END)
        real.lease = lease_of(command->who);
    if (real.flags & CORE_QUOTA)
        real.user = compare_user(command->user);
    if (real.op == CORE_FINISH)
        real.result = (struct core_text){"ok", RESULT_BYTES};
    if (real.op == CORE_IDENTITY)
        real.result = (struct core_text){"0123456789abcdef", 16};
    for (uint32_t i = 0; i < real.lease_count; i++)
        leases[i] = lease_of(command->renewed[i]);
    real.leases = leases;
    if (core_pack(packer, &real) == CORE_NOT_PACKED)
        abort(); /* a run with a command that breaks a limit */
}

void explore_pack(const struct explore_step *step,
                  const struct model_command commands[STEP_COMMANDS], struct core_packer *packer)
{
    for (int i = 0; i < step->count; i++)
        pack_one(packer, &commands[i]);
    core_packer_finish(packer, step->elapsed_ms, step->kind == STEP_TERM, 0, 0);
}

/* ---- words ------------------------------------------------------------------------------------ */

static void acquire_words(FILE *out, const struct core_command *command)
{
    fprintf(out, " ttl %u", command->ttl_ms);
    if (command->flags & CORE_WAITS) {
        if (command->wait_ms == CORE_FOREVER)
            fputs(" wait forever", out);
        else
            fprintf(out, " wait %llu", (unsigned long long)command->wait_ms);
        fputs(command->flags & CORE_KEPT ? " kept" : " push", out);
    }
    if (command->mode == HF_SHARED)
        fputs(" shared", out);
    if (command->mode == HF_PERMIT)
        fprintf(out, " permits %u", command->permits);
    if (command->delay_ms)
        fprintf(out, " delay %llu", (unsigned long long)command->delay_ms);
    if (command->flags & CORE_NO_HEIR)
        fputs(" no-heir", out);
}

static void user_words(FILE *out, const struct model_command *command)
{
    const struct core_quota *quota = &command->base.quota;

    if (!(command->base.flags & CORE_QUOTA))
        return;
    fprintf(out, " user %s", compare_user(command->user).bytes);
    if (quota->leases)
        fprintf(out, " leases %u", quota->leases);
    if (quota->holds)
        fprintf(out, " holds %u", quota->holds);
    if (quota->places)
        fprintf(out, " places %u", quota->places);
}

static void command_words(FILE *out, const struct model_command *command)
{
    static const char *const ops[] = {
        [CORE_READ] = "read",   [CORE_ACQUIRE] = "acquire",  [CORE_RELEASE] = "release",
        [CORE_RENEW] = "renew", [CORE_END] = "end",          [CORE_LEAVE] = "leave",
        [CORE_BREAK] = "break", [CORE_FLOOR] = "floor",      [CORE_FINISH] = "finish",
        [CORE_MEMBER] = NULL,   [CORE_IDENTITY] = "identity"};
    const struct core_command *base = &command->base;

    fputs(ops[base->op], out);
    if (has_name(base->op))
        fprintf(out, " %s%c", command->name >= MODEL_ONCE ? "once:" : "",
                COMPARE_NAME_0 + command->name);
    if ((has_name(base->op) && base->op != CORE_BREAK) || base->op == CORE_END)
        fprintf(out, " %c", COMPARE_LEASE_0 + command->who);
    for (uint32_t i = 0; i < base->lease_count; i++)
        fprintf(out, " %c", COMPARE_LEASE_0 + command->renewed[i]);
    if (base->op == CORE_ACQUIRE) {
        acquire_words(out, base);
        user_words(out, command);
    }
    if ((base->op == CORE_RENEW || base->op == CORE_END) && base->ttl_ms)
        fprintf(out, " ttl %u", base->ttl_ms);
    if ((base->op == CORE_RELEASE && base->token) || base->op == CORE_FINISH)
        fprintf(out, " token %llu", (unsigned long long)base->token);
    if (base->op == CORE_FINISH)
        fprintf(out, " keep %llu result ok", (unsigned long long)base->keep_ms);
    if (base->op == CORE_FLOOR)
        fprintf(out, " %llu", (unsigned long long)base->token);
    if (base->op == CORE_LEAVE)
        fprintf(out, " attachment %u", base->attachment);
    if (base->op == CORE_IDENTITY)
        fputs(" 0123456789abcdef force", out);
    if (base->op == CORE_BREAK && base->flags & CORE_NOW)
        fputs(" now", out);
    fputc('\n', out);
}

void explore_words(FILE *out, const struct explore_step *step,
                   const struct model_command commands[STEP_COMMANDS])
{
    static const char *const others[] = {
        [STEP_TERM] = "term\n",
        [STEP_SNAPSHOT] = "# a snapshot is begun\n",
        [STEP_WRITE] = "# one record of it is written\n",
        [STEP_GIVE_UP] = "# the snapshot is given up\n",
        [STEP_RESTORE] = "# the table is restored from a snapshot, and goes on\n"};

    switch (step->kind) {
    case STEP_COMMAND:
        command_words(out, &commands[0]);
        break;
    case STEP_PAIR:
        fprintf(out, "{ +%u\n", step->elapsed_ms);
        for (int i = 0; i < step->count; i++)
            command_words(out, &commands[i]);
        fputs("}\n", out);
        break;
    case STEP_TIME:
        fprintf(out, "+%u\n", step->elapsed_ms);
        break;
    default:
        fputs(others[step->kind], out);
    }
}
