/* uv.h: the real raft_io: libraft's backend on a libuv loop and a data directory.
 *
 *     replica_uv_open ──▶ replica_open … replica_close ──▶ replica_uv_close
 *
 * Files in the directory:
 *
 *     lock                        locked by the process that uses the directory; its number inside
 *     metadata1, metadata2        libraft: term and vote, in turn
 *     0000000000000001-…0042      libraft: a closed segment of the log, by first and last entry
 *     open-1                      libraft: a segment being written, or ready for it
 *     snapshot-T-I-S[.meta]       libraft: a snapshot, by term and entry
 *
 * A process that may run into a limit on the size of files ignores SIGXFSZ. */
#ifndef REPLICA_UV_H
#define REPLICA_UV_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct raft_io;
struct raft_uv_transport;
struct replica_uv;
struct uv_loop_s;

struct replica_uv_options {
    const char *path; /* of the data directory: made if it is not there, in one that is */
    /* The replica is opened with founding members: a founding that was interrupted begins again. */
    bool founding;
    size_t segment_bytes; /* 0: libraft's own, 8 MB; or 4 MB (its arithmetic allows no others) */
    /* How to reach the others, borrowed until closed; NULL: there are none. */
    struct raft_uv_transport *transport;
};

/* HF_EBUSY: another process uses the directory. HF_EREFUSED: it may not be used. HF_EIO: it cannot
 * be, or what is in it is not whole. Nothing in it has been changed then. */
int replica_uv_open(struct uv_loop_s *loop, const struct replica_uv_options *options,
                    struct replica_uv **ret_uv, struct error_text *err);
/* For replica_open; uv's own. */
struct raft_io *replica_uv_io(struct replica_uv *uv);
/* For replica_options.check_disk, with uv as disk. Looks in a thread of its own: a disk that hangs
 * must not take the loop with it. */
int replica_uv_check_disk(void *uv, struct error_text *err);
/* Only after replica_close has called back, or replica_open has failed. The loop runs on until done
 * is called; what is left on it then closes by itself. */
void replica_uv_close(struct replica_uv *uv, void (*done)(void *context), void *context);

#endif
