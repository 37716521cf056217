/* stream.c: sockets that never wait.
 *
 *     CONNECTING ──(refused, or silent for too long, and the host has another address)──▶ CONNECTING
 *         │
 *         ├──(no TLS)──▶ CONNECTED
 *         └──▶ SHAKING_HANDS ──▶ CONNECTED
 *
 * A failed handshake is not tried with the next address: somebody was there, and what is wrong with
 * their certificate is worth more to the reader than "connection refused" from the next one.
 *
 * The addresses of a host take turns. One that is silent, because it is stopped or its packets are dropped, is left for the next one soon, and
 * gets another turn, a longer one, when the others have had theirs: so a server that is only slow is reached too. It is over when all of them
 * have failed, one after the other. Whoever ends it sooner, because the time is up, keeps `struct turns`: the next stream goes on from there. */
#include "net/stream.h"
#include "base/clock.h"
#include "base/modules.h"
#include "net/lookup.h"
#include "net/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A server that is gone without a word is noticed within about half a minute, whether we are
 * waiting for it (keepalive: 15 + 3 * 5 s) or writing to it. */
#define KEEPALIVE_IDLE_S 15
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_COUNT 3
#define UNANSWERED_MAX_MS 30000

/* How long one of several addresses may be silent in its first turn; and all of those together. */
#define TURN_MS 250
#define TURN_MS_MIN 20
#define TURNS_MS 750
/* In its second turn: a first packet that was lost is sent again after a second, and is still answered then. Together with the first turns, one such
 * turn is less than the two seconds of a first contact. A server behind silent addresses that needs longer than a first turn may not be reached in these two
 * seconds; with the next streams of the same `struct turns` it is. The turns after that grow. */
#define TURN_AGAIN_MS 1200
#define TURN_MS_MAX 8000
#define TURN_GROWS 4
/* struct turns: how many were in vain since somebody has answered, above the index of an address. */
#define TURNS_VAIN_BIT 16
#define TURNS_VAIN_MAX 0xffffu
#define TURNS_INDEX_MASK 0xffffu

enum state { LOOKING_UP, CONNECTING, SHAKING_HANDS, CONNECTED };

struct stream {
    const struct address *address;
    const struct access *access;
    enum state state;
    int fd;

    struct addrinfo *resolved;    /* of a number; else NULL, */
    struct lookup *lookup;        /* and of a name what will be, or was, found */
    const struct addrinfo *first; /* of all */
    uint32_t count;               /* of all */
    uint32_t failures;            /* one after the other */
    uint32_t index;               /* whose turn it is */
    uint32_t vain;                /* turns, since somebody has answered */
    int64_t since_ms;             /* since when; 0: there was none yet */
    struct turns *turns;          /* or NULL */
    uint32_t known;               /* what we have read there, or written */
    bool answered;
    struct sockaddr_un unix_address;
    struct addrinfo unix_info; /* so that a unix socket is a host with one address */

    const struct tls_provider *tls; /* NULL: no TLS */
    struct tls_session *session;
};

/* ---- TLS's module ---------------------------------------------------------------------------- */

