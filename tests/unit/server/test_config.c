/* test_config.c: where settings come from, who outweighs whom, and what is told to whoever errs. */
#include "base/conf.h"
#include "server/log.h"
#include "server/settings.h"
#include "tools.h"

#define WORDS_MAX 12

/* What config_read is given. */
struct given {
    const char *text; /* of the default file; NULL: there is none */
    const char *environment[WORDS_MAX], *flags[WORDS_MAX];
    bool user; /* not root */
};

/* What came of it. */
static struct config config;
static struct error_text err;

/* The strings are only read, but a program's are not const. */
static char **words_of(const char *const *from, char **to)
{
    size_t i = 0;

    for (; from[i]; i++)
        to[i] = (char *)(uintptr_t)from[i];
    to[i] = NULL;
    return to;
}

static int read_as(const struct given *given)
{
    char *environment[WORDS_MAX + 1], *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "holdfastd"};
    const char *file = path_of("holdfastd.conf");
    struct config_sources sources = {.argv = argv,
                                     .environment = words_of(given->environment, environment),
                                     .file = file,
                                     .root = !given->user};

    words_of(given->flags, argv + 1);
    for (sources.argc = 0; argv[sources.argc];)
        sources.argc++;
    unlink(file);
    if (given->text)
        write_file("holdfastd.conf", given->text, strlen(given->text), 0600);
    memset(&config, 0x55, sizeof config);
    err.text[0] = '\0';
    return config_read(&sources, &config, &err);
}

static void read_well(const struct given *given)
{
    if (read_as(given) != CONFIG_DONE)
        fail_msg("%s", err.text);
}

/* Refused with this status and just these words; nothing was put out. */
static void assert_refused(const struct given *given, int status, const char *message)
{
    static struct config untouched;

    memset(&untouched, 0x55, sizeof untouched);
    assert_int_equal(status, read_as(given));
    assert_string_equal(message, err.text);
    assert_memory_equal(&untouched, &config, sizeof config);
}

