/* open.c: from a URL to nodes, the same for redis: and redlock:.
 *
 *     redis://[user:password@]host[:port][/database][?options]      rediss:// the same with TLS
 *     redis+unix:///path/to/socket[?db=N&options]
 *     redlock://[user:password@]h1[:port],h2[:port],h3[:port][/database][?options] */
#include "base/clock.h"
#include "base/text.h"
#include "engines/redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINGER_MS 50 /* the longest that closing waits for answers */
#define REDLOCK_TIMEOUT_MS 50
#define REDLOCK_TIMEOUT_MIN_MS 1
#define REDLOCK_TIMEOUT_MAX_MS 10000
#define REDLOCK_NODES_MIN 3

static int read_database(struct engine_store *store, struct url *url, const char *path,
                         struct error_text *err)
{
    const char *option = url_get(url, "db"), *text = *path == '/' ? path + 1 : path;
    uint64_t database = 0;

    if (strchr(path, '@'))
        return error_set(err, HF_EINVAL, "store URL: a '/' in a password is written %%2F");
    if (*text && option)
        return error_set(err, HF_EINVAL, "store URL: the database is given twice");
    if (option)
        text = option;
    if (*text && !text_to_u64(text, REDIS_DATABASES_MAX - 1, &database))
        return error_set(err, HF_EINVAL,
                         "store URL: after the host comes the number of a database, as in /0");
    store->database = (unsigned)database;
    return HF_OK;
}

static int read_options(struct engine_store *store, struct url *url, bool many,
                        struct error_text *err)
{
    const char *prefix = url_get(url, "prefix"), *tls = many ? url_get(url, "tls") : NULL;
    int result;

    if (!prefix)
        prefix = REDIS_PREFIX;
    if (strlen(prefix) > REDIS_PREFIX_MAX)
        return error_set(err, HF_EINVAL, "store URL: the prefix is longer than %d bytes",
                         REDIS_PREFIX_MAX);
    if (strncmp(prefix, SCRIPT_KEY_RESERVED, strlen(SCRIPT_KEY_RESERVED)) == 0)
        return error_set(err, HF_EINVAL, "store URL: a prefix may not begin with '%s'",
                         SCRIPT_KEY_RESERVED);
    memcpy(store->prefix, prefix, strlen(prefix) + 1);
    if (tls && strcmp(tls, "yes") != 0 && strcmp(tls, "no") != 0)
        return error_set(err, HF_EINVAL, "store URL: tls=%s is neither yes nor no", tls);
    store->access.tls = strcmp(url->scheme, "rediss") == 0 || (tls && strcmp(tls, "yes") == 0);
    result = access_read_revocations(url, many ? "tls=yes" : "rediss://", &store->access, err);
    if (result != HF_OK)
        return result;
    if (!many)
        return HF_OK;
    store->timeout_ms = REDLOCK_TIMEOUT_MS;
    result = url_get_ms(url, "timeout", REDLOCK_TIMEOUT_MIN_MS, REDLOCK_TIMEOUT_MAX_MS,
                        &store->timeout_ms, err);
    if (result == HF_OK)
        result = url_get_ms(url, "min-uptime", 0, HF_TTL_MAX_MS, &store->min_uptime_ms, err);
    return result;
}

static int add_node(struct engine_store *store, const struct address *address,
                    struct error_text *err)
{
    for (int i = 0; i < store->node_count; i++)
        if (strcmp(store->nodes[i].address.shown, address->shown) == 0)
            return error_set(err, HF_EINVAL, "store URL: %s is named twice, and would vote twice",
                             address->shown);
    if (store->node_count == REDIS_NODES_MAX)
        return error_set(err, HF_EINVAL, "store URL: more than %d servers", REDIS_NODES_MAX);
    node_init(&store->nodes[store->node_count++], address, &store->access, store->database, NULL,
              store->host);
    return HF_OK;
}

