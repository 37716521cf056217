/* Two nodes and what is between them, each on a loop of its own, so that one of them can stop reading. */
#include "memory_io.h"
#include "replica_libraft/network.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#define LIFE_1 "0000000000000001"
#define LIFE_2 "0000000000000002"
#define ANOTHER "00000000000000ff"
#define LARGE ((size_t)32 << 20) /* more than the kernel takes for somebody who does not read */
#define PATIENCE_MS 30000

struct side {
    uv_loop_t loop;
    struct memory_io memory;
    struct raft raft; /* of which only the members are of interest */
    struct network *network;
    char address[32];
    bool closed, gone;
    int sent, failed, received; /* messages */
    int ticks, complaints;
    bool last; /* the one with term 99 has come, which is not counted */
};

static struct side sides[2];

static struct side *side_of(struct raft_io *io)
{
    return io == &sides[0].memory.io ? &sides[0] : &sides[1];
}

static void on_note(void *context, const struct note *note)
{
    struct side *side = context;

    side->complaints += note->level == 1 && strstr(note->words, "know this node with other data");
}

static void on_tick(struct raft_io *io)
{
    side_of(io)->ticks++;
}

/* The answer goes to whoever asked: to that life of it, and no other. */
static void on_received(struct raft_io *io, struct raft_message *message)
{
    assert_true(message->type == RAFT_TIMEOUT_NOW || message->type == RAFT_APPEND_ENTRIES_RESULT);
    assert_string_equal(message->server_address, "127.0.0.1:1/" LIFE_1);
    if (message->type == RAFT_TIMEOUT_NOW && message->timeout_now.term == 99)
        side_of(io)->last = true;
    else
        side_of(io)->received++;
}

static void on_closed(struct raft_io *io)
{
    side_of(io)->closed = true;
}

static void on_gone(void *context)
{
    *(bool *)context = true;
}

static void on_sent(struct raft_io_send *req, int status)
{
    struct side *side = req->data;

    assert_false(side->closed);
    side->sent++;
    side->failed += status != 0;
}

static void turn(struct side *side)
{
    uv_run(&side->loop, UV_RUN_NOWAIT);
    memory_io_settle(&side->memory);
}

#define UNTIL(what, step)                                               \
    for (int64_t until_end = clock_boot_ms() + PATIENCE_MS; !(what);) { \
        step;                                                           \
        if (clock_boot_ms() > until_end)                                \
            fail_msg("waited in vain for %s", #what);                   \
    }

static void open_side(struct side *side, uint64_t id, const char *about)
{
    struct network_options options = {.id = id,
                                      .about = about,
                                      .address = "127.0.0.1:1",
                                      .listen = "127.0.0.1:0",
                                      .secret = "s",
                                      .secret_size = 1};
    struct network_host host = {.context = side, .note = on_note};
    struct error_text err = {""};

    memset(side, 0, sizeof *side);
    assert_int_equal(uv_loop_init(&side->loop), 0);
    memory_io_init(&side->memory);
    side->raft.id = id;
    raft_configuration_init(&side->raft.configuration);
    side->memory.io.data = &side->raft;
    if (network_open(&side->loop, &options, &host, &side->memory.io, &side->network, &err) != HF_OK)
        fail_msg("%s", err.text);
    snprintf(side->address, sizeof side->address, "127.0.0.1:%u",
             (unsigned)network_port(side->network));
    assert_int_equal(side->memory.io.start(&side->memory.io, 100, on_tick, on_received), 0);
}

static void know_other(const char *life);

static int set_up(void **state)
{
    (void)state;
    open_side(&sides[0], 1, "one/" LIFE_1);
    open_side(&sides[1], 2, "two/" LIFE_2);
    know_other("");
    return 0;
}

static void close_side(struct side *side)
{
    if (!side->closed)
        side->memory.io.close(&side->memory.io, on_closed);
    UNTIL(side->closed, turn(side));
    network_close(side->network, on_gone, &side->gone);
    UNTIL(side->gone, turn(side));
    uv_run(&side->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&side->loop), 0);
    memory_io_free(&side->memory);
    raft_configuration_close(&side->raft.configuration);
}

