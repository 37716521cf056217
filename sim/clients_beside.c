/* clients_beside.c: what clients ask for beside locks: BREAK, FLOOR, and reads. */
#include "sim/clients_inside.h"

#define NOW_EVERY 8     /* break */
#define FLOOR_ABOVE 100 /* the highest token that anybody was told, at the most */

static enum ask choose(struct sim *sim)
{
    static const enum ask reads[] = {ASK_SHOW, ASK_SHOW, ASK_LOCKS};
    struct chance *chance = &sim->clients.chance;

    if (!sim->healing && chance_happens(chance, sim->swarm.breaks))
        return ASK_BREAK;
    if (chance_below(chance, 8) == 0)
        return ASK_FLOOR;
    return reads[chance_below(chance, 3)];
}

void client_begin_beside(struct sim *sim, struct client *client, int64_t now)
{
    struct chance *chance = &sim->clients.chance;

    client->lock = (struct request){.name = (int)chance_below(chance, (uint64_t)sim->swarm.names)};
    client->beside = choose(sim);
    client->lock.now = client->beside == ASK_BREAK && chance_below(chance, NOW_EVERY) == 0;
    client->token = tokens_floor(&sim->check.tokens) + chance_below(chance, FLOOR_ABOVE);
    client->state = CLIENT_BESIDE;
    client->until_us = now + GIVE_UP_US;
    client->again_us = now;
    client->request.ask = 0;
    client->careless = client->cancels = client->pauses = client->dies = false;
}

static void close_now(struct sim *sim, struct client *client)
{
    if (client->lock.now)
        holders_now_closed(&sim->check.holders, client->lock.name, sim->now_us);
}

/* What was sent last is over, and had no effect. */
void client_beside_refused(struct sim *sim, struct client *client)
{
    if (client->request.ask != ASK_BREAK)
        return;
    breaks_closed(&sim->check.ends, client->lock.name, sim->now_us);
    close_now(sim, client);
}

void client_beside_answered(struct sim *sim, struct client *client, const struct answer *answer,
                            int64_t now)
{
    struct check *check = &sim->check;
    struct check_read read = answer->read;

    read.asked_us = client->sent_true_us;
    switch (client->request.ask) {
    case ASK_BREAK:
        breaks_told(&check->ends, &check->holders, client->lock.name, client->sent_true_us,
                    sim->now_us);
        close_now(sim, client);
        break;
    case ASK_FLOOR:
        tokens_raised(&check->tokens, &check->verdict, client->token, answer->value);
        break;
    case ASK_SHOW:
        reads_holders(&check->holders, &check->ends, &check->verdict, sim->now_us,
                      client->lock.name, &read);
        break;
    default:
        reads_names(&check->holders, &check->ends, &check->verdict, sim->now_us, &read);
    }
    client_become_idle(sim, client, now);
}

/* ---- leases that are renewed along with one's own ---------------------------------------------- */

/* As in one process: the one that is beside it holds something, and what it had itself before is over. */
static struct client *partner_of(struct sim *sim, const struct client *client)
{
    int id = client->id ^ 1;

    return id < sim->clients.count ? &sim->clients.at[id] : NULL;
}

void client_renew_others(struct sim *sim, struct client *client)
{
    struct request *request = &client->request;
    const struct client *partner = partner_of(sim, client);

    if (chance_below(&sim->clients.chance, 4))
        return;
    if (partner && partner->state == CLIENT_HOLDING)
        request->others[request->other_count++] = partner->lock.lease;
    if (client->last_lease)
        request->others[request->other_count++] = client->last_lease;
}

void client_others_renewed(struct sim *sim, struct client *client, const struct answer *answer)
{
    struct client *partner = partner_of(sim, client);

    for (uint32_t i = 0; i < client->request.other_count; i++) {
        uint64_t lease = client->request.others[i];

        if (lease == client->last_lease && answer->others[i] >= 0)
            ends_alive(&sim->check.ends, &sim->check.verdict, client->last_token,
                       client->sent_true_us);
        if (partner && partner->state == CLIENT_HOLDING && lease == partner->lock.lease &&
            answer->others[i] < 0)
            client_gone(sim, partner);
    }
}
