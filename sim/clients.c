#include "sim/clients.h"

#include "sim/sim.h"
#include "sim/switches.h"

#include <stdlib.h>

#define MS 1000
#define REQUEST_TIMEOUT_US (1000 * MS)
#define BLOCKED_TIMEOUT_US (3000 * MS) /* a blocked ACQUIRE is asked again */
#define GIVE_UP_US (4000 * MS) /* an end or a release that nobody acknowledges: longer than a TTL */
#define HEALED_THINK_US (300 * MS)
#define CLAIMS_PER_KEY 5 /* of a once-record, on average */
#define KEYS_FROM 1000   /* as names of the checkers */

enum lost { LOST_RELEASED, LOST_TIME, LOST_GONE, LOST_DEATH };

/* ---- clocks ----------------------------------------------------------------------------------- */

static int64_t local_us(const struct client *client, int64_t true_us)
{
    return client->clock_offset_us + true_us + true_us * client->clock_ppm / 1000000;
}

/* A true moment at which its clock shows that, or not much more. */
static int64_t when_us(const struct client *client, int64_t local)
{
    int64_t at = local - client->clock_offset_us;

    while (local_us(client, at) > local)
        at -= local_us(client, at) - local;
    while (local_us(client, at) < local)
        at += local - local_us(client, at);
    return at;
}

static int64_t ttl_us(const struct client *client)
{
    return (int64_t)client->lock.ttl_ms * MS;
}

/* When it stops believing: TTL, less 1 % and 2 ms, counted from before the request was sent. */
static int64_t deadline_us(const struct client *client)
{
    return client->base_us + ttl_us(client) - ttl_us(client) / 100 - 2 * MS;
}

static void wake_at(struct sim *sim, struct client *client, int64_t local)
{
    int64_t at = when_us(client, local);

    if (at <= sim->now_us)
        at = sim->now_us + 1;
    if (client->wake_us > sim->now_us && client->wake_us <= at)
        return;
    client->wake_us = at;
    queue_push(&sim->queue, &(struct event){.at_us = at,
                                            .type = EVENT_CLIENT,
                                            .number = (uint64_t)client->id,
                                            .life = (uint32_t)++client->wakes});
}

/* ---- asking ----------------------------------------------------------------------------------- */

static int64_t way_us(struct sim *sim)
{
    struct chance *chance = &sim->clients.chance;

    if (!sim->healing && chance_below(chance, 100) == 0)
        return chance_between(chance, 100, 100 * MS);
    return chance_between(chance, 50, 400);
}

/* What is lost takes the connection along: nothing comes through on it any more, and the client finds out in its time. */
static bool way_breaks(struct sim *sim, struct client *client, uint64_t connection, uint64_t node)
{
    bool breaks = connection == client->broken;

    if (!sim->healing)
        breaks = breaks || chance_happens(&sim->clients.chance, sim->swarm.client_loss) ||
                 /* Each is in the place of some node. */
                 network_is_cut(sim, (uint64_t)client->id % SIM_NODES + 1, node);
    if (breaks && connection == client->connection)
        client->broken = connection;
    return breaks;
}

/* The node learns of it some time. */
static void hang_up(struct sim *sim, struct client *client)
{
    uint64_t number = client->connection << 8 | (uint64_t)client->id;

    sim_at(sim,
           sim->now_us + chance_between(&sim->clients.chance, 100, sim->healing ? 5000 : 500 * MS),
           EVENT_HANGUP, sim_node(sim, client->node), number, NULL);
    client->connection++;
    client->asking = false;
    client->last_us = 0;
}

static void choose_node(struct sim *sim, struct client *client, uint64_t hint)
{
    struct chance *chance = &sim->clients.chance;

    if (hint && sim_node(sim, hint) && chance_below(chance, 8)) {
        client->node = hint;
        return;
    }
    for (int i = 0; i < 8; i++) {
        client->node = 1 + chance_below(chance, SIM_NODES);
        if (sim_node(sim, client->node)->exists)
            return;
    }
}

static void elsewhere(struct sim *sim, struct client *client, uint64_t hint, int64_t now)
{
    uint64_t before = client->node;

    choose_node(sim, client, hint);
    if (client->node != before)
        hang_up(sim, client); /* of the new one it says nothing that matters */
    client->asking = false;
    client->again_us = now + chance_between(&sim->clients.chance, 2 * MS, 60 * MS);
}