static int find_tls(const struct tls_provider **ret_tls, struct error_text *err)
{
    static const struct module module = {.name = "tls",
                                         .needed_by = "TLS needs",
                                         .library = "OpenSSL (libssl-dev)",
                                         .symbol = TLS_MODULE_SYMBOL};
    /* Two threads may both find it empty: the second load gives the same table. A failure is not
     * kept, since the module may be installed while the program runs. */
    static const struct tls_provider *_Atomic loaded;
    const struct tls_provider *tls = atomic_load_explicit(&loaded, memory_order_acquire);
    tls_module_fn *get;
    int result;

    if (!tls) {
        result = module_symbol(&module, (void **)&get, err);
        if (result != HF_OK)
            return result;
        tls = get();
        if (!tls || tls->abi != TLS_ABI) {
            module_misfit(&module, err);
            return HF_EMODULE;
        }
        atomic_store_explicit(&loaded, tls, memory_order_release);
    }
    *ret_tls = tls;
    return HF_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static uint32_t turns_of(const struct stream *stream)
{
    return stream->vain << TURNS_VAIN_BIT | (stream->index & TURNS_INDEX_MASK);
}

void turns_shorten(struct turns *turns)
{
    atomic_fetch_and(&turns->next, TURNS_INDEX_MASK);
}

static void know_addresses(struct stream *stream, const struct addrinfo *first)
{
    stream->first = first;
    for (const struct addrinfo *at = first; at; at = at->ai_next)
        stream->count++;
    if (!stream->turns)
        return;
    stream->known = atomic_load(&stream->turns->next);
    stream->index = (stream->known & TURNS_INDEX_MASK) % stream->count; /* it may have fewer now */
    stream->vain = stream->known >> TURNS_VAIN_BIT;
}

/* For the next stream; unless another one has had its say meanwhile. */
static void leave_word(struct stream *stream)
{
    uint32_t known = stream->known, next = turns_of(stream);

    if (stream->turns && atomic_compare_exchange_strong(&stream->turns->next, &known, next))
        stream->known = next;
}

/* The present address has had its turn in vain. After the last it is the first one's again. */
static void end_turn(struct stream *stream)
{
    INVARIANT(stream->count > 0);
    stream->index = (stream->index + 1) % stream->count;
    if (stream->count > 1 && stream->vain < TURNS_VAIN_MAX)
        stream->vain++;
    leave_word(stream);
}

static const struct addrinfo *present_address(const struct stream *stream)
{
    const struct addrinfo *at = stream->first;

    for (uint32_t i = 0; i < stream->index; i++)
        at = at->ai_next;
    return at;
}

/* How long the present one may be silent. */
static int64_t turn_ms(const struct stream *stream)
{
    int64_t span_ms = TURNS_MS / (int64_t)stream->count;

    if (stream->vain < stream->count) {
        if (span_ms < TURN_MS_MIN)
            span_ms = TURN_MS_MIN;
        return span_ms < TURN_MS ? span_ms : TURN_MS;
    }
    span_ms = TURN_AGAIN_MS;
    for (uint32_t i = 2 * stream->count; i <= stream->vain && span_ms < TURN_MS_MAX;
         i += stream->count)
        span_ms *= TURN_GROWS;
    return span_ms < TURN_MS_MAX ? span_ms : TURN_MS_MAX;
}

static void resolve_unix(struct stream *stream)
{
    stream->unix_address.sun_family = AF_UNIX;
    _Static_assert(sizeof stream->unix_address.sun_path > ADDRESS_PATH_MAX, "room for the NUL");
    memcpy(stream->unix_address.sun_path, stream->address->path, strlen(stream->address->path));
    stream->unix_info = (struct addrinfo){.ai_family = AF_UNIX,
                                          .ai_addr = (struct sockaddr *)&stream->unix_address,
                                          .ai_addrlen = sizeof stream->unix_address};
    know_addresses(stream, &stream->unix_info);
}

static int resolve_host(struct stream *stream, struct error_text *err)
{
    const struct address *address = stream->address;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    int failure;

    /* First as a number: that loads no resolver and asks nobody. */
    failure = getaddrinfo(address->host, address->port, &hints, &stream->resolved);
    if (failure == EAI_NONAME) {
        stream->state = LOOKING_UP;
        return lookup_begin(address, &stream->lookup, err);
    }
    if (failure == EAI_SYSTEM)
        return error_set_errno(err, HF_EUNREACH, errno, "%s", address->shown);
    if (failure)
        return error_set(err, failure == EAI_MEMORY ? HF_ENOMEM : HF_EUNREACH, "%s: %s",
                         address->shown, gai_strerror(failure));
    know_addresses(stream, stream->resolved);
    return HF_OK;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNANSWERED_MAX_MS},
    };

    /* Without one of them the stream is slower or later to notice, and still right. */
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
}

/* Forgotten before it is closed: a child that is forked in between must not close a stranger's. */
static void drop_socket(struct stream *stream)
{
    int fd = stream->fd;

    stream->fd = -1;
    if (fd >= 0)
        close(fd);
}

static enum state after_connect(const struct stream *stream)
{
    return stream->tls ? SHAKING_HANDS : CONNECTED;
}

