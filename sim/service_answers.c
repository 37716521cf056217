/* service_answers.c: what a session has written becomes an answer to its client. */
#include "sim/service_inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- texts and numbers --------------------------------------------------------------------------- */

/* The digits at the end of "lease-17", "name-3", "MOVED 0 2". */
static uint64_t number_in(const struct resp_node *node)
{
    uint64_t number = 0;
    size_t from = node->size;

    while (from > 0 && node->text[from - 1] >= '0' && node->text[from - 1] <= '9')
        from--;
    for (size_t i = from; i < node->size; i++)
        number = number * 10 + (uint64_t)(node->text[i] - '0');
    return number;
}

static bool begins(const struct resp_node *node, const char *word)
{
    size_t size = strlen(word);

    return node->size >= size && memcmp(node->text, word, size) == 0;
}

static uint64_t integer_of(const struct resp_node *node)
{
    return node && node->type == RESP_INTEGER ? (uint64_t)node->integer : 0;
}

/* Of a map. */
static const struct resp_node *field(const struct resp_node *map, const char *name)
{
    for (uint32_t i = 0; i + 1 < map->count; i += 2)
        if (resp_is(resp_item(map, i), name))
            return resp_item(map, i + 1);
    return NULL;
}

/* ---- SHOW and LOCKS ------------------------------------------------------------------------------- */

/* The tokens of who holds the lock. Returns how many there are. */
static uint32_t read_holders(const struct resp_node *lock, struct check_read *read)
{
    const struct resp_node *holders = field(lock, "holders");
    uint32_t count = 0;

    for (uint32_t i = 0; holders && i < holders->count; i++) {
        const struct resp_node *holder = resp_item(holders, i);

        if (!resp_is(field(holder, "state"), "holds"))
            continue;
        if (read && read->count < CHECK_READ)
            read->tokens[read->count++] = integer_of(field(holder, "token"));
        count++;
    }
    return count;
}

static bool read_names(const struct resp_node *page, struct check_read *read)
{
    const struct resp_node *rows = resp_item(page, 1);

    if (!rows || integer_of(resp_item(page, 0)) != 0)
        return false; /* there is a further page */
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct resp_node *lock = resp_item(rows, i);

        if (read_holders(lock, NULL) > 0)
            read->names |= UINT64_C(1) << number_in(field(lock, "name"));
    }
    return true;
}

/* ---- answers ------------------------------------------------------------------------------------ */

/* False: this is none. */
static bool read_error(const struct asked *asked, const struct resp_node *value,
                       struct answer *answer)
{
    if (begins(value, "MOVED ")) {
        answer->say = SAY_MOVED;
        answer->value = number_in(value);
    } else if (begins(value, "TRYAGAIN ")) {
        answer->say = SAY_MOVED;
    } else if (begins(value, "UNKNOWN ") || begins(value, "REPLACED ")) {
        answer->say = SAY_UNKNOWN;
    } else if (begins(value, "ENDED ") && asked->ask == ASK_RELEASE) { /* as 0, for certain */
        answer->say = SAY_NUMBER;
    } else if (begins(value, "ENDED ")) {
        answer->say = SAY_ENDED;
    } else if (
        begins(value,
               "QUOTA ")) { /* as if somebody else had it: it has nothing, and tries again later */
        answer->say = SAY_BUSY;
    } else if (begins(value, "STALE ") && asked->ask == ASK_FINISH) {
        answer->say = SAY_NUMBER;
    } else {
        return false;
    }
    return true;
}

/* token; nil; QUEUED; of a once-record RUN token, DONE token result */
static bool read_acquired(const struct resp_node *value, struct answer *answer)
{
    if (value->type == RESP_INTEGER) {
        answer->say = SAY_TOKEN;
        answer->value = (uint64_t)value->integer;
    } else if (value->type == RESP_NIL) {
        answer->say = SAY_BUSY;
    } else if (resp_is(value, "QUEUED")) {
        answer->say = SAY_QUEUED;
    } else if (resp_is(resp_item(value, 0), "RUN")) {
        answer->say = SAY_TOKEN;
        answer->value = integer_of(resp_item(value, 1));
    } else if (resp_is(resp_item(value, 0), "DONE") && value->count == 3) {
        answer->say = SAY_DONE;
        answer->value = integer_of(resp_item(value, 1));
        answer->ticket = number_in(resp_item(value, 2));
    } else {
        return false;
    }
    return true;
}

