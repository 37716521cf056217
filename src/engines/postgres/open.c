/* open.c: from a URL to libpq's parameters.
 *
 *     postgres://[user[:password]@][h1[:port][,h2[:port]...]][/database][?table=T&listen=URL|off&...]
 *
 * All but our own options are libpq's: sslmode, service, passfile, target_session_attrs and whatever else it knows, by the names that it
 * has for them. What none of us knows is refused by the client. */
#include "base/clock.h"
#include "base/text.h"
#include "engines/postgres/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT_MAX 65535
#define URI_MAX (HF_URL_MAX + 16)

#define URI_FORM "postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE"

/* ---- what is wrong with a URI ---------------------------------------------------------------- */

/* What comes behind an '@' or '/' of a password would be taken for a host or a database, and shown. */
static int check_marks(const char *authority, size_t size, const char *what, struct error_text *err)
{
    const char *first = memchr(authority, '@', size), *slash = memchr(authority, '/', size);

    if (first && (memchr(first + 1, '@', size - (size_t)(first + 1 - authority)) ||
                  (slash && slash < first)))
        return error_set(err, HF_EINVAL,
                         "%s: an '@' in a user, password or database is written %%40, a '/' %%2F",
                         what);
    return HF_OK;
}

/* Hosts and ports, up to the database: h1:1,[::1]:2 */
static bool has_good_brackets(const char *hosts, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const char *end = hosts[i] == '[' ? memchr(hosts + i, ']', size - i) : NULL;

        if (hosts[i] == ']' || (hosts[i] == '[' && !end))
            return false;
        if (!end)
            continue;
        i = (size_t)(end - hosts);
        if (i + 1 < size && !strchr(":,", hosts[i + 1]))
            return false;
    }
    return true;
}

/* What libpq would refuse, in words that quote nothing of it. `what`: the URL, as a message names it. */
static int check_uri(const char *uri, const char *what, struct error_text *err)
{
    const char *authority = strstr(uri, "://") + 3;
    size_t size = strcspn(authority, "?"), length = strlen(uri);
    const char *at = memchr(authority, '@', size), *hosts = at ? at + 1 : authority;
    char plain[URI_MAX];
    bool decodes = text_percent_decode(uri, length, plain, sizeof plain);
    int result = check_marks(authority, size, what, err);

    explicit_bzero(plain, sizeof plain);
    if (result != HF_OK)
        return result;
    if (strchr(authority + size, '@'))
        return error_set(err, HF_EINVAL,
                         "%s: '@' after '?': in a password write '?' as %%3F, in an option write "
                         "'@' as %%40",
                         what);
    if (!decodes)
        return error_set(err, HF_EINVAL,
                         "%s: it is badly percent-encoded: a '%%' in a password is written %%25",
                         what);
    if (!has_good_brackets(hosts, strcspn(hosts, "/?")))
        return error_set(err, HF_EINVAL, "%s: an IPv6 address is written [::1], or [::1]:PORT",
                         what);
    return HF_OK;
}

static bool is_port(const char *text, size_t size)
{
    char port[8] = "";
    uint64_t number = 0;

    if (size >= sizeof port)
        return false;
    memcpy(port, text, size);
    return size == 0 || (text_to_u64(port, PORT_MAX, &number) && number > 0);
}

/* One, or one for each host. Without a user before them, and with the host forgotten, a password is where a port would be. */
static int check_ports(const char *ports, bool may_be_password, const char *what,
                       struct error_text *err)
{
    while (ports && *ports) {
        size_t size = strcspn(ports, ",");

        if (!is_port(ports, size))
            return may_be_password
                       ? error_set(err, HF_EINVAL,
                                   "%s: a port is a number from 1 to %d; if it was a password, the "
                                   "host is missing: " URI_FORM,
                                   what, PORT_MAX)
                       : error_set(err, HF_EINVAL, "%s: '%.*s' is not a port, from 1 to %d", what,
                                   size < 40 ? (int)size : 40, ports, PORT_MAX);
        ports += size + (ports[size] == ',');
    }
    return HF_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void parameters_free(struct parameters *parameters)
{
    for (int i = 0; i < parameters->count; i++) {
        if (parameters->values[i])
            explicit_bzero(parameters->values[i], strlen(parameters->values[i]));
        free(parameters->keywords[i]);
        free(parameters->values[i]);
    }
    *parameters = (struct parameters){.count = 0};
}

static const char *parameters_get(const struct parameters *parameters, const char *keyword)
{
    for (int i = 0; i < parameters->count; i++)
        if (strcmp(parameters->keywords[i], keyword) == 0)
            return parameters->values[i];
    return NULL;
}

/* Takes the place of what was there. */
static int parameters_set(struct parameters *parameters, const char *keyword, const char *value,
                          struct error_text *err)
{
    char *name = strdup(keyword), *copy = strdup(value);
    int at = 0;