/* Begins with one address; 0, or the errno of why not. */
static int begin(struct stream *stream, const struct addrinfo *to)
{
    drop_socket(stream);
    stream->since_ms = clock_boot_ms();
    stream->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (stream->fd < 0)
        return errno;
    if (to->ai_family != AF_UNIX)
        set_options(stream->fd);
    if (connect(stream->fd, to->ai_addr, to->ai_addrlen) == 0)
        stream->state = after_connect(stream);
    else if (errno == EINPROGRESS || errno == EINTR)
        stream->state = CONNECTING;
    else
        return errno;
    return 0;
}

/* Begins with the next address that lets us. failure: why the last one did not, 0 if there was
 * none. */
static int begin_next(struct stream *stream, int failure, struct error_text *err)
{
    stream->failures = failure == 0 ? 0 : stream->failures + 1;
    if (stream->since_ms != 0)
        end_turn(stream);
    while (stream->failures < stream->count) {
        failure = begin(stream, present_address(stream));
        if (failure == 0)
            return HF_OK;
        stream->failures++;
        end_turn(stream);
    }
    stream->vain = 0; /* none of them is silent */
    leave_word(stream);
    stream->turns = NULL;
    if (failure == EMFILE || failure == ENFILE || failure == ENOMEM || failure == ENOBUFS)
        return error_set_errno(err, HF_ENOMEM, failure, "%s", stream->address->shown);
    if (failure == ECONNREFUSED || failure == ENOENT)
        return error_set(err, HF_EUNREACH, "%s: %s; is the server running there?",
                         stream->address->shown, strerrordesc_np(failure));
    return error_set_errno(err, HF_EUNREACH, failure, "%s", stream->address->shown);
}

int stream_new(const struct address *address, const struct access *access, struct turns *turns,
               struct stream **ret_stream, struct error_text *err)
{
    struct stream *stream;
    int result;

    if (access->tls && address->path[0])
        return error_set(err, HF_EINVAL, "%s: a unix socket has no host to prove by TLS",
                         address->shown);
    stream = calloc(1, sizeof *stream);
    if (!stream)
        return error_set(err, HF_ENOMEM, "out of memory");
    stream->address = address;
    stream->access = access;
    stream->turns = turns;
    stream->fd = -1;
    result = access->tls ? find_tls(&stream->tls, err) : HF_OK;
    if (result == HF_OK && stream->tls)
        result = stream->tls->session_new(access, address, &stream->session, err);
    if (result != HF_OK) {
        stream_close(stream);
        return result;
    }
    *ret_stream = stream;
    return HF_OK;
}

int stream_begin(struct stream *stream, struct error_text *err)
{
    int result = HF_OK;

    if (stream->address->path[0])
        resolve_unix(stream);
    else
        result = resolve_host(stream, err);
    if (result == HF_OK && !stream->lookup)
        result = begin_next(stream, 0, err);
    return result;
}

int stream_open(const struct address *address, const struct access *access, struct turns *turns,
                struct stream **ret_stream, struct error_text *err)
{
    struct stream *stream;
    int result = stream_new(address, access, turns, &stream, err);

    if (result != HF_OK)
        return result;
    result = stream_begin(stream, err);
    if (result == HF_OK)
        *ret_stream = stream;
    else
        stream_close(stream);
    return result;
}

void stream_after_fork(struct stream *stream)
{
    lookup_after_fork(stream->lookup);
    drop_socket(stream);
}

void stream_close(struct stream *stream)
{
    if (!stream)
        return;
    if (stream->since_ms != 0 && !stream->answered)
        end_turn(stream);
    if (stream->tls)
        stream->tls->session_free(stream->session);
    drop_socket(stream);
    if (stream->resolved)
        freeaddrinfo(stream->resolved);
    lookup_end(stream->lookup);
    free(stream);
}

/* Whether the socket has come to a conclusion: STREAM_AGAIN, or HF_OK with 0 or the errno. */
static int ask_socket(int fd, int *ret_failure)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof *ret_failure;

    if (poll(&poll_fd, 1, 0) <= 0)
        return STREAM_AGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, ret_failure, &size) < 0)
        *ret_failure = errno;
    return HF_OK;
}

