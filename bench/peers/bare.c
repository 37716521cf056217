/* bare.c: the least that a cycle can cost. Requests that somebody else has put together are sent over plain sockets, each when the one before
 * was answered, and nothing is done but to see where an answer ends, and that it is no refusal.
 *
 *     bench-bare SECONDS WARM_SECONDS <SCRIPT
 *
 * bare_requests.py writes the script, a word and its value on each line:
 *
 *     framing resp | http | zookeeper | postgres | files
 *     client                   what follows belongs to this one: a thread with connections of its own
 *     connect PORT             on this machine; several: every request goes to all of them, and all answers are awaited
 *     setup HEX                said once, whatever the answer
 *     cycle HEX                said again and again; sixteen zeros in it become the sixteen digits of the answer before: a token
 *     path FILE                files: opened, locked, unlocked and closed instead
 *
 * It prints an object of JSON. */
#include "measure.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS_MAX 1024
#define CONNECTIONS_MAX 8
#define MESSAGES_MAX 8
#define ANSWER_MAX 65536
#define TIMES_MAX (1 << 17) /* of each client; more are not kept */
#define TOKEN_DIGITS 16

struct message {
    char *bytes;
    size_t size;
    char *token; /* where the token of the answer before goes; or NULL */
};

struct client {
    int fds[CONNECTIONS_MAX], fd_count;
    struct message cycle[MESSAGES_MAX];
    int cycle_count;
    char *path;
    char answer[ANSWER_MAX];
    size_t answer_size;
    uint64_t cycles, failures;
    float *times_us; /* until the first request of a cycle was answered */
    size_t times;
    pthread_t thread;
};

enum framing { RESP, HTTP, ZOOKEEPER, POSTGRES, FILES };

static enum framing framing;
static struct client *clients[CLIENTS_MAX];
static int client_count;
static _Atomic bool is_measuring, is_over;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "bench-bare: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *must(void *allocated)
{
    if (!allocated)
        die("memory");
    return allocated;
}

/* ---- where an answer ends -------------------------------------------------------------------- */

/* All of these: 1, it is all there; 0, it goes on; -1, it is a refusal, and all there. */
static int resp_end(const char *bytes, size_t size)
{
    size_t at = 0;
    long left = 1;

    while (left > 0) {
        const char *end = memchr(bytes + at, '\n', size - at);
        long number;

        if (!end)
            return 0;
        if (bytes[at] == '-')
            return -1;
        number = strtol(bytes + at + 1, NULL, 10);
        if (at == 0 && strchr(":$*", bytes[at]) && (number == -1 || bytes[1] == '0'))
            return -1; /* nothing, or nothing done */
        left--;
        if (bytes[at] == '*')
            left += number;
        if (bytes[at] == '$')
            end += number + 2;
        at = (size_t)(end - bytes) + 1;
        if (at > size)
            return 0;
    }
    return 1;
}

static int http_end(char *bytes, size_t size)
{
    const char *head, *length;

    bytes[size] = '\0';
    head = strstr(bytes, "\r\n\r\n");
    if (!head)
        return 0;
    length = strcasestr(bytes, "content-length:");
    if (!length || length > head) { /* in chunks */
        if (size < 5 || memcmp(bytes + size - 5, "0\r\n\r\n", 5) != 0)
            return 0;
    } else if (size < (size_t)(head - bytes) + 4 + strtoul(length + 15, NULL, 10)) {
        return 0;
    }
    return strstr(bytes, " 200 ") == bytes + 8 ? 1 : -1;
}

static uint32_t number_at(const char *bytes)
{
    uint32_t number;

    memcpy(&number, bytes, sizeof number);
    return ntohl(number);
}

#define ZOOKEEPER_ERROR \
    16 /* behind the length, the number of the request, and that of the last change */

static int zookeeper_end(const char *bytes, size_t size)
{
    if (size < 4 || size < 4 + (size_t)number_at(bytes))
        return 0;
    return size >= ZOOKEEPER_ERROR + 4 && number_at(bytes + ZOOKEEPER_ERROR) == 0 ? 1 : -1;
}

static int postgres_end(const char *bytes, size_t size)
{
    int found = 1;

    for (size_t at = 0; at + 5 <= size; at += 1 + (size_t)number_at(bytes + at + 1)) {
        if (bytes[at] == 'E')
            found = -1;
        if (bytes[at] == 'Z')
            return found;
    }
    return 0;
}

static int answer_end(char *bytes, size_t size)
{
    switch (framing) {
    case RESP:
        return resp_end(bytes, size);
    case HTTP:
        return http_end(bytes, size);
    case ZOOKEEPER:
        return zookeeper_end(bytes, size);
    default:
        return postgres_end(bytes, size);
    }
}

/* ---- one client ------------------------------------------------------------------------------ */

static void say(int fd, const struct message *message)
{
    size_t sent = 0;

    while (sent < message->size) {
        ssize_t count = send(fd, message->bytes + sent, message->size - sent, MSG_NOSIGNAL);

        if (count < 0)
            die("send");
        sent += (size_t)count;
    }
}

static int hear(struct client *client, int fd)
{
    size_t size = 0;
    int found = 0;

    while (found == 0) {
        ssize_t count =
            size < ANSWER_MAX - 1 ? recv(fd, client->answer + size, ANSWER_MAX - 1 - size, 0) : 0;

        if (count <= 0)
            die("the server has gone, or says too much");
        size += (size_t)count;
        found = answer_end(client->answer, size);
    }
    client->answer_size = size;
    return found;
}

