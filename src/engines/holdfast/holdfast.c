/* holdfast.c: locks on a holdfastd, the `holdfast:` store. docs/holdfast-store.md tells how it works. */
#include "engines/holdfast/store.h"
#include "engines/holdfast/table.h"

/* In the child of a fork: other threads were left behind, perhaps with the mutex. */
static void holdfast_after_fork(struct engine_store *store)
{
    store->forked = true;
    for (int i = 0; i <= HOLDFAST_PROBES_MAX; i++)
        link_after_fork(atomic_load(&store->links[i]));
}

const struct engine holdfast_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "holdfast",
               .url = "holdfast://H1[,H2,H3]",
               .features = HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_FIFO |
                           HF_HAS_DELAY | HF_HAS_DETACH | HF_HAS_BREAK | HF_HAS_FLOOR |
                           HF_HAS_ONCE | HF_HAS_PUSH,
               .exclusion = HF_STRICT,
               .tokens = HF_STRICT,
               .survives = "survives a restart of the server; a cluster, the loss of a minority",
               .wakes = "told by the server, in the order in which they came",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .open = holdfast_open,
    .close = holdfast_close,
    .after_fork = holdfast_after_fork,
    .id = holdfast_id,
    .acquire = holdfast_acquire,
    .wake = holdfast_wake,
    .observe = holdfast_observe,
    .abandon = holdfast_abandon,
    .release = holdfast_release,
    .renew = holdfast_renew,
    .renew_batch = HOLDFAST_RENEW_MAX, /* one command */
    .dispose = holdfast_dispose,
    .show = holdfast_show,
    .list = holdfast_list,
    .check = holdfast_check,
    .break_name = holdfast_break,
    .floor = holdfast_floor,
    .finish = holdfast_finish,
    .once_read = holdfast_once_read,
    .cluster_look = holdfast_cluster_look,
    .cluster_change = holdfast_cluster_change,
    .backup_begin = holdfast_backup_begin,
    .backup_piece = holdfast_backup_piece,
};
