#include "sim/service.h"

#include "sim/context.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MS 3600000 /* a result: longer than any simulation */

struct pending {
    struct pending *next;
    struct request request;
    uint64_t ticket;
    uint32_t attachment;
    char name[32], lease[32], result[32];
};

static void say(struct sim *sim, struct node *node, const struct pending *pending, enum say what,
                uint64_t value)
{
    const struct request *request = &pending->request;

    if (request->ask == ASK_LEAVE || node->dying || !node->up)
        return;
    clients_say(sim, node, request->client,
                &(struct answer){.say = what,
                                 .connection = request->connection,
                                 .number = request->number,
                                 .value = value,
                                 .ticket = pending->ticket});
}

/* ---- requests --------------------------------------------------------------------------------- */

static struct core_text text_of(const char *bytes)
{
    return (struct core_text){bytes, strlen(bytes)};
}

/* A millisecond more: the table's clock may be so much behind. */
static void command_of(const struct pending *pending, struct core_text *lease,
                       struct core_command *ret_command)
{
    static const enum core_op ops[] = {
        [ASK_ACQUIRE] = CORE_ACQUIRE, [ASK_RELEASE] = CORE_RELEASE, [ASK_RENEW] = CORE_RENEW,
        [ASK_END] = CORE_END,         [ASK_CHECK] = CORE_READ,      [ASK_LEAVE] = CORE_LEAVE,
        [ASK_FINISH] = CORE_FINISH};
    const struct request *request = &pending->request;
    struct core_command *command = ret_command;

    *lease = text_of(pending->lease);
    *command =
        (struct core_command){.op = ops[request->ask], .flags = request->once ? CORE_ONCE : 0};
    switch (request->ask) {
    case ASK_ACQUIRE:
        command->name = text_of(pending->name);
        command->lease = *lease;
        command->mode = request->mode;
        command->permits = request->mode == HF_PERMIT ? request->permits : 0;
        command->ttl_ms = request->ttl_ms + 1;
        command->delay_ms = request->delay_ms;
        if (request->waits) {
            command->flags |= CORE_WAITS | (request->push ? 0 : CORE_KEPT);
            command->wait_ms = request->wait_ms + 1;
        }
        break;
    case ASK_RELEASE:
        command->name = text_of(pending->name);
        command->lease = *lease;
        command->token = request->token;
        break;
    case ASK_FINISH:
        command->name = text_of(pending->name);
        command->lease = *lease;
        command->token = request->token;
        command->keep_ms = KEPT_MS;
        command->result = text_of(pending->result);
        break;
    case ASK_RENEW:
        command->flags = 0;
        command->ttl_ms = request->ttl_ms + 1;
        command->leases = lease;
        command->lease_count = 1;
        break;
    case ASK_END:
        command->flags = 0;
        command->lease = *lease;
        command->ttl_ms = request->ttl_ms + 1;
        break;
    case ASK_LEAVE:
        command->name = text_of(pending->name);
        command->lease = *lease;
        command->attachment = request->attachment;
        break;
    case ASK_CHECK:
        command->flags = 0;
        break;
    }
}

/* Takes it. False: the batch is full, and it stays the caller's. */
static bool submit(struct sim *sim, struct node *node, struct pending *pending)
{
    struct core_command command;
    struct core_text lease;
    int status;

    command_of(pending, &lease, &command);
    status = replica_submit(node->replica, &command, pending, node_now_us(sim, node));
    if (status == HF_EBUSY)
        return false;
    if (status == HF_OK) {
        node->service.under_way++;
        return true;
    }
    if (status == HF_EUNREACH)
        say(sim, node, pending, SAY_MOVED, replica_leader(node->replica));
    else
        sim_wrong(sim, "node %d refuses a command that obeys all limits", (int)node->id);
    free(pending);
    return true;
}

static void submit_or_keep(struct sim *sim, struct node *node, struct pending *pending)
{
    struct service *service = &node->service;

    if (!service->backlog && submit(sim, node, pending))
        return;
    if (service->backlog)
        service->backlog_last->next = pending;
    else
        service->backlog = pending;
    service->backlog_last = pending;
}

void service_request(struct sim *sim, struct node *node, const struct request *request)
{
    struct pending *pending;

    if (request->connection <= node->service.closed[request->client])
        return;
    pending = calloc(1, sizeof *pending);
    INVARIANT(pending != NULL);
    pending->request = *request;
    snprintf(pending->name, sizeof pending->name, request->once ? "key-%d" : "name-%d",
             request->name);
    snprintf(pending->result, sizeof pending->result, "%llu", (unsigned long long)request->result);
    snprintf(pending->lease, sizeof pending->lease, "lease-%llu",
             (unsigned long long)request->lease);
    submit_or_keep(sim, node, pending);
}

void service_backlog(struct sim *sim, struct node *node)
{
    struct service *service = &node->service;

    while (service->backlog) {
        struct pending *pending = service->backlog, *next = pending->next;

        pending->next = NULL;
        if (!submit(sim, node, pending)) {
            pending->next = next;
            return;
        }
        service->backlog = next;
    }
    service->backlog_last = NULL;
}

/* ---- who waits -------------------------------------------------------------------------------- */

static struct pending **waiting_at(struct service *service, uint64_t ticket)
{
    struct pending **at = &service->waiting;

