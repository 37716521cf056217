/* serving.c: the loop: what happens when, from the start to a clean end. */
#include "base/clock.h"
#include "base/random.h"
#include "replica_libraft/founding.h"
#include "replica_libraft/storage.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/server.h"

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define EXIT_UNAVAILABLE 69 /* sysexits.h: the data directory or an address cannot be had */
#define SECOND_MS 1000
#define SLOW_WRITE_US 500000 /* a write of the log that takes so long is told of */
#define NAP_US 50            /* while a batch fills */
#define DEAF_MAX_MS 1        /* an entry that hangs is no reason not to listen */
#define QUIET_S 10
#define MEMORY_STEP (1 << 20)   /* that the table's memory grows by */
#define MEMORY_KEPT (512 << 20) /* what is freed above it is given back at once */
#define TIMER_SLACK_NS 1000     /* instead of 50000: of a nap that would be much */
#define MMAP_THRESHOLD (256 << 10)
#define NEXT_LEADER_MS 1000     /* those who are blocked wait so long to hear who leads now */
#define DESCRIPTORS_BESIDES 256 /* besides those of clients */

struct daemon {
    struct server server;
    uv_loop_t loop;
    struct config *config;
    uv_signal_t term, interrupt, hangup;
    uv_timer_t second;
    bool ready; /* has been said to the service manager */
    bool asked_to_stop;
    bool closed;
    int status;
};

/* ---- what the replica wants -------------------------------------------------------------------- */

static int64_t host_wall_us(void *context)
{
    (void)context;
    return clock_wall_us();
}

static int64_t host_boot_us(void *context)
{
    (void)context;
    return clock_boot_ns() / 1000;
}

static void host_random(void *context, void *bytes, size_t size)
{
    (void)context;
    random_fill(bytes, size);
}

/* To the service manager. A member of a cluster is ready before there is a leader: the others may be started
 * after it. */
static void say_ready(struct daemon *daemon)
{
    if (!daemon->ready)
        notify_ready(NULL);
    daemon->ready = true;
}

/* Those who are blocked at a node that led and leads no more have to come anew: to the next leader, or to this node if it is
 * that itself. With a new term the time of their leases has begun, and only an ACQUIRE in that term stops it again. */
static void send_on(struct server *server)
{
    server->deposed_ms = 0;
    answer_all_blocked(server);
}

static void host_role(void *context, enum replica_role role)
{
    struct server *server = context;
    struct daemon *daemon = (struct daemon *)(void *)server;
    enum replica_role before = server->role;

    server->role = role;
    if (role == REPLICA_LEADING) {
        if (server->network)
            log_info("this node was elected leader", log_number("term", cluster_term(server)));
        log_info("serving", log_text("listen", server->listeners[0].endpoint.shown),
                 log_text("data", server->config->data));
        say_ready(daemon);
        server->said_new = true;
        if (server->deposed_ms != 0) /* it has lost an election meanwhile, and won another */
            send_on(server);
    } else if (before == REPLICA_LEADING) {
        log_at(server->transferring ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "this node leads no more",
               log_number("term", cluster_term(server)));
        server->deposed_ms = (int64_t)uv_now(server->loop);
    }
}

static void host_stopped(void *context, const char *why)
{
    struct server *server = context;

    snprintf(server->stopped_why, sizeof server->stopped_why, "%s", why);
    log_error("this node cannot go on, and refuses all commands", log_text("why", why));
    notify_status(why, NULL);
    answer_all_blocked(server);
}

static void host_note(void *context, int level, const char *text)
{
    (void)context;
    log_at((enum log_level)level, text);
}

static void stop(struct daemon *daemon);

/* ---- rounds ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* it has done its work by ending the loop's sleep */
}

static void on_spin(uv_idle_t *idle)
{
    (void)idle; /* as long as it is active, the loop does not sleep */
}

/* A leader with much to do lets what comes gather: each packet that wakes it would cost it, and who sent it, more than the
 * command itself. It has no use for more while an entry is on its way, or for single commands while a batch fills. */
static bool is_patient(const struct server *server)
{
    return server->network && server->role == REPLICA_LEADING && server->expected >= REPLICA_MANY;
}

static void nap(int64_t us)
{
    struct timespec span = {.tv_nsec = (long)(us < NAP_US ? us : NAP_US) * 1000};

    nanosleep(&span, NULL);
}

/* Not too early: for what is left then, it would not sleep. */
static void wake_in(struct server *server, int64_t next_us)
{
    uv_update_time(server->loop);
    uv_timer_start(&server->timer, on_timer, (uint64_t)(next_us + 999) / 1000, 0);
}