    while (at < parameters->count && strcmp(parameters->keywords[at], keyword) != 0)
        at++;
    if (!name || !copy || at == PG_KEYWORDS_MAX) {
        free(name);
        free(copy);
        return error_set(err, HF_ENOMEM, "out of memory, or too many parameters");
    }
    if (at < parameters->count) {
        free(parameters->keywords[at]);
        free(parameters->values[at]);
    } else {
        parameters->count++;
    }
    parameters->keywords[at] = name;
    parameters->values[at] = copy;
    return HF_OK;
}

static int parameters_default(struct parameters *parameters, const char *keyword, const char *value,
                              struct error_text *err)
{
    return parameters_get(parameters, keyword) ? HF_OK
                                               : parameters_set(parameters, keyword, value, err);
}

/* Those of libpq's that a URI has. libpq quotes what it cannot read, which may be a password, or the whole URI: its words are not told. */
static int parameters_of_uri(struct parameters *parameters, const char *uri, const char *what,
                             struct error_text *err)
{
    char *words = NULL;
    PQconninfoOption *options;
    int result = check_uri(uri, what, err);

    if (result != HF_OK)
        return result;
    options = PQconninfoParse(uri, &words);
    if (!options) {
        result = words ? error_set(err, HF_EINVAL,
                                   "%s: " URI_FORM " is meant, with options of libpq", what)
                       : error_set(err, HF_ENOMEM, "out of memory");
        PQfreemem(words);
        return result;
    }
    for (PQconninfoOption *option = options; option->keyword && result == HF_OK; option++)
        if (option->val && option->val[0])
            result = parameters_set(parameters, option->keyword, option->val, err);
    PQconninfoFree(options);
    if (result == HF_OK)
        result =
            check_ports(parameters_get(parameters, "port"), strchr(uri, '@') == NULL, what, err);
    return result;
}

/* ---- options of the URL ---------------------------------------------------------------------- */

/* A URL is shown to people and children: a password in it would be, too. */
static bool is_secret(const char *keyword)
{
    return strcmp(keyword, "password") == 0 || strcmp(keyword, "sslpassword") == 0;
}

static int read_libpq_options(struct engine_store *store, struct url *url, struct error_text *err)
{
    PQconninfoOption *options = PQconndefaults();
    int result = HF_OK;

    if (!options)
        return error_set(err, HF_ENOMEM, "out of memory");
    for (PQconninfoOption *option = options; option->keyword && result == HF_OK; option++) {
        const char *value = url_get(url, option->keyword);

        if (!value)
            continue;
        if (is_secret(option->keyword))
            result = error_set(err, HF_EINVAL,
                               "store URL: no %s among the options: HOLDFAST_PASSWORD, "
                               "?password-file= and .pgpass are for that",
                               option->keyword);
        else
            result = parameters_set(&store->parameters, option->keyword, value, err);
    }
    PQconninfoFree(options);
    return result;
}

/* Whoever names whom to trust wants nobody else at the other end; libpq by itself would look at the file only where TLS and a check are
 * asked for, and not at all if it is not there. */
static int trust_only(struct parameters *parameters, const char *ca_file, struct error_text *err)
{
    if (access(ca_file, R_OK) != 0)
        return error_set_errno(err, HF_EINVAL, errno, "store URL: ca-file %s", ca_file);
    if (getenv("PGSSLMODE") || getenv("PGSERVICE") || parameters_get(parameters, "service"))
        return HF_OK;
    return parameters_default(parameters, "sslmode", "verify-full", err);
}

/* What all stores call the same. */
static int read_access(struct engine_store *store, struct url *url, struct error_text *err)
{
    static const struct {
        const char *keyword;
        size_t offset;
    } same[] = {{"password", offsetof(struct access, password)},
                {"sslrootcert", offsetof(struct access, ca_file)},
                {"sslcert", offsetof(struct access, cert_file)},
                {"sslkey", offsetof(struct access, key_file)}};
    struct access access;
    int result = access_read(url, NULL, 0, &access, err);

    for (size_t i = 0; i < sizeof same / sizeof *same && result == HF_OK; i++) {
        const char *value = (const char *)&access + same[i].offset;

        if (value[0])
            result = i == 0 ? parameters_default(&store->parameters, same[i].keyword, value, err)
                            : parameters_set(&store->parameters, same[i].keyword, value, err);
    }
    if (result == HF_OK && access.ca_file[0])
        result = trust_only(&store->parameters, access.ca_file, err);
    access_wipe(&access);
    return result;
}

static int read_listen(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *listen = url_get(url, "listen");
    const char *password = parameters_get(&store->parameters, "password");
    int result;

    if (!listen)
        return HF_OK;
    if (strcmp(listen, "off") == 0) {
        store->listen = LISTEN_OFF;
        return HF_OK;
    }
    store->listen = LISTEN_ELSEWHERE;
    if (strncmp(listen, "postgres://", 11) != 0 && strncmp(listen, "postgresql://", 13) != 0)
        return error_set(
            err, HF_EINVAL,
            "store URL: listen is 'off', or the URL of a direct connection, postgres://...");
    result = parameters_of_uri(&store->listen_parameters, listen,
                               "store URL: listen (encoded once more)", err);
    if (result == HF_OK && password)
        result = parameters_default(&store->listen_parameters, "password", password, err);
    return result;
}

/* Several hosts may be in the environment, or in a service file, which only libpq reads: it does before it refuses an sslmode that there is not. From
 * here on they are as if the URL had named them. */
static int adopt_hosts(struct parameters *parameters, struct error_text *err)
{
    static const char *const listed[] = {"host", "hostaddr", "port"};
    struct parameters copy = {.count = 0};
    PQconninfoOption *options;
    bool several = false;
    PGconn *pg;
    int result = HF_OK;

    for (int i = 0; i < parameters->count && result == HF_OK; i++)
        result = parameters_set(&copy, parameters->keywords[i], parameters->values[i], err);
    if (result == HF_OK)
        result = parameters_set(&copy, "sslmode", "none of libpq's", err);
    pg = result == HF_OK ? PQconnectStartParams((const char *const *)copy.keywords,
                                                (const char *const *)copy.values, 0)
                         : NULL;
    if (pg && strncmp(PQerrorMessage(pg), "could not match ", strlen("could not match ")) == 0) {
        struct error_text said = {""};

        connection_words(PQerrorMessage(pg), &said);
        result = error_set(err, HF_EINVAL, "store URL: %s", said.text);
    }
    options = pg ? PQconninfo(pg) : NULL;
    for (const PQconninfoOption *option = options; option && option->keyword; option++)
        for (size_t i = 0; i < 2 && option->val; i++) /* one port may be that of all */
            several =
                several || (strcmp(option->keyword, listed[i]) == 0 && strchr(option->val, ','));
    for (const PQconninfoOption *option = options; option && option->keyword; option++)
        for (size_t i = 0; i < sizeof listed / sizeof *listed && several; i++)
            if (strcmp(option->keyword, listed[i]) == 0 && option->val && option->val[0] &&
                result == HF_OK)
                result = parameters_default(parameters, listed[i], option->val, err);
    PQconninfoFree(options);
    PQfinish(pg);
    parameters_free(&copy);
    return result;
}

/* So that a server that went away is found out, and one of several that serves is found. */
static int add_defaults(struct parameters *parameters, struct error_text *err)
{
    static const char *const defaults[][2] = {{"fallback_application_name", "holdfast"},
                                              {"keepalives_idle", "20"},
                                              {"keepalives_interval", "5"},
                                              {"keepalives_count", "3"}};
    int result = adopt_hosts(parameters, err);

    /* Encryption by Kerberos is looked for before each connection, if nobody says otherwise, under a lock that libgssapi does not give back in
     * the child of a fork. */
    if (result == HF_OK && !getenv("PGGSSENCMODE") && !getenv("PGSERVICE") &&
        !parameters_get(parameters, "service"))
        result = parameters_default(parameters, "gssencmode", "disable", err);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && result == HF_OK; i++)
        result = parameters_default(parameters, defaults[i][0], defaults[i][1], err);
    return result;
}

