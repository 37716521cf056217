/* node.c: opening a node, its rounds, and its end.
 *
 *     directory ──▶ what is in it ──▶ whose is it? ──▶ replica ──▶ links      and back when it ends */
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "node/inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEATS_PER_TIMEOUT 10 /* heartbeats that must be lost before a leader is taken for dead */

int64_t node_now_us(void)
{
    return clock_boot_ns() / 1000;
}

void node_note(const struct node *node, int level, const char *format, ...)
{
    char text[PATH_MAX + ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    node->host.note(node->host.context, level, text);
}

/* Memory that runs out ends the process. */
void *node_grown(void *array, size_t *capacity, size_t count, size_t item)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 64;
    array = realloc(array, *capacity * item);
    INVARIANT(array != NULL);
    return array;
}

/* ---- what the replica wants ------------------------------------------------------------------- */

static void on_effect(void *context, void *request, const struct core_effect *effect)
{
    const struct node *node = context;

    node->host.effect(node->host.context, request, effect);
}

static void on_failed(void *context, void *request, enum replica_failure failure)
{
    const struct node *node = context;

    node->host.failed(node->host.context, request, failure);
}

/* The change that nobody but the node itself has asked for has its own request. */
static void on_changed(void *context, void *request, enum replica_change result)
{
    struct node *node = context;

    if (request == node)
        node->moves = result != REPLICA_CHANGED;
    else
        node->host.changed(node->host.context, request, result);
}

static void on_role(void *context, enum replica_role role)
{
    const struct node *node = context;

    node->host.role(node->host.context, role);
}

static void on_stopped(void *context, const char *why)
{
    const struct node *node = context;

    node->host.stopped(node->host.context, why);
}

static void on_members(void *context)
{
    struct node *node = context;

    node->links.dialled_us = 0; /* somebody may have to be connected with */
}

static void on_note(void *context, int level, const char *text)
{
    const struct node *node = context;

    node->host.note(node->host.context, level, text);
}

/* The first leader of all gives the store its identity: tokens begin at the clock, which decides nothing else. */
static void on_elected(void *context, struct core_packer *packer)
{
    struct node *node = context;
    unsigned char id[16];
    struct core_command identity = {.op = CORE_IDENTITY, .result = {(const char *)id, sizeof id}};
    struct core_command member = {
        .op = CORE_MEMBER, .token = node->id, .result = {node->client, strlen(node->client)}};
    struct core_counts counts;

    core_count(replica_table(node->replica), &counts);
    if (!counts.identified) {
        identity.token = clock_first_token(clock_wall_us());
        if (identity.token == 0)
            node_note(node, 2,
                      "the wall clock is obviously wrong, so the tokens of this new cluster begin "
                      "at 1: if a guard has seen tokens of another, raise them with 'holdfast "
                      "floor'");
        random_fill(id, sizeof id);
        core_pack(packer, &identity);
    }
    if (node->client[0])
        core_pack(packer, &member);
}

/* ---- opening ---------------------------------------------------------------------------------- */

static void note_torn(const struct node *node)
{
    struct journal_torn torn = journal_torn(node->recovery.journal);

    if (torn.segment != 0)
        node_note(node, 2,
                  "dropped the rest of a write that was cut short and not acknowledged: "
                  "%s/log-%" PRIu64 " at=%zu bytes=%zu",
                  node->recovery.directory.path, torn.segment, torn.at, torn.bytes);
}

/* The id is a hash of the first entry, or in the snapshot: the file cannot say another. */
static int check_cluster(const struct node *node, struct error_text *err)
{
    const unsigned char *id = replica_cluster(node->replica);
    char cluster[CLUSTER_ID_DIGITS + 1];

    if (!id)
        return HF_OK;
    text_hex(id, REPLICA_CLUSTER, cluster);
    if (strcmp(cluster, node->cluster) == 0)
        return HF_OK;
    return error_set(
        err, HF_EREFUSED,
        "%s holds the log of cluster %s, and its file 'node' names another, %s: restore "
        "it from a backup, or remove this node with 'holdfast cluster remove', and add "
        "it again, empty, under another id",
        node->recovery.directory.path, cluster, node->cluster);
}