static void sleep_until(struct server *server, int64_t next_us)
{
    bool soon = next_us >= 0 && next_us < 1000; /* sooner than a timer can say */
    bool gathers = soon && next_us > 0 && is_patient(server);
    bool deaf = gathers || (is_patient(server) && replica_flying(server->replica));

    hearing_deafen(server, deaf);
    if (gathers)
        nap(next_us);
    if (soon != (bool)uv_is_active((uv_handle_t *)&server->spin)) {
        if (soon)
            uv_idle_start(&server->spin, on_spin);
        else
            uv_idle_stop(&server->spin);
    }
    if (next_us == 0 && replica_yields(server->replica))
        sched_yield();
    if (soon)
        uv_timer_stop(&server->timer);
    else if (deaf)
        uv_timer_start(&server->timer, on_timer, DEAF_MAX_MS, 0);
    else if (next_us > 0)
        wake_in(server, next_us);
    else
        uv_timer_stop(&server->timer);
}

/* What has come in goes to disk at once, and most rounds end with its answers. Returns when to come again. */
static int64_t replicate(struct daemon *daemon)
{
    struct server *server = &daemon->server;
    bool leads = server->role == REPLICA_LEADING;
    bool others_write = server->network && leads;
    int64_t next_us = replica_pump(server->replica, connections_expected(server));
    bool written = storage_flush(server->storage, others_write);

    if (!leads) /* its leader's next message comes before what is left to do */
        return written ? 0 : next_us;
    if (written || replica_arrived(server->replica)) {
        next_us = replica_pump(server->replica, connections_expected(server));
        if (storage_flush(server->storage, others_write))
            next_us = 0;
    }
    return next_us;
}

/* Or has waited for it long enough. */
static bool knows_where_to(const struct server *server)
{
    char address[CORE_ADDRESS_MAX + 1];
    int64_t waited_ms = (int64_t)uv_now(server->loop) - server->deposed_ms;

    return cluster_leader_address(server, address, sizeof address) || waited_ms >= NEXT_LEADER_MS;
}

/* Once, when something of the log is on disk. */
static void note_log(struct server *server)
{
    struct storage_status status;
    struct error_text err;

    storage_status(server->storage, &status);
    if (status.writes == 0)
        return;
    server->has_log = true;
    if (founding_has_log(server->storage, &err) != HF_OK)
        log_warning(err.text);
}

static void look_at_cluster(struct server *server)
{
    uint64_t leader = replica_leader(server->replica);
    bool changed = leader != server->leader_id;

    if (changed && leader != 0 && leader != server->config->id)
        log_info("following", log_number("leader", (int64_t)leader),
                 log_number("term", cluster_term(server)));
    else if (changed && leader == 0 && server->leader_id != server->config->id)
        log_info("no leader any more: an election is under way",
                 log_number("last_leader", (int64_t)server->leader_id),
                 log_number("term", cluster_term(server)));
    server->leader_id = leader;
    if (leader != 0)
        server->shut_out = NULL;
    if (!server->has_log)
        note_log(server);
    if (server->members_version != replica_members_version(server->replica)) {
        server->members_version = replica_members_version(server->replica);
        cluster_tidy(server);
        changed = true;
    }
    if (changed || server->agreed_version != server->members_version)
        cluster_cut_off(server);
    server->said_new |= changed;
    if (server->deposed_ms != 0 && knows_where_to(server))
        send_on(server);
    if (server->said_new && server->role == REPLICA_LEADING)
        cluster_publish(server);
}

/* After the sockets had their say. */
static void on_round(uv_check_t *check)
{
    struct server *server = check->data;
    int64_t next_us;

    look_at_cluster(server);
    if (server->hearing.deaf) {
        connection_write_all(server); /* so that those who are answered can go on meanwhile */
        hearing_hear(server);
    }
    connections_go_on(server);
    waiters_leave(server);
    next_us = replicate((struct daemon *)(void *)server);
    connection_write_all(server);
    if (server->handed_over) {
        stop((struct daemon *)(void *)server);
        return;
    }
    replica_rest(server->replica);
    if (!list_empty(&server->ready) || !list_empty(&server->leaving))
        next_us = 0;
    sleep_until(server, next_us);
}

/* Nobody is served while the log is written. */
static void warn_of_slow_disk(struct server *server)
{
    struct storage_status status;

    storage_status(server->storage, &status);
    if (status.longest_us < SLOW_WRITE_US || status.longest_us <= server->warned_us)
        return;
    server->warned_us = status.longest_us;
    log_warning("the disk was slow to take the log, and everybody waited for it",
                log_number("ms", (int64_t)(status.longest_us / 1000)));
}

