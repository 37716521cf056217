/* Nodes that are reached by their names. The resolver is played: it answers what a test wants, when it wants. */
#include "../base/hostports.h"
#include "base/clock.h"
#include "base/hostport.h"
#include "peers/outgoing.h"
#include "sides.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_PLACE_OF_LIBC __attribute__((visibility("default")))
#define TURNS 20 /* of the loop: more than anything takes that waits for nobody */

/* ---- the resolver ----------------------------------------------------------------------------- */

typedef int resolve_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int socket_fn(int, int, int);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool is_shut;                         /* nobody gets an answer, but for quick.test */
static char answers[2][16], every_other[16]; /* ""; in the place of the second, each other time */
static atomic_int asked;                     /* how often, for whatever */
static bool no_ip6;

static resolve_fn *real_resolve(void)
{
    return (resolve_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
}

static void shut(bool it_is)
{
    pthread_mutex_lock(&mutex);
    is_shut = it_is;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&mutex);
}

/* What every name under .test stands for from now on; "": nothing. */
static void answer(const char *first, const char *second)
{
    pthread_mutex_lock(&mutex);
    snprintf(answers[0], sizeof *answers, "%s", first);
    snprintf(answers[1], sizeof *answers, "%s", second);
    pthread_mutex_unlock(&mutex);
}

/* Lookups that were given up may still be asking. */
static void answer_every_other(const char *second)
{
    pthread_mutex_lock(&mutex);
    snprintf(every_other, sizeof every_other, "%s", second);
    pthread_mutex_unlock(&mutex);
}

/* Each is one from libc, so that libc's freeaddrinfo can free them. */
static int play(const char *port, const struct addrinfo *hints, struct addrinfo **ret_results)
{
    static unsigned turns;
    struct addrinfo number = *hints, *results = NULL, **end = &results;
    bool is_other = every_other[0] && turns++ % 2 > 0;

    number.ai_flags |= AI_NUMERICHOST;
    for (int i = 0; i < 2; i++) {
        const char *text = is_other && i == 1 ? every_other : answers[i];

        if (text[0] != '\0' && real_resolve()(text, port, &number, end) == 0)
            end = &(*end)->ai_next;
    }
    if (!results)
        return EAI_NONAME;
    *ret_results = results;
    return 0;
}

/* net/lookup.c calls this one. */
IN_PLACE_OF_LIBC int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                                 struct addrinfo **ret_results)
{
    int result;

    asked++;
    if (!name || !strstr(name, ".test"))
        return real_resolve()(name, port, hints, ret_results);
    pthread_mutex_lock(&mutex);
    while (is_shut && !strstr(name, "quick"))
        pthread_cond_wait(&opened, &mutex);
    result = play(port, hints, ret_results);
    pthread_mutex_unlock(&mutex);
    return result;
}

