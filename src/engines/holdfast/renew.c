/* renew.c: keeping what is held, and places in queues.
 *
 * An answer that comes late still counts. The client's renewer waits for a part of a TTL only, because others have to be renewed,
 * too; what it leaves stays pending, with a `late` in its place, which notes what the answer says of each claim. The next renewal
 * of that claim asks again, and does not wait for that answer if it finds one noted, or as soon as it is.
 *
 *     asked ──(answered in time)──▶ what is left, from when it was asked
 *       └──(given up)──▶ late ──(answered)──▶ noted ──(the next renewal)──▶ what is left of that by then
 *                          └──(connection lost; the claim asks for a hold, or is disposed of)──▶ nothing
 *
 * A lease lasts from when the question was sent that was answered, never from when its answer came: what is left is told as less by
 * all the time since before it was sent.
 *
 * Who waits long does not keep something up, but wants to know (hf_renew): that takes the answer to this very question. */
#include "base/clock.h"
#include "engines/holdfast/store.h"

#include <stdlib.h>

#define ADOPTED_MAX 1024 /* in one question */
#define KNOW_MS 4500     /* who waits longer wants to know; the renewer never does */
#define LATE_MAX 64      /* questions without an asker, of which the answers are noted */

/* What is made of the answers, by whoever asks or by a `late`. */
struct answers {
    bool adopted; /* two answers for each claim, else one for all of them */
    int count;    /* claims */
    int pair;     /* whose first answer is the last that came, and what it says */
    int64_t pair_left_ms;
    void (*take)(struct answers *answers, int which, int64_t left_ms);
};

struct renewing {
    struct answers answers;
    struct engine_store *store;
    struct engine_claim *const *claims;
    int64_t *left_ms;
    int64_t since_ms; /* before any of it was sent */
    bool to_know;
    uint16_t at[HOLDFAST_RENEW_MAX]; /* which of them are asked for */
};

struct late_part {
    struct list node;           /* of the claim's */
    struct engine_claim *claim; /* NULL: of no use any more */
};

/* Lives from when its asker gives up until its answers are there, or will not come. The mutex's. */
struct late {
    struct call call;
    struct answers answers;
    struct engine_store *store;
    int64_t since_ms;
    struct late_part parts[];
};

/* ---- answers --------------------------------------------------------------------------------- */

/* With the mutex held. The lease of a once-record may be gone because what it waited for is there: it is not to begin again,
 * but to take what was pushed. */
static int64_t unless_told(const struct engine_claim *claim, int64_t left_ms)
{
    const struct holdfast_claim *own = claim->private;

    return left_ms == ENGINE_GONE && claim->once && own && own->waiting.told ? claim->ttl_ms
                                                                             : left_ms;
}

static int64_t read_left(const struct resp_node *value)
{
    int64_t left_ms;

    if (!resp_to_int64(value, &left_ms))
        return ENGINE_NOT_KNOWN;
    return left_ms >= 0 ? left_ms : ENGINE_GONE;
}

/* [left], then whether that token is alive. */
static void read_pair(struct answers *answers, int index, const struct resp_node *value)
{
    int64_t alive;

    if (index % 2 == 0) {
        answers->pair = index / 2;
        answers->pair_left_ms = read_left(resp_item(value, 0));
        return;
    }
    if (answers->pair != index / 2 || answers->pair_left_ms == ENGINE_NOT_KNOWN ||
        !resp_to_int64(value, &alive))
        return; /* one of both was an error */
    answers->take(answers, index / 2, alive == 1 ? answers->pair_left_ms : ENGINE_GONE);
}

static void read_answer(struct answers *answers, int index, const struct resp_node *value)
{
    if (answers->adopted) {
        read_pair(answers, index, value);
        return;
    }
    for (int i = 0; i < answers->count; i++)
        answers->take(answers, i, read_left(resp_item(value, (uint32_t)i)));
}

static void take_answer(struct answers *answers, int which, int64_t left_ms)
{
    struct renewing *renewing = LIST_ENTRY(answers, struct renewing, answers);
    int at = renewing->at[which];

    renewing->left_ms[at] = unless_told(renewing->claims[at], left_ms);
}

