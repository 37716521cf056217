/* Unit tests of src/base. */
#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/hostport.h"
#include "base/list.h"
#include "base/random.h"
#include "base/sha1.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/url.h"
#include "hostports.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void numbers_are_read_strictly(void **state)
{
    uint64_t value = 7;

    (void)state;
    assert_true(text_to_u64("0", 10, &value) && value == 0);
    assert_true(text_to_u64("18446744073709551615", UINT64_MAX, &value) && value == UINT64_MAX);
    assert_true(text_to_u64("9007199254740991", HF_TOKEN_MAX, &value) && value == HF_TOKEN_MAX);
    value = 7;
    assert_false(text_to_u64("9007199254740992", HF_TOKEN_MAX, &value));
    assert_false(text_to_u64("18446744073709551616", UINT64_MAX, &value));
    assert_false(text_to_u64("99999999999999999999999", UINT64_MAX, &value));
    for (const char *const *bad =
             (const char *const[]){"", "-1", "+1", " 1", "1 ", "0x1", "1.", NULL};
         *bad; bad++)
        assert_false(text_to_u64(*bad, UINT64_MAX, &value));
    assert_false(text_to_u64("8", 7, &value));
    assert_false(text_to_u64("1", 0, &value));
    assert_int_equal(7, value); /* outputs are untouched on failure */
}

static void durations_are_read_strictly(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"500ms", 500},
        {"30s", 30000},
        {"30", 30000},
        {"10m", 600000},
        {"2h", 7200000},
        {"1d", 86400000},
        {"1.5s", 1500},
        {"0", 0},
        {"0.25", 250},
        {"0.0009s", 0},
        {"1.5m", 90000},
        {"366d", HF_DURATION_MAX_MS},
        {"5m30s", 330000},
        {"1h30m", 5400000},
        {"1d2h3m4s5ms", 93784005},
        {"1m0.5s", 60500},
        {"365d24h", HF_DURATION_MAX_MS},
        {"1.999999999999999999999s", 1999},
    };
    static const char *const bad[] = {
        "",        "s",     "-1s",   "+1",      "1 s",  "1S",
        "1.",      ".5",    "1.s",   "1e3",     "367d", "99999999999999999999",
        "1.2.3",   "30s5m", "5m5m",  "1.5h30m", "5m30", "5m 30s",
        "366d1ms", "5min",  "1ms1s", "5m30x"};
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ms = -1;
        assert_true(text_to_ms(good[i].text, &ms));
        assert_int_equal(good[i].ms, ms);
    }
    ms = 42;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_to_ms(bad[i], &ms));
    assert_int_equal(42, ms);
}

static void durations_are_shown_to_people(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } shown[] = {{0, "0 ms"},           {250, "250 ms"},       {3200, "3.2 s"},
                 {59999, "59.9 s"},     {303000, "5 min 3 s"}, {7440000, "2 h 4 min"},
                 {262800000, "3 d 1 h"}};
    char text[TEXT_SPAN_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        text_from_ms(shown[i].ms, text);
        assert_string_equal(shown[i].text, text);
    }
}

static void durations_are_written_as_they_are_typed(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } written[] = {{0, "0"},
                   {100, "100ms"},
                   {30000, "30s"},
                   {330000, "330s"},
                   {86400000, "1d"},
                   {1001, "1001ms"},
                   {HF_DURATION_MAX_MS, "366d"},
                   {93784005, "93784005ms"}};
    char text[TEXT_SPAN_MAX];
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        text_duration(written[i].ms, text);
        assert_string_equal(written[i].text, text);
        assert_true(text_to_ms(text, &ms));
        assert_int_equal(written[i].ms, ms);
    }
}

