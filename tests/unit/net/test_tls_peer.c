/* test_tls_peer.c: TLS between nodes, both ends in this thread and nothing between them but memory. */
#include "base/modules.h"
#include "certificates.h"
#include "net/tls_peer.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LARGE ((size_t)3 << 20)
#define FLOOD 1000

static const struct tls_peer_provider *tls;
static const struct tls_server_provider *files_of;
static char directory[] = "/tmp/holdfast-tls-peer-XXXXXX";
static struct identity authority, other_authority, node, client, stranger, expired;
static struct error_text err;

/* ---- certificates ------------------------------------------------------------------------------- */

static char *path_of(const char *name)
{
    static char paths[8][128];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static size_t key_of(const struct identity *identity, char *ret_key, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int count;

    assert_int_equal(1, PEM_write_bio_PrivateKey(bio, identity->key, NULL, NULL, 0, NULL, NULL));
    count = BIO_read(bio, ret_key, (int)size);
    BIO_free(bio);
    assert_true(count > 0);
    return (size_t)count;
}

/* That certificate, and the authority whose it trusts. */
static struct tls_context *context_of(const struct identity *identity,
                                      const struct identity *trusted)
{
    char key[4096], *cert_file = path_of("cert.pem"), *ca_file = path_of("ca.pem");
    struct tls_server_files files = {.cert_file = cert_file,
                                     .key_file = "key",
                                     .key = key,
                                     .ca_file = ca_file,
                                     .crl_file = "",
                                     .settings = {"cert", "key", "ca", "crl"},
                                     .clients = TLS_CLIENTS_ARE_PEERS};
    struct tls_context *context = NULL;

    identity_write_certificate(identity, cert_file);
    identity_write_certificate(trusted, ca_file);
    files.key_size = key_of(identity, key, sizeof key);
    if (files_of->context_new(&files, &context, &err) != HF_OK)
        fail_msg("%s", err.text);
    return context;
}

/* ---- two ends ------------------------------------------------------------------------------------ */

struct end {
    struct tls_context *context;
    struct tls_peer *peer;
    int result; /* of its handshake */
    struct error_text err;
    unsigned char *inbox;
    size_t size;
};

struct pair {
    struct end here, there; /* who connects, and to whom */
};

static void open_end(struct end *end, const struct identity *identity,
                     const struct identity *trusted, const char *host)
{
    *end = (struct end){.result = TLS_AGAIN};
    end->context = context_of(identity, trusted);
    assert_int_equal(tls->peer_new(end->context, host, &end->peer), HF_OK);
}

static void close_end(struct end *end)
{
    tls->peer_free(end->peer);
    files_of->context_free(end->context);
    free(end->inbox);
}

static void close_pair(struct pair *pair)
{
    close_end(&pair->here);
    close_end(&pair->there);
}

/* All that one has to say is with the other. */
static bool carry(struct end *from, struct end *to)
{
    const void *bytes;
    size_t size = tls->output(from->peer, &bytes);

    if (size == 0)
        return false;
    free(to->inbox);
    to->inbox = malloc(size); /* its size is known to the sanitizer */
    assert_non_null(to->inbox);
    memcpy(to->inbox, bytes, size);
    to->size = size;
    tls->sent(from->peer);
    tls->feed(to->peer, to->inbox, size);
    return true;
}

static void shake(struct end *end)
{
    if (end->result == TLS_AGAIN)
        end->result = tls->handshake(end->peer, &end->err);
}

/* Until neither has anything to say. */
static void talk(struct pair *pair)
{
    shake(&pair->here);
    while (carry(&pair->here, &pair->there) || carry(&pair->there, &pair->here)) {
        shake(&pair->there);
        if (carry(&pair->there, &pair->here))
            shake(&pair->here);
    }
}

static void open_pair(struct pair *pair, const struct identity *here, const struct identity *there,
                      const char *host)
{
    open_end(&pair->here, here, &authority, host);
    open_end(&pair->there, there, &authority, NULL);
    talk(pair);
}

/* What the one who is refused reads: with TLS 1.3 that is after its own handshake. */
static const char *told(struct end *end)
{
    char byte;

    if (end->result == HF_OK)
        end->result = (int)tls->read(end->peer, &byte, 1, &end->err);
    return end->err.text;
}

/* ---- who is let in ------------------------------------------------------------------------------- */

static void test_two_nodes(void **state)
{
    unsigned char bindings[3][TLS_PEER_BINDING];
    struct pair pair, another;

    (void)state;
    open_pair(&pair, &node, &node, "127.0.0.1");
    assert_int_equal(pair.here.result, HF_OK);
    assert_int_equal(pair.there.result, HF_OK);
    assert_true(tls->binding(pair.here.peer, bindings[0]));
    assert_true(tls->binding(pair.there.peer, bindings[1]));
    assert_memory_equal(bindings[0], bindings[1], TLS_PEER_BINDING);
    open_pair(&another, &node, &node, "node.example");
    assert_true(tls->binding(another.here.peer, bindings[2]));
    assert_memory_not_equal(bindings[0], bindings[2], TLS_PEER_BINDING);
    close_pair(&pair);
    close_pair(&another);
}

static void test_names(void **state)
{
    static const char *const right[] = {"127.0.0.1", "::1", "node.example", "NODE.example.",
                                        "a.wild.example"};
    static const char *const wrong[] = {"127.0.0.2", "a node", "",  "b.a.wild.example",
                                        "example",   "",       ".", "wild.example"};
    struct pair pair;

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        open_pair(&pair, &node, &node, right[i]);
        assert_int_equal(pair.here.result, HF_OK);
        assert_true(tls->is_for(pair.there.peer, right[i]));
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            assert_false(tls->is_for(pair.there.peer, wrong[k]));
        close_pair(&pair);
    }
    open_pair(&pair, &node, &client, "node.example");
    assert_int_equal(pair.here.result, HF_EREFUSED);
    assert_string_equal(pair.here.err.text, "its certificate is not for the host of this address");
    close_pair(&pair);
    open_pair(&pair, &node, &client, "127.0.0.1");
    assert_int_equal(pair.here.result, HF_EREFUSED);
    close_pair(&pair);
}

