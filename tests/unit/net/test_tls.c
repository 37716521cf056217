/* test_tls.c: streams with TLS, against a server that OpenSSL plays in this same thread. */
#include "certificates.h"
#include "peer.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char directory[] = "/tmp/holdfast-tls-XXXXXX";
static char ca_file[96], other_file[96], client_file[96], key_file[96], locked_file[96];
static char stranger_file[96], stranger_key_file[96], expired_file[96], expired_key_file[96];
static struct identity authority, other_authority, server, client, stranger, expired;

/* ---- a server -------------------------------------------------------------------------------- */

struct tls_peer {
    struct peer peer;
    SSL_CTX *context;
    SSL *ssl;
};

/* The program we are a guest of may not clear its thread's errors before it calls us. */
static void leave_an_error(void)
{
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
}

static int greet(struct peer *peer)
{
    struct tls_peer *self = peer->context;
    int given, result;

    if (!self->ssl) {
        self->ssl = SSL_new(self->context);
        assert_non_null(self->ssl);
        assert_int_equal(1, SSL_set_fd(self->ssl, peer->fd));
    }
    ERR_clear_error();
    given = SSL_accept(self->ssl);
    result = given == 1                                               ? HF_OK
             : SSL_get_error(self->ssl, given) == SSL_ERROR_WANT_READ ? STREAM_AGAIN
                                                                      : HF_EREFUSED;
    leave_an_error();
    return result;
}

/* A server with that certificate, of which the client wants `host`. */
static void tls_listen(struct tls_peer *self, const struct identity *identity, const char *host)
{
    *self = (struct tls_peer){.context = SSL_CTX_new(TLS_server_method())};
    assert_non_null(self->context);
    assert_int_equal(1, SSL_CTX_use_certificate(self->context, identity->certificate));
    assert_int_equal(1, SSL_CTX_use_PrivateKey(self->context, identity->key));
    SSL_CTX_set_mode(self->context, SSL_MODE_AUTO_RETRY);
    assert_true(peer_listen("127.0.0.1", &self->peer));
    peer_rename(&self->peer, host);
    self->peer.greet = greet;
}

static int dial(struct tls_peer *self, const struct access *access, struct stream **ret_stream,
                struct error_text *err)
{
    self->peer.context = self;
    return peer_dial(&self->peer, access, ret_stream, err);
}

static void tls_close(struct tls_peer *self)
{
    SSL_free(self->ssl);
    SSL_CTX_free(self->context);
    peer_close(&self->peer);
}

static void peer_read(struct tls_peer *self, void *bytes, size_t size)
{
    size_t have = 0, n;

    while (have < size) {
        if (SSL_read_ex(self->ssl, (char *)bytes + have, size - have, &n) == 1)
            have += n;
        else
            wait_for(self->peer.fd, POLLIN);
    }
}

static struct access with_files(const char *ca, const char *certificate, const char *key)
{
    struct access access = {.tls = true};

    snprintf(access.ca_file, sizeof access.ca_file, "%s", ca);
    snprintf(access.cert_file, sizeof access.cert_file, "%s", certificate);
    snprintf(access.key_file, sizeof access.key_file, "%s", key);
    return access;
}

static void talk(struct tls_peer *self, struct stream *stream)
{
    struct error_text err = {""};
    char bytes[16];
    size_t n;

    assert_int_equal(5, stream_write(stream, "hello", 5, &err));
    peer_read(self, bytes, 5);
    assert_memory_equal("hello", bytes, 5);
    assert_int_equal(1, SSL_write_ex(self->ssl, "goodbye", 7, &n));
    assert_int_equal(7, read_all(stream, bytes, 7, &err));
    assert_memory_equal("goodbye", bytes, 7);
    leave_an_error();
    assert_int_equal(0, stream_read(stream, bytes, sizeof bytes, &err));
    assert_int_equal(POLLIN, stream_events(stream, false));
    assert_int_equal(POLLIN | POLLOUT, stream_events(stream, true));
}

