/* service.c: connections of clients: what comes on them goes to their sessions, as in the server's connection.c. */
#include "base/switches.h"
#include "session/rights.h"
#include "sim/context.h"
#include "sim/service_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIPELINE 1024    /* commands that may be under way, */
#define MAX_OUTPUT (1 << 20) /* and bytes of answers: more than any client here has */

static const struct resp_limits limits = {
    .blob_max = MAX_OUTPUT, .value_max = MAX_OUTPUT, .nodes_max = MAX_OUTPUT};

static struct service *service_of(struct session *session)
{
    return LIST_ENTRY(session->sessions, struct service, sessions);
}

static int64_t now_ms(const struct sim *sim, const struct node *node)
{
    return node_now_us(sim, node) / 1000;
}

/* ---- what sessions want of their node ---------------------------------------------------------- */

static int on_submit(void *context, const struct core_command *command, void *request)
{
    struct service *service = context;
    struct node *node = service->node;

    if (SWITCHED(SWITCH_LOCAL_READ) && command->op == CORE_READ && node->role == REPLICA_LEADING &&
        sessions_asker(request)->under_way == 0) {
        service->read_here = request;
        return HF_OK;
    }
    return replica_submit(node->replica, command, request, node_now_us(service->sim, node));
}

static const struct core *on_table(void *context)
{
    const struct service *service = context;

    return replica_table(service->node->replica);
}

static bool on_leader_address(void *context, char *ret_text, size_t size)
{
    const struct service *service = context;
    const struct node *node = service->node;
    uint64_t leader = node->replica ? replica_leader(node->replica) : 0;

    if (leader == 0 || leader == node->id)
        return false;
    snprintf(ret_text, size, "%llu", (unsigned long long)leader);
    return true;
}

static const char *on_why_no_leader(void *context)
{
    (void)context;
    return "there is no leader at the moment";
}

static void on_dirty(struct session *session)
{
    struct connection *connection = connection_of(session);

    if (!session_is_closed(session) && list_empty(&connection->dirty))
        list_append(&service_of(session)->dirty, &connection->dirty);
}

static void make_ready(struct connection *connection)
{
    if (!session_is_closed(&connection->session) && list_empty(&connection->ready))
        list_append(&service_of(&connection->session)->ready, &connection->ready);
}

static void on_answered(struct session *session, bool waited)
{
    on_dirty(session);
    if (waited || session->input == INPUT_VALUE)
        make_ready(connection_of(session));
}

static void on_unused(struct session *session)
{
    session_free(session);
    free(connection_of(session));
}

/* ---- connections -------------------------------------------------------------------------------- */

/* The client has said HELLO 3 LOSSES. */
static struct connection *open_connection(struct service *service, int client, uint64_t number)
{
    struct connection *connection = calloc(1, sizeof *connection);
    struct resp_reader *reader = resp_reader_new(&limits);

    INVARIANT(connection != NULL && reader != NULL);
    connection->client = client;
    connection->number = number;
    list_init(&connection->ready);
    list_init(&connection->dirty);
    resp_reader_share(reader, &service->spare);
    connection->session.resp3 = connection->session.losses = true;
    connection->session.user =
        service->sim->swarm.holds ? &service->users[client % SERVICE_USERS] : &user_of_all;
    session_open(&service->sessions, &connection->session, &resp_protocol, reader);
    return connection;
}

static void close_connection(struct connection *connection)
{
    struct service *service = service_of(&connection->session);

    if (connection->number > service->closed[connection->client])
        service->closed[connection->client] = connection->number;
    session_close(&connection->session);
    list_remove(&connection->ready);
    list_remove(&connection->dirty);
    session_unref(&connection->session);
}

static struct connection *find_connection(struct service *service, int client, uint64_t number)
{
    LIST_EACH(node, &service->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, session.node);

        if (connection->client == client && connection->number == number)
            return connection;
    }
    return NULL;
}

void service_open(struct sim *sim, struct node *node)
{
    static const struct sessions_host host = {.submit = on_submit,
                                              .table = on_table,
                                              .leader_address = on_leader_address,
                                              .why_no_leader = on_why_no_leader,
                                              .dirty = on_dirty,
                                              .answered = on_answered,
                                              .unused = on_unused};
    static const unsigned char seed[SIPHASH_SEED] = {1};
    struct service *service = &node->service;

    *service = (struct service){.sim = sim, .node = node, .is_open = true};
    list_init(&service->ready);
    list_init(&service->dirty);
    for (int i = 0; i < SERVICE_USERS; i++) {
        service->users[i] = user_of_all;
        service->users[i].name[0] = (char)('a' + i);
        service->users[i].name[1] = '\0';
        service->users[i].quota.holds = sim->swarm.holds;
    }
    service->answers = resp_reader_new(&limits);
    INVARIANT(service->answers != NULL);
    sessions_open(&service->sessions, &host, service, seed);
    service->sessions.max_pipeline = MAX_PIPELINE;
    service->sessions.max_output_bytes = MAX_OUTPUT;
}

void service_free(struct node *node)
{
    struct service *service = &node->service;

    if (!service->is_open)
        return;
    LIST_EACH_SAFE(at, &service->sessions.all)
    close_connection(LIST_ENTRY(at, struct connection, session.node));
    sessions_free(&service->sessions);
    resp_spare_free(&service->spare);
    resp_writer_free(&service->words);
    resp_reader_free(service->answers);
    memset(service, 0, sizeof *service);
}

