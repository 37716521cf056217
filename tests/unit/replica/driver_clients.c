/* driver_clients.c: what is asked of a driver's nodes. */
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *next_request(struct driver *driver)
{
    INVARIANT(driver->request_count < REQUESTS);
    driver->outcomes[driver->request_count] = (struct outcome){0};
    return (void *)(uintptr_t)(driver->request_count + 1);
}

static struct core_text text_of(const char *text)
{
    return (struct core_text){text, strlen(text)};
}

int driver_submit(struct driver *driver, uint64_t id, const struct core_command *command)
{
    struct node *node = &driver->nodes[id];

    if (!node->replica || replica_submit(node->replica, command, next_request(driver),
                                         driver->now_us + node->skew_us) != HF_OK)
        return -1;
    node->wake_us = driver->now_us;
    return driver->request_count++;
}

struct core_command driver_acquire_command(const char *name, const char *lease, uint32_t ttl_ms)
{
    return (struct core_command){.op = CORE_ACQUIRE,
                                 .name = text_of(name),
                                 .lease = text_of(lease),
                                 .mode = HF_EXCLUSIVE,
                                 .ttl_ms = ttl_ms};
}

int driver_acquire(struct driver *driver, uint64_t id, const char *name, const char *lease,
                   uint32_t ttl_ms)
{
    struct core_command command = driver_acquire_command(name, lease, ttl_ms);

    return driver_submit(driver, id, &command);
}

int driver_release(struct driver *driver, uint64_t id, const char *name, const char *lease)
{
    struct core_command command = {
        .op = CORE_RELEASE, .name = text_of(name), .lease = text_of(lease)};

    return driver_submit(driver, id, &command);
}

static bool is_over(const struct outcome *outcome)
{
    return outcome->answers + outcome->failures + outcome->changes > 0;
}

bool driver_await(struct driver *driver, int request, int64_t us)
{
    int64_t until_us = driver->now_us + us;

    while (!is_over(&driver->outcomes[request])) {
        if (driver->now_us >= until_us)
            return false;
        driver_step(driver);
    }
    return true;
}

uint64_t driver_acquired(struct driver *driver, const char *name, const char *lease,
                         uint32_t ttl_ms)
{
    for (int tries = 0; tries < 100; tries++) {
        uint64_t leader = driver_await_leader(driver);
        int request = driver_acquire(driver, leader, name, lease, ttl_ms);

        if (request >= 0 && driver_await(driver, request, 10 * SECOND_US) &&
            driver->outcomes[request].answers > 0)
            return driver->outcomes[request].answer == ANSWER_TOKEN
                       ? driver->outcomes[request].number
                       : 0;
        driver_run(driver, SECOND_US / 10);
    }
    fprintf(stderr, "nobody answers for %s\n", name);
    abort();
}

void driver_work(struct driver *driver, int commands)
{
    for (int i = 0; i < commands; i++) {
        uint64_t leader = driver_await_leader(driver);
        char name[32];
        int request;

        snprintf(name, sizeof name, "work-%d", i / 2);
        request = i % 2 ? driver_release(driver, leader, name, "worker")
                        : driver_acquire(driver, leader, name, "worker", 60000);
        if (request >= 0)
            driver_await(driver, request, 10 * SECOND_US);
        if (driver->request_count > REQUESTS - 64)
            driver->request_count = REQUESTS / 2; /* their outcomes are nobody's concern */
    }
}

/* ---- members ---------------------------------------------------------------------------------- */

static int took(struct driver *driver, uint64_t leader, int result, const struct error_text *err)
{
    driver->nodes[leader].wake_us = driver->now_us;
    if (result != HF_OK)
        snprintf(driver->nodes[leader].noted, sizeof driver->nodes[leader].noted, "%s", err->text);
    return result == HF_OK ? driver->request_count++ : -1;
}

int driver_add(struct driver *driver, uint64_t leader, uint64_t id)
{
    struct node *node = &driver->nodes[leader];
    struct replica_member member = driver_member(driver, id);
    struct error_text err = {""};

    return took(driver, leader,
                replica_add(node->replica, &member, next_request(driver),
                            driver->now_us + node->skew_us, &err),
                &err);
}

int driver_remove(struct driver *driver, uint64_t leader, uint64_t id)
{
    struct node *node = &driver->nodes[leader];
    struct error_text err = {""};

    return took(driver, leader,
                replica_remove(node->replica, id, next_request(driver),
                               driver->now_us + node->skew_us, &err),
                &err);
}

int driver_move(struct driver *driver, uint64_t leader, uint64_t id, const char *address)
{
    struct node *node = &driver->nodes[leader];
    struct error_text err = {""};

    return took(driver, leader,
                replica_move(node->replica, id, address, next_request(driver),
                             driver->now_us + node->skew_us, &err),
                &err);
}

int driver_transfer(struct driver *driver, uint64_t leader, uint64_t to)
{
    struct node *node = &driver->nodes[leader];
    struct error_text err = {""};

    return took(driver, leader,
                replica_transfer(node->replica, to, next_request(driver),
                                 driver->now_us + node->skew_us, &err),
                &err);
}

static bool is_member(struct driver *driver, uint64_t leader, uint64_t id, bool *ret_votes)
{
    const struct replica_config *members = replica_members(driver->nodes[leader].replica);

    for (int i = 0; i < members->count; i++)
        if (members->at[i].id == id) {
            *ret_votes = members->at[i].votes;
            return replica_members_agreed(driver->nodes[leader].replica) || true;
        }
    *ret_votes = false;
    return false;
}

bool driver_votes(struct driver *driver, uint64_t id)
{
    uint64_t leader = driver_leader(driver);
    bool votes = false;

    return leader && is_member(driver, leader, id, &votes) && votes &&
           replica_members_agreed(driver->nodes[leader].replica);
}

void driver_do_add(struct driver *driver, uint64_t id)
{
    for (int tries = 0; tries < 200 && !driver_votes(driver, id); tries++) {
        uint64_t leader = driver_await_leader(driver);

        driver_add(driver, leader, id);
        driver_run(driver, SECOND_US / 5);
    }
    INVARIANT(driver_votes(driver, id));
}

void driver_do_remove(struct driver *driver, uint64_t id)
{
    for (int tries = 0; tries < 200; tries++) {
        uint64_t leader = driver_await_leader(driver);
        bool votes;

        if (!is_member(driver, leader, id, &votes) &&
            replica_members_agreed(driver->nodes[leader].replica))
            return;
        if (leader == id)
            driver_transfer(driver, leader, 0);
        else
            driver_remove(driver, leader, id);
        driver_run(driver, SECOND_US / 5);
    }
    error_broken_invariant(__FILE__, __LINE__, "the member was removed");
}
