/* cluster.c: what an operator asks of the servers themselves: who they are, who leads, and to change
 * that. A change goes to the leader like everything else: a server that does not lead says who does.
 * Looking does not: any server answers CLUSTER STATUS with what it sees, and only the leader sees how
 * far the others are. */
#include "engines/holdfast/store.h"

#include <stdio.h>

#define CLUSTER_ID_MAX 64 /* bytes that we keep of what a server says */
#define ROLE_MAX 15
#define INIT_MS 10000 /* a node asks the others for up to 4 s, and more where it is busy */

struct looking {
    const struct engine_cluster_sink *sink;
    int index; /* which answer is the status */
    int result;
};

static int read_member(const struct resp_node *member, const struct engine_cluster_sink *sink)
{
    char peer[HF_ADDRESS_MAX + 1], client[HF_ADDRESS_MAX + 1];
    int64_t id = map_number(member, "id", 0);
    int64_t behind = map_number(member, "behind", -1);
    int64_t silent_ms = map_number(member, "silent", -1);
    int64_t index = map_number(member, "index", 0);

    if (id < 1 || (uint64_t)id > HF_NODE_MAX)
        return HF_EINTERNAL;
    map_text(member, "peer", peer, sizeof peer);
    map_text(member, "client", client, sizeof client);
    return sink->add(sink->context, &(hf_member){.size = sizeof(hf_member),
                                                 .id = (uint64_t)id,
                                                 .peer = peer,
                                                 .client = client,
                                                 .votes = map_number(member, "votes", 0) != 0,
                                                 .behind = behind < 0 ? -1 : behind,
                                                 .silent_ms = silent_ms < 0 ? -1 : silent_ms,
                                                 .lost = map_number(member, "lost", 0) != 0,
                                                 .index = index > 0 ? (uint64_t)index : 0});
}

static void begin(const struct looking *looking, const struct resp_node *value,
                  hf_cluster_info *info)
{
    char cluster[CLUSTER_ID_MAX + 1], role[ROLE_MAX + 1];
    char trouble[ERROR_TEXT_MAX], advice[ERROR_TEXT_MAX];

    map_text(value, "cluster", cluster, sizeof cluster);
    map_text(value, "role", role, sizeof role);
    map_text(value, "trouble", trouble, sizeof trouble);
    map_text(value, "advice", advice, sizeof advice);
    info->size = sizeof *info;
    info->cluster = cluster;
    info->role = role;
    info->trouble = trouble;
    info->advice = advice;
    looking->sink->begin(looking->sink->context, info);
}

static void read_status(void *context, int index, const struct resp_node *value)
{
    struct looking *looking = context;
    const struct resp_node *members = map_value(value, "members"), *member;
    int64_t id = map_number(value, "id", 0), leader = map_number(value, "leader", -1);
    int64_t term = map_number(value, "term", -1);

    if (index != looking->index)
        return;
    looking->result = HF_EINTERNAL;
    if (id < 1 || leader < 0 || term < 0 || !members || members->type != RESP_ARRAY)
        return;
    begin(
        looking, value,
        &(hf_cluster_info){.id = (uint64_t)id, .leader = (uint64_t)leader, .term = (uint64_t)term});
    looking->result = HF_OK;
    member = members + 1;
    for (uint32_t i = 0; i < members->count && looking->result == HF_OK; i++) {
        looking->result = read_member(member, looking->sink);
        member += member->span;
    }
}

/* The CHECK before it is there because only a leader answers that, and only after a majority has
 * confirmed that it still is one. (What it checks does not matter.) So what it says of the members is
 * what the cluster has agreed on. */
int holdfast_cluster_look(struct engine_store *store, bool of_leader,
                          const struct engine_cluster_sink *sink, int64_t deadline_ms,
                          struct error_text *err)
{
    struct looking looking = {.sink = sink, .index = of_leader ? 1 : 0, .result = HF_EINTERNAL};
    struct call call = {.replies = of_leader ? 2 : 1,
                        .repeatable = true,
                        .reads = true,
                        .anyone = !of_leader,
                        .context = &looking,
                        .on_reply = read_status};
    struct resp_writer writer = {0};
    int result;

    if (of_leader) {
        resp_write_array(&writer, 3);
        resp_write_text(&writer, "CHECK");
        resp_write_text(&writer, "id");
        resp_write_text(&writer, "1");
    }
    resp_write_array(&writer, 2);
    resp_write_text(&writer, "CLUSTER");
    resp_write_text(&writer, "STATUS");
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && looking.result == HF_EINTERNAL)
        return error_set(err, HF_EINTERNAL, "an invalid answer about a cluster");
    return result == HF_OK ? looking.result : result;
}

static void ignore(void *context, int index, const struct resp_node *value)
{
    (void)context;
    (void)index;
    (void)value;
}

/* A cluster that is to be founded has no leader: any node will do. Not repeatable: a node that somebody removed meanwhile would be added again, and a leader that was
 * just chosen would have to go. */
int holdfast_cluster_change(struct engine_store *store, enum engine_change change, uint64_t id,
                            const char *address, int64_t deadline_ms, struct error_text *err)
{
    static const char *const words[] = {[ENGINE_ADD] = "ADD",
                                        [ENGINE_REMOVE] = "REMOVE",
                                        [ENGINE_TRANSFER] = "TRANSFER",
                                        [ENGINE_INIT] = "INIT"};
    struct call call = {
        .replies = 1, .slow = true, .anyone = change == ENGINE_INIT, .on_reply = ignore};
    struct resp_writer writer = {0};

    if (change == ENGINE_INIT)
        call.patience_ms = INIT_MS;
    resp_write_array(&writer, 2 + (size_t)(id != 0) + (size_t)(change == ENGINE_ADD));
    resp_write_text(&writer, "CLUSTER");
    resp_write_text(&writer, words[change]);
    if (id != 0)
        resp_write_number(&writer, (int64_t)id);
    if (change == ENGINE_ADD)
        resp_write_text(&writer, address);
    return pipeline_ask_written(store, &call, &writer, deadline_ms, err);
}
