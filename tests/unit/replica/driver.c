/* driver.c: see driver.h. */
#include "driver.h"

#include "driver_disk.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wrong(struct driver *driver, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "seed %" PRIu64 ", at %.6f s: ", driver->seed, (double)driver->now_us / 1e6);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

void driver_trace(const struct node *node, const char *format, ...)
{
    va_list arguments;

    if (!getenv("HF_TRACE"))
        return;
    va_start(arguments, format);
    fprintf(stderr, "%.6f node %" PRIu64 ": ", (double)node->driver->now_us / 1e6, node->id);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

uint64_t driver_draw(struct driver *driver, uint64_t below)
{
    uint64_t value = driver->chance += 0x9e3779b97f4a7c15u;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return (value ^ value >> 31) % below;
}

static bool happens(struct driver *driver, int of_thousand)
{
    return of_thousand > 0 && (int)driver_draw(driver, 1000) < of_thousand;
}

/* ---- host ------------------------------------------------------------------------------------- */

static struct outcome *outcome_of(struct node *node, void *request)
{
    return &node->driver->outcomes[(uintptr_t)request - 1];
}

static void on_effect(void *context, void *request, const struct core_effect *effect)
{
    struct node *node = context;
    struct outcome *outcome;

    if (!request) {
        node->driver->granted += effect->kind == EFFECT_GRANTED;
        node->granted_leading += effect->kind == EFFECT_GRANTED && node->role == REPLICA_LEADING;
        node->driver->left += effect->kind == EFFECT_LEFT;
        return;
    }
    outcome = outcome_of(node, request);
    outcome->answers++;
    outcome->answer = effect->answer;
    outcome->number = effect->number;
    outcome->at_us = node->driver->now_us;
    outcome->node = node->id;
}

static void on_failed(void *context, void *request, enum replica_failure failure)
{
    struct outcome *outcome = outcome_of(context, request);

    outcome->failures++;
    outcome->failure = failure;
}

static void on_changed(void *context, void *request, enum replica_change result)
{
    struct outcome *outcome = outcome_of(context, request);

    outcome->changes++;
    outcome->change = result;
}

static void on_role(void *context, enum replica_role role)
{
    struct node *node = context;

    node->role = role;
    node->roles++;
    driver_trace(node, "role %d", (int)role);
}

static void on_stopped(void *context, const char *why)
{
    struct node *node = context;

    snprintf(node->stopped, sizeof node->stopped, "%s", why);
    if (!node->dying && !node->fails && !node->driver->may_stop)
        wrong(node->driver, "node %" PRIu64 " stops: %s", node->id, why);
}

static void on_members(void *context)
{
    ((struct node *)context)->members_told++;
}

static void on_note(void *context, int level, const char *text)
{
    struct node *node = context;

    (void)level;
    snprintf(node->noted, sizeof node->noted, "%s", text);
}

/* ---- life ------------------------------------------------------------------------------------- */

struct driver *driver_new(uint64_t seed)
{
    struct driver *driver = calloc(1, sizeof *driver);

    driver->seen = calloc(INDEXES, sizeof *driver->seen);
    driver->seed = driver->chance = seed;
    driver->now_us = driver->began_us = 10 * SECOND_US;
    driver->checks_time = true;
    for (uint64_t id = 1; id < NODES; id++) {
        struct node *node = &driver->nodes[id];

        node->driver = driver;
        node->id = id;
        node->disk.incarnation = 100 + id;
        node->expected = 1;
        node->options = (struct replica_options){.id = id};
    }
    return driver;
}

void driver_free(struct driver *driver)
{
    for (uint64_t id = 1; id < NODES; id++) {
        driver_kill(driver, id, 0);
        disk_clear(&driver->nodes[id].disk);
        free(driver->nodes[id].writes);
    }
    for (size_t i = 0; i < driver->packet_count; i++)
        free(driver->packets[i].bytes);
    free(driver->packets);
    free(driver->seen);
    free(driver);
}

int driver_try_start(struct driver *driver, uint64_t id, struct error_text *err)
{
    struct node *node = &driver->nodes[id];
    struct replica_host host = {node,       on_effect,  on_failed, on_changed, on_role,
                                on_stopped, on_members, NULL,      on_note};
    struct replica_io io = disk_io(node);
    struct replica_snapshot snapshot = {0};
    struct replica_boot boot = {.term = node->disk.term,
                                .vote = node->disk.vote,
                                .snapshot = &snapshot,
                                .now_us = driver->now_us + node->skew_us};
    int result;

    if (node->disk.snapshot_size > 0 &&
        !replica_snapshot_decode(node->disk.snapshot, node->disk.snapshot_size, &snapshot))
        wrong(driver, "node %" PRIu64 ": its snapshot cannot be decoded", id);
    node->options.incarnation = node->disk.incarnation;
    node->options.seed = driver_draw(driver, UINT64_MAX);
    node->dying = false;
    node->stopped[0] = '\0';
    node->role = REPLICA_FOLLOWING;
    node->wake_us = driver->now_us;
    node->judged = UINT64_MAX;
    result = replica_new(&node->options, &io, &host, &boot, &node->replica, err);
    for (size_t i = 0; result == HF_OK && i < node->disk.log_count; i++)
        if (node->disk.log[i].record.index > node->disk.trimmed)
            result = replica_recover(node->replica, &node->disk.log[i].record, err);
    if (result == HF_OK)
        result = replica_start(node->replica, boot.now_us, err);
    if (result == HF_OK)
        driver_trace(node, "starts: term %" PRIu64 ", last %" PRIu64 ", applied %" PRIu64,
                     node->disk.term, driver_status(driver, id).last_index,
                     driver_status(driver, id).applied_index);
    if (result != HF_OK && node->replica) {
        replica_free(node->replica);
        node->replica = NULL;
    }
    return result;
}

void driver_start(struct driver *driver, uint64_t id)
{
    struct error_text err = {""};

    if (driver_try_start(driver, id, &err) != HF_OK && !driver->nodes[id].dying)
        wrong(driver, "node %" PRIu64 " does not start: %s", id, err.text);
    if (driver->nodes[id].dying)
        driver_kill(driver, id, 0);
}

void driver_kill(struct driver *driver, uint64_t id, size_t writes_kept)
{
    struct node *node = &driver->nodes[id];

    if (node->replica)
        driver_trace(node, "dies, of %zu writes keeping %zu", node->write_count, writes_kept);
    disk_crash(node, writes_kept); /* what it has lent to the disk is read while it lives */
    if (node->replica)
        replica_free(node->replica);
    node->replica = NULL;
    node->role = REPLICA_STOPPED;
    node->paused = false;
}

void driver_hang_up(struct driver *driver, uint64_t id)
{
    for (uint64_t other = 1; other < NODES; other++)
        if (other != id && driver->nodes[other].replica)
            replica_peer_down(driver->nodes[other].replica, id,
                              driver->now_us + driver->nodes[other].skew_us);
}

void driver_wipe(struct driver *driver, uint64_t id)
{
    driver_kill(driver, id, 0);
    disk_clear(&driver->nodes[id].disk);
    driver->nodes[id].disk.incarnation = 1000 + driver_draw(driver, 1000000);
}

struct replica_member driver_member(struct driver *driver, uint64_t id)
{
    struct replica_member member = {
        .id = id, .incarnation = driver->nodes[id].disk.incarnation, .votes = true};

    snprintf(member.address, sizeof member.address, "node-%" PRIu64 ":7421", id);
    return member;
}

void driver_config(struct driver *driver, int count, struct replica_config *ret_config)
{
    *ret_config = (struct replica_config){.count = count};
    for (int i = 0; i < count; i++)
        ret_config->at[i] = driver_member(driver, (uint64_t)i + 1);
}

void driver_cluster(struct driver *driver, int count)
{
    struct replica_config config;
    struct error_text err;

    driver_config(driver, count, &config);
    for (uint64_t id = 1; id <= (uint64_t)count; id++) {
        driver_start(driver, id);
        if (driver->nodes[id].replica &&
            replica_found(driver->nodes[id].replica, &config,
                          driver->now_us + driver->nodes[id].skew_us, &err) != HF_OK &&
            !driver->nodes[id].dying)
            wrong(driver, "node %" PRIu64 " is not founded: %s", id, err.text);
    }
}

/* ---- network ---------------------------------------------------------------------------------- */

void driver_post(struct driver *driver, struct packet packet)
{
    if (driver->packet_count == driver->packet_capacity) {
        driver->packet_capacity = driver->packet_capacity ? 2 * driver->packet_capacity : 256;
        driver->packets =
            realloc(driver->packets, driver->packet_capacity * sizeof *driver->packets);
    }
    driver->packets[driver->packet_count++] = packet;
}

static void receive(struct driver *driver, const struct packet *packet)
{
    struct node *node = &driver->nodes[packet->to];

    if (!node->replica || driver->cut[packet->from][packet->to] ||
        (driver->drops && driver->drops(driver, packet)) || happens(driver, driver->loss))
        return;
    if (!replica_received(node->replica, packet->from, packet->incarnation, packet->bytes,
                          packet->size, driver->now_us + node->skew_us))
        wrong(driver, "node %" PRIu64 " does not understand a message of node %" PRIu64, packet->to,
              packet->from);
    node->wake_us = driver->now_us;
    if (node->dying)
        driver_kill(driver, node->id, 0);
}

static void deliver(struct driver *driver)
{
    size_t count = driver->packet_count;
    struct packet *packets = driver->packets;

    driver->packets = NULL;
    driver->packet_count = driver->packet_capacity = 0;
    for (size_t i = 0; i < count; i++) {
        size_t other = i + driver_draw(driver, count - i);

        if (happens(driver, driver->mixing)) {
            struct packet packet = packets[i];

            packets[i] = packets[other];
            packets[other] = packet;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (driver->nodes[packets[i].to].paused) {
            driver_post(driver, packets[i]);
            continue;
        }
        receive(driver, &packets[i]);
        if (happens(driver, driver->doubling))
            receive(driver, &packets[i]);
        free(packets[i].bytes);
    }
    free(packets);
}

/* ---- judging ---------------------------------------------------------------------------------- */

static void judge(struct driver *driver, struct node *node)
{
    struct replica_digest digest;
    const char *broken;
    struct seen *seen;

    if (driver_status(driver, node->id).applied_index == node->judged && driver->pumps % 64)
        return; /* it looks at everything */
    node->judged = driver_status(driver, node->id).applied_index;
    broken = replica_check(node->replica);
    if (broken)
        wrong(driver, "node %" PRIu64 ": %s", node->id, broken);
    if (replica_role(node->replica) == REPLICA_STOPPED)
        return;
    if (driver->checks_time &&
        core_now(replica_table(node->replica)) > (driver->now_us - driver->began_us) / 1000 + 1)
        wrong(driver, "node %" PRIu64 ": the cluster's clock is at %" PRId64 " ms", node->id,
              core_now(replica_table(node->replica)));
    if (driver->may_differ)
        return;
    replica_digest(node->replica, &digest);
    if (digest.index >= INDEXES)
        wrong(driver, "the log is too long for this test");
    seen = &driver->seen[digest.index];
    if (!seen->known)
        driver_trace(node, "first to apply %" PRIu64 ", chain %" PRIx64, digest.index,
                     digest.chain);
    if (seen->known && memcmp(&seen->digest, &digest, sizeof digest) != 0)
        wrong(driver,
              "node %" PRIu64 " has applied something else at %" PRIu64
              ": table %d, chain %d, members %d",
              node->id, digest.index, digest.table == seen->digest.table,
              digest.chain == seen->digest.chain, digest.members == seen->digest.members);
    *seen = (struct seen){true, digest};
}

/* ---- running ---------------------------------------------------------------------------------- */

static void pump(struct driver *driver, struct node *node)
{
    node->wake_us = replica_pump(node->replica, node->expected, driver->now_us + node->skew_us);
    if (node->wake_us != INT64_MAX)
        node->wake_us -= node->skew_us;
    driver->pumps++;
    if (node->dying)
        driver_kill(driver, node->id, 0);
    else
        judge(driver, node);
}

/* Something is to be done at the next step. */
static bool is_busy(const struct driver *driver)
{
    if (driver->packet_count > 0)
        return true;
    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica && disk_busy(&driver->nodes[id]))
            return true;
    return false;
}

static void step_to(struct driver *driver, int64_t most_us)
{
    int64_t next_us = is_busy(driver) ? driver->now_us + STEP_US : INT64_MAX;

    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica && !driver->nodes[id].paused &&
            driver->nodes[id].wake_us < next_us)
            next_us = driver->nodes[id].wake_us;
    if (next_us < driver->now_us + 1)
        next_us = driver->now_us + 1;
    driver->now_us = next_us < most_us ? next_us : most_us;
    deliver(driver);
    for (uint64_t id = 1; id < NODES; id++) {
        struct node *node = &driver->nodes[id];

        if (node->replica && !node->paused && disk_work(node))
            node->wake_us = driver->now_us;
        if (node->replica && node->dying)
            driver_kill(driver, id, 0);
        if (node->replica && !node->paused && node->wake_us <= driver->now_us)
            pump(driver, node);
    }
}