static void percent_encoding_goes_there_and_back(void **state)
{
    char every[256], coded[1024], back[256];

    (void)state;
    for (int i = 0; i < 255; i++)
        every[i] = (char)(i + 1);
    every[255] = '\0';
    assert_true(text_percent_encode(every, 255, "-._", coded, sizeof coded) < sizeof coded);
    assert_true(text_percent_decode(coded, strlen(coded), back, sizeof back));
    assert_memory_equal(every, back, sizeof every);
    assert_int_equal(7, text_percent_encode("a/\xff", 3, "", coded, sizeof coded));
    assert_string_equal("a%2f%ff", coded);
    assert_int_equal(3, text_percent_encode("a/b", 3, "/", coded, sizeof coded));
    assert_string_equal("a/b", coded);
    /* Cut, but terminated, and the length it would have had. */
    assert_int_equal(9, text_percent_encode("///", 3, "", coded, 5));
    assert_int_equal(4, strlen(coded));
    assert_int_equal(3, text_percent_encode("/", 1, "", coded, 0));
}

static void bad_percent_encoding_is_refused(void **state)
{
    static const char *const bad[] = {"%", "%4", "%zz", "%4g", "%00", "a%"};
    char out[8];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_percent_decode(bad[i], strlen(bad[i]), out, sizeof out));
    assert_true(text_percent_decode("%41%4a%4A", 9, out, sizeof out));
    assert_string_equal("AJJ", out);
    assert_true(text_percent_decode("1234567", 7, out, sizeof out));
    assert_false(text_percent_decode("12345678", 8, out, sizeof out));
    assert_false(text_percent_decode("", 0, out, 0));
}

static void utf8_is_told_from_the_rest(void **state)
{
    static const char *const good[] = {"",
                                       "plain",
                                       "caf\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x94\x92",
                                       "\xed\x9f\xbf",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\xff",
                                      "\x80",
                                      "\xc3",
                                      "\xc0\xaf",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf0\x80\x80\x80",
                                      "a\xe9",
                                      "\xe2\x82",
                                      "\xc3\xc3"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_is_utf8(bad[i], strlen(bad[i])));
}

static void names_have_a_length(void **state)
{
    char name[HF_NAME_MAX + 2];
    struct error_text err = {""};

    (void)state;
    memset(name, 'x', sizeof name);
    name[HF_NAME_MAX + 1] = '\0';
    assert_int_equal(HF_EINVAL, text_check_name(name, &err));
    assert_non_null(strstr(err.text, "512"));
    name[HF_NAME_MAX] = '\0';
    assert_int_equal(HF_OK, text_check_name(name, &err));
    assert_int_equal(HF_EINVAL, text_check_name("", &err));
    assert_int_equal(HF_EINVAL, text_check_name(NULL, &err));
}

/* ---- url ------------------------------------------------------------------------------------- */

static void a_url_comes_apart(void **state)
{
    struct error_text err = {""};
    struct url url;
    int64_t ms = 5;

    (void)state;
    assert_int_equal(HF_OK, url_parse("file:/var/lib/x%20y?ttl=1.5s&a=b%26c&", &url, &err));
    assert_string_equal("file", url.scheme);
    assert_string_equal("/var/lib/x%20y", url.rest);
    assert_string_equal("b&c", url_get(&url, "a"));
    assert_null(url_get(&url, "b"));
    assert_int_equal(HF_EINVAL, url_check_all_used(&url, &err));
    assert_non_null(strstr(err.text, "ttl"));
    assert_int_equal(HF_OK, url_get_ms(&url, "ttl", 0, 2000, &ms, &err));
    assert_int_equal(1500, ms);
    assert_int_equal(HF_OK, url_check_all_used(&url, &err));
    assert_int_equal(HF_EINVAL, url_get_ms(&url, "ttl", 0, 1499, &ms, &err));
    assert_int_equal(HF_EINVAL, url_get_ms(&url, "a", 0, 1499, &ms, &err));
    assert_int_equal(HF_OK, url_get_ms(&url, "absent", 0, 1499, &ms, &err));
    assert_int_equal(1500, ms);
    assert_int_equal(HF_OK, url_parse("file:", &url, &err));
    assert_string_equal("", url.rest);
}

