/* scouts.c: finding the server that leads.
 *
 * A scout is a connection that is tried. The first one that finds itself at the leader becomes the
 * connection of the handle, and the others are called back.
 *
 *     HOME ──▶ CALLS ──(greeted, it leads, and is of our cluster: clusters.c)──▶ found
 *       ▲        │ └───(it does not lead)──▶ ASKS who does ──▶ RESTS until the next round, and asks again
 *       │        │                             └─(MOVED)──▶ the next scout goes there
 *       └─ BACK ◀┴─────(refused, gone, silent for too long)
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
#define GREETING_MS 500 /* within that a server that is there says whether it lets us in */
#define TROUBLE_MS 1000 /* a search that lasts longer is an outage: elections are over by then */
#define PAUSE_PART 8    /* of the time that the search has lasted */
#define PAUSE_MS_MIN 10
#define PAUSE_MS_MAX 1000
#define SCOUTS_MAX (2 * HOLDFAST_SERVERS_MAX)

/* A question that only the leader answers. What it checks does not matter. */
static const char who_leads[] = "*3\r\n$5\r\nCHECK\r\n$2\r\nid\r\n$1\r\n1\r\n";

static struct scout *scout_of(struct list *node)
{
    return LIST_ENTRY(node, struct scout, node);
}

void scout_free(struct scout *scout)
{
    if (!scout)
        return;
    list_remove(&scout->node);
    link_close(scout->link);
    free(scout);
}

/* What a server said is kept, and not overwritten by "connection refused" from another one. */
static void note_why(struct engine_store *store, const struct error_text *why, bool said)
{
    if (said || !store->said)
        store->why_down = *why;
    store->said = store->said || said;
}

/* ---- one scout ------------------------------------------------------------------------------- */

static void come_back(struct engine_store *store, struct scout *scout, int result,
                      const struct error_text *why)
{
    link_close(scout->link);
    scout->link = NULL;
    scout->leads = false;
    scout->cluster[0] = '\0';
    scout->state = SCOUT_BACK;
    store->next_ms = clock_boot_ms();
    scout->refused = result != HF_EUNREACH;
    note_why(store, why, scout->refused);
    if (scout->refused) {
        store->refusal = result;
        store->refusal_why = *why;
    }
}

/* NULL: there is none for this address, and no room or memory for one. */
static struct scout *find_or_make(struct engine_store *store, const struct address *to)
{
    struct scout *scout;
    int count = 0;

    LIST_EACH(node, &store->scouts)
    {
        if (address_same(to, &scout_of(node)->at))
            return scout_of(node);
        count++;
    }
    scout = count < SCOUTS_MAX ? calloc(1, sizeof *scout) : NULL;
    if (!scout)
        return NULL;
    scout->store = store;
    scout->at = *to;
    holdfast_greet(scout);
    list_append(&store->scouts, &scout->node);
    return scout;
}

/* Unless we are there, or one is, or was in this round. */
static void send_out(struct engine_store *store, const struct address *to)
{
    struct error_text err;
    struct scout *scout;
    int result;

    if (store->link && address_same(to, store->at))
        return;
    scout = find_or_make(store, to);
    if (!scout || scout->state != SCOUT_HOME)
        return;
    scout->state = SCOUT_CALLS;
    scout->leader.shown[0] = '\0';
    scout->refused = false;
    pthread_mutex_unlock(&store->mutex); /* a name may have to be looked up */
    result = link_open(&scout->at, &store->access, &scout->greeting, &scout->link, &err);
    pthread_mutex_lock(&store->mutex);
    scout->since_ms = clock_boot_ms();
    store->next_ms = clock_after(scout->since_ms, STAGGER_MS);
    if (result != HF_OK)
        come_back(store, scout, result, &err);
}

static int ask(struct scout *scout, struct error_text *err)
{
    scout->state = SCOUT_ASKS;
    scout->leads =
        false; /* whoever takes it before it has answered would take that for the answer to something else */
    scout->since_ms = clock_boot_ms();
    return link_send(scout->link, who_leads, sizeof who_leads - 1, err);
}

static bool on_answer(void *context, const struct resp_node *value)
{
    struct scout *scout = context;
    struct error_text words;

    if (value->type == RESP_PUSH)
        return true;
    scout->store->host->reached(scout->store->host->context);
    scout->state = SCOUT_RESTS;
    scout->leads = value->type != RESP_ERROR;
    scout->store->next_ms = clock_boot_ms();
    if (!scout->leads) {
        refusal_of(&scout->at, value, &words);
        refusal_is_elsewhere(value, &scout->told);
        scout->leader = scout->told;
    }
    if (cluster_is_strange(scout))
        cluster_stranger_words(scout, &words);
    if (!scout->leads || cluster_is_strange(scout))
        note_why(scout->store, &words, true);
    return !scout->leads; /* what comes behind it is for whoever has the connection then */
}

