/* model.c: see model.h. Who gets a name, and what ends when. */
#include "model_inside.h"

#include "tools.h"

/* ---- finding ---------------------------------------------------------------------------------- */

struct model_lease *find_lease(const struct model *model, int who)
{
    for (int i = 0; i < MODEL_LEASES; i++)
        if (model->leases[i].used && model->leases[i].who == who)
            return (struct model_lease *)&model->leases[i];
    return NULL;
}

struct model_name *find_name(const struct model *model, int name)
{
    for (int i = 0; i < MODEL_NAMES; i++)
        if (model->names[i].used && model->names[i].name == name)
            return (struct model_name *)&model->names[i];
    return NULL;
}

struct model_claim *find_claim(const struct model *model, int name, int who)
{
    for (int i = 0; i < model->claims_end; i++)
        if (model->claims[i].used && model->claims[i].name == name && model->claims[i].who == who)
            return (struct model_claim *)&model->claims[i];
    return NULL;
}

const struct model_claim *model_find(const struct model *model, int name, int who)
{
    return find_claim(model, name, who);
}

static int by_number(const void *a, const void *b)
{
    const struct model_claim *const *x = a, *const *y = b;

    return (*x)->number < (*y)->number ? -1 : (*x)->number > (*y)->number;
}

int model_list(const struct model *model, int name, bool places,
               const struct model_claim **ret_claims)
{
    int count = 0;

    for (int i = 0; i < model->claims_end; i++) {
        const struct model_claim *claim = &model->claims[i];

        if (claim->used && claim->name == name && (claim->state == CORE_PLACE) == places)
            ret_claims[count++] = claim;
    }
    if (count > 1)
        qsort(ret_claims, (size_t)count, sizeof(struct model_claim *), by_number);
    return count;
}

bool is_kept(const struct model *model, int who)
{
    for (int i = 0; i < model->claims_end; i++)
        if (model->claims[i].used && model->claims[i].who == who && model->claims[i].kept)
            return true;
    return false;
}

int64_t model_left_ms(const struct model *model, int who)
{
    return is_kept(model, who) ? -1 : find_lease(model, who)->deadline_ms - model->now_ms;
}

int64_t model_end_ms(const struct model *model, int who)
{
    const struct model_lease *lease = find_lease(model, who);
    int64_t least = model->now_ms + (is_kept(model, who) ? (int64_t)lease->ttl_ms : 0);

    return lease->deadline_ms > least ? lease->deadline_ms : least;
}

struct core_usage model_usage(const struct model *model, int user)
{
    struct core_usage usage = {0};

    for (int i = 0; i < MODEL_LEASES; i++)
        usage.leases +=
            model->leases[i].used && !model->leases[i].ended && model->leases[i].user == user;
    for (int i = 0; i < model->claims_end; i++) {
        const struct model_claim *claim = &model->claims[i];

        if (!claim->used ||
            (claim->who == NOBODY ? claim->user : find_lease(model, claim->who)->user) != user)
            continue;
        usage.places += claim->state == CORE_PLACE;
        usage.holds += claim->state != CORE_PLACE;
    }
    return usage;
}

/* ---- events ----------------------------------------------------------------------------------- */

void tell(struct model *model, struct model_event event)
{
    assert_true(model->event_count < MODEL_EVENTS);
    model->events[model->event_count++] = event;
}

static void tell_changed(struct model *model, const struct model_claim *claim, enum core_why why)
{
    tell(model, (struct model_event){.kind = EFFECT_CHANGED,
                                     .why = why,
                                     .number = claim->number,
                                     .name = claim->name,
                                     .who = claim->who});
}

void answer(struct model *model, uint32_t command, enum core_answer what, uint64_t number)
{
    tell(model, (struct model_event){.kind = EFFECT_ANSWER,
                                     .command = command,
                                     .answer = what,
                                     .number = number,
                                     .name = NOBODY,
                                     .who = NOBODY});
}

/* ---- making and forgetting -------------------------------------------------------------------- */

struct model_lease *make_lease(struct model *model, int who)
{
    int slot = 0;

    while (model->leases[slot].used)
        slot++;
    model->leases[slot] = (struct model_lease){.used = true, .who = who};
    return &model->leases[slot];
}

struct model_name *make_name(struct model *model, int name)
{
    int slot = 0;

    while (model->names[slot].used)
        slot++;
    model->names[slot] = (struct model_name){.used = true, .name = name};
    return &model->names[slot];
}

struct model_claim *make_claim(struct model *model, int name, int who)
{
    int slot = 0;

