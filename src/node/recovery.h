/* recovery.h: a replica from what its directory holds: snapshot, term and vote, log. Pure over struct disk: the node opens its
 * directory with this, and so does the simulator.
 *
 *     recovery_open ──▶ recovery_load ──▶ recovery_begin ──▶ … ──▶ recovery_close
 *                        (reads all)       (changes files, and the replica takes part)
 *
 * Between load and begin nothing in the directory has been changed: replica_members_found says whose log it is, journal_torn what
 * will be dropped of it, and whoever does not like either closes it again. */
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
    uint64_t snapshot_index; /* of the snapshot that recovery_load has found; 0: none */
    struct journal *journal; /* NULL until recovery_load */
};

/* The directory is made if need be, and locked. Codes as of directory_open and files_check. Whatever comes out, recovery_close
 * gives back what there is. */
int recovery_open(struct recovery *recovery, const struct disk *disk, const char *path,
                  struct error_text *err);
/* The same of one into which a backup is being restored: what else is in it is not looked at. */
int recovery_open_restoring(struct recovery *recovery, const struct disk *disk, const char *path,
                            struct error_text *err);
/* A new replica of all that is there. segment_bytes: as for journal_open. HF_EIO: something is damaged or missing, in words.
 * HF_EREFUSED: it was written in another form. What was opened stays open, whatever comes out. */
int recovery_load(struct recovery *recovery, size_t segment_bytes,
                  const struct replica_options *options, const struct replica_io *io,
                  const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                  struct error_text *err);
/* It is started. Its io may be asked to reset the log meanwhile: the journal is open. It stays the caller's if that fails. */
int recovery_begin(struct recovery *recovery, struct replica *replica, int64_t now_us,
                   struct error_text *err);
/* Both. */
int recovery_replica(struct recovery *recovery, size_t segment_bytes,
                     const struct replica_options *options, const struct replica_io *io,
                     const struct replica_host *host, int64_t now_us, struct replica **ret_replica,
                     struct error_text *err);
void recovery_close(struct recovery *recovery);

/* A snapshot, durable when it returns HF_OK; then the log is dropped, if that is asked for. For any thread, one at a time. */
int recovery_store_snapshot(struct recovery *recovery, const struct replica_snapshot *snapshot,
                            bool drops_log, struct error_text *err);
/* The bytes of the one that is there, malloc'ed, as replica_snapshot_decode reads them; NULL: there is none. */
int recovery_load_snapshot(const struct recovery *recovery, unsigned char **ret_bytes,
                           size_t *ret_size, struct error_text *err);

#endif
