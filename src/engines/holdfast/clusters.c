/* clusters.c: which cluster a URL means.
 *
 * Who lists several servers means one cluster. Each server says with its greeting which one it belongs to. A server of another cluster gives
 * locks of which ours knows nothing, so it must not be taken for one of ours, also while ours does not answer:
 *
 *     never served yet        servers of two clusters that are there at the same time are a mistake in the URL: refused
 *     served by cluster A     we stay with A. A server of cluster B is a stranger: it is met, and not believed, whatever it leads. That is an
 *                             outage, and sat out, until most servers of the URL say that they belong to B: ours was restored or exchanged
 *     a server of no cluster  waits to be founded, or added. It may be so the next time that it is greeted
 *
 * One server by itself in a URL is whatever it is now: its id tells the client whether it is the store that it was before. */
#include "engines/holdfast/store.h"

#include <string.h>

static bool is_in_url(const struct engine_store *store, const struct address *at)
{
    for (int i = 0; i < store->server_count; i++)
        if (address_same(at, &store->servers[i]))
            return true;
    return false;
}

/* Of those that are connected now. */
static bool is_of_most(const struct engine_store *store, const char *cluster)
{
    int count = 0;

    LIST_EACH(node, &store->scouts)
    {
        const struct scout *scout = LIST_ENTRY(node, struct scout, node);

        count +=
            scout->link && strcmp(scout->cluster, cluster) == 0 && is_in_url(store, &scout->at);
    }
    return 2 * count > store->server_count;
}

bool cluster_is_strange(const struct scout *scout)
{
    const struct engine_store *store = scout->store;

    return store->server_count > 1 && scout->cluster[0] && store->served_by[0] &&
           strcmp(scout->cluster, store->served_by) != 0 && !is_of_most(store, scout->cluster);
}

bool cluster_is_none(const struct scout *scout)
{
    return scout->store->server_count > 1 && !scout->cluster[0];
}

bool cluster_may_serve(const struct scout *scout)
{
    return !cluster_is_none(scout) && !cluster_is_strange(scout);
}

void cluster_stranger_words(const struct scout *scout, struct error_text *ret_words)
{
    error_write(ret_words,
                "%s belongs to cluster %s, and we were served by cluster %s: as long as most "
                "of the %d servers in the URL do not belong to it, it counts as a mistake",
                scout->at.shown, scout->cluster, scout->store->served_by,
                scout->store->server_count);
}

void cluster_serves(struct engine_store *store, const struct scout *scout)
{
    if (scout->cluster[0])
        memcpy(store->served_by, scout->cluster, sizeof store->served_by);
}

/* For who was never served. One at a time may well be of another cluster than the one before it: restored, exchanged. */
static int check_others(const struct scout *scout, struct error_text *err)
{
    const struct engine_store *store = scout->store;

    if (!scout->cluster[0] || store->served_by[0])
        return HF_OK;
    LIST_EACH(node, &store->scouts)
    {
        const struct scout *other = LIST_ENTRY(node, struct scout, node);

        if (other->cluster[0] && strcmp(scout->cluster, other->cluster) != 0)
            return error_set(err, HF_EREFUSED,
                             "%s belongs to cluster %s, and %s to cluster %s: they do not share "
                             "their locks. Name the servers of one cluster only ('holdfast cluster "
                             "status')",
                             scout->at.shown, scout->cluster, other->at.shown, other->cluster);
    }
    return HF_OK;
}

int cluster_greeted(struct scout *scout, const struct resp_node *reply, struct error_text *err)
{
    const struct engine_store *store = scout->store;
    const struct resp_node *cluster = map_value(reply, "cluster");

    if (store->server_count > 1 && map_number(reply, "alone", 0) != 0)
        return error_set(err, HF_EREFUSED,
                         "%s is a server by itself, started without 'cluster', and the URL names "
                         "%d servers: they do not share their locks. Name one of them only, or "
                         "found a cluster of them (docs/cluster.md)",
                         scout->at.shown, store->server_count);
    if (store->cluster[0] && !resp_is(cluster, store->cluster))
        return error_set(err, HF_EREFUSED,
                         "%s belongs to %s%.*s, and the URL says cluster=%s: 'holdfast cluster "
                         "status' shows the id of a cluster",
                         scout->at.shown,
                         cluster && cluster->size > 0 ? "cluster " : "no cluster that it names",
                         cluster && cluster->size <= HOLDFAST_CLUSTER ? (int)cluster->size : 0,
                         cluster && cluster->text ? cluster->text : "", store->cluster);
    if (cluster && cluster->size == HOLDFAST_CLUSTER)
        memcpy(scout->cluster, cluster->text, HOLDFAST_CLUSTER);
    return check_others(scout, err);
}