/* ---- the module ------------------------------------------------------------------------------ */

/* The first test: afterwards it is loaded. */
static void a_missing_or_unfitting_module_is_named(void **state)
{
    const char *dir = getenv("HOLDFAST_MODULE_DIR"), *wrong = getenv("HF_WRONG_MODULE_DIR");
    char *saved = strdup(dir ? dir : "");
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;

    (void)state;
    assert_non_null(saved);
    tls_listen(&self, &server, "127.0.0.1");
    setenv("HOLDFAST_MODULE_DIR", "/nowhere", 1);
    assert_int_equal(HF_EMODULE, dial(&self, &access, &stream, &err));
    assert_says(&err, "TLS needs a module that cannot be loaded: /nowhere/holdfast-tls.so: ");
    assert_says(
        &err, "; install holdfast-tls: the package of that name brings it, and 'make install' does "
              "if built with OpenSSL (libssl-dev), and in a build tree HOLDFAST_MODULE_DIR says "
              "where it is");
    setenv("HOLDFAST_MODULE_DIR", wrong ? wrong : "/nowhere", 1);
    assert_int_equal(HF_EMODULE, dial(&self, &access, &stream, &err));
    assert_says(&err, "/holdfast-tls.so does not fit this version of holdfast");
    setenv("HOLDFAST_MODULE_DIR", saved, 1);
    free(saved);
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    stream_close(stream);
    tls_close(&self);
}

static void a_unix_socket_has_no_tls(void **state)
{
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    struct stream *stream = NULL;
    struct address address;

    (void)state;
    assert_int_equal(HF_OK, address_parse("/run/socket", 11, "1", &address, &err));
    assert_int_equal(HF_EINVAL, stream_open(&address, &access, NULL, &stream, &err));
    assert_null(stream);
}

/* ---- who the server is ----------------------------------------------------------------------- */

static void a_server_that_proves_itself_is_spoken_to(void **state)
{
    static const struct {
        const char *host, *sni;
    } good[] = {{"127.0.0.1", NULL},
                {"server.test", "server.test"},
                {"Server.Test.", "Server.Test"},
                {"a.wild.test", "a.wild.test"}};
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct access access = with_files(ca_file, "", "");

    (void)state;
    for (size_t i = 0; i < 2 * sizeof good / sizeof *good; i++) {
        struct error_text err = {""};
        struct stream *stream;
        struct tls_peer self;
        const char *sni;

        tls_listen(&self, &server, good[i / 2].host);
        SSL_CTX_set_max_proto_version(self.context, versions[i % 2]);
        assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
        assert_int_equal(versions[i % 2], SSL_version(self.ssl));
        sni = SSL_get_servername(self.ssl, TLSEXT_NAMETYPE_host_name);
        if (good[i / 2].sni)
            assert_string_equal(good[i / 2].sni, sni);
        else
            assert_null(sni);
        talk(&self, stream);
        stream_close(stream);
        tls_close(&self);
    }
}

