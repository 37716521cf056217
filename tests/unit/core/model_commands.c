/* model_commands.c: see model.h. What each command does. */
#include "model_inside.h"

static void prolong(struct model *model, int who, uint32_t ttl_ms)
{
    struct model_lease *lease = find_lease(model, who);

    if (lease->ttl_ms < ttl_ms)
        lease->ttl_ms = ttl_ms;
    if (lease->deadline_ms < model->now_ms + ttl_ms)
        lease->deadline_ms = model->now_ms + ttl_ms;
}

static void attach(struct model *model, uint32_t number, struct model_claim *claim,
                   const struct core_command *command)
{
    claim->attachment = ++model->last_attachment;
    claim->no_heir = command->flags & CORE_NO_HEIR;
    claim->deadline_ms =
        command->wait_ms == CORE_FOREVER ? INT64_MAX : model->now_ms + (int64_t)command->wait_ms;
    if (command->flags & CORE_KEPT)
        claim->kept = true;
    else
        unkeep(model, claim);
    tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                     .command = number,
                                     .answer = ANSWER_QUEUED,
                                     .number = claim->number,
                                     .ticket = claim->number,
                                     .attachment = claim->attachment,
                                     .name = NOBODY,
                                     .who = NOBODY});
}

static void acquire_again(struct model *model, uint32_t number, struct model_claim *claim,
                          const struct model_command *command)
{
    if (claim->mode != command->base.mode ||
        (claim->mode == HF_PERMIT &&
         find_name(model, claim->name)->permits != command->base.permits)) {
        answer(model, number, ANSWER_OTHER_MODE, 0);
    } else if (claim->state == CORE_HOLD) {
        prolong(model, claim->who, command->base.ttl_ms);
        answer(model, number, ANSWER_TOKEN, claim->number);
    } else if (command->base.flags & CORE_WAITS) {
        prolong(model, claim->who, command->base.ttl_ms);
        attach(model, number, claim, &command->base);
    } else {
        end_place(model, claim, WHY_LEFT);
        tidy(model, NOBODY, command->who);
        answer(model, number, ANSWER_BUSY, 0);
    }
}

static bool is_over(struct model *model, uint32_t number, const struct model_command *command,
                    enum core_answer what, uint64_t has, uint32_t limit)
{
    if (limit == 0 || has < limit)
        return false;
    tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                     .command = number,
                                     .answer = what,
                                     .number = has,
                                     .name = command->name,
                                     .who = NOBODY});
    return true;
}

/* More than the user may have: whoever asks says the limits, and whose lease it is counts. */
static bool is_over_quota(struct model *model, uint32_t number, const struct model_command *command,
                          bool waits)
{
    const struct model_lease *lease = find_lease(model, command->who);
    bool owned = lease && lease->user;
    struct core_usage has = model_usage(model, owned ? lease->user : command->user);
    uint64_t claims = has.holds + has.places, places = has.places;

    for (int i = 0; lease && !owned && i < model->claims_end; i++)
        if (model->claims[i].used && model->claims[i].who == command->who) {
            claims++;
            places += model->claims[i].state == CORE_PLACE;
        }
    return (!owned && is_over(model, number, command, ANSWER_OVER_LEASES, has.leases,
                              command->base.quota.leases)) ||
           is_over(model, number, command, ANSWER_OVER_HOLDS, claims, command->base.quota.holds) ||
           (waits && is_over(model, number, command, ANSWER_OVER_PLACES, places,
                             command->base.quota.places));
}

/* The lease has nothing to do with the name yet. */
static void acquire_anew(struct model *model, uint32_t number, const struct model_command *command)
{
    const struct core_command *base = &command->base;
    const struct model_claim *list[MODEL_CLAIMS];
    struct model_name *name = find_name(model, command->name);
    int holds = model_list(model, command->name, false, list);
    int places = model_list(model, command->name, true, list);
    bool room = places == 0 && admits(model, command->name, base->mode);
    struct model_claim *claim;

    if (holds + places > 0 && name->permits != base->permits) {
        answer(model, number, ANSWER_OTHER_PERMITS, name->permits);
        return;
    }
    if (name && !room && !(base->flags & CORE_WAITS)) {
        answer(model, number, ANSWER_BUSY, 0);
        return;
    }
    if (base->flags & CORE_QUOTA && is_over_quota(model, number, command, name && !room))
        return;
    if (model->last_token >= HF_TOKEN_MAX) {
        answer(model, number, ANSWER_TOKENS_SPENT, 0);
        return;
    }
    if (!name)
        name = make_name(model, command->name);
    name->permits = base->permits;
    if (!find_lease(model, command->who))
        make_lease(model, command->who);
    if (base->flags & CORE_QUOTA && !find_lease(model, command->who)->user)
        find_lease(model, command->who)->user = command->user;
    claim = make_claim(model, command->name, command->who);
    claim->mode = base->mode;
    claim->delay_ms = base->delay_ms;
    claim->since_ms = model->now_ms;
    prolong(model, command->who, base->ttl_ms);
    if (room) {
        forget_record(model, command->name);
        grant(model, claim);
        answer(model, number, ANSWER_TOKEN, claim->number);
        return;
    }
    claim->state = CORE_PLACE;
    claim->number = ++model->last_ticket;
    attach(model, number, claim, base);
}

