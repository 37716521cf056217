/* admin_api.c: what is answered, as JSON. It is read from this node's table, without the log.
 *
 * A name may be any bytes: "name" is for the eye, "id" is the same percent-encoded, for whoever asks about it. Leases are their holders' secrets:
 * a digest is shown. */
#include "base/sha256.h"
#include "base/text.h"
#include "server/admin.h"
#include "server/cluster.h"
#include "server/cluster_commands.h"
#include "server/info.h"
#include "server/json_text.h"
#include "server/metrics.h"
#include "server/server.h"
#include "session/glob.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_NAMES 100u /* of a page, unless it is told otherwise */
#define PAGE_NAMES_MAX 1000u
#define PAGE_STEPS 10000u         /* names that one page looks at */
#define PAGE_BYTES (1u << 20)     /* of an answer: it ends with the name that goes beyond */
#define MATCH_COST_MAX (4u << 20) /* bytes of names times bytes of the pattern, in one page */
#define ROW_HOLDERS 3u            /* of one name, in a page; their number is said */
#define CLAIMS_SHOWN 200u         /* holders, and likewise who waits, of one name */
#define HOT_SHOWN 10u
#define DIGEST_BYTES 8
#define KEPT_AS_IS "-._~" /* of a name that is percent-encoded */

static void finish(struct server *server, struct http_request *request, struct json_text *json)
{
    textbuf_words(&json->out, "\n");
    server->admin.module->answer(request, 200, "application/json", &json->out, NULL);
}

/* ---- names, holders, waiters ----------------------------------------------------------------------- */

static void write_name(struct json_text *json, struct core_text name)
{
    char id[3 * HF_NAME_MAX + 1];

    text_percent_encode(name.bytes, name.size, KEPT_AS_IS, id, sizeof id);
    json_text_string(json, "name", name.bytes, name.size);
    json_text_words(json, "id", id);
}

struct rows {
    struct json_text *json;
    uint32_t left;   /* to be written */
    bool short_ones; /* without what only one name's own answer has */
};

/* Spans are shown as SHOW does: the table has a millisecond more. */
static int64_t shown_ms(int64_t left_ms)
{
    return left_ms > 0 ? left_ms - 1 : left_ms;
}

static bool write_claim(void *context, const struct core_claim_view *view)
{
    static const char *const modes[] = {
        [HF_EXCLUSIVE] = "exclusive", [HF_SHARED] = "shared", [HF_PERMIT] = "permit"};
    struct rows *rows = context;
    struct json_text *json = rows->json;
    unsigned char digest[SHA256_SIZE];
    char lease[2 * DIGEST_BYTES + 1] = "";

    if (rows->left == 0)
        return false;
    rows->left--;
    if (view->lease.size && !rows->short_ones) {
        sha256(view->lease.bytes, view->lease.size, digest);
        text_hex(digest, DIGEST_BYTES, lease);
    }
    json_text_open(json, NULL, '{');
    json_text_words(json, "state",
                    view->state == CORE_PLACE  ? "waits"
                    : view->state == CORE_HOLD ? "holds"
                                               : "withheld");
    json_text_words(json, "mode", modes[view->mode]);
    json_text_string(json, "owner", view->owner.bytes, view->owner.size);
    if (!rows->short_ones)
        json_text_words(json, "lease", lease);
    if (view->state != CORE_PLACE)
        json_text_number(json, "token", (int64_t)view->number);
    json_text_number(json, "age_ms", view->age_ms);
    json_text_number(json, "left_ms", shown_ms(view->left_ms));
    json_text_close(json, '}');
    return true;
}

static bool first_age(void *context, const struct core_claim_view *view)
{
    *(int64_t *)context = view->age_ms;
    return false;
}

static void write_lock(const struct core *core, struct json_text *json,
                       const struct core_lock_view *view, uint32_t holders, uint32_t waiters)
{
    struct rows rows = {json, holders, waiters == 0};
    int64_t waits_ms = 0;

    write_name(json, view->name);
    json_text_number(json, "permits", view->permits);
    json_text_number(json, "holds", view->holds + view->ghosts);
    json_text_number(json, "queue", view->places);
    if (view->places)
        core_each_place(core, view->name, view->once, first_age, &waits_ms);
    json_text_number(json, "waits_ms", waits_ms);
    json_text_open(json, "holders", '[');
    core_each_hold(core, view->name, view->once, write_claim, &rows);
    json_text_close(json, ']');
    if (waiters == 0)
        return;
    json_text_open(json, "waiters", '[');
    rows.left = waiters;
    core_each_place(core, view->name, view->once, write_claim, &rows);
    json_text_close(json, ']');
}

/* ---- /api/lock?name=, /api/locks/NAME ------------------------------------------------------------------ */

