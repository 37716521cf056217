/* answers.c: effects of the log become answers to those who asked, and pushes to those who wait or
 * watch. */
#include "server/log.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- an answer is given ------------------------------------------------------------------------ */

/* The request is over: its answer is in `out`. */
void request_finish(struct request *request)
{
    struct connection *connection = request->connection;

    connection->under_way--;
    if (request->waits)
        connection->waits = false;
    connection_dirty(connection);
    if (request->waits || connection->value || !(connection->asked & EPOLLIN))
        connection_ready(connection);
    request_free(connection->server, request);
}

static void finish_error(struct request *request, const char *text)
{
    resp_write_error(&request->connection->out, text);
    request_finish(request);
}

const char *answer_not_leading(struct server *server, char *ret_text, size_t size)
{
    char address[CORE_ADDRESS_MAX + 1];

    if (server->stopped_why[0])
        snprintf(ret_text, size, "STOPPED %s", server->stopped_why);
    else if (cluster_leader_address(server, address, sizeof address))
        snprintf(ret_text, size, "MOVED 0 %s", address);
    else if (server->stopping)
        snprintf(ret_text, size, "TRYAGAIN the server is being stopped");
    else if (server->role == REPLICA_LEADING)
        snprintf(ret_text, size, "TRYAGAIN this node did not lead for a moment");
    else if (server->shut_out)
        snprintf(ret_text, size, "TRYAGAIN %s", server->shut_out);
    else if (server->replica && replica_waits(server->replica))
        snprintf(ret_text, size,
                 "TRYAGAIN this node belongs to no cluster yet: found one with 'holdfast cluster "
                 "init' when all members run, or add this node with 'holdfast cluster add'");
    else
        snprintf(ret_text, size, "TRYAGAIN there is no leader at the moment");
    return ret_text;
}

void answer_failed(void *context, void *about, enum replica_failure failure)
{
    struct server *server = context;
    struct request *request = about;
    char text[ERROR_TEXT_MAX + 32];

    if (!request)
        return;
    if (failure == REPLICA_NOT_LEADING)
        answer_not_leading(server, text, sizeof text);
    else
        snprintf(text, sizeof text,
                 "UNKNOWN it may or may not have taken effect: ask again with the same lease");
    finish_error(request, text);
}

/* ---- answers to commands ------------------------------------------------------------------------ */

static const char *refusal_of(const struct core_effect *effect, char *ret_text, size_t size)
{
    switch (effect->answer) {
    case ANSWER_OTHER_MODE:
        return "MODE this lease has the name in another mode";
    case ANSWER_OTHER_PERMITS:
        if (effect->number)
            snprintf(ret_text, size, "MODE the name is in use with PERMITS %" PRIu64,
                     effect->number);
        else
            snprintf(ret_text, size, "MODE the name is in use without PERMITS");
        return ret_text;
    case ANSWER_ENDED:
        return "ENDED this lease is over: take another";
    case ANSWER_LEASES_FULL:
        return "LIMIT there are too many leases";
    case ANSWER_LOCKS_FULL:
        return "LIMIT there are too many names in use";
    case ANSWER_CLAIMS_FULL:
        return "LIMIT there are too many holds and places";
    case ANSWER_QUEUE_FULL:
        return "LIMIT the queue of this name is full";
    case ANSWER_TOKENS_SPENT:
        return "LIMIT there are no tokens left";
    case ANSWER_STALE:
        snprintf(ret_text, size,
                 "STALE this lease and token do not hold the record; the newest token is %" PRIu64,
                 effect->number);
        return ret_text;
    default:
        return NULL;
    }
}

/* What became of an ACQUIRE or a CLAIM that is over. */
static void write_outcome(struct connection *connection, const struct request *request,
                          const char *word, uint64_t number, const struct core_text *result)
{
    struct resp_writer *out = &connection->out;

    if (!request->once) {
        resp_write_integer(out, (int64_t)number);
        return;
    }
    resp_write_array(out, result ? 3 : 2);
    resp_write_text(out, word);
    resp_write_integer(out, (int64_t)number);
    if (result)
        resp_write_blob(out, result->bytes, result->size);
}