static void bad_urls_are_refused(void **state)
{
    static const char *const bad[] = {"",         "file",       ":x",         "FILE:x",
                                      "fi le:x",  "x:?=1",      "x:?novalue", "x:?a=1&a=2",
                                      "x:?a=%zz", "/etc/passwd"};
    char text[HF_URL_MAX + 8];
    struct error_text err;
    struct url url;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(HF_EINVAL, url_parse(bad[i], &url, &err));
    memset(text, 'x', sizeof text);
    memcpy(text, "file:", 5);
    text[HF_URL_MAX + 1] = '\0';
    assert_int_equal(HF_EINVAL, url_parse(text, &url, &err));
    text[HF_URL_MAX] = '\0';
    assert_int_equal(HF_OK, url_parse(text, &url, &err));
    snprintf(text, sizeof text, "x:?");
    for (int i = 0; i <= URL_PARAMETERS_MAX; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "k%d=v&", i);
    assert_int_equal(HF_EINVAL, url_parse(text, &url, &err));
}

static void no_password_of_a_url_is_shown(void **state)
{
    static const char *const both[][2] = {
        {"file:/a:b@c", "file:/a:b@c"},
        {"x://me@h:1/d?ttl=1s", "x://me@h:1/d?ttl=1s"},
        {"x://me:SECRET@h:1/d?ttl=1s", "x://me@h:1/d?ttl=1s"},
        {"x://me:SE@CR:ET@h", "x://me@h"},
        {"x://h?password=SECRET", "x://h"},
        {"x://h?password=SECRET&a=b", "x://h?a=b"},
        {"x://h?a=b&password=SECRET&c=d", "x://h?a=b&c=d"},
        {"x://h?a=b&sslpassword=SECRET", "x://h?a=b"},
        {"x://h?password-file=p&a=b", "x://h?password-file=p&a=b"},
        {"x://h?listen=off", "x://h?listen=off"},
        {"x://h?a=b:c%40d&e=f", "x://h?a=b:c%40d&e=f"},
        {"x://h?listen=p://me:SECRET%40g:2/d&a=b", "x://h?listen=p://me%40g:2/d&a=b"},
        {"x://h?listen=p%3A%2F%2Fme%3ASECRET%40g%2Fd", "x://h?listen=p%3A%2F%2Fme%40g%2Fd"},
        {"x://u:SECRET@h?listen=p://me:SE%2540CRET%40g", "x://u@h?listen=p://me%40g"},
        {"x://h?listen=p://g?password=SECRET%26s=t", "x://h?listen=p://g?s=t"},
        {"x://h?listen=p://g%3Fs=t%26password%3DSECRET&a=b", "x://h?listen=p://g%3Fs=t&a=b"},
        {"x://h?listen=p://g?p%2561ssword=SECRET&a=b", "x://h?listen=p://g&a=b"},
        {"x://h?listen=p://me:SECRET%40%zz", "x://h?listen="}};
    char long_url[HF_URL_MAX + 100], shown[HF_URL_MAX + 1];

    (void)state;
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        url_without_passwords(both[i][0], shown);
        assert_string_equal(both[i][1], shown);
    }
    memset(long_url, 'x', sizeof long_url);
    long_url[sizeof long_url - 1] = '\0';
    url_without_passwords(long_url, shown);
    assert_int_equal(HF_URL_MAX, strlen(shown));
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void digest(const char *bytes, size_t size, char ret_hex[2 * SHA256_SIZE + 1])
{
    unsigned char out[SHA256_SIZE];

    sha256(bytes, size, out);
    text_hex(out, sizeof out, ret_hex);
}

static void sha256_gives_the_published_digests(void **state)
{
    static const char *const two_blocks =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[2 * SHA256_SIZE + 1], *million = malloc(1000000);

    (void)state;
    assert_non_null(million);
    digest("abc", 3, hex); /* FIPS 180-4's examples, and the empty message */
    assert_string_equal("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", hex);
    digest("", 0, hex);
    assert_string_equal("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", hex);
    digest(two_blocks, strlen(two_blocks), hex);
    assert_string_equal("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", hex);
    memset(million, 'a', 1000000);
    digest(million, 1000000, hex);
    assert_string_equal("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", hex);
    /* Around the place where the length no longer fits into the last block. */
    digest(million, 55, hex);
    assert_string_equal("9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318", hex);
    digest(million, 56, hex);
    assert_string_equal("b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a", hex);
    digest(million, 64, hex);
    assert_string_equal("ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb", hex);
    free(million);
}