/* ---- what comes ---------------------------------------------------------------------------------- */

static void go_on(struct service *service, struct connection *connection)
{
    struct error_text err;
    int result = session_go_on(&connection->session, &err);

    if (result == HF_OK && connection->session.input != INPUT_VALUE) /* as in the server */
        resp_reader_rest(connection->session.reader);
    if (result == SESSION_FULL)
        make_ready(connection);
    else if (result != HF_OK)
        sim_wrong(service->sim, "node %d cannot read a request: %s", (int)service->node->id,
                  err.text);
    if (service->read_here) {
        void *request = service->read_here;

        service->read_here = NULL;
        sessions_effect(&service->sessions, request, &(struct core_effect){.kind = EFFECT_READ});
    }
}

static void receive(struct connection *connection, const struct resp_writer *words)
{
    struct resp_reader *reader = connection->session.reader;
    size_t size;
    char *room = resp_reader_room(reader, words->size, &size);

    INVARIANT(room != NULL && !words->failed);
    memcpy(room, words->bytes, words->size);
    resp_reader_filled(reader, words->size);
}

void service_request(struct sim *sim, struct node *node, const struct request *request)
{
    struct service *service = &node->service;
    struct connection *connection;

    (void)sim;
    if (request->connection <= service->closed[request->client])
        return;
    connection = find_connection(service, request->client, request->connection);
    if (!connection)
        connection = open_connection(service, request->client, request->connection);
    INVARIANT(connection->asked_count < ASKED_MAX);
    connection->asked[connection->asked_count++] = (struct asked){.ask = request->ask,
                                                                  .once = request->once,
                                                                  .number = request->number,
                                                                  .lease = request->lease};
    resp_writer_clear(&service->words);
    service_write(&service->words, request);
    receive(connection, &service->words);
    go_on(service, connection);
}

void service_hangup(struct sim *sim, struct node *node, int client, uint64_t number)
{
    struct service *service = &node->service;

    (void)sim;
    if (number > service->closed[client])
        service->closed[client] = number;
    LIST_EACH_SAFE(at, &service->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(at, struct connection, session.node);

        if (connection->client == client && connection->number <= number)
            close_connection(connection);
    }
}

/* ---- rounds ------------------------------------------------------------------------------------- */

static uint32_t count_under_way(struct service *service)
{
    uint32_t count = 0;

    LIST_EACH(at, &service->sessions.all)
    {
        const struct session *session = LIST_ENTRY(at, struct session, node);

        count += session->blocked ? 0 : session->under_way;
    }
    return count;
}

uint32_t service_round(struct sim *sim, struct node *node)
{
    struct service *service = &node->service;
    struct list now;

    sessions_look(&service->sessions, now_ms(sim, node));
    /* Whom the full batch had no room for comes back to the list, and is served in the next round. */
    list_init(&now);
    while (!list_empty(&service->ready)) {
        struct list *first = service->ready.next;

        list_remove(first);
        list_append(&now, first);
    }
    while (!list_empty(&now)) {
        struct connection *connection = LIST_ENTRY(now.next, struct connection, ready);

        list_remove(&connection->ready);
        go_on(service, connection);
    }
    sessions_leave(&service->sessions);
    return count_under_way(service);
}

static void flush(struct service *service, struct connection *connection)
{
    struct session *session = &connection->session;

    service_read(service, connection);
    resp_writer_clear(&session->out);
    if (!session_is_done(session))
        return;
    clients_say(service->sim, service->node, connection->client,
                &(struct answer){.say = SAY_UNKNOWN, .connection = connection->number});
    close_connection(connection);
}

void service_flush(struct sim *sim, struct node *node)
{
    struct service *service = &node->service;

    while (!list_empty(&service->dirty)) {
        struct connection *connection = LIST_ENTRY(service->dirty.next, struct connection, dirty);

        list_remove(&connection->dirty);
        flush(service, connection);
    }
    if (!list_empty(&service->ready) || !list_empty(&service->sessions.leaving))
        node_fed(sim, node);
}

void service_role(struct sim *sim, struct node *node, enum replica_role role)
{
    sessions_role(&node->service.sessions, role, now_ms(sim, node));
}

/* ---- what the replica tells ---------------------------------------------------------------------- */

/* The checkers are told of each place as it is made. */
static void see_place(struct service *service, const struct connection *connection, uint64_t ticket)
{
    for (uint32_t i = 0; i < connection->asked_count; i++)
        if (connection->asked[i].ask == ASK_ACQUIRE && !connection->asked[i].once)
            clients_place(service->sim, connection->client, connection->asked[i].lease, ticket);
}

void service_effect(void *opaque, void *request, const struct core_effect *effect)
{
    struct node_context *context = opaque;
    struct service *service = &context->node->service;

    if (request && effect->kind == EFFECT_ANSWER && effect->answer == ANSWER_QUEUED)
        see_place(service, connection_of(sessions_asker(request)), effect->ticket);
    sessions_effect(&service->sessions, request, effect);
}

void service_failed(void *opaque, void *request, enum replica_failure failure)
{
    struct node_context *context = opaque;

    sessions_failed(&context->node->service.sessions, request, failure);
}