static int tear_down(void **state)
{
    (void)state;
    close_side(&sides[0]);
    close_side(&sides[1]);
    return 0;
}

/* One member more, or a known one with another identity. */
static void know(struct side *side, uint64_t id, const char *identity)
{
    struct raft_configuration *members = &side->raft.configuration;

    for (unsigned i = 0; i < members->n; i++)
        if (members->servers[i].id == id) {
            raft_free(members->servers[i].address);
            members->servers[i].address = raft_malloc(strlen(identity) + 1);
            memcpy(members->servers[i].address, identity, strlen(identity) + 1);
            return;
        }
    assert_int_equal(raft_configuration_add(members, id, identity, RAFT_VOTER), 0);
}

/* 1 knows 2 with this life; "": with none. */
static void know_other(const char *life)
{
    char identity[64];

    snprintf(identity, sizeof identity, "%s%s%s", sides[1].address, life[0] ? "/" : "", life);
    know(&sides[0], 2, identity);
}

/* An answer goes to the address that is given, whatever else to whom the members know. */
static void say(struct raft_io_send *req, struct raft_message *message)
{
    struct side *side = &sides[0];

    message->server_id = 2;
    message->server_address = sides[1].address;
    req->data = side;
    assert_int_equal(side->memory.io.send(&side->memory.io, req, message, on_sent), 0);
}

static void hand_over(struct raft_message *message)
{
    struct raft_io_send req;
    int before = sides[0].sent;

    say(&req, message);
    UNTIL(sides[0].sent > before, turn(&sides[0]));
}

/* How many of what 1 has said were taken: what it says last is, and they come in their order. */
static int taken(void)
{
    struct raft_message last = {.type = RAFT_TIMEOUT_NOW,
                                .timeout_now = {.version = 1, .term = 99}};
    int before = sides[1].received;

    sides[1].last = false;
    hand_over(&last);
    UNTIL(sides[1].last, turn(&sides[1]));
    return sides[1].received - before;
}

static void connect_both(void)
{
    struct raft_io_send req;
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};

    for (int64_t end = clock_boot_ms() + PATIENCE_MS; sides[1].received == 0;) {
        int before = sides[0].sent;

        assert_true(clock_boot_ms() < end);
        say(&req, &message);
        UNTIL(sides[0].sent > before, turn(&sides[0]));
        turn(&sides[0]);
        turn(&sides[1]);
    }
}

/* libraft is gone when it has closed, and its messages with it. */
static void test_closed_while_the_other_does_not_read(void **state)
{
    struct raft_io_send req;
    struct raft_message message = {
        .type = RAFT_INSTALL_SNAPSHOT,
        .install_snapshot = {
            .version = 1, .term = 2, .last_index = 7, .last_term = 1, .conf_index = 1}};
    int before;

    (void)state;
    connect_both();
    before = sides[0].sent;
    raft_configuration_init(&message.install_snapshot.conf);
    assert_int_equal(raft_configuration_add(&message.install_snapshot.conf, 1, "one", RAFT_VOTER),
                     0);
    message.install_snapshot.data = (struct raft_buffer){calloc(1, LARGE), LARGE};
    say(&req, &message);
    for (int i = 0; i < 100; i++)
        turn(&sides[0]);
    assert_int_equal(sides[0].sent, before);
    sides[0].memory.io.close(&sides[0].memory.io, on_closed);
    UNTIL(sides[0].closed, turn(&sides[0]));
    assert_int_equal(sides[0].sent, before + 1);
    assert_true(sides[0].failed > 0);
    raft_configuration_close(&message.install_snapshot.conf);
    free(message.install_snapshot.data.base);
}

static void test_nothing_is_sent_after_it_has_closed(void **state)
{
    struct raft_io_send req;
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};
    int failed, received;

    (void)state;
    connect_both();
    failed = sides[0].failed;
    received = sides[1].received;
    sides[0].memory.io.close(&sides[0].memory.io, on_closed);
    say(&req, &message);
    assert_int_equal(sides[0].failed, failed + 1);
    UNTIL(sides[0].closed, turn(&sides[0]));
    for (int i = 0; i < 100; i++)
        turn(&sides[1]);
    assert_int_equal(sides[1].received, received);
}

