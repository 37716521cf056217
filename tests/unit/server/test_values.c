/* test_values.c: what each kind of setting takes, refuses and shows; addresses above all. */
#include "../base/hostports.h"
#include "base/suggest.h"
#include "server/settings.h"
#include "tools.h"

static const struct setting *setting(const char *name)
{
    for (size_t i = 0; i < setting_count; i++)
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    fail_msg("no setting %s", name);
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void values_are_read_and_shown(void **state)
{
    static const struct {
        const char *name, *text, *shown;
    } good[] = {
        {"max-clients", "1", "1"},
        {"max-clients", "0001000000", "1000000"},
        {"id", "4294967296", "4294967296"},
        {"max-query-bytes", "65536", "64KiB"},
        {"max-query-bytes", "65537", "65537"},
        {"max-query-bytes", "64KiB", "64KiB"},
        {"max-query-bytes", "64k", "64KiB"},
        {"max-query-bytes", "1M", "1MiB"},
        {"max-query-bytes", "1mib", "1MiB"},
        {"max-query-bytes", "1025KiB", "1025KiB"},
        {"max-query-bytes", "1G", "1GiB"},
        {"snapshot-bytes", "68719476736", "64GiB"},
        {"idle-timeout", "0", "0"},
        {"idle-timeout", "0ms", "0"},
        {"idle-timeout", "1500ms", "1500ms"},
        {"idle-timeout", "1.5s", "1500ms"},
        {"idle-timeout", "90", "90s"},
        {"idle-timeout", "120s", "2m"},
        {"idle-timeout", "48h", "2d"},
        {"unix-socket-mode", "660", "0660"},
        {"unix-socket-mode", "0777", "0777"},
        {"log-level", "debug", "debug"},
        {"log-format", "json", "json"},
        {"data", "/srv/a b#c", "/srv/a b#c"},
        {"listen", " [::1] ,unix:/run/x.sock,\tlocalhost:80 ",
         "[::1]:7420, unix:/run/x.sock, localhost:80"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        static struct config config;
        struct error_text err = {""};
        char shown[SETTING_TEXT_MAX];

        if (setting_set(setting(good[i].name), good[i].text, &config, &err) != HF_OK)
            fail_msg("%s = %s: %s", good[i].name, good[i].text, err.text);
        setting_get(setting(good[i].name), &config, shown);
        assert_string_equal(good[i].shown, shown);
    }
}

static void what_cannot_be_is_refused_and_changes_nothing(void **state)
{
    static const struct {
        const char *name, *text, *message;
    } bad[] = {
        {"max-clients", "0", "'0' is not a number from 1 to 1000000"},
        {"max-clients", "1000001", "'1000001' is not a number"},
        {"max-clients", "-1", "'-1' is not a number"},
        {"max-clients", "1k", "'1k' is not a number"},
        {"max-clients", "", "'' is not a number"},
        {"id", "4294967297", "from 1 to 4294967296"},
        {"max-query-bytes", "16383",
         "'16383' is not a size from 16KiB to 1GiB, in bytes, KiB, MiB or GiB"},
        {"max-query-bytes", "2G", "'2G' is not a size"},
        {"max-query-bytes", "1.5M", "'1.5M' is not a size"},
        {"max-query-bytes", "1MB", "'1MB' is not a size"},
        {"max-query-bytes", "M", "'M' is not a size"},
        {"max-query-bytes", "1 M", "'1 M' is not a size"},
        {"max-query-bytes", "17179869184G", "is not a size"}, /* 2^64 bytes */
        {"max-query-bytes", "1000000000000000000000000", "is not a size"},
        {"keepalive", "999ms", "'999ms' is not a duration from 1s to 1h"},
        {"keepalive", "61m", "'61m' is not a duration"},
        {"keepalive", "15sec", "'15sec' is not a duration"},
        {"idle-timeout", "-1s", "is not a duration from 0 to 366d"},
        {"unix-socket-mode", "400", "'400' is not a mode from 0600 to 0777"},
        {"unix-socket-mode", "0460", "is not a mode"},
        {"unix-socket-mode", "02770", "is not a mode"},
        {"unix-socket-mode", "1777", "is not a mode"},
        {"unix-socket-mode", "0680", "is not a mode"},
        {"unix-socket-mode", "66", "is not a mode"},
        {"unix-socket-mode", "40000000660", "is not a mode"}, /* 0660 in 32 bits */
        {"log-level", "inof",
         "'inof' is none of error, warning, info, debug: did you mean 'info'?"},
        {"log-format", "xml", "'xml' is none of text, json"},
        {"tls-clients", "optinal", "optional, yes: did you mean 'optional'?"},
        {"data", "/srv/\nx", "the path has a control character"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        static struct config config, before;
        struct error_text err = {""};

        memset(&config, 0x55, sizeof config);
        memset(&before, 0x55, sizeof before);
        if (setting_set(setting(bad[i].name), bad[i].text, &config, &err) != HF_EINVAL)
            fail_msg("%s = %s was taken", bad[i].name, bad[i].text);
        assert_contains(err.text, bad[i].message);
        assert_memory_equal(&before, &config, sizeof config);
    }
}

/* What every row of the table owes, whoever adds one. */
static void every_row_keeps_its_limits(void **state)
{
    static struct config config;
    char path[CONFIG_PATH_MAX + 2];

    (void)state;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &settings[i];
        char text[64], shown[SETTING_TEXT_MAX];
        const char *kind = setting_value_name(row);

        assert_true(row->name[0] && row->help[0] && row->group[0]);
        if (row->standard[0]) {
            assert_int_equal(HF_OK, setting_set(row, row->standard, &config, NULL));
            setting_get(row, &config, shown);
            assert_string_equal(row->standard, shown); /* defaults are written as they are shown */
        }
        if (strcmp(kind, "PATH") == 0) {
            assert_int_equal(HF_EINVAL, setting_set(row, path, &config, NULL));
            assert_int_equal(HF_OK, setting_set(row, path + 1, &config, NULL));
        }
        if (!row->max || strcmp(kind, "MODE") == 0)
            continue;
        for (int k = -1; k <= 1; k++) {
            const char *unit = strcmp(kind, "DURATION") == 0 ? "ms" : "";

            snprintf(text, sizeof text, "%lld%s", (long long)row->max + k, unit);
            assert_int_equal(k > 0 ? HF_EINVAL : HF_OK, setting_set(row, text, &config, NULL));
            snprintf(text, sizeof text, "%lld%s", (long long)row->min + k, unit);
            assert_int_equal(k < 0 ? HF_EINVAL : HF_OK, setting_set(row, text, &config, NULL));
        }
    }
}

static void variables_are_named_after_settings(void **state)
{
    char name[SETTING_VARIABLE_MAX];

    (void)state;
    setting_variable(setting("max-output-bytes"), name);
    assert_string_equal("HOLDFASTD_MAX_OUTPUT_BYTES", name);
    setting_variable(setting("id"), name);
    assert_string_equal("HOLDFASTD_ID", name);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void addresses_come_apart(void **state)
{
    static const struct {
        const char *text, *host, *shown;
        unsigned port;
        bool loopback;
    } good[] = {
        {"127.0.0.1:7420", "127.0.0.1", "127.0.0.1:7420", 7420, true},
        {"127.255.3.9:1", "127.255.3.9", "127.255.3.9:1", 1, true},
        {"127.0.0.1", "127.0.0.1", "127.0.0.1:7420", 7420, true},
        {"128.0.0.1:80", "128.0.0.1", "128.0.0.1:80", 80, false},
        {"0.0.0.0:65535", "0.0.0.0", "0.0.0.0:65535", 65535, false},
        {"10.127.0.1:0", "10.127.0.1", "10.127.0.1:0", 0, false},
        {"[::1]:7420", "::1", "[::1]:7420", 7420, true},
        {"[0:0::1]", "0:0::1", "[0:0::1]:7420", 7420, true},
        {"[::]:5", "::", "[::]:5", 5, false},
        {"[2001:db8::7]:0005", "2001:db8::7", "[2001:db8::7]:5", 5, false},
        {"[::ffff:10.0.0.1]:5", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:5", 5, false},
        {"localhost", "localhost", "localhost:7420", 7420, true},
        {"LocalHost:80", "LocalHost", "LocalHost:80", 80, true},
        {"localhost.example.com:80", "localhost.example.com", "localhost.example.com:80", 80,
         false},
        {"lock.example.:80", "lock.example.", "lock.example.:80", 80, false},
        {"lock_1.example-x.com:80", "lock_1.example-x.com", "lock_1.example-x.com:80", 80, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct endpoint endpoint;
        struct error_text err = {""};

        if (endpoint_parse(good[i].text, &endpoint, &err) != HF_OK)
            fail_msg("%s: %s", good[i].text, err.text);
        assert_string_equal(good[i].host, endpoint.host);
        assert_string_equal("", endpoint.path);
        assert_string_equal(good[i].shown, endpoint.shown);
        assert_int_equal(good[i].port, endpoint.port);
        assert_int_equal(good[i].loopback, endpoint.loopback);
    }
}

static void bad_addresses_say_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "the host is missing"},
        {":7420", "for every address of this machine write 0.0.0.0 or [::]"},
        {"*:7420", "for every address of this machine write 0.0.0.0 or [::]"},
        {"7420",
         "'7420': the host is missing: 127.0.0.1:7420 is for this machine, and 0.0.0.0:7420"},
        {"127.1:7420", "'127.1' is not an IPv4 address"},
        {"127.0.0.256:7420", "'127.0.0.256' is not an IPv4 address"},
        {"::1", "'::1': an IPv6 address goes in brackets, as in [::1]:7420"},
        {"::1:7420", "goes in brackets"},
        {"fe80::1", "goes in brackets"},
        {"[::1", "'[' without ']'"},
        {"[::1]7420", "after ']' comes the end"},
        {"[]:7420", "'[]' is not an IPv6 address"},
        {"[127.0.0.1]:7420", "'[127.0.0.1]' is not an IPv6 address"},
        {"[fe80::1%eth0]:7420", "is not an IPv6 address"},
        {"localhost:", "'' is not a port"},
        {"localhost:65536", "'65536' is not a port, a number up to 65535"},
        {"localhost:redis", "'redis' is not a port"},
        {"localhost:-1", "'-1' is not a port"},
        {"[::1]:x", "'x' is not a port"},
        {"a:b]c", "'b]c' is not a port"},
        {"unix", "'unix:' is followed by the socket's whole path"},
        {"-lock:7420", "'-lock' is not the name of a host"},
        {"a..b:7420", "'a..b' is not the name of a host"},
        {"a..:7420", "'a..' is not the name of a host"},
        {".:7420", "'.' is not an IPv4 address"},
        {"a b:7420", "'a b' is not the name of a host"},
        {"tcp//host:7420", "is not the name of a host"},
        {"unix:run/x.sock", "'unix:' is followed by the socket's whole path"},
        {"unix:", "'unix:' is followed by the socket's whole path"},
        {"unix:@x", "'unix:' is followed by the socket's whole path"},
        {"unix:/run/", "is not the path of a unix socket"},
        {"unix:/run/\x1bx", "control character"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct endpoint endpoint = {.port = 7};
        struct error_text err = {""};

        if (endpoint_parse(bad[i].text, &endpoint, &err) != HF_EINVAL)
            fail_msg("%s was taken", bad[i].text);
        assert_contains(err.text, bad[i].message);
        assert_int_equal(7, endpoint.port);
    }
}

/* The same as everywhere: the port may be left out, or be 0, where it is listened at; and neither where others come to. */
static void addresses_are_read_as_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < HOSTPORT_CASES; i++) {
        const struct hostport_case *each = &hostport_cases[i];
        static struct config config, before;
        struct endpoint endpoint = {.host = "untouched"};
        struct error_text err = {""};
        bool is_reached = each->host && each->port > 0;

        if ((endpoint_parse(each->text, &endpoint, &err) == HF_OK) != (each->host != NULL))
            fail_msg("'%s' was %s", each->text, each->host ? err.text : "taken");
        assert_string_equal(each->host ? each->host : "untouched", endpoint.host);
        if (each->host) {
            assert_int_equal(each->port < 0 ? ENDPOINT_PORT_DEFAULT : each->port, endpoint.port);
            assert_int_equal(each->loopback, endpoint.loopback);
        }
        if ((setting_set(setting("advertise"), each->text, &config, &err) == HF_OK) != is_reached)
            fail_msg("advertise = '%s' was %s", each->text, is_reached ? err.text : "taken");
        if (is_reached)
            assert_string_equal(endpoint.shown, config.advertise);
        config = before;
    }
}

static void places_to_listen_at_may_have_tls(void **state)
{
    static const struct {
        const char *text, *shown, *message;
    } rows[] = {
        {"tls:127.0.0.1:7421", "tls:127.0.0.1:7421", NULL},
        {"tls:host", "tls:host:7420", NULL},
        {"tls:[::1]:5", "tls:[::1]:5", NULL},
        {"tlsx:5", "tlsx:5", NULL},
        {"unix:/tls:x", "unix:/tls:x", NULL},
        {"tls", NULL, "the host is missing"},
        {"tls:", NULL, "the host is missing"},
        {"tls:7420", NULL, "'7420': the host is missing"},
        {"tls:unix:/run/x", NULL, "a unix socket is for this machine only"},
        {"tls:tls:host:5", NULL, "an IPv6 address goes in brackets"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct endpoint endpoint = {.port = 7};
        struct error_text err = {""};
        int result = endpoint_parse_listen(rows[i].text, &endpoint, &err);

        if ((result == HF_OK) != (rows[i].shown != NULL))
            fail_msg("%s: %s", rows[i].text, err.text);
        if (rows[i].message)
            assert_contains(err.text, rows[i].message);
        if (!rows[i].shown)
            continue;
        assert_string_equal(rows[i].shown, endpoint.shown);
        assert_int_equal(strncmp(rows[i].text, "tls:", 4) == 0, endpoint.tls);
        assert_string_equal(rows[i].shown + (endpoint.tls ? 4 : 0), endpoint_address(&endpoint));
    }
}

static void addresses_have_a_length(void **state)
{
    struct endpoint endpoint;
    struct error_text err;
    char text[600];

    (void)state;
    memset(text, 'x', sizeof text);
    memcpy(text, "unix:/", 6);
    text[5 + ENDPOINT_PATH_MAX] = '\0';
    assert_int_equal(HF_OK, endpoint_parse(text, &endpoint, NULL));
    assert_int_equal(ENDPOINT_PATH_MAX, strlen(endpoint.path));
    assert_string_equal(text, endpoint.shown);
    assert_true(endpoint.loopback);
    text[5 + ENDPOINT_PATH_MAX] = 'x';
    text[6 + ENDPOINT_PATH_MAX] = '\0';
    assert_int_equal(HF_EINVAL, endpoint_parse(text, &endpoint, NULL));

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 10 == 9 ? '.' : 'x';
    memcpy(text + ENDPOINT_HOST_MAX, ":65535", 7);
    assert_int_equal(HF_OK, endpoint_parse(text, &endpoint, NULL));
    assert_string_equal(text, endpoint.shown); /* not cut */
    memcpy(text + ENDPOINT_HOST_MAX, "x:65535", 8);
    assert_int_equal(HF_EINVAL, endpoint_parse(text, &endpoint, &err));
    assert_contains(err.text, "the name of a host has at most 253 bytes");
    memset(text, 'x', sizeof text);
    text[63] = '\0';
    assert_int_equal(HF_OK, endpoint_parse(text, &endpoint, NULL));
    text[63] = 'x';
    text[64] = '\0';
    assert_int_equal(HF_EINVAL, endpoint_parse(text, &endpoint, NULL));
    text[64] = 'x';
    text[sizeof text - 1] = '\0';
    assert_int_equal(HF_EINVAL, endpoint_parse(text, &endpoint, NULL));
}

static void a_list_has_a_length_and_no_gaps(void **state)
{
    static struct config config;
    char text[SETTING_TEXT_MAX] = "", shown[SETTING_TEXT_MAX], host[ENDPOINT_HOST_MAX + 1];
    struct error_text err = {""};
    size_t used = 0;

    (void)state;
    for (size_t i = 0; i < sizeof host - 1; i++)
        host[i] = i % 50 == 49 ? '.' : 'x';
    host[sizeof host - 1] = '\0';
    for (int i = 0; i < CONFIG_LISTEN_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%d", i ? ", " : "", host,
                                 60000 + i);
    assert_int_equal(HF_OK, setting_set(setting("listen"), text, &config, &err));
    assert_int_equal(CONFIG_LISTEN_MAX, config.listen.count);
    assert_int_equal(60000 + CONFIG_LISTEN_MAX - 1, config.listen.at[CONFIG_LISTEN_MAX - 1].port);
    setting_get(setting("listen"), &config, shown);
    assert_string_equal(text, shown); /* the longest list there can be is shown in full */
    snprintf(text + used, sizeof text - used, ",x");
    assert_int_equal(HF_EINVAL, setting_set(setting("listen"), text, &config, &err));
    assert_contains(err.text, "more than 16 places");
    for (const char *const *bad = (const char *const[]){"", ",", "a,", ",a", "a,,b", " ", NULL};
         *bad; bad++) {
        assert_int_equal(HF_EINVAL, setting_set(setting("listen"), *bad, &config, &err));
        assert_contains(err.text, "nothing before or after a comma");
    }
    assert_int_equal(HF_EINVAL, setting_set(setting("listen"), "a:7420, b, A", &config, &err));
    assert_contains(err.text, "A:7420 is there twice");
}

/* ---- suggestions ----------------------------------------------------------------------------- */

static void the_nearest_name_is_suggested(void **state)
{
    static const char *const names[] = {"listen", "data", "id", "log-level", "log-format"};
    static const struct {
        const char *typed, *near;
    } cases[] = {
        {"lisen", "listen"},
        {"lsitenn", "listen"},
        {"listenn", "listen"},
        {"lixtenn", "listen"},
        {"lixxxn", NULL},
        {"xy", NULL},
        {"ip", "id"},
        {"dat", "data"},
        {"log-f", "log-format"},
        {"", NULL},
        {"lo", NULL},
        {"LISTEN", NULL},
        {"a-name-that-is-longer-than-any-of-ours", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *near = suggest_nearest(cases[i].typed, names, COUNT(names));

        assert_string_equal(cases[i].near ? cases[i].near : "(none)", near ? near : "(none)");
    }
    assert_null(suggest_nearest("data", names, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_and_shown),
        cmocka_unit_test(what_cannot_be_is_refused_and_changes_nothing),
        cmocka_unit_test(every_row_keeps_its_limits),
        cmocka_unit_test(variables_are_named_after_settings),
        cmocka_unit_test(addresses_come_apart),
        cmocka_unit_test(bad_addresses_say_what_is_wrong),
        cmocka_unit_test(addresses_are_read_as_everywhere),
        cmocka_unit_test(places_to_listen_at_may_have_tls),
        cmocka_unit_test(addresses_have_a_length),
        cmocka_unit_test(a_list_has_a_length_and_no_gaps),
        cmocka_unit_test(the_nearest_name_is_suggested),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