/* Refused with these words, which begin with the address. */
static void assert_refused(const struct identity *identity, const char *host, const char *ca,
                           const char *message)
{
    struct access access = with_files(ca, "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;

    tls_listen(&self, identity, host);
    assert_int_equal(HF_EREFUSED, dial(&self, &access, &stream, &err));
    assert_int_equal(0,
                     strncmp(self.peer.address.shown, err.text, strlen(self.peer.address.shown)));
    assert_string_equal(message, err.text + strlen(self.peer.address.shown));
    /* The server was told so, too: we did not first finish the handshake and then think again. */
    while (self.peer.greeted == STREAM_AGAIN) {
        self.peer.greeted = greet(&self.peer);
        if (self.peer.greeted == STREAM_AGAIN)
            wait_for(self.peer.fd, POLLIN);
    }
    assert_int_equal(HF_EREFUSED, self.peer.greeted);
    tls_close(&self);
}

static void a_server_of_another_authority_is_refused(void **state)
{
    char message[256];

    (void)state;
    snprintf(message, sizeof message,
             ": the server's certificate is not trusted: unable to get local issuer certificate; "
             "its authority is not in %s",
             other_file);
    assert_refused(&server, "127.0.0.1", other_file, message);
    /* Without ca-file the system's authorities count, and ours is none of them. */
    assert_refused(&server, "127.0.0.1", "",
                   ": the server's certificate is not trusted: unable to get local issuer "
                   "certificate; name its authority with ?ca-file=");
    assert_refused(&authority, "127.0.0.1", "",
                   ": the server's certificate is not trusted: self-signed certificate; name its "
                   "authority with ?ca-file=");
}

static void a_server_of_another_name_is_refused(void **state)
{
    (void)state;
    assert_refused(&server, "elsewhere.test", ca_file,
                   ": the server's certificate is not for elsewhere.test");
    assert_refused(&server, "sub.server.test", ca_file,
                   ": the server's certificate is not for sub.server.test");
    assert_refused(&client, "127.0.0.1", ca_file,
                   ": the server's certificate is not for 127.0.0.1");
}

static void an_expired_certificate_is_refused(void **state)
{
    (void)state;
    assert_refused(&expired, "127.0.0.1", ca_file,
                   ": the server's certificate is not valid: certificate has expired");
}

static void the_authorities_of_the_system_count(void **state)
{
    struct access access = with_files("", "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;

    (void)state;
    tls_listen(&self, &server, "server.test");
    setenv("SSL_CERT_FILE", ca_file, 1);
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    unsetenv("SSL_CERT_FILE");
    stream_close(stream);
    tls_close(&self);
}

static void old_versions_are_not_spoken(void **state)
{
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;

    (void)state;
    tls_listen(&self, &server, "127.0.0.1");
    SSL_CTX_set_security_level(self.context, 0);
    SSL_CTX_set_min_proto_version(self.context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(self.context, TLS1_1_VERSION);
    assert_int_equal(HF_EUNREACH, dial(&self, &access, &stream, &err));
    assert_says(&err, ": TLS: ");
    tls_close(&self);
}

/* ---- who we are ------------------------------------------------------------------------------ */

static void want_certificate(struct tls_peer *self, int version)
{
    tls_listen(self, &server, "127.0.0.1");
    SSL_CTX_set_max_proto_version(self->context, version);
    SSL_CTX_set_verify(self->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    assert_int_equal(1, SSL_CTX_load_verify_file(self->context, ca_file));
}

static void a_certificate_of_ours_is_shown(void **state)
{
    struct access access = with_files(ca_file, client_file, key_file);
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct error_text err = {""};
        struct stream *stream;
        struct tls_peer self;

        want_certificate(&self, versions[i]);
        assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
        assert_int_equal(0, X509_cmp(client.certificate, SSL_get0_peer_certificate(self.ssl)));
        talk(&self, stream);
        stream_close(stream);
        tls_close(&self);
    }
}

/* With TLS 1.2 the handshake says so, with 1.3 it comes as the first thing to read. */
static void assert_not_let_in(const struct access *access, int version, const char *message)
{
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;
    char byte = 'x';
    ssize_t result;

    want_certificate(&self, version);
    result = dial(&self, access, &stream, &err);
    if (version == TLS1_3_VERSION) {
        assert_int_equal(HF_OK, result);
        assert_int_equal(HF_EREFUSED, self.peer.greeted);
        result = read_all(stream, &byte, 1, &err);
    }
    assert_int_equal(HF_EREFUSED, result);
    assert_int_equal(0, strncmp("127.0.0.1:", err.text, 10));
    assert_says(&err, message);
    if (stream) { /* over is over, and nothing is left in the queue of errors */
        assert_int_equal(0, ERR_peek_error());
        assert_int_equal(HF_EUNREACH, stream_write(stream, &byte, 1, &err));
        assert_int_equal(0, ERR_peek_error());
    }
    stream_close(stream);
    tls_close(&self);
}

static void a_server_that_does_not_let_us_in_is_heard(void **state)
{
    struct access without = with_files(ca_file, "", "");
    struct access unknown = with_files(ca_file, stranger_file, stranger_key_file);
    struct access late = with_files(ca_file, expired_file, expired_key_file);

    (void)state;
    assert_not_let_in(&without, TLS1_2_VERSION,
                      ": the server wants a client's certificate: give it with ?cert-file=");
    assert_not_let_in(&without, TLS1_3_VERSION,
                      ": the server wants a client's certificate: give it with ?cert-file=");
    assert_not_let_in(&unknown, TLS1_2_VERSION, "/stranger.pem: unknown CA");
    assert_not_let_in(&unknown, TLS1_3_VERSION, "/stranger.pem: unknown CA");
    assert_not_let_in(&late, TLS1_3_VERSION, "/expired.pem: certificate expired");
}

static void files_that_cannot_be_used_are_named(void **state)
{
    const struct {
        const char *ca, *certificate, *key, *message;
    } bad[] = {
        {"/nowhere/ca", "", "", "ca-file /nowhere/ca: No such file or directory"},
        {key_file, "", "", "/client.key: no certificate or crl found"},
        {ca_file, "/nowhere/c", key_file, "cert-file /nowhere/c: No such file or directory"},
        {ca_file, key_file, key_file, "cert-file /tmp/"},
        {ca_file, client_file, "/nowhere/k", "key-file /nowhere/k: No such file or directory"},
        {ca_file, client_file, client_file, "key-file /tmp/"},
        {ca_file, client_file, stranger_key_file,
         "/stranger.key: it is not the key of the certificate"},
        {ca_file, client_file, locked_file, "/locked.key: protected by a passphrase"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct access access = with_files(bad[i].ca, bad[i].certificate, bad[i].key);
        struct error_text err = {""};
        struct stream *stream = NULL;
        struct address address;

        assert_int_equal(HF_OK, address_parse("127.0.0.1", 9, "1", &address, &err));
        assert_int_equal(HF_EREFUSED, stream_open(&address, &access, NULL, &stream, &err));
        assert_says(&err, bad[i].message);
        assert_null(stream);
        assert_int_equal(0, ERR_peek_error());
    }
}

/* ---- servers without TLS --------------------------------------------------------------------- */

static int answer_in_text(struct peer *peer)
{
    const char *text = peer->context;
    char bytes[4096];
    ssize_t n = recv(peer->fd, bytes, sizeof bytes, 0);

    if (n < 0)
        return STREAM_AGAIN;
    assert_int_equal(strlen(text), send(peer->fd, text, strlen(text), MSG_NOSIGNAL));
    if (!*text)
        peer_hang_up(peer);
    return HF_OK;
}

static int hang_up_at_once(struct peer *peer)
{
    peer_hang_up(peer); /* with something unread, so this is a reset */
    return HF_OK;
}

static void a_server_without_tls_is_told_apart(void **state)
{
    static const struct {
        const char *text, *message;
    } servers[] = {
        {"-ERR Protocol error: unbalanced quotes in request\r\n",
         ": the server's answer is not TLS: is this its TLS port?"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n",
         ": the server's answer is not TLS: is this its TLS port?"},
        {"", ": the server closed the connection instead of speaking TLS: is this its TLS port?"},
        {NULL, ": the server closed the connection instead of speaking TLS: is this its TLS port?"},
    };
    struct access access = with_files(ca_file, "", "");

    (void)state;
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct error_text err = {""};
        struct stream *stream;
        struct peer peer;

        assert_true(peer_listen("127.0.0.1", &peer));
        peer.greet = servers[i].text ? answer_in_text : hang_up_at_once;
        peer.context = (void *)(uintptr_t)servers[i].text;
        assert_int_equal(HF_EUNREACH, peer_dial(&peer, &access, &stream, &err));
        assert_int_equal(0, strncmp("127.0.0.1:", err.text, 10));
        assert_says(&err, servers[i].message);
        peer_close(&peer);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What is inside TLS comes without the socket being readable again. */
static void a_record_is_read_in_pieces(void **state)
{
    enum { SIZE = 10000 };
    struct access access = with_files(ca_file, "", "");
    unsigned char out[SIZE], in[SIZE];
    struct error_text err = {""};
    struct pollfd readable;
    struct stream *stream;
    struct tls_peer self;
    size_t n, came = 0;
    ssize_t got;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (unsigned char)(i * 7 + i / 256);
    tls_listen(&self, &server, "127.0.0.1");
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    assert_int_equal(1, SSL_write_ex(self.ssl, out, SIZE, &n));
    assert_int_equal(1, read_all(stream, in, 1, &err));
    came = 1;
    readable = (struct pollfd){.fd = stream_fd(stream), .events = POLLIN};
    assert_int_equal(0, poll(&readable, 1, 0)); /* the whole record has left the socket */
    while ((got = stream_read(stream, in + came, SIZE - came < 7 ? SIZE - came : 7, &err)) > 0)
        came += (size_t)got;
    assert_int_equal(0, got);
    assert_int_equal(SIZE, came);
    assert_memory_equal(out, in, SIZE);
    stream_close(stream);
    tls_close(&self);
}

/* A record comes in two parts, with nothing to read in between. */
static void half_a_record_is_none(void **state)
{
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;
    BIO *held = BIO_new(BIO_s_mem());
    char bytes[16], *record;
    size_t n;
    long size;

    (void)state;
    assert_non_null(held);
    tls_listen(&self, &server, "127.0.0.1");
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    talk(&self, stream); /* so that nothing of the handshake is left */
    SSL_set0_wbio(self.ssl, held);
    assert_int_equal(1, SSL_write_ex(self.ssl, "halves", 6, &n));
    size = BIO_get_mem_data(held, &record);
    assert_true(size > 9);
    assert_int_equal(9, send(self.peer.fd, record, 9, 0));
    wait_for(stream_fd(stream), POLLIN);
    assert_int_equal(0, stream_read(stream, bytes, sizeof bytes, &err));
    assert_int_equal(POLLIN, stream_events(stream, false));
    assert_int_equal(size - 9, send(self.peer.fd, record + 9, (size_t)size - 9, 0));
    assert_int_equal(6, read_all(stream, bytes, 6, &err));
    assert_memory_equal("halves", bytes, 6);
    stream_close(stream);
    tls_close(&self);
}

/* Writes until the socket is full; then the peer changes keys, or not; then the rest goes through,
 * from another place in memory, in order. */
static void write_past_a_full_socket(bool with_new_keys)
{
    enum { SIZE = 8 << 20, CHUNK = 100000 };
    struct access access = with_files(ca_file, "", "");
    unsigned char *out = malloc(SIZE), *in = malloc(SIZE), *moving = malloc(SIZE);
    size_t sent = 0, came = 0, came_back = 0, refusals = 0, n;
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;
    char back[16];

    assert_true(out && in && moving);
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (unsigned char)(i * 31 + i / 251);
    tls_listen(&self, &server, "127.0.0.1");
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    while (came < SIZE) {
        size_t size = SIZE - sent < CHUNK ? SIZE - sent : CHUNK;
        ssize_t put;

        memcpy(moving + refusals % 64, out + sent, size);
        leave_an_error();
        put = stream_write(stream, moving + refusals % 64, size, &err);
        assert_true(put >= 0);
        sent += (size_t)put;
        if (put > 0)
            continue;
        refusals++;
        if (with_new_keys && refusals == 1) {
            assert_int_equal(1, SSL_key_update(self.ssl, SSL_KEY_UPDATE_REQUESTED));
            assert_int_equal(1, SSL_write_ex(self.ssl, "new keys", 8, &n));
            wait_for(stream_fd(stream), POLLIN);
        }
        put = stream_read(stream, back, sizeof back, &err);
        assert_true(put >= 0);
        came_back += (size_t)put;
        if (SSL_read_ex(self.ssl, in + came, SIZE - came, &n) == 1)
            came += n;
    }
    assert_true(refusals > 0);
    assert_memory_equal(out, in, SIZE);
    assert_int_equal(with_new_keys ? 8 : 0, came_back);
    stream_close(stream);
    tls_close(&self);
    free(out);
    free(in);
    free(moving);
}

static void a_full_socket_takes_the_rest_later(void **state)
{
    (void)state;
    write_past_a_full_socket(false);
}

static void new_keys_come_while_the_socket_is_full(void **state)
{
    (void)state;
    write_past_a_full_socket(true);
}

/* The peer wants new keys, and the socket has no room for the answer. It is filled behind the back
 * of TLS; the peer reads that the same way. */
static void reading_may_have_to_write_first(void **state)
{
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    char filler[65536] = "";
    struct stream *stream;
    struct tls_peer self;
    int rounds = 0;
    char bytes[8];
    ssize_t got;
    size_t n;

    (void)state;
    tls_listen(&self, &server, "127.0.0.1");
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    talk(&self, stream);
    do { /* full may become not quite full, as acknowledgements come in: then once more */
        while (send(stream_fd(stream), filler, sizeof filler, MSG_NOSIGNAL) > 0)
            ;
        assert_int_equal(1, SSL_key_update(self.ssl, SSL_KEY_UPDATE_REQUESTED));
        assert_int_equal(1, SSL_write_ex(self.ssl, "new keys", 8, &n));
        wait_for(stream_fd(stream), POLLIN);
        got = stream_read(stream, bytes, sizeof bytes, &err);
    } while (got == 8 && ++rounds < 1000);
    assert_int_equal(0, got);
    assert_int_equal(POLLOUT, stream_events(stream, false));
    while (stream_read(stream, bytes, sizeof bytes, &err) == 0) {
        got = recv(self.peer.fd, filler, sizeof filler, 0);
        assert_true(got > 0 || errno == EAGAIN);
    }
    assert_memory_equal("new keys", bytes, 8);
    assert_int_equal(POLLIN, stream_events(stream, false));
    stream_close(stream);
    tls_close(&self);
}

static void a_closed_connection_is_noticed(void **state)
{
    struct access access = with_files(ca_file, "", "");
    char expected[ADDRESS_TEXT_MAX + 64], byte;

    (void)state;
    for (int politely = 0; politely < 2; politely++) {
        struct error_text err = {""};
        struct stream *stream;
        struct tls_peer self;
        ssize_t sent;

        tls_listen(&self, &server, "127.0.0.1");
        assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
        talk(&self, stream);
        if (politely)
            SSL_shutdown(self.ssl);
        peer_hang_up(&self.peer);
        snprintf(expected, sizeof expected, "%s: the server closed the connection",
                 self.peer.address.shown);
        assert_int_equal(HF_EUNREACH, read_all(stream, &byte, 1, &err));
        assert_string_equal(expected, err.text);
        /* SIGPIPE would end this program. */
        do {
            sent = stream_write(stream, "anybody?", 8, &err);
        } while (sent > 0);
        assert_int_equal(HF_EUNREACH, sent);
        assert_int_equal(HF_EUNREACH, stream_write(stream, "anybody?", 8, &err));
        stream_close(stream);
        tls_close(&self);
    }
}

/* The same without reading first, so that it is the socket that fails and not TLS. */
static void writing_to_nobody_raises_no_signal(void **state)
{
    struct access access = with_files(ca_file, "", "");
    struct error_text err = {""};
    struct stream *stream;
    struct tls_peer self;
    ssize_t sent;

    (void)state;
    tls_listen(&self, &server, "127.0.0.1");
    assert_int_equal(HF_OK, dial(&self, &access, &stream, &err));
    talk(&self, stream);
    peer_hang_up(&self.peer);
    do {
        sent = stream_write(stream, "anybody?", 8, &err);
    } while (sent > 0);
    assert_int_equal(HF_EUNREACH, sent);
    assert_int_equal(HF_EUNREACH, stream_write(stream, "anybody?", 8, &err));
    assert_says(&err, ": the server closed the connection");
    assert_int_equal(0, ERR_peek_error());
    stream_close(stream);
    tls_close(&self);
}

/* ---- setting up ------------------------------------------------------------------------------ */

static const struct {
    char *path;
    const char *name;
} files[] = {{ca_file, "ca.pem"},
             {other_file, "other.pem"},
             {client_file, "client.pem"},
             {key_file, "client.key"},
             {locked_file, "locked.key"},
             {stranger_file, "stranger.pem"},
             {expired_file, "expired.pem"},
             {stranger_key_file, "stranger.key"},
             {expired_key_file, "expired.key"}};

static int make_certificates(void **state)
{
    static const char names[] = "DNS:server.test,DNS:*.wild.test,IP:127.0.0.1";

    (void)state;
    if (!mkdtemp(directory))
        return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        snprintf(files[i].path, sizeof ca_file, "%s/%s", directory, files[i].name);
    authority = identity_make("authority", NULL, NULL, 1);
    other_authority = identity_make("other authority", NULL, NULL, 1);
    server = identity_make("server", names, &authority, 1);
    client = identity_make("client", "DNS:client.test", &authority, 1);
    stranger = identity_make("stranger", "DNS:client.test", &other_authority, 1);
    expired = identity_make("expired", names, &authority, -1);
    identity_write_certificate(&authority, ca_file);
    identity_write_certificate(&other_authority, other_file);
    identity_write_certificate(&client, client_file);
    identity_write_key(&client, key_file, NULL);
    identity_write_key(&client, locked_file, "hush");
    identity_write_certificate(&stranger, stranger_file);
    identity_write_key(&stranger, stranger_key_file, NULL);
    identity_write_certificate(&expired, expired_file);
    identity_write_key(&expired, expired_key_file, NULL);
    return 0;
}

static int remove_certificates(void **state)
{
    struct identity *all[] = {&authority, &other_authority, &server, &client, &stranger, &expired};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        identity_free(all[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i].path);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_or_unfitting_module_is_named),
        cmocka_unit_test(a_unix_socket_has_no_tls),
        cmocka_unit_test(a_server_that_proves_itself_is_spoken_to),
        cmocka_unit_test(a_server_of_another_authority_is_refused),
        cmocka_unit_test(a_server_of_another_name_is_refused),
        cmocka_unit_test(an_expired_certificate_is_refused),
        cmocka_unit_test(the_authorities_of_the_system_count),
        cmocka_unit_test(old_versions_are_not_spoken),
        cmocka_unit_test(a_certificate_of_ours_is_shown),
        cmocka_unit_test(a_server_that_does_not_let_us_in_is_heard),
        cmocka_unit_test(files_that_cannot_be_used_are_named),
        cmocka_unit_test(a_server_without_tls_is_told_apart),
        cmocka_unit_test(a_record_is_read_in_pieces),
        cmocka_unit_test(half_a_record_is_none),
        cmocka_unit_test(a_full_socket_takes_the_rest_later),
        cmocka_unit_test(new_keys_come_while_the_socket_is_full),
        cmocka_unit_test(reading_may_have_to_write_first),
        cmocka_unit_test(a_closed_connection_is_noticed),
        cmocka_unit_test(writing_to_nobody_raises_no_signal),
    };

    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
