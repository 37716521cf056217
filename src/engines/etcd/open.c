/* open.c: from a URL to endpoints.
 *
 *     etcd://[user:password@]h1[:port],h2[:port],h3[:port][/prefix][?options]      etcds:// the same with TLS */
#include "base/text.h"
#include "engines/etcd/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "/a/b" or "/a/b/" is the prefix "a/b/"; none is that of the default. */
static int read_prefix(struct engine_store *store, struct url *url, const char *path,
                       struct error_text *err)
{
    const char *option = url_get(url, "prefix");
    char text[ETCD_PREFIX_MAX + 1] = "";
    size_t size;

    if (strchr(path, '@'))
        return error_set(err, HF_EINVAL, "store URL: a '/' in a password is written %%2F");
    path += *path == '/';
    size = strlen(path);
    while (size > 0 && path[size - 1] == '/')
        size--;
    if (size > 0 && option)
        return error_set(err, HF_EINVAL, "store URL: the prefix is given twice");
    if (option ? strlen(option) > ETCD_PREFIX_MAX
               : size > 0 && !text_percent_decode(path, size, text, sizeof text))
        return error_set(err, HF_EINVAL,
                         "store URL: the prefix is malformed, or longer than %d bytes",
                         ETCD_PREFIX_MAX);
    if (option)
        memcpy(text, option, strlen(option) + 1);
    else if (size == 0)
        snprintf(text, sizeof text, ETCD_PREFIX);
    size = strlen(text);
    snprintf(store->prefix, sizeof store->prefix, "%s%s", text,
             size > 0 && text[size - 1] != '/' ? "/" : "");
    store->prefix_size = strlen(store->prefix);
    return HF_OK;
}

static int add_endpoint(struct engine_store *store, const struct address *address,
                        struct error_text *err)
{
    struct endpoint *endpoint = &store->endpoints[store->endpoint_count];
    bool colons = strchr(address->host, ':') != NULL;

    if (address->path[0])
        return error_set(err, HF_EINVAL, "store URL: etcd has no Unix socket for clients");
    for (int i = 0; i < store->endpoint_count; i++)
        if (strcmp(store->endpoints[i].address.shown, address->shown) == 0)
            return error_set(err, HF_EINVAL, "store URL: %s is named twice", address->shown);
    if (store->endpoint_count == ETCD_ENDPOINTS_MAX)
        return error_set(err, HF_EINVAL, "store URL: more than %d servers", ETCD_ENDPOINTS_MAX);
    endpoint->address = *address;
    snprintf(endpoint->url, sizeof endpoint->url, "%s://%s%s%s:%s",
             store->access.tls ? "https" : "http", colons ? "[" : "", address->host,
             colons ? "]" : "", address->port);
    store->endpoint_count++;
    return HF_OK;
}

static int add_endpoints(struct engine_store *store, const struct address_parts *parts,
                         struct error_text *err)
{
    const char *at = parts->hosts, *end = at + parts->hosts_length;
    struct address address;
    int result = HF_OK;

    if (parts->hosts_length == 0)
        at = "127.0.0.1", end = at + strlen(at);
    while (result == HF_OK && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma ? comma : end) - at);

        result = address_parse(at, length, ETCD_PORT, &address, err);
        if (result == HF_OK)
            result = add_endpoint(store, &address, err);
        at += length + 1;
    }
    return result;
}

static int read_url(struct engine_store *store, struct url *url, struct error_text *err)
{
    struct address_parts parts;
    int result = address_split(url->rest, &parts, err);

    if (result == HF_OK)
        result = access_read(url, parts.userinfo, parts.userinfo_length, &store->access, err);
    if (result != HF_OK)
        return result;
    store->access.tls = strcmp(url->scheme, "etcds") == 0;
    if (!store->access.tls && (store->access.ca_file[0] || store->access.cert_file[0]))
        return error_set(err, HF_EINVAL,
                         "store URL: ca-file, cert-file and key-file are for TLS: use etcds://");
    if (store->access.password[0] && !store->access.user[0] && parts.userinfo)
        return error_set(err, HF_EINVAL,
                         "store URL: a password needs a user: etcd://USER:PASSWORD@...");
    result = read_prefix(store, url, parts.path, err);
    if (result == HF_OK)
        result = url_get_ms(url, "timeout", ETCD_TIMEOUT_MIN_MS, ETCD_TIMEOUT_MAX_MS,
                            &store->timeout_ms, err);
    return result == HF_OK ? add_endpoints(store, &parts, err) : result;
}

static void say_where(const struct engine_store *store, char *ret_where)
{
    size_t used = 0, size = HF_URL_MAX + 1;

    for (int i = 0; i < store->endpoint_count && used < size; i++)
        used += (size_t)snprintf(ret_where + used, size - used, "%s%s", i ? ", " : "",
                                 store->endpoints[i].address.shown);
    if (used < size)
        snprintf(ret_where + used, size - used, ", keys %sNAME/*", store->prefix);
}

int etcd_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
              char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    store->host = host;
    store->timeout_ms = ETCD_TIMEOUT_MS;
    list_init(&store->idle);
    list_init(&store->watches);
    pthread_mutex_init(&store->mutex, NULL);
    result = gateway_new(store, err);
    if (result == HF_OK)
        result = listener_new(store, err);
    if (result == HF_OK)
        result = read_url(store, url, err);
    if (result != HF_OK) {
        etcd_close(store);
        return result;
    }
    say_where(store, ret_where);
    *ret_store = store;
    return HF_OK;
}

void etcd_close(struct engine_store *store)
{
    listener_free(store);
    gateway_free(store);
    if (!store->forked)
        pthread_mutex_destroy(&store->mutex);
    access_wipe(&store->access);
    free(store);
}
