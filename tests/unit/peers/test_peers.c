/* Two nodes on one loop, over real connections; and others who are none. */
#include "base/crc32c.h"
#include "peers/handshake.h"
#include "sides.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct handshake_own five = {
    .secret = "secret", .secret_size = 6, .id = 5, .address = "", .about = "five", .cluster = ""};
static const struct handshake_own guess = {
    .secret = "guess", .secret_size = 5, .id = 1, .address = "", .about = "", .cluster = ""};

#define LARGE ((size_t)20 << 20)
#define KNOCKS (PEERS_UNAUTHENTICATED_MAX + 40)

static void test_messages_arrive_in_order(void **state)
{
    static unsigned numbers[1000];

    (void)state;
    connect_sides();
    assert_int_equal(b.from, 1);
    assert_string_equal(b.from_address, "10.0.0.1:1");
    for (unsigned i = 0; i < 1000; i++) {
        numbers[i] = i;
        assert_int_equal(send_number(&a, b.address, 2, &numbers[i]), HF_OK);
        if (i % 100 == 0)
            UNTIL(b.received == (int)i + 2 && b.first == i);
    }
    UNTIL(b.received == 1001);
    assert_int_equal(b.first, 999);
    assert_int_equal(a.received, 0);
}

static void test_what_a_node_says_about_itself(void **state)
{
    static unsigned number;

    (void)state;
    connect_sides();
    assert_int_equal(b.met, 1);
    assert_int_equal(b.met_before, 1); /* when the message came */
    assert_int_equal(b.met_id, 1);
    assert_string_equal(b.about, "node1.example:7420");
    assert_int_equal(a.met, 0); /* who connects is not told */
    close_side(&a);
    open_side(&a, 1, "secret", "127.0.0.1:0", NULL);
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK);
    UNTIL(b.received == 2);
    assert_int_equal(b.met, 2);
    assert_string_equal(b.about, "");
}

static void test_who_does_not_want_to_be_told(void **state)
{
    struct peers_options options = {.id = 2, .address = "", .listen = "127.0.0.1:0"};
    struct peers_host host = side_host(&b);
    struct error_text err;

    (void)state;
    close_side(&b);
    memset(&b, 0, sizeof b);
    host.met = NULL;
    options.secret = "secret";
    options.secret_size = 6;
    assert_int_equal(peers_open(&loop, &options, &host, &b.peers, &err), HF_OK);
    snprintf(b.address, sizeof b.address, "127.0.0.1:%u", peers_port(b.peers));
    connect_sides();
    assert_int_equal(b.met, 0);
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
    assert_int_equal(peers_send(a.peers, 2, pieces, 3), HF_OK);
    assert_int_equal(peers_send(a.peers, 2, pieces, 3), HF_OK);
    UNTIL(b.received == 2);
    assert_int_equal(b.size, LARGE);
    assert_true(b.sum == sum);
    assert_int_equal(send_number(&a, b.address, 2, &after), HF_OK);
    UNTIL(b.received == 4);
    assert_int_equal(b.first, 5);
    free(bytes);
}

/* What the kernel does not take at once is a copy. */
static void test_borrowed_ones_may_change_afterwards(void **state)
{
    unsigned char *bytes = malloc(LARGE);
    struct iovec pieces[2] = {{bytes, 1000}, {bytes + 1000, LARGE - 1000}};
    uint64_t sum;

    (void)state;
    assert_non_null(bytes);
    connect_sides();
    sum = b.sum;
    for (size_t i = 0; i < LARGE; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 1000);
        sum = sum * 31 + bytes[i];
    }
    assert_int_equal(peers_send(a.peers, 2, pieces, 2), HF_OK);
    memset(bytes, 0, LARGE);
    free(bytes);
    UNTIL(b.received == 2);
    assert_int_equal(b.size, LARGE);
    assert_true(b.sum == sum);
}

/* Whoever was connected, in either direction, hears that the other is gone; whoever goes, nothing. */
static void test_the_end_of_a_connection_is_told(void **state)
{
    (void)state;
    connect_sides();
    assert_int_equal(a.ended + b.ended, 0);
    close_side(&a);
    UNTIL(b.ended == 1 && b.ended_with == 1);
    assert_int_equal(a.ended, 0);
    open_side(&a, 1, "secret", "127.0.0.1:0", NULL);
    b.received = 0;
    connect_sides();
    close_side(&b);
    UNTIL(a.ended == 1 && a.ended_with == 2);
    assert_int_equal(b.ended, 1);
}

