#include "engines/redis/node.h"
#include "base/clock.h"
#include "base/text.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STALE_MS 100 /* a link idle for longer is looked at before it is used */
#define TEXT_MAX 300 /* of a server's words, in ours */

/* ---- what errors mean ------------------------------------------------------------------------ */

struct refusal {
    const char *begins;
    int code;
    const char *words; /* with one %s: the server; NULL: its own words will do */
};

static const struct refusal refusals[] = {
    {"NOAUTH", HF_EREFUSED,
     "%s needs a password: give it in the URL, in ?password-file=, in HOLDFAST_PASSWORD, or with "
     "the url in client.conf"},
    {"WRONGPASS", HF_EREFUSED, "%s does not accept this user and password"},
    {"ERR AUTH", HF_EREFUSED,
     "%s has no password set, and one was given: in the URL, in ?password-file=, in "
     "HOLDFAST_PASSWORD, or with the url in client.conf"},
    {"ERR invalid password", HF_EREFUSED, "%s does not accept this password"},
    {"NOPERM", HF_EREFUSED, NULL},
    {"READONLY", HF_EREFUSED, "%s is a read-only replica: use the address of its primary"},
    {"OOM", HF_EREFUSED, "%s has reached its maxmemory, and grants nothing until there is room"},
    {"WRONGTYPE", HF_EREFUSED,
     "%s has something that is not a lock under this name: choose another name or ?prefix="},
    {"MISCONF", HF_EIO, "%s refuses writes because it cannot save to its disk"},
    {"NOREPLICAS", HF_EREFUSED, "%s refuses writes because it has too few replicas"},
    {"MOVED", HF_EREFUSED, "%s is part of a Redis Cluster, which cannot keep these locks"},
    {"CROSSSLOT", HF_EREFUSED, "%s is part of a Redis Cluster, which cannot keep these locks"},
    {"CLUSTERDOWN", HF_EREFUSED, "%s is part of a Redis Cluster, which cannot keep these locks"},
    {"LOADING", HF_EUNREACH, "%s is still loading its data"},
    {"BUSY", HF_EUNREACH, "%s is busy running a script"},
    {"MASTERDOWN", HF_EUNREACH, "%s is a replica that has lost its primary"},
    {"ERR max number of clients", HF_EUNREACH, "%s has as many clients as it allows"},
};

int node_refusal(const struct node *node, const struct resp_node *reply, struct error_text *err)
{
    const char *shown = node->address.shown;

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];
        size_t size = strlen(refusal->begins);

        if (reply->size < size || memcmp(reply->text, refusal->begins, size) != 0)
            continue;
        if (!refusal->words)
            break;
/* The formats are ours, in the table above. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        return error_set(err, refusal->code, refusal->words, shown);
#pragma GCC diagnostic pop
    }
    return error_set(err, HF_EREFUSED, "%s refuses: %.*s", shown,
                     (int)(reply->size < TEXT_MAX ? reply->size : TEXT_MAX), reply->text);
}

/* ---- what a server says about itself --------------------------------------------------------- */

/* The value of "key:value\r\n" in the answer to INFO. */
static bool info_value(const struct resp_node *info, const char *key, char *ret_value, size_t size)
{
    size_t key_size = strlen(key);
    const char *at = info->text, *end = info->text + info->size;

    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((line_end ? line_end : end) - at);

        if (length > key_size && at[key_size] == ':' && memcmp(at, key, key_size) == 0) {
            size_t from = key_size + 1;

            length -= from + (at[length - 1] == '\r');
            if (length >= size)
                return false;
            memcpy(ret_value, at + from, length);
            ret_value[length] = '\0';
            return true;
        }
        at += length + 1;
    }
    return false;
}

static void warn_of_eviction(struct node *node, const char *policy)
{
    char text[ADDRESS_TEXT_MAX + 200];
    bool first;

    pthread_mutex_lock(&node->mutex);
    first = !node->warned_policy;
    node->warned_policy = true;
    pthread_mutex_unlock(&node->mutex);
    if (!first)
        return;
    snprintf(text, sizeof text,
             "%s: maxmemory-policy is %s: Redis may throw locks away when memory is short; set it "
             "to noeviction",
             node->address.shown, policy);
    node->host->warn(node->host->context, text);
}

