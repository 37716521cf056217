/* test_exchange.c: questions and answers over links: whose answer is whose, what was sent and what
 * was not, and how little a server that hangs costs. */
#include "base/clock.h"
#include "net/exchange.h"
#include "peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHORT_MS 100  /* for what must not be answered */
#define SILENT_MS 700 /* after which each of two addresses would have been left */
#define STEPS_MAX 8

/* A server that answers its n-th command with steps[n]. "~X" is said only when the next command
 * comes, before the answer to that; "!" closes the connection; "" says nothing. */
struct server {
    int listening;
    int port;
    const char *steps[STEPS_MAX];
    pthread_t thread;
    _Atomic int commands; /* heard */
};

static void say(int fd, const char *text)
{
    assert_int_equal(strlen(text), send(fd, text, strlen(text), MSG_NOSIGNAL));
}

static bool answer(struct server *server, int fd, const char **late)
{
    int n = atomic_fetch_add(&server->commands, 1);
    const char *step = n < STEPS_MAX && server->steps[n] ? server->steps[n] : "";

    if (*late)
        say(fd, *late);
    *late = NULL;
    if (*step == '!')
        return false;
    if (*step == '~')
        *late = step + 1;
    else if (*step)
        say(fd, step);
    return true;
}

static void *serve(void *arg)
{
    static const struct resp_limits limits = {1000, 10000, 100};
    struct server *server = arg;
    struct resp_reader *reader = resp_reader_new(&limits);
    int fd = accept(server->listening, NULL, NULL);
    const char *late = NULL;
    bool goes_on = fd >= 0 && reader;

    while (goes_on) {
        const struct resp_node *value = NULL;
        struct error_text err;
        size_t room;
        char *bytes = resp_reader_room(reader, 100, &room);
        ssize_t came = bytes ? recv(fd, bytes, room, 0) : -1;

        if (came <= 0)
            break;
        resp_reader_filled(reader, (size_t)came);
        while (goes_on && resp_reader_next(reader, &value, &err) == HF_OK && value)
            goes_on = answer(server, fd, &late);
    }
    if (fd >= 0)
        close(fd);
    resp_reader_free(reader);
    return NULL;
}

static void server_start(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    server->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(0, bind(server->listening, (struct sockaddr *)&address, size));
    assert_int_equal(0, listen(server->listening, 1));
    assert_int_equal(0, getsockname(server->listening, (struct sockaddr *)&address, &size));
    server->port = ntohs(address.sin_port);
    assert_int_equal(0, pthread_create(&server->thread, NULL, serve, server));
}

static void server_end(struct server *server)
{
    shutdown(server->listening, SHUT_RDWR); /* in case nobody came */
    pthread_join(server->thread, NULL);
    close(server->listening);
}

/* ---- a client of it -------------------------------------------------------------------------- */

#define PING "*1\r\n$4\r\nPING\r\n"

static struct access nobody;

static int handshake_reply(void *context, int index, const struct resp_node *reply,
                           struct error_text *err)
{
    int *greeted = context;

    (void)index;
    if (reply->type == RESP_ERROR)
        return error_set(err, HF_EREFUSED, "refused: %.*s", (int)reply->size, reply->text);
    ++*greeted;
    return HF_OK;
}

static void handshake_write(void *context, struct resp_writer *writer)
{
    (void)context;
    resp_write_raw(writer, PING, strlen(PING));
}

struct client {
    struct server server;
    const char *host; /* what the server is called; NULL: by its number */
    struct address address;
    struct turns turns;
    struct link_handshake handshake;
    int greeted;
    struct call call;
    char heard[256];
};

static void client_start(struct client *client, bool greets)
{
    struct error_text err = {""};
    const char *host = client->host ? client->host : "127.0.0.1";
    char at[32];

    if (client->server.port == 0)
        server_start(&client->server);
    snprintf(at, sizeof at, "%s:%d", host, client->server.port);
    assert_int_equal(HF_OK, address_parse(at, strlen(at), "1", &client->address, &err));
    client->handshake = (struct link_handshake){.replies = greets,
                                                .write = handshake_write,
                                                .on_reply = handshake_reply,
                                                .context = &client->greeted};
    assert_int_equal(HF_OK, link_open(&client->address, &nobody, &client->turns, &client->handshake,
                                      &client->call.link, &err));
}

static void client_end(struct client *client)
{
    link_close(client->call.link);
    server_end(&client->server);
}

static void hear(void *context, int call, int reply, const struct resp_node *value)
{
    struct client *client = context;
    size_t used = strlen(client->heard);

    (void)call;
    snprintf(client->heard + used, sizeof client->heard - used, "%d=%.*s ", reply, (int)value->size,
             value->text);
}

