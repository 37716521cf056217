/* discovery.c: finding the server that leads.
 *
 * A probe is a connection that is tried. The first one that finds itself at the leader becomes the
 * connection of the handle, and the others are called back.
 *
 *     IDLE ──▶ CONNECTING ──(handshake done, it leads, and is of our cluster: clusters.c)──▶ found
 *       ▲           │ └─────(it does not lead)──▶ ASKING who does ──▶ RESTING until the next round, and asks again
 *       │           │                               └─(MOVED)──▶ the next probe goes there
 *       └─ FAILED ◀─┴───────(refused, gone, silent for too long)
 *     next round
 *
 * In a round one goes to where we were sent, if we were, and one to each server of the URL, in turn:
 * the next as soon as the one before has come to nothing, and at the latest after STAGGER_MS, so that a
 * server that is away, or takes connections and says nothing, costs no more than that. Then comes a
 * pause of up to an eighth of the time that the search has lasted, at random: those who lost the same
 * server do not come to the next one all at once.
 *
 * Doubt. A server that owes an answer for some time may be stopped, or cut off from the others, or only
 * slow. Its connection is not given up for that: the others are asked. When one of them leads by now, it
 * is left; while they say that it leads, or that nobody does, it is waited for. */
#include "base/clock.h"
#include "base/random.h"
#include "engines/holdfast/store.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define STAGGER_MS 50
#define HANDSHAKE_MS 500 /* within that a server that is there says whether it lets us in */
#define TROUBLE_MS 1000  /* a search that lasts longer is an outage: elections are over by then */
#define PAUSE_PART 8     /* of the time that the search has lasted */
#define PAUSE_MS_MIN 10
#define PAUSE_MS_MAX 1000

/* A question that only the leader answers. What it checks does not matter. */
static const char who_leads[] = "*3\r\n$5\r\nCHECK\r\n$2\r\nid\r\n$1\r\n1\r\n";

static struct probe *probe_of(struct list *node)
{
    return LIST_ENTRY(node, struct probe, node);
}

/* By the I/O thread: only it makes links. There is always a slot: one for each probe, and one for the one that was found. */
static void know_link(struct probe *probe, struct link *link)
{
    struct link *_Atomic *links = probe->store->links;

    probe->slot = 0;
    while (atomic_load(&links[probe->slot])) {
        probe->slot++;
        INVARIANT(probe->slot <= HOLDFAST_PROBES_MAX);
    }
    atomic_store(&links[probe->slot], link);
    probe->link = link;
}

/* Forgotten before it is closed: a child that is forked in between must not touch it. */
static void drop_link(struct probe *probe)
{
    struct link *link = probe->link;

    if (!link)
        return;
    probe->link = NULL;
    probe->mute = false;
    atomic_store(&probe->store->links[probe->slot], NULL);
    link_close(link);
}

void probe_free(struct probe *probe)
{
    if (!probe)
        return;
    list_remove(&probe->node);
    drop_link(probe);
    free(probe);
}

/* What tells most is kept, whoever speaks later; but of one server, what it said last. */
static void note_why(struct engine_store *store, const struct address *at,
                     const struct error_text *why, enum said said)
{
    bool same =
        said != SAID_NOTHING && store->said != SAID_NOTHING && address_same(at, &store->said_at);

    if (said < store->said && !same)
        return;
    store->why_down = *why;
    store->said_at = *at;
    store->said = said;
}

/* ---- one probe ------------------------------------------------------------------------------- */

static void probe_failed(struct engine_store *store, struct probe *probe, int result,
                         const struct error_text *why)
{
    drop_link(probe);
    probe->leads = false;
    probe->cluster[0] = '\0';
    probe->state = PROBE_FAILED;
    store->next_ms = clock_boot_ms();
    probe->refused = result != HF_EUNREACH;
    note_why(store, &probe->at, why, probe->refused ? SAID_NO_LEADER : SAID_NOTHING);
    if (probe->refused) {
        store->refusal = result;
        store->refusal_why = *why;
    }
}

/* What is known of a server's addresses outlives the search. */
static struct turns *find_turns(struct engine_store *store, struct probe *probe)
{
    for (int i = 0; i < store->server_count; i++)
        if (address_same(&probe->at, &store->servers[i]))
            return &store->turns[i];
    return &probe->own_turns;
}

/* NULL: there is none for this address, and no room or memory for one. */
static struct probe *find_or_make(struct engine_store *store, const struct address *to)
{
    struct probe *probe;
    int count = 0;

    LIST_EACH(node, &store->probes)
    {
        if (address_same(to, &probe_of(node)->at))
            return probe_of(node);
        count++;
    }
    probe = count < HOLDFAST_PROBES_MAX ? calloc(1, sizeof *probe) : NULL;
    if (!probe)
        return NULL;
    probe->store = store;
    probe->at = *to;
    probe->turns = find_turns(store, probe);
    holdfast_handshake(probe);
    list_append(&store->probes, &probe->node);
    return probe;
}