/* One that is made anew by its owner has not ended: there is the next. */
static void test_a_connection_that_is_replaced_has_not_ended(void **state)
{
    static unsigned number;

    (void)state;
    connect_sides();
    peers_set_cluster(a.peers, "0123456789abcdef0123456789abcdef");
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK);
    UNTIL(b.met == 2);
    assert_int_equal(a.ended, 0);
}

static void test_too_much_is_not_added(void **state)
{
    unsigned char *bytes = calloc(1, LARGE);
    struct iovec piece = {bytes, LARGE};
    int taken = 0, result;

    (void)state;
    connect_sides();
    while ((result = peers_send(a.peers, 2, &piece, 1)) == HF_OK)
        assert_true(++taken < 10);
    assert_int_equal(result, HF_EBUSY);
    assert_int_equal(taken, 3); /* below 64 MB */
    UNTIL(b.received == taken + 1);
    UNTIL(peers_send(a.peers, 2, &piece, 1) == HF_OK);
    UNTIL(b.received == taken + 2);
    free(bytes);
}

static void test_a_connection_before_there_is_need_of_one(void **state)
{
    static unsigned number = 3;

    (void)state;
    dial(&a, 2, b.address);
    UNTIL(b.met == 1);
    dial(&a, 2, b.address);
    assert_int_equal(send_number(&a, b.address, 2, &number), HF_OK); /* the first one goes */
    UNTIL(b.received == 1);
    assert_int_equal(b.met, 1);
}

/* Who has been away for long is not tried often; but when it comes to us, it is there. */
static void test_one_that_comes_to_us_is_tried_at_once(void **state)
{
    char address[32];

    (void)state;
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    for (int64_t end_ms = clock_boot_ms() + 1200; clock_boot_ms() < end_ms;) {
        dial(&a, 2, address); /* until it waits for a second between two tries */
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    open_side(&b, 2, "secret", address, NULL);
    dial(&b, 1, a.address);
    UNTIL(a.met == 1);
    dial(&a, 2, address); /* just once */
    UNTIL(b.met == 1);
}

static void test_one_that_comes_back_is_found_again(void **state)
{
    static unsigned number = 3;
    char address[32];

    (void)state;
    connect_sides();
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    UNTIL(send_number(&a, b.address, 2, &number) == HF_EUNREACH);
    UNTIL(a.notes == 1);
    open_side(&b, 2, "secret", address, NULL);
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(a.notes, 1); /* gone; and there again, if it lasts: */
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK && a.notes == 2);
    assert_non_null(strstr(a.noted, "is there again"));
}

static void test_what_is_said_first(void **state)
{
    (void)state;
    a.talks = true;
    UNTIL((dial(&a, 2, b.address), b.received == 1));
    assert_int_equal(b.first, 77);
}

/* ---- several addresses ------------------------------------------------------------------------- */

#define NOBODY "127.0.0.1:1"
#define NOBODY_EITHER "127.0.0.2:1"

static struct side other; /* a second node 2 */

static int tear_down_three(void **state)
{
    close_side(&other);
    return tear_down(state);
}