/* In a path, browsers and proxies take "." and ".." for folders, also percent-encoded: such names are only reached as an argument. */
static struct core_text name_asked_for(const struct server *server,
                                       const struct http_request *request)
{
    static const char prefix[] = "/api/locks/";
    const char *path = server->admin.module->path(request);
    struct core_text name = {NULL, 0};

    if (strncmp(path, prefix, sizeof prefix - 1) == 0)
        name = (struct core_text){path + sizeof prefix - 1, strlen(path) - (sizeof prefix - 1)};
    else
        name.bytes = server->admin.module->argument(request, "name", &name.size);
    if (!name.bytes || name.size > HF_NAME_MAX || memchr(name.bytes, '\0', name.size))
        name.size = 0;
    return name;
}

void admin_lock(struct server *server, struct http_request *request, const struct admin_user *user)
{
    struct core_text name = name_asked_for(server, request);
    struct core_lock_view view = {.name = name};
    struct json_text json = {.depth = 0};

    if (name.size == 0) {
        admin_error(server, request, 400, "a name has 1 to 512 bytes, and no NUL");
        return;
    }
    if (!user_may(user->user, RIGHT_LOOK, &name)) {
        admin_error(server, request, 403, "this user has not the right to see this name");
        return;
    }
    /* A name that nobody uses is shown as just that. */
    core_find(replica_table(server->replica), name, false, &view);
    json_text_open(&json, NULL, '{');
    write_lock(replica_table(server->replica), &json, &view, CLAIMS_SHOWN, CLAIMS_SHOWN);
    json_text_bool(&json, "may_break", user_may(user->user, RIGHT_BREAK, &name));
    json_text_close(&json, '}');
    finish(server, request, &json);
}

/* ---- /api/locks?after=&pattern=&limit= ---------------------------------------------------------------- */

struct page {
    const struct server *server;
    const struct user *user;
    struct json_text json;
    struct core_text pattern; /* bytes NULL: all */
    uint64_t after, count, most;
    size_t patterns; /* bytes of those that a name is compared with */
    size_t cost;     /* of matching */
};

/* False: it is no such number. It stays as it is if it is not there. */
static bool read_number(struct server *server, struct http_request *request, const char *name,
                        uint64_t most, uint64_t *ret_number)
{
    size_t size;
    const char *text = server->admin.module->argument(request, name, &size);

    return !text || (strlen(text) == size && text_to_u64(text, most, ret_number));
}

static bool write_row(void *context, const struct core_lock_view *view)
{
    struct page *page = context;

    page->cost += page->patterns * view->name.size;
    if (view->once || (page->pattern.bytes && !glob_matches(page->pattern, view->name)) ||
        !user_may(page->user, RIGHT_LOOK, &view->name))
        return page->cost < MATCH_COST_MAX;
    json_text_open(&page->json, NULL, '{');
    write_lock(replica_table(page->server->replica), &page->json, view, ROW_HOLDERS, 0);
    json_text_close(&page->json, '}');
    return ++page->count < page->most && page->cost < MATCH_COST_MAX &&
           page->json.out.size < PAGE_BYTES;
}

void admin_locks(struct server *server, struct http_request *request, const struct admin_user *user)
{
    struct page page = {.server = server, .user = user->user, .most = PAGE_NAMES};
    uint32_t next;

    page.pattern.bytes = server->admin.module->argument(request, "pattern", &page.pattern.size);
    if (page.pattern.bytes && page.pattern.size == 0)
        page.pattern.bytes = NULL;
    if (!read_number(server, request, "after", UINT32_MAX, &page.after) ||
        !read_number(server, request, "limit", PAGE_NAMES_MAX, &page.most) || page.most == 0 ||
        page.pattern.size > HF_NAME_MAX) {
        admin_error(server, request, 400,
                    "after is a number of the page before, limit one from 1 to 1000, and pattern "
                    "has at most 512 bytes");
        return;
    }
    page.patterns = page.pattern.size + user_pattern_bytes(user->user, RIGHT_LOOK);
    json_text_open(&page.json, NULL, '{');
    json_text_open(&page.json, "names", '[');
    next = core_list(replica_table(server->replica), (uint32_t)page.after, PAGE_STEPS, write_row,
                     &page);
    json_text_close(&page.json, ']');
    json_text_number(&page.json, "next", next);
    json_text_close(&page.json, '}');
    finish(server, request, &page.json);
}

/* ---- /api/cluster ------------------------------------------------------------------------------------- */

static void write_member(struct json_text *json, const struct server *server,
                         const struct member *member, uint64_t last_index)
{
    char client[CORE_ADDRESS_MAX + 1] = "";
    bool is_own = member->id == server->config->id;
    bool connected = is_own || node_is_connected(server->node, member->id);
    bool known = member->known && connected;

    cluster_client_address(server, member->id, client, sizeof client);
    json_text_open(json, NULL, '{');
    json_text_number(json, "id", (int64_t)member->id);
    json_text_words(json, "peer", member->address);
    json_text_words(json, "client", client);
    json_text_bool(json, "votes", member->votes);
    json_text_bool(json, "connected", connected);
    json_text_bool(json, "lost", cluster_is_lost(server, member->id));
    json_text_number(json, "behind",
                     known && last_index >= member->match_index
                         ? (int64_t)(last_index - member->match_index)
                         : -1);
    json_text_number(json, "silent_ms", member->silent_ms);
    json_text_close(json, '}');
}

