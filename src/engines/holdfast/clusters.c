/* clusters.c: which cluster a URL means.
 *
 * Who lists several servers means one cluster. Each server says with its handshake which one it belongs to. A server of another cluster gives
 * locks of which ours knows nothing, so it must not be taken for one of ours, also while ours does not answer:
 *
 *     the first that we meet  whichever it belongs to, so do we: to cluster A
 *     from then on            a server of cluster B is a stranger: it is met, and not believed, whatever it leads. That is an outage, and sat
 *                             out, until most servers of the URL say that they belong to B: ours was restored or exchanged
 *     a server of no cluster  waits to be founded, or added. It may be so the next time that it is greeted; until then nobody is served by it, or goes
 *                             where it sends him, and nobody forgets for it which cluster is his own
 *
 * One server by itself in a URL is whatever it is now: its id tells the client whether it is the store that it was before. Where it sends us, though,
 * there has to be its own cluster; and if it belongs to none yet, the rule above. */
#include "base/switches.h"
#include "engines/holdfast/store.h"

#include <string.h>

static bool is_in_url(const struct engine_store *store, const struct address *at)
{
    for (int i = 0; i < store->server_count; i++)
        if (address_same(at, &store->servers[i]))
            return true;
    return false;
}

/* A server of the URL that is connected now, and says so. */
static bool says(const struct probe *probe, const char *cluster)
{
    return probe->link && strcmp(probe->cluster, cluster) == 0 &&
           is_in_url(probe->store, &probe->at);
}

/* Is it one of several, which have to be of one cluster? */
static bool is_judged(const struct probe *probe)
{
    const struct engine_store *store = probe->store;

    return store->server_count > 1 || (store->ours[0] && !is_in_url(store, &probe->at));
}

/* Is it another name or address of one before it in the list? */
static bool is_named_twice(const struct probe *probe, const char *cluster)
{
    LIST_EACH(node, &probe->store->probes)
    {
        const struct probe *other = LIST_ENTRY(node, struct probe, node);

        if (other == probe)
            return false;
        if (says(other, cluster) && ((probe->node_id != 0 && other->node_id == probe->node_id) ||
                                     stream_same_peer(other->link->stream, probe->link->stream)))
            return true;
    }
    return false;
}

/* Each that does not say so, or does not answer, counts as a server; those that do only once, whatever the URL calls them. */
static bool is_of_most(const struct engine_store *store, const char *cluster)
{
    int named = 0, servers = 0;

    LIST_EACH(node, &store->probes)
    {
        const struct probe *probe = LIST_ENTRY(node, struct probe, node);

        if (!says(probe, cluster))
            continue;
        named++;
        servers += !is_named_twice(probe, cluster);
    }
    return servers > store->server_count - named;
}

bool cluster_is_strange(const struct probe *probe)
{
    const struct engine_store *store = probe->store;

    return !SWITCHED(SWITCH_STRANGER_BELIEVED) && is_judged(probe) && probe->cluster[0] &&
           store->ours[0] && strcmp(probe->cluster, store->ours) != 0 &&
           !is_of_most(store, probe->cluster);
}

bool cluster_is_none(const struct probe *probe)
{
    return !probe->cluster[0] && (probe->unfounded || is_judged(probe));
}

bool cluster_may_serve(const struct probe *probe)
{
    return !cluster_is_none(probe) && !cluster_is_strange(probe);
}

void cluster_stranger_words(const struct probe *probe, struct error_text *ret_words)
{
    const struct engine_store *store = probe->store;

    LIST_EACH(node, &store->probes)
    {
        const struct probe *other = LIST_ENTRY(node, struct probe, node);

        if (other->link && strcmp(other->cluster, store->ours) == 0) {
            error_write(ret_words,
                        "%s belongs to cluster %s, and %s to cluster %s: they do not share their "
                        "locks. Name the servers of one cluster only ('holdfast cluster status')",
                        probe->at.shown, probe->cluster, other->at.shown, other->cluster);
            return;
        }
    }
    if (store->server_count == 1) {
        error_write(ret_words,
                    "%s, where %s has sent us, belongs to cluster %s, and that to cluster %s: they "
                    "do not share their locks",
                    probe->at.shown, store->servers[0].shown, probe->cluster, store->ours);
        return;
    }
    error_write(ret_words,
                "%s belongs to cluster %s, and we %s cluster %s: as long as most of the %d servers "
                "in the URL do not belong to it, it counts as a mistake",
                probe->at.shown, probe->cluster, store->served ? "were served by" : "have met",
                store->ours, store->server_count);
}

void cluster_serves(struct engine_store *store, const struct probe *probe)
{
    if (probe->cluster[0])
        memcpy(store->ours, probe->cluster, sizeof store->ours);
}

int cluster_on_handshake(struct probe *probe, const struct resp_node *reply, struct error_text *err)
{
    struct engine_store *store = probe->store;
    const struct resp_node *cluster = map_value(reply, "cluster");
    bool alone = map_number(reply, "alone", 0) != 0, none;

    probe->unfounded = cluster && cluster->size == 0 && !alone;
    none = probe->unfounded || (is_judged(probe) && (!cluster || cluster->size == 0));
    if (store->server_count > 1 && alone)
        return error_set(err, HF_EREFUSED,
                         "%s is a server by itself, started without 'cluster', and the URL names "
                         "%d servers: they do not share their locks. Name one of them only, or "
                         "found a cluster of them (docs/cluster.md)",
                         probe->at.shown, store->server_count);
    if (store->cluster[0] && !none && !resp_is(cluster, store->cluster))
        return error_set(err, HF_EREFUSED,
                         "%s belongs to %s%.*s, and the URL says cluster=%s: 'holdfast cluster "
                         "status' shows the id of a cluster",
                         probe->at.shown,
                         cluster && cluster->size > 0 ? "cluster " : "no cluster that it names",
                         cluster && cluster->size <= HOLDFAST_CLUSTER ? (int)cluster->size : 0,
                         cluster && cluster->text ? cluster->text : "", store->cluster);
    if (cluster && cluster->size == HOLDFAST_CLUSTER)
        memcpy(probe->cluster, cluster->text, HOLDFAST_CLUSTER);
    probe->node_id = map_number(reply, "node", 0);
    if (probe->cluster[0] &&
        (store->server_count > 1 ? !store->ours[0] : is_in_url(store, &probe->at)))
        memcpy(store->ours, probe->cluster, sizeof store->ours);
    return HF_OK;
}
