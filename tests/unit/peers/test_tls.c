/* Two nodes on one loop that speak TLS with each other, over real connections; nodes that do not; and others who are none. */
#include "../net/certificates.h"
#include "base/modules.h"
#include "net/tls_peer.h"
#include "peers/handshake.h"
#include "sides.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE ((size_t)20 << 20)
#define PIECE ((size_t)1 << 20)
#define KNOCKS (PEERS_UNAUTHENTICATED_MAX + 40)
#define NAMES \
    "IP:127.0.0.1,IP:10.0.0.1,DNS:two.test,DNS:far.test" /* where a side is reached, and where it says that it is */

static char directory[] = "/tmp/holdfast-peers-tls-XXXXXX", cert_file[64], ca_file[64];
static const struct tls_peer_provider *tls;
static const struct tls_server_provider *files_of;
static struct tls_context *good, *renewed, *foreign, *client;

/* ---- two nodes ------------------------------------------------------------------------------------ */

static void reopen(struct side *side, uint64_t id, enum peers_tls_mode mode,
                   struct tls_context *context)
{
    close_side(side);
    side_tls = (struct peers_tls){.mode = mode, .provider = tls, .context = context};
    open_side(side, id, "secret", "127.0.0.1:0", "about");
    side_tls = (struct peers_tls){.mode = PEERS_IN_CLEAR};
}

static void both(enum peers_tls_mode of_a, enum peers_tls_mode of_b)
{
    reopen(&a, 1, of_a, good);
    reopen(&b, 2, of_b, good);
}

static void test_messages_arrive(void **state)
{
    static unsigned numbers[1000];

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    connect_sides();
    for (unsigned i = 0; i < 1000; i++) {
        numbers[i] = i;
        assert_int_equal(send_number(&a, b.address, 2, &numbers[i]), HF_OK);
    }
    UNTIL(b.received == 1001 && b.first == 999);
    assert_string_equal(b.from_address, "10.0.0.1:1");
    UNTIL(send_number(&b, a.address, 1, &numbers[7]) == HF_OK);
    UNTIL(a.received == 1 && a.first == 7);
    assert_int_equal(a.notes + b.notes, 0);
}

/* Larger than what the kernel takes, out of pieces of odd sizes, which are gone when the call returns. */
static void test_large_ones(void **state)
{
    unsigned char *bytes = malloc(LARGE);
    struct iovec pieces[4] = {
        {bytes, 3}, {bytes + 3, 0}, {bytes + 3, 16384}, {bytes + 16387, LARGE - 16387}};
    static unsigned after = 5;
    uint64_t sum;

    (void)state;
    assert_non_null(bytes);
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    connect_sides();
    sum = b.sum;
    for (size_t i = 0; i < LARGE; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 1000);
        sum = sum * 31 + bytes[i];
    }
    assert_int_equal(peers_send(a.peers, 2, pieces, 4), HF_OK);
    memset(bytes, 0, LARGE);
    UNTIL(b.received == 2);
    assert_int_equal(b.size, LARGE);
    assert_true(b.sum == sum);
    assert_int_equal(send_number(&a, b.address, 2, &after), HF_OK);
    UNTIL(b.received == 3 && b.first == 5);
    free(bytes);
}

/* Nobody reads: what is held for it has a limit, and what was refused leaves the connection as it was. */
static void test_too_much_is_unsent(void **state)
{
    unsigned char *bytes = calloc(1, PIECE);
    struct iovec piece = {bytes, PIECE};
    int sent = 1, result;

    (void)state;
    assert_non_null(bytes);
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    connect_sides();
    while ((result = peers_send(a.peers, 2, &piece, 1)) == HF_OK)
        sent++;
    assert_int_equal(result, HF_EBUSY);
    assert_in_range(sent, PEERS_UNSENT_MAX / PIECE - 1, PEERS_UNSENT_MAX / PIECE + 16);
    UNTIL(b.received == sent);
    assert_int_equal(peers_send(a.peers, 2, &piece, 1), HF_OK);
    UNTIL(b.received == sent + 1);
    free(bytes);
}

