/* Three nodes on one loop, over real connections and real directories. */
#include "tools.h"

#include "base/clock.h"
#include "replica/network.h"
#include "replica/storage.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define NODES 3
#define PATIENCE_MS 30000

struct member {
    char path[PATH_MAX];
    char address[32];
    struct storage *storage;
    struct network *network;
    struct replica *replica;
    struct witness witness;
    bool running, closed;
};

static char home[PATH_MAX - 16];
static uv_loop_t loop;
static uv_timer_t beat;
static struct member members[NODES];
static struct replica_member configuration[NODES];

static void on_beat(uv_timer_t *timer)
{
    (void)timer;
}

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void on_done(void *context)
{
    *(bool *)context = true;
}

static void turn(void)
{
    uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < NODES; i++) {
        if (!members[i].running)
            continue;
        replica_pump(members[i].replica, 0);
        storage_flush(members[i].storage);
    }
}

#define UNTIL(condition)                                       \
    do {                                                       \
        int64_t until_end = clock_boot_ms() + PATIENCE_MS;     \
        while (!(condition)) {                                 \
            turn();                                            \
            if (clock_boot_ms() > until_end)                   \
                fail_msg("waited in vain for %s", #condition); \
        }                                                      \
    } while (0)

static void start(int i)
{
    struct member *member = &members[i];
    struct storage_options files = {.path = member->path, .segment_bytes = 1 << 20};
    struct network_options net = {.id = (uint64_t)i + 1,
                                  .address = member->address,
                                  .listen = member->address,
                                  .secret = "s",
                                  .secret_size = 1,
                                  .note = on_note};
    struct replica_options options = {.id = (uint64_t)i + 1,
                                      .address = member->address,
                                      .members = configuration,
                                      .member_count = NODES,
                                      .election_ms = 300,
                                      .heartbeat_ms = 30};
    struct replica_host host;
    struct error_text err = {""};

    witness_init(&member->witness);
    member->witness.now_us = 0;
    member->witness.random = (uint64_t)clock_boot_ns();
    host = witness_host(&member->witness);
    if (storage_open(&loop, &files, &member->storage, &err) != HF_OK ||
        network_open(&loop, &net, storage_io(member->storage), &member->network, &err) != HF_OK ||
        replica_open(&options, storage_io(member->storage), &host, &member->replica, &err) != HF_OK)
        fail_msg("%s", err.text);
    member->running = true;
}

static void stop(int i)
{
    struct member *member = &members[i];

    member->running = member->closed = false;
    replica_close(member->replica, on_done, &member->closed);
    UNTIL(member->closed);
    member->closed = false;
    network_close(member->network, on_done, &member->closed);
    UNTIL(member->closed);
    member->closed = false;
    storage_close(member->storage, on_done, &member->closed);
    UNTIL(member->closed);
}

static int leader(void)
{
    for (int i = 0; i < NODES; i++)
        if (members[i].running && witness_role(&members[i].witness) == REPLICA_LEADING)
            return i;
    return -1;
}

static uint64_t applied(int i)
{
    struct replica_status status;

    replica_status(members[i].replica, &status);
    return status.applied_index;
}

static bool all_alike(void)
{
    int first = -1;

    for (int i = 0; i < NODES; i++) {
        if (!members[i].running)
            continue;
        if (first < 0)
            first = i;
        if (applied(i) != applied(first) || core_hash(replica_table(members[i].replica)) !=
                                                core_hash(replica_table(members[first].replica)))
            return false;
    }
    return true;
}

/* Below those that outgoing connections get: a node that comes back must find it free. */
static int free_port(void)
{
    static unsigned next;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

    for (int tries = 0; tries < 1000; tries++) {
        int port = 12000 + (int)(((unsigned)getpid() * 7 + next++) % 20000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool free;

        assert_true(fd >= 0);
        at.sin_port = htons((uint16_t)port);
        free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        close(fd);
        if (free)
            return port;
    }
    fail_msg("no port is free");
    return 0;
}

static int set_up(void **state)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    snprintf(home, sizeof home, "%s/cluster-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(home));
    assert_int_equal(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &beat);
    uv_timer_start(&beat, on_beat, 1, 1);
    for (int i = 0; i < NODES; i++) {
        snprintf(members[i].path, sizeof members[i].path, "%s/%d", home, i + 1);
        snprintf(members[i].address, sizeof members[i].address, "127.0.0.1:%d", free_port());
        configuration[i] = (struct replica_member){(uint64_t)i + 1, members[i].address};
    }
    for (int i = 0; i < NODES; i++)
        start(i);
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++)
        if (members[i].running)
            stop(i);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static void answer_some(size_t from, size_t count)
{
    int lead = leader();

    for (size_t i = from; i < from + count; i++) {
        submit_numbered(members[lead].replica, i, 3600000);
        UNTIL(members[lead].witness.heard[i].answers == 1);
    }
}

static void test_all_have_what_was_answered(void **state)
{
    struct core_counts counts;

    (void)state;
    UNTIL(leader() >= 0);
    answer_some(1, 50);
    UNTIL(all_alike());
    core_count(replica_table(members[0].replica), &counts);
    assert_int_equal(counts.holds, 50);
}

static void test_another_takes_over(void **state)
{
    struct core_counts counts;
    size_t number = 1;

    (void)state;
    for (int round = 0; round < 6; round++) {
        int lead;

        UNTIL(leader() >= 0);
        answer_some(number, 20);
        number += 20;
        lead = leader();
        stop(lead);
        UNTIL(leader() >= 0);
        core_count(replica_table(members[leader()].replica), &counts);
        assert_int_equal(counts.holds, number - 1); /* nothing is lost */
        answer_some(number, 20);
        number += 20;
        start(lead);
        UNTIL(all_alike());
    }
}

static void test_alone_nobody_serves(void **state)
{
    int lead, other;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    answer_some(1, 5);
    for (int i = 0; i < NODES; i++)
        if (i != lead)
            stop(i);
    submit_numbered(members[lead].replica, 6, 3600000);
    UNTIL(leader() < 0); /* it finds out that it is alone */
    assert_int_equal(members[lead].witness.heard[6].answers, 0);
    assert_int_equal(members[lead].witness.heard[6].failure, REPLICA_UNKNOWN);
    other = lead == 0 ? 1 : 0;
    start(other);
    UNTIL(leader() >= 0);
    answer_some(7, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_have_what_was_answered),
        TEST(test_another_takes_over),
        TEST(test_alone_nobody_serves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
