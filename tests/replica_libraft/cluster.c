#include "cluster.h"

#include "replica_libraft/network.h"
#include "replica_libraft/storage.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static char home[PATH_MAX - 16];
static uv_loop_t loop;
static uv_timer_t beat;
struct member members[NODES];
uint64_t snapshot_bytes, memory_bytes;
static struct replica_member configuration[NODES];

static void on_beat(uv_timer_t *timer)
{
    (void)timer;
}

static void on_note(void *context, const struct note *note)
{
    (void)context;
    (void)note;
}

static void on_done(void *context)
{
    *(bool *)context = true;
}

void turn(void)
{
    uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < NODES; i++) {
        if (!members[i].running)
            continue;
        replica_pump(members[i].replica, 0);
        storage_flush(members[i].storage, true);
    }
}

void start(int i)
{
    struct member *member = &members[i];
    struct storage_options files = {.path = member->path, .segment_bytes = 1 << 20};
    struct network_options net = {.id = (uint64_t)i + 1,
                                  .address = member->address,
                                  .listen = member->address,
                                  .secret = "s",
                                  .secret_size = 1};
    struct network_host net_host = {.note = on_note};
    struct replica_options options = {.id = (uint64_t)i + 1,
                                      .address = member->address,
                                      .members = configuration,
                                      .member_count = i < FOUNDERS ? FOUNDERS : 0,
                                      .election_ms = 300,
                                      .heartbeat_ms = 30,
                                      .snapshot_bytes = snapshot_bytes,
                                      .snapshot_trailing = snapshot_bytes || memory_bytes ? 8 : 0,
                                      .memory_bytes = memory_bytes,
                                      .about = member->address};
    struct replica_host host;
    struct error_text err = {""};

    witness_init(&member->witness);
    member->witness.now_us = 0;
    member->witness.random = (uint64_t)clock_boot_ns();
    host = witness_host(&member->witness);
    if (storage_open(&loop, &files, &member->storage, &err) != HF_OK ||
        network_open(&loop, &net, &net_host, storage_io(member->storage), &member->network, &err) !=
            HF_OK ||
        replica_open(&options, storage_io(member->storage), &host, &member->replica, &err) != HF_OK)
        fail_msg("%s", err.text);
    member->running = true;
}

void stop(int i)
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

int leader(void)
{
    for (int i = 0; i < NODES; i++)
        if (members[i].running && witness_role(&members[i].witness) == REPLICA_LEADING)
            return i;
    return -1;
}

void restart_founders(void)
{
    for (int i = 0; i < FOUNDERS; i++) {
        stop(i);
        start(i);
    }
    UNTIL(leader() >= 0);
}

static uint64_t applied(int i)
{
    struct replica_status status;

    replica_status(members[i].replica, &status);
    return status.applied_index;
}

bool all_alike(void)
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

int set_up(void **state)
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
    for (int i = 0; i < FOUNDERS; i++)
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

int tear_down(void **state)
{
    (void)state;
    snapshot_bytes = memory_bytes = 0;
    for (int i = 0; i < NODES; i++)
        if (members[i].running)
            stop(i);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

void answer_some(size_t from, size_t count)
{
    int lead = leader();

    for (size_t i = from; i < from + count; i++) {
        submit_numbered(members[lead].replica, i, 3600000);
        UNTIL(members[lead].witness.heard[i].answers == 1);
    }
}