static void acquire(struct model *model, uint32_t number, const struct model_command *command)
{
    const struct model_lease *lease = find_lease(model, command->who);
    const struct model_name *name = find_name(model, command->name);
    struct model_claim *claim = find_claim(model, command->name, command->who);

    if (lease && lease->ended)
        answer(model, number, ANSWER_ENDED, 0);
    else if (name && (name->done || (name->died && command->base.flags & CORE_NO_HEIR)))
        tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                         .command = number,
                                         .answer = name->done ? ANSWER_DONE : ANSWER_DIED,
                                         .number = name->result_token,
                                         .name = NOBODY,
                                         .who = NOBODY,
                                         .result = name->done ? name->result : 0});
    else if (claim)
        acquire_again(model, number, claim, command);
    else
        acquire_anew(model, number, command);
}

static void release(struct model *model, uint32_t number, const struct model_command *command)
{
    struct model_claim *claim = find_claim(model, command->name, command->who);
    const struct model_lease *lease = find_lease(model, command->who);
    uint64_t token = command->base.token;

    if (!claim || (token && (claim->state != CORE_HOLD || claim->number != token))) {
        tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                         .command = number,
                                         .answer = ANSWER_NUMBER,
                                         .why = lease && lease->ended ? WHY_ENDED : 0,
                                         .name = NOBODY,
                                         .who = NOBODY});
        return;
    }
    if (claim->state == CORE_HOLD)
        end_hold(model, claim, WHY_RELEASED);
    else
        end_place(model, claim, WHY_LEFT);
    tidy(model, NOBODY, command->who);
    answer(model, number, ANSWER_NUMBER, 1);
}

static void leave_command(struct model *model, uint32_t number, const struct model_command *command)
{
    struct model_claim *claim = find_claim(model, command->name, command->who);

    if (!claim || !claim->kept || claim->attachment != command->base.attachment) {
        answer(model, number, ANSWER_NUMBER, 0);
        return;
    }
    end_place(model, claim, WHY_LEFT);
    tidy(model, NOBODY, command->who);
    answer(model, number, ANSWER_NUMBER, 1);
}

/* The only answer that says whose it is: there are several to one command. */
static void answer_lease(struct model *model, uint32_t number, int who, uint64_t left_ms)
{
    tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                     .command = number,
                                     .answer = ANSWER_NUMBER,
                                     .number = left_ms,
                                     .name = NOBODY,
                                     .who = who});
}

static void renew(struct model *model, uint32_t number, const struct model_command *command)
{
    for (uint32_t i = 0; i < command->base.lease_count; i++) {
        int who = command->renewed[i];
        struct model_lease *lease = find_lease(model, who);

        if (!lease || lease->ended) {
            answer_lease(model, number, who, UINT64_MAX);
            continue;
        }
        if (command->base.ttl_ms)
            lease->ttl_ms = command->base.ttl_ms;
        prolong(model, who, lease->ttl_ms);
        answer_lease(model, number, who, (uint64_t)(model_end_ms(model, who) - model->now_ms));
    }
}

static void end_command(struct model *model, uint32_t number, const struct model_command *command)
{
    const struct model_lease *lease = find_lease(model, command->who);
    int64_t remember_ms = command->base.ttl_ms ? command->base.ttl_ms : CORE_ENDED_DEFAULT_MS;

    if (!lease)
        lease = make_lease(model, command->who);
    if (remember_ms < lease->ttl_ms)
        remember_ms = lease->ttl_ms;
    answer(model, number, ANSWER_NUMBER,
           end_lease(model, command->who, WHY_ENDED, false, remember_ms));
}

