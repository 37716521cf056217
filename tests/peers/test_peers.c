/* Two nodes on one loop, over real connections; and others who are none. */
#include "base/clock.h"
#include "base/crc32c.h"
#include "peers/greeting.h"
#include "peers/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define PATIENCE_MS 20000
#define LARGE ((size_t)20 << 20)

struct side {
    struct peers *peers;
    char address[32];
    int received, notes;
    size_t size;        /* of the last message, */
    uint64_t from, sum; /* and of all of them */
    unsigned first;     /* its first number */
    char from_address[64], noted[ERROR_TEXT_MAX];
    bool closed;
};

static uv_loop_t loop;
static uv_timer_t beat;
static struct side a, b;
static int sent_ok, sent_failed;

static void on_beat(uv_timer_t *timer)
{
    (void)timer;
}

static void on_received(void *context, uint64_t from, const char *address, void *bytes, size_t size)
{
    struct side *side = context;

    side->received++;
    side->from = from;
    side->size = size;
    snprintf(side->from_address, sizeof side->from_address, "%s", address);
    for (size_t i = 0; i < size; i++)
        side->sum = side->sum * 31 + ((unsigned char *)bytes)[i];
    if (size >= sizeof side->first)
        memcpy(&side->first, bytes, sizeof side->first);
    free(bytes);
}

static void on_note(void *context, int level, const char *text)
{
    struct side *side = context;

    (void)level;
    side->notes++;
    snprintf(side->noted, sizeof side->noted, "%s", text);
}

static void on_sent(void *context, int result)
{
    (void)context;
    *(result == HF_OK ? &sent_ok : &sent_failed) += 1;
}

static void on_done(void *context)
{
    *(bool *)context = true;
}

#define UNTIL(condition)                                       \
    do {                                                       \
        int64_t until_end = clock_boot_ms() + PATIENCE_MS;     \
        while (!(condition)) {                                 \
            uv_run(&loop, UV_RUN_ONCE);                        \
            if (clock_boot_ms() > until_end)                   \
                fail_msg("waited in vain for %s", #condition); \
        }                                                      \
    } while (0)

static void open_side(struct side *side, uint64_t id, const char *secret, const char *listen)
{
    struct peers_options options = {.id = id,
                                    .address = "10.0.0.1:1",
                                    .listen = listen,
                                    .secret = secret,
                                    .secret_size = strlen(secret)};
    struct peers_host host = {.context = side, .received = on_received, .note = on_note};
    struct error_text err = {""};

    memset(side, 0, sizeof *side);
    if (peers_open(&loop, &options, &host, &side->peers, &err) != HF_OK)
        fail_msg("%s", err.text);
    snprintf(side->address, sizeof side->address, "127.0.0.1:%u", peers_port(side->peers));
}

static void close_side(struct side *side)
{
    if (!side->peers)
        return;
    peers_close(side->peers, on_done, &side->closed);
    UNTIL(side->closed);
    side->peers = NULL;
}

static int set_up(void **state)
{
    (void)state;
    sent_ok = sent_failed = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &beat);
    uv_timer_start(&beat, on_beat, 1, 1);
    open_side(&a, 1, "secret", "127.0.0.1:0");
    open_side(&b, 2, "secret", "127.0.0.1:0");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_side(&a);
    close_side(&b);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

static int send_number(struct side *from, struct side *to, uint64_t id, unsigned *number)
{
    struct iovec piece = {number, sizeof *number};

    return peers_send(from->peers, id, to->address, &piece, 1, on_sent, NULL);
}

/* The first one makes the connection, and is lost. */
static void connect_sides(void)
{
    static unsigned number;

    UNTIL(send_number(&a, &b, 2, &number) == HF_OK);
    UNTIL(b.received == 1);
}

static void test_messages_arrive_in_order(void **state)
{
    static unsigned numbers[1000];

    (void)state;
    connect_sides();
    assert_int_equal(b.from, 1);
    assert_string_equal(b.from_address, "10.0.0.1:1");
    for (unsigned i = 0; i < 1000; i++) {
        numbers[i] = i;
        assert_int_equal(send_number(&a, &b, 2, &numbers[i]), HF_OK);
        if (i % 100 == 0)
            UNTIL(b.received == (int)i + 2 && b.first == i);
    }
    UNTIL(b.received == 1001);
    assert_int_equal(b.first, 999);
    UNTIL(sent_ok == 1001);
    assert_int_equal(sent_failed, 0);
    assert_int_equal(a.received, 0);
}

static void test_large_ones_in_pieces(void **state)
{
    unsigned char *bytes = malloc(LARGE);
    struct iovec pieces[3] = {{bytes, 10}, {bytes + 10, 0}, {bytes + 10, LARGE - 10}};
    static unsigned after = 5;
    uint64_t sum;

    (void)state;
    assert_non_null(bytes);
    connect_sides();
    sum = b.sum;
    for (size_t i = 0; i < LARGE; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 1000);
        sum = sum * 31 + bytes[i];
    }
    assert_int_equal(peers_send(a.peers, 2, b.address, pieces, 3, on_sent, NULL), HF_OK);
    assert_int_equal(peers_send(a.peers, 2, b.address, pieces, 3, on_sent, NULL), HF_OK);
    UNTIL(b.received == 2);
    assert_int_equal(b.size, LARGE);
    assert_true(b.sum == sum);
    assert_int_equal(send_number(&a, &b, 2, &after), HF_OK);
    UNTIL(b.received == 4);
    assert_int_equal(b.first, 5);
    UNTIL(sent_ok == 4);
    free(bytes);
}

