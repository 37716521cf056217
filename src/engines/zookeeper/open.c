/* open.c: from a URL to a store, and where its nodes are.
 *
 *     zookeeper://[user:password@]h1[:port][,h2[:port]...][/root][?names=kazoo|curator]
 *
 *     ROOT                    persistent
 *     ROOT/NAME               a container: ZooKeeper deletes it some time after its last child. Percent-encoded
 *     ROOT/NAME/x-ID-SEQUENCE ephemeral: who holds or waits (contenders.c). ID: a digest of the lease, which is secret
 *     ROOT/%id                the id of this store. No name is encoded so */
#include "base/clock.h"
#include "base/text.h"
#include "engines/zookeeper/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_KEEP "-_~:@,=+."

const struct ACL_vector *zk_acl(const struct engine_store *store)
{
    return store->access.password[0] ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

/* ---- paths ----------------------------------------------------------------------------------- */

void zk_parent_path(const struct engine_store *store, const char *name,
                    char ret_path[ZK_PARENT_MAX])
{
    size_t used = (size_t)snprintf(ret_path, ZK_PARENT_MAX, "%s/", store->root);
    bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0; /* ZooKeeper has no such names */
    /* The root of all has a child of ZooKeeper's own. */
    bool reserved = !store->root[0] && strcmp(name, "zookeeper") == 0;

    if (reserved)
        snprintf(ret_path + used, ZK_PARENT_MAX - used, "%%7aookeeper");
    else
        text_percent_encode(name, strlen(name), dots ? "" : NAME_KEEP, ret_path + used,
                            ZK_PARENT_MAX - used);
}

void zk_child_path(const char *parent, const char *child, char ret_path[ZK_PATH_MAX])
{
    size_t length = strlen(parent), size = strlen(child) + 1;

    INVARIANT(length < ZK_PARENT_MAX && size <= ZK_CHILD_MAX);
    memcpy(ret_path, parent, length);
    ret_path[length] = '/';
    memcpy(ret_path + length + 1, child, size);
}

static int make_node(struct session *session, const char *path, int mode, int64_t deadline_ms,
                     struct error_text *err)
{
    int result;
    struct call *call = call_create(session, path, "", 0, mode, &result, err);

    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc != ZOK && call->rc != ZNODEEXISTS)
        result = call_unexpected(call, path, err);
    call_end(call);
    return result;
}

int zk_make_root(struct session *session, int64_t deadline_ms, struct error_text *err)
{
    char path[ZK_ROOT_MAX + 1];
    int result;

    memcpy(path, session->store->root, sizeof path);
    if (!path[0])
        return HF_OK;
    for (char *at = strchr(path + 1, '/');; at = strchr(at + 1, '/')) {
        if (at)
            *at = '\0';
        result = make_node(session, path, ZOO_PERSISTENT, deadline_ms, err);
        if (!at || result != HF_OK)
            return result;
        *at = '/';
    }
}

int zk_make_parent(struct session *session, const char *name, int64_t deadline_ms,
                   struct error_text *err)
{
    char path[ZK_PARENT_MAX];
    int result = zk_make_root(session, deadline_ms, err);

    if (result != HF_OK)
        return result;
    zk_parent_path(session->store, name, path);
    return make_node(session, path, ZOO_CONTAINER, deadline_ms, err);
}

/* ---- URLs ------------------------------------------------------------------------------------ */

/* After a failure the library goes on by two servers. With an even number of them it would try half of them only, never
 * notice that it has tried all, and so never pause. */
static void make_odd(struct engine_store *store)
{
    size_t used = strlen(store->hosts);

    if (store->address_count % 2 == 0)
        snprintf(store->library_hosts, sizeof store->library_hosts, "%s,%s:%s", store->hosts,
                 store->addresses[0].host, store->addresses[0].port);
    else
        memcpy(store->library_hosts, store->hosts, used + 1);
}

static int add_server(struct engine_store *store, const char *text, size_t length, char *where,
                      struct error_text *err)
{
    struct address *address = &store->addresses[store->address_count];
    size_t used = strlen(store->hosts), shown = strlen(where);
    int result;

    if (store->address_count == ZK_SERVERS_MAX)
        return error_set(err, HF_EINVAL, "store URL: more than %d servers", ZK_SERVERS_MAX);
    result = address_parse(text, length, ZK_PORT, address, err);
    if (result != HF_OK)
        return result;
    store->address_count++;
    if (address->path[0])
        return error_set(err, HF_EINVAL, "store URL: ZooKeeper has no unix sockets");
    snprintf(store->hosts + used, sizeof store->hosts - used, "%s%s:%s", used ? "," : "",
             address->host, address->port);
    snprintf(where + shown, HF_URL_MAX + 1 - shown, "%s%s", shown ? ", " : "", address->shown);
    return HF_OK;
}

static int read_servers(struct engine_store *store, const char *at, const char *end, char *where,
                        struct error_text *err)
{
    int result = HF_OK;

