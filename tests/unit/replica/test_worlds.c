/* test_worlds.c: worlds in which everything fails that may fail, drawn from a seed; then all faults end, and what was acknowledged
 * must be there, on all nodes. HF_SEED=n: only that one. HF_WORLDS=n: so many. */
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLDS 150
#define ROUNDS 250
#define NAMES 40
#define TWICE 10 /* every so many worlds are lived twice, and must be the same */

struct world {
    struct driver *driver;
    uint64_t tokens[NAMES]; /* as acknowledged; 0: none was */
    int asked[NAMES];       /* the request; -1: none */
    bool changes_members;
    int rests; /* how long a node that is down stays so */
    uint64_t asks;
    int counts[16];
};

enum { KILL, DIE, CUT, HOLD, PAUSE, CHANGE, TRANSFER, KINDS };

static void fail(const struct world *world, const char *what, int at)
{
    fprintf(stderr, "seed %" PRIu64 ": %s (%d)\n", world->driver->seed, what, at);
    abort();
}

static uint64_t some_node(struct driver *driver)
{
    return 1 + driver_draw(driver, NODES - 1);
}

static void look_at_answers(struct world *world)
{
    struct driver *driver = world->driver;

    for (int i = 0; i < NAMES; i++) {
        const struct outcome *outcome;

        if (world->asked[i] < 0)
            continue;
        outcome = &driver->outcomes[world->asked[i]];
        if (outcome->answers + outcome->failures > 1)
            fail(world, "answered twice", i);
        if (outcome->answers + outcome->failures == 0)
            continue;
        if (outcome->answers > 0) {
            if (outcome->answer != ANSWER_TOKEN)
                fail(world, "a lock that nobody else wants is not given", i);
            if (world->tokens[i] && world->tokens[i] != outcome->number)
                fail(world, "the same lease has another token", i);
            world->tokens[i] = outcome->number;
        }
        world->asked[i] = -1;
    }
}

static void ask(struct world *world)
{
    struct driver *driver = world->driver;
    int i = (int)driver_draw(driver, NAMES);
    uint64_t id = some_node(driver);
    char name[16], lease[16];

    if (world->asked[i] >= 0 || driver->nodes[id].paused)
        return;
    snprintf(name, sizeof name, "name-%d", i);
    snprintf(lease, sizeof lease, "lease-%d", i);
    world->asked[i] = driver_acquire(driver, id, name, lease, 3600000);
}

static void change_members(struct world *world)
{
    struct driver *driver = world->driver;
    uint64_t leader = driver_leader(driver), id = some_node(driver);

    if (!leader || leader == id)
        return;
    if (!driver_votes(driver, id) || driver_draw(driver, 3))
        driver_add(driver, leader, id);
    else if (replica_members(driver->nodes[leader].replica)->count > 3)
        driver_remove(driver, leader, id);
}

static void something_happens(struct world *world)
{
    struct driver *driver = world->driver;
    uint64_t id = some_node(driver), other = some_node(driver);
    struct node *node = &driver->nodes[id];
    int kind = (int)driver_draw(driver, KINDS);

    if (!node->replica && driver_draw(driver, (uint64_t)world->rests) == 0)
        driver_start(driver, id);
    if (driver_draw(driver, 1000) >= (uint64_t)world->counts[kind])
        return;
    switch (kind) {
    case KILL:
        driver_kill(driver, id, driver_draw(driver, 4));
        if (driver_draw(driver, 2))
            driver_hang_up(driver, id);
        break;
    case DIE: /* in the middle of something */
        node->dies_at = node->io_calls + 1 + (long)driver_draw(driver, 60);
        break;
    case CUT:
        driver->cut[id][other] = !driver->cut[id][other];
        break;
    case HOLD:
        node->disk_held = driver_draw(driver, 2);
        node->snapshot_held = driver_draw(driver, 2);
        break;
    case PAUSE:
        node->paused = node->replica && !node->paused;
        break;
    case CHANGE:
        if (world->changes_members)
            change_members(world);
        break;
    default:
        if (driver_leader(driver))
            driver_transfer(driver, driver_leader(driver), driver_draw(driver, 2) ? other : 0);
        break;
    }
}

static void heal(struct world *world)
{
    struct driver *driver = world->driver;

    memset(driver->cut, 0, sizeof driver->cut);
    driver->loss = driver->doubling = driver->mixing = 0;
    for (uint64_t id = 1; id < NODES; id++) {
        struct node *node = &driver->nodes[id];

        node->disk_held = node->snapshot_held = node->paused = false;
        node->dies_at = 0;
        if (!node->replica)
            driver_start(driver, id);
        node->wake_us = driver->now_us;
        if (replica_role(node->replica) == REPLICA_STOPPED) {
            fprintf(stderr, "node %" PRIu64 ": %s\n", id, node->stopped);
            abort();
        }
    }
    driver_await_leader(driver);
}

