/* The handshake without sockets: who is let in, and who is not. */
#include "base/hmac.h"
#include "peers/handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FROM 7
#define TO 9

static const char cluster[] = "0123456789abcdef0123456789abcdef",
                  another[] = "0123456789abcdef0123456789abcdee";

struct talk {
    struct handshake_own caller, called;
    struct handshake connector, connected;
    unsigned char hello[HANDSHAKE_HELLO], reply[HANDSHAKE_REPLY], proof[HANDSHAKE_PROOF];
};

static void say_hello(struct talk *talk, const char *secret)
{
    talk->caller = (struct handshake_own){.secret = secret,
                                          .secret_size = strlen(secret),
                                          .id = FROM,
                                          .address = "127.0.0.1:7431",
                                          .about = "db1.example:7420",
                                          .cluster = cluster};
    handshake_hello(&talk->connector, &talk->caller, TO, NULL, talk->hello);
}

static enum handshake_result reply(struct talk *talk, const char *secret, uint64_t id)
{
    talk->called = (struct handshake_own){.secret = secret,
                                          .secret_size = strlen(secret),
                                          .id = id,
                                          .address = "127.0.0.1:7432",
                                          .about = "db2.example:7420",
                                          .cluster = cluster};
    return handshake_reply(&talk->connected, &talk->called, NULL, talk->hello, talk->reply);
}

static void test_who_knows_the_secret_comes_in(void **state)
{
    static const char longer[] =
        "a secret that is longer than a block of the hash, which is hashed "
        "itself before it is used";
    static const char *const secrets[] = {"", "s", longer};

    (void)state;
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        struct talk talk;

        say_hello(&talk, secrets[i]);
        assert_int_equal(reply(&talk, secrets[i], TO), HANDSHAKE_OK);
        assert_int_equal(talk.connected.from, FROM);
        assert_string_equal(talk.connected.address, "127.0.0.1:7431");
        assert_string_equal(talk.connected.about, "db1.example:7420");
        assert_int_equal(handshake_prove(&talk.connector, talk.reply, talk.proof), HANDSHAKE_OK);
        assert_int_equal(handshake_accept(&talk.connected, talk.proof), HANDSHAKE_OK);
        assert_string_equal(talk.connector.about, "db2.example:7420");
        assert_string_equal(talk.connector.cluster, cluster);
        assert_string_equal(talk.connected.cluster, cluster);
    }
}

/* One that belongs to none may talk to all. Both sides know it when it is not so, and neither before it is proved. */
static void test_who_belongs_to_another_cluster(void **state)
{
    static const struct {
        const char *caller, *called;
        enum handshake_result result;
    } cases[] = {{cluster, cluster, HANDSHAKE_OK},
                 {cluster, another, HANDSHAKE_ELSEWHERE},
                 {"", cluster, HANDSHAKE_OK},
                 {cluster, "", HANDSHAKE_OK},
                 {"", "", HANDSHAKE_OK}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct talk talk;
        unsigned char wrong[HANDSHAKE_PROOF] = {0};

        say_hello(&talk, "secret");
        talk.caller.cluster = cases[i].caller;
        handshake_hello(&talk.connector, &talk.caller, TO, NULL, talk.hello);
        talk.called = talk.caller;
        talk.called.id = TO;
        talk.called.cluster = cases[i].called;
        assert_int_equal(
            handshake_reply(&talk.connected, &talk.called, NULL, talk.hello, talk.reply),
            HANDSHAKE_OK);
        assert_int_equal(handshake_prove(&talk.connector, talk.reply, talk.proof), cases[i].result);
        assert_string_equal(talk.connector.cluster, cases[i].called);
        assert_int_equal(handshake_accept(&talk.connected, wrong), HANDSHAKE_UNPROVEN);
        assert_int_equal(handshake_accept(&talk.connected, talk.proof), cases[i].result);
        assert_string_equal(talk.connected.cluster, cases[i].caller);
    }
}