static int look_at_info(struct node *node, const struct resp_node *info, struct error_text *err)
{
    char value[64];
    uint64_t uptime_s;

    if (info_value(info, "holdfast_version", value, sizeof value))
        return error_set(err, HF_EINVAL, "%s is a holdfastd: use holdfast%s://%s",
                         node->address.shown, node->address.shown[0] == '/' ? "+unix" : "",
                         node->address.shown);
    if (info_value(info, "redis_mode", value, sizeof value) && strcmp(value, "sentinel") == 0)
        return error_set(err, HF_EREFUSED,
                         "%s is a Sentinel, not a store: give the address of the primary, or use "
                         "redlock:// over independent servers",
                         node->address.shown);
    if (info_value(info, "cluster_enabled", value, sizeof value) && strcmp(value, "1") == 0)
        return error_set(err, HF_EREFUSED,
                         "%s is part of a Redis Cluster, which cannot keep these locks: use a "
                         "single server, or redlock:// over independent servers",
                         node->address.shown);
    if (info_value(info, "maxmemory_policy", value, sizeof value) &&
        strcmp(value, "noeviction") != 0)
        warn_of_eviction(node, value);
    if (info_value(info, "uptime_in_seconds", value, sizeof value) &&
        text_to_u64(value, INT64_MAX / 1000, &uptime_s)) {
        pthread_mutex_lock(&node->mutex);
        node->facts_known = true;
        node->started_ms = clock_boot_ms() - (int64_t)uptime_s * 1000;
        pthread_mutex_unlock(&node->mutex);
    }
    return HF_OK;
}

int64_t node_uptime_ms(struct node *node)
{
    int64_t uptime_ms = -1;

    pthread_mutex_lock(&node->mutex);
    if (node->facts_known)
        uptime_ms = clock_boot_ms() - node->started_ms;
    pthread_mutex_unlock(&node->mutex);
    return uptime_ms;
}

/* As it was sent with the last handshake. */
static bool has_no_password(struct node *node)
{
    bool none;

    pthread_mutex_lock(&node->mutex);
    none = node->password[0] == '\0';
    pthread_mutex_unlock(&node->mutex);
    return none;
}

static int on_handshake(void *context, int index, const struct resp_node *reply,
                        struct error_text *err)
{
    struct node *node = context;
    enum handshake_step step = node->handshake_steps[index];
    int result;

    node->host->reached(node->host->context);
    if (step == HANDSHAKE_INFO)
        node->host->connected(node->host->context, NULL);
    if (reply->type != RESP_ERROR)
        return step == HANDSHAKE_INFO ? look_at_info(node, reply, err) : HF_OK;
    /* Somebody who may not ask may still lock; without a password he may not, and hears so here. */
    if ((step == HANDSHAKE_NAME || step == HANDSHAKE_INFO) && reply->size >= 6 &&
        memcmp(reply->text, "NOAUTH", 6) != 0)
        return HF_OK;
    if (step == HANDSHAKE_AUTH && reply->size >= 9 && memcmp(reply->text, "WRONGPASS", 9) == 0 &&
        has_no_password(node))
        return error_set(
            err, HF_EREFUSED,
            "%s does not accept this user without a password: give it in the URL "
            "(USER:PASSWORD@), in ?password-file=, in HOLDFAST_PASSWORD, or with the url "
            "in client.conf",
            node->address.shown);
    result = node_refusal(node, reply, err);
    if (step == HANDSHAKE_AUTH)
        access_add_origin(node->access, err);
    else if (reply->size >= 6 && memcmp(reply->text, "NOAUTH", 6) == 0)
        access_add_unused(node->host->other_conf, err);
    return result;
}

/* The password as it is now. */
static void current_password(struct node *node, char ret_password[PASSWORD_MAX + 1])
{
    bool is_read = access_password(node->access, ret_password);

    pthread_mutex_lock(&node->mutex);
    if (is_read)
        memcpy(node->password, ret_password, sizeof node->password);
    else
        memcpy(ret_password, node->password, sizeof node->password);
    pthread_mutex_unlock(&node->mutex);
}