    while (model->claims[slot].used)
        assert_true(++slot < MODEL_CLAIMS);
    if (slot >= model->claims_end)
        model->claims_end = slot + 1;
    model->claims[slot] = (struct model_claim){.used = true, .name = name, .who = who};
    return &model->claims[slot];
}

/* What nobody uses is forgotten. */
void tidy(struct model *model, int name, int who)
{
    struct model_name *the_name = find_name(model, name);
    struct model_lease *lease = find_lease(model, who);
    bool name_used = false, lease_used = false;

    for (int i = 0; i < model->claims_end; i++) {
        name_used |= model->claims[i].used && model->claims[i].name == name;
        lease_used |= model->claims[i].used && model->claims[i].who == who;
    }
    if (the_name && !name_used && !the_name->done && !the_name->died)
        the_name->used = false;
    if (who != NOBODY && lease && !lease_used && !lease->ended)
        lease->used = false;
}

void set_record(struct model *model, int name, bool done, int result, uint64_t token,
                int64_t deadline_ms)
{
    struct model_name *the_name = find_name(model, name);

    the_name->done = done;
    the_name->died = !done;
    the_name->result = result;
    the_name->result_token = token;
    the_name->deadline_ms = deadline_ms;
}

void forget_record(struct model *model, int name)
{
    struct model_name *the_name = find_name(model, name);

    the_name->done = the_name->died = false;
}

/* ---- granting --------------------------------------------------------------------------------- */

bool admits(const struct model *model, int name, int mode)
{
    const struct model_claim *holds[MODEL_CLAIMS];
    int count = model_list(model, name, false, holds);

    if (model->last_token >= HF_TOKEN_MAX)
        return false;
    if (count == 0)
        return true;
    if (mode == HF_PERMIT)
        return (uint32_t)count < find_name(model, name)->permits;
    return mode == HF_SHARED && holds[0]->mode == HF_SHARED;
}

/* Nobody's connection keeps it from now on: the lease's time begins, if this was the last. */
void unkeep(struct model *model, struct model_claim *claim)
{
    int64_t end_ms;

    if (!claim->kept)
        return;
    end_ms = model_end_ms(model, claim->who);
    claim->kept = false;
    if (!is_kept(model, claim->who))
        find_lease(model, claim->who)->deadline_ms = end_ms;
}

void grant(struct model *model, struct model_claim *claim)
{
    unkeep(model, claim);
    claim->state = CORE_HOLD;
    claim->number = ++model->last_token;
    claim->since_ms = model->now_ms;
    claim->deadline_ms = INT64_MAX;
    tell_changed(model, claim, WHY_GRANTED);
}

static void leave(struct model *model, struct model_claim *claim, enum core_why why)
{
    const struct model_name *name = find_name(model, claim->name);

    unkeep(model, claim);
    tell(model, (struct model_event){.kind = EFFECT_LEFT,
                                     .why = why,
                                     .number = name->died ? name->result_token : 0,
                                     .ticket = claim->number,
                                     .name = claim->name,
                                     .who = claim->who});
    claim->used = false;
}

/* To the first in the queue, as long as that is possible. */
static void advance(struct model *model, int name)
{
    const struct model_claim *places[MODEL_CLAIMS];

    while (model_list(model, name, true, places) > 0 && admits(model, name, places[0]->mode)) {
        struct model_claim *first = (struct model_claim *)places[0];
        uint64_t ticket = first->number;

        bool died = find_name(model, name)->died && first->no_heir;
        bool due = !is_kept(model, first->who) &&
                   find_lease(model, first->who)->deadline_ms <= model->now_ms;

        if (died || due) {
            leave(model, first, due ? WHY_EXPIRED : WHY_DIED);
            tidy(model, NOBODY, first->who);
            continue;
        }
        forget_record(model, name);
        grant(model, first);
        tell(model, (struct model_event){.kind = EFFECT_GRANTED,
                                         .why = WHY_GRANTED,
                                         .number = first->number,
                                         .ticket = ticket,
                                         .name = name,
                                         .who = first->who});
    }
}

/* ---- ending ----------------------------------------------------------------------------------- */

void end_hold(struct model *model, struct model_claim *claim, enum core_why why)
{
    int name = claim->name;

    if (name >= MODEL_ONCE && (why == WHY_EXPIRED || why == WHY_BROKEN))
        set_record(model, name, false, 0, claim->number, model->now_ms + (int64_t)claim->delay_ms);
    tell_changed(model, claim, why);
    claim->used = false;
    advance(model, name);
    tidy(model, name, NOBODY);
}

void end_place(struct model *model, struct model_claim *claim, enum core_why why)
{
    int name = claim->name;

    leave(model, claim, why);
    advance(model, name);
    tidy(model, name, NOBODY);
}

