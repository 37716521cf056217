/* hf_relay.c: the program hf-relay, a TCP relay that can be cut, slowed and made to lose what passes.
 *
 *     hf-relay HOST:PORT       relays to there; says "port N": where on 127.0.0.1 it listens
 *
 * Then it obeys the lines of its input, and says "ok" when it has, or "error WORDS". Up is to the server,
 * down is from it. A chunk is what one read got: as a rule, one command or one reply.
 *
 *     delay UP_MS DOWN_MS      what comes from now on is delivered so much later; fractions as in 0.25
 *     cut both|up|down         what comes that way is held back. No connection is taken on while the way
 *                              up is cut: one that is made meanwhile waits
 *     heal                     no more cuts; what was held back goes on, in order
 *     drop up|down N           each of the next N chunks that come that way is lost, and its connection
 *                              ends, after what came before
 *     reset                    breaks all connections now (RST)
 *     count                    says "count CONNECTIONS UP_BYTES DOWN_BYTES UP_CHUNKS DOWN_CHUNKS", all
 *                              since the start, as they came, lost ones too
 *     open                     says "open CONNECTIONS": those that it has now, with all that were waiting
 *                              to be taken on. None: all that clients said has been delivered or is lost
 *
 * It ends with its input. An end of a connection travels as the bytes do: it is delayed and held back.
 *
 * One thread, one poll. Each chunk carries the time when it is due, so a delay costs no throughput until
 * HELD_MAX is on its way. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define HELD_MAX \
    ((size_t)1 << 20)  /* bytes on their way, per direction; then nothing more is read */
#define READ_MAX 16384 /* bytes of a chunk */
#define LINE_MAX_BYTES 256
#define DELAY_MAX_MS 60000.0
#define DROP_MAX 1000000

enum direction { UP, DOWN, DIRECTIONS };

/* size 0: the end of the connection in this direction. */
struct chunk {
    struct chunk *next;
    int64_t due_ns;
    size_t size, sent;
    char bytes[];
};

/* One direction of a connection. */
struct way {
    struct chunk *first, *last;
    size_t held;
    bool read_ended; /* nothing more will come, or nothing more is wanted */
    bool ended;      /* its end has been delivered, or cannot be */
    bool blocked;    /* the receiver takes nothing at the moment */
};

struct connection {
    int fds[DIRECTIONS]; /* by the direction that begins there: UP is the client, DOWN the server */
    bool connecting;     /* to the server */
    bool broken;         /* to be dropped */
    struct way ways[DIRECTIONS];
};

static struct connection *connections[CONNECTIONS_MAX];
static int connection_count;
static int listener;
static struct sockaddr_storage upstream;
static socklen_t upstream_size;
/* What was ordered. */
static int64_t delay_ns[DIRECTIONS];
static bool cut[DIRECTIONS];
static int drops_left[DIRECTIONS];
/* What has been. */
static uint64_t connections_seen, bytes_seen[DIRECTIONS], chunks_seen[DIRECTIONS];

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "hf-relay: %s: %m\n", what);
    exit(1);
}