/* libpq looks at its parameters when it connects, which is late for somebody who mistyped one: so it is made to connect to nowhere. */
static int check_values(const struct parameters *parameters, struct error_text *err)
{
    static const char *const nowhere[][2] = {
        {"host", "/nonexistent/holdfast"}, {"hostaddr", ""}, {"port", ""}};
    struct parameters copy = {.count = 0};
    int result = check_ports(parameters_get(parameters, "port"), false, "store URL", err);
    PGconn *pg;

    for (int i = 0; i < parameters->count && result == HF_OK; i++)
        result = parameters_set(&copy, parameters->keywords[i], parameters->values[i], err);
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere && result == HF_OK; i++)
        result = parameters_set(&copy, nowhere[i][0], nowhere[i][1], err);
    pg = result == HF_OK ? PQconnectStartParams((const char *const *)copy.keywords,
                                                (const char *const *)copy.values, 0)
                         : NULL;
    if (pg && strncmp(PQerrorMessage(pg), "invalid ", strlen("invalid ")) == 0) {
        struct error_text said = {""};

        connection_words(PQerrorMessage(pg), &said);
        result = error_set(err, HF_EINVAL, "store URL: %s", said.text);
    }
    PQfinish(pg);
    parameters_free(&copy);
    return result;
}