/* A byte from whom does not let this node in. */
static void test_who_is_turned_away(void **state)
{
    static unsigned number;

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    b.refuses = true;
    dial(&a, 2, b.address);
    UNTIL(b.met > 0 && a.ended > 0);
    b.refuses = false;
    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK && b.received > 0);
}

static void test_certificates_that_are_renewed(void **state)
{
    static unsigned number = 3;

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    connect_sides();
    peers_set_tls(a.peers, renewed);
    peers_set_tls(b.peers, renewed);
    assert_int_equal(send_number(&a, b.address, 2, &number), HF_OK);
    UNTIL(b.received == 2);
    assert_int_equal(a.ended + b.ended, 0);
    UNTIL(send_number(&b, a.address, 1, &number) == HF_OK);
    UNTIL(a.received == 1);
}

/* ---- who is not let in --------------------------------------------------------------------------- */

static bool was_noted(const struct side *side, const char *words)
{
    return strstr(side->noted, words) != NULL;
}

/* What the one says who connects, and what the other. */
static void test_in_the_clear_and_tls_do_not_meet(void **state)
{
    (void)state;
    both(PEERS_IN_CLEAR, PEERS_TLS_MUST);
    dial(&a, 2, b.address);
    UNTIL(was_noted(&a, "it speaks TLS with other nodes, and this one does not"));
    assert_true(was_noted(&b, "it does not speak TLS, which peer-tls asks for here"));
    assert_non_null(strstr(peers_why(a.peers, 2), "set peer-tls on both"));
    both(PEERS_TLS_MUST, PEERS_IN_CLEAR);
    UNTIL((dial(&a, 2, b.address),
           was_noted(&b, "it speaks TLS with other nodes, and this one does not")));
    UNTIL((dial(&a, 2, b.address), was_noted(&a, "it does not answer a TLS handshake")));
    assert_int_equal(a.received + b.received + a.met + b.met + a.reached, 0);
}

static void test_who_may_speak_both(void **state)
{
    static unsigned number;
    static const enum peers_tls_mode modes[][2] = {
        {PEERS_TLS_MAY, PEERS_IN_CLEAR}, {PEERS_IN_CLEAR, PEERS_TLS_MAY},
        {PEERS_TLS_MAY, PEERS_TLS_MAY},  {PEERS_TLS_MAY, PEERS_TLS_MUST},
        {PEERS_TLS_MUST, PEERS_TLS_MAY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        both(modes[i][0], modes[i][1]);
        UNTIL(send_number(&a, b.address, 2, &number) == HF_OK && b.received > 0);
        assert_int_equal(was_noted(&a, "a node is spoken to in the clear"), i == 0);
    }
}

static struct sockaddr_in at_port_of_b(const char *host)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(peers_port(b.peers))};

    assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
    return at;
}

