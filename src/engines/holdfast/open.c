/* open.c: from a URL to servers, and what is said to each of them first.
 *
 *     holdfast://[user:password@]h1[:port][,h2[:port]...][?options]
 *     holdfasts://...            the same over TLS
 *     holdfast+unix:///path/of/socket[?options]
 *
 * Opening asks nobody: the connection is made by the first question. */
#include "engines/holdfast/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NOT_OURS_MAX 64 /* bytes of what another server calls itself, shown */

/* ---- the URL --------------------------------------------------------------------------------- */

struct parts {
    const char *userinfo, *hosts;
    size_t userinfo_length, hosts_length;
};

static int split_hosts(const char *rest, struct parts *ret_parts, struct error_text *err)
{
    const char *at;

    *ret_parts = (struct parts){0};
    if (*rest && strncmp(rest, "//", 2) != 0)
        return error_set(err, HF_EINVAL, "store URL: after the scheme comes //host");
    if (*rest)
        rest += 2;
    ret_parts->hosts = rest;
    ret_parts->hosts_length = strcspn(rest, "/");
    if (strchr(rest + ret_parts->hosts_length, '@'))
        return error_set(err, HF_EINVAL, "store URL: a '/' in a password is written %%2F");
    if (rest[ret_parts->hosts_length] && rest[ret_parts->hosts_length + 1])
        return error_set(err, HF_EINVAL,
                         "store URL: nothing comes after the hosts of a holdfast: store but its "
                         "options; to keep names apart use ?prefix=");
    at = memrchr(rest, '@', ret_parts->hosts_length);
    if (at) {
        ret_parts->userinfo = rest;
        ret_parts->userinfo_length = (size_t)(at - rest);
        ret_parts->hosts = at + 1;
        ret_parts->hosts_length -= ret_parts->userinfo_length + 1;
    }
    return HF_OK;
}

/* holdfast+unix:///path, or holdfast+unix:/path */
static int split_path(const char *rest, struct parts *ret_parts, struct error_text *err)
{
    *ret_parts = (struct parts){0};
    if (strncmp(rest, "//", 2) == 0)
        rest += 2;
    if (*rest != '/')
        return error_set(err, HF_EINVAL, "store URL: holdfast+unix: is followed by ///path");
    ret_parts->hosts = rest;
    ret_parts->hosts_length = strlen(rest);
    return HF_OK;
}

static int add_server(struct engine_store *store, const char *text, size_t length,
                      struct error_text *err)
{
    struct address *server = &store->servers[store->server_count];
    int result;

    if (store->server_count == HOLDFAST_SERVERS_MAX)
        return error_set(err, HF_EINVAL, "store URL: more than %d servers", HOLDFAST_SERVERS_MAX);
    result = address_parse(text, length, HOLDFAST_PORT, server, err);
    for (int i = 0; result == HF_OK && i < store->server_count; i++)
        if (address_same(server, &store->servers[i]))
            return HF_OK; /* named twice is named once */
    if (result == HF_OK)
        store->server_count++;
    return result;
}

static int add_servers(struct engine_store *store, const struct parts *parts, bool local,
                       struct error_text *err)
{
    const char *at = parts->hosts, *end = at + parts->hosts_length;
    int result = HF_OK;

    if (local)
        return add_server(store, at, parts->hosts_length, err);
    if (parts->hosts_length == 0)
        return add_server(store, "127.0.0.1", strlen("127.0.0.1"), err);
    while (result == HF_OK && at <= end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t length = (size_t)((comma ? comma : end) - at);

        result = add_server(store, at, length, err);
        at += length + 1;
    }
    return result;
}

static int read_cluster(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *cluster = url_get(url, "cluster");

    if (cluster && (strlen(cluster) != HOLDFAST_CLUSTER ||
                    strspn(cluster, "0123456789abcdef") != HOLDFAST_CLUSTER))
        return error_set(err, HF_EINVAL,
                         "store URL: cluster= is the id that 'holdfast cluster status' shows, %d "
                         "characters of 0-9 and a-f",
                         HOLDFAST_CLUSTER);
    if (cluster)
        memcpy(store->cluster, cluster, HOLDFAST_CLUSTER + 1);
    return HF_OK;
}