static void digest_sha1(const char *bytes, size_t size, char ret_hex[2 * SHA1_SIZE + 1])
{
    unsigned char out[SHA1_SIZE];

    sha1(bytes, size, out);
    text_hex(out, sizeof out, ret_hex);
}

static void sha1_gives_the_published_digests(void **state)
{
    static const char *const two_blocks =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char hex[2 * SHA1_SIZE + 1], *million = malloc(1000000);

    (void)state;
    assert_non_null(million);
    digest_sha1("abc", 3, hex); /* FIPS 180-4's examples, and the empty message */
    assert_string_equal("a9993e364706816aba3e25717850c26c9cd0d89d", hex);
    digest_sha1("", 0, hex);
    assert_string_equal("da39a3ee5e6b4b0d3255bfef95601890afd80709", hex);
    digest_sha1(two_blocks, strlen(two_blocks), hex);
    assert_string_equal("84983e441c3bd26ebaae4aa1f95129e5e54670f1", hex);
    memset(million, 'a', 1000000);
    digest_sha1(million, 1000000, hex);
    assert_string_equal("34aa973cd4c4daa4f61eeb2bdbad27316534016f", hex);
    /* Around the place where the length no longer fits into the last block. */
    digest_sha1(million, 55, hex);
    assert_string_equal("c1c8bbdc22796e28c0e15163d20899b65621d65a", hex);
    digest_sha1(million, 56, hex);
    assert_string_equal("c2db330f6083854c99d4b5bfb6e8f29f201be699", hex);
    digest_sha1(million, 63, hex);
    assert_string_equal("03f09f5b158a7a8cdad920bddc29b81c18a551f5", hex);
    digest_sha1(million, 64, hex);
    assert_string_equal("0098ba824b5c16427bd7a1122a5a442a25ec644d", hex);
    free(million);
}

