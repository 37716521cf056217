/* loop.c: the loop: what happens when, from the start to a clean end. */
#include "server/loop.h"
#include "base/clock.h"
#include "server/adding.h"
#include "server/admin.h"
#include "server/audit.h"
#include "server/backup.h"
#include "server/bootstrap.h"
#include "server/client_poll.h"
#include "server/cluster.h"
#include "server/cluster_commands.h"
#include "server/connection.h"
#include "server/listening.h"
#include "server/log.h"
#include "server/login.h"
#include "server/node.h"
#include "server/notify.h"
#include "server/reload.h"
#include "server/server.h"
#include "server/session_host.h"
#include "server/tls.h"
#include "server/users.h"

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

/* What is looked at now and then. */
struct upkeep {
    bool has_log;             /* and its directory says so */
    uint64_t warned_us;       /* of a write to the log that took so long */
    uint64_t trimmed_after;   /* so many snapshots, memory was given back */
    uint64_t commands_before; /* a second ago */
    uint32_t quiet_s;         /* for so long nobody wanted anything */
};

struct daemon {
    struct server server; /* the first: see daemon_of */
    uv_loop_t loop;
    struct config *config;
    uv_check_t round;
    uv_timer_t timer;
    uv_idle_t spin; /* while the next thing is due in less than a timer can say */
    uv_signal_t term, interrupt, hangup;
    uv_timer_t second;
    struct upkeep upkeep;
    bool ready; /* has been said to the service manager */
    bool asked_to_stop;
    bool closed;
    int status;
};

static struct daemon *daemon_of(struct server *server)
{
    return (struct daemon *)(void *)server;
}

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

    metrics_effect(&server->metrics, effect);
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
    bool led = server->sessions.role == REPLICA_LEADING;
    char listen[LOG_VALUE_MAX + 1];

    if (role == REPLICA_LEADING) {
        listening_shown(server, listen, sizeof listen);
        if (server->has_links)
            log_info("this node was elected leader", log_number("term", cluster_term(server)));
        log_info("serving", log_text("listen", listen), log_text("data", server->config->data));
        say_ready(daemon_of(server));
        server->membership.said_new = true;
        server->metrics.elections_won++;
    } else if (led) {
        log_at(server->hand_over.transferring ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
               "this node leads no more", log_number("term", cluster_term(server)));
    }
    if (role != REPLICA_LEADING)
        backups_drop(server);
    sessions_role(&server->sessions, role, now_ms(server));
}