typedef int resolve_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* net/lookup.c calls this one: a name under .test leads to two numbers, one after the other. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret_results)
{
    resolve_fn *real = (resolve_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
    int result;

    if (!name || !strstr(name, ".test"))
        return real(name, port, hints, ret_results);
    result = real("127.0.0.2", port, hints, ret_results);
    return result != 0 ? result
                       : real(strstr(name, "far.") ? "127.0.0.3" : "127.0.0.1", port, hints,
                              &(*ret_results)->ai_next);
}

/* ---- far away ---- */

#define FAR "127.0.0.2"
#define AWAY_MS 900 /* to there, and back: two of them are more than a silent number has */

struct way {
    int from, to;
};

/* What has come arrives so much later, and with an end, the end. */
static void *carry(void *arg)
{
    struct way *way = arg;
    char bytes[4096];
    ssize_t count;

    while ((count = recv(way->from, bytes, sizeof bytes, 0)) > 0) {
        usleep(AWAY_MS * 1000 / 2);
        if (send(way->to, bytes, (size_t)count, MSG_NOSIGNAL) != count)
            break;
    }
    shutdown(way->from, SHUT_RDWR);
    shutdown(way->to, SHUT_RDWR);
    return NULL;
}

struct ways { /* one connection after the other, until the listener is shut down */
    int listener;
    struct sockaddr_in to;
};

static void *carry_all(void *arg)
{
    const struct ways *ways = arg;
    int near;

    while ((near = accept(ways->listener, NULL, NULL)) >= 0) {
        int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct way there = {near, far}, back = {far, near};
        pthread_t thread;

        if (connect(far, (const struct sockaddr *)&ways->to, sizeof ways->to) == 0 &&
            pthread_create(&thread, NULL, carry, &back) == 0) {
            carry(&there);
            pthread_join(thread, NULL);
        }
        close(near);
        close(far);
    }
    return NULL;
}

/* The name has another number, at which nobody is; the node at this one takes its time for each word, and is not given up for that. */
static void test_one_that_is_far_away(void **state)
{
    static unsigned number;
    struct sockaddr_in at;
    struct ways ways = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    pthread_t thread;
    char address[32];
    int64_t until = clock_boot_ms() + PATIENCE_MS;

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    at = at_port_of_b(FAR);
    ways.to = at_port_of_b("127.0.0.1");
    assert_true(ways.listener >= 0 &&
                bind(ways.listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
                listen(ways.listener, 64) == 0);
    assert_int_equal(pthread_create(&thread, NULL, carry_all, &ways), 0);
    snprintf(address, sizeof address, "far.test%s", strrchr(b.address, ':'));
    while (b.received == 0 && clock_boot_ms() < until) {
        send_number(&a, address, 2, &number);
        uv_run(&loop, UV_RUN_ONCE);
    }
    peers_forget(a.peers, 2);
    shutdown(ways.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(ways.listener);
    assert_true(b.received > 0);
}

/* One of them takes connections, and says nothing: it is not the one that was found to have no TLS. */
static void test_one_number_of_a_name_has_no_tls(void **state)
{
    static unsigned number;
    struct sockaddr_in at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char address[32];

    (void)state;
    both(PEERS_TLS_MAY, PEERS_IN_CLEAR);
    at = at_port_of_b("127.0.0.2");
    assert_true(fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
                listen(fd, 64) == 0);
    snprintf(address, sizeof address, "two.test%s", strrchr(b.address, ':'));
    UNTIL(send_number(&a, address, 2, &number) == HF_OK && b.received > 0);
    assert_true(was_noted(&a, "a node is spoken to in the clear"));
    close(fd);
}

/* To each who comes: the first byte of a record, and never another one. */
static void *say_a_byte(void *arg)
{
    const int *listener = arg;
    int kept[16];
    size_t count = 0;

    while (count < sizeof kept / sizeof *kept &&
           (kept[count] = accept(*listener, NULL, NULL)) >= 0) {
        if (send(kept[count], "\x16", 1, MSG_NOSIGNAL) != 1)
            break;
        count++;
    }
    while (count > 0)
        close(kept[--count]);
    return NULL;
}

/* Who only begins to speak TLS has no more time than who is silent: the next number has its turn. */
static void test_one_number_of_a_name_only_begins(void **state)
{
    static unsigned number;
    struct sockaddr_in at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char address[32];
    pthread_t thread;
    int64_t begun = clock_boot_ms(), until = begun + PATIENCE_MS, served;

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    at = at_port_of_b("127.0.0.2");
    assert_true(listener >= 0 && bind(listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
                listen(listener, 64) == 0);
    assert_int_equal(pthread_create(&thread, NULL, say_a_byte, &listener), 0);
    snprintf(address, sizeof address, "two.test%s", strrchr(b.address, ':'));
    while (b.received == 0 && clock_boot_ms() < until) {
        send_number(&a, address, 2, &number);
        uv_run(&loop, UV_RUN_ONCE);
    }
    served = clock_boot_ms();
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    assert_true(b.received > 0 && served - begun < PEERS_HANDSHAKE_MS);
}

static void test_certificates_that_are_no_good(void **state)
{
    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    reopen(&a, 1, PEERS_TLS_MUST, foreign);
    UNTIL((dial(&a, 2, b.address), was_noted(&a, "its certificate is not of an authority")));
    UNTIL(was_noted(&b, "it does not accept this node's certificate: unknown CA"));
    reopen(&a, 1, PEERS_TLS_MUST, client);
    UNTIL((dial(&a, 2, b.address), was_noted(&a, "it is not for the host of this node's address")));
    assert_true(was_noted(&b, "is not for the host of the address that it says is its own"));
    reopen(&a, 1, PEERS_TLS_MUST, good);
    reopen(&b, 2, PEERS_TLS_MUST, client);
    UNTIL((dial(&a, 2, b.address),
           was_noted(&a, "its certificate is not for the host of this address")));
    assert_int_equal(a.received + b.received + a.met + b.met + a.reached, 0);
}

/* With TLS that may be, one whose certificate is no good is not spoken to in the clear instead. */
static void test_a_bad_certificate_is_no_reason_to_do_without(void **state)
{
    int64_t until = clock_boot_ms() + 300;

    (void)state;
    reopen(&a, 1, PEERS_TLS_MAY, good);
    reopen(&b, 2, PEERS_TLS_MAY, client);
    while (clock_boot_ms() < until) {
        dial(&a, 2, b.address);
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_true(was_noted(&a, "its certificate is not for the host of this address"));
    assert_int_equal(a.reached + b.met, 0);
}

static void test_another_secret(void **state)
{
    struct error_text err;

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    assert_int_equal(peers_set_secrets(b.peers, "guess", 5, NULL, 0, &err), HF_OK);
    dial(&a, 2, b.address);
    UNTIL(was_noted(&a, "does not know the cluster's secret") &&
          was_noted(&b, "does not know the cluster's secret"));
    assert_int_equal(b.met + a.reached, 0);
}

/* ---- strangers ----------------------------------------------------------------------------------- */

static int knock(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(peers_port(b.peers)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    return fd;
}

static bool is_closed(int fd)
{
    char bytes[512];
    ssize_t count;

    while ((count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static void test_garbage(void **state)
{
    static const struct {
        const char *bytes, *why;
        size_t size;
    } all[] = {{"\x16\x03\x01\x00\x05hello", "it does not speak TLS", 10},
               {"\x16\xff\xff\xff\xff\xff\xff", "it does not speak TLS", 7},
               {"GET / HTTP/1.0\r\n\r\n", "it speaks something else", 18},
               {"HFPEER05", "it does not speak TLS, which peer-tls asks for", 8}};

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int fd = knock();

        UNTIL(send(fd, all[i].bytes, all[i].size, MSG_NOSIGNAL) == (ssize_t)all[i].size);
        UNTIL(is_closed(fd));
        if (!was_noted(&b, all[i].why))
            fail_msg("%zu: %s", i, b.noted);
        close(fd);
    }
    connect_sides();
}

/* They say the first byte, and no more: there are never too many of them, and a node comes in between. */
static void test_many_who_begin(void **state)
{
    static int fds[KNOCKS];

    (void)state;
    both(PEERS_TLS_MUST, PEERS_TLS_MUST);
    for (int i = 0; i < KNOCKS; i++) {
        fds[i] = knock();
        UNTIL(send(fds[i], "\x16", 1, MSG_NOSIGNAL) == 1);
    }
    UNTIL(is_closed(fds[0]));
    connect_sides();
    for (int i = 0; i < KNOCKS; i++)
        close(fds[i]);
}

/* In the middle of everything: nothing is left behind, which the sanitizers see. */
static void test_ends_at_any_time(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 30; rounds++) {
        both(PEERS_TLS_MUST, PEERS_TLS_MUST);
        dial(&a, 2, b.address);
        dial(&b, 1, a.address);
        for (int i = 0; i < rounds; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
}

/* ---- certificates --------------------------------------------------------------------------------- */

static struct tls_context *context_of(const struct identity *identity,
                                      const struct identity *authority)
{
    BIO *bio = BIO_new(BIO_s_mem());
    struct tls_server_files files = {.cert_file = cert_file,
                                     .key_file = "key",
                                     .ca_file = ca_file,
                                     .crl_file = "",
                                     .settings = {"cert", "key", "ca", "crl"},
                                     .clients = TLS_CLIENTS_ARE_PEERS};
    struct tls_context *context = NULL;
    struct error_text err;
    char *key;

    assert_int_equal(1, PEM_write_bio_PrivateKey(bio, identity->key, NULL, NULL, 0, NULL, NULL));
    files.key_size = (size_t)BIO_get_mem_data(bio, &key);
    files.key = key;
    identity_write_certificate(identity, cert_file);
    identity_write_certificate(authority, ca_file);
    if (files_of->context_new(&files, &context, &err) != HF_OK)
        fail_msg("%s", err.text);
    BIO_free(bio);
    return context;
}

static struct tls_context *made(const char *names, const struct identity *authority)
{
    struct identity identity = identity_make("a node", names, authority, 30);
    struct tls_context *context = context_of(&identity, authority);

    identity_free(&identity);
    return context;
}

static void *symbol(const char *name)
{
    const struct module module = {.name = "tls", .needed_by = "this test needs", .symbol = name};
    struct error_text err;
    void *found = NULL;

    if (module_symbol(&module, &found, &err) != HF_OK)
        fail_msg("%s", err.text);
    return found;
}

static int make_all(void **state)
{
    struct identity authority = identity_make("an authority", NULL, NULL, 30);
    struct identity other = identity_make("another authority", NULL, NULL, 30);
    tls_peer_module_fn *get = (tls_peer_module_fn *)symbol(TLS_PEER_SYMBOL);
    tls_server_module_fn *get_files = (tls_server_module_fn *)symbol(TLS_SERVER_SYMBOL);

    (void)state;
    tls = get();
    files_of = get_files();
    assert_non_null(mkdtemp(directory));
    snprintf(cert_file, sizeof cert_file, "%s/cert.pem", directory);
    snprintf(ca_file, sizeof ca_file, "%s/ca.pem", directory);
    good = made(NAMES, &authority);
    renewed = made(NAMES, &authority);
    client = made("DNS:client.example", &authority);
    foreign = made(NAMES, &other);
    identity_free(&authority);
    identity_free(&other);
    return 0;
}

static int free_all(void **state)
{
    struct tls_context *all[] = {good, renewed, client, foreign};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        files_of->context_free(all[i]);
    unlink(cert_file);
    unlink(ca_file);
    rmdir(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_messages_arrive),
        TEST(test_large_ones),
        TEST(test_too_much_is_unsent),
        TEST(test_who_is_turned_away),
        TEST(test_certificates_that_are_renewed),
        TEST(test_in_the_clear_and_tls_do_not_meet),
        TEST(test_who_may_speak_both),
        TEST(test_one_number_of_a_name_has_no_tls),
        TEST(test_one_number_of_a_name_only_begins),
        TEST(test_one_that_is_far_away),
        TEST(test_certificates_that_are_no_good),
        TEST(test_a_bad_certificate_is_no_reason_to_do_without),
        TEST(test_another_secret),
        TEST(test_garbage),
        TEST(test_many_who_begin),
        TEST(test_ends_at_any_time),
    };

    return cmocka_run_group_tests(tests, make_all, free_all);
}
