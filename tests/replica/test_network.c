/* Two nodes and what is between them, each on a loop of its own, so that one of them can stop reading. */
#include "memory_io.h"
#include "replica/network.h"

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

#define LARGE ((size_t)32 << 20) /* more than the kernel takes for somebody who does not read */
#define PATIENCE_MS 30000

struct side {
    uv_loop_t loop;
    struct memory_io memory;
    struct network *network;
    char address[32];
    bool closed, gone;
    int sent, failed, received; /* messages */
};

static struct side sides[2];

static struct side *side_of(struct raft_io *io)
{
    return io == &sides[0].memory.io ? &sides[0] : &sides[1];
}

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void on_tick(struct raft_io *io)
{
    (void)io;
}

static void on_received(struct raft_io *io, struct raft_message *message)
{
    assert_int_equal(message->type, RAFT_TIMEOUT_NOW);
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

static void open_side(struct side *side, uint64_t id)
{
    struct network_options options = {.id = id,
                                      .address = "127.0.0.1:1",
                                      .listen = "127.0.0.1:0",
                                      .secret = "s",
                                      .secret_size = 1};
    struct network_host host = {.note = on_note};
    struct error_text err = {""};

    memset(side, 0, sizeof *side);
    assert_int_equal(uv_loop_init(&side->loop), 0);
    memory_io_init(&side->memory);
    if (network_open(&side->loop, &options, &host, &side->memory.io, &side->network, &err) != HF_OK)
        fail_msg("%s", err.text);
    snprintf(side->address, sizeof side->address, "127.0.0.1:%u",
             (unsigned)network_port(side->network));
    assert_int_equal(side->memory.io.start(&side->memory.io, 100, on_tick, on_received), 0);
}

static int set_up(void **state)
{
    (void)state;
    open_side(&sides[0], 1);
    open_side(&sides[1], 2);
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
}

static int tear_down(void **state)
{
    (void)state;
    close_side(&sides[0]);
    close_side(&sides[1]);
    return 0;
}

static void say(struct raft_io_send *req, struct raft_message *message)
{
    struct side *side = &sides[0];

    message->server_id = 2;
    message->server_address = sides[1].address;
    req->data = side;
    assert_int_equal(side->memory.io.send(&side->memory.io, req, message, on_sent), 0);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_closed_while_the_other_does_not_read),
        TEST(test_nothing_is_sent_after_it_has_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