static void test_hosts_that_no_certificate_can_be_for(void **state)
{
    struct tls_context *context = context_of(&node, &authority);
    struct tls_peer *peer = NULL;
    char name[400];

    (void)state;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(tls->peer_new(context, "", &peer), HF_EINVAL);
    assert_int_equal(tls->peer_new(context, ".", &peer), HF_EINVAL);
    assert_int_equal(tls->peer_new(context, name, &peer), HF_EINVAL);
    assert_null(peer);
    files_of->context_free(context);
}

static void test_who_connects_is_refused(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, &stranger, &node, "127.0.0.1");
    assert_int_equal(pair.there.result, HF_EREFUSED);
    assert_non_null(strstr(pair.there.err.text, "not of an authority that nodes have here"));
    assert_non_null(strstr(told(&pair.here), "does not accept this node's certificate"));
    assert_int_equal(pair.here.result, HF_EREFUSED);
    close_pair(&pair);
    open_pair(&pair, &expired, &node, "127.0.0.1");
    assert_string_equal(pair.there.err.text,
                        "its certificate is not valid: certificate has expired");
    assert_non_null(strstr(told(&pair.here), "certificate expired"));
    close_pair(&pair);
}

static void test_who_is_connected_to_is_refused(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, &node, &stranger, "127.0.0.1");
    assert_int_equal(pair.here.result, HF_EREFUSED);
    assert_non_null(strstr(pair.here.err.text, "not of an authority that nodes have here"));
    assert_int_equal(pair.there.result, HF_EREFUSED);
    assert_non_null(strstr(pair.there.err.text, "unknown CA"));
    close_pair(&pair);
    open_pair(&pair, &node, &expired, "127.0.0.1");
    assert_string_equal(pair.here.err.text,
                        "its certificate is not valid: certificate has expired");
    close_pair(&pair);
}

