/* test_secret.c: the password file, and comparing with what is in it. */
#include "base/error.h"
#include "base/password.h"
#include "server/secret.h"
#include "tools.h"

#define CANARY "hunter2-"

static bool matches(const struct secret *secret, const char *password)
{
    return secret_matches(secret, password, strlen(password));
}

static struct secret read_well(const void *bytes, size_t size, mode_t mode)
{
    struct secret secret = {0};
    struct error_text err = {""};

    if (secret_read("password-file", write_file("password", bytes, size, mode), &secret, &err) !=
        HF_OK)
        fail_msg("%s", err.text);
    assert_true(secret.set);
    return secret;
}

static void the_first_line_is_the_password(void **state)
{
    static const char *const files[] = {"open sesame", "open sesame\n", "open sesame\r\n",
                                        "open sesame\nsecond line\n"};
    static const char *const wrong[] = {"",
                                        "open sesam",
                                        "open sesame\n",
                                        "open sesame\r",
                                        "open sesamf",
                                        "Open sesame",
                                        "open sesame\nsecond line"};

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        struct secret secret = read_well(files[i], strlen(files[i]), 0600);

        assert_true(matches(&secret, "open sesame"));
        assert_false(secret_matches(&secret, "open sesame", 12)); /* with its NUL */
        for (size_t k = 0; k < COUNT(wrong); k++)
            assert_false(matches(&secret, wrong[k]));
        secret_wipe(&secret);
        assert_false(matches(&secret, "open sesame"));
    }
}

static void the_second_line_is_valid_too(void **state)
{
    static const struct {
        const char *file;
        int count;
        bool is_short;
    } files[] = {{"the first of two\nthe second of two\n", 2, false},
                 {"the first of two\r\nthe second of two\r\n\r\n", 2, false},
                 {"the first of two\nthe second of two", 2, false},
                 {"the first of two\nshort\n", 2, true},
                 {"the first of two\n\n\n", 1, false},
                 {"the first of two\r\n\r\n", 1, false},
                 {"the first of two\nthe first of two\n", 1, false}};
    struct secret one = read_well("the first of two", 16, 0600);

    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        struct secret secret = read_well(files[i].file, strlen(files[i].file), 0600);

        assert_int_equal(files[i].count, secret_count(&secret));
        assert_int_equal(files[i].is_short, secret.is_short);
        assert_true(matches(&secret, "the first of two"));
        assert_false(matches(&secret, ""));
        assert_false(matches(&secret, "the first of two\nthe second of two"));
        assert_int_equal(files[i].count == 2 && !secret.is_short,
                         matches(&secret, "the second of two"));
        assert_int_equal(secret.is_short, matches(&secret, "short"));
        assert_int_equal(files[i].count - 1, secret_count_new(&secret, &one));
        assert_int_equal(0, secret_count_new(&one, &secret));
        secret_wipe(&secret);
        assert_false(matches(&secret, "the second of two"));
        assert_int_equal(1, secret_count_new(&one, &secret));
    }
}

/* Each byte of the digest counts. */
static void a_digest_differs_in_any_byte(void **state)
{
    struct secret secret = read_well("x", 1, 0600);

    (void)state;
    for (size_t i = 0; i < sizeof secret.digest; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct secret other = secret;

            other.digest[i] ^= (unsigned char)(1u << bit);
            assert_false(matches(&other, "x"));
        }
    assert_true(matches(&secret, "x"));
}

static void without_a_password_nothing_matches(void **state)
{
    struct secret none = {0};
    unsigned char digest[SHA256_SIZE];

    (void)state;
    assert_false(matches(&none, ""));
    assert_false(matches(&none, "x"));
    sha256("x", 1, digest);
    memcpy(none.digest, digest, sizeof digest);
    assert_false(matches(&none, "x")); /* `set` decides, whatever else is there */
}

static void the_password_itself_is_not_kept(void **state)
{
    struct secret secret = read_well(CANARY "sesame", sizeof CANARY "sesame" - 1, 0600);

    (void)state;
    assert_null(memmem(&secret, sizeof secret, CANARY, sizeof CANARY - 1));
}