static void ask(struct sim *sim, struct client *client, enum ask what, int64_t now)
{
    struct request *request;

    if (what == ASK_ACQUIRE) /* whatever place it had counts when it is found again */
        queue_left(&sim->check.queue, client->id);
    client->repeated = client->request.ask == what && client->request.lease == client->lock.lease;
    client->request = client->lock;
    client->request.ask = what;
    client->request.token = client->token;
    client->request.client = client->id;
    client->request.connection = client->connection;
    client->request.number = ++sim->clients.requests;
    client->asking = true;
    client->sent_us = now;
    client->timeout_us = now + (what == ASK_ACQUIRE && client->lock.waits && !client->lock.push
                                    ? BLOCKED_TIMEOUT_US
                                    : REQUEST_TIMEOUT_US);
    trace(&sim->trace, sim->now_us, TRACE_ASKED, (uint64_t)client->id, client->node,
          client->request.number, what);
    if (way_breaks(sim, client, client->connection, client->node))
        return;
    request = malloc(sizeof *request);
    INVARIANT(request != NULL);
    *request = client->request;
    sim_at(sim, sim->now_us + way_us(sim), EVENT_REQUEST, sim_node(sim, client->node), 0, request);
    sim->counts.requests++;
}

/* ---- a lock's life ---------------------------------------------------------------------------- */

static void become_idle(struct sim *sim, struct client *client, int64_t now)
{
    int64_t think = sim->healing ? HEALED_THINK_US : sim->swarm.think_us;

    client->state = CLIENT_IDLE;
    client->until_us = now + chance_between(&sim->clients.chance, 0, 2 * think);
    client->asking = false;
    queue_left(&sim->check.queue, client->id);
}

static void stop_holding(struct sim *sim, struct client *client, enum lost why)
{
    if (client->state != CLIENT_HOLDING)
        return;
    holders_end(&sim->check.holders, client->id);
    trace(&sim->trace, sim->now_us, TRACE_HOLDS_NO_MORE, (uint64_t)client->id,
          (uint64_t)client->lock.name, client->token, why);
}

/* A name is of one kind: with permits, or exclusive and shared. */
static void choose_lock(struct sim *sim, struct client *client)
{
    struct chance *chance = &sim->clients.chance;
    const struct swarm *swarm = &sim->swarm;
    int name = (int)chance_below(chance, (uint64_t)swarm->names);

    client->lock = (struct request){
        .name = name,
        .mode = name % 3 == 2                  ? HF_PERMIT
                : chance_below(chance, 4) == 0 ? HF_SHARED
                                               : HF_EXCLUSIVE,
        .permits = (uint32_t)(name % 2 + 2),
        .lease = ++sim->clients.leases,
        .ttl_ms = (uint32_t)chance_between(chance, swarm->ttl_ms, swarm->ttl_max_ms),
        .waits = chance_below(chance, 4) > 0,
        .push = chance_below(chance, 2),
        .wait_ms = (uint64_t)chance_between(chance, 0, 6000),
        .delay_ms = chance_below(chance, 8) ? 0 : (uint64_t)chance_between(chance, 1, 500)};
}

/* A claim of a once-record: one of the last keys. */
static void choose_key(struct sim *sim, struct client *client)
{
    uint64_t key = ++sim->clients.keys / CLAIMS_PER_KEY;

    client->lock.once = true;
    client->lock.name = (int)(key + chance_below(&sim->clients.chance, 2));
    client->lock.mode = HF_EXCLUSIVE;
    client->lock.delay_ms = 0;
    client->lock.result = client->lock.lease;
}

static void begin_lock(struct sim *sim, struct client *client, int64_t now)
{
    struct chance *chance = &sim->clients.chance;
    const struct swarm *swarm = &sim->swarm;
    bool faults = !sim->healing;

    choose_lock(sim, client);
    if (chance_happens(chance, swarm->once))
        choose_key(sim, client);
    client->token = 0;
    client->floor = tokens_floor(&sim->check.tokens);
    client->asked_us = sim->now_us;
    client->careless = faults && chance_happens(chance, swarm->client_careless);
    client->cancels = faults && chance_happens(chance, swarm->client_cancel);
    client->pauses = faults && chance_happens(chance, swarm->client_pause);
    client->dies = faults && chance_happens(chance, swarm->client_death);
    client->until_us = now + chance_between(chance, 0, client->cancels ? 1000 * MS : 8000 * MS);
    client->state = CLIENT_ACQUIRING;
    client->again_us = now;
    client->request.ask = 0;
}

