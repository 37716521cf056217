/* waiting.c: who waits for a push, and who observes.
 *
 * The server pushes `granted` or `left` with name and lease when a place in a queue is over, and
 * `changed` with the name to those who observe it. A push wakes whom it concerns and nobody else.
 * It is only a reason to look: the claim asks again, with the same lease, and that answer counts.
 *
 * What became of a once-record is the exception. `done` brings the result, which may be kept no longer
 * than that, and `left` with "died" the token of whoever died, who may have an heir by now: what was
 * pushed is the answer, and nothing is asked.
 *
 * `lost` with name, lease, token and why is for claims that hold: the client hears of it at once, and
 * not with its next renewal. */
#include "base/hash.h"
#include "engines/holdfast/store.h"

#include <string.h>

void waiting_init(struct engine_store *store)
{
    for (int i = 0; i < WAITING_BUCKETS; i++) {
        list_init(&store->waiting[i]);
        list_init(&store->observers[i]);
        list_init(&store->held[i]);
    }
}

static struct list *bucket_of(struct list buckets[], const void *bytes, size_t size)
{
    return &buckets[hash_bytes(bytes, size) % WAITING_BUCKETS];
}

static struct list *place_of(struct engine_store *store, const struct engine_claim *claim)
{
    if (claim->mode == ENGINE_OBSERVE)
        return bucket_of(store->observers, claim->name, strlen(claim->name));
    return bucket_of(store->waiting, claim->lease, strlen(claim->lease));
}

void waiting_add(struct engine_store *store, struct waiting *waiting)
{
    pthread_mutex_lock(&store->mutex);
    if (!waiting->listed) {
        list_append(place_of(store, waiting->claim), &waiting->node);
        waiting->listed = true;
        store->attentive++;
    }
    pthread_mutex_unlock(&store->mutex);
}

static void write_word_and_name(const struct engine_store *store, const char *word,
                                const char *name, struct resp_writer *writer)
{
    resp_write_array(writer, 2);
    resp_write_text(writer, word);
    holdfast_write_name(store, name, writer);
}

/* The last observer of a name goes: so does the server's interest in telling us. */
static void leave_off(struct engine_store *store, const char *name)
{
    struct list *bucket = bucket_of(store->observers, name, strlen(name));
    struct resp_writer writer = {0};

    LIST_EACH(node, bucket)
    {
        if (strcmp(LIST_ENTRY(node, struct waiting, node)->claim->name, name) == 0)
            return;
    }
    write_word_and_name(store, "UNOBSERVE", name, &writer);
    pipeline_tell(store, &writer, 1);
    resp_writer_free(&writer);
}

void waiting_remove(struct engine_store *store, struct waiting *waiting)
{
    pthread_mutex_lock(&store->mutex);
    if (waiting->listed) {
        list_remove(&waiting->node);
        waiting->listed = false;
        store->attentive--;
        if (waiting->claim->mode == ENGINE_OBSERVE)
            leave_off(store, waiting->claim->name);
    }
    pthread_mutex_unlock(&store->mutex);
}

static void nudge(struct engine_store *store, struct list *node)
{
    store->host->nudge(store->host->context, LIST_ENTRY(node, struct waiting, node)->claim);
}

static bool is_text(const struct resp_node *value, const char *text)
{
    return value->size == strlen(text) && memcmp(value->text, text, value->size) == 0;
}

/* ---- those who hold -------------------------------------------------------------------------- */

/* The I/O thread is rung only if it sleeps for good: whoever takes and gives in a hurry is not to pay for it. If it cannot be
 * started, the claim finds out with its next renewal. */
void held_add(struct engine_store *store, struct engine_claim *claim)
{
    struct holdfast_claim *own = claim->private;
    struct error_text ignored;

    if (!list_empty(&own->held))
        return;
    list_append(bucket_of(store->held, claim->lease, strlen(claim->lease)), &own->held);
    store->holding++;
    if (!store->watches) {
        store->watches = true;
        io_thread_want(store, &ignored);
    }
}

