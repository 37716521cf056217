/* clients_lock.c: what a client asks for, and what becomes of a lock of its. */
#include "sim/clients_inside.h"

#include <stdlib.h>

#define BLOCKED_TIMEOUT_US (3000 * MS) /* a blocked ACQUIRE is asked again */
#define HEALED_THINK_US (300 * MS)
#define CLAIMS_PER_KEY 5 /* of a once-record, on average */
#define KEYS_FROM 1000   /* as names of the checkers */
#define KEPT_MS 3600000  /* a result: longer than any simulation, */
#define KEPT_SHORT_MS 3000
#define KEPT_SHORT_EVERY 3 /* but for one key of so many */

/* ---- clocks ----------------------------------------------------------------------------------- */

int64_t client_local_us(const struct client *client, int64_t true_us)
{
    return client->clock_offset_us + true_us + true_us * client->clock_ppm / 1000000;
}

/* A true moment at which its clock shows that, or not much more. */
int64_t client_when_us(const struct client *client, int64_t local)
{
    int64_t at = local - client->clock_offset_us;

    while (client_local_us(client, at) > local)
        at -= client_local_us(client, at) - local;
    while (client_local_us(client, at) < local)
        at += local - client_local_us(client, at);
    return at;
}

int64_t client_ttl_us(const struct client *client)
{
    return (int64_t)client->lock.ttl_ms * MS;
}

/* When it stops believing: TTL, less 1 % and 2 ms, counted from before the request was sent. */
int64_t client_deadline_us(const struct client *client)
{
    return client->base_us + client_ttl_us(client) - client_ttl_us(client) / 100 - 2 * MS;
}

void client_wake_at(struct sim *sim, struct client *client, int64_t local)
{
    int64_t at = client_when_us(client, local);

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

int64_t client_way_us(struct sim *sim)
{
    struct chance *chance = &sim->clients.chance;

    if (!sim->healing && chance_below(chance, 100) == 0)
        return chance_between(chance, 100, 100 * MS);
    return chance_between(chance, 50, 400);
}

/* What is lost takes the connection along: nothing comes through on it any more, and the client finds out in its time. */
bool client_way_breaks(struct sim *sim, struct client *client, uint64_t connection, uint64_t node)
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
void client_hang_up(struct sim *sim, struct client *client)
{
    uint64_t number = client->connection << 8 | (uint64_t)client->id;

    sim_at(sim,
           sim->now_us + chance_between(&sim->clients.chance, 100, sim->healing ? 5000 : 500 * MS),
           EVENT_HANGUP, sim_node(sim, client->node), number, NULL);
    client->connection++;
    client->asking = false;
    client->last_us = 0;
}

void client_choose_node(struct sim *sim, struct client *client, uint64_t hint)
{
    struct chance *chance = &sim->clients.chance;

    if (hint >= 1 && hint <= SIM_NODES && chance_below(chance, 8)) {
        client->node = hint;
        return;
    }
    for (int i = 0; i < 8; i++) {
        client->node = 1 + chance_below(chance, SIM_NODES);
        if (sim_node(sim, client->node)->exists)
            return;
    }
}

void client_elsewhere(struct sim *sim, struct client *client, uint64_t hint, int64_t now)
{
    uint64_t before = client->node;

    client_choose_node(sim, client, hint);
    if (client->node != before)
        client_hang_up(sim, client); /* of the new one it says nothing that matters */
    client->asking = false;
    client->again_us = now + chance_between(&sim->clients.chance, 2 * MS, 60 * MS);
}

void client_ask(struct sim *sim, struct client *client, enum ask what, int64_t now)
{
    struct request *request;

    if (what == ASK_ACQUIRE) {
        queue_left(&sim->check.queue,
                   client->id); /* whatever place it had counts when it is found again */
        client->asked++;
    }
    client->repeated = client->request.ask == what && client->request.lease == client->lock.lease;
    client->request = client->lock;
    client->request.ask = what;
    client->request.token = client->token;
    client->request.client = client->id;
    client->request.connection = client->connection;
    client->request.number = ++sim->clients.requests;
    client->asking = true;
    client->sent_us = now;
    client->sent_true_us = sim->now_us;
    if (what == ASK_RENEW && client->state == CLIENT_HOLDING)
        client_renew_others(sim, client);
    if (what == ASK_BREAK) {
        breaks_asked(&sim->check.ends, client->lock.name);
        if (client->lock.now)
            holders_now_asked(&sim->check.holders, client->lock.name);
    }
    client->timeout_us = now + (what == ASK_ACQUIRE && client->lock.waits && !client->lock.push
                                    ? BLOCKED_TIMEOUT_US
                                    : sim->swarm.patience_us);
    trace(&sim->trace, sim->now_us, TRACE_ASKED, (uint64_t)client->id, client->node,
          client->request.number, what);
    if (client_way_breaks(sim, client, client->connection, client->node))
        return;
    request = malloc(sizeof *request);
    INVARIANT(request != NULL);
    *request = client->request;
    sim_at(sim, sim->now_us + client_way_us(sim), EVENT_REQUEST, sim_node(sim, client->node), 0,
           request);
    sim->counts.requests++;
}

/* ---- a lock's life ---------------------------------------------------------------------------- */

void client_become_idle(struct sim *sim, struct client *client, int64_t now)
{
    int64_t think = sim->healing ? HEALED_THINK_US : sim->swarm.think_us;

    client->state = CLIENT_IDLE;
    client->until_us = now + chance_between(&sim->clients.chance, 0, 2 * think);
    client->asking = false;
    queue_left(&sim->check.queue, client->id);
}

void client_stop_holding(struct sim *sim, struct client *client, enum lost why)
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
    client->lock.keep_ms = client->lock.name % KEPT_SHORT_EVERY ? KEPT_MS : KEPT_SHORT_MS;
}