static bool write_to_resource(struct sim *sim, struct client *client, bool holds)
{
    return client->lock.mode != HF_EXCLUSIVE || client->lock.once ||
           guard_write(&sim->check.guard, &sim->check.verdict, client->lock.name,
                       client->lock.lease, client->token, holds);
}

static void hold(struct sim *sim, struct client *client, int64_t now)
{
    struct chance *chance = &sim->clients.chance;
    struct holder holder = {.name = client->lock.name + (client->lock.once ? KEYS_FROM : 0),
                            .mode = client->lock.mode == HF_EXCLUSIVE ? CHECK_EXCLUSIVE
                                    : client->lock.mode == HF_SHARED  ? CHECK_SHARED
                                                                      : CHECK_PERMIT,
                            .permits = client->lock.permits,
                            .token = client->token,
                            .until_us = when_us(client, deadline_us(client))};

    client->state = CLIENT_HOLDING;
    client->until_us =
        now + chance_between(chance, 0, chance_below(chance, 4) ? 200 * MS : 3 * ttl_us(client));
    if (sim->healing)
        client->until_us = now + 20 * MS;
    client->renew_us = client->base_us + ttl_us(client) / 3;
    client->again_us = now;
    sim->counts.grants++;
    trace(&sim->trace, sim->now_us, TRACE_HOLDS, (uint64_t)client->id, (uint64_t)client->lock.name,
          (uint64_t)client->lock.mode, client->token);
    holders_begin(&sim->check.holders, &sim->check.verdict, sim->now_us, client->id, &holder);
    write_to_resource(sim, client, true);
    if (client->pauses) {
        sim->counts.client_faults++;
        client->paused_until_us = sim->now_us + chance_between(chance, 0, 2 * ttl_us(client));
    }
}

/* It has a token, and was told so by an answer to what it sent at base_us. */
static void granted(struct sim *sim, struct client *client, uint64_t token, int64_t now)
{
    client->token = token;
    tokens_told(&sim->check.tokens, &sim->check.verdict, client->lock.lease, token, client->floor);
    if (client->lock.once)
        once_granted(&sim->check.once, &sim->check.verdict, client->lock.name, client->asked_us);
    else
        queue_granted(&sim->check.queue, &sim->check.verdict, client->id, client->lock.name,
                      client->lock.lease, token, client->asked_us);
    if (now - client->base_us > ttl_us(client) / 2) {
        client->state = CLIENT_CONFIRMING;
        client->until_us = now + GIVE_UP_US;
        client->again_us = now;
    } else {
        hold(sim, client, now);
    }
}

static void die(struct sim *sim, struct client *client, int64_t now)
{
    stop_holding(sim, client, LOST_DEATH);
    hang_up(sim, client);
    queue_left(&sim->check.queue, client->id);
    client->state = CLIENT_DEAD;
    client->until_us = now + chance_between(&sim->clients.chance, 0, 2000 * MS);
    sim->counts.client_faults++;
}

static void end_lease(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking)
        hang_up(sim, client);
    queue_left(&sim->check.queue, client->id);
    client->state = CLIENT_ENDING;
    client->until_us = now + GIVE_UP_US + ttl_us(client);
    client->again_us = now;
}

/* ---- answers ---------------------------------------------------------------------------------- */

static void on_acquire(struct sim *sim, struct client *client, const struct answer *answer,
                       int64_t now)
{
    switch (answer->say) {
    case SAY_TOKEN:
        /* A push: what was acknowledged last counts, and that is in base_us. */
        if (client->asking && client->request.number == answer->number &&
            client->state == CLIENT_ACQUIRING)
            client->base_us = switch_on(SWITCH_LEASE_FROM_ANSWER) ? now : client->sent_us;
        client->asking = client->asking && client->request.number != answer->number;
        granted(sim, client, answer->value, now);
        break;
    case SAY_QUEUED:
        client->asking = false;
        client->base_us = client->sent_us;
        client->renew_us = client->base_us + ttl_us(client) / 3;
        client->state = CLIENT_QUEUED;
        break;
    case SAY_DONE:
        once_told(&sim->check.once, &sim->check.verdict, client->lock.name, answer->ticket,
                  sim->now_us);
        become_idle(sim, client, now);
        break;
    case SAY_BUSY:
    case SAY_ENDED:
        become_idle(sim, client, now);
        break;
    default:
        verdict_wrong(&sim->check.verdict, "client %d is refused for reason %d", client->id,
                      (int)answer->value);
    }
}

