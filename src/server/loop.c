/* loop.c: the loop: what happens when, from the start to a clean end. */
#include "base/clock.h"
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
#define PAUSE_MAX_MS 1       /* an entry that hangs is no reason not to listen */
#define QUIET_S 10
#define MEMORY_STEP (1 << 20)   /* that the table's memory grows by */
#define MEMORY_KEPT (512 << 20) /* what is freed above it is given back at once */
#define TIMER_SLACK_NS 1000     /* instead of 50000: of a nap that would be much */
#define MMAP_THRESHOLD (256 << 10)
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

/* ---- what the node wants -------------------------------------------------------------------- */

/* To the service manager. A member of a cluster is ready before there is a leader: the others may be started
 * after it. */
static void say_ready(struct daemon *daemon)
{
    if (!daemon->ready)
        notify_ready(NULL);
    daemon->ready = true;
}

static int64_t now_ms(const struct server *server)
{
    return (int64_t)uv_now(server->loop);
}

static void host_effect(void *context, void *request, const struct core_effect *effect)
{
    struct server *server = context;

    sessions_effect(&server->sessions, request, effect);
}

static void host_failed(void *context, void *request, enum replica_failure failure)
{
    struct server *server = context;

    sessions_failed(&server->sessions, request, failure);
}

static void host_role(void *context, enum replica_role role)
{
    struct server *server = context;
    struct daemon *daemon = (struct daemon *)(void *)server;
    bool led = server->sessions.role == REPLICA_LEADING;

    if (role == REPLICA_LEADING) {
        if (server->has_links)
            log_info("this node was elected leader", log_number("term", cluster_term(server)));
        log_info("serving", log_text("listen", server->listeners[0].endpoint.shown),
                 log_text("data", server->config->data));
        say_ready(daemon);
        server->said_new = true;
    } else if (led) {
        log_at(server->transferring ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "this node leads no more",
               log_number("term", cluster_term(server)));
    }
    sessions_role(&server->sessions, role, now_ms(server));
}

static void host_stopped(void *context, const char *why)
{
    struct server *server = context;
    char advice[ERROR_TEXT_MAX];

    sessions_stopped(&server->sessions, why);
    cluster_advice(server, advice, sizeof advice);
    if (advice[0])
        log_error("this node cannot go on, and refuses all commands", log_text("why", why),
                  log_text("advice", advice));
    else
        log_error("this node cannot go on, and refuses all commands", log_text("why", why));
    notify_status(why, NULL);
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
    return server->has_links && server->sessions.role == REPLICA_LEADING &&
           server->expected >= NODE_MANY;
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
    bool full = is_patient(server) && node_is_full(server->node);
    /* Sooner than a timer can say. Who waits for a majority is woken by it: what else there is to do can wait until then. */
    bool soon = next_us == 0 || (next_us > 0 && next_us < 1000 && !full);
    bool gathers = soon && next_us > 0 && is_patient(server);
    bool paused = gathers || full;

    client_poll_pause(server, paused);
    if (gathers)
        nap(next_us);
    if (soon != (bool)uv_is_active((uv_handle_t *)&server->spin)) {
        if (soon)
            uv_idle_start(&server->spin, on_spin);
        else
            uv_idle_stop(&server->spin);
    }
    if (next_us == 0 && server->sessions.role != REPLICA_LEADING)
        sched_yield(); /* what is left is for the table of a follower: whoever else wants the CPU goes first */
    if (soon)
        uv_timer_stop(&server->timer);
    else if (paused)
        uv_timer_start(&server->timer, on_timer, PAUSE_MAX_MS, 0);
    else if (next_us > 0)
        wake_in(server, next_us);
    else
        uv_timer_stop(&server->timer);
}

/* Whoever can be answered is answered before the disk is waited for. What has come in goes to disk at once, and most rounds end with its
 * answers, or a follower's acknowledgement. Returns when to come again. */
static int64_t replicate(struct server *server)
{
    int64_t next_us = node_pump(server->node, connections_expected(server));

    connection_write_all(server);
    if (!node_flush(server->node))
        return next_us;
    next_us = node_pump(server->node, connections_expected(server));
    connection_write_all(server);
    return node_flush(server->node) ? 0 : next_us;
}