static int read_options(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *prefix = url_get(url, "prefix");
    int result = read_cluster(store, url, err);

    store->access.tls = strcmp(url->scheme, "holdfasts") == 0;
    if (result == HF_OK)
        result = access_read_revocations(url, "holdfasts://", &store->access, err);
    if (result != HF_OK)
        return result;
    if (prefix && strlen(prefix) > HOLDFAST_PREFIX_MAX)
        return error_set(err, HF_EINVAL, "store URL: the prefix is longer than %d bytes",
                         HOLDFAST_PREFIX_MAX);
    if (prefix)
        memcpy(store->prefix, prefix, strlen(prefix) + 1);
    store->prefix_size = strlen(store->prefix);
    store->timeout_ms = HOLDFAST_TIMEOUT_MS;
    return url_get_ms(url, "timeout", HOLDFAST_TIMEOUT_MIN_MS, HOLDFAST_TIMEOUT_MAX_MS,
                      &store->timeout_ms, err);
}

static int read_url(struct engine_store *store, struct url *url, struct error_text *err)
{
    bool local = strcmp(url->scheme, "holdfast+unix") == 0;
    struct parts parts;
    int result;

    result = local ? split_path(url->rest, &parts, err) : split_hosts(url->rest, &parts, err);
    if (result == HF_OK)
        result = access_read(url, parts.userinfo, parts.userinfo_length, &store->access, err);
    if (result == HF_OK)
        result = read_options(store, url, err);
    if (result == HF_OK)
        result = add_servers(store, &parts, local, err);
    return result;
}

static void say_where(const struct engine_store *store, char *ret_where)
{
    size_t used = 0, size = HF_URL_MAX + 1;

    for (int i = 0; i < store->server_count && used < size; i++)
        used += (size_t)snprintf(ret_where + used, size - used, "%s%s", i ? ", " : "",
                                 store->servers[i].shown);
    if (used < size && store->prefix_size)
        snprintf(ret_where + used, size - used, ", names %s*", store->prefix);
}

/* ---- the handshake ---------------------------------------------------------------------------- */