static void on_renew(struct sim *sim, struct client *client, const struct answer *answer,
                     int64_t now)
{
    client->asking = false;
    if ((int64_t)answer->value < 0) {
        if (client->state != CLIENT_CONFIRMING)
            leases_gone(&sim->check.verdict, sim->now_us, client->lock.lease,
                        when_us(client, deadline_us(client)));
        stop_holding(sim, client, LOST_GONE);
        become_idle(sim, client, now);
        return;
    }
    client->base_us = switch_on(SWITCH_LEASE_FROM_ANSWER) ? now : client->sent_us;
    client->renew_us = client->base_us + ttl_us(client) / 3;
    if (client->state == CLIENT_HOLDING) {
        holders_extend(&sim->check.holders, client->id, when_us(client, deadline_us(client)));
        write_to_resource(sim, client, now < deadline_us(client));
    } else if (client->state == CLIENT_CONFIRMING) {
        if (now - client->base_us <= ttl_us(client) / 2)
            hold(sim, client, now);
    }
}

static void on_number(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now)
{
    int64_t until = when_us(client, deadline_us(client));

    switch (client->request.ask) {
    case ASK_RENEW:
        on_renew(sim, client, answer, now);
        return;
    case ASK_FINISH:
        if (answer->value == 1)
            once_told(&sim->check.once, &sim->check.verdict, client->lock.name, client->lock.result,
                      sim->now_us);
        /* fall through */
    case ASK_RELEASE:
        if (answer->value == 0 && !client->repeated)
            leases_gone(&sim->check.verdict, sim->now_us, client->lock.lease, until);
        become_idle(sim, client, now);
        return;
    case ASK_CHECK:
        client->asking = false;
        if (answer->value == 0)
            leases_gone(&sim->check.verdict, sim->now_us, client->lock.lease, until);
        return;
    case ASK_END:
        tokens_ended(&sim->check.tokens, client->lock.lease);
        become_idle(sim, client, now);
        return;
    default:
        client->asking = false;
    }
}

/* Whether this answers what the client is about; a wait may end long after SAY_QUEUED. */
static bool is_ours(const struct client *client, const struct answer *answer)
{
    if (answer->connection != client->connection || client->state == CLIENT_DEAD)
        return false;
    if (answer->number == 0 || (client->asking && answer->number == client->request.number))
        return true;
    return client->state == CLIENT_QUEUED && answer->number == client->lock.number &&
           (answer->say == SAY_TOKEN || answer->say == SAY_DONE || answer->say == SAY_BUSY ||
            answer->say == SAY_ENDED || answer->say == SAY_MOVED);
}

static void on_answer(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now)
{
    trace(&sim->trace, sim->now_us, TRACE_TOLD, (uint64_t)client->id, answer->number, answer->say,
          answer->value);
    switch (answer->say) {
    case SAY_MOVED:
    case SAY_UNKNOWN:
        if (client->state == CLIENT_QUEUED) /* finds its place again, or another */
            client->state = CLIENT_ACQUIRING;
        if (answer->say == SAY_MOVED && client->asking &&
            answer->number == client->request.number && !client->repeated)
            client->request.ask = 0; /* it certainly had no effect */
        if (answer->number == 0)     /* the connection is gone */
            hang_up(sim, client);
        elsewhere(sim, client, answer->say == SAY_MOVED ? answer->value : 0, now);
        break;
    case SAY_NUMBER:
        on_number(sim, client, answer, now);
        break;
    default:
        if (answer->say == SAY_QUEUED)
            client->lock.number = answer->number;
        on_acquire(sim, client, answer, now);
    }
}

/* ---- what is due ------------------------------------------------------------------------------ */