    while (*at && (*at)->ticket != ticket)
        at = &(*at)->next;
    return at;
}

static struct pending *take_waiting(struct service *service, uint64_t ticket)
{
    struct pending **at = waiting_at(service, ticket), *found = *at;

    if (found) {
        *at = found->next;
        found->next = NULL;
    }
    return found;
}

/* If two wait at one place, the later gets the answer. */
static void keep_waiting(struct service *service, struct pending *pending)
{
    free(take_waiting(service, pending->ticket));
    pending->next = service->waiting;
    service->waiting = pending;
}

void service_hangup(struct sim *sim, struct node *node, int client, uint64_t connection)
{
    struct pending **at = &node->service.waiting;

    if (connection > node->service.closed[client])
        node->service.closed[client] = connection;
    while (*at) {
        struct pending *pending = *at;

        if (pending->request.client != client || pending->request.connection > connection) {
            at = &pending->next;
            continue;
        }
        *at = pending->next;
        pending->next = NULL;
        if (pending->request.push) { /* its lease runs by itself */
            free(pending);
            continue;
        }
        pending->request.ask = ASK_LEAVE;
        pending->request.attachment = pending->attachment;
        submit_or_keep(sim, node, pending);
        at = &node->service.waiting; /* others may have been answered meanwhile */
    }
}

void service_deposed(struct sim *sim, struct node *node)
{
    while (node->service.waiting) {
        struct pending *pending = node->service.waiting;

        node->service.waiting = pending->next;
        say(sim, node, pending, SAY_MOVED, replica_leader(node->replica));
        free(pending);
    }
}

void service_free(struct node *node)
{
    struct service *service = &node->service;

    for (int i = 0; i < 2; i++) {
        struct pending **list = i ? &service->waiting : &service->backlog;

        while (*list) {
            struct pending *pending = *list;

            *list = pending->next;
            free(pending);
        }
    }
    memset(service, 0, sizeof *service);
}

/* ---- effects ---------------------------------------------------------------------------------- */

static void say_done(struct sim *sim, struct node *node, struct pending *pending,
                     const struct core_effect *effect)
{
    char text[32] = "";

    if (effect->result.size < sizeof text)
        memcpy(text, effect->result.bytes, effect->result.size);
    pending->ticket = strtoull(text, NULL, 10);
    say(sim, node, pending, SAY_DONE, effect->number);
}

static void answer_acquire(struct sim *sim, struct node *node, struct pending *pending,
                           const struct core_effect *effect)
{
    switch (effect->answer) {
    case ANSWER_TOKEN:
        say(sim, node, pending, SAY_TOKEN, effect->number);
        break;
    case ANSWER_BUSY:
        say(sim, node, pending, SAY_BUSY, 0);
        break;
    case ANSWER_DONE:
        say_done(sim, node, pending, effect);
        break;
    case ANSWER_ENDED:
        say(sim, node, pending, SAY_ENDED, 0);
        break;
    case ANSWER_QUEUED:
        pending->ticket = effect->ticket;
        pending->attachment = effect->attachment;
        if (!pending->request.once)
            clients_place(sim, &pending->request, effect->ticket);
        if (pending->request.push)
            say(sim, node, pending, SAY_QUEUED, effect->ticket);
        keep_waiting(&node->service, pending);
        return;
    default:
        say(sim, node, pending, SAY_REFUSED, (uint64_t)effect->answer);
        break;
    }
    free(pending);
}

static void answer(struct sim *sim, struct node *node, struct pending *pending,
                   const struct core_effect *effect)
{
    node->service.under_way--;
    if (pending->request.ask == ASK_ACQUIRE) {
        answer_acquire(sim, node, pending, effect);
        return;
    }
    if (pending->request.ask == ASK_CHECK)
        say(sim, node, pending, SAY_NUMBER,
            core_alive(replica_table(node->replica), text_of(pending->name),
                       pending->request.token));
    else
        say(sim, node, pending, SAY_NUMBER, effect->answer == ANSWER_STALE ? 0 : effect->number);
    free(pending);
}

void service_effect(void *opaque, void *request, const struct core_effect *effect)
{
    struct node_context *context = opaque;
    struct sim *sim = context->sim;
    struct node *node = context->node;
    struct pending *waiting;

    if (request) {
        answer(sim, node, request, effect);
        return;
    }
    if (effect->kind != EFFECT_GRANTED && effect->kind != EFFECT_LEFT &&
        effect->kind != EFFECT_DONE)
        return;
    waiting = take_waiting(&node->service, effect->ticket);
    if (!waiting)
        return;
    if (effect->kind == EFFECT_GRANTED)
        say(sim, node, waiting, SAY_TOKEN, effect->number);
    else if (effect->kind == EFFECT_DONE)
        say_done(sim, node, waiting, effect);
    else
        say(sim, node, waiting, effect->why == WHY_WAIT_OVER ? SAY_BUSY : SAY_ENDED, 0);
    free(waiting);
}

void service_failed(void *opaque, void *request, enum replica_failure failure)
{
    struct node_context *context = opaque;
    struct pending *pending = request;

    context->node->service.under_way--;
    say(context->sim, context->node, pending,
        failure == REPLICA_NOT_LEADING ? SAY_MOVED : SAY_UNKNOWN, 0);
    free(pending);
}
