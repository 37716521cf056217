/* redis.c: starting and ending a Redis. */
#include "inside.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

/* The arguments, in memory of their own, because the child may not allocate any. */
struct arguments {
    char *argv[ARGUMENTS_MAX + 1];
    int argc;
    char port[16], log[SERVER_DIR_MAX + 16], output[SERVER_DIR_MAX + 16];
};

static int add_argument(struct arguments *arguments, const char *text)
{
    if (arguments->argc == ARGUMENTS_MAX)
        return servers_complain("too many arguments for redis-server");
    arguments->argv[arguments->argc++] = (char *)(uintptr_t)text;
    arguments->argv[arguments->argc] = NULL;
    return 0;
}

static int make_arguments(const struct redis_server *server, struct arguments *arguments)
{
    const char *const fixed[] = {"redis-server",
                                 "--port",
                                 arguments->port,
                                 "--bind",
                                 "127.0.0.1",
                                 "--unixsocket",
                                 server->socket,
                                 "--dir",
                                 server->dir,
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--daemonize",
                                 "no",
                                 "--logfile",
                                 arguments->log,
                                 "--loglevel",
                                 "notice"};

    arguments->argc = 0;
    snprintf(arguments->port, sizeof arguments->port, "%d", server->port);
    snprintf(arguments->log, sizeof arguments->log, "%s/log", server->dir);
    snprintf(arguments->output, sizeof arguments->output, "%s/output", server->dir);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        add_argument(arguments, fixed[i]);
    for (size_t at = 0; at < server->extra_size; at += strlen(server->extra + at) + 1)
        if (add_argument(arguments, server->extra + at) < 0)
            return -1;
    return 0;
}

static void exec_redis(const void *given, int lifeline)
{
    const struct arguments *arguments = given;
    int output = open(arguments->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    /* It never reads its input, which makes that the place for the end of the pipe. */
    if (output < 0 || dup2(lifeline, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(1);
    execvp("redis-server", arguments->argv);
    execv("/usr/bin/redis-server", arguments->argv);
    _exit(127);
}

/* Does it answer, if only that it wants a password? It listens on its port before it listens on its
 * Unix socket. */
static bool answers(const struct redis_server *server)
{
    char reply[256];

    return servers_ask(server->socket, reply, sizeof reply, (const char *const[]){"PING", NULL}) >=
               0 &&
           strncmp(reply, "LOADING", 7) != 0;
}

/* Starts it and waits until it answers. 1: it ended instead. */
static int launch(struct redis_server *server)
{
    static struct arguments arguments;
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;

    if (make_arguments(server, &arguments) < 0)
        return -1;
    unlink(server->socket); /* a killed one leaves it behind */
    if (servers_spawn(&server->pid, &server->lifeline, exec_redis, &arguments) < 0)
        return -1;
    while (servers_now_ms() < deadline_ms) {
        if (answers(server))
            return 0;
        if (servers_await(server->lifeline, POLLIN, servers_now_ms() + KNOCK_EVERY_MS)) {
            servers_end_process(&server->pid, server->lifeline, false);
            return 1;
        }
    }
    servers_end_process(&server->pid, server->lifeline, false);
    return servers_complain("redis-server on port %d does not answer", server->port);
}

int redis_start(struct redis_server *server, const char *const *extra_args)
{
    int result = 1;

    *server = (struct redis_server){0};
    if (servers_keep_arguments(server->extra, &server->extra_size, extra_args) < 0 ||
        servers_make_directory("redis", server->dir) < 0)
        return -1;
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->dir);
    for (int i = 0; i < PORT_TRIES && result == 1; i++) {
        server->port = free_port();
        result = server->port < 0 ? -1 : launch(server);
    }
    if (result != 0) {
        servers_complain("redis-server does not start");
        servers_show_file(server->dir, "output");
        servers_show_file(server->dir, "log");
        redis_stop(server);
        return -1;
    }
    return 0;
}

void redis_stop(struct redis_server *server)
{
    servers_end_process(&server->pid, server->lifeline, true);
    if (server->dir[0]) {
        servers_empty_directory(server->dir);
        rmdir(server->dir);
    }
    *server = (struct redis_server){0};
}

void redis_kill9(struct redis_server *server)
{
    servers_end_process(&server->pid, server->lifeline, false);
}

int redis_restart(struct redis_server *server, bool keep_data)
{
    int result;

    if (!server->dir[0])
        return servers_complain("no Redis to restart");
    if (server->pid > 0 && keep_data) {
        char reply[256];

        if (redis_resume(server) < 0)
            return -1;
        if (REDIS_DO(server, reply, sizeof reply, "SAVE") != 0)
            return servers_complain("Redis does not save its data");
    }
    redis_kill9(server);
    if (!keep_data)
        servers_empty_directory(server->dir);
    result = launch(server);
    if (result == 0)
        return 0;
    servers_show_file(server->dir, "output");
    servers_show_file(server->dir, "log");
    return servers_complain("redis-server does not start again on port %d", server->port);
}

int redis_pause(struct redis_server *server)
{
    return servers_pause(&server->pid, server->lifeline);
}

int redis_resume(struct redis_server *server)
{
    if (server->pid <= 0 || kill(server->pid, SIGCONT) < 0)
        return servers_complain("no Redis to resume");
    return 0;
}

int redis_do(const struct redis_server *server, char *reply, size_t size, const char *const argv[])
{
    int result = servers_ask(server->socket, reply, size, argv);

    return result < 0 ? servers_complain("%s: no reply to %s: %m", server->socket, argv[0])
                      : result;
}