static void test_ids_of_clusters(void **state)
{
    static const char *const wrong[] = {
        "", "0123456789ABCDEF0123456789abcdef", "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0", "0123456789abcdef 123456789abcdef"};
    struct talk talk;

    (void)state;
    assert_true(handshake_cluster_ok(cluster));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(handshake_cluster_ok(wrong[i]));
    say_hello(&talk, "secret");
    talk.hello[24 + HANDSHAKE_NONCE + 3] = 'G';
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
    say_hello(&talk, "secret");
    talk.hello[24 + HANDSHAKE_NONCE + HANDSHAKE_CLUSTER - 1] = 0; /* half of one */
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
}

static void test_who_does_not_is_refused_by_both(void **state)
{
    struct talk talk;
    unsigned char any[HANDSHAKE_PROOF] = {0};

    (void)state;
    say_hello(&talk, "right");
    assert_int_equal(reply(&talk, "wrong", TO), HANDSHAKE_OK);
    assert_int_equal(handshake_prove(&talk.connector, talk.reply, talk.proof), HANDSHAKE_UNPROVEN);
    assert_int_equal(handshake_accept(&talk.connected, any), HANDSHAKE_UNPROVEN);
    /* The proof of the other side is none for this one. */
    assert_int_equal(handshake_accept(&talk.connected, talk.reply + HANDSHAKE_WORDS),
                     HANDSHAKE_UNPROVEN);
}

static void test_any_flipped_bit_is_noticed(void **state)
{
    (void)state;
    for (size_t at = 0; at < HANDSHAKE_HELLO + HANDSHAKE_REPLY + HANDSHAKE_PROOF; at++) {
        struct talk talk;
        enum handshake_result result;

        say_hello(&talk, "secret");
        if (at < HANDSHAKE_HELLO)
            talk.hello[at] ^= 4;
        result = reply(&talk, "secret", TO);
        if (result != HANDSHAKE_OK)
            continue;
        if (at >= HANDSHAKE_HELLO && at < HANDSHAKE_HELLO + HANDSHAKE_REPLY)
            talk.reply[at - HANDSHAKE_HELLO] ^= 4;
        result = handshake_prove(&talk.connector, talk.reply, talk.proof);
        if (result != HANDSHAKE_OK)
            continue;
        assert_true(at >= HANDSHAKE_HELLO + HANDSHAKE_REPLY);
        talk.proof[at - HANDSHAKE_HELLO - HANDSHAKE_REPLY] ^= 4;
        assert_int_equal(handshake_accept(&talk.connected, talk.proof), HANDSHAKE_UNPROVEN);
    }
}

static void test_a_proof_is_worth_nothing_elsewhere(void **state)
{
    struct talk first, second;

    (void)state;
    say_hello(&first, "secret");
    assert_int_equal(reply(&first, "secret", TO), HANDSHAKE_OK);
    assert_int_equal(handshake_prove(&first.connector, first.reply, first.proof), HANDSHAKE_OK);
    /* Somebody who heard all of it says it again, on another connection. */
    second = first;
    second.connector.own = &second.caller;
    assert_int_equal(reply(&second, "secret", TO), HANDSHAKE_OK);
    assert_memory_not_equal(first.reply, second.reply, sizeof first.reply);
    assert_int_equal(handshake_accept(&second.connected, first.proof), HANDSHAKE_UNPROVEN);
    /* And a reply of before is none to a new hello. */
    say_hello(&second, "secret");
    assert_int_equal(handshake_prove(&second.connector, first.reply, second.proof),
                     HANDSHAKE_UNPROVEN);
}

static void test_who_wants_somebody_else(void **state)
{
    struct talk talk;

    (void)state;
    say_hello(&talk, "secret");
    assert_int_equal(reply(&talk, "secret", TO + 1), HANDSHAKE_MISTAKEN);
    talk.hello[0] = 'X';
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
    say_hello(&talk, "secret");
    memset(talk.hello + 8, 0, 8);
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_MISTAKEN); /* there is no node 0 */
    talk.hello[8] = TO;
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_MISTAKEN); /* nor another with our id */
}

