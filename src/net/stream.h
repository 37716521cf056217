/* stream.h: bytes to and from one server, over TCP, a unix socket, or TLS. Nothing here waits: who
 * wants to wait polls stream_fd for stream_events and comes back. */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include "net/address.h"

#include <sys/types.h>

struct stream;

/* Begins to connect. address and access are borrowed for as long as the stream lives. HF_EUNREACH:
 * refused at once; HF_EMODULE: TLS is wanted and its module is not there; HF_EREFUSED:
 * a certificate file cannot be used; HF_EINVAL: TLS over a unix socket; HF_ENOMEM. TCP_NODELAY,
 * keepalive, close-on-exec. */
int stream_open(const struct address *address, const struct access *access,
                struct stream **ret_stream, struct error_text *err);
/* Closes without a word to the server, so that a forked child may do it too. NULL is fine. */
void stream_close(struct stream *stream);

/* In the child of a fork: closes the descriptor, and nothing else. Async-signal-safe. */
void stream_after_fork(struct stream *stream);

/* Ask again after each stream_connect that was not the last: the next address of a host has a
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
