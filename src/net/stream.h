/* stream.h: bytes to and from one server, over TCP, a unix socket, or TLS. Nothing here waits: who
 * wants to wait polls stream_fd for stream_events and comes back. */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include "net/address.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

struct stream;

/* Which of a host's addresses is tried next, and how patiently. Whoever connects to it more than once keeps this between the streams, all zero at first:
 * then each goes on where the one before has come to nothing, and an address that has answered is the first one of the next. Any number of streams may share it. */
struct turns {
    _Atomic uint32_t next; /* stream.c's */
};

/* Begins to connect. address, access and turns are borrowed for as long as the stream lives; turns may be NULL: it is the only one. HF_EUNREACH:
 * refused at once; HF_EMODULE: TLS is wanted and its module is not there; HF_EREFUSED:
 * a certificate file cannot be used; HF_EINVAL: TLS over a unix socket; HF_ENOMEM. TCP_NODELAY,
 * keepalive, close-on-exec. */
int stream_open(const struct address *address, const struct access *access, struct turns *turns,
                struct stream **ret_stream, struct error_text *err);
/* The same in two steps, for whoever has to know the stream before it has a descriptor, because of a fork. One that could not begin is closed, too. */
int stream_new(const struct address *address, const struct access *access, struct turns *turns,
               struct stream **ret_stream, struct error_text *err);
int stream_begin(struct stream *stream, struct error_text *err);
/* Closes without a word to the server, so that a forked child may do it too. NULL is fine. */
void stream_close(struct stream *stream);

/* In the child of a fork: closes the descriptor, and nothing else. Async-signal-safe. */
void stream_after_fork(struct stream *stream);

/* Ask again after each stream_connect that was not the last, and after stream_pass_on: the next address of a host has a
 * descriptor of its own, perhaps with the number of the one before (epoll will have dropped it). */
int stream_fd(const struct stream *stream);
/* Do both lead to the same address and port, whatever they were called? */
bool stream_same_peer(const struct stream *a, const struct stream *b);
/* What to poll for, given whether the owner has bytes to write: while connecting and in TLS the
 * stream may want something else. Whichever of them comes: read, then write. */
short stream_events(const struct stream *stream, bool has_output);

/* Goes on connecting. HF_OK: connected, and with TLS the server has proved who it is; STREAM_AGAIN:
 * not yet; HF_EUNREACH: no such host, or failed, other addresses of it tried; HF_EREFUSED: a certificate that
 * does not prove it, or a server that wants one of ours; HF_ENOMEM. */
#define STREAM_AGAIN 1
int stream_connect(struct stream *stream, struct error_text *err);

/* One of several addresses of a host that is silent keeps nobody from the others. Until when the present one may be; CLOCK_NEVER: there is no
 * other, or none is known yet. Whoever has heard nothing by then, connected or not, passes on: the stream connects anew, to the next address, and to this one
 * again when it is its turn. What was written is lost. Errors as from stream_connect. */
int64_t stream_turn_until(const struct stream *stream);
int stream_pass_on(struct stream *stream, struct error_text *err);
/* The server has said something. One that is closed before that has had its turn in vain. */
void stream_answered(struct stream *stream);
/* Nobody needs this host for now: what its addresses have waited for in vain no longer makes turns longer. */
void turns_shorten(struct turns *turns);

/* More than 0: so many bytes. 0: none now. HF_EUNREACH: the stream is over (by an error, or closed
 * by the server). HF_EREFUSED: the same, because the server does not accept our certificate; with
 * TLS 1.3 it says so only after the connection is made. Never raises SIGPIPE. Only once connected.
 *
 * Read until it returns 0 before polling: TLS may have bytes inside that the socket no longer has,
 * and then poll would wait for nothing. After a write that returned 0 the next one must begin with
 * the same bytes and have no fewer: TLS has them in a half-sent record. */
ssize_t stream_read(struct stream *stream, void *bytes, size_t size, struct error_text *err);
ssize_t stream_write(struct stream *stream, const void *bytes, size_t size, struct error_text *err);

#endif