/* It is known at its first wrong byte. */
static void test_another_version(void **state)
{
    struct talk talk;

    (void)state;
    say_hello(&talk, "secret");
    for (size_t size = 0; size <= HANDSHAKE_HELLO; size++)
        assert_true(handshake_may_be_hello(talk.hello, size));
    talk.hello[7] = '1';
    assert_true(handshake_may_be_hello(talk.hello, 7));
    assert_false(handshake_may_be_hello(talk.hello, 8));
    assert_false(handshake_may_be_hello(talk.hello, HANDSHAKE_HELLO));
    assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
}

static void test_texts_that_cannot_be(void **state)
{
    static const char bytes[] = {'\x01', '\n', '\x1f', ' ', '\x7f', '\x80', '\xff'};
    struct talk talk;

    (void)state;
    for (size_t at = HANDSHAKE_HELLO - 2 * HANDSHAKE_TEXT; at < HANDSHAKE_HELLO;
         at += HANDSHAKE_TEXT) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            say_hello(&talk, "secret");
            talk.hello[at + 3] = (unsigned char)bytes[i];
            assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
        }
        say_hello(&talk, "secret");
        memset(talk.hello + at, 'x', HANDSHAKE_TEXT); /* without an end */
        assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
        say_hello(&talk, "secret");
        talk.hello[at + HANDSHAKE_TEXT - 1] = 'x'; /* something behind its end */
        assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
        say_hello(&talk, "secret");
        talk.hello[at + 4] = '\0';
        assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_STRANGER);
        say_hello(&talk, "secret");
        assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_OK);
    }
}

static void test_texts_that_can(void **state)
{
    char longest[HANDSHAKE_TEXT + 1];
    struct talk talk;

    (void)state;
    memset(longest, '~', sizeof longest);
    longest[HANDSHAKE_TEXT] = '\0';
    assert_false(handshake_text_ok(longest));
    longest[HANDSHAKE_TEXT - 1] = '\0';
    assert_true(handshake_text_ok(longest));
    assert_true(handshake_text_ok("!"));
    assert_true(handshake_text_ok(""));
    assert_false(handshake_text_ok("a b"));
    assert_false(handshake_text_ok("a\x7f"));
    assert_false(handshake_text_ok("\xc3\xa4"));
    say_hello(&talk, "s");
    talk.caller.address = longest;
    talk.caller.about = "";
    handshake_hello(&talk.connector, &talk.caller, TO, NULL, talk.hello);
    assert_int_equal(reply(&talk, "s", TO), HANDSHAKE_OK);
    assert_string_equal(talk.connected.address, longest);
    assert_string_equal(talk.connected.about, "");
    talk.caller.address = "";
    talk.caller.about = longest;
    handshake_hello(&talk.connector, &talk.caller, TO, NULL, talk.hello);
    assert_int_equal(reply(&talk, "s", TO), HANDSHAKE_OK);
    assert_string_equal(talk.connected.address, "");
    assert_string_equal(talk.connected.about, longest);
}

/* RFC 4231, cases 1, 2 and 6. */
static void test_the_hmac(void **state)
{
    static const unsigned char one[] = {0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53},
                               two[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e},
                               six[] = {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f};
    unsigned char key[131], digest[SHA256_SIZE];

    (void)state;
    memset(key, 0x0b, sizeof key);
    hmac_sha256(key, 20, "Hi There", 8, digest);
    assert_memory_equal(digest, one, sizeof one);
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, digest);
    assert_memory_equal(digest, two, sizeof two);
    memset(key, 0xaa, sizeof key);
    hmac_sha256(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, digest);
    assert_memory_equal(digest, six, sizeof six);
}

