/* clients_answers.c: what clients are told, and what they make of it. */
#include "sim/clients_inside.h"

#define WHOLE_SIMULATION_US (600000LL * MS)

/* ---- answers ---------------------------------------------------------------------------------- */

/* How long a result is certainly kept that was sent then; 0: this client does not know when. */
static int64_t kept_until_us(const struct client *client, int64_t finished_us)
{
    int64_t keep_us = (int64_t)client->lock.keep_ms * MS;

    if (keep_us > WHOLE_SIMULATION_US)
        return CHECK_FOREVER;
    return finished_us ? finished_us + keep_us - keep_us / 100 : 0;
}

static void on_acquire(struct sim *sim, struct client *client, const struct answer *answer,
                       int64_t now)
{
    switch (answer->say) {
    case SAY_TOKEN:
        /* A push: what was acknowledged last counts, and that is in base_us. */
        if (client->asking && client->request.number == answer->number &&
            client->state == CLIENT_ACQUIRING)
            client->base_us = SWITCHED(SWITCH_LEASE_FROM_ANSWER) ? now : client->sent_us;
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
                  client->asked_us, sim->now_us, kept_until_us(client, 0));
        client_become_idle(sim, client, now);
        break;
    case SAY_ENDED:
        if (!client->lock.push)
            leases_blocked(&sim->check.verdict, client->lock.lease, client->asked);
        /* fall through */
    case SAY_BUSY:
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
    client_others_renewed(sim, client, answer);
    if ((int64_t)answer->value < 0) {
        if (client->state != CLIENT_CONFIRMING)
            client_gone(sim, client);
        client_stop_holding(sim, client, LOST_GONE);
        client_become_idle(sim, client, now);
        return;
    }
    ends_alive(&sim->check.ends, &sim->check.verdict, client->token, client->sent_true_us);
    client->base_us = SWITCHED(SWITCH_LEASE_FROM_ANSWER) ? now : client->sent_us;
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

/* Its hold has ended as it wanted. */
static void on_over(struct sim *sim, struct client *client, int64_t now)
{
    ends_told(&sim->check.ends, client->token, sim->now_us);
    client->last_lease = client->lock.lease;
    client->last_token = client->token;
    client_become_idle(sim, client, now);
}

static void on_number(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now)
{
    switch (client->request.ask) {
    case ASK_RENEW:
        on_renew(sim, client, answer, now);
        return;
    case ASK_FINISH:
        if (answer->value == 1)
            once_told(&sim->check.once, &sim->check.verdict, client->lock.name, client->lock.result,
                      client->finished_us, sim->now_us, kept_until_us(client, client->finished_us));
        /* fall through */
    case ASK_RELEASE:
        if (answer->value == 0 && !client->repeated)
            client_gone(sim, client);
        if (answer->value && client->request.ask == ASK_RELEASE)
            ends_alive(&sim->check.ends, &sim->check.verdict, client->token, client->sent_true_us);
        on_over(sim, client, now);
        return;
    case ASK_CHECK:
        client->asking = false;
        if (answer->value == 0)
            client_gone(sim, client);
        else
            ends_alive(&sim->check.ends, &sim->check.verdict, client->token, client->sent_true_us);
        return;
    case ASK_END:
        tokens_ended(&sim->check.tokens, client->lock.lease);
        on_over(sim, client, now);
        return;
    case ASK_BREAK:
    case ASK_FLOOR:
        client_beside_answered(sim, client, answer, now);
        return;
    default:
        client->asking = false;
    }
}

/* It holds no more, and nobody asked for that. */
static void on_lost(struct sim *sim, struct client *client, const struct answer *answer,
                    int64_t now)
{
    if (client->state != CLIENT_HOLDING || client->lock.lease != answer->value)
        return;
    client_gone(sim, client);
    client_stop_holding(sim, client, LOST_GONE);
    client_become_idle(sim, client, now);
}

bool client_is_asked(const struct client *client, const struct answer *answer)
{
    if (answer->connection != client->connection || client->state == CLIENT_DEAD)
        return false;
    if (answer->number == 0 || (client->asking && answer->number == client->request.number))
        return true;
    return client->state == CLIENT_QUEUED && answer->number == client->lock.number &&
           (answer->say == SAY_TOKEN || answer->say == SAY_DONE || answer->say == SAY_BUSY ||
            answer->say == SAY_ENDED || answer->say == SAY_MOVED);
}

void client_on_answer(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now)
{
    trace(&sim->trace, sim->now_us, TRACE_TOLD, (uint64_t)client->id, answer->number, answer->say,
          answer->value);
    switch (answer->say) {
    case SAY_MOVED:
        if (client->asking && answer->number == client->request.number)
            client_beside_refused(sim, client);
        /* fall through */
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
    case SAY_LIST:
        client_beside_answered(sim, client, answer, now);
        break;
    case SAY_LOST:
        on_lost(sim, client, answer, now);
        break;
    default:
        if (answer->say == SAY_QUEUED)
            client->lock.number = answer->number;
        on_acquire(sim, client, answer, now);
    }
}
