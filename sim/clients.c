/* clients.c: what clients do when its time has come, and what the rest of the world wants of them. */
#include "sim/clients_inside.h"

#include <stdlib.h>

/* ---- what is due ------------------------------------------------------------------------------ */

static void act_holding(struct sim *sim, struct client *client, int64_t now)
{
    if (client->asking || now < client->again_us)
        return;
    if (now >= client->until_us) {
        client_write_to_resource(sim, client, true);
        client_stop_holding(sim, client, LOST_RELEASED);
        if (client->ends) {
            client_end_lease(sim, client, now);
            return;
        }
        client->state = CLIENT_RELEASING;
        client->until_us = now + GIVE_UP_US;
        client->finished_us = sim->now_us;
        client_ask(sim, client, client->lock.once ? ASK_FINISH : ASK_RELEASE, now);
    } else if (now >= client->renew_us && !client->careless) {
        client_ask(sim, client, ASK_RENEW, now);
        client->renew_us = now + client_ttl_us(client) / 8; /* if it is not answered */
    } else if (!client->lock.once && chance_below(&sim->clients.chance, 8) == 0) {
        client_ask(sim, client, ASK_CHECK, now);
    }
}

/* Nobody waits any more: it says so, or hangs up. */
static void cancel(struct sim *sim, struct client *client, int64_t now)
{
    if (client->lock.waits && !client->lock.push && chance_below(&sim->clients.chance, 2)) {
        client_hang_up(sim, client);
        client_become_idle(sim, client, now);
    } else {
        client_end_lease(sim, client, now);
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
        if (now < client->until_us || sim->clients.drain)
            break;
        if (chance_happens(&sim->clients.chance, sim->swarm.beside)) {
            client_begin_beside(sim, client, now);
            client_ask(sim, client, client->beside, now);
        } else {
            client_begin_lock(sim, client, now);
            client_ask(sim, client, ASK_ACQUIRE, now);
        }
        break;
    case CLIENT_ACQUIRING:
        if (now >= client->until_us && client->dies)
            client_die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            cancel(sim, client, now);
        else if (!client->asking && now >= client->again_us)
            client_ask(sim, client, ASK_ACQUIRE, now);
        break;
    case CLIENT_QUEUED:
        if (now >= client->until_us && client->dies)
            client_die(sim, client, now);
        else if (now >= client->until_us && client->cancels)
            cancel(sim, client, now);
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
    case CLIENT_BESIDE:
        if (now >= client->until_us) {
            if (client->asking)
                client_hang_up(sim, client);
            client_become_idle(sim, client, now);
        } else if (!client->asking && now >= client->again_us) {
            client_ask(sim, client,
                       client->state == CLIENT_BESIDE   ? client->beside
                       : client->state == CLIENT_ENDING ? ASK_END
                       : client->lock.once              ? ASK_FINISH
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
        queue_postpone(&sim->queue, &later, client->paused_until_us);
        return;
    }
    now = client_local_us(client, sim->now_us);
    if (event->type == EVENT_CLIENT)
        client->wake_us = 0;
    /* What its clock says comes before what anybody says. */
    if (client->state == CLIENT_HOLDING && now >= client_deadline_us(client))
        act(sim, client, now);
    if (event->type == EVENT_ANSWER && client_is_asked(client, event->data))
        client_on_answer(sim, client, event->data, now);
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

void clients_place(struct sim *sim, int id, uint64_t lease, uint64_t ticket)
{
    const struct client *client = &sim->clients.at[id];

    if (client->lock.lease == lease &&
        (client->state == CLIENT_ACQUIRING || client->state == CLIENT_QUEUED))
        queue_told(&sim->check.queue, id, lease, ticket, sim->now_us);
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
