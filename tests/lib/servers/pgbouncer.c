/* pgbouncer.c: a pooler before PostgreSQL, in transaction mode. */
#include "postgres.h"

#include "postgres_inside.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct arguments {
    char config[SERVER_DIR_MAX + 32], output[SERVER_DIR_MAX + 16];
    struct server_user user;
};

static void become_pgbouncer(const void *context, int lifeline)
{
    const struct arguments *arguments = context;
    int output = open(arguments->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (output < 0 || dup2(lifeline, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0 ||
        chdir("/") < 0)
        _exit(1);
    postgres_become_user(&arguments->user, SIGKILL);
    execlp("pgbouncer", "pgbouncer", arguments->config, (char *)NULL);
    execl("/usr/sbin/pgbouncer", "pgbouncer", arguments->config, (char *)NULL);
    _exit(127);
}

static int configure(const struct pgbouncer *bouncer, int server_port, const char *extra,
                     const char *path)
{
    FILE *file = fopen(path, "we");

    if (!file)
        return servers_complain("%s: %m", path);
    /* Who is not in a list of users is looked for in the server. */
    fprintf(file,
            "[databases]\n* = host=127.0.0.1 port=%d auth_user=postgres\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
            "auth_type = trust\nadmin_users = postgres\npool_mode = transaction\n"
            "max_client_conn = 1000\ndefault_pool_size = 20\n%s\n",
            server_port, bouncer->port, extra);
    return fclose(file) == 0 ? 0 : servers_complain("%s: %m", path);
}

static bool accepts(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool accepted = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;

    if (fd >= 0)
        close(fd);
    return accepted;
}

static int try_to_start(struct pgbouncer *bouncer, int server_port, const char *extra)
{
    struct arguments arguments = {.user = postgres_user()};
    int64_t deadline_ms = servers_now_ms() + START_MAX_MS;

    *bouncer = (struct pgbouncer){.port = free_port()};
    if (bouncer->port < 0 || postgres_make_directory("pgbouncer", bouncer->dir) < 0)
        return -1;
    snprintf(arguments.config, sizeof arguments.config, "%s/pgbouncer.ini", bouncer->dir);
    snprintf(arguments.output, sizeof arguments.output, "%s/output", bouncer->dir);
    if (configure(bouncer, server_port, extra, arguments.config) < 0 ||
        servers_spawn(&bouncer->pid, &bouncer->lifeline, become_pgbouncer, &arguments) < 0)
        return -1;
    while (!accepts(bouncer->port))
        if (servers_await(bouncer->lifeline, POLLIN, servers_now_ms() + KNOCK_EVERY_MS) ||
            servers_now_ms() > deadline_ms) {
            servers_show_file(bouncer->dir, "output");
            return -1;
        }
    return 0;
}

int pgbouncer_start(struct pgbouncer *bouncer, int server_port, const char *extra)
{
    for (int try = 0; try < PORT_TRIES; try++) {
        if (try_to_start(bouncer, server_port, extra) == 0)
            return 0;
        pgbouncer_stop(bouncer);
    }
    return servers_complain("pgbouncer does not start");
}

void pgbouncer_stop(struct pgbouncer *bouncer)
{
    servers_end_process(&bouncer->pid, bouncer->lifeline, false);
    if (bouncer->dir[0]) {
        servers_empty_directory(bouncer->dir);
        rmdir(bouncer->dir);
    }
    *bouncer = (struct pgbouncer){0};
}
