/* test_notify.c: what a service manager gets to hear. */
#include "server/notify.h"
#include "tools.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A manager's socket, at a path or (name[0] == '@') in the abstract space. */
static int listen_as_manager(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0 && length < sizeof address.sun_path);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    assert_int_equal(0, bind(fd, (const struct sockaddr *)&address, size));
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

/* A datagram is there when sendto has returned: nothing is waited for. */
static void assert_told(int fd, const char *message)
{
    char heard[512];
    ssize_t length = recv(fd, heard, sizeof heard - 1, 0);

    assert_true(length >= 0);
    heard[length] = '\0';
    assert_int_equal(strlen(message), length);
    assert_string_equal(message, heard);
}

static void assert_nothing_more(int fd)
{
    char heard[512];

    assert_int_equal(-1, recv(fd, heard, sizeof heard, 0));
    close(fd);
    unsetenv("NOTIFY_SOCKET");
}

static void tell_everything(int fd)
{
    struct error_text err = {""};

    assert_int_equal(HF_OK, notify_ready(&err));
    assert_told(fd, "READY=1");
    assert_int_equal(HF_OK, notify_status("leading, 3 clients", &err));
    assert_told(fd, "STATUS=leading, 3 clients");
    assert_int_equal(HF_OK, notify_watchdog(&err));
    assert_told(fd, "WATCHDOG=1");
    assert_int_equal(HF_OK, notify_stopping(&err));
    assert_told(fd, "STOPPING=1");
    assert_nothing_more(fd);
}

static void a_manager_at_a_path_is_told(void **state)
{
    const char *path = path_of("notify");

    (void)state;
    tell_everything(listen_as_manager(path));
}

static void a_manager_in_the_abstract_space_is_told(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof name, "@holdfast-test-%d", (int)getpid());
    tell_everything(listen_as_manager(name));
}

static void where_nobody_asks_nothing_is_told(void **state)
{
    struct error_text err = {""};

    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(HF_OK, notify_ready(&err));
    setenv("NOTIFY_SOCKET", "", 1);
    assert_int_equal(HF_OK, notify_ready(&err));
    assert_string_equal("", err.text);
}

static void a_bad_socket_is_an_error_in_words(void **state)
{
    char longest[150];
    const char *const bad[] = {"notify", "@", "/", "vsock:2:1234", longest};
    struct error_text err;

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[sizeof((struct sockaddr_un *)0)->sun_path] = '\0'; /* one byte too many, with its NUL */
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv("NOTIFY_SOCKET", bad[i], 1);
        err.text[0] = '\0';
        assert_int_equal(HF_EINVAL, notify_ready(&err));
        assert_contains(err.text, "NOTIFY_SOCKET is neither");
    }
    longest[sizeof((struct sockaddr_un *)0)->sun_path - 1] = '\0';
    setenv("NOTIFY_SOCKET", longest, 1);
    assert_int_equal(HF_EIO, notify_ready(&err));
    setenv("NOTIFY_SOCKET", path_of("nobody"), 1);
    assert_int_equal(HF_EIO, notify_stopping(&err));
    assert_contains(err.text, "cannot tell the service manager STOPPING=1: No such file");
    unsetenv("NOTIFY_SOCKET");
}

static void a_status_is_one_line(void **state)
{
    int fd = listen_as_manager(path_of("line"));
    char longest[NOTIFY_STATUS_MAX + 10] = "", expected[512];

    (void)state;
    assert_int_equal(HF_OK, notify_status("a\nMAINPID=1\r\x7f b", NULL));
    assert_told(fd, "STATUS=a?MAINPID=1?? b");
    memset(longest, 'x', sizeof longest - 1);
    longest[NOTIFY_STATUS_MAX] = '\0';
    snprintf(expected, sizeof expected, "STATUS=%s", longest);
    assert_int_equal(HF_OK, notify_status(longest, NULL));
    assert_told(fd, expected); /* the longest is whole */
    longest[NOTIFY_STATUS_MAX + 1] = '\0';
    memcpy(longest + NOTIFY_STATUS_MAX - 2, "\xe2\x82\xac", 3); /* a euro sign across the cut */
    assert_int_equal(HF_OK, notify_status(longest, NULL));
    expected[strlen("STATUS=") + NOTIFY_STATUS_MAX - 2] = '\0';
    assert_told(fd, expected);
    assert_nothing_more(fd);
}

/* Nobody reads: the queue fills, and then a call must fail at once. The alarm ends the test if it
 * waits instead. */
static void a_manager_that_does_not_read_holds_nobody_up(void **state)
{
    int fd = listen_as_manager(path_of("full")), result = HF_OK, sent = 0;
    struct error_text err = {""};

    (void)state;
    alarm(20);
    for (; result == HF_OK && sent < 100000; sent++)
        result = notify_watchdog(&err);
    assert_int_equal(HF_EIO, result);
    assert_contains(err.text, "cannot tell the service manager WATCHDOG=1");
    assert_int_equal(HF_EIO, notify_status("x", &err));
    alarm(0);
    while (--sent > 0)
        assert_told(fd, "WATCHDOG=1");
    assert_nothing_more(fd);
}

static int lowest_free_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(fd);
    return fd;
}

static void descriptors_are_given_back(void **state)
{
    int fd = listen_as_manager(path_of("fds")), free_before = lowest_free_descriptor();

    (void)state;
    assert_int_equal(HF_OK, notify_ready(NULL));
    assert_int_equal(free_before, lowest_free_descriptor());
    setenv("NOTIFY_SOCKET", path_of("nobody"), 1);
    assert_int_equal(HF_EIO, notify_ready(NULL));
    assert_int_equal(free_before, lowest_free_descriptor());
    assert_told(fd, "READY=1");
    assert_nothing_more(fd);
}

static void the_watchdog_is_for_this_process(void **state)
{
    char pid[16];

    (void)state;
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    assert_int_equal(0, notify_watchdog_us());
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(30000000, notify_watchdog_us());
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(30000000, notify_watchdog_us());
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(0, notify_watchdog_us());
    setenv("WATCHDOG_PID", "x", 1);
    assert_int_equal(0, notify_watchdog_us());
    unsetenv("WATCHDOG_PID");
    for (const char *const *bad =
             (const char *const[]){"", "-1", "1s", "9223372036854775808", NULL};
         *bad; bad++) {
        setenv("WATCHDOG_USEC", *bad, 1);
        assert_int_equal(0, notify_watchdog_us());
    }
    setenv("WATCHDOG_USEC", "9223372036854775807", 1);
    assert_true(notify_watchdog_us() == INT64_MAX);
    unsetenv("WATCHDOG_USEC");
}

/* The path of a unix socket is short, and a build directory may be deep. */
static int set_up(void **state)
{
    setenv("HOLDFAST_TEST_DIR", "/tmp", 1);
    return make_directory(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manager_at_a_path_is_told),
        cmocka_unit_test(a_manager_in_the_abstract_space_is_told),
        cmocka_unit_test(where_nobody_asks_nothing_is_told),
        cmocka_unit_test(a_bad_socket_is_an_error_in_words),
        cmocka_unit_test(a_status_is_one_line),
        cmocka_unit_test(a_manager_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(descriptors_are_given_back),
        cmocka_unit_test(the_watchdog_is_for_this_process),
    };

    return cmocka_run_group_tests(tests, set_up, remove_directory);
}
