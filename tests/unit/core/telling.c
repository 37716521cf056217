/* telling.c: the table and its effects in words, as scripts record them. */
#include "telling.h"

#include "tools.h"

/* ---- effects as text -------------------------------------------------------------------------- */

static const char *const modes[] = {
    [HF_EXCLUSIVE] = "exclusive", [HF_SHARED] = "shared", [HF_PERMIT] = "permit"};

/* # is where the number goes. */
static const char *const answers[] = {
    [ANSWER_TOKEN] = "token #",
    [ANSWER_BUSY] = "busy",
    [ANSWER_QUEUED] = "queued, ticket #",
    [ANSWER_DONE] = "done by token #",
    [ANSWER_DIED] = "died, token #",
    [ANSWER_NUMBER] = "#",
    [ANSWER_OTHER_MODE] = "refused: other mode",
    [ANSWER_OTHER_PERMITS] = "refused: in use with # permits",
    [ANSWER_ENDED] = "refused: this lease has ended",
    [ANSWER_LEASES_FULL] = "refused: leases full",
    [ANSWER_LOCKS_FULL] = "refused: locks full",
    [ANSWER_CLAIMS_FULL] = "refused: claims full",
    [ANSWER_QUEUE_FULL] = "refused: queue full",
    [ANSWER_TOKENS_SPENT] = "refused: tokens spent",
    [ANSWER_USERS_FULL] = "refused: users full",
    [ANSWER_OVER_LEASES] = "refused: has # leases",
    [ANSWER_OVER_HOLDS] = "refused: has # holds and places",
    [ANSWER_OVER_PLACES] = "refused: has # places",
    [ANSWER_STALE] = "stale, the newest token is #",
};

static const char *const whys[] = {
    [WHY_GRANTED] = "granted", [WHY_RELEASED] = "released", [WHY_EXPIRED] = "expired",
    [WHY_BROKEN] = "broken",   [WHY_ENDED] = "ended",       [WHY_WAIT_OVER] = "wait over",
    [WHY_LEFT] = "left",       [WHY_FINISHED] = "finished", [WHY_DIED] = "died",
};

static const char *const kinds[] = {[EFFECT_GRANTED] = "granted",
                                    [EFFECT_LEFT] = "left",
                                    [EFFECT_DONE] = "done",
                                    [EFFECT_CHANGED] = "changed"};

static void put_text(FILE *out, struct core_text words)
{
    if (words.size == 0)
        fputc('-', out);
    for (size_t i = 0; i < words.size; i++)
        fprintf(out, words.bytes[i] > ' ' ? "%c" : "\\%02x", (unsigned char)words.bytes[i]);
}

static void put_name(FILE *out, const struct core_effect *effect)
{
    fprintf(out, "%s %s", kinds[effect->kind], effect->once ? "once:" : "");
    put_text(out, effect->name);
    fputs(": ", out);
    put_text(out, effect->lease);
}

/* Every answer and why there is has words, or this fails: nothing comes out unseen. */
static const char *answer_words(const struct core_effect *effect)
{
    assert_true(effect->answer > 0 && effect->answer < COUNT(answers) && answers[effect->answer]);
    return answers[effect->answer];
}

static const char *why_words(const struct core_effect *effect)
{
    assert_true(effect->why > 0 && effect->why < COUNT(whys) && whys[effect->why]);
    return whys[effect->why];
}

static void put_answer(FILE *out, const struct core_effect *effect)
{
    fputs("-> ", out);
    for (const char *at = answer_words(effect); *at; at++) {
        if (*at == '#')
            fprintf(out, "%lld", (long long)effect->number);
        else
            fputc(*at, out);
    }
    if (effect->answer == ANSWER_QUEUED) {
        assert_true(effect->ticket == effect->number);
        fprintf(out, ", attachment %u", effect->attachment);
    }
    if (effect->answer >= ANSWER_OVER_LEASES && effect->answer <= ANSWER_OVER_PLACES)
        fprintf(out, " of %llu", (unsigned long long)effect->limit);
    if (effect->answer == ANSWER_DONE) {
        fputs(": ", out);
        put_text(out, effect->result);
    }
}