static void host_stopped(void *context, const char *why)
{
    struct server *server = context;
    char advice[ERROR_TEXT_MAX];

    backups_drop(server);
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
static void wake_in(struct daemon *daemon, int64_t next_us)
{
    uv_update_time(&daemon->loop);
    uv_timer_start(&daemon->timer, on_timer, (uint64_t)(next_us + 999) / 1000, 0);
}

static void sleep_until(struct daemon *daemon, int64_t next_us)
{
    struct server *server = &daemon->server;
    bool full = is_patient(server) && node_is_full(server->node);
    /* Sooner than a timer can say. Who waits for a majority is woken by it: what else there is to do can wait until then. */
    bool soon = next_us == 0 || (next_us > 0 && next_us < 1000 && !full);
    bool gathers = soon && next_us > 0 && is_patient(server);
    bool paused = gathers || full;

    client_poll_pause(server, paused);
    if (gathers)
        nap(next_us);
    if (soon != (bool)uv_is_active((uv_handle_t *)&daemon->spin)) {
        if (soon)
            uv_idle_start(&daemon->spin, on_spin);
        else
            uv_idle_stop(&daemon->spin);
    }
    if (next_us == 0 && server->sessions.role != REPLICA_LEADING)
        sched_yield(); /* what is left is for the table of a follower: whoever else wants the CPU goes first */
    if (soon)
        uv_timer_stop(&daemon->timer);
    else if (paused)
        uv_timer_start(&daemon->timer, on_timer, PAUSE_MAX_MS, 0);
    else if (next_us > 0)
        wake_in(daemon, next_us);
    else
        uv_timer_stop(&daemon->timer);
}

/* Whoever can be answered is answered before the disk is waited for. What has come in goes to disk at once, and most rounds end with its
 * answers, or a follower's acknowledgement. Returns when to come again. */
static int64_t replicate(struct server *server)
{
    int64_t next_us;

    server_look_at_clock(server);
    next_us = node_pump(server->node, connections_expected(server));
    connection_write_all(server);
    if (!node_flush(server->node))
        return next_us;
    server_look_at_clock(server);
    next_us = node_pump(server->node, connections_expected(server));
    connection_write_all(server);
    return node_flush(server->node) ? 0 : next_us;
}

/* Once, when something of the log is on disk. */
static void note_log(struct daemon *daemon)
{
    struct error_text err;

    if (node_note_log(daemon->server.node, &daemon->upkeep.has_log, &err) != HF_OK)
        log_warning(err.text);
}

static void look_at_cluster(struct server *server)
{
    struct membership_view *view = &server->membership;
    uint64_t leader = replica_leader(server->replica);
    bool changed = leader != view->leader_id;

    if (changed && leader != 0 && leader != server->config->id)
        log_info("following", log_number("leader", (int64_t)leader),
                 log_number("term", cluster_term(server)));
    else if (changed && leader == 0 && view->leader_id != server->config->id)
        log_info("no leader any more: an election is under way",
                 log_number("last_leader", (int64_t)view->leader_id),
                 log_number("term", cluster_term(server)));
    server->metrics.leader_changes += changed && leader != 0;
    server->metrics.leader_losses += changed && leader == 0;
    view->leader_id = leader;
    if (leader != 0)
        view->shut_out = NULL;
    if (view->members_version != cluster_version(server)) {
        view->members_version = cluster_version(server);
        cluster_tidy(server);
        changed = true;
    }
    if (changed || view->agreed_version != view->members_version)
        cluster_cut_off(server);
    view->said_new |= changed;
    sessions_look(&server->sessions, now_ms(server));
    if (view->said_new && server->sessions.role == REPLICA_LEADING)
        cluster_publish(server);
}

/* After the sockets had their say. */
static void on_round(uv_check_t *check)
{
    struct daemon *daemon = check->data;
    struct server *server = &daemon->server;
    int64_t next_us;
    bool all_shaken;

    look_at_cluster(server);
    if (!daemon->upkeep.has_log)
        note_log(daemon);
    if (server->client_poll.paused) {
        connection_write_all(server); /* so that those who are answered can go on meanwhile */
        client_poll_read(server);
    }
    all_shaken = tls_go_on(server);
    connections_go_on(server);
    sessions_leave(&server->sessions);
    backups_go_on(server);
    next_us = replicate(server);
    if (server->hand_over.is_over) {
        stop(daemon);
        return;
    }
    if (!all_shaken || !list_empty(&server->ready) || !list_empty(&server->sessions.leaving) ||
        backups_wanted(server))
        next_us = 0;
    sleep_until(daemon, next_us);
}

/* Nobody is served while the log is written. */
static void warn_of_slow_disk(struct daemon *daemon)
{
    struct upkeep *upkeep = &daemon->upkeep;
    struct node_disk_status status;

    node_disk_status(daemon->server.node, &status);
    if (status.longest_us < SLOW_WRITE_US || status.longest_us <= upkeep->warned_us)
        return;
    upkeep->warned_us = status.longest_us;
    log_warning("the disk was slow to take the log, and everybody waited for it",
                log_number("ms", (int64_t)(status.longest_us / 1000)));
}

/* With a snapshot the log before it goes out of memory, from between what is still in use: the C library keeps
 * the holes. Under load they are filled again; giving them back takes tens of milliseconds, and to have new memory takes
 * longer than the table takes for a command. So it waits until nobody has wanted anything for a while. */
static void give_back_memory(struct daemon *daemon)
{
    const struct server *server = &daemon->server;
    struct upkeep *upkeep = &daemon->upkeep;
    struct replica_status status;

    upkeep->quiet_s =
        server->sessions.commands == upkeep->commands_before ? upkeep->quiet_s + 1 : 0;
    upkeep->commands_before = server->sessions.commands;
    replica_status(server->replica, &status);
    if (upkeep->quiet_s < QUIET_S || status.snapshotting ||
        status.snapshots == upkeep->trimmed_after)
        return;
    upkeep->trimmed_after = status.snapshots;
    malloc_trim(0);
}

static void on_second(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;

    connections_close_idle(&daemon->server);
    backups_second(&daemon->server);
    warn_of_slow_disk(daemon);
    give_back_memory(daemon);
    metrics_second(&daemon->server.metrics);
    log_tick();
    audit_second();
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
    uv_close((uv_handle_t *)&daemon->timer, NULL);
    uv_close((uv_handle_t *)&daemon->spin, NULL);
    uv_close((uv_handle_t *)&daemon->round, NULL);
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
    admin_close(server);
    logins_close(server);
    bootstrap_close(server);
    adding_close(server);
    backups_drop(server);
    uv_check_stop(&daemon->round);
    uv_idle_stop(&daemon->spin);
    uv_timer_stop(&daemon->timer);
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
    uv_check_init(&daemon->loop, &daemon->round);
    daemon->round.data = daemon;
    uv_timer_init(&daemon->loop, &daemon->timer);
    uv_idle_init(&daemon->loop, &daemon->spin);
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
    uv_check_start(&daemon->round, on_round);
    uv_signal_start(&daemon->term, on_signal, SIGTERM);
    uv_signal_start(&daemon->interrupt, on_signal, SIGINT);
    uv_timer_start(&daemon->second, on_second, SECOND_MS, SECOND_MS);
    uv_idle_start(&daemon->spin, on_spin); /* the first round comes at once */
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
    metrics_open(&server->metrics);
    logins_open(server);
    tls_open(server);
    server->users = config->users;
    server->began_ms = (int64_t)uv_now(&daemon->loop);
    start_handles(daemon);
    log_info("starting", log_text("version", HOLDFAST_VERSION), log_text("data", config->data));
    if (config->password.is_short)
        log_warning("the password of clients is short, and can be guessed: " SECRET_ADVICE,
                    log_text("password_file", config->password_file));
    client_poll_open(server);
    result = audit_open(config->audit_file, &err);
    if (result == HF_OK)
        result = listening_open(server, &err);
    if (result == HF_OK)
        result = open_node(daemon, &err);
    if (result == HF_OK)
        result = admin_open(server, &err);
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
    config->users = NULL;
    users_free(server->users);
    config->tls = config->peer_context = NULL;
    tls_close(server);
    audit_close();
    free(daemon);
    return result;
}