static void break_command(struct model *model, uint32_t number, const struct model_command *command)
{
    const struct model_claim *holds[MODEL_CLAIMS];
    int count = model_list(model, command->name, false, holds), broken[MODEL_LEASES], living = 0;
    bool now = command->base.flags & CORE_NOW;
    uint64_t ended = 0;

    for (int i = 0; i < count; i++)
        if (holds[i]->state == CORE_HOLD)
            broken[living++] = holds[i]->who;
    for (int i = 0; i < count && now; i++) {
        if (holds[i]->state == CORE_GHOST) {
            end_hold(model, (struct model_claim *)holds[i], WHY_BROKEN);
            ended++;
        }
    }
    for (int i = 0; i < living; i++) {
        const struct model_lease *lease = find_lease(model, broken[i]);
        int64_t left_ms = model_end_ms(model, broken[i]) - model->now_ms;

        end_lease(model, broken[i], WHY_BROKEN, !now, left_ms + lease->ttl_ms);
    }
    answer(model, number, ANSWER_NUMBER, ended + (uint64_t)living);
}

static void finish(struct model *model, uint32_t number, const struct model_command *command)
{
    struct model_claim *claim = find_claim(model, command->name, command->who);
    const struct model_name *name = find_name(model, command->name);
    const struct model_claim *places[MODEL_CLAIMS];
    int count;

    if (name && name->done && name->result_token == command->base.token) {
        answer(model, number, ANSWER_NUMBER, 1); /* once more */
        return;
    }
    if (!claim || claim->state != CORE_HOLD || claim->number != command->base.token) {
        answer(model, number, ANSWER_STALE, model->last_token);
        return;
    }
    count = model_list(model, command->name, true, places);
    for (int i = 0; i < count; i++) {
        struct model_claim *place = (struct model_claim *)places[i];

        tell(model, (struct model_event){.kind = EFFECT_DONE,
                                         .why = WHY_FINISHED,
                                         .number = claim->number,
                                         .ticket = place->number,
                                         .name = command->name,
                                         .who = place->who,
                                         .result = command->result});
        unkeep(model, place);
        place->used = false;
        tidy(model, NOBODY, place->who);
    }
    set_record(model, command->name, true, command->result, claim->number,
               model->now_ms + (int64_t)command->base.keep_ms);
    end_hold(model, claim, WHY_FINISHED);
    tidy(model, NOBODY, command->who);
    answer(model, number, ANSWER_NUMBER, 1);
}

/* FLOOR, and an IDENTITY that is forced. */
static void raise_tokens(struct model *model, uint32_t number, uint64_t token)
{
    if (token > HF_TOKEN_MAX)
        token = HF_TOKEN_MAX;
    if (model->last_token < token)
        model->last_token = token;
    answer(model, number, ANSWER_NUMBER, model->last_token);
}

static void apply_command(struct model *model, uint32_t number, const struct model_command *command)
{
    switch (command->base.op) {
    case CORE_READ:
        tell(model, (struct model_event){
                        .kind = EFFECT_READ, .command = number, .name = NOBODY, .who = NOBODY});
        break;
    case CORE_ACQUIRE:
        acquire(model, number, command);
        break;
    case CORE_RELEASE:
        release(model, number, command);
        break;
    case CORE_RENEW:
        renew(model, number, command);
        break;
    case CORE_END:
        end_command(model, number, command);
        break;
    case CORE_LEAVE:
        leave_command(model, number, command);
        break;
    case CORE_BREAK:
        break_command(model, number, command);
        break;
    case CORE_FLOOR:
        raise_tokens(model, number, command->base.token);
        break;
    case CORE_FINISH:
        finish(model, number, command);
        break;
    case CORE_MEMBER: /* never in what is drawn */
        break;
    case CORE_IDENTITY:
        raise_tokens(model, number, model->last_token + CORE_RESTORE_JUMP);
        break;
    }
}

void model_apply(struct model *model, const struct model_command *commands, uint32_t count,
                 uint32_t elapsed_ms, bool new_term)
{
    model->event_count = 0;
    model->now_ms += elapsed_ms;
    for (int i = 0; new_term && i < model->claims_end; i++)
        if (model->claims[i].used)
            unkeep(model, &model->claims[i]);
    end_what_is_due(model);
    for (uint32_t i = 0; i < count; i++)
        apply_command(model, i, &commands[i]);
    while (model->claims_end > 0 && !model->claims[model->claims_end - 1].used)
        model->claims_end--;
}