static void write_members(struct json_text *json, const struct readings *readings)
{
    struct member members[REPLICA_MEMBERS_MAX];
    unsigned count = cluster_members(readings->server, members);

    json_text_open(json, "members", '[');
    for (unsigned i = 0; i < count; i++)
        write_member(json, readings->server, &members[i], readings->log.last_index);
    json_text_close(json, ']');
}

static void write_histogram(struct json_text *json, const char *key,
                            const struct histogram *histogram)
{
    json_text_open(json, key, '[');
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++)
        json_text_number(json, NULL, (int64_t)histogram->buckets[i]);
    json_text_close(json, ']');
}

static void write_latencies(struct json_text *json, const struct readings *readings)
{
    json_text_open(json, "latencies", '{');
    json_text_open(json, "bounds_us", '[');
    for (unsigned i = 0; i < HISTOGRAM_BOUNDS; i++)
        json_text_number(json, NULL, histogram_bounds_us[i]);
    json_text_close(json, ']');
    write_histogram(json, "commit", replica_commits(readings->server->replica));
    write_histogram(json, "grant", &readings->server->sessions.grants);
    write_histogram(json, "disk", &readings->disk.took);
    json_text_close(json, '}');
}

static void write_counts(struct json_text *json, const struct readings *readings)
{
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"commands", readings->commands},
        {"grants", readings->table.grants},
        {"expired", readings->table.expired},
        {"broken", readings->table.broken},
        {"names", readings->names},
        {"holds", readings->holds},
        {"withheld", readings->withheld},
        {"waiting", readings->waiting},
        {"leases", readings->leases},
        {"connections", readings->connections},
        {"resident_bytes", readings->resident_bytes},
        {"cpu_us", readings->cpu_us},
        {"log_written_bytes", readings->disk.bytes},
        {"leader_changes", readings->server->metrics.leader_changes},
    };

    json_text_open(json, "counts", '{');
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_text_number(json, counts[i].key, (int64_t)counts[i].value);
    json_text_close(json, '}');
}

/* A count is halved each HOT_HALF_S seconds: of a name that is taken N times a second it is HOT_HALF_S times N just after that. */
static void write_hot(struct json_text *json, const struct server *server, const struct user *user)
{
    const struct hot *hot = &server->metrics.hot;
    const struct hot_name *names[HOT_NAMES];
    uint32_t count = hot_list(hot, names, HOT_NAMES), shown = 0;

    json_text_open(json, "hot", '[');
    for (uint32_t i = 0; i < count && shown < HOT_SHOWN; i++) {
        struct core_text name = {names[i]->bytes, names[i]->size};

        if (!user_may(user, RIGHT_LOOK, &name))
            continue;
        json_text_open(json, NULL, '{');
        write_name(json, name);
        json_text_number(
            json, "per_minute",
            (int64_t)(60 * names[i]->count / (HOT_HALF_S + hot->seconds % HOT_HALF_S)));
        json_text_close(json, '}');
        shown++;
    }
    json_text_close(json, ']');
}

static void write_node(struct json_text *json, const struct readings *readings)
{
    const struct server *server = readings->server;
    char leader[CORE_ADDRESS_MAX + 1] = "", advice[ERROR_TEXT_MAX];

    cluster_client_address(server, readings->leader_id, leader, sizeof leader);
    cluster_advice(server, advice, sizeof advice);
    json_text_words(json, "version", HOLDFAST_VERSION);
    json_text_words(json, "role", role_word(server));
    json_text_number(json, "id", (int64_t)server->config->id);
    json_text_number(json, "leader", (int64_t)readings->leader_id);
    json_text_words(json, "leader_client", leader);
    json_text_words(json, "cluster", node_cluster(server->node));
    json_text_words(json, "store", readings->table.id);
    json_text_number(json, "term", (int64_t)readings->log.term);
    json_text_number(json, "last", (int64_t)readings->log.last_index);
    json_text_number(json, "commit", (int64_t)readings->log.commit_index);
    json_text_number(json, "applied", (int64_t)readings->log.applied_index);
    json_text_number(json, "uptime_ms", (int64_t)(readings->uptime_us / 1000));
    json_text_words(json, "trouble", cluster_trouble(server));
    json_text_words(json, "advice", advice);
}

void admin_cluster(struct server *server, struct http_request *request,
                   const struct admin_user *user)
{
    struct json_text json = {.depth = 0};
    struct readings readings;

    metrics_read(server, &readings);
    json_text_open(&json, NULL, '{');
    json_text_words(&json, "user", user->user->name);
    json_text_bool(&json, "may_break", user_may(user->user, RIGHT_BREAK, NULL));
    json_text_bool(&json, "may_look", user_may(user->user, RIGHT_LOOK, NULL));
    write_node(&json, &readings);
    write_members(&json, &readings);
    write_counts(&json, &readings);
    write_latencies(&json, &readings);
    write_hot(&json, server, user->user);
    json_text_close(&json, '}');
    finish(server, request, &json);
}