/* Once, when something of the log is on disk. */
static void note_log(struct server *server)
{
    struct error_text err;

    if (node_note_log(server->node, &server->has_log, &err) != HF_OK)
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
    if (server->members_version != cluster_version(server)) {
        server->members_version = cluster_version(server);
        cluster_tidy(server);
        changed = true;
    }
    if (changed || server->agreed_version != server->members_version)
        cluster_cut_off(server);
    server->said_new |= changed;
    sessions_look(&server->sessions, now_ms(server));
    if (server->said_new && server->sessions.role == REPLICA_LEADING)
        cluster_publish(server);
}

/* After the sockets had their say. */
static void on_round(uv_check_t *check)
{
    struct server *server = check->data;
    int64_t next_us;

    look_at_cluster(server);
    if (server->client_poll.paused) {
        connection_write_all(server); /* so that those who are answered can go on meanwhile */
        client_poll_read(server);
    }
    connections_go_on(server);
    sessions_leave(&server->sessions);
    next_us = replicate(server);
    if (server->handed_over) {
        stop((struct daemon *)(void *)server);
        return;
    }
    if (!list_empty(&server->ready) || !list_empty(&server->sessions.leaving))
        next_us = 0;
    sleep_until(server, next_us);
}

/* Nobody is served while the log is written. */
static void warn_of_slow_disk(struct server *server)
{
    struct node_disk_status status;

    node_disk_status(server->node, &status);
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

    server->quiet_s =
        server->sessions.commands == server->commands_before ? server->quiet_s + 1 : 0;
    server->commands_before = server->sessions.commands;
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
    daemon->server.node = NULL;
    daemon->server.replica = NULL;
    uv_close((uv_handle_t *)&daemon->server.timer, NULL);
    uv_close((uv_handle_t *)&daemon->server.spin, NULL);
    uv_close((uv_handle_t *)&daemon->server.round, NULL);
}

static void close_connections(struct server *server)
{
    LIST_EACH_SAFE(node, &server->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, session.node);

        connection_close(connection);
    }
}

/* Those who are blocked are answered, what is under way is failed and told so, then all is closed:
 * what was acknowledged is on disk already. */
static void stop(struct daemon *daemon)
{
    struct server *server = &daemon->server;

    if (server->sessions.stopping)
        return;
    sessions_stopping(&server->sessions);
    listening_close(server);
    bootstrap_close(server);
    adding_close(server);
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
    server_close_node(server, on_node_closed, daemon);
    connection_write_all(server);
    close_connections(server);
    client_poll_close(server);
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
    if (daemon->asked_to_stop || server->sessions.role != REPLICA_LEADING || !server->has_links ||
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
    list_init(&server->unauthenticated);
    list_init(&server->dirty);
    list_init(&server->ready);
    list_init(&server->busy);
}

static int open_node(struct daemon *daemon, struct error_text *err)
{
    struct server *server = &daemon->server;
    struct node_host host = {.effect = host_effect,
                             .failed = host_failed,
                             .changed = cluster_changed,
                             .role = host_role,
                             .stopped = host_stopped};
    int result = server_open_node(server, &host, err);

    if (result == HF_OK && server->has_links)
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
    client_poll_close(&daemon->server);
    server_close_node(&daemon->server, on_node_closed, daemon);
    while (!daemon->closed)
        uv_run(&daemon->loop, UV_RUN_ONCE);
    uv_walk(&daemon->loop, on_anything_closed, NULL);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon->loop);
    return EXIT_UNAVAILABLE;
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
    server->config = daemon->config = config;
    server->loop = &daemon->loop;
    server_open_sessions(server);
    server->began_ms = (int64_t)uv_now(&daemon->loop);
    start_handles(daemon);
    log_info("starting", log_text("version", HOLDFAST_VERSION), log_text("data", config->data));
    if (config->password.is_short)
        log_warning("the password of clients is short, and can be guessed: " SECRET_ADVICE,
                    log_text("password_file", config->password_file));
    client_poll_open(server);
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
    sessions_free(&server->sessions);
    free(daemon);
    return result;
}
