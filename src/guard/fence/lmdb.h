/* lmdb.h: what the files of the module holdfast-fence.so share. lmdb.c says how it works. */
#ifndef GUARD_FENCE_LMDB_H
#define GUARD_FENCE_LMDB_H

#include "base/list.h"
#include "guard/fence/marks.h"

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define READERS_MAX 2048 /* transactions that read, of all processes together */
#define IDLE_MAX 64      /* kept for use again, of this process */
#define FILES 2          /* data.mdb, lock.mdb */

struct marks {
    struct list node;
    unsigned users;
    bool inherited; /* from before a fork: not ours to touch */
    dev_t device;   /* which directory it is */
    ino_t inode;
    int directory;      /* its descriptor */
    ino_t files[FILES]; /* which files are open */
    MDB_env *env;
    MDB_dbi dbi;
    char *path;

    pthread_rwlock_t resizing; /* a transaction holds it shared */
    pthread_mutex_t mutex;     /* for idle */
    MDB_txn *idle[IDLE_MAX];
    size_t idle_count;
    _Atomic uint32_t commits;
};

/* ---- opening.c ------------------------------------------------------------------------------- */

int lmdb_open(const char *path, uint64_t bytes_max, struct marks **ret_marks,
              struct error_text *err);
void lmdb_close(struct marks *marks);
/* HF_EREFUSED if what is open is not what others would open: marks that are raised here would be
 * unknown to them, and theirs to us. */
int lmdb_check_files(const struct marks *marks, struct error_text *err);

/* ---- transactions.c -------------------------------------------------------------------------- */

/* LMDB's code (doing: "read") as a result with its line. */
int lmdb_explain(const struct marks *marks, int code, const char *doing, struct error_text *err);
void lmdb_forget_dead_readers(struct marks *marks);
/* Makes the map so great; 0: as great as another process has made it. Waits for transactions to end.
 * Returns LMDB's code. */
int lmdb_resize(struct marks *marks, size_t bytes);
void lmdb_drop_idle(struct marks *marks);

int lmdb_begin_reading(struct marks *marks, MDB_txn **ret_txn, struct error_text *err);
void lmdb_end_reading(struct marks *marks, MDB_txn *txn);

/* One attempt at writing. Returns LMDB's code; if that is MDB_SUCCESS and *ret_result is not HF_OK,
 * it has failed by itself, and said why. */
typedef int lmdb_write_fn(struct marks *marks, MDB_txn *txn, void *context, int *ret_result,
                          struct error_text *err);
/* Runs the body in a transaction, again if something could be done about its failure. */
int lmdb_write(struct marks *marks, lmdb_write_fn *body, void *context, struct error_text *err);

#endif