/* With a snapshot the log before it goes out of memory, from between what is still in use: the C library keeps
 * the holes. Under load they are filled again; giving them back takes tens of milliseconds, and to have new memory takes
 * longer than the table takes for a command. So it waits until nobody has wanted anything for a while. */
static void give_back_memory(struct server *server)
{
    struct replica_status status;

    server->quiet_s = server->commands == server->commands_before ? server->quiet_s + 1 : 0;
    server->commands_before = server->commands;
    replica_status(server->replica, &status);
    if (server->quiet_s < QUIET_S || status.snapshotting ||
        status.snapshots == server->trimmed_after)
        return;
    server->trimmed_after = status.snapshots;
    malloc_trim(0);
}

static void on_second(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;

    connections_close_idle(&daemon->server);
    warn_of_slow_disk(&daemon->server);
    give_back_memory(&daemon->server);
    log_tick();
    if (notify_watchdog_us() > 0)
        notify_watchdog(NULL);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static void on_node_closed(void *context)
{
    struct daemon *daemon = context;

    daemon->closed = true;
    uv_close((uv_handle_t *)&daemon->server.timer, NULL);
    uv_close((uv_handle_t *)&daemon->server.spin, NULL);
    uv_close((uv_handle_t *)&daemon->server.round, NULL);
}

static void close_connections(struct server *server)
{
    LIST_EACH_SAFE(node, &server->connections)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);

        connection_close(connection);
    }
}

/* Those who are blocked are answered, what is under way is failed and told so, then all is closed:
 * what was acknowledged is on disk already. */
static void stop(struct daemon *daemon)
{
    struct server *server = &daemon->server;

    if (server->stopping)
        return;
    server->stopping = true;
    listening_close(server);
    bootstrap_close(server);
    adding_close(server);
    answer_all_blocked(server);
    uv_check_stop(&server->round);
    uv_idle_stop(&server->spin);
    uv_timer_stop(&server->timer);
    uv_close((uv_handle_t *)&daemon->term, NULL);
    uv_close((uv_handle_t *)&daemon->interrupt, NULL);
    uv_close((uv_handle_t *)&daemon->hangup, NULL);
    signal(SIGTERM, SIG_IGN); /* libuv has given them back, and what is left takes a moment */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    uv_close((uv_handle_t *)&daemon->second, NULL);
    node_close(server, on_node_closed, daemon);
    connection_write_all(server);
    close_connections(server);
    hearing_close(server);
}

/* A leader lets another one lead before it goes: its clients are sent there, instead of waiting for an election.
 * A second signal does not wait. */
static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    struct server *server = &daemon->server;

    (void)number;
    if (!daemon->asked_to_stop) {
        notify_stopping(NULL);
        log_info("stopping");
    }
    if (daemon->asked_to_stop || server->role != REPLICA_LEADING || !server->network ||
        cluster_hand_over(server, 0, NULL, NULL) != HF_OK)
        stop(daemon);
    daemon->asked_to_stop = true;
}

static void on_hangup(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;

    (void)number;
    reload(&daemon->server, daemon->config);
}

/* ---- the beginning ----------------------------------------------------------------------------- */

/* As many descriptors as the limit on clients needs, as far as the system allows. Whoever set no limit is not warned of it. */
static void raise_descriptors(struct config *config)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)config->max_clients + DESCRIPTORS_BESIDES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < wanted) {
        uint64_t fits = limit.rlim_cur > 2 * DESCRIPTORS_BESIDES
                            ? (uint64_t)limit.rlim_cur - DESCRIPTORS_BESIDES
                            : (uint64_t)limit.rlim_cur / 2;

        if (config_is_default(config, "max-clients"))
            log_info("the limit on open files bounds the number of clients",
                     log_number("clients", (int64_t)fits),
                     log_number("open_files", (int64_t)limit.rlim_cur));
        else
            log_warning("fewer clients than configured: the limit on open files is too low",
                        log_number("max_clients", (int64_t)config->max_clients),
                        log_number("clients", (int64_t)fits),
                        log_number("open_files", (int64_t)limit.rlim_cur));
        config->max_clients = fits;
    }
}

static void init_lists(struct server *server)
{
    list_init(&server->connections);
    list_init(&server->unauthenticated);
    list_init(&server->dirty);
    list_init(&server->ready);
    list_init(&server->busy);
    list_init(&server->spare);
    list_init(&server->leaving);
}