static void test_what_is_no_tls(void **state)
{
    static const char words[] = "-ERR unknown command; this is no TLS at all, and long enough\r\n";
    struct end end;

    (void)state;
    open_end(&end, &node, &authority, "127.0.0.1");
    shake(&end);
    tls->feed(end.peer, words, sizeof words);
    shake(&end);
    assert_int_equal(end.result, HF_EINVAL);
    assert_int_equal(tls->handshake(end.peer, &err), HF_EUNREACH);
    assert_int_equal(tls->write(end.peer, words, sizeof words), HF_EUNREACH);
    close_end(&end);
}

/* ---- bytes ----------------------------------------------------------------------------------------- */

static void test_what_one_says_the_other_reads(void **state)
{
    unsigned char *bytes = malloc(LARGE), *seen = malloc(LARGE);
    size_t have = 0, bound = LARGE + (LARGE / TLS_PEER_RECORD + 1) * TLS_PEER_RECORD_EXTRA;
    const void *output;
    struct pair pair;
    ssize_t n;

    (void)state;
    assert_non_null(bytes);
    assert_non_null(seen);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 1000);
    open_pair(&pair, &node, &node, "127.0.0.1");
    assert_int_equal(tls->write(pair.here.peer, bytes, LARGE), HF_OK);
    assert_in_range(tls->output(pair.here.peer, &output), LARGE, bound);
    close_pair(&pair);
    /* In pieces of any size, each of which is gone when the next one comes. */
    open_pair(&pair, &node, &node, "127.0.0.1");
    assert_int_equal(tls->write(pair.there.peer, bytes, LARGE), HF_OK);
    for (size_t at = 0, size = tls->output(pair.there.peer, &output), part; at < size; at += part) {
        unsigned char *piece;

        part = at * 31 % 40000 + 1 < size - at ? at * 31 % 40000 + 1 : size - at;
        piece = malloc(part);
        assert_non_null(piece);
        memcpy(piece, (const unsigned char *)output + at, part);
        tls->feed(pair.here.peer, piece, part);
        while ((n = tls->read(pair.here.peer, seen + have, LARGE - have + 1, &err)) > 0)
            have += (size_t)n;
        assert_int_equal(n, 0);
        free(piece);
    }
    assert_int_equal(have, LARGE);
    assert_memory_equal(bytes, seen, LARGE);
    close_pair(&pair);
    free(bytes);
    free(seen);
}

static void test_a_byte_that_was_changed(void **state)
{
    struct pair pair;
    char words[8];

    (void)state;
    open_pair(&pair, &node, &node, "127.0.0.1");
    assert_int_equal(tls->write(pair.here.peer, "to you", 6), HF_OK);
    assert_true(carry(&pair.here, &pair.there));
    pair.there.inbox[pair.there.size / 2] ^= 1;
    assert_int_equal(tls->read(pair.there.peer, words, sizeof words, &err), HF_EUNREACH);
    assert_int_equal(tls->read(pair.there.peer, words, sizeof words, &err), HF_EUNREACH);
    close_pair(&pair);
}

/* ---- one who does as he likes ---------------------------------------------------------------------- */

static SSL *free_client(SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);

    assert_non_null(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    return ssl;
}

static void pass(SSL *ssl, struct end *end)
{
    const void *bytes;
    size_t size = tls->output(end->peer, &bytes);
    long pending;
    char *own;

    if (size > 0)
        assert_int_equal(BIO_write(SSL_get_rbio(ssl), bytes, (int)size), (int)size);
    tls->sent(end->peer);
    pending = BIO_get_mem_data(SSL_get_wbio(ssl), &own);
    free(end->inbox);
    end->inbox = malloc((size_t)pending + 1);
    assert_non_null(end->inbox);
    memcpy(end->inbox, own, (size_t)pending);
    BIO_reset(SSL_get_wbio(ssl));
    tls->feed(end->peer, end->inbox, (size_t)pending);
}