static int read_mode(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *mode = url_get(url, "mode");

    store->row = mode && strcmp(mode, "row") == 0;
    if (!mode || store->row || strcmp(mode, "table") == 0)
        return HF_OK;
    return error_set(err, HF_EINVAL, "store URL: no mode '%.40s': there are table and row", mode);
}

static int read_url(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *table = url_get(url, "table");
    char uri[URI_MAX];
    int result = pgnames_read(table ? table : PGNAMES_TABLE, &store->wanted, err);

    snprintf(uri, sizeof uri, "postgresql:%s", strncmp(url->rest, "//", 2) == 0 ? url->rest : "//");
    if (result == HF_OK && strncmp(url->rest, "//", 2) != 0)
        result =
            error_set(err, HF_EINVAL, "store URL: postgres://[USER@]HOST[:PORT]/DATABASE is meant");
    if (result == HF_OK)
        result = parameters_of_uri(&store->parameters, uri, "store URL", err);
    if (result == HF_OK)
        result = read_access(store, url, err);
    if (result == HF_OK)
        result = read_libpq_options(store, url, err);
    if (result == HF_OK)
        result = check_values(&store->parameters, err);
    if (result == HF_OK)
        result = read_mode(store, url, err);
    if (result == HF_OK)
        result = read_listen(store, url, err);
    if (result == HF_OK)
        result = url_get_ms(url, "timeout", PG_TIMEOUT_MIN_MS, PG_TIMEOUT_MAX_MS,
                            &store->timeout_ms, err);
    explicit_bzero(uri, sizeof uri);
    if (result == HF_OK)
        result = add_defaults(&store->parameters, err);
    if (result == HF_OK && store->listen == LISTEN_ELSEWHERE)
        result = add_defaults(&store->listen_parameters, err);
    return result;
}

/* ---- the store ------------------------------------------------------------------------------- */

/* Up to the comma, of a list of hosts or ports; moves on to what follows it, or stays at the end. */
static int next_of_list(const char **list)
{
    size_t size = strcspn(*list, ",");

    *list += size + ((*list)[size] == ',');
    return (int)size;
}

/* host:port,host:port, an IPv6 address in brackets, as in a URL. One port is that of all hosts. */
static void show_hosts(const struct parameters *parameters, char *ret_text, size_t size)
{
    const char *hosts = parameters_get(parameters, "host"), *ports, *port;
    size_t used = 0;
    int port_size;

    if (!hosts)
        hosts = parameters_get(parameters, "hostaddr");
    if (!hosts)
        hosts = "the local server";
    ports = port = parameters_get(parameters, "port");
    port_size = ports ? next_of_list(&ports) : 0;
    do {
        const char *host = hosts;
        int host_size = next_of_list(&hosts);
        bool in_brackets = memchr(host, ':', (size_t)host_size) != NULL;
        int more = snprintf(ret_text + used, size - used, "%s%s%.*s%s%s%.*s", used ? "," : "",
                            in_brackets ? "[" : "", host_size, host, in_brackets ? "]" : "",
                            port_size ? ":" : "", port_size, port_size ? port : "");

        if (more < 0 || (size_t)more >= size - used)
            return;
        used += (size_t)more;
        if (ports && *ports) {
            port = ports;
            port_size = next_of_list(&ports);
        }
    } while (*hosts);
}