static void read_renew(void *context, int index, const struct resp_node *value)
{
    struct renewing *renewing = context;

    read_answer(&renewing->answers, index, value);
}

/* ---- late ones ------------------------------------------------------------------------------- */

/* They come in the order of the questions, so what comes last is newest. */
static void note_late(struct answers *answers, int which, int64_t left_ms)
{
    struct late *late = LIST_ENTRY(answers, struct late, answers);
    struct engine_claim *claim = late->parts[which].claim;
    struct holdfast_claim *own;

    if (!claim || left_ms == ENGINE_NOT_KNOWN)
        return;
    own = claim->private;
    left_ms = unless_told(claim, left_ms);
    own->late.gone = left_ms == ENGINE_GONE;
    own->late.until_ms = own->late.gone ? 0 : clock_after(late->since_ms, left_ms);
}

static void read_late(void *context, int index, const struct resp_node *value)
{
    struct late *late = context;

    read_answer(&late->answers, index, value);
}

static void late_over(struct call *call)
{
    struct late *late = LIST_ENTRY(call, struct late, call);

    for (int i = 0; i < late->answers.count; i++)
        list_remove(&late->parts[i].node);
    late->store->late_count--;
    free(late);
}

/* NULL: no memory, or there are enough of them. Then the answers are dropped. */
static struct call *leave_late(struct call *left)
{
    const struct renewing *renewing = left->context;
    struct engine_store *store = renewing->store;
    size_t size = (size_t)renewing->answers.count * sizeof(struct late_part);
    struct late *late;

    if (store->late_count >= LATE_MAX || !(late = malloc(sizeof *late + size)))
        return NULL;
    *late = (struct late){.call = {.context = late, .on_reply = read_late, .over = late_over},
                          .answers = renewing->answers,
                          .store = store,
                          .since_ms = renewing->since_ms};
    late->answers.take = note_late;
    for (int i = 0; i < late->answers.count; i++) {
        struct engine_claim *claim = renewing->claims[renewing->at[i]];
        struct holdfast_claim *own = claim->private;

        own->late.made = true;
        late->parts[i].claim = claim;
        list_append(&own->late.parts, &late->parts[i].node);
    }
    store->late_count++;
    return &late->call;
}

void late_init(struct holdfast_claim *own)
{
    list_init(&own->late.parts);
}

void late_forget(struct engine_store *store, struct holdfast_claim *own)
{
    if (!own->late.made)
        return;
    pthread_mutex_lock(&store->mutex);
    LIST_EACH_SAFE(node, &own->late.parts)
    {
        LIST_ENTRY(node, struct late_part, node)->claim = NULL;
        list_remove(node);
    }
    own->late.until_ms = 0;
    own->late.gone = own->late.made = false;
    pthread_mutex_unlock(&store->mutex);
}

/* What an earlier question was answered, too late for whoever asked it. */
static int64_t take_late(struct holdfast_claim *own, int64_t since_ms)
{
    int64_t left_ms = ENGINE_NOT_KNOWN;

    if (own->late.gone)
        left_ms = ENGINE_GONE;
    else if (own->late.until_ms > since_ms)
        left_ms = own->late.until_ms - since_ms;
    own->late.until_ms = 0;
    own->late.gone = false;
    return left_ms;
}

/* Something was noted of all of them. */
static bool knows_enough(const struct call *call)
{
    const struct renewing *renewing = call->context;

    for (int i = 0; i < renewing->answers.count; i++) {
        const struct holdfast_claim *own = renewing->claims[renewing->at[i]]->private;

        if (!own->late.gone && own->late.until_ms <= renewing->since_ms)
            return false;
    }
    return true;
}