static void the_longest_password_fits(void **state)
{
    char bytes[PASSWORD_MAX + 3];
    struct secret secret;

    (void)state;
    memset(bytes, 'x', sizeof bytes);
    secret = read_well(bytes, PASSWORD_MAX, 0600);
    assert_true(secret_matches(&secret, bytes, PASSWORD_MAX));
    bytes[PASSWORD_MAX] = '\r';
    bytes[PASSWORD_MAX + 1] = '\n';
    secret = read_well(bytes, PASSWORD_MAX + 3, 0600);
    assert_true(secret_matches(&secret, bytes, PASSWORD_MAX));
}

static void assert_refused(const char *path, int result, const char *message)
{
    struct secret secret = {.set = false, .digest = "untouched"}, before = secret;
    struct error_text err = {""};

    assert_int_equal(result, secret_read("password-file", path, &secret, &err));
    assert_contains(err.text, path);
    assert_contains(err.text, message);
    assert_null(strstr(err.text, CANARY));
    assert_memory_equal(&before, &secret, sizeof secret);
}

static void bad_passwords_are_refused_and_not_quoted(void **state)
{
    char bytes[PASSWORD_MAX + 2];

    (void)state;
    assert_refused(write_file("p", "", 0, 0600), HF_EINVAL, "its first line is empty");
    assert_refused(write_file("p", "\n" CANARY, 9, 0600), HF_EINVAL, "its first line is empty");
    assert_refused(write_file("p", "\r\n", 2, 0600), HF_EINVAL, "its first line is empty");
    assert_refused(write_file("p", CANARY "\0x\n", 11, 0600), HF_EINVAL, "NUL byte");
    assert_refused(write_file("p", "x\n" CANARY "\0x\n", 13, 0600), HF_EINVAL,
                   "its second line has a NUL byte");
    assert_refused(write_file("p", "x\ny\n" CANARY, 12, 0600), HF_EINVAL, "more than two lines");
    assert_refused(write_file("p", "x\n\n" CANARY, 11, 0600), HF_EINVAL, "more than two lines");
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes, CANARY, 8);
    assert_refused(write_file("p", bytes, PASSWORD_MAX + 1, 0600), HF_EINVAL,
                   "longer than 1024 bytes");
    bytes[PASSWORD_MAX + 1] = '\n';
    assert_refused(write_file("p", bytes, sizeof bytes, 0600), HF_EINVAL, "longer than 1024 bytes");
    memcpy(bytes + PASSWORD_MAX, "\rz", 2); /* a CR that does not end the line */
    assert_refused(write_file("p", bytes, sizeof bytes, 0600), HF_EINVAL, "longer than 1024 bytes");
}

static void a_file_that_others_can_use_is_refused(void **state)
{
    static const mode_t bad[] = {0604, 0602, 0601, 0620, 0660, 0644, 0777};
    static const mode_t good[] = {0400, 0600, 0440, 0640, 0700};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        char shown[32];

        snprintf(shown, sizeof shown, "(mode %04o): chmod", (unsigned)bad[i]);
        assert_refused(write_file("p", CANARY, 8, bad[i]), HF_EREFUSED, shown);
    }
    for (size_t i = 0; i < COUNT(good); i++)
        read_well(CANARY, 8, good[i]);
}

/* The alarm ends the test if a FIFO is waited for. */
static void only_a_regular_file_will_do(void **state)
{
    const char *fifo = path_of("fifo");

    (void)state;
    assert_int_equal(0, mkfifo(fifo, 0600));
    alarm(20);
    assert_refused(fifo, HF_EREFUSED, "is not a regular file");
    alarm(0);
    assert_refused("/", HF_EREFUSED, "is not a regular file");
    assert_refused("/dev/null", HF_EREFUSED, "is not a regular file");
    assert_refused(path_of("none"), HF_EREFUSED, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_is_the_password),
        cmocka_unit_test(the_second_line_is_valid_too),
        cmocka_unit_test(a_digest_differs_in_any_byte),
        cmocka_unit_test(without_a_password_nothing_matches),
        cmocka_unit_test(the_password_itself_is_not_kept),
        cmocka_unit_test(the_longest_password_fits),
        cmocka_unit_test(bad_passwords_are_refused_and_not_quoted),
        cmocka_unit_test(a_file_that_others_can_use_is_refused),
        cmocka_unit_test(only_a_regular_file_will_do),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
