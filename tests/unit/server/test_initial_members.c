/* test_founders.c: the settings of a cluster, and the rules between them. */
#include "server/initial_members.h"
#include "tools.h"

static struct config config;
static struct error_text err;

static int read_flags(const char *const *flags)
{
    static char *none[] = {NULL};
    char *argv[12] = {(char *)(uintptr_t) "holdfastd"};
    struct config_sources sources = {
        .argc = 1, .argv = argv, .environment = none, .file = path_of("none"), .root = true};

    for (; flags[sources.argc - 1]; sources.argc++)
        argv[sources.argc] = (char *)(uintptr_t)flags[sources.argc - 1];
    return config_read(&sources, &config, &err);
}

#define READ(...) read_flags((const char *const[]){__VA_ARGS__, NULL})

static void members_are_kept_by_their_ids(void **state)
{
    char text[SETTING_TEXT_MAX];

    (void)state;
    assert_int_equal(READ("--id=7", "--cluster", "12=[::1]:1, 7=localhost:2 ,1=127.0.0.1:3"), 0);
    assert_int_equal(config.cluster.count, 3);
    assert_string_equal(config.cluster.at[2].address, "[::1]:1");
    assert_string_equal(initial_members_find(&config.cluster, 7)->address, "localhost:2");
    assert_null(initial_members_find(&config.cluster, 2));
    initial_members_kind.show(NULL, &config.cluster, text);
    assert_string_equal(text, "1=127.0.0.1:3,7=localhost:2,12=[::1]:1");
}

static void what_is_no_list_of_members_is_refused_in_words(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"1", "--cluster: '1' is not ID=HOST:PORT"},
        {"0=127.0.0.1:1", "--cluster: '0' is not the number of a node, from 1 to 4294967296"},
        {"x=127.0.0.1:1", "--cluster: 'x' is not the number of a node, from 1 to 4294967296"},
        {"1=127.0.0.1", "--cluster: '127.0.0.1' is not HOST:PORT"},
        {"1=[::1]", "--cluster: '[::1]' is not HOST:PORT"},
        {"1=127.0.0.1:0", "--cluster: '127.0.0.1:0' is not HOST:PORT"},
        {"1=unix:/x:1", "--cluster: 'unix:/x:1' is not HOST:PORT"},
        {"1=a:1,,2=b:1", "--cluster: there is nothing before or after a comma"},
        {"1=a:1,1=b:1", "--cluster: node 1 is there twice"},
        {"1=a:1,2=a:1", "--cluster: a:1 is there twice"},
        {"1=a:1,2=a:2,3=a:3,4=a:4,5=a:5,6=a:6,7=a:7,8=a:8,9=a:9,10=a:10",
         "--cluster: a cluster is founded with at most 9 members"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(READ("--cluster", cases[i].text), CONFIG_USAGE);
        assert_string_equal(err.text, cases[i].message);
    }
}

static void the_settings_of_a_cluster_fit_together(void **state)
{
    (void)state;
    assert_int_equal(READ("--cluster=2=127.0.0.1:1"), CONFIG_WRONG);
    assert_string_equal(err.text, "cluster does not name this node, whose id is 1: set id to "
                                  "this node's own, or write 1=HOST:PORT into cluster");
    assert_int_equal(READ("--join"), CONFIG_WRONG);
    assert_contains(err.text, "cluster = 1=HOST:PORT");
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", "--join"), 0);
    assert_int_equal(config.join, CONFIG_JOINS);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", "--join=no"), 0);
    assert_int_equal(config.join, CONFIG_FOUNDS);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", "--listen=unix:/run/x"), CONFIG_WRONG);
    assert_contains(err.text, "clients cannot be told to come to unix:/run/x: set advertise");
    assert_int_equal(READ("--cluster=1=127.0.0.1:7", "--listen=127.0.0.1:7"), CONFIG_WRONG);
    assert_contains(err.text, "127.0.0.1:7 is for clients (listen) and for nodes (cluster)");
    assert_int_equal(READ("--cluster=1=127.0.0.1:7", "--listen=0.0.0.0:7", "--advertise=a:7"),
                     CONFIG_WRONG);
    assert_int_equal(READ("--cluster=1=127.0.0.1:7,2=127.0.0.1:8", "--listen=127.0.0.1:8"), 0);
}

static void other_machines_need_a_secret(void **state)
{
    static const char line[] = "between the three of us\n";
    const char *secret = write_file("secret", line, sizeof line - 1, 0600);
    char flag[PATH_BYTES];

    (void)state;
    snprintf(flag, sizeof flag, "--secret-file=%s", secret);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1,2=[::1]:2,3=localhost:3"), 0);
    assert_false(config.cluster_secret.set);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1,2=10.0.0.2:2"), CONFIG_WRONG);
    assert_contains(err.text, "set secret-file");
    assert_int_equal(READ("--cluster=1=127.0.0.1:1,2=10.0.0.2:2", flag), 0);
    assert_true(config.cluster_secret.set);
    write_file("secret", line, sizeof line - 1, 0644);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1,2=10.0.0.2:2", flag), CONFIG_WRONG);
    assert_contains(err.text, "secret-file ");
    assert_contains(err.text, "others can use it");
}

/* Whoever sees a handshake can try words until one fits. */
static void a_secret_that_can_be_guessed_is_refused(void **state)
{
    const char *secret = write_file("short", "fifteen letters\n", 16, 0600);
    char flag[PATH_BYTES];

    (void)state;
    snprintf(flag, sizeof flag, "--secret-file=%s", secret);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", flag), CONFIG_WRONG);
    assert_contains(err.text, "16 characters");
    assert_contains(err.text, "openssl rand -hex 32");
    assert_null(strstr(err.text, "letters"));
    write_file("short", "sixteen letters!\n", 17, 0600);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", flag), 0);
}

static void clients_must_be_able_to_find_it(void **state)
{
    const char *password = write_file("password", "x\n", 2, 0600);
    char flag[PATH_BYTES];

    (void)state;
    snprintf(flag, sizeof flag, "--password-file=%s", password);
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", "--listen=0.0.0.0", flag), CONFIG_WRONG);
    assert_contains(err.text, "set advertise");
    assert_int_equal(READ("--cluster=1=127.0.0.1:1", "--listen=[::]:7420", flag), CONFIG_WRONG);
    assert_int_equal(
        READ("--cluster=1=127.0.0.1:1", "--listen=0.0.0.0", flag, "--advertise=db1:7420"), 0);
    assert_string_equal(config.advertise, "db1:7420");
    assert_int_equal(READ("--listen=0.0.0.0", flag), 0); /* alone, nobody sends anybody anywhere */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_kept_by_their_ids),
        cmocka_unit_test(what_is_no_list_of_members_is_refused_in_words),
        cmocka_unit_test(the_settings_of_a_cluster_fit_together),
        cmocka_unit_test(other_machines_need_a_secret),
        cmocka_unit_test(a_secret_that_can_be_guessed_is_refused),
        cmocka_unit_test(clients_must_be_able_to_find_it),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