/* A claim that was answered in time needs nothing older. True: of all of them something is known. */
static bool take_all_late(const struct renewing *renewing)
{
    bool all = true;

    pthread_mutex_lock(&renewing->store->mutex);
    for (int i = 0; i < renewing->answers.count; i++) {
        int64_t *left_ms = &renewing->left_ms[renewing->at[i]], late_ms;

        if (*left_ms == ENGINE_NOT_KNOWN && renewing->to_know) {
            all = false;
            continue;
        }
        late_ms = take_late(renewing->claims[renewing->at[i]]->private, renewing->since_ms);
        if (*left_ms == ENGINE_NOT_KNOWN)
            *left_ms = late_ms;
        all = all && *left_ms != ENGINE_NOT_KNOWN;
    }
    pthread_mutex_unlock(&renewing->store->mutex);
    return all;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* An adopted lease may have had another TTL, and whoever adopts may have another token: a lease that
 * lives proves nothing about that. */
static void write_adopted(const struct engine_store *store, const struct engine_claim *claim,
                          struct resp_writer *writer)
{
    resp_write_array(writer, 4);
    resp_write_text(writer, "RENEW");
    resp_write_text(writer, claim->lease);
    resp_write_text(writer, "TTL");
    resp_write_number(writer, claim->ttl_ms);
    resp_write_array(writer, 3);
    resp_write_text(writer, "CHECK");
    holdfast_write_name(store, claim->name, writer);
    resp_write_number(writer, (int64_t)claim->token);
}

static int ask(struct renewing *renewing, int64_t deadline_ms, struct error_text *err)
{
    const struct answers *answers = &renewing->answers;
    struct call call = {.replies = answers->adopted ? 2 * answers->count : 1,
                        .repeatable = true,
                        .context = renewing,
                        .on_reply = read_renew,
                        .leave = leave_late,
                        .enough = renewing->to_know ? NULL : knows_enough};
    struct resp_writer writer = {0};
    int result;

    if (!answers->adopted) {
        resp_write_array(&writer, 1 + (size_t)answers->count);
        resp_write_text(&writer, "RENEW");
    }
    for (int i = 0; i < answers->count; i++) {
        const struct engine_claim *claim = renewing->claims[renewing->at[i]];

        if (answers->adopted)
            write_adopted(renewing->store, claim, &writer);
        else
            resp_write_text(&writer, claim->lease);
    }
    result = pipeline_ask_written(renewing->store, &call, &writer, deadline_ms, err);
    if (take_all_late(renewing))
        return HF_OK;
    if (result == HF_OK && answers->adopted)
        return error_set(err, HF_EINTERNAL, "an invalid answer to RENEW");
    return result;
}

/* Those of which we have drawn the lease ourselves are asked for in one command, adopted ones in two each. A claim that
 * there is no memory for is not asked for. */
static int renew_kind(struct renewing *renewing, int count, bool adopted, int64_t deadline_ms,
                      struct error_text *err)
{
    int most = adopted ? ADOPTED_MAX : HOLDFAST_RENEW_MAX, result = HF_OK;

    for (int i = 0; i < count;) {
        int asked;

        renewing->answers = (struct answers){.adopted = adopted, .pair = -1, .take = take_answer};
        for (; i < count && renewing->answers.count < most; i++) {
            const struct holdfast_claim *own = holdfast_private_of(renewing->claims[i]);

            if (own && own->drawn != adopted)
                renewing->at[renewing->answers.count++] = (uint16_t)i;
            else if (!own)
                result = error_set(err, HF_ENOMEM, "out of memory");
        }
        if (renewing->answers.count == 0)
            break;
        asked = ask(renewing, deadline_ms, err);
        result = result == HF_OK ? asked : result;
    }
    return result;
}

int holdfast_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct renewing renewing; /* not all of it is set: it is large, and mostly one is renewed */
    int result = HF_OK;

    renewing.store = store;
    renewing.since_ms = clock_boot_ms();
    renewing.to_know = deadline_ms - renewing.since_ms > KNOW_MS;
    for (int done = 0; done < count; done += HOLDFAST_RENEW_MAX) {
        int some = count - done < HOLDFAST_RENEW_MAX ? count - done : HOLDFAST_RENEW_MAX;
        int drawn, adopted;

        renewing.claims = claims + done;
        renewing.left_ms = ret_left_ms + done;
        drawn = renew_kind(&renewing, some, false, deadline_ms, err);
        adopted = renew_kind(&renewing, some, true, deadline_ms, err);
        if (result == HF_OK)
            result = drawn != HF_OK ? drawn : adopted;
    }
    return result;
}
