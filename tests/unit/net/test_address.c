/* test_address.c: addresses, users and passwords. */
#include "../base/hostports.h"
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/holdfast-address-XXXXXX";

/* ---- addresses ------------------------------------------------------------------------------- */

static void addresses_are_read(void **state)
{
    static const struct {
        const char *text, *host, *port, *path, *shown;
    } good[] = {
        {"localhost", "localhost", "6379", "", "localhost:6379"},
        {"localhost:7000", "localhost", "7000", "", "localhost:7000"},
        {"10.0.0.1:1", "10.0.0.1", "1", "", "10.0.0.1:1"},
        {"a-b_c.example.:65535", "a-b_c.example.", "65535", "", "a-b_c.example.:65535"},
        {"H:00080", "H", "80", "", "H:80"},
        {"[::1]", "::1", "6379", "", "[::1]:6379"},
        {"[2001:db8::2]:7000", "2001:db8::2", "7000", "", "[2001:db8::2]:7000"},
        {"[::ffff:10.0.0.1]:7", "::ffff:10.0.0.1", "7", "", "[::ffff:10.0.0.1]:7"},
        {"/run/redis.sock", "", "", "/run/redis.sock", "/run/redis.sock"},
        {"%2Frun%2fredis.sock", "", "", "/run/redis.sock", "/run/redis.sock"},
        {"/a%20b", "", "", "/a b", "/a b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct error_text err = {""};
        struct address address;

        memset(&address, 'x', sizeof address);
        assert_int_equal(HF_OK,
                         address_parse(good[i].text, strlen(good[i].text), "6379", &address, &err));
        assert_string_equal(good[i].host, address.host);
        assert_string_equal(good[i].port, address.port);
        assert_string_equal(good[i].path, address.path);
        assert_string_equal(good[i].shown, address.shown);
    }
}

static void bad_addresses_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "the name of a host is missing"},
        {":6379", "the name of a host is missing"},
        {"host:", "a port is a number from 1 to 65535"},
        {"host:0", "a port is a number from 1 to 65535"},
        {"host:65536", "a port is a number from 1 to 65535"},
        {"host:000001", "a port is a number from 1 to 65535"},
        {"host:-1", "a port is a number from 1 to 65535"},
        {"host:+1", "a port is a number from 1 to 65535"},
        {"host: 1", "a port is a number from 1 to 65535"},
        {"host:6379x", "a port is a number from 1 to 65535"},
        {"::1", "in brackets"},
        {"fe80::1:6379", "in brackets"},
        {"host:1:2", "in brackets"},
        {"ho st", "only letters"},
        {"ho%41st", "only letters"},
        {"h\xc3\xb6st", "only letters"},
        {"host\n", "only letters"},
        {"host/0", "only letters"},
        {"a,b", "only letters"},
        {"127.1:6379", "with all its four numbers"},
        {"7420", "with all its four numbers"},
        {"a..b", "single dots"},
        {"-host", "only letters"},
        {"[::1", "'[' without ']'"},
        {"[]", "not an IPv6 address"},
        {"[localhost]", "not an IPv6 address"},
        {"[127.0.0.1]", "not an IPv6 address"},
        {"[::1%25lo]", "not an IPv6 address"},
        {"[::1]6379", "after ']'"},
        {"[::1]:", "a port is a number"},
        {"ss@host", "%40"},
        {"/bad%zz", "badly percent-encoded"},
        {"/nul%00", "badly percent-encoded"},
        {"/control%0a", "control character"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error_text err = {""};
        struct address address = {.host = "untouched"};

        assert_int_equal(HF_EINVAL,
                         address_parse(bad[i].text, strlen(bad[i].text), "6379", &address, &err));
        assert_says(&err, bad[i].message);
        assert_string_equal("untouched", address.host);
    }
}

/* The same as everywhere; but 0 is no port that anybody listens at. */
static void a_host_and_a_port_are_read_as_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < HOSTPORT_CASES; i++) {
        const struct hostport_case *each = &hostport_cases[i];
        struct error_text err = {""};
        struct address address = {.host = "untouched"};
        bool is_good = each->host && each->port != 0;
        int result = address_parse(each->text, strlen(each->text), "6379", &address, &err);
        char port[12];

        if ((result == HF_OK) != is_good)
            fail_msg("'%s' was %s", each->text, is_good ? err.text : "taken");
        assert_string_equal(is_good ? each->host : "untouched", address.host);
        snprintf(port, sizeof port, "%d", each->port < 0 ? 6379 : each->port);
        if (is_good)
            assert_string_equal(port, address.port);
    }
}

