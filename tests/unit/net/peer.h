/* peer.h: the other side of a stream, played by the test itself. One thread plays both sides: it
 * lets each go as far as it can, then polls for whichever can go on. So nothing here is a race, and
 * nothing waits longer than it must. */
#ifndef TESTS_NET_PEER_H
#define TESTS_NET_PEER_H

#include "net/stream.h"

/* All that cmocka.h wants to be included before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* For a test that hangs: then something is broken, and not slow. */
#define PATIENCE_MS 30000

struct peer {
    int listener;
    int fd; /* accepted, not blocking; -1: nobody came yet */
    struct address address;
    /* Called as long as it answers STREAM_AGAIN, once somebody came. NULL: nothing to do. */
    int (*greet)(struct peer *peer);
    void *context; /* greet's */
    int greeted;   /* what greet answered last */
};

/* host: "127.0.0.1", "[::1]", or a path. False where the machine has no such address. */
bool peer_listen(const char *host, struct peer *ret_peer);
/* The same server under another name: the test's getaddrinfo makes 127.0.0.1 of "*.test". */
void peer_rename(struct peer *peer, const char *host);
void peer_hang_up(struct peer *peer);
/* Refuses from now on. The port stays taken: else a connection to it might happen to be given the
 * same port for its own end, and then it would reach itself. */
void peer_deafen(struct peer *peer);
void peer_close(struct peer *peer);

/* Both go on until the stream is connected, or failed, and the peer has greeted. */
int peer_meet(struct peer *peer, struct stream *stream, struct error_text *err);
/* stream_open and peer_meet; *ret_stream is NULL unless the answer is HF_OK. */
int peer_dial(struct peer *peer, const struct access *access, struct stream **ret_stream,
              struct error_text *err);

void assert_says(const struct error_text *err, const char *words);
/* Blocks until an event comes, or fails the test. */
void wait_for(int fd, short events);
/* Reads exactly so many bytes; what stream_read answers if that is an error. */
ssize_t read_all(struct stream *stream, void *bytes, size_t size, struct error_text *err);
/* What getaddrinfo answers for "two.test": addresses of which the last one is the peer's. */
extern const char *two_test_first;
/* A socket that takes connections at this address and the port of another, and says nothing. */
int listen_silently(const char *host, const char *port);

#endif
