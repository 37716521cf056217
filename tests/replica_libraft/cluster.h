/* cluster.h: nodes on one loop, over real connections and real directories. Three of them found a cluster, the
 * fourth may join it. */
#ifndef TESTS_REPLICA_CLUSTER_H
#define TESTS_REPLICA_CLUSTER_H

#include "tools.h"

#include "base/clock.h"

#include <limits.h>

#define FOUNDERS 3
#define NODES 4
#define PATIENCE_MS 30000

struct member {
    char path[PATH_MAX];
    char address[32];
    struct storage *storage;
    struct network *network;
    struct replica *replica;
    struct witness witness;
    bool running, closed;
};

extern struct member members[NODES];
/* For those that are started after they were set; 0: the default. */
extern uint64_t snapshot_bytes, memory_bytes;

/* The founders run. */
int set_up(void **state);
int tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

void start(int i);
void stop(int i);
/* All of them, so that what was set holds for them; and one of them leads. */
void restart_founders(void);
/* One round of the loop, and of every node. */
void turn(void);
#define UNTIL(condition)                                       \
    do {                                                       \
        int64_t until_end = clock_boot_ms() + PATIENCE_MS;     \
        while (!(condition)) {                                 \
            turn();                                            \
            if (clock_boot_ms() > until_end)                   \
                fail_msg("waited in vain for %s", #condition); \
        }                                                      \
    } while (0)

/* Which one serves; -1: none. */
int leader(void);
/* Those that run have applied the same, and have the same table. */
bool all_alike(void);
/* The leader answers so many commands, numbered from there on. */
void answer_some(size_t from, size_t count);

#endif