static enum direction opposite(enum direction direction)
{
    return direction == UP ? DOWN : UP;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void push(struct way *way, enum direction direction, const void *bytes, size_t size)
{
    struct chunk *chunk = malloc(sizeof *chunk + size);

    if (!chunk)
        die("malloc");
    *chunk = (struct chunk){.due_ns = now_ns() + delay_ns[direction], .size = size};
    if (size > 0)
        memcpy(chunk->bytes, bytes, size);
    if (way->last)
        way->last->next = chunk;
    else
        way->first = chunk;
    way->last = chunk;
    way->held += sizeof *chunk + size;
}

static void pop(struct way *way)
{
    struct chunk *chunk = way->first;

    way->first = chunk->next;
    if (!way->first)
        way->last = NULL;
    way->held -= sizeof *chunk + chunk->size;
    free(chunk);
}

static void end_way(struct connection *connection, enum direction direction)
{
    struct way *way = &connection->ways[direction];

    if (!way->read_ended)
        push(way, direction, NULL, 0);
    way->read_ended = true;
}

/* The receiver is gone: nothing more that way, and the sender shall hear of it. */
static void give_up(struct connection *connection, enum direction direction)
{
    struct way *way = &connection->ways[direction];

    while (way->first)
        pop(way);
    way->read_ended = way->ended = true;
    end_way(connection, opposite(direction));
}

static void deliver(struct connection *connection, enum direction direction, int64_t now)
{
    struct way *way = &connection->ways[direction];
    int to = connection->fds[opposite(direction)];

    way->blocked = false;
    while (way->first && way->first->due_ns <= now) {
        struct chunk *chunk = way->first;
        ssize_t sent;

        if (chunk->size == 0) {
            shutdown(to, SHUT_WR);
            way->ended = true;
            pop(way);
            return;
        }
        sent = send(to, chunk->bytes + chunk->sent, chunk->size - chunk->sent,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            way->blocked = true;
            return;
        }
        if (sent < 0) {
            give_up(connection, direction);
            return;
        }
        chunk->sent += (size_t)sent;
        if (chunk->sent == chunk->size)
            pop(way);
    }
}

static void receive(struct connection *connection, enum direction direction)
{
    struct way *way = &connection->ways[direction];
    char bytes[READ_MAX];
    ssize_t got = recv(connection->fds[direction], bytes, sizeof bytes, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end_way(connection, direction);
        return;
    }
    bytes_seen[direction] += (uint64_t)got;
    chunks_seen[direction]++;
    if (drops_left[direction] > 0) {
        drops_left[direction]--;
        end_way(connection, UP);
        end_way(connection, DOWN);
        return;
    }
    push(way, direction, bytes, (size_t)got);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void set_no_delay(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* linger 0: the other side is told with a RST. */
static void drop_connection(struct connection *connection, bool reset)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};

    for (int i = 0; i < DIRECTIONS; i++) {
        while (connection->ways[i].first)
            pop(&connection->ways[i]);
        if (reset)
            setsockopt(connection->fds[i], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(connection->fds[i]);
    }
    free(connection);
}

static void take_on(int fd)
{
    struct connection *connection = calloc(1, sizeof *connection);
    int up = socket(upstream.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (!connection || up < 0)
        die("a new connection");
    set_no_delay(fd);
    set_no_delay(up);
    connection->fds[UP] = fd;
    connection->fds[DOWN] = up;
    connections[connection_count++] = connection;
    connections_seen++;
    if (connect(up, (struct sockaddr *)&upstream, upstream_size) == 0)
        return;
    connection->connecting = errno == EINPROGRESS;
    connection->broken = !connection->connecting;
}

static void take_on_all(void)
{
    while (connection_count < CONNECTIONS_MAX) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            take_on(fd);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR && errno != ECONNABORTED)
            die("accept");
    }
}

static void finish_connecting(struct connection *connection)
{
    int number = 0;
    socklen_t size = sizeof number;

    getsockopt(connection->fds[DOWN], SOL_SOCKET, SO_ERROR, &number, &size);
    connection->connecting = false;
    connection->broken = number != 0;
}

static void sweep(void)
{
    for (int i = connection_count - 1; i >= 0; i--) {
        struct connection *connection = connections[i];

        if (!connection->broken && !(connection->ways[UP].ended && connection->ways[DOWN].ended))
            continue;
        drop_connection(connection, connection->broken);
        connections[i] = connections[--connection_count];
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    if (fflush(stdout) != 0)
        exit(1); /* nobody listens any more */
}

static bool read_ms(const char *text, int64_t *ret_ns)
{
    char *end;
    double ms;

    if (!text)
        return false;
    ms = strtod(text, &end);
    if (end == text || *end || !(ms >= 0 && ms <= DELAY_MAX_MS))
        return false;
    *ret_ns = (int64_t)(ms * 1e6);
    return true;
}

static bool set_delay(const char *up, const char *down)
{
    int64_t up_ns, down_ns;

    if (!read_ms(up, &up_ns) || !read_ms(down, &down_ns))
        return false;
    delay_ns[UP] = up_ns;
    delay_ns[DOWN] = down_ns;
    return true;
}

static bool set_cut(const char *which, const char *nothing)
{
    if (!which || nothing)
        return false;
    if (strcmp(which, "both") == 0)
        cut[UP] = cut[DOWN] = true;
    else if (strcmp(which, "up") == 0)
        cut[UP] = true;
    else if (strcmp(which, "down") == 0)
        cut[DOWN] = true;
    else
        return false;
    return true;
}

static bool set_drop(const char *which, const char *count)
{
    char *end;
    long number;

    if (!which || !count || (strcmp(which, "up") != 0 && strcmp(which, "down") != 0))
        return false;
    number = strtol(count, &end, 10);
    if (end == count || *end || number < 0 || number > DROP_MAX)
        return false;
    drops_left[which[0] == 'u' ? UP : DOWN] = (int)number;
    return true;
}

static void reset_all(void)
{
    while (connection_count > 0)
        drop_connection(connections[--connection_count], true);
}

static void say_counts(void)
{
    say("count %llu %llu %llu %llu %llu", (unsigned long long)connections_seen,
        (unsigned long long)bytes_seen[UP], (unsigned long long)bytes_seen[DOWN],
        (unsigned long long)chunks_seen[UP], (unsigned long long)chunks_seen[DOWN]);
}

static void obey(char *line)
{
    char *rest = line;
    const char *verb = strsep(&rest, " "), *one = strsep(&rest, " "), *two = strsep(&rest, " ");
    bool done = !rest;

    if (strcmp(verb, "delay") == 0)
        done = done && set_delay(one, two);
    else if (strcmp(verb, "cut") == 0)
        done = done && set_cut(one, two);
    else if (strcmp(verb, "drop") == 0)
        done = done && set_drop(one, two);
    else if (one)
        done = false;
    else if (strcmp(verb, "heal") == 0)
        cut[UP] = cut[DOWN] = false;
    else if (strcmp(verb, "reset") == 0)
        reset_all();
    else if (strcmp(verb, "count") == 0)
        say_counts();
    else if (strcmp(verb, "open") == 0)
        say("open %d", connection_count);
    else
        done = false;
    if (done)
        say("ok");
    else
        say("error what is '%s'?", verb);
}

/* Reads what is there. False: the end of the input. */
static bool read_orders(void)
{
    static char bytes[LINE_MAX_BYTES];
    static size_t size;
    ssize_t got = read(0, bytes + size, sizeof bytes - size);
    char *end;

    if (got < 0 && errno == EINTR)
        return true;
    if (got <= 0)
        return false; /* also a line that is too long */
    size += (size_t)got;
    while ((end = memchr(bytes, '\n', size))) {
        *end = '\0';
        obey(bytes);
        size -= (size_t)(end + 1 - bytes);
        memmove(bytes, end + 1, size);
    }
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Delivers what is due, and returns when the next chunk will be; INT64_MAX: none that time alone moves. */
static int64_t deliver_all(void)
{
    int64_t now = now_ns(), next = INT64_MAX;

    for (int i = 0; i < connection_count; i++)
        for (enum direction direction = UP; direction < DIRECTIONS; direction++) {
            struct way *way = &connections[i]->ways[direction];

            if (cut[direction] || connections[i]->connecting || connections[i]->broken)
                continue;
            deliver(connections[i], direction, now);
            if (way->first && !way->blocked && way->first->due_ns < next)
                next = way->first->due_ns;
        }
    return next;
}

/* What a connection waits for at the end where `direction` begins. */
static struct pollfd wishes(const struct connection *connection, enum direction direction)
{
    const struct way *from = &connection->ways[direction];
    const struct way *to = &connection->ways[opposite(direction)];
    struct pollfd pollfd = {.fd = connection->fds[direction]};

    if (connection->connecting) {
        pollfd.events = direction == DOWN ? POLLOUT : 0;
    } else {
        if (!from->read_ended && from->held < HELD_MAX)
            pollfd.events |= POLLIN;
        if (to->blocked && !cut[opposite(direction)])
            pollfd.events |= POLLOUT;
    }
    if (!pollfd.events) /* poll would report its end over and over */
        pollfd.fd = -1;
    return pollfd;
}

/* Until something can be done. False: the input has ended. */
static bool wait_and_read(int64_t next_ns)
{
    static struct pollfd pollfds[2 + CONNECTIONS_MAX * DIRECTIONS];
    int count = connection_count, poll_count = 2 + DIRECTIONS * count;
    struct timespec span, *timeout = NULL;

    pollfds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
    pollfds[1] = (struct pollfd){.fd = listener, .events = POLLIN};
    if (cut[UP] || count == CONNECTIONS_MAX)
        pollfds[1].fd = -1;
    for (int i = 0; i < count; i++)
        for (enum direction direction = UP; direction < DIRECTIONS; direction++)
            pollfds[2 + DIRECTIONS * i + (int)direction] = wishes(connections[i], direction);
    if (next_ns != INT64_MAX) {
        int64_t left = next_ns - now_ns();

        left = left > 0 ? left : 0;
        span = (struct timespec){.tv_sec = (time_t)(left / 1000000000),
                                 .tv_nsec = (long)(left % 1000000000)};
        timeout = &span;
    }
    if (ppoll(pollfds, (nfds_t)poll_count, timeout, NULL) < 0) {
        if (errno != EINTR)
            die("poll");
        return true;
    }
    for (int i = 0; i < count; i++)
        for (enum direction direction = UP; direction < DIRECTIONS; direction++) {
            struct connection *connection = connections[i];
            short revents = pollfds[2 + DIRECTIONS * i + (int)direction].revents;

            if (connection->connecting && revents)
                finish_connecting(connection);
            else if ((revents & (POLLIN | POLLHUP | POLLERR)) &&
                     !connection->ways[direction].read_ended)
                receive(connection, direction);
        }
    if (pollfds[1].revents)
        take_on_all();
    return !pollfds[0].revents || read_orders();
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool find_upstream(char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char *colon = strrchr(text, ':');

    if (!colon)
        return false;
    *colon = '\0';
    if (getaddrinfo(text, colon + 1, &hints, &found) != 0)
        return false;
    memcpy(&upstream, found->ai_addr, found->ai_addrlen);
    upstream_size = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static int listen_somewhere(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, CONNECTIONS_MAX) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        die("listen");
    return ntohs(address.sin_port);
}

static void allow_many_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2 || !find_upstream(argv[1])) {
        fprintf(stderr, "usage: hf-relay HOST:PORT\n");
        return 64;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL); /* nanoseconds; it is 50 microseconds by itself */
    allow_many_descriptors();
    say("port %d", listen_somewhere());
    for (;;) {
        int64_t next_ns = deliver_all();

        sweep();
        if (!wait_and_read(next_ns))
            break;
    }
    reset_all();
    return 0;
}