static bool read_renewed(const struct resp_node *value, struct answer *answer)
{
    answer->say = SAY_NUMBER;
    answer->value = integer_of(resp_item(value, 0));
    for (uint32_t i = 1; i < value->count && i <= RENEW_OTHERS; i++)
        answer->others[i - 1] = (int64_t)integer_of(resp_item(value, i));
    return value->type == RESP_ARRAY && value->count > 0;
}

static bool read_answer(const struct asked *asked, const struct resp_node *value,
                        struct answer *answer)
{
    if (value->type == RESP_ERROR)
        return read_error(asked, value, answer);
    switch (asked->ask) {
    case ASK_ACQUIRE:
        return read_acquired(value, answer);
    case ASK_RENEW:
        return read_renewed(value, answer);
    case ASK_SHOW:
        answer->say = SAY_LIST;
        read_holders(value, &answer->read);
        return value->type == RESP_MAP;
    case ASK_LOCKS:
        answer->say = SAY_LIST;
        return read_names(value, &answer->read);
    default:
        answer->say = SAY_NUMBER;
        answer->value = integer_of(value);
        return value->type == RESP_INTEGER;
    }
}

/* ---- pushes -------------------------------------------------------------------------------------- */

/* lost name lease token why, granted name lease token, done name lease token result, left name lease why */
static bool read_push(const struct connection *connection, const struct resp_node *value,
                      struct answer *answer)
{
    const struct resp_node *what = resp_item(value, 0);
    uint64_t lease;

    if (value->count < 4)
        return false;
    lease = number_in(resp_item(value, 2));
    if (resp_is(what, "lost")) {
        answer->say = SAY_LOST;
        answer->value = lease;
        return true;
    }
    if (lease != connection->queued.lease)
        return true; /* of a lock that this client is not about any more */
    answer->number = connection->queued.number;
    if (resp_is(what, "granted") || resp_is(what, "done"))
        answer->value = integer_of(resp_item(value, 3));
    if (resp_is(what, "granted")) {
        answer->say = SAY_TOKEN;
    } else if (resp_is(what, "done") && value->count == 5) {
        answer->say = SAY_DONE;
        answer->ticket = number_in(resp_item(value, 4));
    } else if (resp_is(what, "left")) {
        answer->say = resp_is(resp_item(value, 3), "timeout") ? SAY_BUSY : SAY_ENDED;
    } else {
        return false;
    }
    return true;
}

/* ---- one after the other ------------------------------------------------------------------------- */

static bool read_value(struct connection *connection, const struct resp_node *value,
                       struct answer *answer)
{
    struct asked asked;

    if (value->type == RESP_PUSH)
        return read_push(connection, value, answer);
    if (connection->asked_count == 0)
        return false;
    asked = connection->asked[0];
    memmove(connection->asked, connection->asked + 1,
            --connection->asked_count * sizeof *connection->asked);
    answer->number = asked.number;
    if (!read_answer(&asked, value, answer))
        return false;
    if (answer->say == SAY_QUEUED)
        connection->queued = asked;
    return true;
}

void service_read(struct service *service, struct connection *connection)
{
    const struct resp_writer *out = &connection->session.out;
    struct resp_reader *reader = service->answers;
    const struct resp_node *value;
    struct error_text err;
    size_t size;
    char *room;

    if (out->size == 0)
        return;
    room = resp_reader_room(reader, out->size, &size);
    INVARIANT(room != NULL && !out->failed);
    memcpy(room, out->bytes, out->size);
    resp_reader_filled(reader, out->size);
    while (resp_reader_next(reader, &value, &err) == HF_OK && value) {
        struct answer answer = {.connection = connection->number};

        if (!read_value(connection, value, &answer))
            sim_wrong(service->sim, "node %d says to client %d what it has not asked for: %.*s",
                      (int)service->node->id, connection->client, (int)value->size,
                      value->text ? value->text : "");
        else if (answer.say)
            clients_say(service->sim, service->node, connection->client, &answer);
    }
    if (resp_reader_pending(reader) > 0)
        sim_wrong(service->sim, "node %d says half of something to client %d",
                  (int)service->node->id, connection->client);
}