/* Both sides as their files say: the first secret, and another that is valid, too ("": none). */
static bool understand(const char *const caller[2], const char *const called[2])
{
    struct talk talk;
    struct handshake_own own[2];
    const char *const *files[2] = {caller, called};

    for (int i = 0; i < 2; i++)
        own[i] = (struct handshake_own){.secret = files[i][0],
                                        .secret_size = strlen(files[i][0]),
                                        .other = files[i][1][0] ? files[i][1] : NULL,
                                        .other_size = strlen(files[i][1]),
                                        .id = i == 0 ? FROM : TO,
                                        .address = "127.0.0.1:7431",
                                        .about = "",
                                        .cluster = cluster};
    handshake_hello(&talk.connector, &own[0], TO, NULL, talk.hello);
    assert_int_equal(handshake_reply(&talk.connected, &own[1], NULL, talk.hello, talk.reply),
                     HANDSHAKE_OK);
    if (handshake_prove(&talk.connector, talk.reply, talk.proof) != HANDSHAKE_OK)
        return false;
    return handshake_accept(&talk.connected, talk.proof) == HANDSHAKE_OK;
}

/* The order in which a secret is exchanged: two nodes that are one step apart understand each other both ways. */
static void test_a_secret_is_exchanged_step_by_step(void **state)
{
    static const char *const steps[][2] = {
        {"old", ""}, {"old", "new"}, {"new", "old"}, {"new", ""}};
    static const char *const unauthenticated[][2] = {{"guess", ""}, {"guess", "guess again"}};
    const size_t count = sizeof steps / sizeof *steps;

    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_true(understand(steps[i], steps[i]));
        assert_true(i + 1 == count || understand(steps[i], steps[i + 1]));
        assert_true(i + 1 == count || understand(steps[i + 1], steps[i]));
        for (size_t k = 0; k < sizeof unauthenticated / sizeof *unauthenticated; k++) {
            assert_false(understand(steps[i], unauthenticated[k]));
            assert_false(understand(unauthenticated[k], steps[i]));
        }
    }
    assert_false(understand(steps[0], steps[3]));
    assert_false(understand(steps[3], steps[0]));
}

/* Inside TLS a proof is of that connection: what is right in one of them is nothing in another one, nor in the clear. */
static void test_a_proof_is_of_its_channel(void **state)
{
    static const unsigned char one[HANDSHAKE_BINDING] = {1}, two[HANDSHAKE_BINDING] = {2};
    const unsigned char *const channels[] = {NULL, one, two};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            struct talk talk;

            say_hello(&talk, "secret");
            handshake_hello(&talk.connector, &talk.caller, TO, channels[i], talk.hello);
            assert_int_equal(reply(&talk, "secret", TO), HANDSHAKE_OK);
            assert_int_equal(
                handshake_reply(&talk.connected, &talk.called, channels[k], talk.hello, talk.reply),
                HANDSHAKE_OK);
            assert_int_equal(handshake_prove(&talk.connector, talk.reply, talk.proof),
                             i == k ? HANDSHAKE_OK : HANDSHAKE_UNPROVEN);
            if (i == k)
                assert_int_equal(handshake_accept(&talk.connected, talk.proof), HANDSHAKE_OK);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_knows_the_secret_comes_in),
        cmocka_unit_test(test_a_secret_is_exchanged_step_by_step),
        cmocka_unit_test(test_a_proof_is_of_its_channel),
        cmocka_unit_test(test_who_belongs_to_another_cluster),
        cmocka_unit_test(test_ids_of_clusters),
        cmocka_unit_test(test_who_does_not_is_refused_by_both),
        cmocka_unit_test(test_any_flipped_bit_is_noticed),
        cmocka_unit_test(test_a_proof_is_worth_nothing_elsewhere),
        cmocka_unit_test(test_who_wants_somebody_else),
        cmocka_unit_test(test_another_version),
        cmocka_unit_test(test_texts_that_cannot_be),
        cmocka_unit_test(test_texts_that_can),
        cmocka_unit_test(test_the_hmac),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