static int load(struct node *node, const struct node_options *options,
                const struct identity_wanted *wanted, uint64_t incarnation, struct error_text *err)
{
    struct replica_options how = {.id = options->id,
                                  .incarnation = incarnation,
                                  .election_ms = options->election_ms,
                                  .heartbeat_ms = options->election_ms / BEATS_PER_TIMEOUT,
                                  .snapshot_bytes = options->snapshot_bytes};
    const struct replica_io io = {.context = node,
                                  .store_term = disk_store_term,
                                  .append = disk_append,
                                  .send = links_send,
                                  .read_log = catch_up_read_log,
                                  .reset_log = disk_reset_log,
                                  .store_snapshot = snapshot_store,
                                  .read_snapshot = catch_up_read_snapshot,
                                  .trim_log = disk_trim_log};
    const struct replica_host host = {.context = node,
                                      .effect = on_effect,
                                      .failed = on_failed,
                                      .changed = on_changed,
                                      .role = on_role,
                                      .stopped = on_stopped,
                                      .members = on_members,
                                      .elected = on_elected,
                                      .note = on_note};
    struct replica_config there;
    int result;

    random_fill(&how.seed, sizeof how.seed);
    result =
        recovery_load(&node->recovery, 0, &how, &io, &host, node_now_us(), &node->replica, err);
    if (result != HF_OK)
        return result;
    replica_members_found(node->replica, &there);
    result = identity_settle(&node->recovery.directory, wanted, &there, &node->identity, err);
    if (result != HF_OK)
        return result;
    memcpy(node->cluster, node->identity.cluster, sizeof node->cluster);
    node->moves = node->identity.moves;
    result = check_cluster(node, err);
    if (result != HF_OK)
        return result;
    note_torn(node);
    return recovery_begin(&node->recovery, node->replica, node_now_us(), err);
}

/* One of "1=db1:7431/91f0c4a7e2d35b68,2=…", as identity.h has them. NULL: it is none. */
static const char *parse_initial_member(const char *text, struct replica_member *ret_member)
{
    size_t digits = strcspn(text, "="), address = 0;
    char id[24];

    if (digits == 0 || digits >= sizeof id || !text[digits])
        return NULL;
    snprintf(id, sizeof id, "%.*s", (int)digits, text);
    text += digits + 1;
    address = strcspn(text, "/,");
    if (!text_to_u64(id, UINT64_MAX, &ret_member->id) || text[address] != '/' ||
        address > REPLICA_ADDRESS_MAX)
        return NULL;
    snprintf(ret_member->address, sizeof ret_member->address, "%.*s", (int)address, text);
    text += address + 1;
    ret_member->incarnation = incarnation_parse(text);
    ret_member->votes = true;
    return ret_member->incarnation ? text + INCARNATION_DIGITS : NULL;
}

static bool parse_initial_members(const char *text, struct replica_config *ret_config)
{
    *ret_config = (struct replica_config){0};
    while (*text && ret_config->count < (int)REPLICA_MEMBERS_MAX) {
        text = parse_initial_member(text, &ret_config->at[ret_config->count++]);
        if (!text || (*text && *text != ','))
            return false;
        text += *text == ',';
    }
    return !*text && ret_config->count > 0;
}

/* The directory says that it belongs to a cluster which this node has founded with others, or alone, and there is no log yet. */
static int found_again(struct node *node, const struct node_options *options,
                       struct error_text *err)
{
    struct replica_config config = {.count = 1};

    if (node->identity.state != IDENTITY_TAKES_PART || replica_members(node->replica)->count > 0)
        return HF_OK;
    if (node->identity.initial_members[0]) {
        if (!parse_initial_members(node->identity.initial_members, &config))
            return error_set(err, HF_EIO,
                             "%s/node is damaged: its founders are not its members; restore it "
                             "from a backup",
                             node->recovery.directory.path);
    } else if (options->member_count == 0) {
        config.at[0] = (struct replica_member){
            .id = node->id, .incarnation = node->identity.incarnation, .votes = true};
    } else {
        return HF_OK; /* it was added, and has not got anything yet */
    }
    return replica_found(node->replica, &config, node_now_us(), err);
}

static void give_up(struct node *node)
{
    if (node->replica)
        replica_free(node->replica);
    recovery_close(&node->recovery);
    uv_mutex_destroy(&node->journal_mutex);
    free(node->log.records);
    free(node->log.appends);
    free(node->log.writing);
    free(node);
}

int node_open(struct uv_loop_s *loop, const struct node_options *options,
              const struct node_host *host, struct node **ret_node, struct error_text *err)
{
    struct node *node = calloc(1, sizeof *node);
    struct identity_wanted wanted = {
        .id = options->id, .members = options->members, .member_count = options->member_count};
    uint64_t incarnation;
    int result;

    INVARIANT(node != NULL && uv_mutex_init(&node->journal_mutex) == 0);
    node->loop = loop;
    list_init(&node->backups);
    node->host = *host;
    node->id = options->id;
    snprintf(node->address, sizeof node->address, "%s", options->address);
    snprintf(node->client, sizeof node->client, "%s", options->client);
    random_fill(&wanted.incarnation, sizeof wanted.incarnation);
    result = recovery_open(&node->recovery, disk_system(), options->path, err);
    if (result == HF_OK)
        result = identity_read(&node->recovery.directory, &wanted, &incarnation, err);
    if (result == HF_OK)
        result = load(node, options, &wanted, incarnation, err);
    if (result == HF_OK)
        result = found_again(node, options, err);
    if (result == HF_OK && options->address[0])
        result = links_open(node, options, err);
    if (result != HF_OK) {
        give_up(node);
        return result;
    }
    place_open(node, options->path);
    disk_make_spare(node);
    *ret_node = node;
    return HF_OK;
}

/* ---- belonging to a cluster ------------------------------------------------------------------- */