static void act_holding(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking || now < client->again_us)
        return;
    if (now >= client->until_us) {
        write_to_resource(sim, client, true);
        stop_holding(sim, client, LOST_RELEASED);
        client->state = CLIENT_RELEASING;
        client->until_us = now + GIVE_UP_US;
        ask(sim, client, client->lock.once ? ASK_FINISH : ASK_RELEASE, now);
    } else if (now >= client->renew_us && !client->careless) {
        ask(sim, client, ASK_RENEW, now);
        client->renew_us = now + ttl_us(client) / 8; /* if it is not answered */
    } else if (!client->lock.once && chance_below(&sim->clients.chance, 8) == 0) {
        ask(sim, client, ASK_CHECK, now);
    }
}

static void act(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking && now >= client->timeout_us) {
        hang_up(sim, client);
        elsewhere(sim, client, 0, now);
        if (client->state == CLIENT_QUEUED)
            client->state = CLIENT_ACQUIRING; /* the push would have come on that connection */
    }
    switch (client->state) {
    case CLIENT_IDLE:
        if (now >= client->until_us && !sim->clients.drain) {
            begin_lock(sim, client, now);
            ask(sim, client, ASK_ACQUIRE, now);
        }
        break;
    case CLIENT_ACQUIRING:
        if (now >= client->until_us && client->dies)
            die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            end_lease(sim, client, now);
        else if (!client->asking && now >= client->again_us)
            ask(sim, client, ASK_ACQUIRE, now);
        break;
    case CLIENT_QUEUED:
        if (now >= client->until_us && client->dies)
            die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            end_lease(sim, client, now);
        else if (!client->asking && now >= client->renew_us && now >= client->again_us)
            ask(sim, client, ASK_RENEW, now);
        break;
    case CLIENT_CONFIRMING:
        if (now >= client->until_us)
            become_idle(sim, client, now);
        else if (!client->asking && now >= client->again_us)
            ask(sim, client, ASK_RENEW, now);
        break;
    case CLIENT_HOLDING:
        if (now >= deadline_us(client)) {
            stop_holding(sim, client, LOST_TIME);
            write_to_resource(sim, client, false); /* a holder that does not look at its clock */
            if (client->asking)
                hang_up(sim, client);
            become_idle(sim, client, now);
        } else if (now >= client->until_us && client->dies) {
            die(sim, client, now);
        } else {
            act_holding(sim, client, now);
        }
        break;
    case CLIENT_RELEASING:
    case CLIENT_ENDING:
        if (now >= client->until_us) {
            if (client->asking)
                hang_up(sim, client);
            become_idle(sim, client, now);
        } else if (!client->asking && now >= client->again_us) {
            ask(sim, client,
                client->state == CLIENT_ENDING ? ASK_END
                : client->lock.once            ? ASK_FINISH
                                               : ASK_RELEASE,
                now);
        }
        break;
    case CLIENT_DEAD:
        if (now >= client->until_us) {
            choose_node(sim, client, 0);
            become_idle(sim, client, now);
        }
        break;
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void plan(struct sim *sim, struct client *client, int64_t now)
{
    int64_t next = client->asking ? client->timeout_us : INT64_MAX;

    switch (client->state) {
    case CLIENT_HOLDING:
        next = earlier(next, deadline_us(client));
        if (!client->asking)
            next = earlier(
                next, earlier(client->until_us, client->careless ? INT64_MAX : client->renew_us));
        if (client->dies)
            next = earlier(next, client->until_us);
        break;
    case CLIENT_QUEUED:
        if (!client->asking)
            next = earlier(next, client->renew_us);
        if (client->dies || client->cancels)
            next = earlier(next, client->until_us);
        break;
    case CLIENT_IDLE:
        next = sim->clients.drain ? INT64_MAX : client->until_us;
        break;
    case CLIENT_DEAD:
        next = client->until_us;
        break;
    default:
        if (!client->asking)
            next = earlier(next, client->again_us);
        if (client->state != CLIENT_ACQUIRING || client->dies || client->cancels)
            next = earlier(next, client->until_us);
    }
    if (!client->asking && client->state != CLIENT_IDLE && client->state != CLIENT_DEAD &&
        next < client->again_us)
        next = client->state == CLIENT_HOLDING ? earlier(client->again_us, deadline_us(client))
                                               : client->again_us;
    if (next != INT64_MAX)
        wake_at(sim, client, next > now ? next : now + 1);
}

void clients_event(struct sim *sim, const struct event *event)
{
    struct client *client = &sim->clients.at[event->number];
    int64_t now;

    if (event->type == EVENT_CLIENT && event->life != (uint32_t)client->wakes)
        return;
    if (client->paused_until_us > sim->now_us) {
        struct event later = *event;

        if (event->type == EVENT_CLIENT)
            client->wake_us = client->paused_until_us;
        if (event->data) {
            struct answer *copy = malloc(sizeof *copy);

            INVARIANT(copy != NULL);
            *copy = *(const struct answer *)event->data;
            later.data = copy;
        }
        queue_put_off(&sim->queue, &later, client->paused_until_us);
        return;
    }
    now = local_us(client, sim->now_us);
    if (event->type == EVENT_CLIENT)
        client->wake_us = 0;
    /* What its clock says comes before what anybody says. */
    if (client->state == CLIENT_HOLDING && now >= deadline_us(client))
        act(sim, client, now);
    if (event->type == EVENT_ANSWER && is_ours(client, event->data))
        on_answer(sim, client, event->data, now);
    if (client->paused_until_us <= sim->now_us)
        act(sim, client, now);
    plan(sim, client, now);
}

/* ---- from outside ----------------------------------------------------------------------------- */

void clients_say(struct sim *sim, const struct node *node, int id, const struct answer *answer)
{
    struct client *client = &sim->clients.at[id];
    struct answer *copy;
    int64_t at_us;

    trace(&sim->trace, sim->now_us, TRACE_ANSWERS, node->id, (uint64_t)id, answer->number,
          answer->say);
    if (way_breaks(sim, client, answer->connection, node->id))
        return;
    copy = malloc(sizeof *copy);
    INVARIANT(copy != NULL);
    *copy = *answer;
    at_us = sim->now_us + way_us(sim);
    if (at_us <= client->last_us)
        at_us = client->last_us + 1;
    client->last_us = at_us;
    queue_push(&sim->queue,
               &(struct event){
                   .at_us = at_us, .type = EVENT_ANSWER, .number = (uint64_t)id, .data = copy});
}

void clients_place(struct sim *sim, const struct request *request, uint64_t ticket)
{
    const struct client *client = &sim->clients.at[request->client];

    if (client->lock.lease == request->lease &&
        (client->state == CLIENT_ACQUIRING || client->state == CLIENT_QUEUED))
        queue_told(&sim->check.queue, request->client, request->lease, ticket, sim->now_us);
}

void clients_node_ended(struct sim *sim, const struct node *node, bool at_once)
{
    for (int i = 0; i < sim->clients.count; i++) {
        struct client *client = &sim->clients.at[i];

        if (client->node != node->id)
            continue;
        if (at_once)
            clients_say(sim, node, i,
                        &(struct answer){.say = SAY_UNKNOWN, .connection = client->connection});
        client->broken = client->connection; /* else the client finds out in its time */
    }
}

bool clients_are_idle(const struct sim *sim)
{
    for (int i = 0; i < sim->clients.count; i++)
        if (sim->clients.at[i].state != CLIENT_IDLE)
            return false;
    return true;
}

void clients_heal(struct sim *sim)
{
    for (int i = 0; i < sim->clients.count; i++) {
        struct client *client = &sim->clients.at[i];

        client->cancels = client->dies = client->pauses = client->careless = false;
    }
}

void clients_begin(struct sim *sim)
{
    sim->clients.chance = chance_new(sim->seed, 3);
    sim->clients.count = sim->swarm.clients;
    for (int i = 0; i < sim->clients.count; i++) {
        struct client *client = &sim->clients.at[i];
        struct chance *chance = &sim->clients.chance;

        client->id = i;
        client->clock_ppm = chance_between(chance, -SIM_DRIFT_PPM, SIM_DRIFT_PPM);
        client->clock_offset_us = chance_between(chance, 0, 1000000000);
        client->node = 1 + chance_below(chance, (uint64_t)sim->swarm.nodes);
        client->connection = 1;
        become_idle(sim, client, local_us(client, sim->now_us));
        plan(sim, client, local_us(client, sim->now_us));
    }
}