/* Somebody else waited at this place with the same lease: the later one gets the answer. */
static void replaced(struct waiter *waiter, const struct connection *by)
{
    struct request *request = waiter->request;

    if (request) {
        waiter->request = NULL;
        waiter_remove(waiter);
        finish_error(request, "REPLACED another connection waits with this lease");
    } else {
        if (waiter->connection != by)
            log_debug("a waiting lease came back on another connection");
        waiter_remove(waiter);
    }
}

static void answer_queued(struct request *request, const struct core_effect *effect)
{
    struct connection *connection = request->connection;
    struct waiter *before = waiter_find(connection->server, effect->ticket);

    if (before)
        replaced(before, connection);
    if (request->push) {
        if (!connection->closed)
            waiter_add(connection, effect->ticket, effect->attachment, NULL);
        resp_write_simple(&connection->out, "QUEUED");
        request_finish(request);
    } else {
        struct waiter *waiter = waiter_add(connection, effect->ticket, effect->attachment, request);

        if (connection->closed)
            waiter_leave(waiter);
        else
            connection->blocked = waiter;
    }
}

static void answer(struct request *request, const struct core_effect *effect)
{
    struct connection *connection = request->connection;
    struct resp_writer *out = &connection->out;
    char text[128];

    switch (effect->answer) {
    case ANSWER_TOKEN:
        holder_set(connection, effect->number);
        write_outcome(connection, request, "RUN", effect->number, NULL);
        break;
    case ANSWER_BUSY:
        resp_write_nil(out, connection->resp3);
        break;
    case ANSWER_QUEUED:
        answer_queued(request, effect);
        return;
    case ANSWER_DONE:
        write_outcome(connection, request, "DONE", effect->number, &effect->result);
        break;
    case ANSWER_DIED:
        write_outcome(connection, request, "DIED", effect->number, NULL);
        break;
    case ANSWER_NUMBER:
        resp_write_integer(out, (int64_t)effect->number);
        break;
    default:
        resp_write_error(out, refusal_of(effect, text, sizeof text));
        break;
    }
    request_finish(request);
}

/* RENEW has an answer for each of its leases. */
static void answer_part(struct request *request, const struct core_effect *effect)
{
    struct resp_writer *out = &request->connection->out;

    if ((int64_t)effect->number >= 0)
        holder_renewed(request->connection, effect->lease);
    if (request->parts == request->total)
        resp_write_array(out, request->total);
    resp_write_integer(out, span_shown((int64_t)effect->number));
    if (--request->parts == 0)
        request_finish(request);
}

/* ---- those who wait ------------------------------------------------------------------------------ */

static const char *const why_words[] = {
    [WHY_GRANTED] = "granted", [WHY_RELEASED] = "released", [WHY_EXPIRED] = "expired",
    [WHY_BROKEN] = "broken",   [WHY_ENDED] = "ended",       [WHY_WAIT_OVER] = "timeout",
    [WHY_LEFT] = "left",       [WHY_FINISHED] = "finished", [WHY_DIED] = "died",
};

/* A place is over, for better or worse: >4 word name lease number, and what goes with it. */
static void push_waiter(struct waiter *waiter, const char *word, const struct core_effect *effect)
{
    struct connection *connection = waiter->connection;
    struct resp_writer *out = &connection->out;
    bool result = effect->kind == EFFECT_DONE, left = effect->kind == EFFECT_LEFT;
    bool died = left && effect->why == WHY_DIED;

    resp_write_push(out, result || died ? 5 : 4, true);
    resp_write_text(out, word);
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, effect->lease.bytes, effect->lease.size);
    if (left)
        resp_write_text(out, why_words[effect->why]);
    if (!left || died)
        resp_write_integer(out, (int64_t)effect->number);
    if (result)
        resp_write_blob(out, effect->result.bytes, effect->result.size);
    connection_dirty(connection);
}