/* On disk it may be a member, or not: only a start can tell. */
static int cannot_belong(struct node *node, const struct error_text *err)
{
    struct error_text why;

    error_write(&why, "%s" REPLICA_MEND_DISK, err->text);
    replica_fail(node->replica, why.text);
    return HF_EIO;
}

static void belong(struct node *node, const char *cluster)
{
    snprintf(node->cluster, sizeof node->cluster, "%s", cluster);
    peers_set_cluster(node->links.peers, cluster);
}

int node_bootstrap(struct node *node, const struct replica_config *members,
                   const char *initial_members, struct error_text *err)
{
    unsigned char id[REPLICA_CLUSTER];
    char cluster[CLUSTER_ID_DIGITS + 1];

    replica_cluster_id(members, id);
    text_hex(id, sizeof id, cluster);
    if (identity_bootstrap(&node->recovery.directory, cluster, initial_members, err) != HF_OK ||
        replica_found(node->replica, members, node_now_us(), err) != HF_OK)
        return cannot_belong(node, err);
    belong(node, cluster);
    return HF_OK;
}

int node_join(struct node *node, const char *cluster, struct error_text *err)
{
    if (identity_join(&node->recovery.directory, cluster, err) != HF_OK)
        return cannot_belong(node, err);
    belong(node, cluster);
    return HF_OK;
}

int node_note_log(struct node *node, bool *ret_noted, struct error_text *err)
{
    *ret_noted = node->log.status.writes > 0;
    return *ret_noted ? identity_has_log(&node->recovery.directory, err) : HF_OK;
}

/* ---- rounds ----------------------------------------------------------------------------------- */

/* A node that was alone is to have an address now. */
static void move(struct node *node, int64_t now_us)
{
    struct error_text err;

    if (node->moves && replica_role(node->replica) == REPLICA_LEADING &&
        replica_move(node->replica, node->id, node->address, node, now_us, &err) == HF_OK)
        node->moves = false; /* until its end is known */
}

static int64_t min_us(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t node_pump(struct node *node, uint32_t expected)
{
    int64_t now_us = node_now_us();
    int64_t next_us = links_pump(node, now_us);

    move(node, now_us);
    backup_taking_pump(node);
    next_us = min_us(next_us, replica_pump(node->replica, expected, now_us));
    next_us = min_us(next_us, snapshot_pump(node, now_us));
    next_us = min_us(next_us, place_pump(node, now_us));
    if (next_us == NEVER_US)
        return -1;
    now_us = node_now_us();
    return next_us > now_us ? next_us - now_us : 0;
}

bool node_flush(struct node *node)
{
    return disk_flush(node);
}

int node_submit(struct node *node, const struct core_command *command, void *request)
{
    return replica_submit(node->replica, command, request, node_now_us());
}

int node_add(struct node *node, const struct replica_member *member, void *request,
             struct error_text *err)
{
    return replica_add(node->replica, member, request, node_now_us(), err);
}

int node_may_add(const struct node *node, const struct replica_member *member, bool *ret_is_there,
                 struct error_text *err)
{
    return replica_may_add(node->replica, member, ret_is_there, err);
}

int node_remove(struct node *node, uint64_t id, void *request, struct error_text *err)
{
    return replica_remove(node->replica, id, request, node_now_us(), err);
}

int node_transfer(struct node *node, uint64_t to, void *request, struct error_text *err)
{
    return replica_transfer(node->replica, to, request, node_now_us(), err);
}

/* ---- looking ---------------------------------------------------------------------------------- */

const struct identity *node_identity(const struct node *node)
{
    return &node->identity;
}

const struct replica *node_replica(const struct node *node)
{
    return node->replica;
}

const char *node_cluster(const struct node *node)
{
    return node->cluster;
}

bool node_waits(const struct node *node)
{
    return !node->cluster[0] && replica_role(node->replica) != REPLICA_STOPPED;
}

bool node_is_full(const struct node *node)
{
    return replica_is_full(node->replica);
}

bool node_has_enough(const struct node *node)
{
    return replica_has_enough(node->replica);
}

/* ---- the end ---------------------------------------------------------------------------------- */

/* What a clean stop makes certain is not lost without it, only harder to tell from damage. */
static void mark_end(const struct node *node)
{
    struct error_text err;

    if (journal_stop(node->recovery.journal, &err) != HF_OK)
        node_note(node, 2, "%s", err.text);
}

static void on_links_closed(void *context)
{
    struct node *node = context;

    node->links.peers = NULL;
    node_maybe_finish(node);
}

void node_maybe_finish(struct node *node)
{
    void (*done)(void *) = node->done;
    void *context = node->done_context;

    if (!node->closing || disk_is_busy(node) || node->snapshot.running || node->place.running ||
        node->reads > 0 || node->links.peers)
        return;
    catch_up_close(node, true);
    mark_end(node);
    give_up(node);
    done(context);
}

void node_close(struct node *node, void (*done)(void *context), void *context)
{
    replica_end(node->replica);
    node->closing = true;
    node->done = done;
    node->done_context = context;
    if (node->links.peers)
        peers_close(node->links.peers, on_links_closed, node);
    else
        node_maybe_finish(node);
}
