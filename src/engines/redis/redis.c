/* redis.c: locks on one Redis server, the `redis:` store. docs/redis-store.md says what it can and
 * cannot promise, and draws its keys. */
#include "engines/redis/redis.h"
#include "engines/redis/store.h"

static int redis_open(struct url *url, const struct engine_host *host,
                      struct engine_store **ret_store, char *ret_where, struct error_text *err)
{
    struct engine_store *store;
    int result = redis_open_nodes(url, host, false, &store, ret_where, err);

    if (result != HF_OK)
        return result;
    result = listener_new(store, &store->nodes[0].address, err);
    if (result != HF_OK) {
        redis_close_nodes(store);
        return result;
    }
    *ret_store = store;
    return HF_OK;
}

static void redis_close(struct engine_store *store)
{
    listener_free(store);
    redis_close_nodes(store);
}

static void redis_after_fork(struct engine_store *store)
{
    store->forked = true;
    node_after_fork(&store->nodes[0]);
    listener_after_fork(store);
}

const struct engine redis_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "redis",
               .url = "redis://HOST[:PORT][/DB]",
               .features = HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_DELAY |
                           HF_HAS_DETACH | HF_HAS_BREAK | HF_HAS_FLOOR | HF_HAS_ONCE,
               .exclusion = HF_BEST_EFFORT,
               .tokens = HF_BEST_EFFORT,
               .survives =
                   "does NOT survive: a failover, loss of data, a jump of the server's clock",
               .wakes = "told by pub/sub, one at a time; else they ask again, with backoff",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .open = redis_open,
    .close = redis_close,
    .after_fork = redis_after_fork,
    .id = redis_id,
    .acquire = redis_acquire,
    .wait = redis_wait,
    .wake = redis_wake,
    .abandon = redis_abandon,
    .release = redis_release,
    .renew = redis_renew,
    .dispose = redis_dispose,
    .show = redis_show,
    .list = redis_list,
    .check = redis_check,
    .break_name = redis_break,
    .floor = redis_floor,
    .finish = redis_finish,
    .once_read = redis_once_read,
};