static void put_token(const struct client *client, const struct message *message)
{
    size_t digits = 0;

    for (size_t i = 0; i < client->answer_size; i++) {
        digits = isdigit((unsigned char)client->answer[i]) ? digits + 1 : 0;
        if (digits == TOKEN_DIGITS) {
            memcpy(message->token, client->answer + i + 1 - TOKEN_DIGITS, TOKEN_DIGITS);
            return;
        }
    }
}

static int ask_all(struct client *client, const struct message *message)
{
    int found = 1;

    if (message->token)
        put_token(client, message);
    for (int i = 0; i < client->fd_count; i++)
        say(client->fds[i], message);
    for (int i = 0; i < client->fd_count; i++)
        if (hear(client, client->fds[i]) < 0)
            found = -1;
    return found;
}

static int lock_file(const struct client *client)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(client->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), failed;

    if (fd < 0)
        die(client->path);
    failed = fcntl(fd, F_OFD_SETLK, &range);
    range.l_type = F_UNLCK;
    failed |= fcntl(fd, F_OFD_SETLK, &range);
    close(fd);
    return failed ? -1 : 1;
}

static void *work(void *arg)
{
    struct client *client = arg;

    while (!is_over) {
        bool counts = is_measuring;
        int64_t began_ns = measure_now_ns(), had_ns = 0;
        int found = framing == FILES ? lock_file(client) : 1;

        for (int i = 0; i < client->cycle_count && found > 0; i++) {
            found = ask_all(client, &client->cycle[i]);
            if (i == 0)
                had_ns = measure_now_ns();
        }
        if (!counts || is_over)
            continue;
        if (found < 0) {
            client->failures++;
            continue;
        }
        client->cycles++;
        if (client->times < TIMES_MAX)
            client->times_us[client->times++] =
                (float)((had_ns ? had_ns : measure_now_ns()) - began_ns) / 1e3F;
    }
    return NULL;
}

/* ---- the script ------------------------------------------------------------------------------ */

static struct message read_hex(const char *hex)
{
    struct message message = {.size = strlen(hex) / 2};

    message.bytes = must(malloc(message.size + 1));
    for (size_t i = 0; i < message.size; i++) {
        const char pair[] = {hex[2 * i], hex[2 * i + 1], '\0'};

        message.bytes[i] = (char)strtoul(pair, NULL, 16);
    }
    message.token = memmem(message.bytes, message.size, "0000000000000000", TOKEN_DIGITS);
    return message;
}

static int connect_to(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void begin_client(void)
{
    if (client_count == CLIENTS_MAX)
        die("too many clients");
    clients[client_count] = must(calloc(1, sizeof **clients));
    clients[client_count++]->times_us = must(calloc(TIMES_MAX, sizeof(float)));
}

static void read_line(const char *word, const char *value)
{
    static const char *const framings[] = {"resp", "http", "zookeeper", "postgres", "files"};
    struct client *client = client_count > 0 ? clients[client_count - 1] : NULL;

    if (strcmp(word, "framing") == 0) {
        while (framing < FILES && strcmp(framings[framing], value) != 0)
            framing++;
    } else if (strcmp(word, "client") == 0) {
        begin_client();
    } else if (!client) {
        die("a client comes first");
    } else if (strcmp(word, "connect") == 0 && client->fd_count < CONNECTIONS_MAX) {
        client->fds[client->fd_count++] = connect_to(value);
    } else if (strcmp(word, "setup") == 0) {
        struct message message = read_hex(value);

        message.token = NULL;
        ask_all(client, &message);
        free(message.bytes);
    } else if (strcmp(word, "cycle") == 0 && client->cycle_count < MESSAGES_MAX) {
        client->cycle[client->cycle_count++] = read_hex(value);
    } else if (strcmp(word, "path") == 0) {
        client->path = must(strdup(value));
    } else {
        die(word);
    }
}

static void read_script(void)
{
    char *line = NULL, *value;
    size_t size = 0;

    while (getline(&line, &size, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        value = strchr(line, ' ');
        if (value)
            *value++ = '\0';
        read_line(line, value ? value : "");
    }
    free(line);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void print_result(double seconds)
{
    uint64_t cycles = 0, failures = 0;
    size_t count = 0;
    float *all = must(malloc((size_t)client_count * TIMES_MAX * sizeof *all));

    for (int i = 0; i < client_count; i++) {
        cycles += clients[i]->cycles;
        failures += clients[i]->failures;
        memcpy(all + count, clients[i]->times_us, clients[i]->times * sizeof *all);
        count += clients[i]->times;
    }
    qsort(all, count, sizeof *all, compare);
    printf("{\"cycles\":%llu,\"cycles_per_s\":%.1f,\"failures\":%llu,\"p50_us\":%.1f,\"p99_us\":%."
           "1f}\n",
           (unsigned long long)cycles, (double)cycles / seconds, (unsigned long long)failures,
           count ? (double)all[count / 2] : 0, count ? (double)all[count * 99 / 100] : 0);
    free(all);
}

int main(int argc, char **argv)
{
    int64_t began_ns;
    double seconds;

    if (argc != 3) {
        fprintf(stderr, "usage: bench-bare SECONDS WARM_SECONDS <SCRIPT\n");
        return 64;
    }
    read_script();
    for (int i = 0; i < client_count; i++)
        if (pthread_create(&clients[i]->thread, NULL, work, clients[i]) != 0)
            die("a thread");
    usleep((useconds_t)(strtod(argv[2], NULL) * 1e6));
    is_measuring = true;
    began_ns = measure_now_ns();
    usleep((useconds_t)(strtod(argv[1], NULL) * 1e6));
    is_over = true;
    seconds = (double)(measure_now_ns() - began_ns) / 1e9;
    for (int i = 0; i < client_count; i++)
        pthread_join(clients[i]->thread, NULL);
    print_result(seconds);
    return 0;
}