static int add_nodes(struct engine_store *store, const struct address_parts *parts, bool many,
                     struct error_text *err)
{
    const char *at = parts->hosts, *end = at + parts->hosts_length;
    struct address address;
    int result = HF_OK;

    if (parts->hosts_length == 0 && !many)
        at = "127.0.0.1", end = at + strlen(at);
    while (result == HF_OK && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma ? comma : end) - at);

        if (comma && !many)
            return error_set(err, HF_EINVAL,
                             "store URL: a Redis store is one server; for several independent "
                             "ones use redlock://");
        result = address_parse(at, length, REDIS_PORT, &address, err);
        if (result == HF_OK)
            result = add_node(store, &address, err);
        at += length + 1;
    }
    if (result == HF_OK && many && store->node_count < REDLOCK_NODES_MIN)
        return error_set(err, HF_EINVAL,
                         "store URL: a Redlock needs at least %d independent servers, better 5",
                         REDLOCK_NODES_MIN);
    return result;
}

static void say_where(const struct engine_store *store, char *ret_where)
{
    size_t used = 0, size = HF_URL_MAX + 1;

    for (int i = 0; i < store->node_count && used < size; i++)
        used += (size_t)snprintf(ret_where + used, size - used, "%s%s", i ? ", " : "",
                                 store->nodes[i].address.shown);
    if (used < size && store->database)
        used += (size_t)snprintf(ret_where + used, size - used, ", database %u", store->database);
    if (used < size)
        snprintf(ret_where + used, size - used, ", keys %s*", store->prefix);
}

static int read_url(struct engine_store *store, struct url *url, bool many, struct error_text *err)
{
    bool local = strcmp(url->scheme, "redis+unix") == 0;
    struct address_parts parts;
    int result = address_split(url->rest, &parts, err);

    if (result == HF_OK && local && parts.hosts_length > 0)
        result = error_set(err, HF_EINVAL, "store URL: redis+unix: is followed by ///path");
    if (result == HF_OK && local && !parts.path[0])
        result = error_set(err, HF_EINVAL, "store URL: redis+unix: needs the path of a socket");
    if (result == HF_OK)
        result = access_read(url, parts.userinfo, parts.userinfo_length, &store->access, err);
    if (result == HF_OK)
        result = read_options(store, url, many, err);
    if (result == HF_OK)
        result = read_database(store, url, local ? "" : parts.path, err);
    if (result != HF_OK)
        return result;
    if (local)
        parts.hosts = parts.path, parts.hosts_length = strlen(parts.path);
    return add_nodes(store, &parts, many, err);
}

int redis_open_nodes(struct url *url, const struct engine_host *host, bool many,
                     struct engine_store **ret_store, char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    store->host = host;
    result = read_url(store, url, many, err);
    if (result != HF_OK) {
        redis_close_nodes(store);
        return result;
    }
    say_where(store, ret_where);
    *ret_store = store;
    return HF_OK;
}

void redis_close_nodes(struct engine_store *store)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), LINGER_MS);

    for (int i = 0; i < store->node_count && !store->forked; i++)
        node_linger(&store->nodes[i], deadline_ms);
    for (int i = 0; i < store->node_count; i++)
        node_close(&store->nodes[i], store->forked);
    access_wipe(&store->access);
    free(store);
}

int redis_check_key(const struct engine_store *store, const char *name, struct error_text *err)
{
    size_t reserved = strlen(SCRIPT_KEY_RESERVED), prefix = strlen(store->prefix);

    if (prefix >= reserved)
        return HF_OK;
    if (strncmp(SCRIPT_KEY_RESERVED, store->prefix, prefix) != 0 ||
        strncmp(&SCRIPT_KEY_RESERVED[prefix], name, reserved - prefix) != 0)
        return HF_OK;
    return error_set(err, HF_EINVAL, "names that begin with '%s' are reserved",
                     SCRIPT_KEY_RESERVED);
}