static void name_server(struct engine_store *store)
{
    const char *service = parameters_get(&store->parameters, "service");
    bool named = strcmp(store->wanted.table, PGNAMES_TABLE) != 0 || store->wanted.schema[0];

    snprintf(store->advice, sizeof store->advice,
             "holdfast guard sql --dialect postgres --locks%s%s%s%s", named ? " --table " : "",
             store->wanted.schema, store->wanted.schema[0] ? "." : "",
             named ? store->wanted.table : "");
    if (service)
        snprintf(store->shown, sizeof store->shown, "service %.200s", service);
    else
        show_hosts(&store->parameters, store->shown, sizeof store->shown);
}

void pg_say_where(const struct engine_store *store, const struct pgnames *names,
                  char ret_where[HF_URL_MAX + 1])
{
    const char *database = parameters_get(&store->parameters, "dbname");

    snprintf(ret_where, HF_URL_MAX + 1, "%s, database %s, table %s%s%s%s", store->shown,
             database ? database : "(default)", names->schema, names->schema[0] ? "." : "",
             names->table,
             store->row ? ", each lock an open transaction: a connection for each, and VACUUM "
                          "keeps what is newer"
             : store->listen == LISTEN_OFF       ? ", waiters look (listen=off)"
             : store->listen == LISTEN_ELSEWHERE ? ", waiters have the URL of listen="
                                                 : "");
}

int pg_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
            char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result = HF_OK;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    pg_survive_forks();
    store->host = host;
    store->timeout_ms = PG_TIMEOUT_MS;
    store->bell_fd = -1;
    list_init(&store->idle);
    list_init(&store->listening);
    list_init(&store->leaving);
    list_init(&store->rows);
    for (int i = 0; i < PG_SOCKETS_MAX; i++)
        atomic_store(&store->sockets[i], -1);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_mutex_init(&store->telling, NULL);
    pthread_cond_init(&store->freed, NULL);
    store->sightings = sightings_new();
    if (!store->sightings)
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        result = bootclock_read(&store->bootclock, err);
    if (result == HF_OK)
        result = read_url(store, url, err);
    if (result != HF_OK) {
        pg_close(store);
        return result;
    }
    name_server(store);
    pg_say_where(store, &store->wanted, ret_where);
    *ret_store = store;
    return HF_OK;
}

void pg_in_effect(struct engine_store *store, hf_store_info *ret_info)
{
    bool hears = atomic_load(&store->hears);

    if (atomic_load(&store->settled))
        ret_info->where = store->where;
    if (store->listen == LISTEN_ELSEWHERE || hears)
        ret_info->wakes =
            hears ? "told by NOTIFY, in their order"
            : atomic_load(&store->unlistened)
                ? "look about once a second, in their order: the URL of listen= cannot be used"
                : "told by NOTIFY over the URL of listen=, which was not tried, in their order";
    else if (store->listen == LISTEN_OFF)
        ret_info->wakes = "look about once a second (listen=off), in their order";
    else if (atomic_load(&store->pooled))
        ret_info->wakes = "look about once a second, in their order: a pooler is in between";
    else if (atomic_load(&store->settled))
        ret_info->wakes = "told by NOTIFY, in their order";
    if (store->listen == LISTEN_OFF ||
        (store->listen == LISTEN_HERE && atomic_load(&store->pooled)))
        ret_info->features &= ~(uint32_t)HF_HAS_PUSH;
}

void pg_close(struct engine_store *store)
{
    row_stop(store);
    listener_stop(store);
    pool_free(store);
    schema_free(store);
    if (!store->forked) {
        sightings_free(store->sightings);
        pthread_cond_destroy(&store->freed);
        pthread_mutex_destroy(&store->mutex);
        pthread_mutex_destroy(&store->telling);
    }
    parameters_free(&store->parameters);
    parameters_free(&store->listen_parameters);
    free(store);
}