/* Unless we are there, or one is, or was in this round. */
static void probe_start(struct engine_store *store, const struct address *to)
{
    struct error_text err;
    struct probe *probe;
    struct link *link;
    int result;

    if (store->link && address_same(to, store->at))
        return;
    probe = find_or_make(store, to);
    if (!probe || probe->state != PROBE_IDLE)
        return;
    probe->state = PROBE_CONNECTING;
    probe->leader.shown[0] = '\0';
    pthread_mutex_unlock(&store->mutex); /* a name may have to be looked up */
    result = link_new(&probe->handshake, &link, &err);
    if (result == HF_OK) {
        know_link(probe, link); /* before it has a descriptor, which the child of a fork closes */
        result = link_dial(link, &probe->at, &store->access, probe->turns, &err);
    }
    pthread_mutex_lock(&store->mutex);
    probe->since_ms = clock_boot_ms();
    store->next_ms = clock_after(probe->since_ms, STAGGER_MS);
    if (result != HF_OK)
        probe_failed(store, probe, result, &err);
}

static int ask(struct probe *probe, struct error_text *err)
{
    probe->state = PROBE_ASKING;
    probe->refused = false;
    probe->leads =
        false; /* whoever takes it before it has answered would take that for the answer to something else */
    probe->since_ms = clock_boot_ms();
    return link_send(probe->link, who_leads, sizeof who_leads - 1, err);
}

static bool on_answer(void *context, const struct resp_node *value)
{
    struct probe *probe = context;
    enum said said = SAID_NO_LEADER;
    struct error_text words;

    if (value->type == RESP_PUSH)
        return true;
    probe->store->host->reached(probe->store->host->context);
    probe->state = PROBE_RESTING;
    probe->leads = value->type != RESP_ERROR;
    probe->store->next_ms = clock_boot_ms();
    if (!probe->leads) {
        reply_error(&probe->at, value, &words);
        said = reply_tells(value);
        reply_is_elsewhere(value, &probe->told);
        if (cluster_is_none(probe)) /* founded since: it is greeted again before it is believed */
            probe->told.shown[0] = '\0';
        probe->leader = probe->told;
    }
    if (cluster_is_strange(probe)) {
        cluster_stranger_words(probe, &words);
        said = SAID_STRANGE;
    }
    if (!probe->leads || cluster_is_strange(probe))
        note_why(probe->store, &probe->at, &words, said);
    return !probe->leads; /* what comes behind it is for whoever has the connection then */
}

static int64_t due_ms(const struct probe *probe)
{
    bool due = probe->state == PROBE_CONNECTING || probe->state == PROBE_ASKING;

    return due ? clock_after(probe->since_ms, probe->store->timeout_ms) : CLOCK_NEVER;
}

/* A node hangs up on a client at its port for peers; so do others who do not know what we speak. */
static void hint_at_port(const struct probe *probe, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (probe->link->state == LINK_HANDSHAKE && strstr(err->text, "closed the connection"))
        snprintf(err->text + size, sizeof err->text - size,
                 " at our first word: is this its port for clients (7420), and not the one for "
                 "peers?");
}

/* Not of what it refuses in our protocol: those words name it. */
static void name_server(const struct probe *probe, struct error_text *err)
{
    char words[ERROR_TEXT_MAX];

    if (strstr(err->text, probe->at.shown))
        return;
    snprintf(words, sizeof words, "%s", err->text);
    error_write(err, "%s is no holdfastd: %.400s", probe->at.shown, words);
}

/* It leads, as far as it knows, in the cluster that is ours. */
static bool may_be_taken(const struct probe *probe)
{
    return probe->leads && cluster_may_serve(probe);
}

static int probe_read(struct probe *probe, struct error_text *err)
{
    int result = link_pump(probe->link, on_answer, probe, err);

    probe->mute = probe->link->state == LINK_HANDSHAKE && probe->link->greeted == 0;
    if (result == HF_EUNREACH)
        hint_at_port(probe, err);
    else if (result != HF_OK && result != HF_ENOMEM && probe->link->state == LINK_HANDSHAKE)
        name_server(probe, err);
    if (result == HF_OK && probe->state == PROBE_CONNECTING && probe->link->state == LINK_READY &&
        !may_be_taken(probe))
        result = ask(probe, err);
    if (result == HF_OK && !may_be_taken(probe) && clock_boot_ms() >= due_ms(probe))
        result = error_set(err, HF_EUNREACH, "%s: it does not answer", probe->at.shown);
    return result;
}

/* ---- found ----------------------------------------------------------------------------------- */