static int ask(struct client *client, int replies, int64_t span_ms)
{
    struct exchange exchange = {.calls = &client->call,
                                .count = 1,
                                .deadline_ms = clock_boot_ms() + span_ms,
                                .context = client,
                                .on_reply = hear};
    char request[256] = "";

    for (int i = 0; i < replies; i++)
        memcpy(request + strlen(request), PING, sizeof PING);
    client->heard[0] = '\0';
    client->call.request = request;
    client->call.size = strlen(request);
    client->call.replies = replies;
    exchange_run(&exchange);
    return client->call.result;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_question_gets_its_answers(void **state)
{
    struct client client = {.server.steps = {"+one\r\n", "+two\r\n", "$5\r\nthree\r\n"}};

    (void)state;
    client_start(&client, false);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=one ", client.heard);
    assert_int_equal(HF_OK, ask(&client, 2, PATIENCE_MS));
    assert_string_equal("0=two 1=three ", client.heard);
    assert_false(client.call.over);
    client_end(&client);
}

static void a_late_answer_is_not_taken_for_the_next(void **state)
{
    struct client client = {.server.steps = {"~+late\r\n", "+mine\r\n", "+third\r\n"}};

    (void)state;
    client_start(&client, false);
    assert_int_equal(HF_EUNKNOWN, ask(&client, 1, SHORT_MS));
    assert_string_equal("", client.heard);
    assert_int_equal(1, client.call.link->owed);
    assert_true(client.call.link->lags_since_ms > 0);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=mine ", client.heard);
    assert_int_equal(0, client.call.link->owed);
    assert_true(client.call.link->lags_since_ms == 0);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=third ", client.heard);
    client_end(&client);
}

static void half_an_answer_is_none_and_the_rest_is_owed(void **state)
{
    struct client client = {.server.steps = {"+a\r\n", "~+b\r\n", "+c\r\n"}};

    (void)state;
    client_start(&client, false);
    assert_int_equal(HF_EUNKNOWN, ask(&client, 2, SHORT_MS));
    assert_string_equal("0=a ", client.heard);
    assert_int_equal(1, client.call.link->owed);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=c ", client.heard);
    client_end(&client);
}

static void nothing_is_asked_before_the_handshake_is_answered(void **state)
{
    struct client client = {.server.steps = {"~+hello\r\n"}};

    (void)state;
    client_start(&client, true);
    assert_int_equal(HF_EUNREACH, ask(&client, 1, SHORT_MS)); /* certainly not done */
    assert_false(client.call.sent);
    assert_int_equal(1, client.server.commands);
    client_end(&client);
}

static void a_refused_handshake_is_what_the_asker_hears(void **state)
{
    struct client client = {.server.steps = {"-WRONGPASS no\r\n"}};

    (void)state;
    client_start(&client, true);
    assert_int_equal(HF_EREFUSED, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("refused: WRONGPASS no", client.call.err.text);
    assert_true(client.call.over);
    assert_int_equal(1, client.server.commands);
    client_end(&client);
}

static void a_handshake_then_a_question(void **state)
{
    struct client client = {.server.steps = {"+hello\r\n", "+answer\r\n"}};

    (void)state;
    client_start(&client, true);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=answer ", client.heard);
    assert_int_equal(1, client.greeted);
    client_end(&client);
}

static void a_connection_that_ends_leaves_it_unknown(void **state)
{
    struct client client = {.server.steps = {"!"}};

    (void)state;
    client_start(&client, false);
    assert_int_equal(HF_EUNKNOWN, ask(&client, 1, PATIENCE_MS));
    assert_true(client.call.sent);
    assert_true(client.call.over);
    client_end(&client);
}

static void an_answer_that_is_no_resp_leaves_it_unknown(void **state)
{
    struct client client = {.server.steps = {"hello?\r\n"}};

    (void)state;
    client_start(&client, false);
    assert_int_equal(HF_EUNKNOWN, ask(&client, 1, PATIENCE_MS));
    assert_true(client.call.over);
    client_end(&client);
}

static void nobody_there_means_nothing_was_done(void **state)
{
    struct client client = {{0}}, other = {.server.steps = {"+x\r\n"}};

    (void)state;
    server_start(&other.server);
    client.server.port = other.server.port;
    server_end(&other.server); /* its port is free again, and nobody listens */
    client_start(&client, false);
    assert_int_equal(HF_EUNREACH, ask(&client, 1, PATIENCE_MS));
    assert_true(client.call.over);
    link_close(client.call.link);
}

/* ---- a host with two addresses --------------------------------------------------------------- */

static bool is_called(int listener)
{
    int fd = accept(listener, NULL, NULL);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void connect_again(struct client *client)
{
    struct error_text err = {""};
    struct stream *stream;

    assert_int_equal(HF_OK, stream_open(&client->address, &nobody, &client->turns, &stream, &err));
    while (stream_connect(stream, &err) == STREAM_AGAIN)
        wait_for(stream_fd(stream), stream_events(stream, false));
    stream_close(stream);
}

/* The first takes the connection and says nothing, as a process does that is stopped. */
static void a_silent_address_keeps_nobody_from_the_next(void **state)
{
    struct client client = {.server.steps = {"+hello\r\n", "+answer\r\n"}, .host = "two.test"};
    char port[8];
    int silent;

    (void)state;
    server_start(&client.server);
    snprintf(port, sizeof port, "%d", client.server.port);
    two_test_first = "127.0.0.2";
    silent = listen_silently(two_test_first, port);
    client_start(&client, true);
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=answer ", client.heard);
    assert_int_equal(1, client.greeted);
    assert_int_equal(2, client.server.commands);
    assert_true(is_called(silent));
    link_close(client.call.link);
    client.call.link = NULL;
    connect_again(&client); /* and begins with the one that has answered */
    assert_false(is_called(silent));
    close(silent);
    client_end(&client);
}

/* Where the handshake was answered, a silent server is the one that was asked. */
static void whoever_has_answered_is_waited_for(void **state)
{
    struct client client = {.server.steps = {"+hello\r\n", "~+late\r\n", "+mine\r\n"},
                            .host = "two.test"};

    (void)state;
    two_test_first = "127.0.0.1";
    client_start(&client, true);
    assert_int_equal(HF_EUNKNOWN, ask(&client, 1, SILENT_MS));
    assert_int_equal(HF_OK, ask(&client, 1, PATIENCE_MS));
    assert_string_equal("0=mine ", client.heard);
    client_end(&client);
}

/* ---- several at once ------------------------------------------------------------------------- */

#define SERVERS 5

struct group {
    struct client clients[SERVERS];
    struct call calls[SERVERS];
    int answered, wanted;
};

static void count_answer(void *context, int call, int reply, const struct resp_node *value)
{
    struct group *group = context;

    (void)call;
    (void)reply;
    group->answered += value->type == RESP_SIMPLE;
}

static bool have_enough(void *context)
{
    const struct group *group = context;

    return group->answered >= group->wanted;
}

static void group_start(struct group *group)
{
    for (int i = 0; i < SERVERS; i++) {
        client_start(&group->clients[i], false);
        group->calls[i] = (struct call){.link = group->clients[i].call.link,
                                        .request = PING,
                                        .size = strlen(PING),
                                        .replies = 1};
    }
}

static void those_who_hang_are_not_waited_for(void **state)
{
    static struct group group = {.wanted = 3};
    struct exchange exchange = {.calls = group.calls,
                                .count = SERVERS,
                                .deadline_ms = clock_boot_ms() + 60 * PATIENCE_MS,
                                .context = &group,
                                .on_reply = count_answer,
                                .enough = have_enough};
    int unknown = 0;

    (void)state;
    for (int i = 0; i < SERVERS; i++)
        group.clients[i].server.steps[0] = i < 3 ? "+yes\r\n" : "";
    group_start(&group);
    exchange_run(&exchange); /* would take half an hour otherwise */
    assert_int_equal(3, group.answered);
    for (int i = 0; i < SERVERS; i++)
        unknown += group.calls[i].result == HF_EUNKNOWN;
    assert_int_equal(2, unknown);
    for (int i = 0; i < SERVERS; i++)
        client_end(&group.clients[i]);
}

static void a_link_that_could_not_be_had_is_left_alone(void **state)
{
    static struct group group = {.wanted = SERVERS};
    struct exchange exchange = {.calls = group.calls,
                                .count = SERVERS,
                                .deadline_ms = clock_boot_ms() + PATIENCE_MS,
                                .context = &group,
                                .on_reply = count_answer,
                                .enough = have_enough};

    (void)state;
    for (int i = 0; i < SERVERS; i++)
        group.clients[i].server.steps[0] = "+yes\r\n";
    group_start(&group);
    group.calls[2].link = NULL;
    group.calls[2].result = HF_EUNREACH;
    exchange_run(&exchange); /* ends because nothing is open any more */
    assert_int_equal(4, group.answered);
    assert_int_equal(HF_EUNREACH, group.calls[2].result);
    for (int i = 0; i < SERVERS; i++)
        client_end(&group.clients[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_gets_its_answers),
        cmocka_unit_test(a_late_answer_is_not_taken_for_the_next),
        cmocka_unit_test(half_an_answer_is_none_and_the_rest_is_owed),
        cmocka_unit_test(nothing_is_asked_before_the_handshake_is_answered),
        cmocka_unit_test(a_refused_handshake_is_what_the_asker_hears),
        cmocka_unit_test(a_handshake_then_a_question),
        cmocka_unit_test(a_connection_that_ends_leaves_it_unknown),
        cmocka_unit_test(an_answer_that_is_no_resp_leaves_it_unknown),
        cmocka_unit_test(nobody_there_means_nothing_was_done),
        cmocka_unit_test(a_silent_address_keeps_nobody_from_the_next),
        cmocka_unit_test(whoever_has_answered_is_waited_for),
        cmocka_unit_test(those_who_hang_are_not_waited_for),
        cmocka_unit_test(a_link_that_could_not_be_had_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
