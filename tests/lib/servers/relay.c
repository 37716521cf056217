/* relay.c: starting, ending and commanding hf-relay (hf_relay.c). */
#include "inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
