/* postgres.c: PostgreSQL, run by hand: Debian's scripts want a system of their own. */
#include "postgres.h"

#include "postgres_inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define SERVE_MAX_MS 60000 /* what was committed before a crash is done again first */
#define GONE_MAX_MS 10000  /* until the processes of a killed postmaster have noticed */
#define STATUS_LINE 8      /* of postmaster.pid: how far it has come, as pg_ctl reads it */
#define SHARED_LINE 7      /* key and number of its System V segment */

/* ---- postmaster.pid -------------------------------------------------------------------------- */

/* A line of it, counted from 1, without its newline. -1: there is none. */
static int read_pid_file(const struct postgres *server, int line, char *ret_text, size_t size)
{
    char path[SERVER_DIR_MAX + 32];
    FILE *file;
    int at = 0;

    snprintf(path, sizeof path, "%s/data/postmaster.pid", server->dir);
    file = fopen(path, "re");
    if (!file)
        return -1;
    while (at < line && fgets(ret_text, (int)size, file))
        at++;
    fclose(file);
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return at == line ? 0 : -1;
}

static bool is_serving(const struct postgres *server)
{
    char text[256];

    /* The file of a server that was killed lies there until the next has taken its place. */
    if (read_pid_file(server, 1, text, sizeof text) < 0 || strtol(text, NULL, 10) != server->pid)
        return false;
    return read_pid_file(server, STATUS_LINE, text, sizeof text) == 0 &&
           (strncmp(text, "ready", 5) == 0 || strncmp(text, "standby", 7) == 0);
}

/* A killed postmaster leaves a System V segment of some bytes behind, which would outlive all tests. */
static void remove_segment(const struct postgres *server)
{
    char text[256];
    const char *number;

    if (read_pid_file(server, SHARED_LINE, text, sizeof text) < 0)
        return;
    number = strrchr(text, ' ');
    if (number)
        shmctl((int)strtol(number, NULL, 10), IPC_RMID, NULL);
}

/* ---- starting -------------------------------------------------------------------------------- */

struct arguments {
    char program[PROGRAM_MAX];
    char data[SERVER_DIR_MAX + 16], port[16], output[SERVER_DIR_MAX + 16];
    const char *argv[ARGUMENTS_MAX];
    struct server_user user;
};

static void become_postgres(const void *context, int lifeline)
{
    const struct arguments *arguments = context;
    int output = open(arguments->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (output < 0 || dup2(lifeline, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0 ||
        chdir("/") < 0)
        _exit(1);
    /* By SIGQUIT its processes end with it, and leave nothing behind. */
    postgres_become_user(&arguments->user, SIGQUIT);
    execv(arguments->program, (char *const *)(uintptr_t)arguments->argv);
    _exit(127);
}

static int spawn(struct postgres *server)
{
    static struct arguments arguments;
    const char **at = arguments.argv;

    arguments.user = postgres_user();
    postgres_program("postgres", arguments.program);
    snprintf(arguments.data, sizeof arguments.data, "%s/data", server->dir);
    snprintf(arguments.port, sizeof arguments.port, "%d", server->port);
    snprintf(arguments.output, sizeof arguments.output, "%s/output", server->dir);
    *at++ = arguments.program; /* by which it finds the rest of its files */
    *at++ = "-D";
    *at++ = arguments.data;
    *at++ = "-p";
    *at++ = arguments.port;
    *at++ = "-k";
    *at++ = server->dir;
    *at++ = "-clisten_addresses=127.0.0.1";
    *at++ = "-cmax_connections=200";
    *at++ = "-cdynamic_shared_memory_type=mmap"; /* in its directory, which goes in any case */
    for (const char *extra = server->extra; extra < server->extra + server->extra_size;
         extra += strlen(extra) + 1) {
        if (at == arguments.argv + ARGUMENTS_MAX - 1)
            return servers_complain("too many arguments for a PostgreSQL");
        *at++ = extra;
    }
    *at = NULL;
    return servers_spawn(&server->pid, &server->lifeline, become_postgres, &arguments);
}

static int serve(struct postgres *server)
{
    int64_t deadline_ms = servers_now_ms() + SERVE_MAX_MS;

    if (spawn(server) < 0)
        return -1;
    while (!is_serving(server)) {
        if (servers_await(server->lifeline, POLLIN, servers_now_ms() + KNOCK_EVERY_MS) ||
            servers_now_ms() > deadline_ms) {
            servers_show_file(server->dir, "output");
            servers_end_process(&server->pid, server->lifeline, false);
            return servers_complain("PostgreSQL on port %d does not start", server->port);
        }
    }
    return 0;
}

/* `fill` makes its data. */
static int start(struct postgres *server, const char *const *extra_args,
                 int (*fill)(const char *dir, const void *context), const void *context)
{
    for (int try = 0; try < PORT_TRIES; try++) {
        *server = (struct postgres){.port = free_port()};
        if (server->port < 0 || postgres_make_directory("postgres", server->dir) < 0)
            return -1;
        if (fill(server->dir, context) == 0 &&
            servers_keep_arguments(server->extra, &server->extra_size, extra_args) == 0 &&
            serve(server) == 0)
            return 0;
        postgres_stop(server);
    }
    return servers_complain("PostgreSQL does not start");
}

static int fill_by_copy(const char *dir, const void *context)
{
    (void)context;
    return postgres_copy_template(dir);
}

static int fill_by_initdb(const char *dir, const void *context)
{
    (void)context;
    return postgres_initdb(dir);
}

int postgres_start(struct postgres *server, const char *const *extra_args)
{
    return start(server, extra_args, fill_by_copy, NULL);
}

int postgres_start_fresh(struct postgres *server, const char *const *extra_args)
{
    return start(server, extra_args, fill_by_initdb, NULL);
}

struct primary {
    int port;
    const char *name;
};

static int fill_by_backup(const char *dir, const void *context)
{
    const struct primary *primary = context;

    return postgres_backup(dir, primary->port, primary->name);
}

int postgres_start_replica(struct postgres *replica, int primary_port, const char *name,
                           const char *const *extra_args)
{
    return start(replica, extra_args, fill_by_backup, &(struct primary){primary_port, name});
}

int postgres_promote(struct postgres *replica)
{
    return postgres_do(replica, "SELECT 1 / pg_promote(true, 60)::int", NULL, 0);
}

/* ---- its processes --------------------------------------------------------------------------- */

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    FILE *file;
    const char *at;
    size_t size;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return -1;
    size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    at = strrchr(text, ')'); /* "1234 (its name) S 1 ...": a name may be anything */
    return at && strlen(at) > 4 ? (pid_t)strtol(at + 4, NULL, 10) : -1;
}

/* Sends it to each process of a postmaster that is stopped, so that no others come. */
static void signal_children(pid_t postmaster, int signal_number)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 0 && parent_of(pid) == postmaster)
            kill(pid, signal_number);
    }
    if (dir)
        closedir(dir);
}