    if (at == end)
        return error_set(err, HF_EINVAL,
                         "store URL: zookeeper://HOST[:PORT],HOST... names the servers");
    while (result == HF_OK && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma ? comma : end) - at);

        result = add_server(store, at, length, where, err);
        at += length + 1;
    }
    return result;
}

/* Each part of a path must be one that ZooKeeper takes. */
static bool is_part(const char *part, size_t length)
{
    if (length == 0 || (length <= 2 && memcmp(part, "..", length) == 0))
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)part[i] < ' ' || part[i] == 0x7f)
            return false;
    return text_is_utf8(part, length);
}

static int read_root(struct engine_store *store, const char *path, struct error_text *err)
{
    char decoded[ZK_ROOT_MAX + 2];
    size_t length;

    if (strchr(path, '@'))
        return error_set(err, HF_EINVAL, "store URL: a '/' in a password is written %%2F");
    if (!text_percent_decode(path, strlen(path), decoded, sizeof decoded))
        return error_set(err, HF_EINVAL,
                         "store URL: the root is not percent-encoded, or longer than %d bytes",
                         ZK_ROOT_MAX);
    length = strlen(decoded);
    if (length > 0 && decoded[length - 1] == '/')
        decoded[--length] = '\0';
    if (length > ZK_ROOT_MAX)
        return error_set(err, HF_EINVAL, "store URL: the root is longer than %d bytes",
                         ZK_ROOT_MAX);
    for (const char *at = decoded; *at; at += 1 + strcspn(at + 1, "/"))
        if (!is_part(at + 1, strcspn(at + 1, "/")))
            return error_set(err, HF_EINVAL,
                             "store URL: '%.200s' is no path of ZooKeeper: each part is UTF-8, and "
                             "neither empty nor a dot",
                             decoded);
    if (strncmp(decoded, "/zookeeper", 10) == 0 && (decoded[10] == '/' || !decoded[10]))
        return error_set(err, HF_EINVAL, "store URL: /zookeeper is ZooKeeper's own");
    memcpy(store->root, decoded, length + 1);
    return HF_OK;
}

static int read_names(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *names = url_get(url, "names");

    if (!names)
        return HF_OK;
    if (strcmp(names, "kazoo") == 0)
        store->names = ZK_NAMES_KAZOO;
    else if (strcmp(names, "curator") == 0)
        store->names = ZK_NAMES_CURATOR;
    else
        return error_set(err, HF_EINVAL, "store URL: names=%.50s is neither kazoo nor curator",
                         names);
    return HF_OK;
}

static int read_url(struct engine_store *store, struct url *url, char *where,
                    struct error_text *err)
{
    const char *rest = url->rest, *at, *path;
    size_t used;
    int result;

    if (strncmp(rest, "//", 2) != 0)
        return error_set(err, HF_EINVAL, "store URL: after zookeeper: comes //HOST[:PORT],HOST...");
    rest += 2;
    path = rest + strcspn(rest, "/");
    at = memrchr(rest, '@', (size_t)(path - rest));
    result = access_read(url, at ? rest : NULL, at ? (size_t)(at - rest) : 0, &store->access, err);
    if (result == HF_OK && (store->access.ca_file[0] || store->access.cert_file[0]))
        result = error_set(err, HF_EINVAL,
                           "store URL: there is no TLS to ZooKeeper: its library lacks it");
    if (result == HF_OK && !store->access.user[0] != !store->access.password[0])
        result = error_set(err, HF_EINVAL,
                           "store URL: for ZooKeeper give both a user and a password, or none");
    if (result == HF_OK)
        result = read_names(store, url, err);
    if (result == HF_OK)
        result = read_servers(store, at ? at + 1 : rest, path, where, err);
    if (result == HF_OK)
        result = read_root(store, path, err);
    if (result == HF_OK)
        make_odd(store);
    used = strlen(where);
    if (result == HF_OK && used <= HF_URL_MAX)
        snprintf(where + used, HF_URL_MAX + 1 - used, ", nodes below %s/", store->root);
    return result;
}

int zk_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
            char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (store)
        store->addresses = calloc(ZK_SERVERS_MAX, sizeof *store->addresses);
    if (!store || !store->addresses) {
        free(store);
        return error_set(err, HF_ENOMEM, "out of memory");
    }
    store->host = host;
    pthread_mutex_init(&store->opening, NULL);
    pthread_mutex_init(&store->mutex, NULL);
    list_init(&store->sessions);
    list_init(&store->claims);
    ret_where[0] = '\0';
    result = read_url(store, url, ret_where, err);
    if (result != HF_OK) {
        zk_close(store);
        return result;
    }
    *ret_store = store;
    return HF_OK;
}

void zk_close(struct engine_store *store)
{
    sessions_close(store);
    access_wipe(&store->access);
    free(store->addresses);
    if (store->forked) /* threads that are not here may have had them */
        return;
    pthread_mutex_destroy(&store->mutex);
    pthread_mutex_destroy(&store->opening);
    free(store);
}