void driver_step(struct driver *driver)
{
    step_to(driver, INT64_MAX);
}

void driver_run(struct driver *driver, int64_t us)
{
    int64_t until_us = driver->now_us + us;

    while (driver->now_us < until_us)
        step_to(driver, until_us);
}

bool driver_until(struct driver *driver, driver_condition *condition, int64_t us)
{
    int64_t until_us = driver->now_us + us;

    while (!condition(driver)) {
        if (driver->now_us >= until_us)
            return false;
        step_to(driver, until_us);
    }
    return true;
}

uint64_t driver_leader(struct driver *driver)
{
    uint64_t leader = 0;

    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica && !driver->nodes[id].paused &&
            replica_role(driver->nodes[id].replica) == REPLICA_LEADING) {
            if (leader)
                return 0;
            leader = id;
        }
    return leader;
}

static bool has_leader(struct driver *driver)
{
    return driver_leader(driver) != 0;
}

uint64_t driver_await_leader(struct driver *driver)
{
    if (!driver_until(driver, has_leader, 10 * SECOND_US))
        wrong(driver, "nobody leads");
    return driver_leader(driver);
}

struct replica_status driver_status(struct driver *driver, uint64_t id)
{
    struct replica_status status;

    replica_status(driver->nodes[id].replica, &status);
    return status;
}

bool driver_agree(struct driver *driver)
{
    uint64_t leader = driver_leader(driver), last;

    if (!leader)
        return false;
    last = driver_status(driver, leader).last_index;
    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica && !driver->nodes[id].paused &&
            replica_role(driver->nodes[id].replica) != REPLICA_STOPPED &&
            driver_status(driver, id).applied_index != last)
            return false;
    return true;
}

void driver_await_agreement(struct driver *driver)
{
    if (!driver_until(driver, driver_agree, 30 * SECOND_US))
        wrong(driver, "the nodes do not agree");
}

void driver_isolate(struct driver *driver, uint64_t id, bool cut)
{
    for (uint64_t other = 1; other < NODES; other++)
        driver->cut[id][other] = driver->cut[other][id] = cut;
}
