/* zookeeper.c: locks in ZooKeeper, the `zookeeper:` store. docs/zookeeper-store.md says what it can and cannot promise,
 * and draws its nodes. */
#include "engines/zookeeper/store.h"

/* The library's threads are not in the child, and its descriptors keep nothing alive: a session lives by what is sent on
 * it. Its memory and its sockets stay, as copies that nobody uses, until the child ends or runs another program. */
static void zk_after_fork(struct engine_store *store)
{
    store->forked = true;
}

/* There is no descriptor: only the time matters. */
static int zk_poll_fd(struct engine_store *store)
{
    (void)store;
    return -1;
}

static const struct engine zookeeper_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "zookeeper",
               .url = "zookeeper://H1,H2,H3/ROOT",
               .features = HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_FIFO |
                           HF_HAS_BREAK | HF_HAS_PUSH,
               .exclusion = HF_STRICT,
               .tokens = HF_STRICT,
               .survives = "survives the loss of a minority of the servers",
               .wakes = "told by a watch on whoever is before them, in their order",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .open = zk_open,
    .close = zk_close,
    .after_fork = zk_after_fork,
    .id = zk_id,
    .acquire = zk_acquire,
    .wait = zk_wait,
    .wake = zk_wake,
    .abandon = zk_abandon,
    .release = zk_release,
    .renew = zk_renew,
    .dispose = zk_dispose,
    .poll_fd = zk_poll_fd,
    .process = sessions_process,
    .show = zk_show,
    .list = zk_list,
    .check = zk_check,
    .break_name = zk_break,
};

__attribute__((visibility("default"))) const struct engine *holdfast_engine(void);

const struct engine *holdfast_engine(void)
{
    return &zookeeper_engine;
}
