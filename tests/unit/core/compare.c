/* compare.c: see compare.h. */
#include "compare.h"

#include "telling.h"
#include "tools.h"

#define WORDS_MAX 240
#define MODEL_RESULT_MAX 32 /* bytes */

/* ---- effects ---------------------------------------------------------------------------------- */

/* Which name or lease it is; it must be the whole text. */
static int which(struct core_text words, char first, struct core_text (*of)(int))
{
    struct core_text whole;

    if (words.size == 0)
        return NOBODY;
    whole = of(words.bytes[0] - first);
    assert_int_equal(whole.size, words.size);
    assert_memory_equal(whole.bytes, words.bytes, words.size);
    return words.bytes[0] - first;
}

void events_note(void *context, const struct core_effect *effect)
{
    struct events *events = context;
    bool about_lock = effect->kind != EFFECT_ANSWER && effect->kind != EFFECT_READ;
    int name = which(effect->name, COMPARE_NAME_0, events->texts->name_of);

    assert_true(events->count < MODEL_EVENTS);
    assert_int_equal(effect->once, about_lock && name >= MODEL_ONCE);
    events->event[events->count++] =
        (struct model_event){.kind = effect->kind,
                             .command = effect->command,
                             .answer = effect->answer,
                             .why = effect->why,
                             .number = effect->number,
                             .ticket = effect->ticket,
                             .attachment = effect->attachment,
                             .name = name,
                             .who = which(effect->lease, COMPARE_LEASE_0, events->texts->lease_of),
                             .result = (int)effect->result.size};
}

static bool same_event(const struct model_event *a, const struct model_event *b)
{
    return a->kind == b->kind && a->command == b->command && a->answer == b->answer &&
           a->why == b->why && a->number == b->number && a->ticket == b->ticket &&
           a->attachment == b->attachment && a->name == b->name && a->who == b->who &&
           a->result == b->result;
}

/* As scripts record it. */
static void event_words(const struct model_event *event, const struct compare_texts *texts,
                        char *ret_words, size_t size)
{
    static const char zs[MODEL_RESULT_MAX] = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    struct core_effect effect = {.kind = event->kind,
                                 .command = event->command,
                                 .answer = event->answer,
                                 .why = event->why,
                                 .number = event->number,
                                 .ticket = event->ticket,
                                 .attachment = event->attachment,
                                 .once = event->name >= MODEL_ONCE,
                                 .result = {zs, (size_t)event->result}};
    FILE *out = fmemopen(ret_words, size, "w");

    assert_non_null(out);
    if (event->name != NOBODY)
        effect.name = texts->name_of(event->name);
    if (event->who != NOBODY)
        effect.lease = texts->lease_of(event->who);
    tell_effect(out, &effect, true);
    fclose(out);
    ret_words[strcspn(ret_words, "\n")] = '\0';
}

bool compare_events(const struct model_event *expected, int count, const struct events *events,
                    char ret_wrong[WRONG_MAX])
{
    char expected_words[WORDS_MAX] = "", words[WORDS_MAX] = "";
    int at = 0;

    while (at < count && at < events->count && same_event(&expected[at], &events->event[at]))
        at++;
    if (at == count && at == events->count)
        return true;
    if (at < count)
        event_words(&expected[at], events->texts, expected_words, sizeof expected_words);
    if (at < events->count)
        event_words(&events->event[at], events->texts, words, sizeof words);
    snprintf(ret_wrong, WRONG_MAX, "effect %d should be%s, and is%s", at + 1,
             at < count ? expected_words + strspn(expected_words, " ") - 1 : " none",
             at < events->count ? words + strspn(words, " ") - 1 : " none");
    return false;
}

/* ---- the table -------------------------------------------------------------------------------- */

/* What core_each_hold and core_each_place show, beside the model's list. */
struct comparison {
    const struct core *table;
    const struct model *model;
    const struct compare_texts *texts;
    const struct model_claim *claims[MODEL_CLAIMS];
    int count, at;
    char *wrong;
};

