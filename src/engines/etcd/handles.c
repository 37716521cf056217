/* handles.c: libcurl's handles, in a pool: each thread that asks takes one, with its connection. All sockets are known, so that the child
 * of a fork can close them without libcurl. */
#include "engines/etcd/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 1000
#define KEEPALIVE_S 5L

/* ---- sockets --------------------------------------------------------------------------------- */

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct engine_store *store = context;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

    (void)purpose;
    if (fd < 0)
        return CURL_SOCKET_BAD;
    for (int i = 0; i < ETCD_SOCKETS_MAX; i++) {
        int none = -1;

        if (atomic_compare_exchange_strong(&store->sockets[i], &none, fd))
            return fd;
    }
    close(fd);
    return CURL_SOCKET_BAD;
}

static int close_socket(void *context, curl_socket_t fd)
{
    struct engine_store *store = context;

    for (int i = 0; i < ETCD_SOCKETS_MAX; i++) {
        int expected = fd;

        if (atomic_compare_exchange_strong(&store->sockets[i], &expected, -1))
            break;
    }
    return close(fd);
}

void gateway_after_fork(struct engine_store *store)
{
    for (int i = 0; i < ETCD_SOCKETS_MAX; i++) {
        int fd = atomic_exchange(&store->sockets[i], -1);

        if (fd >= 0)
            close(fd);
    }
}

/* ---- handles --------------------------------------------------------------------------------- */

bool gateway_prepare(struct engine_store *store, CURL *curl)
{
    const struct access *access = &store->access;
    CURLcode failed = curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);

    failed |= curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    failed |= curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, store);
    failed |= curl_easy_setopt(curl, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    failed |= curl_easy_setopt(curl, CURLOPT_CLOSESOCKETDATA, store);
    failed |= curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, access->tls ? "https" : "http");
    failed |= curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    failed |= curl_easy_setopt(curl, CURLOPT_PROXY, "");
    failed |= curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    failed |= curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    failed |= curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
    failed |= curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
    failed |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    failed |= curl_easy_setopt(curl, CURLOPT_POST, 1L);
    if (access->ca_file[0]) {
        failed |= curl_easy_setopt(curl, CURLOPT_CAINFO, access->ca_file);
        failed |= curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
    if (access->cert_file[0]) {
        failed |= curl_easy_setopt(curl, CURLOPT_SSLCERT, access->cert_file);
        failed |= curl_easy_setopt(curl, CURLOPT_SSLKEY, access->key_file);
    }
    return failed == CURLE_OK;
}

struct curl_slist *gateway_headers(struct engine_store *store, bool with_token)
{
    /* hasleader: a server that has lost its leader says so, instead of keeping us waiting. */
    static const char *const fixed[] = {"Content-Type: application/json",
                                        "Expect:", "Grpc-Metadata-hasleader: true"};
    struct curl_slist *headers = NULL, *longer;
    char line[ETCD_TOKEN_MAX + 32];

    for (size_t i = 0; i <= sizeof fixed / sizeof *fixed; i++) {
        if (i < sizeof fixed / sizeof *fixed) {
            longer = curl_slist_append(headers, fixed[i]);
        } else {
            pthread_mutex_lock(&store->mutex);
            snprintf(line, sizeof line, "Authorization: %s", store->token);
            pthread_mutex_unlock(&store->mutex);
            if (!with_token || !line[strlen("Authorization: ")])
                break;
            longer = curl_slist_append(headers, line);
            explicit_bzero(line, sizeof line);
        }
        if (!longer) {
            curl_slist_free_all(headers);
            return NULL;
        }
        headers = longer;
    }
    return headers;
}

/* libcurl sends a request once more, by itself, if a connection that it used before ends without an answer. Both may be
 * carried out, and the answer to the second one says that the first one was somebody else's. Whether to ask again is for
 * gateway_ask to decide, which remembers it. */
static int on_request(void *context, char *to, char *from, int to_port, int from_port)
{
    struct handle *handle = context;

    (void)to;
    (void)from;
    (void)to_port;
    (void)from_port;
    return handle->requests++ == 0 ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* libcurl asks so about once a second, and more often where bytes come and go. */
static int on_progress(void *context, curl_off_t to_come, curl_off_t came, curl_off_t to_go,
                       curl_off_t gone)
{
    const _Atomic bool *interrupted = context;

    (void)to_come;
    (void)came;
    (void)to_go;
    (void)gone;
    return interrupted && atomic_load(interrupted);
}

static bool prepare(struct engine_store *store, struct handle *handle)
{
    return gateway_prepare(store, handle->curl) &&
           curl_easy_setopt(handle->curl, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           curl_easy_setopt(handle->curl, CURLOPT_PREREQFUNCTION, on_request) == CURLE_OK &&
           curl_easy_setopt(handle->curl, CURLOPT_PREREQDATA, handle) == CURLE_OK;
}

struct handle *handle_take(struct engine_store *store)
{
    struct handle *handle = NULL;

    pthread_mutex_lock(&store->mutex);
    if (!list_empty(&store->idle)) {
        handle = LIST_ENTRY(store->idle.prev, struct handle, node);
        list_remove(&handle->node);
    }
    pthread_mutex_unlock(&store->mutex);
    if (handle)
        return handle;
    handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    list_init(&handle->node);
    handle->curl = curl_easy_init();
    if (!handle->curl || !prepare(store, handle)) {
        curl_easy_cleanup(handle->curl);
        free(handle);
        return NULL;
    }
    return handle;
}

void handle_give(struct engine_store *store, struct handle *handle)
{
    pthread_mutex_lock(&store->mutex);
    list_append(&store->idle, &handle->node);
    pthread_mutex_unlock(&store->mutex);
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_failed;

static void begin_curl(void)
{
    curl_failed = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int gateway_new(struct engine_store *store, struct error_text *err)
{
    pthread_once(&curl_once, begin_curl);
    for (int i = 0; i < ETCD_SOCKETS_MAX; i++)
        atomic_init(&store->sockets[i], -1);
    if (curl_failed)
        return error_set(err, HF_ENOMEM, "libcurl: %s", curl_easy_strerror(curl_failed));
    return HF_OK;
}

/* In the child of a fork, what libcurl has is left alone: it would talk on the parent's connections. */
void gateway_free(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->idle)
    {
        struct handle *handle = LIST_ENTRY(node, struct handle, node);

        list_remove(node);
        if (!store->forked)
            curl_easy_cleanup(handle->curl);
        free(handle);
    }
    explicit_bzero(store->token, sizeof store->token);
}