static int64_t due_ms(const struct scout *scout)
{
    bool due = scout->state == SCOUT_CALLS || scout->state == SCOUT_ASKS;

    return due ? clock_after(scout->since_ms, scout->store->timeout_ms) : CLOCK_NEVER;
}

/* A node hangs up on a client at its port for peers; so do others who do not know what we speak. */
static void hint_at_port(const struct scout *scout, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (scout->link->state == LINK_GREETING && strstr(err->text, "closed the connection"))
        snprintf(err->text + size, sizeof err->text - size,
                 " at our first word: is this its port for clients (7420), and not the one for "
                 "peers?");
}

/* Not of what it refuses in our protocol: those words name it. */
static void name_server(const struct scout *scout, struct error_text *err)
{
    char words[ERROR_TEXT_MAX];

    if (strstr(err->text, scout->at.shown))
        return;
    snprintf(words, sizeof words, "%s", err->text);
    error_write(err, "%s is no holdfastd: %.400s", scout->at.shown, words);
}

/* It leads, as far as it knows, in the cluster that is ours. */
static bool may_be_taken(const struct scout *scout)
{
    return scout->leads && cluster_may_serve(scout);
}

static int hear(struct scout *scout, struct error_text *err)
{
    int result = link_pump(scout->link, on_answer, scout, err);

    if (result == HF_EUNREACH)
        hint_at_port(scout, err);
    else if (result != HF_OK && scout->link->state == LINK_GREETING)
        name_server(scout, err);
    if (result == HF_OK && scout->state == SCOUT_CALLS && scout->link->state == LINK_READY &&
        !may_be_taken(scout))
        result = ask(scout, err);
    if (result == HF_OK && !may_be_taken(scout) && clock_boot_ms() >= due_ms(scout))
        result = error_set(err, HF_EUNREACH, "%s: it does not answer", scout->at.shown);
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

static void found(struct engine_store *store, struct scout *scout)
{
    struct error_text why;

    if (store->link) {
        error_write(&why, "%s did not answer, and %s leads now", store->at->shown, scout->at.shown);
        wire_drop(store, &why);
    }
    list_remove(&scout->node);
    store->found = scout;
    store->at = &scout->at;
    store->has_others = store->server_count > 1 || !address_same(store->at, &store->servers[0]);
    store->heard_ms = clock_boot_ms();
    atomic_store(&store->link, scout->link);
    if (scout->leads) {
        store->served = true;
        cluster_serves(store, scout);
        holdfast_ask_name(store);
    }
    waiting_begin_again(store);
    wire_send_all(store);
}

/* Until one is at the leader. */
static void hear_all(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->scouts)
    {
        struct scout *scout = scout_of(node);
        struct error_text err;
        struct address told;
        int result;

        if (!scout->link)
            continue;
        result = hear(scout, &err);
        if (result != HF_OK) {
            come_back(store, scout, result, &err);
        } else if (may_be_taken(scout) && store->link &&
                   stream_same_peer(store->link->stream, scout->link->stream)) {
            /* The server in doubt, under another name. It leads, so its answer is waited for. */
            error_write(&err, "%s: it does not answer", scout->at.shown);
            come_back(store, scout, HF_EUNREACH, &err);
        } else if (may_be_taken(scout)) {
            found(store, scout);
            return;
        } else if (scout->state == SCOUT_RESTS && anyone_will_do(store) &&
                   !cluster_is_strange(scout)) {
            scout->leads = false; /* perhaps it does, a cluster that nobody has looked at */
            found(store, scout);
            return;
        } else if (scout->told.shown[0]) {
            told = scout->told;
            scout->told.shown[0] = '\0';
            send_out(store, &told);
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
static void greet_again(struct scout *scout)
{
    link_close(scout->link);
    scout->link = NULL;
    scout->leads = false;
    scout->state = SCOUT_HOME;
}

static void begin_round(struct engine_store *store)
{
    struct address moved = store->moved;
    struct error_text err;

    LIST_EACH(node, &store->scouts)
    {
        struct scout *scout = scout_of(node);

        if (scout->state == SCOUT_RESTS && cluster_is_none(scout))
            greet_again(scout);
        else if (scout->state == SCOUT_BACK)
            scout->state = SCOUT_HOME;
        else if (scout->state == SCOUT_RESTS && ask(scout, &err) != HF_OK)
            come_back(store, scout, HF_EUNREACH, &err);
    }
    store->to_try = store->server_count;
    store->next_ms = clock_boot_ms();
    store->round_ms = CLOCK_NEVER;
    store->refusal = HF_OK;
    store->moved.shown[0] = '\0';
    if (moved.shown[0])
        send_out(store, &moved);
}

/* For those who wait. */
static void tell_trouble(const struct engine_store *store, int64_t now_ms)
{
    const char *why = store->why_down.text;

    if (!store->link && store->seeking_ms && now_ms - store->seeking_ms >= TROUBLE_MS)
        store->host->trouble(store->host->context, why[0] ? why : "no server answers");
}

static bool has_refused(const struct engine_store *store, const struct address *at)
{
    LIST_EACH(node, &store->scouts)
    {
        if (scout_of(node)->refused && address_same(at, &scout_of(node)->at))
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

    LIST_EACH(node, &store->scouts)
    {
        const struct scout *scout = scout_of(node);

        if (scout->state == SCOUT_ASKS || scout->state == SCOUT_RESTS) {
            let_in = true;
            /* Whoever was served may be told of a leader that is none any more. */
            if (!store->served && scout->leader.shown[0] && !cluster_is_strange(scout) &&
                has_refused(store, &scout->leader))
                return true;
        } else if (scout->state == SCOUT_CALLS) {
            silent = silent || store->served || clock_boot_ms() - scout->since_ms < GREETING_MS;
        } else if (!scout->refused) {
            silent = silent || store->served;
        }
    }
    return !let_in && !silent;
}

static void end_round(struct engine_store *store)
{
    int64_t now_ms = clock_boot_ms();

    store->round_ms = after_a_pause(store, now_ms);
    tell_trouble(store, now_ms);
    /* Who asks again has it tried again. */
    if (store->refusal != HF_OK && !store->link && is_last_word(store))
        wire_refuse_all(store, store->refusal, &store->refusal_why);
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
        send_out(store, next);
    }
    if (store->round_ms == CLOCK_NEVER && store->to_try == 0 && clock_boot_ms() >= store->next_ms)
        end_round(store);
}

static int64_t next_look_ms(const struct engine_store *store)
{
    int64_t next_ms = store->round_ms == CLOCK_NEVER ? store->next_ms : store->round_ms;
    int64_t silent_ms = wire_silent_until(store);

    if (silent_ms < next_ms)
        next_ms = silent_ms;
    LIST_EACH(node, &store->scouts)
    {
        if (due_ms(scout_of(node)) < next_ms)
            next_ms = due_ms(scout_of(node));
    }
    return next_ms;
}

static void poll_all(struct engine_store *store)
{
    struct pollfd fds[2 + SCOUTS_MAX] = {{.fd = store->poke_fd, .events = POLLIN}};
    const struct link *link = store->link;
    int64_t left_ms = next_look_ms(store) - clock_boot_ms();
    eventfd_t ignored;
    nfds_t count = 1;

    if (link)
        fds[count++] = (struct pollfd){.fd = stream_fd(link->stream), .events = link_events(link)};
    LIST_EACH(node, &store->scouts)
    {
        link = scout_of(node)->link;
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

bool scouts_wanted(const struct engine_store *store)
{
    if (store->link)
        return store->doubt;
    return store->attentive > 0 || !list_empty(&store->unsent);
}

void scouts_go_on(struct engine_store *store)
{
    store->reading = true;
    if (store->seeking_ms == 0)
        store->seeking_ms = clock_boot_ms();
    do_round(store);
    if (scouts_wanted(store) && !store->stop) {
        poll_all(store);
        wire_pump(store);
        if (scouts_wanted(store))
            hear_all(store);
    }
    store->reading = false;
    wire_hand_on(store);
}

void scouts_call_back(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->scouts)
    {
        scout_free(scout_of(node));
    }
    if (store->link)
        return;
    store->seeking_ms = store->round_ms =
        0; /* nobody wants anything: the next one begins at once */
    store->losses = 0;
}

void scouts_lost(struct engine_store *store, const struct error_text *why, bool said)
{
    int64_t now_ms = clock_boot_ms();

    note_why(store, why, said);
    store->to_try = 0;
    store->round_ms = store->losses++ == 0 ? now_ms : after_a_pause(store, now_ms);
}

void scouts_served(struct engine_store *store)
{
    store->seeking_ms = 0;
    store->losses = 0;
    store->said = false;
}
