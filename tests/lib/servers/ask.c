/* ask.c: one command to a server that speaks RESP, for assertions. RESP2, and no code of src/: a test that asks with
 * what it tests would believe its mistakes. */
#include "inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024     /* of an integer, a status or an error */
#define ITEMS_MAX (1024 * 1024) /* of all arrays of one reply */

/* A connection while its reply is read. */
struct wire {
    int fd;
    int64_t deadline_ms;
    size_t at, end;
    char bytes[4096];
};

/* Where the reply goes. */
struct output {
    char *text;
    size_t size, used;
};

static int wire_open(struct wire *wire, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    wire->at = wire->end = 0;
    wire->deadline_ms = servers_now_ms() + REPLY_MAX_MS;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    wire->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (wire->fd < 0)
        return -1;
    if (connect(wire->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(wire->fd);
        return -1;
    }
    return 0;
}

static int wire_send(struct wire *wire, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t sent = send(wire->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (sent < 0 && !servers_await(wire->fd, POLLOUT, wire->deadline_ms))
            return -1;
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        }
    }
    return 0;
}

static int broken(void)
{
    errno = EPROTO;
    return -1;
}

/* The next byte, or -1. */
static int wire_byte(struct wire *wire)
{
    while (wire->at == wire->end) {
        ssize_t got;

        if (!servers_await(wire->fd, POLLIN, wire->deadline_ms))
            return -1;
        got = recv(wire->fd, wire->bytes, sizeof wire->bytes, MSG_DONTWAIT);
        if (got == 0)
            errno = ECONNRESET;
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        wire->at = 0;
        wire->end = got > 0 ? (size_t)got : 0;
    }
    return (unsigned char)wire->bytes[wire->at++];
}

static int wire_line(struct wire *wire, char ret_line[LINE_MAX_BYTES])
{
    for (size_t size = 0; size < LINE_MAX_BYTES; size++) {
        int byte = wire_byte(wire);

        if (byte < 0)
            return -1;
        if (byte == '\r') {
            ret_line[size] = '\0';
            return wire_byte(wire) == '\n' ? 0 : broken();
        }
        ret_line[size] = (char)byte;
    }
    errno = EMSGSIZE;
    return -1;
}

static int put(struct output *output, char byte)
{
    if (!output->text)
        return 0;
    if (output->used + 1 >= output->size) {
        errno = EMSGSIZE;
        return -1;
    }
    output->text[output->used++] = byte;
    output->text[output->used] = '\0';
    return 0;
}

static int copy_blob(struct wire *wire, long long size, struct output *output)
{
    for (; size > 0; size--) {
        int byte = wire_byte(wire);

        if (byte < 0 || put(output, (char)byte) < 0)
            return -1;
    }
    if (wire_byte(wire) != '\r')
        return broken();
    return wire_byte(wire) == '\n' ? 0 : broken();
}

/* Arrays need no stack: one of n items is n values more to come. 1: an error. */
static int read_reply(struct wire *wire, struct output *output)
{
    long long left = 1;
    bool first = true, in_array = false, is_error = false;

    for (; left > 0; left--) {
        char line[LINE_MAX_BYTES];
        long long number;

        if (wire_line(wire, line) < 0)
            return -1;
        number = strtoll(line + 1, NULL, 10);
        if (line[0] == '*') {
            if (number > ITEMS_MAX - left)
                return broken();
            in_array = true;
            left += number > 0 ? number : 0;
            if (number >= 0)
                continue;
        }
        if (!first && put(output, '\n') < 0)
            return -1;
        is_error = !in_array && line[0] == '-';
        first = false;
        if (line[0] == '$' && number >= 0 && copy_blob(wire, number, output) < 0)
            return -1;
        if (line[0] == '+' || line[0] == '-' || line[0] == ':')
            for (const char *at = line + 1; *at; at++)
                if (put(output, *at) < 0)
                    return -1;
    }
    return is_error ? 1 : 0;
}

static int send_command(struct wire *wire, const char *const argv[])
{
    size_t count = 0;
    char line[32];

    while (argv[count])
        count++;
    snprintf(line, sizeof line, "*%zu\r\n", count);
    if (wire_send(wire, line, strlen(line)) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "$%zu\r\n", strlen(argv[i]));
        if (wire_send(wire, line, strlen(line)) < 0 ||
            wire_send(wire, argv[i], strlen(argv[i])) < 0 || wire_send(wire, "\r\n", 2) < 0)
            return -1;
    }
    return 0;
}

int servers_ask(const char *path, char *reply, size_t size, const char *const argv[])
{
    struct output output = {.text = size > 0 ? reply : NULL, .size = size};
    struct wire wire;
    int result, number;

    if (output.text)
        output.text[0] = '\0';
    if (wire_open(&wire, path) < 0)
        return -1;
    result = send_command(&wire, argv);
    if (result == 0)
        result = read_reply(&wire, &output);
    number = errno;
    close(wire.fd);
    errno = number;
    return result;
}