static void write_auth(struct node *node, struct resp_writer *hello)
{
    const char *user = node->access->user;
    char password[PASSWORD_MAX + 1];

    current_password(node, password);
    resp_write_array(hello, user[0] ? 3 : 2);
    resp_write_text(hello, "AUTH");
    if (user[0])
        resp_write_text(hello, user);
    resp_write_text(hello, password);
    explicit_bzero(password, sizeof password);
}

static void write_handshake(struct node *node, enum handshake_step step, struct resp_writer *hello)
{
    switch (step) {
    case HANDSHAKE_AUTH:
        write_auth(node, hello);
        break;
    case HANDSHAKE_SELECT:
        resp_write_array(hello, 2);
        resp_write_text(hello, "SELECT");
        resp_write_number(hello, node->database);
        break;
    case HANDSHAKE_NAME:
        resp_write_array(hello, 3);
        resp_write_text(hello, "CLIENT");
        resp_write_text(hello, "SETNAME");
        resp_write_text(hello, "holdfast");
        break;
    case HANDSHAKE_INFO:
        resp_write_array(hello, 1);
        resp_write_text(hello, "INFO");
        break;
    case HANDSHAKE_SUBSCRIBE:
        resp_write_array(hello, 2);
        resp_write_text(hello, "SUBSCRIBE");
        resp_write_text(hello, node->channel);
        break;
    case HANDSHAKE_STEPS_MAX:
        break;
    }
}

static void write_hello(void *context, struct resp_writer *hello)
{
    struct node *node = context;

    for (int i = 0; i < node->handshake.replies; i++)
        write_handshake(node, node->handshake_steps[i], hello);
}

static void choose_handshake(struct node *node)
{
    const struct access *access = node->access;
    int count = 0;

    if (access->password[0] || access->user[0]) /* a user may need no password */
        node->handshake_steps[count++] = HANDSHAKE_AUTH;
    if (node->database > 0)
        node->handshake_steps[count++] = HANDSHAKE_SELECT;
    node->handshake_steps[count++] = HANDSHAKE_NAME;
    node->handshake_steps[count++] = node->channel ? HANDSHAKE_SUBSCRIBE : HANDSHAKE_INFO;
    node->handshake = (struct link_handshake){
        .replies = count, .write = write_hello, .on_reply = on_handshake, .context = node};
}

/* ---- links ----------------------------------------------------------------------------------- */

void node_init(struct node *node, const struct address *address, const struct access *access,
               unsigned database, const char *channel, const struct engine_host *host)
{
    pthread_condattr_t attributes;

    memset(node, 0, sizeof *node);
    node->address = *address;
    node->access = access;
    node->host = host;
    node->database = database;
    node->channel = channel;
    memcpy(node->password, access->password, sizeof node->password);
    choose_handshake(node);
    pthread_mutex_init(&node->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&node->returned, &attributes);
    pthread_condattr_destroy(&attributes);
}

void node_after_fork(struct node *node)
{
    for (int i = 0; i < NODE_LINKS_MAX; i++)
        link_after_fork(atomic_load(&node->links[i]));
}

static bool drop_answer(void *context, const struct resp_node *value)
{
    struct link *link = context;

    (void)value;
    if (link->owed > 0)
        link->owed--;
    return link->owed > 0;
}

void node_linger(struct node *node, int64_t deadline_ms)
{
    for (int i = 0; i < node->idle_count; i++) {
        struct link *link = node->idle[i].link;
        int64_t left_ms = deadline_ms - clock_boot_ms();
        struct error_text ignored;

        while (link->owed > 0 && left_ms > 0) {
            struct pollfd pollfd = {.fd = stream_fd(link->stream), .events = link_events(link)};

            poll(&pollfd, 1, (int)left_ms);
            if (link_pump(link, drop_answer, link, &ignored) != HF_OK)
                break;
            left_ms = deadline_ms - clock_boot_ms();
        }
    }
}