static void write_left(struct connection *connection, const struct request *request,
                       const struct core_effect *effect)
{
    struct resp_writer *out = &connection->out;

    if (effect->why == WHY_DIED)
        write_outcome(connection, request, "DIED", effect->number, NULL);
    else if (effect->why == WHY_WAIT_OVER || effect->why == WHY_LEFT)
        resp_write_nil(out, connection->resp3);
    else
        resp_write_error(out, "ENDED this lease is over: take another");
}

static void waiter_told(struct server *server, const struct core_effect *effect)
{
    struct waiter *waiter = waiter_find(server, effect->ticket);
    struct connection *connection;
    struct request *request;

    if (!waiter)
        return;
    connection = waiter->connection;
    request = waiter->request;
    /* A grant under another leader: the lease's time may have begun long before it. The client is told to come anew. */
    if (request && server->role != REPLICA_LEADING)
        return;
    if (effect->kind == EFFECT_GRANTED)
        holder_set(connection, effect->number);
    if (!request) {
        push_waiter(waiter,
                    effect->kind == EFFECT_GRANTED ? "granted"
                    : effect->kind == EFFECT_DONE  ? "done"
                                                   : "left",
                    effect);
        waiter_remove(waiter);
        return;
    }
    if (effect->kind == EFFECT_GRANTED)
        write_outcome(connection, request, "RUN", effect->number, NULL);
    else if (effect->kind == EFFECT_DONE)
        write_outcome(connection, request, "DONE", effect->number, &effect->result);
    else
        write_left(connection, request, effect);
    waiter->request = NULL;
    waiter_remove(waiter);
    request_finish(request);
}

/* ---- those who watch ----------------------------------------------------------------------------- */

/* >5 changed name why token owner; in RESP2 *3 message name "why token owner". */
static void tell_observer(struct observer *observer, void *context)
{
    const struct core_effect *effect = context;
    struct connection *connection = observer->connection;
    struct resp_writer *out = &connection->out;
    const char *why = why_words[effect->why];

    if (observer->subscribed) {
        char text[HF_OWNER_MAX + 64];
        int size = snprintf(text, sizeof text, "%s %" PRIu64 " %.*s", why, effect->number,
                            (int)effect->owner.size, effect->owner.bytes);

        resp_write_push(out, 3, connection->resp3);
        resp_write_text(out, "message");
        resp_write_blob(out, effect->name.bytes, effect->name.size);
        resp_write_blob(out, text, (size_t)size);
    } else {
        resp_write_push(out, 5, true);
        resp_write_text(out, "changed");
        resp_write_blob(out, effect->name.bytes, effect->name.size);
        resp_write_text(out, why);
        resp_write_integer(out, (int64_t)effect->number);
        resp_write_blob(out, effect->owner.bytes, effect->owner.size);
    }
    connection_dirty(connection);
}

/* ---- effects ------------------------------------------------------------------------------------- */

void answer_effect(void *context, void *about, const struct core_effect *effect)
{
    struct server *server = context;
    struct request *request = about;

    switch (effect->kind) {
    case EFFECT_ANSWER:
        if (request && request->command->run == command_renew)
            answer_part(request, effect);
        else if (request)
            answer(request, effect);
        break;
    case EFFECT_READ:
        if (request) {
            read_now(request);
            request_finish(request);
        }
        break;
    case EFFECT_GRANTED:
    case EFFECT_LEFT:
    case EFFECT_DONE:
        waiter_told(server, effect);
        break;
    case EFFECT_CHANGED:
        if (server->holders.count && effect->why != WHY_GRANTED)
            holder_ended(server, effect, why_words[effect->why]);
        if (server->observers.count && !effect->once)
            observers_each(server, effect->name, tell_observer, (void *)effect);
        break;
    }
}

void answer_all_blocked(struct server *server)
{
    char text[ERROR_TEXT_MAX + 32];

    answer_not_leading(server, text, sizeof text);
    LIST_EACH_SAFE(node, &server->connections)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        struct waiter *blocked = connection->blocked;

        if (blocked) {
            struct request *request = blocked->request;

            blocked->request = NULL;
            waiter_remove(blocked);
            finish_error(request, text);
        }
        /* What was to be pushed will be pushed by another node: they have to come anew. */
        if (connection->waiting || connection->observing)
            connection_end(connection);
    }
}