/* [I2] */
static void test_an_answer_counts_from_the_life_that_the_members_have(void **state)
{
    struct raft_message answer = {.type = RAFT_APPEND_ENTRIES_RESULT,
                                  .append_entries_result = {.version = 1, .term = 1}};

    (void)state;
    connect_both();
    hand_over(&answer);
    assert_int_equal(taken(), 0); /* 1 is no member */
    know(&sides[1], 1, "127.0.0.1:1/" ANOTHER);
    hand_over(&answer);
    assert_int_equal(taken(), 0);
    know(&sides[1], 1, "127.0.0.1:1/" LIFE_1); /* from the moment when it is known */
    hand_over(&answer);
    assert_int_equal(taken(), 1);
}

/* [I2] The members of who is asked may be older than those of who asks. */
static void test_a_question_is_heard_from_anybody(void **state)
{
    struct raft_message question = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};

    (void)state;
    connect_both();
    know(&sides[1], 1, "127.0.0.1:1/" ANOTHER);
    hand_over(&question);
    assert_int_equal(taken(), 1);
}

/* [I2] */
static void test_nothing_is_sent_to_another_life(void **state)
{
    struct raft_io_send req;
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};
    int failed;

    (void)state;
    connect_both();
    failed = sides[0].failed;
    know_other(ANOTHER);
    say(&req, &message);
    assert_int_equal(sides[0].failed, failed + 1);
    know_other(LIFE_2);
    assert_int_equal(taken(), 0);
    say(&req, &message);
    assert_int_equal(sides[0].failed, failed + 1);
    assert_int_equal(taken(), 1);
}

/* Reading a snapshot takes a while: libraft asks then for whom it was, and the address that it gives is of members that are gone. */
static void test_a_question_goes_to_whom_the_members_know_now(void **state)
{
    struct raft_io_send req;
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};
    int failed;

    (void)state;
    connect_both();
    failed = sides[0].failed;
    message.server_id = 2;
    message.server_address = NULL;
    req.data = &sides[0];
    assert_int_equal(sides[0].memory.io.send(&sides[0].memory.io, &req, &message, on_sent), 0);
    assert_int_equal(sides[0].failed, failed);
    assert_int_equal(taken(), 1);
    message.server_id = 3;
    assert_int_equal(sides[0].memory.io.send(&sides[0].memory.io, &req, &message, on_sent), 0);
    assert_int_equal(sides[0].failed, failed + 1);
}

/* [I3] */
static void test_a_node_that_is_another_takes_no_part(void **state)
{
    struct raft_io_send req;
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW, .timeout_now = {.version = 1}};
    int failed;

    (void)state;
    connect_both();
    know(&sides[0], 1, "127.0.0.1:1/" LIFE_1);
    memory_io_tick(&sides[0].memory, 1);
    assert_int_equal(sides[0].ticks, 1);
    know(&sides[0], 1, "127.0.0.1:1/" ANOTHER);
    memory_io_tick(&sides[0].memory, 1);
    assert_int_equal(sides[0].ticks, 1);
    failed = sides[0].failed;
    say(&req, &message);
    assert_int_equal(sides[0].failed, failed + 1);
    assert_int_equal(sides[0].complaints, 1);

    know(&sides[1], 2, "127.0.0.1:2/" ANOTHER);
    know(&sides[0], 1, "127.0.0.1:1/" LIFE_1);
    hand_over(&message);
    UNTIL(sides[1].complaints == 1, turn(&sides[1])); /* and it was not taken, but: */
    know(&sides[1], 2, "127.0.0.1:2/" LIFE_2);
    assert_int_equal(taken(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_closed_while_the_other_does_not_read),
        TEST(test_nothing_is_sent_after_it_has_closed),
        TEST(test_an_answer_counts_from_the_life_that_the_members_have),
        TEST(test_a_question_is_heard_from_anybody),
        TEST(test_nothing_is_sent_to_another_life),
        TEST(test_a_question_goes_to_whom_the_members_know_now),
        TEST(test_a_node_that_is_another_takes_no_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