/* What it says to HELLO with LOSSES, or before version 6 to HELLO. */
static bool is_of_redis(const struct resp_node *reply)
{
    static const char *const words[] = {"ERR Syntax error in HELLO", "ERR unknown command"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (reply->size >= strlen(words[i]) &&
            strncasecmp(reply->text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* People forget that there are users, and look for the mistake in the password. */
static void add_default_user(const struct access *access, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (!access->user[0])
        snprintf(err->text + size, sizeof err->text - size,
                 "; the URL names no user, so 'default' was tried: holdfast://USER@... names one");
}

/* A user in the URL and no password anywhere: whoever forgot it must not look for the mistake in it. The server cannot tell. */
static int refuse_without_password(const struct probe *probe, struct error_text *err)
{
    error_set(err, HF_EREFUSED,
              "%s: it needs a password, and only the user is named: give it in the URL, in "
              "?password-file=, in HOLDFAST_PASSWORD, or with the url in client.conf",
              probe->at.shown);
    access_add_unused(probe->store->host->other_conf, err);
    return HF_EREFUSED;
}

static bool is_among(const struct resp_node *reply, const char *words)
{
    return memmem(reply->text, reply->size, words, strlen(words));
}

/* A server that has one password, and no users, is not asked about them. */
static void say_wrong(const struct probe *probe, const struct resp_node *reply,
                      struct error_text *err)
{
    const struct access *access = &probe->store->access;
    bool has_users = is_among(reply, "the user or the password is wrong");

    if (is_among(reply, "no users here"))
        error_write(err, "%s: it has no users, only a password: name no user in the URL",
                    probe->at.shown);
    else if (!has_users)
        error_write(err, "%s: it does not accept this password", probe->at.shown);
    access_add_origin(access, err);
    if (has_users)
        add_default_user(access, err);
}

static int refuse_handshake(const struct probe *probe, const struct resp_node *reply,
                            struct error_text *err)
{
    static const char wrong[] = "WRONGPASS ", none[] = "NOAUTH ";
    const struct access *access = &probe->store->access;
    int result;

    if (is_of_redis(reply))
        return error_set(err, HF_EINVAL,
                         "%s is not a holdfastd (a Redis server? then use redis%s://%s)",
                         probe->at.shown,
                         probe->at.shown[0] == '/'  ? "+unix"
                         : probe->store->access.tls ? "s"
                                                    : "",
                         probe->at.shown);
    result = reply_error(&probe->at, reply, err);
    if (reply->size >= sizeof wrong - 1 && memcmp(reply->text, wrong, sizeof wrong - 1) == 0) {
        if (access->user[0] && !access->password[0] && !access->password_file[0])
            return refuse_without_password(probe, err);
        say_wrong(probe, reply, err);
    } else if (reply->size >= sizeof none - 1 && memcmp(reply->text, none, sizeof none - 1) == 0) {
        access_add_unused(probe->store->host->other_conf, err);
    }
    return result;
}

/* A server that does not say which role it has is taken at its word when it is asked something. */
static int on_handshake(void *context, int index, const struct resp_node *reply,
                        struct error_text *err)
{
    struct probe *probe = context;
    const struct resp_node *server = map_value(reply, "server"), *role = map_value(reply, "role");

    (void)index;
    if (reply->type == RESP_ERROR)
        return refuse_handshake(probe, reply, err);
    probe->leads = !role || resp_is(role, "master");
    if (resp_is(server, "holdfast"))
        return cluster_on_handshake(probe, reply, err);
    return error_set(err, HF_EREFUSED, "%s is not a holdfastd: it calls itself '%.*s'",
                     probe->at.shown, server && server->size < NOT_OURS_MAX ? (int)server->size : 0,
                     server && server->text ? server->text : "");
}

/* By the I/O thread, without the mutex. */
static void write_hello(void *context, struct resp_writer *hello)
{
    const struct probe *probe = context;
    struct access *access = &probe->store->access;
    bool log_in;

    access_password(access, access->password);
    log_in = access->password[0] || access->user[0];
    resp_write_array(hello, log_in ? 8 : 5);
    resp_write_text(hello, "HELLO");
    resp_write_text(hello, "3");
    if (log_in) {
        resp_write_text(hello, "AUTH");
        resp_write_text(hello, access->user[0] ? access->user : "default");
        resp_write_text(hello, access->password);
    }
    resp_write_text(hello, "SETNAME");
    resp_write_text(hello, "holdfast");
    resp_write_text(hello, "LOSSES");
}

void holdfast_handshake(struct probe *probe)
{
    probe->handshake = (struct link_handshake){
        .replies = 1, .write = write_hello, .on_reply = on_handshake, .context = probe};
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void store_free(struct engine_store *store)
{
    if (store->poke_fd >= 0)
        close(store->poke_fd);
    access_wipe(&store->access);
    free(store);
}

int holdfast_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
                  char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    store->host = host;
    store->poke_fd = -1;
    result = read_url(store, url, err);
    if (result == HF_OK) {
        store->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (store->poke_fd < 0)
            result = error_set(err, HF_ENOMEM, "out of descriptors");
    }
    if (result != HF_OK) {
        store_free(store);
        return result;
    }
    pthread_mutex_init(&store->mutex, NULL);
    list_init(&store->unsent);
    list_init(&store->naming.node);
    list_init(&store->probes);
    waiting_init(store);
    say_where(store, ret_where);
    *ret_store = store;
    return HF_OK;
}

void holdfast_close(struct engine_store *store)
{
    /* In the child of a fork, whatever a thread of the parent had its hands on may be half done: the
     * connection and the list of what was asked are left alone, and lost. */
    if (!store->forked) {
        io_thread_stop(store);
        pipeline_linger(store);
        discovery_stop(store);
        probe_free(store->found);
        pendings_free(&store->pending);
        pthread_mutex_destroy(&store->mutex);
    }
    store_free(store);
}

/* ---- names ----------------------------------------------------------------------------------- */

int holdfast_check_name(const struct engine_store *store, const char *name, struct error_text *err)
{
    if (store->prefix_size + strlen(name) <= HF_NAME_MAX)
        return HF_OK;
    return error_set(err, HF_EINVAL,
                     "with the prefix of %zu bytes this name is longer than %d bytes, which is all "
                     "that a server takes",
                     store->prefix_size, HF_NAME_MAX);
}

void holdfast_write_name(const struct engine_store *store, const char *name,
                         struct resp_writer *writer)
{
    char full[2 * HF_NAME_MAX];
    size_t size = strnlen(name, HF_NAME_MAX);

    memcpy(full, store->prefix, store->prefix_size);
    memcpy(full + store->prefix_size, name, size);
    resp_write_blob(writer, full, store->prefix_size + size);
}