static void answer(char **ret_text)
{
    size_t size;
    FILE *out = open_memstream(ret_text, &size);

    assert_true(config_answer(&config, out));
    fclose(out);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void defaults_are_these(void **state)
{
    (void)state;
    read_well(&(struct given){0});
    assert_int_equal(CONFIG_RUN, config.ask);
    assert_int_equal(1, config.listen.count);
    assert_string_equal("127.0.0.1:7420", config.listen.at[0].shown);
    assert_int_equal(0600, config.unix_socket_mode);
    assert_string_equal("", config.password_file);
    assert_false(config.password.set);
    assert_string_equal("/var/lib/holdfastd", config.data);
    assert_int_equal(1, config.id);
    assert_int_equal(256 << 20, config.snapshot_bytes);
    assert_int_equal(LOG_LEVEL_INFO, config.log_level);
    assert_int_equal(LOG_FORMAT_TEXT, config.log_format);
    assert_int_equal(20000, config.max_clients);
    assert_int_equal(1 << 20, config.max_query_bytes);
    assert_int_equal(8 << 20, config.max_output_bytes);
    assert_int_equal(4096, config.max_pipeline);
    assert_int_equal(0, config.idle_timeout_ms);
    assert_int_equal(15000, config.keepalive_ms);
    assert_false(config_answer(&config, stdout));
}

static void flags_outweigh_variables_and_these_the_file(void **state)
{
    struct given given = {.text = "id = 2\nkeepalive = 2s\nmax-clients = 2"};

    (void)state;
    read_well(&given);
    assert_int_equal(2, config.id);
    assert_int_equal(2000, config.keepalive_ms);
    given.environment[0] = "HOLDFASTD_ID=3";
    given.environment[1] = "HOLDFASTD_KEEPALIVE=3s";
    read_well(&given);
    assert_int_equal(3, config.id);
    given.flags[0] = "--id=4";
    read_well(&given);
    assert_int_equal(4, config.id);
    assert_int_equal(3000, config.keepalive_ms);
    assert_int_equal(2, config.max_clients);
    assert_int_equal(4096, config.max_pipeline);
}

/* A value that is not the default, as it is shown. */
static const char *some_value(const struct setting *row)
{
    static const struct {
        const char *kind, *value;
    } values[] = {{"ADDRESS,...", "[::1]:99"},
                  {"ID=ADDRESS,...", "1=127.0.0.1:99,2=127.0.0.1:98"},
                  {"HOST:PORT", "10.1.2.3:99"},
                  {"MODE", "0640"},
                  {"N", "77"},
                  {"SIZE", "2MiB"},
                  {"DURATION", "7s"}};

    if (strcmp(row->name, "admin") == 0)
        return "127.0.0.1:99";
    for (size_t i = 0; i < COUNT(values); i++)
        if (strcmp(setting_value_name(row), values[i].kind) == 0)
            return values[i].value;
    if (strcmp(row->name, "users-file") == 0)
        return path_of("users");
    return row->choices ? row->choices[1 - (row->choices[2] != NULL)] : path_of("password");
}

/* Each row of the table, from each source. */
static void every_setting_comes_from_every_source(void **state)
{
    static const char *const sources[] = {"file", "environment", "flag"};

    (void)state;
    write_file("password", "0123456789abcdef\n", 17, 0600);
    write_file("users", "user = alice\n", 13, 0600);
    for (size_t i = 0; i < setting_count * COUNT(sources); i++) {
        const struct setting *row = &settings[i / COUNT(sources)];
        const char *value = some_value(row), *source = sources[i % COUNT(sources)];
        char variable[SETTING_VARIABLE_MAX], entry[2 * PATH_BYTES], line[2 * PATH_BYTES], *text;
        struct given given = {.flags = {"--check-config"}};

        if (strncmp(row->group, "TLS", 3) == 0) /* they need each other: see the next test */
            continue;
        setting_variable(row, variable);
        given.environment[0] = row->lone ? "HOLDFASTD_CLUSTER=1=127.0.0.1:99" : "A=b";
        if (strcmp(source, "file") == 0) {
            snprintf(entry, sizeof entry, "%s = %s", row->name, value);
            given.text = entry;
        } else if (strcmp(source, "environment") == 0) {
            snprintf(entry, sizeof entry, "%s=%s", variable, value);
            given.environment[1] = entry;
        } else {
            snprintf(entry, sizeof entry, "--%s", row->name);
            given.flags[1] = entry;
            given.flags[2] = row->lone ? NULL : value;
        }
        read_well(&given);
        snprintf(line, sizeof line, "%s = %s  # %s\n", row->name, value, source);
        answer(&text);
        assert_contains(text, line);
        free(text);
        config_wipe(&config);
    }
}

/* Whatever of it is missing is told before a file is looked at. */
static void settings_of_tls_need_each_other(void **state)
{
    static const struct {
        struct given given;
        const char *message;
    } rows[] = {
        {{.text = "tls-cert = /x"},
         "tls-cert and tls-key come together: a certificate, and the key that belongs to it"},
        {{.environment = {"HOLDFASTD_TLS_KEY=/x"}},
         "tls-cert and tls-key come together: a certificate, and the key that belongs to it"},
        {{.flags = {"--listen", "127.0.0.1:7420,tls:127.0.0.1:7421"}},
         "listening on tls:127.0.0.1:7421 needs a certificate: set tls-cert and tls-key"},
        {{.text = "tls-cert = /x\ntls-key = /y"},
         "tls-cert is set, and nothing is listened at with it: write tls: before an address of "
         "listen, as in tls:127.0.0.1:7420"},
        {{.flags = {"--tls-clients=yes"}},
         "tls-clients asks clients for a certificate: set tls-ca to the authorities that it may "
         "be of"},
        {{.text = "tls-ca = /x"},
         "tls-ca is for clients' certificates, which nobody asks for: set tls-clients to yes, or "
         "to optional"},
        {{.environment = {"HOLDFASTD_TLS_CRL=/x"}},
         "tls-crl needs tls-ca: it says which of the certificates of those authorities were "
         "revoked"},
        {{.text = "peer-tls-cert = /x"},
         "peer-tls-cert, -key, -ca and -crl are for TLS between nodes, which is off: set peer-tls "
         "to yes, or to optional while it is turned on"},
        {{.text = "peer-tls = yes"},
         "peer-tls is for the members of a cluster, and this node is alone: set cluster"},
        {{.text = "peer-tls = optional\ncluster = 1=127.0.0.1:99"},
         "peer-tls needs a certificate: set peer-tls-cert and peer-tls-key, or tls-cert and "
         "tls-key"},
        {{.text = "peer-tls = yes\ncluster = 1=127.0.0.1:99\npeer-tls-key = /x"},
         "peer-tls-cert and peer-tls-key come together: a certificate, and the key that belongs to "
         "it"},
        {{.text = "peer-tls = yes\ncluster = 1=127.0.0.1:99\ntls-cert = /x\ntls-key = /y"},
         "peer-tls needs the authorities of the nodes' certificates: set peer-tls-ca, or tls-ca"},
        {{.text = "listen = 127.0.0.1:1, tls:127.0.0.1:1"}, NULL},
    };

    (void)state;
    for (size_t i = 0; i + 1 < COUNT(rows); i++)
        assert_refused(&rows[i].given, CONFIG_WRONG, rows[i].message);
    assert_int_equal(CONFIG_WRONG, read_as(&rows[COUNT(rows) - 1].given));
    assert_contains(err.text, "tls:127.0.0.1:1 is there twice");
}

/* The module is not there: this test's environment names another place. */
static void without_the_module_tls_is_refused(void **state)
{
    const struct given given = {
        .flags = {"--listen", "tls:127.0.0.1:7421", "--tls-cert=/x", "--tls-key=/y"}};
    const struct given of_peers = {
        .text = "cluster = 1=127.0.0.1:99\npeer-tls = yes\npeer-tls-cert = /x\n"
                "peer-tls-key = /y\npeer-tls-ca = /z"};

    (void)state;
    setenv("HOLDFAST_MODULE_DIR", "/nowhere", 1);
    assert_int_equal(CONFIG_WRONG, read_as(&given));
    assert_contains(err.text, "tls-cert: TLS needs a module that cannot be loaded: "
                              "/nowhere/holdfast-tls.so: ");
    assert_contains(err.text, "install holdfast-tls: the package of that name brings it");
    assert_int_equal(CONFIG_WRONG, read_as(&of_peers));
    assert_contains(err.text, "peer-tls: TLS needs a module that cannot be loaded: "
                              "/nowhere/holdfast-tls.so: ");
}

/* ---- flags ----------------------------------------------------------------------------------- */

static void a_wrong_command_line_says_what_to_do(void **state)
{
    static const struct {
        const char *flags[4], *message;
    } cases[] = {
        {{"--lisen=x"}, "unknown flag '--lisen': did you mean '--listen'?"},
        {{"--chek-config"}, "unknown flag '--chek-config': did you mean '--check-config'?"},
        {{"--port=7777"}, "unknown flag '--port': did you mean '--listen 127.0.0.1:7777'?"},
        {{"--port", "7777"}, "unknown flag '--port': did you mean '--listen 127.0.0.1:7777'?"},
        {{"--port"}, "unknown flag '--port': did you mean '--listen 127.0.0.1:PORT'?"},
        {{"--frobnicate"}, "unknown flag '--frobnicate' (see 'holdfastd --help')"},
        {{"--password=hunter2"}, "unknown flag '--password': did you mean '--password-file'?"},
        {{"--"}, "unknown flag '--' (see 'holdfastd --help')"},
        {{"--id"}, "--id needs a value: --id N"},
        {{"--data", "--id", "3"}, "--data needs a value: --data PATH"},
        {{"--data="}, "--data has an empty value: give one, or leave it out"},
        {{"--data", ""}, "--data has an empty value: give one, or leave it out"},
        {{"--id=1", "--id=1"}, "--id is there twice: give it once, as --id N"},
        {{"--config"}, "--config needs a value: --config FILE"},
        {{"--config=a", "--config=b"}, "--config is there twice: give it once, as --config FILE"},
        {{"--help=x"}, "--help takes no value (see 'holdfastd --help')"},
        {{"--id=1", "start"},
         "'start' is one argument too many: settings are given as --name value (see 'holdfastd "
         "--help')"},
        {{"-p", "80"},
         "'-p' is one argument too many: settings are given as --name value (see 'holdfastd "
         "--help')"},
        {{"--id=0"}, "--id: '0' is not a number from 1 to 4294967296"},
        {{"--id", "\x1b[31m"}, "--id: '?[31m' is not a number from 1 to 4294967296"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct given given = {0};

        memcpy(given.flags, cases[i].flags, sizeof cases[i].flags);
        assert_refused(&given, CONFIG_USAGE, cases[i].message);
    }
}

static void help_and_version_read_nothing_else(void **state)
{
    struct given given = {.text = "broken", .flags = {"--help", "--broken"}};
    char *text;

    (void)state;
    read_well(&given);
    assert_int_equal(CONFIG_HELP, config.ask);
    given.flags[0] = "-h";
    read_well(&given);
    assert_int_equal(CONFIG_HELP, config.ask);
    given.flags[0] = "--version";
    read_well(&given);
    answer(&text);
    assert_string_equal("holdfastd " HOLDFAST_VERSION "\n", text);
    free(text);
}

static void help_shows_every_setting(void **state)
{
    const char *group = "";
    char *text;

    (void)state;
    read_well(&(struct given){.flags = {"--help"}});
    answer(&text);
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &settings[i];
        char part[256];
        const char *heading;

        if (row->lone) /* it needs no value, and the next word would not be taken for one */
            snprintf(part, sizeof part, "  --%s   ", row->name);
        else
            snprintf(part, sizeof part, "  --%s %s ", row->name, setting_value_name(row));
        assert_contains(text, part);
        snprintf(part, sizeof part, row->standard[0] ? "  %s [%s]\n" : "  %s%s\n", row->help,
                 row->standard);
        assert_contains(text, part);
        snprintf(part, sizeof part, "\n\n%s:\n  --%s ", row->group, row->name);
        if (strcmp(group, row->group) != 0)
            assert_contains(text, part);
        snprintf(part, sizeof part, "\n%s:\n", row->group);
        heading = strstr(text, part);
        assert_non_null(heading);
        assert_null(strstr(heading + 1, part)); /* each heading once */
        group = row->group;
    }
    assert_contains(text, "--check-config ");
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
        assert_in_range(strcspn(line, "\n"), 0, 100);
    free(text);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void a_file_may_look_like_this(void **state)
{
    (void)state;
    read_well(&(struct given){.text = "# a comment\n"
                                      "\n"
                                      "   \t \r\n"
                                      "id=7\r\n"
                                      "\t log-level\t=  debug \t# loud\n"
                                      "  # = nothing\n"
                                      "data = /srv/a b#c=d #e\n"
                                      "listen = [::1]:1 ,localhost:2"});
    assert_int_equal(7, config.id);
    assert_int_equal(LOG_LEVEL_DEBUG, config.log_level);
    assert_string_equal("/srv/a b#c=d", config.data);
    assert_int_equal(2, config.listen.count);
    read_well(&(struct given){.text = ""});
    assert_int_equal(1, config.id);
}

static void a_wrong_file_is_told_by_its_line(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"idd = 3", "1: unknown setting 'idd': did you mean 'id'?"},
        {"\n\nmax_clients = 3\n", "3: unknown setting 'max_clients': did you mean 'max-clients'?"},
        {"config = /etc/x", "1: unknown setting 'config' (see 'holdfastd --help')"},
        {"= 3", "1: unknown setting '' (see 'holdfastd --help')"},
        {"id = 1\n# x\nid = 2", "3: id was set on line 1 already"},
        {"id = 1\nid = x", "2: id was set on line 1 already"},
        {"id =", "1: id has no value: give one, or remove the line"},
        {"id = # 3", "1: id has no value: give one, or remove the line"},
        {"\nid = 3 4", "2: id: '3 4' is not a number from 1 to 4294967296"},
        {"data = \"/srv\"", "1: data: write the value without quotes"},
        {"data = '/srv'", "1: data: write the value without quotes"},
        {"#\nhunter2\n", "2: not of the form 'name = value'"},
        {"password = hunter2", "1: unknown setting 'password': did you mean 'password-file'?"},
        {"listen = x,\n", "1: listen: there is nothing before or after a comma"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char message[ERROR_TEXT_MAX];

        snprintf(message, sizeof message, "%s:%s", path_of("holdfastd.conf"), cases[i].message);
        assert_refused(&(struct given){.text = cases[i].text}, CONFIG_WRONG, message);
    }
}

/* Overruled later or not: a wrong line is wrong. */
static void a_wrong_line_is_not_excused_by_a_flag(void **state)
{
    (void)state;
    assert_int_equal(CONFIG_WRONG, read_as(&(struct given){.text = "id = 0", .flags = {"--id=1"}}));
    assert_int_equal(CONFIG_WRONG,
                     read_as(&(struct given){.text = "id = 0", .environment = {"HOLDFASTD_ID=1"}}));
}

static void a_named_file_replaces_the_usual_one(void **state)
{
    const char *named = write_file("named.conf", "id = 9\n", 7, 0600);
    struct given given = {.text = "id = 2\nmax-clients = 2\n", .flags = {"--config", named}};
    char message[ERROR_TEXT_MAX];

    (void)state;
    read_well(&given);
    assert_int_equal(9, config.id);
    assert_int_equal(20000, config.max_clients);
    given.flags[1] = "/dev/null";
    read_well(&given);
    assert_int_equal(1, config.id);
    given.flags[1] = path_of("none.conf");
    snprintf(message, sizeof message, "cannot read %s: No such file or directory", given.flags[1]);
    assert_refused(&given, CONFIG_WRONG, message);
    given.flags[1] = "/";
    assert_refused(&given, CONFIG_WRONG, "cannot read /: Is a directory");
}

static void a_file_has_a_size_and_no_nul(void **state)
{
    static char bytes[CONF_FILE_MAX + 1];
    struct given given = {.flags = {"--config", path_of("big.conf")}};
    char message[ERROR_TEXT_MAX];

    (void)state;
    memset(bytes, '#', sizeof bytes);
    memcpy(bytes + CONF_FILE_MAX - 7, "\nid = 5", 7);
    write_file("big.conf", bytes, CONF_FILE_MAX, 0600);
    read_well(&given);
    assert_int_equal(5, config.id);
    write_file("big.conf", bytes, CONF_FILE_MAX + 1, 0600);
    snprintf(message, sizeof message, "%s has more than 65536 bytes", given.flags[1]);
    assert_refused(&given, CONFIG_WRONG, message);
    write_file("big.conf", "id = 5\nid\0 = 5\n", 15, 0600);
    snprintf(message, sizeof message, "%s:2: has a NUL byte", given.flags[1]);
    assert_refused(&given, CONFIG_WRONG, message);
    write_file("big.conf", "id = 5\0", 7, 0600);
    snprintf(message, sizeof message, "%s:1: has a NUL byte", given.flags[1]);
    assert_refused(&given, CONFIG_WRONG, message);
}

/* ---- the environment ------------------------------------------------------------------------- */

static void variables_are_minded(void **state)
{
    (void)state;
    read_well(&(struct given){.environment = {"HOLDFASTD_ID=", "PATH=/bin"}});
    assert_int_equal(1, config.id);
    assert_refused(&(struct given){.environment = {"HOLDFASTD_ID=x"}}, CONFIG_WRONG,
                   "HOLDFASTD_ID: 'x' is not a number from 1 to 4294967296");
    assert_refused(
        &(struct given){.environment = {"HOLDFASTD_PASWORD_FILE=/x"}}, CONFIG_WRONG,
        "unknown variable HOLDFASTD_PASWORD_FILE: did you mean HOLDFASTD_PASSWORD_FILE?");
    assert_refused(&(struct given){.environment = {"HOLDFASTD_PASSWORD=hunter2"}}, CONFIG_WRONG,
                   "unknown variable HOLDFASTD_PASSWORD: did you mean HOLDFASTD_PASSWORD_FILE?");
    assert_refused(&(struct given){.environment = {"HOLDFASTD_CONFIG=/etc/x"}}, CONFIG_WRONG,
                   "HOLDFASTD_CONFIG: this is no setting: say it on the command line, as --config");
    assert_refused(&(struct given){.environment = {"HOLDFASTD_JOIN=1"}}, CONFIG_WRONG,
                   "HOLDFASTD_JOIN: '1' is none of no, yes");
    /* One edit from 'no', which is its opposite. */
    assert_refused(&(struct given){.environment = {"HOLDFASTD_PEER_TLS=on"}}, CONFIG_WRONG,
                   "HOLDFASTD_PEER_TLS: 'on' is none of no, optional, yes");
    /* What Kubernetes gives to every container beside a service of our name. */
    read_well(&(struct given){
        .environment = {"HOLDFASTD_PORT=tcp://10.0.0.1:7420", "HOLDFASTD_SERVICE_HOST=10.0.0.1",
                        "HOLDFASTD_SERVICE_PORT=7420", "HOLDFASTD_PORT_7420_TCP_ADDR=10.0.0.1"}});
}

static void the_data_directory_depends_on_who_runs_it(void **state)
{
    static char deep[1100];
    struct given given = {.user = true, .environment = {"HOME=/users/a", "XDG_STATE_HOME=/state"}};

    (void)state;
    read_well(&given);
    assert_string_equal("/state/holdfastd", config.data);
    given.environment[1] = "XDG_STATE_HOME=relative";
    read_well(&given);
    assert_string_equal("/users/a/.local/state/holdfastd", config.data);
    given.user = false;
    read_well(&given);
    assert_string_equal("/var/lib/holdfastd", config.data);
    given.environment[1] = "STATE_DIRECTORY=/var/lib/private/x:/var/lib/y";
    read_well(&given);
    assert_string_equal("/var/lib/private/x", config.data);
    given.text = "data = here";
    read_well(&given);
    assert_string_equal("here", config.data);

    given = (struct given){.user = true, .environment = {"HOME="}};
    assert_refused(&given, CONFIG_WRONG,
                   "no directory for the data: HOME is not set; name one with --data");
    snprintf(deep, sizeof deep, "HOME=/%01030d", 0);
    given.environment[0] = deep;
    assert_refused(&given, CONFIG_WRONG,
                   "the path of the default data directory is too long; name another with --data");
    given.flags[0] = "--data=/x";
    read_well(&given);
    assert_string_equal("/x", config.data);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void strangers_need_a_password(void **state)
{
    static const char *const open[] = {"0.0.0.0:7420", "[::]:7420", "10.0.0.1:1",
                                       "lock.example.com:7420"};
    static const char *const closed[] = {"127.0.0.1", "127.9.9.9:1", "[::1]", "localhost",
                                         "unix:/run/x"};
    const char *password = write_file("password", "sesame\n", 7, 0600);
    char flag[PATH_BYTES], listen[128], message[ERROR_TEXT_MAX];
    struct given given = {.flags = {listen}};

    (void)state;
    snprintf(flag, sizeof flag, "--password-file=%s", password);
    for (size_t i = 0; i < COUNT(closed); i++) {
        snprintf(listen, sizeof listen, "--listen=%s", closed[i]);
        read_well(&given);
    }
    for (size_t i = 0; i < COUNT(open); i++) {
        snprintf(listen, sizeof listen, "--listen=127.0.0.1:7420,%s,[::1]:7420", open[i]);
        snprintf(message, sizeof message,
                 "listening on %s lets other machines take locks without a password: set "
                 "password-file or users-file, or listen on 127.0.0.1 or a unix socket only",
                 open[i]);
        given.flags[1] = NULL;
        assert_refused(&given, CONFIG_WRONG, message);
        given.flags[1] = flag;
        read_well(&given);
        assert_string_equal(password, config.password_file);
        assert_true(secret_matches(&config.password, "sesame", 6));
        config_wipe(&config);
        assert_false(secret_matches(&config.password, "sesame", 6));
    }
}

static void a_bad_password_file_is_refused(void **state)
{
    char flag[PATH_BYTES];
    struct given given = {.flags = {"--check-config", flag}};

    (void)state;
    snprintf(flag, sizeof flag, "--password-file=%s", write_file("open", "hunter2\n", 8, 0644));
    assert_int_equal(CONFIG_WRONG, read_as(&given));
    assert_contains(err.text, "others can use it (mode 0644)");
    assert_null(strstr(err.text, "hunter2"));
    snprintf(flag, sizeof flag, "--password-file=%s", path_of("none"));
    assert_int_equal(CONFIG_WRONG, read_as(&given));
    assert_contains(err.text, "No such file");
}

/* ---- what is in effect ----------------------------------------------------------------------- */

/* Takes away where each setting is from. */
static char *without_sources(char *text)
{
    char *to = text;

    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n"), kept = length;
        const char *comment = strstr(line, "  # ");

        if (comment && comment < line + length)
            kept = (size_t)(comment - line);
        memmove(to, line, kept);
        to += kept;
        *to++ = '\n';
        line += length + 1;
    }
    *to = '\0';
    return text;
}

static void what_is_in_effect_can_be_read_again(void **state)
{
    const char *password = write_file("password", "hunter2\n", 8, 0600);
    char flag[PATH_BYTES], *text, *again;
    struct given given = {.flags = {"--check-config", "--listen=0.0.0.0,[::1]:5,unix:/run/x y",
                                    "--idle-timeout=1.5s", "--max-query-bytes=65537",
                                    "--log-level=error", flag}};

    (void)state;
    snprintf(flag, sizeof flag, "--password-file=%s", password);
    read_well(&given);
    answer(&text);
    assert_contains(text, "listen = 0.0.0.0:7420, [::1]:5, unix:/run/x y  # flag\n");
    assert_contains(text, "id = 1  # default\n");
    assert_null(strstr(text, "hunter2"));
    read_well(&(struct given){.text = text, .flags = {"--check-config"}});
    answer(&again);
    assert_contains(again, "id = 1  # file\n");
    assert_string_equal(without_sources(text), without_sources(again));
    free(text);
    free(again);
    read_well(&(struct given){.flags = {"--check-config"}});
    answer(&text);
    assert_contains(text, "\n# password-file is not set\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_these),
        cmocka_unit_test(flags_outweigh_variables_and_these_the_file),
        cmocka_unit_test(every_setting_comes_from_every_source),
        cmocka_unit_test(settings_of_tls_need_each_other),
        cmocka_unit_test(without_the_module_tls_is_refused),
        cmocka_unit_test(a_wrong_command_line_says_what_to_do),
        cmocka_unit_test(help_and_version_read_nothing_else),
        cmocka_unit_test(help_shows_every_setting),
        cmocka_unit_test(a_file_may_look_like_this),
        cmocka_unit_test(a_wrong_file_is_told_by_its_line),
        cmocka_unit_test(a_wrong_line_is_not_excused_by_a_flag),
        cmocka_unit_test(a_named_file_replaces_the_usual_one),
        cmocka_unit_test(a_file_has_a_size_and_no_nul),
        cmocka_unit_test(variables_are_minded),
        cmocka_unit_test(the_data_directory_depends_on_who_runs_it),
        cmocka_unit_test(strangers_need_a_password),
        cmocka_unit_test(a_bad_password_file_is_refused),
        cmocka_unit_test(what_is_in_effect_can_be_read_again),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
