/* recovery.h: a replica from what its directory holds: snapshot, term and vote, log. Pure over struct disk: the node opens its
 * directory with this, and so does the simulator. */
#ifndef NODE_RECOVERY_H
#define NODE_RECOVERY_H

#include "journal/journal.h"
#include "journal/term.h"
#include "replica/replica.h"

/* A directory that is open. Begins as {0}. */
struct recovery {
    bool open;
    struct directory directory;
    struct term term;
    struct journal *journal; /* NULL until recovery_replica */
};

/* The directory is made if need be, and locked. Codes as of directory_open. */
int recovery_open(struct recovery *recovery, const struct disk *disk, const char *path,
                  struct error_text *err);
/* A new replica of all that is there, started. Its io may be asked to reset the log meanwhile, when the journal is open already. segment_bytes:
 * as for journal_open. HF_EIO: something is damaged or missing, in words. What was opened stays open, whatever comes out. */
int recovery_replica(struct recovery *recovery, size_t segment_bytes,
                     const struct replica_options *options, const struct replica_io *io,
                     const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                     struct error_text *err);
void recovery_close(struct recovery *recovery);

/* A snapshot, durable when it returns HF_OK; then the log is dropped, if that is asked for. For any thread, one at a time. */
int recovery_store_image(struct recovery *recovery, const struct replica_image *image,
                         bool drops_log, struct error_text *err);
/* The bytes of the one that is there, malloc'ed, as replica_image_decode reads them; NULL: there is none. */
int recovery_load_image(const struct recovery *recovery, unsigned char **ret_bytes,
                        size_t *ret_size, struct error_text *err);

#endif