int postgres_pause(struct postgres *server)
{
    if (servers_pause(&server->pid, server->lifeline) < 0)
        return -1;
    signal_children(server->pid, SIGSTOP);
    server->paused = true;
    return 0;
}

int postgres_resume(struct postgres *server)
{
    server->paused = false;
    if (server->pid <= 0)
        return servers_complain("no PostgreSQL to resume");
    signal_children(server->pid, SIGCONT);
    return kill(server->pid, SIGCONT);
}

static void await_end(int lifeline)
{
    char unread[64];
    int64_t deadline_ms = servers_now_ms() + GONE_MAX_MS;

    while (servers_await(lifeline, POLLIN, deadline_ms) &&
           read(lifeline, unread, sizeof unread) > 0)
        ;
}

void postgres_kill9(struct postgres *server)
{
    int lifeline;

    if (server->pid <= 0)
        return;
    if (!server->paused && servers_pause(&server->pid, server->lifeline) < 0)
        return;
    signal_children(server->pid, SIGKILL);
    lifeline = fcntl(server->lifeline, F_DUPFD_CLOEXEC, 0);
    servers_end_process(&server->pid, server->lifeline, false);
    server->paused = false;
    if (lifeline < 0)
        return;
    await_end(lifeline);
    close(lifeline);
}

/* SIGINT: fast. SIGQUIT: immediate. */
static void end_by(struct postgres *server, int signal_number)
{
    if (server->pid <= 0)
        return;
    if (server->paused)
        postgres_resume(server);
    kill(server->pid, signal_number);
    await_end(server->lifeline);
    servers_end_process(&server->pid, server->lifeline, false);
}

void postgres_shut_down(struct postgres *server)
{
    end_by(server, SIGINT);
}

int postgres_restart(struct postgres *server)
{
    postgres_shut_down(server);
    return serve(server);
}

void postgres_stop(struct postgres *server)
{
    end_by(server, SIGQUIT);
    if (server->dir[0]) {
        remove_segment(server);
        servers_empty_directory(server->dir);
        rmdir(server->dir);
    }
    *server = (struct postgres){0};
}

int postgres_do(const struct postgres *server, const char *statement, char *reply, size_t size)
{
    char program[PROGRAM_MAX], port[16], ignored[256];

    postgres_program("psql", program);
    snprintf(port, sizeof port, "%d", server->port);
    return postgres_run((const char *const[]){program, "-XAtq", "-v", "ON_ERROR_STOP=1", "-h",
                                              server->dir, "-p", port, "-U", "postgres", "-c",
                                              statement, NULL},
                        reply ? reply : ignored, reply ? size : sizeof ignored);
}
