#include "fake.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_S 10
#define BUFFER_SIZE 65536

struct fake_connection {
    int fd;
    size_t size;
    char bytes[BUFFER_SIZE];
};

/* ---- reading --------------------------------------------------------------------------------- */

/* A number behind `type`, up to the end of its line. NULL: not all there. */
static const char *read_number(const char *at, const char *end, char type, long *ret_number)
{
    const char *line_end = memchr(at, '\n', (size_t)(end - at));

    if (!line_end)
        return NULL;
    if (*at != type)
        abort(); /* what is tested does not speak RESP */
    *ret_number = strtol(at + 1, NULL, 10);
    return line_end + 1;
}

/* The bytes of one command, 0 if it is not all there. */
static size_t read_command(const char *bytes, size_t size, struct fake_command *ret_command)
{
    const char *end = bytes + size, *at;
    long count = 0, length = 0;

    at = read_number(bytes, end, '*', &count);
    for (long i = 0; at && i < count; i++) {
        at = read_number(at, end, '$', &length);
        if (!at || end - at < length + 2)
            return 0;
        if (i < FAKE_WORDS_MAX)
            snprintf(ret_command->words[i], FAKE_WORD_MAX, "%.*s", (int)length, at);
        at += length + 2;
    }
    ret_command->count = (int)count;
    return at ? (size_t)(at - bytes) : 0;
}

static void say(int fd, const char *bytes)
{
    size_t size = strlen(bytes);

    if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        return; /* the other side has gone */
}

#define FAKE_CLUSTER "0123456789abcdef0123456789abcdef" /* unless it says another */

static enum fake_verdict greet(struct fake *fake, char *reply)
{
    const char *name = fake->hello ? fake->hello : "holdfast";
    const char *cluster = fake->cluster ? fake->cluster : FAKE_CLUSTER;
    int used =
        snprintf(reply, FAKE_REPLY_MAX,
                 "%%%d\r\n$6\r\nserver\r\n$%zu\r\n%s\r\n$5\r\nproto\r\n:3\r\n$7\r\ncluster\r\n"
                 "$%zu\r\n%s\r\n",
                 fake->role ? 4 : 3, strlen(name), name, strlen(cluster), cluster);

    if (fake->role)
        snprintf(reply + used, (size_t)(FAKE_REPLY_MAX - used), "$4\r\nrole\r\n$%zu\r\n%s\r\n",
                 strlen(fake->role), fake->role);
    if (fake->slow_ms > 0)
        nanosleep(&(struct timespec){.tv_nsec = fake->slow_ms * 1000000L}, NULL);
    return fake->deaf ? FAKE_IS_SILENT : FAKE_ANSWERS;
}

static enum fake_verdict obey(struct fake *fake, const struct fake_command *command, char *reply)
{
    if (strcmp(command->words[0], "HELLO") == 0)
        return greet(fake, reply);
    if (fake->seen_count < FAKE_SEEN_MAX)
        fake->seen[fake->seen_count++] = *command;
    pthread_cond_broadcast(&fake->changed);
    return fake->script(fake, command, reply);
}

