/* clients.c: what clients are told, and what they do when its time has come. */
#include "sim/clients_inside.h"

#include <stdlib.h>

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
        client_granted(sim, client, answer->value, now);
        break;
    case SAY_QUEUED:
        client->asking = false;
        client->base_us = client->sent_us;
        client->renew_us = client->base_us + client_ttl_us(client) / 3;
        client->state = CLIENT_QUEUED;
        break;
    case SAY_DONE:
        once_told(&sim->check.once, &sim->check.verdict, client->lock.name, answer->ticket,
                  sim->now_us);
        client_become_idle(sim, client, now);
        break;
    case SAY_BUSY:
    case SAY_ENDED:
        client_become_idle(sim, client, now);
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
                        client_when_us(client, client_deadline_us(client)));
        client_stop_holding(sim, client, LOST_GONE);
        client_become_idle(sim, client, now);
        return;
    }
    client->base_us = switch_on(SWITCH_LEASE_FROM_ANSWER) ? now : client->sent_us;
    client->renew_us = client->base_us + client_ttl_us(client) / 3;
    if (client->state == CLIENT_HOLDING) {
        holders_extend(&sim->check.holders, client->id,
                       client_when_us(client, client_deadline_us(client)));
        client_write_to_resource(sim, client, now < client_deadline_us(client));
    } else if (client->state == CLIENT_CONFIRMING) {
        if (now - client->base_us <= client_ttl_us(client) / 2)
            client_hold(sim, client, now);
    }
}

static void on_number(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now)
{
    int64_t until = client_when_us(client, client_deadline_us(client));

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
        client_become_idle(sim, client, now);
        return;
    case ASK_CHECK:
        client->asking = false;
        if (answer->value == 0)
            leases_gone(&sim->check.verdict, sim->now_us, client->lock.lease, until);
        return;
    case ASK_END:
        tokens_ended(&sim->check.tokens, client->lock.lease);
        client_become_idle(sim, client, now);
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
            client_hang_up(sim, client);
        client_elsewhere(sim, client, answer->say == SAY_MOVED ? answer->value : 0, now);
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
        client_write_to_resource(sim, client, true);
        client_stop_holding(sim, client, LOST_RELEASED);
        client->state = CLIENT_RELEASING;
        client->until_us = now + GIVE_UP_US;
        client_ask(sim, client, client->lock.once ? ASK_FINISH : ASK_RELEASE, now);
    } else if (now >= client->renew_us && !client->careless) {
        client_ask(sim, client, ASK_RENEW, now);
        client->renew_us = now + client_ttl_us(client) / 8; /* if it is not answered */
    } else if (!client->lock.once && chance_below(&sim->clients.chance, 8) == 0) {
        client_ask(sim, client, ASK_CHECK, now);
    }
}

static void act(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking && now >= client->timeout_us) {
        client_hang_up(sim, client);
        client_elsewhere(sim, client, 0, now);
        if (client->state == CLIENT_QUEUED)
            client->state = CLIENT_ACQUIRING; /* the push would have come on that connection */
    }
    switch (client->state) {
    case CLIENT_IDLE:
        if (now >= client->until_us && !sim->clients.drain) {
            client_begin_lock(sim, client, now);
            client_ask(sim, client, ASK_ACQUIRE, now);
        }
        break;
    case CLIENT_ACQUIRING:
        if (now >= client->until_us && client->dies)
            client_die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            client_end_lease(sim, client, now);
        else if (!client->asking && now >= client->again_us)
            client_ask(sim, client, ASK_ACQUIRE, now);
        break;
    case CLIENT_QUEUED:
        if (now >= client->until_us && client->dies)
            client_die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            client_end_lease(sim, client, now);
        else if (!client->asking && now >= client->renew_us && now >= client->again_us)
            client_ask(sim, client, ASK_RENEW, now);
        break;
    case CLIENT_CONFIRMING:
        if (now >= client->until_us)
            client_become_idle(sim, client, now);
        else if (!client->asking && now >= client->again_us)
            client_ask(sim, client, ASK_RENEW, now);
        break;
    case CLIENT_HOLDING:
        if (now >= client_deadline_us(client)) {
            client_stop_holding(sim, client, LOST_TIME);
            client_write_to_resource(sim, client,
                                     false); /* a holder that does not look at its clock */
            if (client->asking)
                client_hang_up(sim, client);
            client_become_idle(sim, client, now);
        } else if (now >= client->until_us && client->dies) {
            client_die(sim, client, now);
        } else {
            act_holding(sim, client, now);
        }
        break;
    case CLIENT_RELEASING:
    case CLIENT_ENDING:
        if (now >= client->until_us) {
            if (client->asking)
                client_hang_up(sim, client);
            client_become_idle(sim, client, now);
        } else if (!client->asking && now >= client->again_us) {
            client_ask(sim, client,
                       client->state == CLIENT_ENDING ? ASK_END
                       : client->lock.once            ? ASK_FINISH
                                                      : ASK_RELEASE,
                       now);
        }
        break;
    case CLIENT_DEAD:
        if (now >= client->until_us) {
            client_choose_node(sim, client, 0);
            client_become_idle(sim, client, now);
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
        next = earlier(next, client_deadline_us(client));
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
        next = client->state == CLIENT_HOLDING
                   ? earlier(client->again_us, client_deadline_us(client))
                   : client->again_us;
    if (next != INT64_MAX)
        client_wake_at(sim, client, next > now ? next : now + 1);
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
    now = client_local_us(client, sim->now_us);
    if (event->type == EVENT_CLIENT)
        client->wake_us = 0;
    /* What its clock says comes before what anybody says. */
    if (client->state == CLIENT_HOLDING && now >= client_deadline_us(client))
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
    if (client_way_breaks(sim, client, answer->connection, node->id))
        return;
    copy = malloc(sizeof *copy);
    INVARIANT(copy != NULL);
    *copy = *answer;
    at_us = sim->now_us + client_way_us(sim);
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
        client_become_idle(sim, client, client_local_us(client, sim->now_us));
        plan(sim, client, client_local_us(client, sim->now_us));
    }
}