#define SAME(comparison, condition) \
    ((condition) || (snprintf((comparison)->wrong, WRONG_MAX, "not so: %s", #condition), false))

static bool compare_claim(void *context, const struct core_claim_view *view)
{
    struct comparison *all = context;
    const struct model *model = all->model;
    const struct model_claim *claim = all->claims[all->at];

    return SAME(all, all->at++ < all->count) && SAME(all, claim->state == view->state) &&
           SAME(all, claim->number == view->number) && SAME(all, claim->mode == view->mode) &&
           SAME(all, claim->who == which(view->lease, COMPARE_LEASE_0, all->texts->lease_of)) &&
           SAME(all, claim->name == which(view->name, COMPARE_NAME_0, all->texts->name_of)) &&
           SAME(all, model->now_ms - claim->since_ms == view->age_ms) &&
           SAME(all, (int64_t)claim->delay_ms == view->delay_ms) &&
           SAME(all, view->left_ms == (claim->who == NOBODY ? claim->deadline_ms - model->now_ms
                                                            : model_left_ms(model, claim->who)));
}

/* One list of a name. */
static bool compare_list(struct comparison *all, int name, bool places)
{
    struct core_text text = all->texts->name_of(name);

    all->at = 0;
    all->wrong[0] = '\0';
    all->count = model_list(all->model, name, places, all->claims);
    (places ? core_each_place : core_each_hold)(all->table, text, name >= MODEL_ONCE, compare_claim,
                                                all);
    return !all->wrong[0] && SAME(all, all->at == all->count);
}

static bool compare_name(struct comparison *all, int name, struct core_counts *expected)
{
    struct core_lock_view view;
    bool once = name >= MODEL_ONCE,
         found = core_find(all->table, all->texts->name_of(name), once, &view);
    const struct model_name *record = NULL;
    uint32_t ghosts = 0, holds;

    for (int i = 0; i < MODEL_NAMES; i++)
        if (all->model->names[i].used && all->model->names[i].name == name)
            record = &all->model->names[i];
    if (!SAME(all, found == (record != NULL)))
        return false;
    if (!found)
        return true;
    if (!compare_list(all, name, true) || !SAME(all, view.places == (uint32_t)all->count) ||
        !compare_list(all, name, false))
        return false;
    holds = (uint32_t)all->count;
    for (int i = 0; i < all->count; i++)
        ghosts += all->claims[i]->state == CORE_GHOST;
    expected->locks++;
    expected->records += record->done || record->died;
    expected->holds += view.holds;
    expected->ghosts += ghosts;
    expected->places += view.places;
    return SAME(all, view.ghosts == ghosts && view.holds == holds - ghosts) &&
           SAME(all, view.permits == record->permits) &&
           SAME(all, view.done == record->done && view.died == record->died) &&
           SAME(all, view.once == once) &&
           ((!view.done && !view.died) ||
            (SAME(all, view.result_token == record->result_token) &&
             SAME(all, view.result_left_ms == record->deadline_ms - all->model->now_ms)));
}

struct core_text compare_user(int user)
{
    static const char *const names[] = {"", "ann", "a-user-with-a-longer-name@example.com"};

    return (struct core_text){names[user], strlen(names[user])};
}

static bool compare_usage(struct comparison *all, int user, struct core_counts *expected)
{
    struct core_usage usage = {0}, of_model = model_usage(all->model, user);
    bool found = core_usage(all->table, compare_user(user), &usage);

    expected->users += found;
    return SAME(all, usage.leases == of_model.leases && usage.holds == of_model.holds) &&
           SAME(all, usage.places == of_model.places) &&
           SAME(all, found == (usage.leases + usage.holds + usage.places > 0));
}

bool compare_table(const struct core *table, const struct model *model,
                   const struct compare_texts *texts, char ret_wrong[WRONG_MAX])
{
    struct comparison all = {.table = table, .model = model, .texts = texts, .wrong = ret_wrong};
    struct core_counts expected = {0}, counts;

    for (int name = 0; name < MODEL_NAMES; name++)
        if (!compare_name(&all, name, &expected))
            return false;
    for (int user = 1; user <= MODEL_USERS; user++)
        if (!compare_usage(&all, user, &expected))
            return false;
    for (int i = 0; i < MODEL_LEASES; i++) {
        expected.ended += model->leases[i].used && model->leases[i].ended;
        expected.leases += model->leases[i].used && !model->leases[i].ended;
    }
    core_count(table, &counts);
    return SAME(&all, counts.locks == expected.locks && counts.records == expected.records) &&
           SAME(&all, counts.leases == expected.leases && counts.ended == expected.ended) &&
           SAME(&all, counts.holds == expected.holds && counts.ghosts == expected.ghosts) &&
           SAME(&all, counts.places == expected.places && counts.users == expected.users) &&
           SAME(&all, counts.last_token == model->last_token) &&
           SAME(&all, counts.last_ticket == model->last_ticket) &&
           SAME(&all, core_now(table) == model->now_ms) &&
           SAME(&all, core_next_deadline(table) == model_next_deadline(model));
}