IN_PLACE_OF_LIBC int socket(int family, int type, int protocol)
{
    if (family == AF_INET6 && no_ip6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    return ((socket_fn *)dlsym(RTLD_NEXT, "socket"))(family, type, protocol);
}

static int names_up(void **state)
{
    asked = 0;
    answer("127.0.0.1", "");
    return set_up(state);
}

static int names_down(void **state)
{
    shut(false);
    answer_every_other("");
    no_ip6 = false;
    return tear_down(state);
}

/* ---- reaching --------------------------------------------------------------------------------- */

static unsigned number;

/* b, by a name. */
static const char *at(const char *name)
{
    static char address[PEERS_ADDRESS_MAX + 1];

    snprintf(address, sizeof address, "%s%s", name, strrchr(b.address, ':'));
    return address;
}

static int send_to(const char *name, uint64_t id)
{
    return send_number(&a, at(name), id, &number);
}

static void turn(void)
{
    for (int i = 0; i < TURNS; i++)
        uv_run(&loop, UV_RUN_ONCE);
}

static void test_localhost(void **state)
{
    (void)state;
    UNTIL(send_to("localhost", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_true(asked >= 1); /* ::1 may come first */
    assert_int_equal(a.notes, 0);
}

static void test_a_number_needs_no_resolver(void **state)
{
    (void)state;
    connect_sides();
    assert_int_equal(asked, 0);
}

static void test_a_name_that_nobody_knows(void **state)
{
    (void)state;
    answer("", "");
    UNTIL(send_number(&a, "host.test:7431", 2, &number) == HF_OK || a.notes > 0);
    assert_non_null(strstr(a.noted, "a node cannot be reached node=2 peer=host.test:7431 why=its "
                                    "name cannot be resolved: "));
    asked = 0;
    UNTIL(send_to("nobody.test", 3) == HF_OK || asked == 3);
    UNTIL(a.notes > 1);
    assert_non_null(strstr(a.noted, "node=3 peer=nobody.test:"));
    assert_int_equal(a.notes, 2); /* once for each */
    answer("127.0.0.1", "");      /* and then somebody does */
    UNTIL(send_to("nobody.test", 2) == HF_OK);
    UNTIL(b.received == 1);
}

static void test_what_is_no_address_is_told(void **state)
{
    (void)state;
    assert_int_equal(send_number(&a, "1.2.3.256:7431", 2, &number), HF_EUNREACH);
    assert_string_equal(a.noted, "a node cannot be reached node=2 peer=1.2.3.256:7431 why=that is "
                                 "no address: it is HOST:PORT");
    assert_int_equal(asked, 0);
}

/* Of a node that was founded alone, before it says where its peers find it. */
static void test_no_address_is_none(void **state)
{
    (void)state;
    assert_int_equal(send_number(&a, "", 2, &number), HF_EUNREACH);
    assert_string_equal(a.noted,
                        "a node cannot be reached node=2 why=its address is not known here "
                        "yet");
    assert_int_equal(asked, 0);
}

static void test_the_loop_never_waits(void **state)
{
    (void)state;
    shut(true);
    UNTIL(send_to("slow.test", 3) == HF_OK || asked == 1);
    connect_sides();
    turn();
    assert_int_equal(send_to("slow.test", 3), HF_EUNREACH);
    assert_int_equal(asked, 1); /* one answer is enough */
    assert_int_equal(b.met, 1);
    close_side(&b);
    shut(false);
    UNTIL(send_to("slow.test", 3) == HF_OK || a.notes > 0);
}

/* Takes PEERS_HANDSHAKE_MS. */
static void test_a_resolver_that_hangs_is_told(void **state)
{
    (void)state;
    shut(true);
    UNTIL(send_to("slow.test", 2) == HF_OK || a.notes > 0);
    assert_non_null(strstr(a.noted, "why=the resolver does not answer in time"));
    assert_int_equal(send_to("slow.test", 2), HF_EUNREACH);
    turn();
    assert_int_equal(asked, 1);
    shut(false);
    UNTIL(send_to("slow.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(asked, 1);
    UNTIL(send_to("slow.test", 2) == HF_OK && strstr(a.noted, "is there again")); /* it lasts */
}

static void test_the_next_address_of_a_name(void **state)
{
    (void)state;
    answer("127.0.0.2", "127.0.0.1"); /* nobody is at the first */
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(asked, 2);
    assert_int_equal(a.notes, 0);
    close_side(&b);
    UNTIL(send_to("two.test", 2) != HF_OK);
    UNTIL(a.notes == 1);
}

static void test_none_of_a_names_addresses(void **state)
{
    (void)state;
    answer("127.0.0.2", "127.0.0.3");
    UNTIL(send_to("two.test", 2) == HF_OK || a.notes > 0);
    assert_int_equal(asked, 2);
    UNTIL(send_to("two.test", 2) == HF_OK || asked >= 5);
    assert_int_equal(a.notes, 1);
}

static void test_a_name_that_moves(void **state)
{
    char address[PEERS_ADDRESS_MAX + 1];

    (void)state;
    UNTIL(send_to("moving.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    snprintf(address, sizeof address, "%s", at("127.0.0.2"));
    close_side(&b);
    open_side(&b, 2, "secret", address, NULL);
    answer("127.0.0.2", "");
    UNTIL(send_to("moving.test", 2) == HF_OK && b.received > 0);
}

/* ---- not waiting for it ------------------------------------------------------------------------ */

/* They hang, and nobody can stop them: who closes does not wait for that. */
static void test_closing_while_it_resolves(void **state)
{
    static bool closed;
    static const char *const names[] = {"one.test", "two.test", "three.test", "four.test"};

    (void)state;
    shut(true);
    for (uint64_t id = 0; id < 4; id++)
        assert_int_equal(send_to(names[id], 10 + id), HF_EUNREACH);
    UNTIL(asked == 4);
    closed = false;
    peers_close(a.peers, on_done, &closed);
    a.peers = NULL;
    UNTIL(closed);
    assert_int_equal(a.notes, 0);
}

/* However many there are: each waits for its own. */
static void test_names_that_hang_keep_nobody_from_others(void **state)
{
    static const char *const names[] = {"one.test", "two.test", "three.test", "four.test"};

    (void)state;
    shut(true);
    for (uint64_t id = 0; id < 4; id++)
        assert_int_equal(send_to(names[id], 10 + id), HF_EUNREACH);
    UNTIL(asked == 4);
    UNTIL(send_to("quick.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(a.notes, 0);
}

static void come_back(const char *address)
{
    close_side(&b);
    UNTIL(a.ended == 1);
    open_side(&b, 2, "secret", address, NULL);
}

/* The resolver is asked again each time; but nobody waits for it in vain who has been there before. */
static void test_the_number_of_before_while_the_resolver_hangs(void **state)
{
    char address[PEERS_ADDRESS_MAX + 1];

    (void)state;
    UNTIL(send_to("slow.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    snprintf(address, sizeof address, "%s", b.address);
    shut(true);
    for (int times = 0; times < 2; times++) {
        a.ended = 0;
        come_back(address);
        UNTIL(send_to("slow.test", 2) == HF_OK);
        UNTIL(b.received == 1);
        assert_int_equal(asked, 2); /* that one still hangs */
    }
}

static void test_the_number_of_before_when_the_resolver_fails(void **state)
{
    char address[PEERS_ADDRESS_MAX + 1];

    (void)state;
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    snprintf(address, sizeof address, "%s", b.address);
    answer("", "");
    come_back(address);
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_true(asked > 1);
}

/* ---- silent numbers ---------------------------------------------------------------------------- */

#define HOLE "127.0.0.2"

static int hole = -1, in_hole[2] = {-1, -1};

/* At b's port: the kernel drops whoever comes while the queue is full, and nobody takes anyone out of it. */
static void open_hole(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(peers_port(b.peers))};

    inet_pton(AF_INET, HOLE, &at.sin_addr);
    hole = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hole, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(hole, 0), 0);
    for (int i = 0; i < 2; i++) {
        in_hole[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(in_hole[i], (struct sockaddr *)&at, sizeof at);
    }
}

static int hole_down(void **state)
{
    close(hole);
    for (int i = 0; i < 2; i++) {
        if (in_hole[i] >= 0)
            close(in_hole[i]);
        in_hole[i] = -1;
    }
    return names_down(state);
}

/* And it has the next turn, too. */
static void test_a_silent_number_is_left_for_the_next(void **state)
{
    char address[PEERS_ADDRESS_MAX + 1];

    (void)state;
    open_hole();
    answer(HOLE, "127.0.0.1");
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_int_equal(a.notes, 0);
    snprintf(address, sizeof address, "%s", b.address);
    answer("127.0.0.1", HOLE); /* another order means nothing */
    asked = 0;
    come_back(address);
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_in_range(asked, 1, 2); /* the first found nobody, if it came too early */
}

/* Some name servers name a few of many, and others each time. */
static void test_a_number_that_is_named_each_other_time(void **state)
{
    (void)state;
    answer("127.0.0.2", "127.0.0.1");
    answer_every_other("127.0.0.3");
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_true(asked < 20);
}

/* A machine that hangs, or a program that waits for others to speak: its kernel takes connections. */
static void test_a_number_that_takes_connections_and_is_silent_is_left_for_the_next(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(peers_port(b.peers))};
    int64_t begun_ms = clock_boot_ms();

    (void)state;
    inet_pton(AF_INET, HOLE, &at.sin_addr);
    hole = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hole, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(hole, 64), 0);
    answer(HOLE, "127.0.0.1");
    UNTIL(send_to("two.test", 2) == HF_OK);
    UNTIL(b.received == 1);
    assert_true(clock_boot_ms() - begun_ms < PEERS_HANDSHAKE_MS);
    assert_int_equal(a.notes, 0);
}

static struct side stranger;

static int stranger_down(void **state)
{
    close_side(&stranger);
    return names_down(state);
}

/* At one number of its name is somebody else with its id. When the node has come, it is looked for where it comes from, and not where the other
 * one is once more. */
static void test_from_a_stranger_to_where_the_node_is(void **state)
{
    char address[PEERS_ADDRESS_MAX + 1];

    (void)state;
    snprintf(address, sizeof address, "%s", at(HOLE));
    open_side(&stranger, 2, "secret", address, "other.example:7420");
    answer(HOLE, "127.0.0.1");
    a.means = "node2.example:7420";
    UNTIL((dial(&a, 2, at("two.test")), stranger.met == 1));
    UNTIL((dial(&b, 1, a.address), a.met == 1));
    UNTIL(send_to("two.test", 2) == HF_OK && b.received > 0);
    assert_int_equal(stranger.met, 1);
}

/* Of three numbers the last works. After a failure each has its turn; whoever hears that the node is there goes back to that one. */
static void test_back_to_the_number_that_worked(void **state)
{
    const struct sockaddr_storage nowhere = {.ss_family = AF_UNSPEC};
    struct numbers numbers = {.count = 3};

    (void)state;
    for (unsigned i = 0; i < numbers.count; i++)
        *(struct sockaddr_in *)&numbers.at[i] =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons(7431),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
    assert_false(numbers_return(&numbers, &nowhere)); /* none has worked yet */
    assert_true(numbers_next(&numbers, &numbers.at[numbers.turn]));
    assert_true(numbers_next(&numbers, &numbers.at[numbers.turn]));
    numbers_keep(&numbers, &numbers.at[2]);
    assert_false(numbers_return(&numbers, &nowhere)); /* it has the turn */
    assert_true(numbers_next(&numbers, &numbers.at[numbers.turn]));
    assert_int_equal(numbers.turn, 0);
    assert_true(numbers_return(&numbers, &nowhere));
    assert_int_equal(numbers.turn, 2);
    assert_true(
        numbers_next(&numbers, &numbers.at[numbers.turn])); /* and all of them have another try */
    assert_true(numbers_next(&numbers, &numbers.at[numbers.turn]));
    assert_false(numbers_next(&numbers, &numbers.at[numbers.turn]));
}

/* A node that has connected is where it comes from, if its name leads there at all: by whatever port, and as a listener of both families sees it. */
static void test_to_the_number_where_the_node_is(void **state)
{
    struct sockaddr_storage from = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&from;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&from;
    struct numbers numbers = {.count = 3};

    (void)state;
    for (unsigned i = 0; i < numbers.count; i++)
        *(struct sockaddr_in *)&numbers.at[i] =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons(7431),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
    numbers_keep(&numbers, &numbers.at[1]);
    *four = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons(40000),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2)};
    assert_true(numbers_return(&numbers, &from));
    assert_int_equal(numbers.turn, 2);
    assert_false(numbers_return(&numbers, &from)); /* not back to the one of before */
    assert_int_equal(numbers.turn, 2);
    *six = (struct sockaddr_in6){.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &six->sin6_addr), 1);
    assert_true(numbers_return(&numbers, &from));
    assert_int_equal(numbers.turn, 0);
    assert_int_equal(inet_pton(AF_INET6, "::1", &six->sin6_addr), 1);
    assert_true(numbers_return(&numbers, &from)); /* it is none of them */
    assert_int_equal(numbers.turn, 1);
}

static void test_a_silent_address_keeps_nobody_from_the_other(void **state)
{
    char silent[PEERS_ADDRESS_MAX + 1];
    const char *both[2] = {silent, b.address};

    (void)state;
    open_hole();
    snprintf(silent, sizeof silent, "%s", at(HOLE));
    UNTIL((peers_dial(a.peers, 2, both, 2), b.met == 1));
    assert_int_equal(a.notes, 0);
}

static void test_a_name_that_hangs_keeps_nobody_from_the_other(void **state)
{
    char slow[PEERS_ADDRESS_MAX + 1];
    const char *both[2] = {slow, b.address};

    (void)state;
    shut(true);
    snprintf(slow, sizeof slow, "%s", at("slow.test"));
    UNTIL((peers_dial(a.peers, 2, both, 2), b.met == 1 && asked == 1));
    assert_int_equal(a.notes, 0);
}

static void test_forgetting_while_it_resolves(void **state)
{
    (void)state;
    shut(true);
    UNTIL(send_to("slow.test", 2) == HF_OK || asked == 1);
    peers_forget(a.peers, 2);
    connect_sides(); /* by its number */
    shut(false);
    close_side(&a); /* waits for the resolver */
    assert_int_equal(b.met, 1);
    assert_int_equal(a.notes, 0);
}

static void test_moving_while_it_resolves(void **state)
{
    (void)state;
    shut(true);
    UNTIL(send_to("slow.test", 2) == HF_OK || asked == 1);
    connect_sides();
    shut(false);
    close_side(&a);
    assert_int_equal(b.met, 1);
    assert_int_equal(a.notes, 0);
}

/* ---- listening -------------------------------------------------------------------------------- */

static bool answers_at(const char *host)
{
    struct sockaddr_in ip4 = {.sin_family = AF_INET, .sin_port = htons(peers_port(b.peers))};
    struct sockaddr_in6 ip6 = {.sin6_family = AF_INET6, .sin6_port = htons(peers_port(b.peers))};
    bool is_ip4 = inet_pton(AF_INET, host, &ip4.sin_addr) == 1, does;
    int fd = socket(is_ip4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (!is_ip4)
        assert_int_equal(inet_pton(AF_INET6, host, &ip6.sin6_addr), 1);
    assert_true(fd >= 0);
    does = connect(fd, is_ip4 ? (struct sockaddr *)&ip4 : (struct sockaddr *)&ip6,
                   is_ip4 ? sizeof ip4 : sizeof ip6) == 0;
    close(fd);
    return does;
}

static bool machine_has_ip6(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

static void listen_at(const char *listen)
{
    close_side(&b);
    open_side(&b, 2, "secret", listen, NULL);
}

static void test_listening_at_a_name(void **state)
{
    (void)state;
    listen_at("db1.test:0");
    assert_true(answers_at("127.0.0.1"));
    assert_true(answers_at("127.0.0.2"));
    if (machine_has_ip6())
        assert_true(answers_at("::1"));
    assert_int_equal(asked, 0);
    connect_sides();
}

static void test_listening_at_a_name_without_ip6(void **state)
{
    (void)state;
    no_ip6 = true;
    listen_at("db1.test:0");
    assert_true(answers_at("127.0.0.1"));
    assert_true(answers_at("127.0.0.2"));
    connect_sides();
}

static void test_listening_at_localhost(void **state)
{
    (void)state;
    listen_at("localhost:0");
    assert_true(answers_at("127.0.0.1"));
    assert_false(answers_at("127.0.0.2"));
    connect_sides();
}

/* ---- as text ---------------------------------------------------------------------------------- */

static void test_addresses_as_text(void **state)
{
    static const char *const right[] = {
        "db1.example:7420", "localhost:1",    "A-b_c.9:65535",      "1.2.3.4:5",
        "[::1]:7431",       "db1.example.:1", "[::ffff:1.2.3.4]:9", "1.example:7420",
    };
    static const char *const wrong[] = {
        "",
        ":",
        "host",
        "host:",
        ":1",
        "host:0",
        "host:65536",
        "host:x",
        "host:+1",
        "host: 1",
        "host:1 ",
        "ho st:1",
        "h\xc3\xb6st:1",
        "host/x:1",
        "h\n:1",
        "[::1]",
        "[::1]:",
        "[::1:5",
        "::1]:5",
        "::1:5",
        "[]:1",
        "[x]:1",
        "[1.2.3.4]:1",
        "[::1]x:1",
        "1.2.3:1",
        "1.2.3.256:1",
        "1.2.3.4.5:1",
        "7:1",
        "a:b:1",
        "host:1:",
        "[fe80::1%eth0]:1",
        "127.1:1",
        "host..invalid:80",
        "-host:1",
        "user@host:1",
        "host:18446744073709551617",
    };
    char longest[PEERS_ADDRESS_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!peers_address_ok(right[i]))
            fail_msg("'%s' is refused", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (peers_address_ok(wrong[i]))
            fail_msg("'%s' is taken", wrong[i]);
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = i % 10 == 9 ? '.' : 'x';
    memcpy(longest + HOSTPORT_HOST_MAX, ":7431", 6);
    assert_true(peers_address_ok(longest));
    memcpy(longest + HOSTPORT_HOST_MAX, "x:7431", 7);
    assert_false(peers_address_ok(longest));
}

/* The same as everywhere; but another node has a port, and is not at 0. */
static void test_addresses_as_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < HOSTPORT_CASES; i++) {
        const struct hostport_case *each = &hostport_cases[i];
        bool is_good = each->host && each->port > 0;

        if (peers_address_ok(each->text) != is_good)
            fail_msg("'%s' is %s", each->text, is_good ? "refused" : "taken");
        if (peers_address_is_loopback(each->text) != (each->port >= 0 && each->loopback))
            fail_msg("'%s': is it of this machine?", each->text);
    }
}

static void test_loopback(void **state)
{
    static const char *const is[] = {"127.0.0.1:1",  "127.255.3.4:1", "[::1]:1",
                                     "[0:0::0:1]:1", "localhost:1",   "LocalHost:1"};
    static const char *const is_not[] = {
        "126.0.0.1:1",
        "128.0.0.1:1",
        "0.0.0.0:1",
        "[::]:1",
        "[::2]:1",
        "localhost.x:1",
        "localhos:1",
        "localhost",
        "[fe80::1]:1",
        "1.0.0.127:1",
        "127.0.0.1.nip.io:1",
        "[::ffff:1.2.3.4]:1",
        "127.0.0.1:x",
        "",
    };

    (void)state;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        if (!peers_address_is_loopback(is[i]))
            fail_msg("'%s' is none", is[i]);
    for (size_t i = 0; i < sizeof is_not / sizeof *is_not; i++)
        if (peers_address_is_loopback(is_not[i]))
            fail_msg("'%s' is one", is_not[i]);
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, names_up, names_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_localhost),
        TEST(test_a_number_needs_no_resolver),
        TEST(test_a_name_that_nobody_knows),
        TEST(test_what_is_no_address_is_told),
        TEST(test_no_address_is_none),
        TEST(test_the_loop_never_waits),
        TEST(test_a_resolver_that_hangs_is_told),
        TEST(test_the_next_address_of_a_name),
        TEST(test_none_of_a_names_addresses),
        TEST(test_a_name_that_moves),
        TEST(test_closing_while_it_resolves),
        TEST(test_names_that_hang_keep_nobody_from_others),
        TEST(test_the_number_of_before_while_the_resolver_hangs),
        TEST(test_the_number_of_before_when_the_resolver_fails),
        cmocka_unit_test_setup_teardown(test_a_silent_number_is_left_for_the_next, names_up,
                                        hole_down),
        cmocka_unit_test_setup_teardown(test_a_number_that_is_named_each_other_time, names_up,
                                        names_down),
        cmocka_unit_test_setup_teardown(
            test_a_number_that_takes_connections_and_is_silent_is_left_for_the_next, names_up,
            hole_down),
        cmocka_unit_test_setup_teardown(test_from_a_stranger_to_where_the_node_is, names_up,
                                        stranger_down),
        cmocka_unit_test(test_back_to_the_number_that_worked),
        cmocka_unit_test(test_to_the_number_where_the_node_is),
        cmocka_unit_test_setup_teardown(test_a_silent_address_keeps_nobody_from_the_other, names_up,
                                        hole_down),
        TEST(test_a_name_that_hangs_keeps_nobody_from_the_other),
        TEST(test_forgetting_while_it_resolves),
        TEST(test_moving_while_it_resolves),
        TEST(test_listening_at_a_name),
        TEST(test_listening_at_a_name_without_ip6),
        TEST(test_listening_at_localhost),
        cmocka_unit_test(test_addresses_as_text),
        cmocka_unit_test(test_addresses_as_everywhere),
        cmocka_unit_test(test_loopback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
