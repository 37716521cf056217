/* servers.c: what starting and ending is for every kind of server. */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_MAX_MS 30000   /* until a server that was asked to end is killed */
#define PORT_SEARCH_MAX 200 /* ports looked at until one is free */
#define PORT_MIN 12000      /* below live the servers that people know */
#define LOG_SHOWN_MAX 4096

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

/* A socket that is bound there, or -1. */
static int bound(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, address, size) == 0)
        return fd;
    close(fd);
    return -1;
}

/* What says so is a name without a file, which the kernel takes away with this process: its socket stays open until then. */
static bool reserve_port(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un mark = {.sun_family = AF_UNIX};
    int length =
        snprintf(mark.sun_path + 1, sizeof mark.sun_path - 1, "holdfast-test-port-%d", port);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int reserved = bound(AF_UNIX, &mark, size);
    int free_now = reserved < 0 ? -1 : bound(AF_INET, &address, sizeof address);

    if (free_now >= 0)
        close(free_now);
    else if (reserved >= 0)
        close(reserved);
    return free_now >= 0;
}

int free_port(void)
{
    int range = first_outgoing_port() - PORT_MIN;

    for (int i = 0; i < PORT_SEARCH_MAX; i++) {
        unsigned int random;
        int port;

        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return servers_complain("no free port: %m");
        port = PORT_MIN + (int)(random % (unsigned int)range);
        if (reserve_port(port))
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

int servers_pause(pid_t *pid, int lifeline)
{
    int status;

    if (*pid <= 0 || kill(*pid, SIGSTOP) < 0)
        return servers_complain("no server to pause");
    while (waitpid(*pid, &status, WUNTRACED) < 0)
        if (errno != EINTR)
            return servers_complain("waitpid: %m");
    if (WIFSTOPPED(status))
        return 0;
    *pid = 0; /* it has ended, and has just been waited for */
    close(lifeline);
    return servers_complain("the server to pause has ended");
}

int servers_spawn(pid_t *ret_pid, int *ret_lifeline,
                  void (*become)(const void *arguments, int lifeline), const void *arguments)
{
    pid_t parent = getpid(), pid;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return servers_complain("pipe: %m");
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        servers_become_child(parent);
        become(arguments, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return servers_complain("fork: %m");
    }
    *ret_pid = pid;
    *ret_lifeline = ends[0];
    return 0;
}

/* ---- what they are started with -------------------------------------------------------------- */

int servers_make_directory(const char *name, char ret_dir[SERVER_DIR_MAX])
{
    const char *base = getenv("HOLDFAST_TEST_DIR");

    if (!base || strlen(base) + strlen(name) + sizeof "/.XXXXXX" > SERVER_DIR_MAX)
        base = "/tmp";
    snprintf(ret_dir, SERVER_DIR_MAX, "%s/%s.XXXXXX", base, name);
    if (mkdtemp(ret_dir))
        return 0;
    servers_complain("%s: %m", ret_dir);
    ret_dir[0] = '\0';
    return -1;
}

int servers_keep_arguments(char ret_extra[SERVER_EXTRA_MAX], size_t *ret_size,
                           const char *const *extra_args)
{
    size_t used = 0;

    for (; extra_args && *extra_args; extra_args++) {
        size_t size = strlen(*extra_args) + 1;

        if (size > SERVER_EXTRA_MAX - used)
            return servers_complain("the arguments are too long, from %s on", *extra_args);
        memcpy(ret_extra + used, *extra_args, size);
        used += size;
    }
    *ret_size = used;
    return 0;
}

void servers_show_file(const char *dir, const char *name)
{
    char path[SERVER_DIR_MAX + 16], text[LOG_SHOWN_MAX];
    ssize_t size;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size = read(fd, text, sizeof text);
    if (size > 0)
        fprintf(stderr, "---- %s\n%.*s", path, (int)size, text);
    close(fd);
}