static void test_too_much_is_not_added(void **state)
{
    unsigned char *bytes = calloc(1, LARGE);
    struct iovec piece = {bytes, LARGE};
    int taken = 0, result;

    (void)state;
    connect_sides();
    while ((result = peers_send(a.peers, 2, b.address, &piece, 1, on_sent, NULL)) == HF_OK)
        assert_true(++taken < 10);
    assert_int_equal(result, HF_EBUSY);
    assert_int_equal(taken, 3); /* below 64 MB */
    UNTIL(sent_ok == taken + 1);
    assert_int_equal(peers_send(a.peers, 2, b.address, &piece, 1, on_sent, NULL), HF_OK);
    UNTIL(sent_ok == taken + 2);
    free(bytes);
}

static void test_one_that_comes_back_is_found_again(void **state)
{
    static unsigned number = 3;
    char address[32];

    (void)state;
    connect_sides();
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    UNTIL(send_number(&a, &b, 2, &number) == HF_EUNREACH);
    UNTIL(a.notes == 1);
    open_side(&b, 2, "secret", address);
    UNTIL(send_number(&a, &b, 2, &number) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(a.notes, 2); /* gone, and there again */
}

static void test_another_secret(void **state)
{
    static unsigned number;

    (void)state;
    close_side(&b);
    open_side(&b, 2, "another", "127.0.0.1:0");
    UNTIL(send_number(&a, &b, 2, &number) == HF_OK || a.notes > 0);
    assert_non_null(strstr(a.noted, "does not know the cluster's secret"));
    assert_int_equal(b.received, 0);
}

static void test_another_node_than_wanted(void **state)
{
    static unsigned number;

    (void)state;
    UNTIL(send_number(&a, &b, 3, &number) == HF_OK || b.notes > 0);
    assert_non_null(strstr(b.noted, "takes this node for another"));
    UNTIL(a.notes > 0);
    assert_int_equal(b.received, 0);
}

/* ---- those who are no nodes ------------------------------------------------------------------- */

static int knock(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(peers_port(b.peers)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static bool is_closed(int fd)
{
    char bytes[256];
    ssize_t count = recv(fd, bytes, sizeof bytes, 0);

    return count == 0 || (count < 0 && errno == ECONNRESET);
}

static void test_garbage(void **state)
{
    unsigned char bytes[4096];
    int fd = knock();

    (void)state;
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    UNTIL(is_closed(fd));
    assert_non_null(strstr(b.noted, "speaks something else"));
    close(fd);
    connect_sides(); /* and others are served */
}

/* A right hello, a wrong proof, and messages at once. */
static void test_an_impostor(void **state)
{
    struct greeting greeting;
    unsigned char bytes[GREETING_HELLO + GREETING_PROOF + 64] = {0};
    int fd = knock();

    (void)state;
    greeting_hello(&greeting, "guess", 5, 1, "", 2, bytes);
    bytes[GREETING_HELLO + GREETING_PROOF] = 8; /* a message of eight bytes */
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    UNTIL(is_closed(fd));
    assert_non_null(strstr(b.noted, "does not know the cluster's secret"));
    assert_int_equal(b.received, 0);
    close(fd);
}

/* ---- those who know the secret, and do not behave ---------------------------------------------- */

static ssize_t got;
static unsigned char reply[GREETING_REPLY];

static bool has_reply(int fd)
{
    ssize_t count = recv(fd, reply + got, sizeof reply - (size_t)got, 0);

    got += count > 0 ? count : 0;
    return got == sizeof reply;
}

/* Node 5, by hand. */
static int come_in(void)
{
    struct greeting greeting;
    unsigned char hello[GREETING_HELLO], proof[GREETING_PROOF];
    int fd = knock();

    got = 0;
    greeting_hello(&greeting, "secret", 6, 5, "", 2, hello);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    UNTIL(has_reply(fd));
    assert_int_equal(greeting_prove(&greeting, reply, proof), GREETING_OK);
    assert_int_equal(send(fd, proof, sizeof proof, MSG_NOSIGNAL), sizeof proof);
    return fd;
}

static void send_frame(int fd, uint32_t size, uint32_t sum, const char *bytes)
{
    unsigned char frame[64] = {(unsigned char)size};

    assert_true(size < sizeof frame - 8);
    for (int i = 0; i < 4; i++)
        frame[4 + i] = (unsigned char)(sum >> 8 * i);
    memcpy(frame + 8, bytes, size);
    assert_int_equal(send(fd, frame, 8 + size, MSG_NOSIGNAL), 8 + size);
}

static void test_a_wrong_checksum(void **state)
{
    int fd = come_in();

    (void)state;
    send_frame(fd, 5, crc32c(0, "right", 5), "right");
    UNTIL(b.received == 1);
    assert_int_equal(b.from, 5);
    send_frame(fd, 5, crc32c(0, "right", 5), "wrong");
    UNTIL(is_closed(fd));
    assert_int_equal(b.received, 1);
    assert_non_null(strstr(b.noted, "wrong checksum"));
    close(fd);
}

static void test_a_message_of_no_size(void **state)
{
    int fd = come_in();

    (void)state;
    send_frame(fd, 0, 0, "");
    UNTIL(is_closed(fd));
    assert_int_equal(b.received, 0);
    close(fd);
}

/* What it says by the first must not come after what it says by the second. */
static void test_a_second_connection_ends_the_first(void **state)
{
    int first = come_in(), second;

    (void)state;
    send_frame(first, 1, crc32c(0, "1", 1), "1");
    UNTIL(b.received == 1);
    second = come_in();
    UNTIL(is_closed(first));
    send_frame(second, 1, crc32c(0, "2", 1), "2");
    UNTIL(b.received == 2);
    close(first);
    close(second);
}

/* What was unsent when a connection broke does not count against the next. */
static void test_what_was_unsent_is_forgotten(void **state)
{
    unsigned char *bytes = calloc(1, LARGE);
    struct iovec piece = {bytes, LARGE};
    char address[32];

    (void)state;
    connect_sides();
    for (int i = 0; i < 3; i++)
        assert_int_equal(peers_send(a.peers, 2, b.address, &piece, 1, on_sent, NULL), HF_OK);
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    UNTIL(sent_ok + sent_failed == 4);
    assert_true(sent_failed > 0);
    open_side(&b, 2, "secret", address);
    UNTIL(peers_send(a.peers, 2, b.address, &piece, 1, on_sent, NULL) == HF_OK);
    UNTIL(b.received == 1);
    free(bytes);
}

static void test_strangers_are_few(void **state)
{
    int fds[PEERS_STRANGERS_MAX + 1];

    (void)state;
    for (int i = 0; i <= PEERS_STRANGERS_MAX; i++)
        fds[i] = knock();
    UNTIL(is_closed(fds[PEERS_STRANGERS_MAX]));
    assert_non_null(strstr(b.noted, "too many"));
    for (int i = 0; i <= PEERS_STRANGERS_MAX; i++)
        close(fds[i]);
    connect_sides(); /* when they are gone */
}

static void test_addresses(void **state)
{
    static const char *const wrong[] = {"",
                                        "127.0.0.1",
                                        ":1",
                                        "127.0.0.1:",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:x",
                                        "localhost:1",
                                        "127.0.0.1:1x",
                                        "[::1:5"};
    struct peers_host host = {.context = &a, .received = on_received, .note = on_note};
    struct peers *peers;
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct peers_options options = {.id = 1, .address = "", .listen = wrong[i]};

        assert_int_equal(peers_open(&loop, &options, &host, &peers, &err), HF_EINVAL);
    }
    assert_int_equal(peers_open(&loop, &(struct peers_options){.address = "", .listen = a.address},
                                &host, &peers, &err),
                     HF_EIO);
    assert_non_null(strstr(err.text, "in use"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_messages_arrive_in_order),
        TEST(test_large_ones_in_pieces),
        TEST(test_too_much_is_not_added),
        TEST(test_one_that_comes_back_is_found_again),
        TEST(test_another_secret),
        TEST(test_another_node_than_wanted),
        TEST(test_garbage),
        TEST(test_an_impostor),
        TEST(test_a_wrong_checksum),
        TEST(test_a_message_of_no_size),
        TEST(test_a_second_connection_ends_the_first),
        TEST(test_what_was_unsent_is_forgotten),
        TEST(test_strangers_are_few),
        TEST(test_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