/* Until when the name of a hold is withheld whose lease expired or was broken. */
static int64_t withheld_until(const struct model *model, const struct model_claim *claim,
                              enum core_why why, bool withhold)
{
    int64_t end_ms = model->now_ms;

    if (why == WHY_ENDED || !withhold)
        return end_ms;
    if (why == WHY_BROKEN)
        end_ms = model_end_ms(model, claim->who);
    return end_ms + (claim->name >= MODEL_ONCE ? 0 : (int64_t)claim->delay_ms);
}

static void end_claim(struct model *model, struct model_claim *claim, enum core_why why,
                      bool withhold)
{
    int64_t until;

    if (claim->state == CORE_PLACE) {
        end_place(model, claim, why);
        return;
    }
    until = withheld_until(model, claim, why, withhold);
    if (until <= model->now_ms) {
        end_hold(model, claim, why);
        return;
    }
    tell_changed(model, claim, why);
    claim->user = find_lease(model, claim->who)->user;
    claim->state = CORE_GHOST;
    claim->who = NOBODY;
    claim->deadline_ms = until;
}

uint32_t end_lease(struct model *model, int who, enum core_why why, bool withhold,
                   int64_t remember_ms)
{
    struct model_lease *lease = find_lease(model, who);
    bool its[MODEL_CLAIMS];
    uint32_t count = 0;

    for (int i = 0; i < model->claims_end; i++)
        its[i] = model->claims[i].used && model->claims[i].who == who;
    for (int i = 0, end = model->claims_end; i < end; i++) {
        if (its[i]) {
            end_claim(model, &model->claims[i], why, withhold);
            count++;
        }
    }
    if (!lease->ended || lease->deadline_ms < model->now_ms + remember_ms)
        lease->deadline_ms = model->now_ms + remember_ms;
    lease->ended = lease->used = remember_ms >= 0;
    return count;
}

/* ---- time ------------------------------------------------------------------------------------- */

enum due { DUE_NOTHING, DUE_LEASE, DUE_CLAIM, DUE_NAME };

/* The first deadline in the order of (deadline, kind, slot). */
static enum due first_deadline(const struct model *model, int64_t *ret_ms, int *ret_slot)
{
    enum due due = DUE_NOTHING;
    int64_t least = INT64_MAX;

    for (int i = 0; i < MODEL_LEASES; i++) {
        const struct model_lease *lease = &model->leases[i];

        if (lease->used && lease->deadline_ms < least && !is_kept(model, lease->who)) {
            due = DUE_LEASE;
            least = lease->deadline_ms;
            *ret_slot = i;
        }
    }
    for (int i = 0; i < model->claims_end; i++) {
        if (model->claims[i].used && model->claims[i].deadline_ms < least) {
            due = DUE_CLAIM;
            least = model->claims[i].deadline_ms;
            *ret_slot = i;
        }
    }
    for (int i = 0; i < MODEL_NAMES; i++) {
        const struct model_name *name = &model->names[i];

        if (name->used && (name->done || name->died) && name->deadline_ms < least) {
            due = DUE_NAME;
            least = name->deadline_ms;
            *ret_slot = i;
        }
    }
    *ret_ms = least;
    return due;
}

int64_t model_next_deadline(const struct model *model)
{
    int64_t ms;
    int slot;

    return first_deadline(model, &ms, &slot) == DUE_NOTHING ? -1 : ms;
}

static void end_due_lease(struct model *model, struct model_lease *lease)
{
    if (lease->ended)
        lease->used = false;
    else
        end_lease(model, lease->who, WHY_EXPIRED, true, -1);
}

static void end_due_claim(struct model *model, struct model_claim *claim)
{
    int who = claim->who;

    if (claim->state == CORE_GHOST) {
        end_hold(model, claim, WHY_EXPIRED);
    } else {
        end_place(model, claim, WHY_WAIT_OVER);
        tidy(model, NOBODY, who);
    }
}

void end_what_is_due(struct model *model)
{
    for (uint32_t i = 0; i < CORE_ENDINGS_MAX; i++) {
        int slot = 0;
        int64_t ms;
        enum due due = first_deadline(model, &ms, &slot);

        if (due == DUE_NOTHING || ms > model->now_ms)
            return;
        if (due == DUE_LEASE) {
            end_due_lease(model, &model->leases[slot]);
        } else if (due == DUE_CLAIM) {
            end_due_claim(model, &model->claims[slot]);
        } else {
            model->names[slot].done = model->names[slot].died = false;
            tidy(model, model->names[slot].name, NOBODY);
        }
    }
}