void held_remove(struct engine_store *store, const struct engine_claim *claim)
{
    struct holdfast_claim *own = claim->private;

    if (!own)
        return;
    pthread_mutex_lock(&store->mutex);
    if (!list_empty(&own->held)) {
        list_remove(&own->held);
        store->holding--;
    }
    pthread_mutex_unlock(&store->mutex);
}

static const char *loss_in_words(const struct resp_node *why)
{
    if (resp_is(why, "broken"))
        return "broken by an operator";
    return resp_is(why, "expired") ? "its lease has expired" : "its lease was ended";
}

/* [lost name lease token why]. The token says which hold it is, whatever its name. */
static void push_lost(struct engine_store *store, const struct resp_node *value)
{
    const struct resp_node *lease = resp_item(value, 2);
    int64_t token;

    if (!lease || lease->type != RESP_BLOB || !resp_to_int64(resp_item(value, 3), &token))
        return;
    LIST_EACH_SAFE(node, bucket_of(store->held, lease->text, lease->size))
    {
        struct engine_claim *claim = LIST_ENTRY(node, struct holdfast_claim, held)->waiting.claim;

        if (claim->token != (uint64_t)token || !is_text(lease, claim->lease))
            continue;
        list_remove(node);
        store->holding--;
        store->host->lost(store->host->context, claim, loss_in_words(resp_item(value, 4)));
    }
}

/* ---- pushes ---------------------------------------------------------------------------------- */

/* [granted name lease token], [left name lease why], [done key lease token result],
 * [changed name why token owner] */
void waiting_push(struct engine_store *store, const struct resp_node *value)
{
    const struct resp_node *word = resp_item(value, 0), *name = resp_item(value, 1),
                           *lease = resp_item(value, 2);
    bool changed = resp_is(word, "changed");
    const char *short_name;
    size_t short_size;

    if (resp_is(word, "lost")) {
        push_lost(store, value);
        return;
    }
    if (!changed && !resp_is(word, "granted") && !resp_is(word, "left") && !resp_is(word, "done"))
        return;
    if (!name || name->type != RESP_BLOB || !lease || lease->type != RESP_BLOB ||
        name->size < store->prefix_size ||
        memcmp(name->text, store->prefix, store->prefix_size) != 0)
        return;
    short_name = name->text + store->prefix_size;
    short_size = name->size - store->prefix_size;
    LIST_EACH(node, changed ? bucket_of(store->observers, short_name, short_size)
                            : bucket_of(store->waiting, lease->text, lease->size))
    {
        struct waiting *waiting = LIST_ENTRY(node, struct waiting, node);
        const struct engine_claim *claim = waiting->claim;

        if (strlen(claim->name) != short_size || memcmp(claim->name, short_name, short_size) != 0 ||
            !(changed || is_text(lease, claim->lease)))
            continue;
        if (claim->once)
            holdfast_once_note_push(waiting, value);
        nudge(store, node);
    }
}

void waiting_begin_again(struct engine_store *store)
{
    struct resp_writer writer = {0};
    int count = 0;

    for (int i = 0; i < WAITING_BUCKETS; i++) {
        LIST_EACH(node, &store->observers[i])
        {
            const struct waiting *waiting = LIST_ENTRY(node, struct waiting, node);

            write_word_and_name(store, "OBSERVE", waiting->claim->name, &writer);
            count++;
        }
    }
    if (count > 0)
        pipeline_tell(store, &writer, count);
    resp_writer_free(&writer);
    /* Nudged after that, so that what they ask now is answered after the observing began. */
    for (int i = 0; i < WAITING_BUCKETS; i++) {
        LIST_EACH(node, &store->waiting[i])
        {
            if (atomic_load(&LIST_ENTRY(node, struct waiting, node)->idle))
                nudge(store, node);
        }
        LIST_EACH(node, &store->observers[i])
        {
            nudge(store, node);
        }
    }
}