static void put_event(FILE *out, const struct core_effect *effect)
{
    long long number = (long long)effect->number, ticket = (long long)effect->ticket;

    put_name(out, effect);
    switch (effect->kind) {
    case EFFECT_GRANTED:
        fprintf(out, " token %lld, ticket %lld", number, ticket);
        break;
    case EFFECT_LEFT:
        fprintf(out, " ticket %lld, %s", ticket, why_words(effect));
        if (number)
            fprintf(out, ", token %lld", number);
        break;
    case EFFECT_DONE:
        fprintf(out, " ticket %lld, token %lld: ", ticket, number);
        put_text(out, effect->result);
        break;
    default:
        fprintf(out, " token %lld %s", number, why_words(effect));
    }
    if (effect->owner.size) {
        fputs(", owner ", out);
        put_text(out, effect->owner);
    }
}

void tell_heading(const struct core_effect *effect, char ret_heading[HEADING_MAX])
{
    if (effect->kind == EFFECT_READ)
        snprintf(ret_heading, HEADING_MAX, "-> read");
    else if (effect->kind == EFFECT_ANSWER)
        snprintf(ret_heading, HEADING_MAX, "-> %s", answer_words(effect));
    else
        snprintf(ret_heading, HEADING_MAX, "%s, %s", kinds[effect->kind], why_words(effect));
}

void tell_effect(FILE *out, const struct core_effect *effect, bool numbered)
{
    fputs("    ", out);
    if (numbered && (effect->kind == EFFECT_ANSWER || effect->kind == EFFECT_READ))
        fprintf(out, "%u ", effect->command);
    if (effect->kind == EFFECT_READ)
        fputs("-> read", out);
    else if (effect->kind == EFFECT_ANSWER)
        put_answer(out, effect);
    else
        put_event(out, effect);
    fputc('\n', out);
}

/* ---- the table -------------------------------------------------------------------------------- */

static bool tell_claim(void *context, const struct core_claim_view *view)
{
    static const char *const states[] = {
        [CORE_PLACE] = "place", [CORE_HOLD] = "hold", [CORE_GHOST] = "ghost"};
    FILE *out = context;

    fprintf(out, "    %s %s ", modes[view->mode], states[view->state]);
    if (view->permits)
        fprintf(out, "of %u ", view->permits);
    put_text(out, view->lease);
    fprintf(out, ", %s %llu, age %lld", view->state == CORE_PLACE ? "ticket" : "token",
            (unsigned long long)view->number, (long long)view->age_ms);
    if (view->left_ms < 0)
        fputs(", kept", out);
    else
        fprintf(out, ", left %lld", (long long)view->left_ms);
    if (view->delay_ms)
        fprintf(out, ", delay %lld", (long long)view->delay_ms);
    if (view->owner.size) {
        fputs(", owner ", out);
        put_text(out, view->owner);
    }
    fputc('\n', out);
    return true;
}

void tell_lock(FILE *out, const struct core *core, struct core_text name, bool once)
{
    struct core_lock_view view;

    if (!core_find(core, name, once, &view)) {
        fputs("    nothing\n", out);
        return;
    }
    core_each_hold(core, name, once, tell_claim, out);
    core_each_place(core, name, once, tell_claim, out);
    if (view.done || view.died) {
        fprintf(out, "    record: %s, token %llu, left %lld: ", view.done ? "done" : "died",
                (unsigned long long)view.result_token, (long long)view.result_left_ms);
        put_text(out, view.result);
        fputc('\n', out);
    }
}

void tell_counts(FILE *out, const struct core *core)
{
    struct core_counts counts;

    core_count(core, &counts);
    fprintf(out,
            "    %u locks (%u with a record), %u leases, %u ended, %u holds, %u places, %u ghosts, "
            "last token %llu, last ticket %llu\n",
            counts.locks, counts.records, counts.leases, counts.ended, counts.holds, counts.places,
            counts.ghosts, (unsigned long long)counts.last_token,
            (unsigned long long)counts.last_ticket);
    if (counts.identified)
        fprintf(out, "    id %s\n", counts.id);
    for (uint64_t id = 1; id <= 2 * CORE_MEMBERS_MAX; id++) {
        struct core_text address = core_member(core, id);

        if (address.size > 0)
            fprintf(out, "    member %llu at %.*s\n", (unsigned long long)id, (int)address.size,
                    address.bytes);
    }
}