int stream_connect(struct stream *stream, struct error_text *err)
{
    const struct addrinfo *found;
    int failure = 0, result;

    if (stream->state == LOOKING_UP) {
        result = lookup_result(stream->lookup, &found, err);
        if (result == LOOKUP_AGAIN)
            return STREAM_AGAIN;
        if (result != HF_OK)
            return result;
        know_addresses(stream, found);
        result = begin_next(stream, 0, err);
        if (result != HF_OK)
            return result;
    }
    while (stream->state == CONNECTING) {
        if (ask_socket(stream->fd, &failure) == STREAM_AGAIN)
            return STREAM_AGAIN;
        if (failure == 0) {
            stream->state = after_connect(stream);
        } else {
            result = begin_next(stream, failure, err);
            if (result != HF_OK)
                return result;
        }
    }
    if (stream->state == SHAKING_HANDS) {
        result = stream->tls->handshake(stream->session, stream->fd, err);
        if (result != HF_OK)
            return result;
        stream->state = CONNECTED;
    }
    return HF_OK;
}

int64_t stream_turn_until(const struct stream *stream)
{
    if (stream->count < 2)
        return CLOCK_NEVER;
    return clock_after(stream->since_ms, turn_ms(stream));
}

int stream_pass_on(struct stream *stream, struct error_text *err)
{
    int result;

    INVARIANT(stream->count > 1);
    if (stream->tls) {
        stream->tls->session_free(stream->session);
        stream->session = NULL;
        result = stream->tls->session_new(stream->access, stream->address, &stream->session, err);
        if (result != HF_OK)
            return result;
    }
    return begin_next(stream, 0, err);
}

void stream_answered(struct stream *stream)
{
    if (stream->answered)
        return;
    stream->answered = true;
    stream->vain = 0;
    if (stream->turns)
        atomic_store(&stream->turns->next, turns_of(stream));
}

bool stream_same_peer(const struct stream *a, const struct stream *b)
{
    struct sockaddr_storage peers[2] = {{0}, {0}};
    socklen_t sizes[2] = {sizeof peers[0], sizeof peers[1]};

    return getpeername(a->fd, (struct sockaddr *)&peers[0], &sizes[0]) == 0 &&
           getpeername(b->fd, (struct sockaddr *)&peers[1], &sizes[1]) == 0 &&
           sizes[0] == sizes[1] && memcmp(&peers[0], &peers[1], sizes[0]) == 0;
}

int stream_fd(const struct stream *stream)
{
    return stream->state == LOOKING_UP ? lookup_fd(stream->lookup) : stream->fd;
}

short stream_events(const struct stream *stream, bool has_output)
{
    if (stream->state == LOOKING_UP)
        return POLLIN;
    if (stream->state == CONNECTING)
        return POLLOUT;
    if (stream->tls)
        return stream->tls->events(stream->session, has_output);
    return has_output ? POLLIN | POLLOUT : POLLIN;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

ssize_t stream_read(struct stream *stream, void *bytes, size_t size, struct error_text *err)
{
    ssize_t n;

    INVARIANT(stream->state == CONNECTED);
    if (size == 0)
        return 0;
    if (stream->tls)
        return stream->tls->read(stream->session, bytes, size, err);
    do {
        n = recv(stream->fd, bytes, size, 0);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n == 0)
        return error_set(err, HF_EUNREACH, "%s: the server closed the connection",
                         stream->address->shown);
    if (errno == EAGAIN)
        return 0;
    return error_set_errno(err, HF_EUNREACH, errno, "%s", stream->address->shown);
}

ssize_t stream_write(struct stream *stream, const void *bytes, size_t size, struct error_text *err)
{
    ssize_t n;

    INVARIANT(stream->state == CONNECTED);
    if (size == 0)
        return 0;
    if (stream->tls)
        return stream->tls->write(stream->session, bytes, size, err);
    do {
        n = send(stream->fd, bytes, size, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN)
        return 0;
    if (errno == EPIPE)
        return error_set(err, HF_EUNREACH, "%s: the server closed the connection",
                         stream->address->shown);
    return error_set_errno(err, HF_EUNREACH, errno, "%s", stream->address->shown);
}