/* What has the id of another one serves until that one is found, and does not keep it from being found. */
static void test_another_one_with_its_id(void **state)
{
    const char *both[2] = {other.address, b.address};
    char address[32];

    (void)state;
    open_side(&other, 2, "secret", "127.0.0.1:0", "impostor");
    a.means = "node2.example:7420";
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    UNTIL((peers_dial(a.peers, 2, both, 2), other.met == 1));
    assert_string_equal(peers_about(a.peers, 2), "impostor");
    open_side(&b, 2, "secret", address, "node2.example:7420");
    UNTIL((peers_dial(a.peers, 2, both, 2), b.met == 1));
    assert_string_equal(peers_about(a.peers, 2), "node2.example:7420");
    for (int64_t end_ms = clock_boot_ms() + 300; clock_boot_ms() < end_ms;) {
        peers_dial(a.peers, 2, both, 2);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(other.met, 1); /* nobody goes there any more */
    assert_int_equal(b.met, 1);
    assert_int_equal(a.ended, 0);
}

/* One line for each of its addresses, and none while another one may still work. */
static void test_a_node_that_is_nowhere_is_noted_once(void **state)
{
    const char *both[2] = {NOBODY, NOBODY_EITHER};

    (void)state;
    for (int64_t end_ms = clock_boot_ms() + 1500; clock_boot_ms() < end_ms;) {
        peers_dial(a.peers, 2, both, 2);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(a.notes, 2);
    assert_string_equal(peers_why(a.peers, 2), "connection refused");
    both[1] = b.address;
    UNTIL((peers_dial(a.peers, 2, both, 2), b.met == 1));
    assert_int_equal(a.notes, 2);
}

static void test_one_wrong_address_is_not_noted(void **state)
{
    const char *both[2] = {NOBODY, b.address};

    (void)state;
    UNTIL((peers_dial(a.peers, 2, both, 2), b.met == 1));
    assert_int_equal(a.notes, 0);
}

/* It is known at two addresses, has been away for long, and comes to us: the right one is tried at once, whichever worked before. */
static void test_one_that_comes_to_us_is_tried_everywhere(void **state)
{
    char before[32], after[32];
    const char *both[2] = {before, after};

    (void)state;
    connect_sides();
    snprintf(before, sizeof before, "%s", b.address);
    close_side(&b);
    open_side(&b, 2, "secret", "127.0.0.1:0", NULL);
    snprintf(after, sizeof after, "%s", b.address);
    close_side(&b);
    for (int64_t end_ms = clock_boot_ms() + 1200; clock_boot_ms() < end_ms;) {
        peers_dial(a.peers, 2, both, 2);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    open_side(&b, 2, "secret", after, NULL);
    dial(&b, 1, a.address);
    UNTIL(a.met == 1);
    peers_dial(a.peers, 2, both, 2); /* just once */
    UNTIL(b.met == 1);
}

/* Whoever is asked for at one address is not looked for, nor talked to, at another. */
static void test_there_only(void **state)
{
    static unsigned number = 5;

    (void)state;
    open_side(&other, 2, "secret", "127.0.0.1:0", "other");
    connect_sides();
    UNTIL(send_number(&a, other.address, 2, &number) == HF_OK);
    UNTIL(other.received == 1);
    assert_int_equal(b.received, 1);
    assert_string_equal(peers_about(a.peers, 2), "other");
}

static void test_another_secret(void **state)
{
    static unsigned number;

    (void)state;
    close_side(&b);
    open_side(&b, 2, "another", "127.0.0.1:0", NULL);
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK || a.notes > 0);
    assert_non_null(strstr(a.noted, "does not know the cluster's secret"));
    assert_int_equal(b.received, 0);
}

#define CLUSTER "0123456789abcdef0123456789abcdef"
#define ANOTHER "fedcba9876543210fedcba9876543210"

static void open_both(const char *cluster_of_a, const char *cluster_of_b)
{
    close_side(&a);
    close_side(&b);
    open_side_of(&a, 1, "secret", "127.0.0.1:0", "one", cluster_of_a);
    open_side_of(&b, 2, "secret", "127.0.0.1:0", "two", cluster_of_b);
}

static void turn_for(int64_t ms)
{
    static unsigned number;

    for (int64_t end_ms = clock_boot_ms() + ms; clock_boot_ms() < end_ms;) {
        send_number(&a, b.address, 2, &number);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

/* [P4] Both say so, and not again and again. */
static void test_a_node_of_another_cluster_is_not_heard(void **state)
{
    (void)state;
    open_both(CLUSTER, ANOTHER);
    dial(&a, 2, b.address);
    UNTIL(a.notes == 1 && b.notes == 1);
    assert_non_null(strstr(
        a.noted, "node 2 belongs to another cluster, fedcba98..., and this one to 01234567..."));
    assert_non_null(strstr(
        b.noted, "node 1 belongs to another cluster, 01234567..., and this one to fedcba98..."));
    turn_for(1500); /* some tries */
    assert_int_equal(b.received + b.met + a.reached, 0);
    assert_int_equal(a.notes, 1);
    assert_int_equal(b.notes, 1);
}

/* Then it belongs to one: what was open is made anew, and the other knows. */
static void test_a_node_of_no_cluster_may_talk_until_it_has_another(void **state)
{
    static unsigned number = 7;

    (void)state;
    open_both("", CLUSTER);
    connect_sides();
    assert_int_equal(b.met, 1);
    assert_int_equal(a.reached, 1);
    assert_string_equal(a.reached_about, "two");
    peers_set_cluster(a.peers, CLUSTER);
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK);
    UNTIL(b.received >= 2);
    assert_int_equal(b.met, 2);
    assert_int_equal(a.notes + b.notes, 0);

    open_both("", CLUSTER);
    connect_sides();
    peers_set_cluster(a.peers, ANOTHER);
    UNTIL((send_number(&a, b.address, 2, &number), a.notes > 0));
    turn_for(300);
    assert_int_equal(b.received, 1);
    assert_int_equal(a.notes, 1);
}

/* Whoever has somebody else's word on its tongue is not listened to any more when this node has chosen. */
static void test_connections_from_other_clusters_are_closed(void **state)
{
    static unsigned number;

    (void)state;
    open_both(CLUSTER, "");
    connect_sides();
    peers_set_cluster(b.peers, ANOTHER);
    UNTIL((send_number(&a, b.address, 2, &number),
           strstr(a.noted, "node 2 belongs to another cluster")));
    assert_int_equal(b.received, 1);
}

static void test_one_that_is_not_wanted_is_told_nothing(void **state)
{
    (void)state;
    a.avoids = true;
    turn_for(300);
    assert_true(a.reached > 0);
    assert_int_equal(b.received + b.met, 0);
    a.avoids = false;
    connect_sides();
}

static void test_another_node_than_wanted(void **state)
{
    static unsigned number;

    (void)state;
    UNTIL(send_number(&a, b.address, 3, &number) == HF_OK || b.notes > 0);
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

/* A node that is set up wrongly comes each second, for as long as it runs; what is wrong with it may change. */
static void test_the_same_of_the_same_is_noted_once(void **state)
{
    unsigned char hello[120] = "GET / HTTP/1.0\r\n\r\n";

    (void)state;
    for (int i = 0; i < 6; i++) {
        int fd = knock();

        if (i == 3)
            hello[0] = 0x16; /* as TLS begins */
        assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
        UNTIL(is_closed(fd));
        assert_int_equal(b.notes, i < 3 ? 1 : 2);
        close(fd);
    }
    assert_non_null(strstr(b.noted, "speaks TLS"));
}

/* Its hello is shorter than ours: the rest is not waited for. */
static void test_another_version(void **state)
{
    unsigned char hello[120] = "HFPEER01";
    int fd = knock();

    (void)state;
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    UNTIL(is_closed(fd));
    assert_non_null(strstr(b.noted, "of another version"));
    close(fd);
}

static void test_an_about_that_cannot_be(void **state)
{
    struct handshake handshake;
    unsigned char hello[HANDSHAKE_HELLO];
    int fd = knock();

    (void)state;
    handshake_hello(&handshake, &five, 2, NULL, hello);
    hello[HANDSHAKE_HELLO - HANDSHAKE_TEXT + 2] = '\n';
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    UNTIL(is_closed(fd));
    assert_non_null(strstr(b.noted, "speaks something else"));
    assert_int_equal(b.met, 0);
    close(fd);
}

/* A right hello, a wrong proof, and messages at once. */
static void test_an_impostor(void **state)
{
    struct handshake handshake;
    unsigned char bytes[HANDSHAKE_HELLO + HANDSHAKE_PROOF + 64] = {0};
    int fd = knock();

    (void)state;
    handshake_hello(&handshake, &guess, 2, NULL, bytes);
    bytes[HANDSHAKE_HELLO + HANDSHAKE_PROOF] = 8; /* a message of eight bytes */
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    UNTIL(is_closed(fd));
    assert_non_null(strstr(b.noted, "does not know the cluster's secret"));
    assert_int_equal(b.received, 0);
    assert_int_equal(b.met, 0);
    close(fd);
}

/* ---- those who know the secret, and do not behave ---------------------------------------------- */

static ssize_t got;
static unsigned char reply[HANDSHAKE_REPLY];

static bool has_reply(int fd)
{
    ssize_t count = recv(fd, reply + got, sizeof reply - (size_t)got, 0);

    got += count > 0 ? count : 0;
    return got == sizeof reply;
}

/* Node 5, by hand: all but its proof. */
static int come_to_the_door(unsigned char ret_proof[HANDSHAKE_PROOF])
{
    struct handshake handshake;
    unsigned char hello[HANDSHAKE_HELLO];
    int fd = knock();

    got = 0;
    handshake_hello(&handshake, &five, 2, NULL, hello);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    UNTIL(has_reply(fd));
    assert_int_equal(handshake_prove(&handshake, reply, ret_proof), HANDSHAKE_OK);
    return fd;
}

static int come_in(void)
{
    unsigned char proof[HANDSHAKE_PROOF];
    int fd = come_to_the_door(proof);

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

/* It knows the secret, and yet is not let in: nothing that it says is heard, and whoever was there before under its id
 * stays. */
static void test_who_is_not_wanted(void **state)
{
    unsigned char bytes[HANDSHAKE_PROOF + 8 + 1] = {0};
    uint32_t sum = crc32c(0, "1", 1);
    int before = come_in(), fd;

    (void)state;
    UNTIL(b.met == 1);
    b.refuses = true;
    fd = come_to_the_door(bytes);
    bytes[HANDSHAKE_PROOF] = 1;
    for (int i = 0; i < 4; i++)
        bytes[HANDSHAKE_PROOF + 4 + i] = (unsigned char)(sum >> 8 * i);
    bytes[HANDSHAKE_PROOF + 8] = '1';
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    UNTIL(is_closed(fd));
    assert_int_equal(b.received, 0);
    send_frame(before, 1, sum, "1");
    UNTIL(b.received == 1);
    close(before);
    close(fd);
}

/* Its proof and its first message come in one piece. */
static void test_who_talks_at_once_is_met_before(void **state)
{
    unsigned char bytes[HANDSHAKE_PROOF + 8 + 1] = {0};
    uint32_t sum = crc32c(0, "1", 1);
    int fd = come_to_the_door(bytes);

    (void)state;
    assert_int_equal(b.met, 0); /* it may be anybody */
    bytes[HANDSHAKE_PROOF] = 1;
    for (int i = 0; i < 4; i++)
        bytes[HANDSHAKE_PROOF + 4 + i] = (unsigned char)(sum >> 8 * i);
    bytes[HANDSHAKE_PROOF + 8] = '1';
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    UNTIL(b.received == 1);
    assert_int_equal(b.met, 1);
    assert_int_equal(b.met_before, 1);
    assert_int_equal(b.met_id, 5);
    assert_string_equal(b.about, "five");
    close(fd);
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
        assert_int_equal(peers_send(a.peers, 2, &piece, 1), HF_OK);
    snprintf(address, sizeof address, "%s", b.address);
    close_side(&b);
    UNTIL(a.ended == 1);
    open_side(&b, 2, "secret", address, NULL);
    UNTIL((dial(&a, 2, b.address), peers_send(a.peers, 2, &piece, 1) == HF_OK));
    UNTIL(b.received == 1);
    free(bytes);
}

static void test_unauthenticated_are_few(void **state)
{
    int fds[PEERS_UNAUTHENTICATED_MAX + 1];

    (void)state;
    for (int i = 0; i <= PEERS_UNAUTHENTICATED_MAX; i++)
        fds[i] = knock();
    UNTIL(is_closed(fds[0])); /* it had the longest time to say who it is */
    assert_non_null(strstr(b.noted, "too many"));
    connect_sides(); /* a member gets through */
    UNTIL(is_closed(fds[1]));
    assert_false(is_closed(fds[PEERS_UNAUTHENTICATED_MAX]));
    for (int i = 0; i <= PEERS_UNAUTHENTICATED_MAX; i++)
        close(fds[i]);
}

/* They fill no log either. */
static void test_unauthenticated_are_told_of_now_and_then(void **state)
{
    int fds[KNOCKS];

    (void)state;
    for (int i = 0; i < KNOCKS; i++) {
        fds[i] = knock();
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    UNTIL(is_closed(fds[KNOCKS - PEERS_UNAUTHENTICATED_MAX - 1]));
    assert_in_range(b.notes, 1, PEERS_NOTES_MAX);
    connect_sides();
    for (int i = 0; i < KNOCKS; i++)
        close(fds[i]);
}

static void assert_refused(const struct peers_options *options, int expected, const char *why)
{
    struct peers_host host = side_host(&a);
    struct error_text err = {""};
    struct peers *peers;
    bool closed = false;
    int result = peers_open(&loop, options, &host, &peers, &err);

    if (result == HF_OK) { /* else the loop would never end */
        peers_close(peers, on_done, &closed);
        UNTIL(closed);
    }
    assert_int_equal(result, expected);
    assert_non_null(strstr(err.text, why));
}

static void test_addresses(void **state)
{
    static const char *const wrong[] = {"",
                                        "127.0.0.1",
                                        ":1",
                                        "127.0.0.1:",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:x",
                                        "1.2.3.256:1",
                                        "local host:1",
                                        "127.0.0.1:1x",
                                        "[::1:5"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(&(struct peers_options){.id = 1, .address = "", .listen = wrong[i]},
                       HF_EINVAL, wrong[i]);
    assert_refused(&(struct peers_options){.id = 1, .address = "", .listen = a.address}, HF_EIO,
                   "in use");
}

static void test_what_others_cannot_be_told(void **state)
{
    struct peers_options options = {.id = 1, .address = "", .listen = "127.0.0.1:0"};
    char longest[PEERS_ABOUT_MAX + 2];

    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        options.about = i == 0 ? longest : "two words";
        assert_refused(&options, HF_EINVAL, "cannot be told");
        options.about = NULL;
        options.address = i == 0 ? longest : "two words";
        assert_refused(&options, HF_EINVAL, "no address");
        options.address = "";
    }
    longest[PEERS_ABOUT_MAX] = '\0';
    close_side(&a);
    open_side(&a, 1, "secret", "127.0.0.1:0", longest);
    connect_sides();
    assert_string_equal(b.about, longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_messages_arrive_in_order),
        TEST(test_what_a_node_says_about_itself),
        TEST(test_who_does_not_want_to_be_told),
        TEST(test_large_ones_in_pieces),
        TEST(test_borrowed_ones_may_change_afterwards),
        TEST(test_the_end_of_a_connection_is_told),
        TEST(test_a_connection_that_is_replaced_has_not_ended),
        TEST(test_too_much_is_not_added),
        TEST(test_a_connection_before_there_is_need_of_one),
        TEST(test_one_that_comes_to_us_is_tried_at_once),
        TEST(test_one_that_comes_back_is_found_again),
        TEST(test_what_is_said_first),
        cmocka_unit_test_setup_teardown(test_another_one_with_its_id, set_up, tear_down_three),
        TEST(test_a_node_that_is_nowhere_is_noted_once),
        TEST(test_one_wrong_address_is_not_noted),
        TEST(test_one_that_comes_to_us_is_tried_everywhere),
        cmocka_unit_test_setup_teardown(test_there_only, set_up, tear_down_three),
        TEST(test_another_secret),
        TEST(test_a_node_of_another_cluster_is_not_heard),
        TEST(test_a_node_of_no_cluster_may_talk_until_it_has_another),
        TEST(test_connections_from_other_clusters_are_closed),
        TEST(test_one_that_is_not_wanted_is_told_nothing),
        TEST(test_another_node_than_wanted),
        TEST(test_garbage),
        TEST(test_the_same_of_the_same_is_noted_once),
        TEST(test_another_version),
        TEST(test_an_about_that_cannot_be),
        TEST(test_an_impostor),
        TEST(test_who_is_not_wanted),
        TEST(test_who_talks_at_once_is_met_before),
        TEST(test_a_wrong_checksum),
        TEST(test_a_message_of_no_size),
        TEST(test_a_second_connection_ends_the_first),
        TEST(test_what_was_unsent_is_forgotten),
        TEST(test_unauthenticated_are_few),
        TEST(test_unauthenticated_are_told_of_now_and_then),
        TEST(test_addresses),
        TEST(test_what_others_cannot_be_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
