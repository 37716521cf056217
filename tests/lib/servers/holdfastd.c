/* holdfastd.c: starting and ending a lock server of our own, like a Redis. */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32

/* The arguments, in memory of their own, because the child may not allocate any. */
struct arguments {
    char *argv[ARGUMENTS_MAX + 1];
    char listen[36 + SERVER_SOCKET_MAX], data[SERVER_DIR_MAX + 16], log[SERVER_DIR_MAX + 16];
};

void holdfastd_show_log(const struct holdfastd *server)
{
    servers_show_file(server->dir, "log");
}

/* With a certificate it speaks TLS at its port, and only its unix socket is in the clear. */
static bool speaks_tls(const struct holdfastd *server)
{
    for (size_t at = 0; at < server->extra_size; at += strlen(server->extra + at) + 1)
        if (strcmp(server->extra + at, "--tls-cert") == 0)
            return true;
    return false;
}

static int make_arguments(const struct holdfastd *server, const char *program,
                          struct arguments *arguments)
{
    const char *const fixed[] = {program,         "--listen", arguments->listen, "--data",
                                 arguments->data, "--config", "/dev/null"};
    int count = 0;

    snprintf(arguments->listen, sizeof arguments->listen, "%s127.0.0.1:%d,unix:%s",
             speaks_tls(server) ? "tls:" : "", server->port, server->socket);
    snprintf(arguments->data, sizeof arguments->data, "%s/data", server->dir);
    snprintf(arguments->log, sizeof arguments->log, "%s/log", server->dir);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        arguments->argv[count++] = (char *)(uintptr_t)fixed[i];
    for (size_t at = 0; at < server->extra_size; at += strlen(server->extra + at) + 1) {
        if (count == ARGUMENTS_MAX)
            return servers_complain("too many arguments for holdfastd");
        arguments->argv[count++] = (char *)(uintptr_t)(server->extra + at);
    }
    arguments->argv[count] = NULL;
    return 0;
}

static void exec_server(const void *given, int lifeline)
{
    const struct arguments *arguments = given;
    int log = open(arguments->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (log < 0 || dup2(lifeline, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(1);
    setenv("HOLDFASTD_ALLOW", "tmpfs", 1); /* what tests leave behind is of no use */
    execv(arguments->argv[0], arguments->argv);
    _exit(127);
}

bool holdfastd_serves(const struct holdfastd *server)
{
    char reply[256];

    return servers_ask(server->socket, reply, sizeof reply,
                       (const char *const[]){"CHECK", "ready", "1", NULL}) >= 0 &&
           strncmp(reply, "TRYAGAIN", 8) != 0;
}

int holdfastd_begin_again(struct holdfastd *server)
{
    static struct arguments arguments;
    const char *program = getenv("HF_HOLDFASTD");

    holdfastd_kill9(server);
    if (!program)
        return servers_complain("HF_HOLDFASTD does not say where holdfastd is");
    if (make_arguments(server, program, &arguments) < 0)
        return -1;
    return servers_spawn(&server->pid, &server->lifeline, exec_server, &arguments);
}

/* Starts it and waits until it serves. 1: it ended instead. */
static int launch(struct holdfastd *server)
{
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;

    if (holdfastd_begin_again(server) < 0)
        return -1;
    while (servers_now_ms() < deadline_ms) {
        if (holdfastd_serves(server))
            return 0;
        if (servers_await(server->lifeline, POLLIN, servers_now_ms() + KNOCK_EVERY_MS)) {
            holdfastd_kill9(server);
            return 1;
        }
    }
    holdfastd_kill9(server);
    return servers_complain("holdfastd on port %d does not serve", server->port);
}

int holdfastd_prepare(struct holdfastd *server, const char *const *extra_args)
{
    *server = (struct holdfastd){0};
    if (servers_keep_arguments(server->extra, &server->extra_size, extra_args) < 0 ||
        servers_make_directory("holdfastd", server->dir) < 0)
        return -1;
    snprintf(server->socket, sizeof server->socket, "%s/sock", server->dir);
    return 0;
}

int holdfastd_start(struct holdfastd *server, const char *const *extra_args)
{
    int result = 1;

    if (holdfastd_prepare(server, extra_args) < 0)
        return -1;
    for (int i = 0; i < PORT_TRIES && result == 1; i++) {
        server->port = free_port();
        result = server->port < 0 ? -1 : launch(server);
    }
    if (result != 0) {
        servers_complain("holdfastd does not start");
        holdfastd_show_log(server);
        holdfastd_stop(server);
        return -1;
    }
    return 0;
}

void holdfastd_kill9(struct holdfastd *server)
{
    servers_end_process(&server->pid, server->lifeline, false);
    server->paused = false;
}

int holdfastd_terminate(struct holdfastd *server)
{
    server->paused = false;
    return servers_end_process(&server->pid, server->lifeline, true);
}

void holdfastd_stop(struct holdfastd *server)
{
    holdfastd_kill9(server);
    if (server->dir[0]) {
        servers_empty_directory(server->dir);
        rmdir(server->dir);
    }
    *server = (struct holdfastd){0};
}

int holdfastd_restart(struct holdfastd *server)
{
    if (!server->dir[0])
        return servers_complain("no holdfastd to restart");
    if (launch(server) == 0)
        return 0;
    holdfastd_show_log(server);
    return servers_complain("holdfastd does not start again on port %d", server->port);
}

int holdfastd_pause(struct holdfastd *server)
{
    int result = servers_pause(&server->pid, server->lifeline);

    server->paused = result == 0;
    return result;
}

int holdfastd_resume(struct holdfastd *server)
{
    if (server->pid <= 0 || kill(server->pid, SIGCONT) < 0)
        return servers_complain("no holdfastd to resume");
    server->paused = false;
    return 0;
}

int holdfastd_do(const struct holdfastd *server, char *reply, size_t size, const char *const argv[])
{
    int result = servers_ask(server->socket, reply, size, argv);

    return result < 0 ? servers_complain("%s: no reply to %s: %m", server->socket, argv[0])
                      : result;
}
