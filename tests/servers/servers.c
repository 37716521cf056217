#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_MAX_MS 30000   /* until a server that was asked to end is killed */
#define PORT_SEARCH_MAX 200 /* ports looked at until one is free */
#define PORT_MIN 12000      /* below live the servers that people know */
#define ARGUMENTS_MAX 64
#define LOG_SHOWN_MAX 4096
#define SOCKET_NAME "/redis.sock"

int64_t servers_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int servers_complain(const char *format, ...)
{
    int number = errno;
    va_list args;

    fprintf(stderr, "servers: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    errno = number;
    return -1;
}

bool servers_await(int fd, short events, int64_t deadline_ms)
{
    struct pollfd pollfd = {.fd = fd, .events = events};

    for (;;) {
        int64_t left_ms = deadline_ms - servers_now_ms();
        int ready = poll(&pollfd, 1, left_ms > 0 ? (int)left_ms : 0);

        if (ready > 0)
            return true;
        if (ready == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        if (errno != EINTR)
            return false;
    }
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int first_outgoing_port(void)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    char line[64] = "";
    long first;

    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    first = strtol(line, NULL, 10);
    return first > PORT_MIN + PORT_SEARCH_MAX && first < 65536 ? (int)first : 32768;
}

int free_port(void)
{
    int range = first_outgoing_port() - PORT_MIN;

    for (int i = 0; i < PORT_SEARCH_MAX; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        unsigned int random;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port, failed;

        if (fd < 0 || getrandom(&random, sizeof random, 0) != sizeof random)
            return servers_complain("no free port: %m");
        port = PORT_MIN + (int)(random % (unsigned int)range);
        address.sin_port = htons((uint16_t)port);
        failed = bind(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (!failed)
            return port;
    }
    return servers_complain("no free port in %d tries", PORT_SEARCH_MAX);
}

/* ---- processes ------------------------------------------------------------------------------- */

void servers_become_child(pid_t parent)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int servers_end_process(pid_t *pid, int lifeline, bool ask)
{
    int status = -1;

    if (*pid <= 0)
        return -1;
    if (ask) {
        char unread[256];
        int64_t deadline_ms = servers_now_ms() + STOP_MAX_MS;

        kill(*pid, SIGTERM);
        kill(*pid, SIGCONT); /* it may be paused */
        while (servers_await(lifeline, POLLIN, deadline_ms) &&
               read(lifeline, unread, sizeof unread) > 0)
            ;
    }
    kill(*pid, SIGKILL); /* nobody has waited for it: the number is still its own */
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(lifeline);
    *pid = 0;
    return status;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    return ftw->level == 0 ? 0 : remove(path);
}

void servers_empty_directory(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- Redis: starting and ending -------------------------------------------------------------- */

static void show_log(const struct redis_server *server, const char *name)
{
    char path[REDIS_DIR_MAX + 16], text[LOG_SHOWN_MAX];
    int fd;
    ssize_t size;

    snprintf(path, sizeof path, "%s/%s", server->dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size = read(fd, text, sizeof text);
    if (size > 0)
        fprintf(stderr, "---- %s\n%.*s", path, (int)size, text);
    close(fd);
}

/* The arguments, in memory of their own, because the child may not allocate any. */
struct arguments {
    char *argv[ARGUMENTS_MAX + 1];
    int argc;
    char port[16], log[REDIS_DIR_MAX + 16], output[REDIS_DIR_MAX + 16];
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

static void exec_redis(const struct arguments *arguments, int lifeline)
{
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
    pid_t parent = getpid();
    int ends[2];

    if (make_arguments(server, &arguments) < 0)
        return -1;
    unlink(server->socket); /* a killed one leaves it behind */
    if (pipe2(ends, O_CLOEXEC) < 0)
        return servers_complain("pipe: %m");
    fflush(NULL);
    server->lifeline = ends[0];
    server->pid = fork();
    if (server->pid == 0) {
        servers_become_child(parent);
        exec_redis(&arguments, ends[1]);
    }
    close(ends[1]);
    if (server->pid < 0) {
        server->pid = 0;
        close(ends[0]);
        return servers_complain("fork: %m");
    }
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

static int make_directory(struct redis_server *server)
{
    static const char name[] = "/redis.XXXXXX";
    const char *base = getenv("HOLDFAST_TEST_DIR");

    if (!base || strlen(base) + sizeof name > sizeof server->dir)
        base = "/tmp";
    snprintf(server->dir, sizeof server->dir, "%s%s", base, name);
    if (!mkdtemp(server->dir)) {
        servers_complain("%s: %m", server->dir);
        server->dir[0] = '\0';
        return -1;
    }
    snprintf(server->socket, sizeof server->socket, "%s%s", server->dir, SOCKET_NAME);
    return 0;
}

int redis_start(struct redis_server *server, const char *const *extra_args)
{
    int result = 1;

    *server = (struct redis_server){0};
    for (; extra_args && *extra_args; extra_args++) {
        size_t size = strlen(*extra_args) + 1;

        if (size > sizeof server->extra - server->extra_size)
            return servers_complain("the arguments for redis-server are too long");
        memcpy(server->extra + server->extra_size, *extra_args, size);
        server->extra_size += size;
    }
    if (make_directory(server) < 0)
        return -1;
    for (int i = 0; i < PORT_TRIES && result == 1; i++) {
        server->port = free_port();
        result = server->port < 0 ? -1 : launch(server);
    }
    if (result != 0) {
        servers_complain("redis-server does not start");
        show_log(server, "output");
        show_log(server, "log");
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
    show_log(server, "output");
    show_log(server, "log");
    return servers_complain("redis-server does not start again on port %d", server->port);
}

int redis_pause(struct redis_server *server)
{
    int status;

    if (server->pid <= 0 || kill(server->pid, SIGSTOP) < 0)
        return servers_complain("no Redis to pause");
    while (waitpid(server->pid, &status, WUNTRACED) < 0)
        if (errno != EINTR)
            return servers_complain("waitpid: %m");
    if (WIFSTOPPED(status))
        return 0;
    server->pid = 0; /* it has ended, and has just been waited for */
    close(server->lifeline);
    return servers_complain("the Redis to pause has ended");
}

int redis_resume(struct redis_server *server)
{
    if (server->pid <= 0 || kill(server->pid, SIGCONT) < 0)
        return servers_complain("no Redis to resume");
    return 0;
}

/* ---- the relay ------------------------------------------------------------------------------- */

static int next_line(struct relay *relay, char ret_line[RELAY_LINE_MAX])
{
    int64_t deadline_ms = servers_now_ms() + REPLY_MAX_MS;

    for (;;) {
        char *end = memchr(relay->unread, '\n', relay->unread_size);
        ssize_t got;

        if (end) {
            size_t size = (size_t)(end - relay->unread);

            memcpy(ret_line, relay->unread, size);
            ret_line[size] = '\0';
            relay->unread_size -= size + 1;
            memmove(relay->unread, end + 1, relay->unread_size);
            return 0;
        }
        if (!servers_await(relay->fd, POLLIN, deadline_ms))
            return servers_complain("the relay says nothing");
        got = read(relay->fd, relay->unread + relay->unread_size,
                   sizeof relay->unread - relay->unread_size);
        if (got == 0 || (got < 0 && errno != EINTR))
            return servers_complain("the relay has ended");
        relay->unread_size += got > 0 ? (size_t)got : 0;
    }
}

/* The number after the blank, which moves on behind it. */
static uint64_t next_number(char **at)
{
    return strtoull(*at, at, 10);
}

int relay_start(struct relay *relay, int upstream_port)
{
    const char *program = getenv("HF_RELAY");
    char upstream[32], line[RELAY_LINE_MAX];
    pid_t parent = getpid();
    int ends[2];

    *relay = (struct relay){0};
    if (!program)
        return servers_complain("HF_RELAY does not say where hf-relay is");
    snprintf(upstream, sizeof upstream, "127.0.0.1:%d", upstream_port);
    /* Not pipes: to write to a pipe that nobody reads is deadly. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return servers_complain("socketpair: %m");
    fflush(NULL);
    relay->fd = ends[0];
    relay->pid = fork();
    if (relay->pid == 0) {
        servers_become_child(parent);
        if (dup2(ends[1], 0) >= 0 && dup2(ends[1], 1) >= 0)
            execl(program, program, upstream, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (relay->pid < 0) {
        relay->pid = 0;
        close(ends[0]);
        return servers_complain("fork: %m");
    }
    if (next_line(relay, line) < 0 || strncmp(line, "port ", 5) != 0) {
        relay_stop(relay);
        return servers_complain("%s does not start", program);
    }
    relay->port = (int)strtol(line + 5, NULL, 10);
    return 0;
}

/* Says a line; what comes before the "ok" is the answer, or nothing. */
static int converse(struct relay *relay, const char *line, char ret_answer[RELAY_LINE_MAX])
{
    char said[RELAY_LINE_MAX], heard[RELAY_LINE_MAX];
    int size = snprintf(said, sizeof said, "%s\n", line);

    ret_answer[0] = '\0';
    if (size < 0 || (size_t)size >= sizeof said || relay->pid <= 0)
        return servers_complain("no relay for '%s'", line);
    if (send(relay->fd, said, (size_t)size, MSG_NOSIGNAL) != size)
        return servers_complain("the relay does not listen: %m");
    for (;;) {
        if (next_line(relay, heard) < 0)
            return -1;
        if (strcmp(heard, "ok") == 0)
            return 0;
        if (strncmp(heard, "error", 5) == 0)
            return servers_complain("the relay says '%s' to '%s'", heard, line);
        memcpy(ret_answer, heard, sizeof heard);
    }
}

int relay_say(struct relay *relay, const char *line)
{
    char answer[RELAY_LINE_MAX];

    return converse(relay, line, answer);
}

int relay_count(struct relay *relay, struct relay_counts *ret_counts)
{
    char answer[RELAY_LINE_MAX], *at = answer + 6;

    if (converse(relay, "count", answer) < 0)
        return -1;
    if (strncmp(answer, "count ", 6) != 0)
        return servers_complain("the relay says '%s' to 'count'", answer);
    ret_counts->connections = next_number(&at);
    ret_counts->up_bytes = next_number(&at);
    ret_counts->down_bytes = next_number(&at);
    ret_counts->up_chunks = next_number(&at);
    ret_counts->down_chunks = next_number(&at);
    return 0;
}

void relay_stop(struct relay *relay)
{
    servers_end_process(&relay->pid, relay->fd, true);
    *relay = (struct relay){0};
}