/* Is there a question that any server answers? */
static bool anyone_will_do(const struct engine_store *store)
{
    if (store->link)
        return false;
    LIST_EACH(node, &store->unsent)
    {
        if (LIST_ENTRY(node, struct call, node)->anyone)
            return true;
    }
    return false;
}

static void found(struct engine_store *store, struct probe *probe)
{
    struct error_text why;

    if (store->link) {
        error_write(&why, "%s did not answer, and %s leads now", store->at->shown, probe->at.shown);
        pipeline_drop(store, &why);
    }
    list_remove(&probe->node);
    store->found = probe;
    store->at = &probe->at;
    store->has_others = store->server_count > 1 || !address_same(store->at, &store->servers[0]);
    store->heard_ms = clock_boot_ms();
    atomic_store(&store->link, probe->link);
    if (probe->leads) {
        store->served = true;
        for (int i = 0; i < store->server_count; i++)
            turns_shorten(&store->turns[i]);
        cluster_serves(store, probe);
        holdfast_ask_name(store);
    }
    waiting_begin_again(store);
    pipeline_send_all(store);
}

/* Until one is at the leader. */
static void read_probes(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->probes)
    {
        struct probe *probe = probe_of(node);
        struct error_text err;
        struct address told;
        int result;

        if (!probe->link)
            continue;
        result = probe_read(probe, &err);
        if (result != HF_OK) {
            probe_failed(store, probe, result, &err);
        } else if (may_be_taken(probe) && store->link &&
                   stream_same_peer(store->link->stream, probe->link->stream)) {
            /* The server in doubt, under another name. It leads, so its answer is waited for. */
            error_write(&err, "%s: it does not answer", probe->at.shown);
            probe_failed(store, probe, HF_EUNREACH, &err);
        } else if (may_be_taken(probe)) {
            found(store, probe);
            return;
        } else if (probe->state == PROBE_RESTING && anyone_will_do(store) &&
                   !cluster_is_strange(probe)) {
            probe->leads = false; /* perhaps it does, a cluster that nobody has looked at */
            found(store, probe);
            return;
        } else if (probe->told.shown[0]) {
            told = probe->told;
            probe->told.shown[0] = '\0';
            probe_start(store, &told);
        }
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int64_t after_a_pause(const struct engine_store *store, int64_t now_ms)
{
    int64_t span_ms = store->seeking_ms ? (now_ms - store->seeking_ms) / PAUSE_PART : 0;

    if (span_ms < PAUSE_MS_MIN)
        span_ms = PAUSE_MS_MIN;
    if (span_ms > PAUSE_MS_MAX)
        span_ms = PAUSE_MS_MAX;
    return now_ms + 1 + (int64_t)random_below((uint64_t)span_ms);
}

/* It belonged to no cluster when it was greeted, and by now may lead one of which we know nothing. */
static void handshake_again(struct probe *probe)
{
    drop_link(probe);
    probe->leads = false;
    probe->state = PROBE_IDLE;
}

static bool has_refused(const struct engine_store *store, const struct address *at)
{
    LIST_EACH(node, &store->probes)
    {
        if (probe_of(node)->refused && address_same(at, &probe_of(node)->at))
            return true;
    }
    return false;
}

/* A server refuses us, such as one where a new password is not valid yet. If another has let us in, it is the leader's word that
 * counts; and while there is none, or it cannot be reached, there may be one soon that lets us in. Where we were served before, that
 * may be any that does not answer now: an outage, to be sat out. Who is at the door for the first time is to hear it at once. */
static bool is_last_word(const struct engine_store *store)
{
    bool let_in = false, silent = false;

    LIST_EACH(node, &store->probes)
    {
        const struct probe *probe = probe_of(node);

        if (probe->state == PROBE_ASKING || probe->state == PROBE_RESTING) {
            let_in = true;
            /* Whoever was served may be told of a leader that is none any more. */
            if (!store->served && probe->leader.shown[0] && !cluster_is_strange(probe) &&
                has_refused(store, &probe->leader))
                return true;
        } else if (probe->state == PROBE_CONNECTING) {
            /* One that has refused us just now will do so again. */
            silent = silent || store->served ||
                     (!probe->refused && clock_boot_ms() - probe->since_ms < HANDSHAKE_MS);
        } else if (!probe->refused) {
            silent = silent || store->served;
        }
    }
    return !let_in && !silent;
}

/* Who asks again has it tried again. */
static void tell_refusal(struct engine_store *store)
{
    if (store->refusal == HF_OK || store->link || !is_last_word(store))
        return;
    pipeline_refuse_all(store, store->refusal, &store->refusal_why);
    store->refusal = HF_OK;
}

static void begin_round(struct engine_store *store)
{
    struct address moved = store->moved;
    struct error_text err;

    tell_refusal(store); /* a server may take longer to compare a password than a round lasts */
    LIST_EACH(node, &store->probes)
    {
        struct probe *probe = probe_of(node);

        if (probe->state == PROBE_RESTING && cluster_is_none(probe))
            handshake_again(probe);
        else if (probe->state == PROBE_FAILED)
            probe->state = PROBE_IDLE;
        else if (probe->state == PROBE_RESTING && ask(probe, &err) != HF_OK)
            probe_failed(store, probe, HF_EUNREACH, &err);
    }
    store->to_try = store->server_count;
    store->next_ms = clock_boot_ms();
    store->round_ms = CLOCK_NEVER;
    store->refusal = HF_OK;
    store->moved.shown[0] = '\0';
    if (moved.shown[0])
        probe_start(store, &moved);
}

/* For those who wait. */
static void tell_trouble(const struct engine_store *store, int64_t now_ms)
{
    const char *why = store->why_down.text;

    if (!store->link && store->seeking_ms && now_ms - store->seeking_ms >= TROUBLE_MS)
        store->host->trouble(store->host->context, why[0] ? why : "no server answers");
}

static void end_round(struct engine_store *store)
{
    int64_t now_ms = clock_boot_ms();

    store->round_ms = after_a_pause(store, now_ms);
    tell_trouble(store, now_ms);
    tell_refusal(store);
}

/* All that is to be done now. */
static void do_round(struct engine_store *store)
{
    if (clock_boot_ms() >= store->round_ms)
        begin_round(store);
    while (store->to_try > 0 && clock_boot_ms() >= store->next_ms && !store->stop) {
        const struct address *next = &store->servers[store->next_server];

        store->next_server = (store->next_server + 1) % store->server_count;
        store->to_try--;
        probe_start(store, next);
    }
    if (store->round_ms == CLOCK_NEVER && store->to_try == 0 && clock_boot_ms() >= store->next_ms)
        end_round(store);
}

static int64_t next_look_ms(const struct engine_store *store)
{
    int64_t next_ms = store->round_ms == CLOCK_NEVER ? store->next_ms : store->round_ms;
    int64_t silent_ms = pipeline_silent_until(store);

    if (silent_ms < next_ms)
        next_ms = silent_ms;
    LIST_EACH(node, &store->probes)
    {
        const struct probe *probe = probe_of(node);

        if (due_ms(probe) < next_ms)
            next_ms = due_ms(probe);
        if (probe->link && link_look_ms(probe->link) < next_ms)
            next_ms = link_look_ms(probe->link);
    }
    return next_ms;
}

static void poll_all(struct engine_store *store)
{
    struct pollfd fds[2 + HOLDFAST_PROBES_MAX] = {{.fd = store->poke_fd, .events = POLLIN}};
    const struct link *link = store->link;
    int64_t left_ms = next_look_ms(store) - clock_boot_ms();
    eventfd_t ignored;
    nfds_t count = 1;

    if (link)
        fds[count++] = (struct pollfd){.fd = stream_fd(link->stream), .events = link_events(link)};
    LIST_EACH(node, &store->probes)
    {
        link = probe_of(node)->link;
        if (link)
            fds[count++] =
                (struct pollfd){.fd = stream_fd(link->stream), .events = link_events(link)};
    }
    pthread_mutex_unlock(&store->mutex);
    poll(fds, count, left_ms > 0 ? (int)left_ms : 0); /* all of these times are within seconds */
    if (fds[0].revents)
        eventfd_read(store->poke_fd, &ignored);
    pthread_mutex_lock(&store->mutex);
}

/* ---- the search ------------------------------------------------------------------------------ */

bool discovery_wanted(const struct engine_store *store)
{
    if (store->link)
        return store->doubt;
    return store->attentive > 0 || !list_empty(&store->unsent);
}

void discovery_step(struct engine_store *store)
{
    store->reading = true;
    if (store->seeking_ms == 0)
        store->seeking_ms = clock_boot_ms();
    do_round(store);
    if (discovery_wanted(store) && !store->stop) {
        poll_all(store);
        pipeline_pump(store);
        if (discovery_wanted(store))
            read_probes(store);
    }
    store->reading = false;
    pipeline_hand_on(store);
}

void discovery_stop(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->probes)
    {
        probe_free(probe_of(node));
    }
    if (store->link)
        return;
    store->seeking_ms = store->round_ms =
        0; /* nobody wants anything: the next one begins at once */
    store->losses = 0;
}

void discovery_lost(struct engine_store *store, const struct address *at,
                    const struct error_text *why, enum said said)
{
    int64_t now_ms = clock_boot_ms();

    note_why(store, at, why, said);
    store->to_try = 0;
    store->round_ms = store->losses++ == 0 ? now_ms : after_a_pause(store, now_ms);
}

void discovery_served(struct engine_store *store)
{
    store->seeking_ms = 0;
    store->losses = 0;
    store->said = SAID_NOTHING;
}