/* Nodes that are no members do not learn of everything. */
static bool members_agree(struct driver *driver)
{
    uint64_t leader = driver_leader(driver);

    if (!leader)
        return false;
    for (uint64_t id = 1; id < NODES; id++)
        if (driver_votes(driver, id) &&
            driver_status(driver, id).applied_index != driver_status(driver, leader).last_index)
            return false;
    return true;
}

static void judge(struct world *world)
{
    struct driver *driver = world->driver;

    driver_run(driver, 2 * SECOND_US);
    look_at_answers(world);
    for (int i = 0; i < NAMES; i++) {
        char name[16], lease[16];
        uint64_t token;

        snprintf(name, sizeof name, "name-%d", i);
        snprintf(lease, sizeof lease, "lease-%d", i);
        token = driver_acquired(driver, name, lease, 3600000);
        if (world->tokens[i] && token != world->tokens[i])
            fail(world, "what was acknowledged is lost", i);
        world->tokens[i] = token;
        for (int j = 0; j < i; j++)
            if (world->tokens[j] == token)
                fail(world, "a token was given twice", i);
    }
    if (!driver_until(driver, members_agree, 30 * SECOND_US))
        fail(world, "the members do not agree", 0);
}

/* Returns the sum of all that was sent and written. */
static uint32_t live(uint64_t seed, int totals[4])
{
    struct world world = {.driver = driver_new(seed)};
    struct driver *driver = world.driver;
    int count = 1 + (int)driver_draw(driver, 5);
    uint32_t trace;

    for (int i = 0; i < NAMES; i++)
        world.asked[i] = -1;
    for (int i = 0; i < KINDS; i++)
        world.counts[i] = driver_draw(driver, 3) ? (int)driver_draw(driver, 300) : 0;
    if (driver_draw(driver, 2))
        driver->loss = (int)driver_draw(driver, 100);
    if (driver_draw(driver, 2))
        driver->doubling = (int)driver_draw(driver, 100);
    if (driver_draw(driver, 3) == 0)
        driver->mixing = (int)driver_draw(driver, 200);
    world.changes_members = driver_draw(driver, 2);
    world.rests = driver_draw(driver, 2) ? 3 : 12;
    world.asks = 4 + driver_draw(driver, 20);
    for (uint64_t id = 1; id < NODES; id++) {
        struct node *node = &driver->nodes[id];

        if (driver_draw(driver, 2))
            node->options.snapshot_bytes = 1 + driver_draw(driver, 2000);
        node->options.snapshot_trailing = 1 + (uint32_t)driver_draw(driver, 4);
        if (driver_draw(driver, 2))
            node->options.memory_bytes = 1 + driver_draw(driver, 2000);
        node->options.window = driver_draw(driver, 2) ? 16 : 0;
        node->expected = driver_draw(driver, 2) ? 1 : (uint32_t)driver_draw(driver, 40);
        node->skew_us = (int64_t)driver_draw(driver, SECOND_US);
    }
    driver_cluster(driver, count);
    for (uint64_t id = (uint64_t)count + 1; id < NODES; id++)
        driver_start(driver, id);
    while (!replica_cluster(driver->nodes[1].replica))
        driver_step(driver);
    for (int i = 0; i < ROUNDS; i++) {
        something_happens(&world);
        for (uint64_t asks = driver_draw(driver, world.asks); asks > 0; asks--)
            ask(&world);
        driver_run(driver, (int64_t)driver_draw(driver, SECOND_US / 10));
        look_at_answers(&world);
        if (driver->request_count > REQUESTS - 256)
            break;
    }
    heal(&world);
    judge(&world);
    for (uint64_t id = 1; id < NODES; id++) {
        totals[0] += (int)driver_status(driver, id).snapshots;
        totals[1] += (int)driver_status(driver, id).snapshots_installed;
        totals[2] += driver->nodes[id].log_reads_done;
        totals[3] += driver->nodes[id].resets;
    }
    trace = driver->trace;
    driver_free(driver);
    return trace;
}

int main(void)
{
    const char *seed = getenv("HF_SEED"), *worlds = getenv("HF_WORLDS");
    uint64_t count = worlds ? strtoull(worlds, NULL, 10) : WORLDS;
    int totals[4] = {0};

    if (seed) {
        live(strtoull(seed, NULL, 10), totals);
        return 0;
    }
    for (uint64_t i = 1; i <= count; i++) {
        uint32_t trace = live(i, totals);
        int again[4] = {0};

        if (i % TWICE == 0 && live(i, again) != trace) {
            fprintf(stderr, "seed %" PRIu64 ": another life the second time\n", i);
            return 1;
        }
    }
    printf("%" PRIu64 " worlds, %d snapshots, %d installed, %d reads of the log, %d logs dropped\n",
           count, totals[0], totals[1], totals[2], totals[3]);
    return 0;
}