static void come(SSL *ssl, struct end *end)
{
    open_end(end, &node, &authority, NULL);
    for (int i = 0; i < 4 && end->result == TLS_AGAIN; i++) {
        SSL_do_handshake(ssl);
        pass(ssl, end);
        shake(end);
    }
}

static void test_keys_that_change_all_the_time(void **state)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    char byte;
    ssize_t n = 0;
    struct end end;
    SSL *ssl;

    (void)state;
    assert_int_equal(1, SSL_CTX_use_certificate(context, node.certificate));
    assert_int_equal(1, SSL_CTX_use_PrivateKey(context, node.key));
    ssl = free_client(context);
    come(ssl, &end);
    assert_int_equal(end.result, HF_OK);
    for (int i = 0; i < FLOOD && n == 0; i++) {
        assert_int_equal(1, SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED));
        SSL_do_handshake(ssl);
        pass(ssl, &end);
        n = tls->read(end.peer, &byte, 1, &err);
    }
    assert_int_equal(n, HF_EUNREACH);
    assert_string_equal(err.text, "it changes its keys all the time");
    SSL_free(ssl);
    SSL_CTX_free(context);
    close_end(&end);
}

static void test_who_shows_none_and_who_is_of_yesterday(void **state)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct end end;
    SSL *ssl = free_client(context);

    (void)state;
    come(ssl, &end);
    assert_int_equal(end.result, HF_EREFUSED);
    assert_string_equal(end.err.text, "it shows no certificate, which every node must");
    SSL_free(ssl);
    close_end(&end);
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    ssl = free_client(context);
    come(ssl, &end);
    assert_int_equal(end.result, HF_EUNREACH);
    assert_non_null(strstr(end.err.text, "unsupported protocol"));
    SSL_free(ssl);
    SSL_CTX_free(context);
    close_end(&end);
    ERR_clear_error();
}

static void *symbol(const char *name)
{
    const struct module module = {.name = "tls", .needed_by = "this test needs", .symbol = name};
    void *found = NULL;

    if (module_symbol(&module, &found, &err) != HF_OK)
        fail_msg("%s", err.text);
    return found;
}

static int set_up(void **state)
{
    static const char names[] = "DNS:node.example,DNS:*.wild.example,IP:127.0.0.1,IP:::1";
    tls_server_module_fn *get_files = (tls_server_module_fn *)symbol(TLS_SERVER_SYMBOL);
    tls_peer_module_fn *get = (tls_peer_module_fn *)symbol(TLS_PEER_SYMBOL);

    (void)state;
    assert_non_null(mkdtemp(directory));
    tls = get();
    files_of = get_files();
    assert_int_equal(tls->abi, TLS_PEER_ABI);
    assert_int_equal(files_of->abi, TLS_SERVER_ABI);
    authority = identity_make("an authority", NULL, NULL, 30);
    other_authority = identity_make("another authority", NULL, NULL, 30);
    node = identity_make("a node", names, &authority, 30);
    client = identity_make("node.example", "DNS:client.example", &authority, 30);
    stranger = identity_make("a stranger", names, &other_authority, 30);
    expired = identity_make("an old node", names, &authority, -1);
    return 0;
}

static int tear_down(void **state)
{
    struct identity *all[] = {&authority, &other_authority, &node, &client, &stranger, &expired};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        identity_free(all[i]);
    unlink(path_of("cert.pem"));
    unlink(path_of("ca.pem"));
    rmdir(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hosts_that_no_certificate_can_be_for),
        cmocka_unit_test(test_who_connects_is_refused),
        cmocka_unit_test(test_who_is_connected_to_is_refused),
        cmocka_unit_test(test_what_is_no_tls),
        cmocka_unit_test(test_what_one_says_the_other_reads),
        cmocka_unit_test(test_a_byte_that_was_changed),
        cmocka_unit_test(test_keys_that_change_all_the_time),
        cmocka_unit_test(test_who_shows_none_and_who_is_of_yesterday),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