/* False: the connection is over. */
static bool serve(struct fake *fake, struct fake_connection *connection)
{
    ssize_t got = recv(connection->fd, connection->bytes + connection->size,
                       sizeof connection->bytes - connection->size, 0);
    struct fake_command command;
    size_t used;

    if (got <= 0)
        return false;
    connection->size += (size_t)got;
    while (connection->size > 0 &&
           (used = read_command(connection->bytes, connection->size, &command)) > 0) {
        char reply[FAKE_REPLY_MAX] = "";
        enum fake_verdict verdict = obey(fake, &command, reply);

        connection->size -= used;
        memmove(connection->bytes, connection->bytes + used, connection->size);
        if (verdict == FAKE_HANGS_UP)
            return false;
        if (verdict == FAKE_ANSWERS)
            say(connection->fd, reply);
    }
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void drop(struct fake *fake, int i)
{
    close(fake->connections[i]->fd);
    free(fake->connections[i]);
    fake->connections[i] = NULL;
    pthread_cond_broadcast(&fake->changed);
}

static void take_on(struct fake *fake)
{
    int fd = accept(fake->listener, NULL, NULL);

    fake->accepted++;
    for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
        if (!fake->connections[i]) {
            fake->connections[i] = calloc(1, sizeof *fake->connections[i]);
            fake->connections[i]->fd = fd;
            return;
        }
    close(fd);
}

static void *fake_main(void *arg)
{
    struct fake *fake = arg;

    for (;;) {
        struct pollfd fds[2 + FAKE_CONNECTIONS_MAX] = {
            {.fd = fake->wake[0], .events = POLLIN},
            {.fd = fake->listener, .events = POLLIN},
        };

        for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
            fds[2 + i] = (struct pollfd){.fd = fake->connections[i] ? fake->connections[i]->fd : -1,
                                         .events = POLLIN};
        poll(fds, 2 + FAKE_CONNECTIONS_MAX, -1);
        if (fds[0].revents)
            return NULL;
        pthread_mutex_lock(&fake->mutex);
        for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
            if (fds[2 + i].revents && !serve(fake, fake->connections[i]))
                drop(fake, i);
        if (fds[1].revents)
            take_on(fake);
        pthread_mutex_unlock(&fake->mutex);
    }
}

/* ---- scripts --------------------------------------------------------------------------------- */

enum fake_verdict fake_reply(char ret_reply[FAKE_REPLY_MAX], const char *text)
{
    snprintf(ret_reply, FAKE_REPLY_MAX, "%s", text);
    return FAKE_ANSWERS;
}

bool fake_is(const struct fake_command *command, const char *word)
{
    return strcmp(command->words[0], word) == 0;
}

enum fake_verdict fake_usual(const struct fake_command *command, char ret_reply[FAKE_REPLY_MAX])
{
    if (fake_is(command, "ACQUIRE"))
        return fake_reply(ret_reply, ":7\r\n");
    if (fake_is(command, "PING"))
        return fake_reply(ret_reply, "+PONG\r\n");
    if (fake_is(command, "OBSERVE"))
        return fake_reply(ret_reply, "+OK\r\n");
    if (fake_is(command, "CHECK") && command->count == 4)
        return fake_reply(ret_reply, "$9\r\nexclusive\r\n");
    return fake_reply(ret_reply, ":1\r\n");
}

enum fake_verdict fake_obliging(struct fake *fake, const struct fake_command *command,
                                char ret_reply[FAKE_REPLY_MAX])
{
    (void)fake;
    return fake_usual(command, ret_reply);
}

enum fake_verdict fake_hangs_up_once(struct fake *fake, const struct fake_command *command,
                                     char ret_reply[FAKE_REPLY_MAX])
{
    if (fake->context && fake_is(command, fake->context)) {
        fake->context = NULL;
        return FAKE_HANGS_UP;
    }
    return fake_usual(command, ret_reply);
}

/* ---- the test's side ------------------------------------------------------------------------- */

void fake_start(struct fake *fake)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_condattr_t attributes;

    pthread_mutex_init(&fake->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&fake->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    fake->seen = calloc(FAKE_SEEN_MAX, sizeof *fake->seen);
    assert_non_null(fake->seen);
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(0, bind(fake->listener, (struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, listen(fake->listener, 64));
    assert_int_equal(0, getsockname(fake->listener, (struct sockaddr *)&address, &size));
    fake->port = ntohs(address.sin_port);
    assert_int_equal(0, pipe(fake->wake));
    assert_int_equal(0, pthread_create(&fake->thread, NULL, fake_main, fake));
}

void fake_stop(struct fake *fake)
{
    close(fake->wake[1]);
    pthread_join(fake->thread, NULL);
    close(fake->wake[0]);
    close(fake->listener);
    for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
        if (fake->connections[i])
            drop(fake, i);
    free(fake->seen);
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->mutex);
}

static int count_seen(const struct fake *fake, const char *word)
{
    int count = 0;

    for (int i = 0; i < fake->seen_count; i++)
        count += strcasecmp(fake->seen[i].words[0], word) == 0;
    return count;
}

int fake_accepted(struct fake *fake)
{
    int accepted;

    pthread_mutex_lock(&fake->mutex);
    accepted = fake->accepted;
    pthread_mutex_unlock(&fake->mutex);
    return accepted;
}

int fake_count(struct fake *fake, const char *word)
{
    int count;

    pthread_mutex_lock(&fake->mutex);
    count = count_seen(fake, word);
    pthread_mutex_unlock(&fake->mutex);
    return count;
}

static struct timespec patience(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    return until;
}

void fake_await(struct fake *fake, const char *word, int count)
{
    struct timespec until = patience();
    int seen, failed = 0;

    pthread_mutex_lock(&fake->mutex);
    while ((seen = count_seen(fake, word)) < count && !failed)
        failed = pthread_cond_timedwait(&fake->changed, &fake->mutex, &until);
    pthread_mutex_unlock(&fake->mutex);
    if (seen < count)
        fail_msg("the server waited for %d %s, and %d came", count, word, seen);
}

static int count_open(const struct fake *fake)
{
    int count = 0;

    for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
        count += fake->connections[i] != NULL;
    return count;
}

void fake_await_left(struct fake *fake)
{
    struct timespec until = patience();
    int open, failed = 0;

    pthread_mutex_lock(&fake->mutex);
    while ((open = count_open(fake)) > 0 && !failed)
        failed = pthread_cond_timedwait(&fake->changed, &fake->mutex, &until);
    pthread_mutex_unlock(&fake->mutex);
    assert_int_equal(0, open);
}

struct fake_command fake_command(struct fake *fake, const char *word, int index)
{
    struct fake_command found = {0};

    pthread_mutex_lock(&fake->mutex);
    for (int i = 0; i < fake->seen_count && found.count == 0; i++)
        if (strcasecmp(fake->seen[i].words[0], word) == 0 && index-- == 0)
            found = fake->seen[i];
    pthread_mutex_unlock(&fake->mutex);
    assert_true(found.count > 0);
    return found;
}

bool fake_has(const struct fake_command *command, const char *word)
{
    for (int i = 0; i < command->count && i < FAKE_WORDS_MAX; i++)
        if (strcmp(command->words[i], word) == 0)
            return true;
    return false;
}

void fake_say(struct fake *fake, const char *bytes)
{
    pthread_mutex_lock(&fake->mutex);
    for (int i = 0; i < FAKE_CONNECTIONS_MAX; i++)
        if (fake->connections[i])
            say(fake->connections[i]->fd, bytes);
    pthread_mutex_unlock(&fake->mutex);
}