static int open_node(struct daemon *daemon, struct error_text *err)
{
    struct server *server = &daemon->server;
    struct replica_host host = {.context = server,
                                .boot_us = host_boot_us,
                                .wall_us = host_wall_us,
                                .random = host_random,
                                .effect = answer_effect,
                                .failed = answer_failed,
                                .changed = cluster_changed,
                                .role = host_role,
                                .stopped = host_stopped,
                                .doubts = cluster_doubts,
                                .connected = cluster_is_connected,
                                .note = host_note};
    int result = node_open(server, &host, err);

    if (result == HF_OK && server->network)
        say_ready(daemon);
    return result;
}

static void start_handles(struct daemon *daemon)
{
    struct server *server = &daemon->server;

    uv_check_init(&daemon->loop, &server->round);
    server->round.data = server;
    uv_timer_init(&daemon->loop, &server->timer);
    uv_idle_init(&daemon->loop, &server->spin);
    uv_signal_init(&daemon->loop, &daemon->term);
    uv_signal_init(&daemon->loop, &daemon->interrupt);
    uv_signal_init(&daemon->loop, &daemon->hangup);
    uv_timer_init(&daemon->loop, &daemon->second);
    daemon->term.data = daemon->interrupt.data = daemon->hangup.data = daemon;
    daemon->second.data = daemon;
    /* Before the log is read, which may take a while: a reload must not end the server. It is looked at in the loop. */
    uv_signal_start(&daemon->hangup, on_hangup, SIGHUP);
}

static void run_handles(struct daemon *daemon)
{
    struct server *server = &daemon->server;

    uv_check_start(&server->round, on_round);
    uv_signal_start(&daemon->term, on_signal, SIGTERM);
    uv_signal_start(&daemon->interrupt, on_signal, SIGINT);
    uv_timer_start(&daemon->second, on_second, SECOND_MS, SECOND_MS);
    uv_idle_start(&server->spin, on_spin); /* the first round comes at once */
}

static void on_anything_closed(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* It did not begin: nothing is under way. */
static int give_up(struct daemon *daemon, const struct error_text *err)
{
    log_error(err->text);
    listening_close(&daemon->server);
    bootstrap_close(&daemon->server);
    adding_close(&daemon->server);
    hearing_close(&daemon->server);
    node_close(&daemon->server, on_node_closed, daemon);
    while (!daemon->closed)
        uv_run(&daemon->loop, UV_RUN_ONCE);
    uv_walk(&daemon->loop, on_anything_closed, NULL);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon->loop);
    return EXIT_UNAVAILABLE;
}

static void free_all(struct daemon *daemon)
{
    struct server *server = &daemon->server;

    while (!list_empty(&server->leaving)) {
        struct waiter *waiter = LIST_ENTRY(server->leaving.next, struct waiter, of_connection);

        list_remove(&waiter->of_connection);
        request_free(server, waiter->request);
        free(waiter);
    }
    while (!list_empty(&server->spare)) {
        struct request *request = LIST_ENTRY(server->spare.next, struct request, node);

        list_remove(&request->node);
        free(request);
    }
    free(server->waiters.chains);
    free(server->observers.chains);
    free(server->holders.chains);
}

int serve(struct config *config)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct server *server = &daemon->server;
    struct error_text err = {""};
    int result;

    INVARIANT(daemon != NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    raise_descriptors(config);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    /* What is large is given back to the system when it is freed: snapshots come and go. */
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    mallopt(M_TOP_PAD, MEMORY_STEP);
    mallopt(M_TRIM_THRESHOLD, MEMORY_KEPT);
    INVARIANT(uv_loop_init(&daemon->loop) == 0);
    init_lists(server);
    random_fill(server->observers.seed, sizeof server->observers.seed);
    server->config = daemon->config = config;
    server->loop = &daemon->loop;
    server->role = REPLICA_FOLLOWING;
    server->began_ms = (int64_t)uv_now(&daemon->loop);
    start_handles(daemon);
    log_info("starting", log_text("version", HOLDFAST_VERSION), log_text("data", config->data));
    if (config->password.is_short)
        log_warning("the password of clients is short, and can be guessed: " SECRET_ADVICE,
                    log_text("password_file", config->password_file));
    hearing_open(server);
    result = listening_open(server, &err);
    if (result == HF_OK)
        result = open_node(daemon, &err);
    if (result != HF_OK) {
        daemon->status = give_up(daemon, &err);
    } else {
        run_handles(daemon);
        uv_run(&daemon->loop, UV_RUN_DEFAULT);
        uv_loop_close(&daemon->loop);
        log_info("stopped");
    }
    result = daemon->status;
    free_all(daemon);
    free(daemon);
    return result;
}