void client_begin_lock(struct sim *sim, struct client *client, int64_t now)
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
    client->asked = 0;
    client->careless = faults && chance_happens(chance, swarm->client_careless);
    client->cancels = faults && chance_happens(chance, swarm->client_cancel);
    client->pauses = faults && chance_happens(chance, swarm->client_pause);
    client->dies = faults && chance_happens(chance, swarm->client_death);
    client->ends = !client->lock.once && chance_happens(chance, swarm->client_end);
    client->until_us = now + chance_between(chance, 0, client->cancels ? 1000 * MS : 8000 * MS);
    client->state = CLIENT_ACQUIRING;
    client->again_us = now;
    client->request.ask = 0;
}

bool client_write_to_resource(struct sim *sim, struct client *client, bool holds)
{
    return client->lock.mode != HF_EXCLUSIVE || client->lock.once ||
           guard_write(&sim->check.guard, &sim->check.verdict, client->lock.name,
                       client->lock.lease, client->token,
                       holds && !holders_now_excuses(&sim->check.holders, client->lock.name,
                                                     client->asked_us));
}

void client_hold(struct sim *sim, struct client *client, int64_t now)
{
    struct chance *chance = &sim->clients.chance;
    struct holder holder = {.name = client->lock.name + (client->lock.once ? KEYS_FROM : 0),
                            .mode = client->lock.mode == HF_EXCLUSIVE ? CHECK_EXCLUSIVE
                                    : client->lock.mode == HF_SHARED  ? CHECK_SHARED
                                                                      : CHECK_PERMIT,
                            .permits = client->lock.permits,
                            .token = client->token,
                            .until_us = client_when_us(client, client_deadline_us(client)),
                            .asked_us = client->asked_us};

    client->state = CLIENT_HOLDING;
    client->until_us =
        now +
        chance_between(chance, 0, chance_below(chance, 4) ? 200 * MS : 3 * client_ttl_us(client));
    if (sim->healing)
        client->until_us = now + 20 * MS;
    client->renew_us = client->base_us + client_ttl_us(client) / 3;
    client->again_us = now;
    sim->counts.grants++;
    trace(&sim->trace, sim->now_us, TRACE_HOLDS, (uint64_t)client->id, (uint64_t)client->lock.name,
          (uint64_t)client->lock.mode, client->token);
    holders_begin(&sim->check.holders, &sim->check.verdict, sim->now_us, client->id, &holder);
    client_write_to_resource(sim, client, true);
    if (client->pauses) {
        sim->counts.client_faults++;
        client->paused_until_us =
            sim->now_us + chance_between(chance, 0, 2 * client_ttl_us(client));
    }
}

/* It has a token, and was told so by an answer to what it sent at base_us. */
void client_granted(struct sim *sim, struct client *client, uint64_t token, int64_t now)
{
    client->token = token;
    tokens_told(&sim->check.tokens, &sim->check.verdict, client->lock.lease, token, client->floor);
    if (client->lock.once)
        once_granted(&sim->check.once, &sim->check.verdict, client->lock.name, client->asked_us,
                     sim->now_us);
    else
        queue_granted(&sim->check.queue, &sim->check.verdict, client->id, client->lock.name,
                      client->lock.lease, token, client->asked_us);
    if (now - client->base_us > client_ttl_us(client) / 2) {
        client->state = CLIENT_CONFIRMING;
        client->until_us = now + GIVE_UP_US;
        client->again_us = now;
    } else {
        client_hold(sim, client, now);
    }
}

/* Its own clock says when that may be, unless somebody breaks the lock. */
void client_gone(struct sim *sim, struct client *client)
{
    if (client->lock.once || !breaks_excuse(&sim->check.ends, client->lock.name, client->asked_us))
        leases_gone(&sim->check.verdict, sim->now_us, client->lock.lease,
                    client_when_us(client, client_deadline_us(client)));
}

void client_die(struct sim *sim, struct client *client, int64_t now)
{
    client_stop_holding(sim, client, LOST_DEATH);
    client_hang_up(sim, client);
    queue_left(&sim->check.queue, client->id);
    client->state = CLIENT_DEAD;
    client->until_us = now + chance_between(&sim->clients.chance, 0, 2000 * MS);
    sim->counts.client_faults++;
}

void client_end_lease(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking)
        client_hang_up(sim, client);
    queue_left(&sim->check.queue, client->id);
    client->state = CLIENT_ENDING;
    client->until_us = now + GIVE_UP_US + client_ttl_us(client);
    client->again_us = now;
}