void node_close(struct node *node, bool forked)
{
    explicit_bzero(node->password, sizeof node->password);
    /* A thread of the parent may have had its hands on a link, or waited for one: the child's copies are
     * half done. They are left alone, and lost; their descriptors were closed at the fork. */
    if (forked)
        return;
    for (int i = 0; i < NODE_LINKS_MAX; i++)
        link_close(atomic_load(&node->links[i]));
    pthread_cond_destroy(&node->returned);
    pthread_mutex_destroy(&node->mutex);
}

static void forget(struct node *node, struct link *link)
{
    atomic_store(&node->links[link->slot], NULL);
    link_close(link);
    node->open_count--;
    pthread_cond_signal(&node->returned);
}

/* With the mutex: takes the idle link at `index` out of the list. */
static struct link *take_idle(struct node *node, int index)
{
    struct link *link = node->idle[index].link;

    node->idle[index] = node->idle[--node->idle_count];
    return link;
}

/* With the mutex. An idle link that can be used, rather one that owes nothing; or NULL. */
static struct link *pick_idle(struct node *node, int64_t now_ms)
{
    int behind = -1;

    for (int i = node->idle_count - 1; i >= 0; i--) {
        struct link *link = node->idle[i].link;
        bool lags = link->lags_since_ms != 0;

        /* Nothing is expected of a link that does not lag, and something of one that does. */
        if (lags ? now_ms - link->lags_since_ms > LINK_LAG_MS && !link_has_news(link)
                 : now_ms - node->idle[i].since_ms > STALE_MS && link_has_news(link)) {
            if (lags)
                atomic_store(&node->suspect, true);
            forget(node, take_idle(node, i));
            behind = -1; /* another took its place in the list */
            i = node->idle_count;
        } else if (!lags) {
            return take_idle(node, i);
        } else {
            behind = i;
        }
    }
    return behind >= 0 ? take_idle(node, behind) : NULL;
}

/* With the mutex. False: the time is up. */
static bool await_return(struct node *node, int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - clock_boot_ms();
    struct timespec until;

    if (left_ms <= 0)
        return false;
    until = clock_monotonic_in(left_ms);
    pthread_cond_timedwait(&node->returned, &node->mutex, &until);
    return true;
}

/* The child of a fork closes those that are known, so a link is, before it has a descriptor. */
static int dial(struct node *node, struct link **ret_link, struct error_text *err)
{
    struct link *link = NULL;
    int result = link_new(&node->handshake, &link, err);

    pthread_mutex_lock(&node->mutex);
    for (int i = 0; result == HF_OK && i < NODE_LINKS_MAX; i++) {
        if (atomic_load(&node->links[i]))
            continue;
        link->slot = i;
        atomic_store(&node->links[i], link);
        break;
    }
    if (result != HF_OK) {
        node->open_count--;
        pthread_cond_signal(&node->returned);
    }
    pthread_mutex_unlock(&node->mutex);
    if (result != HF_OK)
        return result;
    result = link_dial(link, &node->address, node->access, &node->turns, err);
    if (result == HF_OK)
        *ret_link = link;
    else
        node_give(node, link, true);
    return result;
}

int node_take(struct node *node, int64_t deadline_ms, struct link **ret_link,
              struct error_text *err)
{
    struct link *link;

    pthread_mutex_lock(&node->mutex);
    for (;;) {
        link = pick_idle(node, clock_boot_ms());
        if (link || node->open_count < NODE_LINKS_MAX)
            break;
        if (!await_return(node, deadline_ms)) {
            pthread_mutex_unlock(&node->mutex);
            return error_set(err, HF_EUNREACH, "%s: all %d connections are in use",
                             node->address.shown, NODE_LINKS_MAX);
        }
    }
    if (!link)
        node->open_count++;
    pthread_mutex_unlock(&node->mutex);
    if (!link)
        return dial(node, ret_link, err);
    *ret_link = link;
    return HF_OK;
}

void node_give(struct node *node, struct link *link, bool over)
{
    pthread_mutex_lock(&node->mutex);
    if (over) {
        forget(node, link);
    } else {
        node->idle[node->idle_count].link = link;
        node->idle[node->idle_count++].since_ms = clock_boot_ms();
        pthread_cond_signal(&node->returned);
    }
    pthread_mutex_unlock(&node->mutex);
}