static void addresses_have_limits(void **state)
{
    struct error_text err = {""};
    struct address address;
    char text[ADDRESS_HOST_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 10 == 9 ? '.' : 'h';
    assert_int_equal(HF_OK, address_parse(text, ADDRESS_HOST_MAX, "65535", &address, &err));
    assert_int_equal(ADDRESS_HOST_MAX + 6, strlen(address.shown)); /* nothing of it was cut */
    assert_int_equal(HF_EINVAL, address_parse(text, ADDRESS_HOST_MAX + 1, "1", &address, &err));
    memset(text, 'h', sizeof text);
    assert_int_equal(HF_OK, address_parse(text, HOSTPORT_LABEL_MAX, "1", &address, &err));
    assert_int_equal(HF_EINVAL, address_parse(text, HOSTPORT_LABEL_MAX + 1, "1", &address, &err));
    text[0] = '/';
    assert_int_equal(HF_OK, address_parse(text, ADDRESS_PATH_MAX, "1", &address, &err));
    assert_int_equal(ADDRESS_PATH_MAX, strlen(address.path));
    assert_int_equal(HF_EINVAL, address_parse(text, ADDRESS_PATH_MAX + 1, "1", &address, &err));
    /* The length is what counts, not a NUL or what comes behind. */
    assert_int_equal(HF_OK, address_parse("host:63790", 9, "1", &address, &err));
    assert_string_equal("6379", address.port);
    assert_int_equal(HF_EINVAL, address_parse("ho\0st", 5, "1", &address, &err));
    assert_int_equal(HF_EINVAL, address_parse("[::1\0]", 6, "1", &address, &err));
}

/* ---- users and passwords --------------------------------------------------------------------- */

/* userinfo may be NULL. */
static int read_access(const char *query, const char *userinfo, struct access *ret_access,
                       struct error_text *err)
{
    char text[HF_URL_MAX];
    struct url url;
    int result;

    snprintf(text, sizeof text, "redis://host?%s", query);
    assert_int_equal(HF_OK, url_parse(text, &url, err));
    result = access_read(&url, userinfo, userinfo ? strlen(userinfo) : 0, ret_access, err);
    if (result == HF_OK) /* every option was asked for */
        assert_int_equal(HF_OK, url_check_all_used(&url, err));
    return result;
}

static void users_and_passwords_are_read(void **state)
{
    static const struct {
        const char *userinfo, *user, *password;
    } good[] = {
        {NULL, "", ""},
        {"", "", ""},
        {"ann", "ann", ""},
        {"ann:secret", "ann", "secret"},
        {":secret", "", "secret"},
        {"ann:", "ann", ""},
        {"a%3ab:c%40d", "a:b", "c@d"},
        {"ann:a:b", "ann", "a:b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct error_text err = {""};
        struct access access;

        memset(&access, 'x', sizeof access);
        assert_int_equal(HF_OK, read_access("", good[i].userinfo, &access, &err));
        assert_string_equal(good[i].user, access.user);
        assert_string_equal(good[i].password, access.password);
        assert_int_equal(0, access.tls);
        assert_string_equal("", access.ca_file);
    }
}

/* Asked to fail with these words, and never with the password among them. */
static void assert_refused(const char *query, const char *userinfo, const char *message)
{
    struct access access = {.user = "untouched"};
    struct error_text err = {""};

    assert_int_equal(HF_EINVAL, read_access(query, userinfo, &access, &err));
    assert_says(&err, message);
    assert_null(strstr(err.text, "hush"));
    assert_string_equal("untouched", access.user);
}

static void bad_userinfo_is_refused(void **state)
{
    char longest[PASSWORD_MAX + 3] = ":";
    struct error_text err = {""};
    struct access access;

    (void)state;
    assert_refused("", "ann%zz:hush", "user name is badly percent-encoded");
    assert_refused("", "ann:hush%0", "password is badly percent-encoded");
    assert_refused("", "ann:hush%00", "password is badly percent-encoded");
    memset(longest + 1, 'p', PASSWORD_MAX);
    assert_int_equal(HF_OK, read_access("", longest, &access, &err));
    assert_int_equal(PASSWORD_MAX, strlen(access.password));
    longest[PASSWORD_MAX + 1] = 'p';
    assert_refused("", longest, "longer than 1024");
}

/* Makes the file `name` in the test's directory; gives "password-file=PATH". */
static const char *secret_file(const char *name, const void *bytes, size_t size)
{
    static char query[128];
    char path[96];
    int fd;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_return_code(fd, errno);
    assert_int_equal(size, write(fd, bytes, size));
    close(fd);
    snprintf(query, sizeof query, "password-file=%s", path);
    return query;
}

static void a_password_comes_from_a_file(void **state)
{
    static const struct {
        const char *bytes, *password;
    } good[] = {{"hush", "hush"},     {"hush\n", "hush"},       {"hush\r\n", "hush"},
                {"hush \n", "hush "}, {"hush\nmore\n", "hush"}, {"p%41\n", "p%41"}};
    char longest[PASSWORD_MAX + 100];
    struct error_text err = {""};
    struct access access;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *query = secret_file("good", good[i].bytes, strlen(good[i].bytes));

        assert_int_equal(HF_OK, read_access(query, "ann", &access, &err));
        assert_string_equal(good[i].password, access.password);
        assert_string_equal("ann", access.user);
    }
    memset(longest, 'p', sizeof longest);
    memcpy(longest + PASSWORD_MAX, "\r\n", 2);
    assert_int_equal(
        HF_OK, read_access(secret_file("long", longest, sizeof longest), NULL, &access, &err));
    assert_int_equal(PASSWORD_MAX, strlen(access.password));
    longest[PASSWORD_MAX] = 'p';
    assert_refused(secret_file("long", longest, sizeof longest), NULL, "longer than 1024");
    memcpy(longest + PASSWORD_MAX, "\rp", 2); /* this is no end of a line */
    assert_refused(secret_file("long", longest, sizeof longest), NULL, "longer than 1024");
}

static void assert_now(const struct access *access, const char *expected)
{
    char password[PASSWORD_MAX + 1] = "before";

    assert_int_equal(strcmp(expected, "before") != 0, access_password(access, password));
    assert_string_equal(expected, password);
}

/* It may be exchanged while a handle is open. */
static void a_password_file_is_read_again(void **state)
{
    struct error_text err = {""};
    struct access access;
    char path[128], link[128], query[160], before[PATH_MAX];

    (void)state;
    assert_int_equal(HF_OK, read_access(secret_file("again", "one\n", 4), NULL, &access, &err));
    assert_now(&access, "one");
    secret_file("again", "two\nthree\n", 10);
    assert_now(&access, "two");
    secret_file("again", "", 0); /* whoever writes it has just begun */
    assert_now(&access, "before");
    snprintf(path, sizeof path, "%s/again", directory);
    unlink(path);
    assert_now(&access, "before");
    assert_int_equal(0, mkfifo(path, 0600)); /* it is not waited for */
    alarm(20);
    assert_now(&access, "before");
    alarm(0);
    unlink(path);
    secret_file("again", "three", 5);
    assert_now(&access, "three");

    /* By the name that it was given, wherever this leads, and whatever the working directory is. */
    assert_non_null(getcwd(before, sizeof before));
    snprintf(link, sizeof link, "%s/link", directory);
    assert_int_equal(0, symlink("again", link));
    assert_int_equal(0, chdir(directory));
    assert_int_equal(HF_OK, read_access("password-file=link", NULL, &access, &err));
    assert_int_equal(0, chdir("/"));
    assert_now(&access, "three");
    secret_file("f", "four", 4);
    unlink(link);
    assert_int_equal(0, symlink("f", link));
    assert_now(&access, "four");
    unlink(link);
    assert_int_equal(0, chdir(before));

    /* No file: what was given stays. */
    assert_int_equal(HF_OK, read_access("", ":hush", &access, &err));
    assert_now(&access, "before");
    snprintf(query, sizeof query, "password-file=%s/nothing", directory);
    assert_refused(query, NULL, "No such file");
}

/* A pipe gives its bytes once: what it gave is the password. */
static void a_password_from_a_pipe_is_read_once(void **state)
{
    struct error_text err = {""};
    struct access access;
    char query[64];
    int ends[2];

    (void)state;
    assert_int_equal(0, pipe(ends));
    assert_int_equal(5, write(ends[1], "piped", 5));
    close(ends[1]);
    snprintf(query, sizeof query, "password-file=/dev/fd/%d", ends[0]);
    assert_int_equal(HF_OK, read_access(query, NULL, &access, &err));
    assert_string_equal("piped", access.password);
    assert_now(&access, "before");
    close(ends[0]);
}

static void a_password_file_that_cannot_be_used_is_named(void **state)
{
    char query[128];

    (void)state;
    assert_refused(secret_file("empty", "", 0), NULL, "empty: its first line is empty");
    assert_refused(secret_file("blank", "\r\nhush\n", 7), NULL, "blank: its first line is empty");
    assert_refused(secret_file("binary", "hu\0sh", 5), NULL, "binary: its first line has a NUL");
    assert_refused("password-file=/nowhere/at/all", NULL,
                   "password-file /nowhere/at/all: No such file or directory");
    snprintf(query, sizeof query, "password-file=%s", directory);
    assert_refused(query, NULL, ": Is a directory");
}

static void a_password_is_given_once(void **state)
{
    struct error_text err = {""};
    struct access access;

    (void)state;
    assert_refused(secret_file("second", "hush", 4), ":hush", "a password both in it and in");
    /* The environment is for those who gave none. */
    setenv("HOLDFAST_PASSWORD", "from the environment", 1);
    assert_int_equal(HF_OK, read_access("", "ann", &access, &err));
    assert_string_equal("from the environment", access.password);
    assert_int_equal(HF_OK, read_access("", NULL, &access, &err));
    assert_string_equal("from the environment", access.password);
    assert_int_equal(HF_OK, read_access("", ":hush", &access, &err));
    assert_string_equal("hush", access.password);
    assert_int_equal(HF_OK, read_access(secret_file("f", "sh", 2), NULL, &access, &err));
    assert_string_equal("sh", access.password);
    setenv("HOLDFAST_PASSWORD", "", 1);
    assert_int_equal(HF_OK, read_access("", NULL, &access, &err));
    assert_string_equal("", access.password);
    unsetenv("HOLDFAST_PASSWORD");
}

static void a_password_of_the_environment_has_a_limit(void **state)
{
    char longest[PASSWORD_MAX + 2] = "";
    struct error_text err = {""};
    struct access access;

    (void)state;
    memset(longest, 'p', PASSWORD_MAX);
    setenv("HOLDFAST_PASSWORD", longest, 1);
    assert_int_equal(HF_OK, read_access("", NULL, &access, &err));
    assert_int_equal(PASSWORD_MAX, strlen(access.password));
    longest[PASSWORD_MAX] = 'p';
    setenv("HOLDFAST_PASSWORD", longest, 1);
    assert_refused("", NULL, "HOLDFAST_PASSWORD: longer than 1024");
    unsetenv("HOLDFAST_PASSWORD");
}

static void certificate_files_are_read(void **state)
{
    struct error_text err = {""};
    struct access access;
    char query[ADDRESS_FILE_MAX + 16] = "ca-file=";

    (void)state;
    assert_int_equal(
        HF_OK, read_access("ca-file=/a%20b&cert-file=c.pem&key-file=k.pem", NULL, &access, &err));
    assert_string_equal("/a b", access.ca_file);
    assert_string_equal("c.pem", access.cert_file);
    assert_string_equal("k.pem", access.key_file);
    assert_refused("cert-file=c.pem", NULL, "come together");
    assert_refused("key-file=k.pem", NULL, "come together");
    assert_refused("ca-file=", NULL, "ca-file is the path of a file");
    memset(query + 8, 'f', ADDRESS_FILE_MAX);
    assert_int_equal(HF_OK, read_access(query, NULL, &access, &err));
    query[8 + ADDRESS_FILE_MAX] = 'f';
    assert_refused(query, NULL, "ca-file is the path of a file, at most 1023");
}

static void what_was_read_can_be_wiped(void **state)
{
    static const struct access nothing;
    struct error_text err = {""};
    struct access access;

    (void)state;
    assert_int_equal(HF_OK, read_access("ca-file=x", "ann:hush", &access, &err));
    access_wipe(&access);
    assert_memory_equal(&nothing, &access, sizeof access);
}

static int make_directory(void **state)
{
    (void)state;
    unsetenv("HOLDFAST_PASSWORD");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    static const char *const names[] = {"good",   "long",   "empty", "blank",
                                        "binary", "second", "f",     "again"};
    char path[96];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(a_host_and_a_port_are_read_as_everywhere),
        cmocka_unit_test(addresses_have_limits),
        cmocka_unit_test(users_and_passwords_are_read),
        cmocka_unit_test(bad_userinfo_is_refused),
        cmocka_unit_test(a_password_comes_from_a_file),
        cmocka_unit_test(a_password_file_is_read_again),
        cmocka_unit_test(a_password_from_a_pipe_is_read_once),
        cmocka_unit_test(a_password_file_that_cannot_be_used_is_named),
        cmocka_unit_test(a_password_is_given_once),
        cmocka_unit_test(a_password_of_the_environment_has_a_limit),
        cmocka_unit_test(certificate_files_are_read),
        cmocka_unit_test(what_was_read_can_be_wiped),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
