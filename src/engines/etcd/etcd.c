/* etcd.c: locks on an etcd cluster, the `etcd:` store. docs/etcd-store.md tells how it works. */
#include "engines/etcd/store.h"

static void etcd_after_fork(struct engine_store *store)
{
    store->forked = true;
    gateway_after_fork(store);
}

static const struct engine etcd_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "etcd",
               .url = "etcd://H1,H2,H3[/PREFIX]",
               .features = HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_FIFO |
                           HF_HAS_DETACH | HF_HAS_BREAK | HF_HAS_ONCE | HF_HAS_PUSH,
               .exclusion = HF_STRICT,
               .tokens = HF_STRICT,
               .survives =
                   "survives the loss of a minority; before 3.4.32, 3.5.14 tokens may go back",
               .wakes = "told by a watch of the one before them, in their order",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .open = etcd_open,
    .close = etcd_close,
    .after_fork = etcd_after_fork,
    .id = etcd_id,
    .acquire = etcd_acquire,
    .wake = etcd_wake,
    .observe = etcd_observe,
    .abandon = etcd_abandon,
    .release = etcd_release,
    .renew = etcd_renew,
    .dispose = etcd_dispose,
    .show = etcd_show,
    .list = etcd_list,
    .check = etcd_check,
    .break_name = etcd_break,
    .finish = etcd_finish,
    .once_read = etcd_once_read,
};

const struct engine *holdfast_engine(void);

HF_API const struct engine *holdfast_engine(void)
{
    return &etcd_engine;
}