static void errors_are_one_printable_line(void **state)
{
    char long_text[2 * ERROR_TEXT_MAX];
    struct error_text err;

    (void)state;
    assert_int_equal(HF_EBUSY, error_set(&err, HF_EBUSY, "a\nb\x1b[31m%d", 5));
    assert_string_equal("a?b?[31m5", err.text);
    assert_int_equal(HF_EIO, error_set_errno(&err, HF_EIO, ENOENT, "file %s", "x"));
    assert_string_equal("file x: No such file or directory", err.text);
    assert_int_equal(HF_EIO, error_set(NULL, HF_EIO, "nobody listens"));
    memset(long_text, 'y', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    error_set_errno(&err, HF_EIO, ENOENT, "%s", long_text);
    assert_int_equal(ERROR_TEXT_MAX - 1, strlen(err.text));
    assert_string_equal("HF_OK", error_name(HF_OK));
    assert_string_equal("HF_EBUSY", error_name(HF_EBUSY));
    assert_string_equal("HF_EREFUSED", error_name(HF_EREFUSED));
    assert_string_equal("HF_EINTERNAL", error_name(HF_EINTERNAL));
    assert_string_equal("HF_E?", error_name(HF_ESTALE - 1));
    assert_string_equal("HF_E?", error_name(1));
}

static void the_clock_counts_and_does_not_overflow(void **state)
{
    int64_t before = clock_boot_ms();

    (void)state;
    clock_test_shift_ms(60000);
    assert_in_range(clock_boot_ms() - before, 60000, 70000);
    clock_test_shift_ms(0);
    assert_true(clock_boot_ms() >= before && clock_boot_ms() < before + 10000);
    assert_true(clock_boot_ns() / 1000000 >= before);
    assert_true(clock_after(5, 7) == 12);
    assert_true(clock_after(5, CLOCK_NEVER) == CLOCK_NEVER);
    assert_true(clock_after(CLOCK_NEVER, 0) == CLOCK_NEVER);
    assert_true(clock_after(CLOCK_NEVER - 3, 7) == CLOCK_NEVER);
}

static void a_list_keeps_its_order(void **state)
{
    struct item {
        int value;
        struct list node;
    } items[3];
    struct list head;
    int sum = 0;

    (void)state;
    list_init(&head);
    assert_true(list_empty(&head));
    for (int i = 0; i < 3; i++) {
        items[i].value = i;
        list_append(&head, &items[i].node);
    }
    list_remove(&items[1].node);
    list_remove(&items[1].node); /* harmless */
    LIST_EACH(node, &head)
    sum = 10 * sum + LIST_ENTRY(node, struct item, node)->value;
    assert_int_equal(2, sum);
    LIST_EACH_SAFE(node, &head)
    list_remove(node);
    assert_true(list_empty(&head));
}

static void random_bytes_differ(void **state)
{
    unsigned char a[300] = {0}, b[300] = {0};

    (void)state;
    random_fill(a, sizeof a);
    random_fill(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(0, random_below(0));
    assert_int_equal(0, random_below(1));
    for (int i = 0; i < 100; i++)
        assert_true(random_below(7) < 7);
}

static void *change_word(void *arg)
{
    _Atomic uint32_t *word = arg;

    usleep(20000);
    atomic_store(word, 1);
    futex_wake(word, FUTEX_MASK_ALL, 1);
    return NULL;
}

static void a_futex_wakes_on_change_and_at_its_deadline(void **state)
{
    _Atomic uint32_t word = 0;
    int64_t began = clock_boot_ms();
    pthread_t thread;

    (void)state;
    futex_wait(&word, 1, FUTEX_MASK_ALL, CLOCK_NEVER); /* already another value: returns */
    futex_wait(&word, 0, FUTEX_MASK_ALL, began - 1);   /* already over: returns */
    while (clock_boot_ms() < began + 30)
        futex_wait(&word, 0, FUTEX_MASK_ALL, began + 30);
    assert_int_equal(0, pthread_create(&thread, NULL, change_word, (void *)&word));
    while (atomic_load(&word) == 0 && clock_boot_ms() < began + 10000)
        futex_wait(&word, 0, FUTEX_MASK_ALL, began + 10000);
    assert_int_equal(1, word);
    pthread_join(thread, NULL);
    assert_int_equal(0, futex_wake(&word, FUTEX_MASK_ALL, 1));
}

/* ---- host and port ----------------------------------------------------------------------------- */

static void a_host_is_an_address_or_a_name(void **state)
{
    static const struct {
        const char *text, *host;
        enum hostport_kind kind;
        int port; /* -1: none */
        bool loopback;
    } good[] = {
        {"127.0.0.1:7420", "127.0.0.1", HOSTPORT_IPV4, 7420, true},
        {"127.255.3.9", "127.255.3.9", HOSTPORT_IPV4, -1, true},
        {"0.0.0.0:0", "0.0.0.0", HOSTPORT_IPV4, 0, false},
        {"[::1]:00080", "::1", HOSTPORT_IPV6, 80, true},
        {"[2001:db8::7]", "2001:db8::7", HOSTPORT_IPV6, -1, false},
        {"LocalHost:65535", "LocalHost", HOSTPORT_NAME, 65535, true},
        {"localhost.example:1", "localhost.example", HOSTPORT_NAME, 1, false},
        {"1.example.:1", "1.example.", HOSTPORT_NAME, 1, false},
        {"a_b-c", "a_b-c", HOSTPORT_NAME, -1, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct hostport at;

        if (hostport_parse(good[i].text, strlen(good[i].text), &at) != HOSTPORT_OK)
            fail_msg("'%s' was refused", good[i].text);
        assert_string_equal(good[i].host, at.host);
        assert_int_equal(good[i].kind, at.kind);
        assert_int_equal(good[i].port, at.has_port ? at.port : -1);
        assert_int_equal(good[i].loopback, at.loopback);
    }
}

static void what_is_no_host_and_port_is_known(void **state)
{
    static const struct {
        const char *text;
        enum hostport_fault fault;
    } bad[] = {
        {"", HOSTPORT_NO_HOST},
        {":1", HOSTPORT_NO_HOST},
        {"127.1", HOSTPORT_NOT_IPV4},
        {"127.1:7420", HOSTPORT_NOT_IPV4},
        {"7420", HOSTPORT_NOT_IPV4},
        {"1.2.3.256:1", HOSTPORT_NOT_IPV4},
        {"0x7f.1:1", HOSTPORT_NOT_IPV4},
        {"0177.0.0.1", HOSTPORT_NOT_IPV4},
        {"::1", HOSTPORT_UNBRACKETED},
        {"a:1:2", HOSTPORT_UNBRACKETED},
        {"[::1", HOSTPORT_UNCLOSED},
        {"[::1]1", HOSTPORT_AFTER_BRACKET},
        {"[]:1", HOSTPORT_NOT_IPV6},
        {"[127.0.0.1]:1", HOSTPORT_NOT_IPV6},
        {"[fe80::1%eth0]:1", HOSTPORT_NOT_IPV6},
        {"a..b:1", HOSTPORT_NOT_NAME},
        {"-a:1", HOSTPORT_NOT_NAME},
        {"a b:1", HOSTPORT_NOT_NAME},
        {"a@b:1", HOSTPORT_NOT_NAME},
        {"a:", HOSTPORT_PORT},
        {"a:x", HOSTPORT_PORT},
        {"a:+1", HOSTPORT_PORT},
        {"a: 1", HOSTPORT_PORT},
        {"a:65536", HOSTPORT_PORT},
        {"a:000001", HOSTPORT_PORT},
        {"[::1]:", HOSTPORT_PORT},
    };
    struct hostport at;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hostport_parse(bad[i].text, strlen(bad[i].text), &at) != bad[i].fault)
            fail_msg("'%s'", bad[i].text);
    assert_int_equal(HOSTPORT_NOT_NAME, hostport_parse("ho\0st", 5, &at));
    assert_int_equal(HOSTPORT_NOT_IPV6, hostport_parse("[::1\0]", 6, &at));
}

/* What every user of it is held to. */
static void all_read_a_host_and_a_port_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < HOSTPORT_CASES; i++) {
        const struct hostport_case *each = &hostport_cases[i];
        struct hostport at = {.host = "untouched"};
        bool is_taken = hostport_parse(each->text, strlen(each->text), &at) == HOSTPORT_OK;

        if (is_taken != (each->host != NULL))
            fail_msg("'%s' was %s", each->text, is_taken ? "taken" : "refused");
        assert_string_equal(each->host ? each->host : "untouched", at.host);
        if (!each->host)
            continue;
        assert_int_equal(each->port, at.has_port ? at.port : -1);
        assert_int_equal(each->loopback, at.loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(durations_are_read_strictly),
        cmocka_unit_test(durations_are_shown_to_people),
        cmocka_unit_test(durations_are_written_as_they_are_typed),
        cmocka_unit_test(percent_encoding_goes_there_and_back),
        cmocka_unit_test(bad_percent_encoding_is_refused),
        cmocka_unit_test(utf8_is_told_from_the_rest),
        cmocka_unit_test(names_have_a_length),
        cmocka_unit_test(a_url_comes_apart),
        cmocka_unit_test(bad_urls_are_refused),
        cmocka_unit_test(no_password_of_a_url_is_shown),
        cmocka_unit_test(sha1_gives_the_published_digests),
        cmocka_unit_test(sha256_gives_the_published_digests),
        cmocka_unit_test(errors_are_one_printable_line),
        cmocka_unit_test(the_clock_counts_and_does_not_overflow),
        cmocka_unit_test(a_list_keeps_its_order),
        cmocka_unit_test(random_bytes_differ),
        cmocka_unit_test(a_host_is_an_address_or_a_name),
        cmocka_unit_test(what_is_no_host_and_port_is_known),
        cmocka_unit_test(all_read_a_host_and_a_port_alike),
        cmocka_unit_test(a_futex_wakes_on_change_and_at_its_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
