/* sides.h: two nodes on one loop, over real connections. */
#ifndef TESTS_PEERS_SIDES_H
#define TESTS_PEERS_SIDES_H

#include "base/clock.h"
#include "peers/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#define PATIENCE_MS 60000

struct side {
    struct peers *peers;
    char address[32];
    int received, notes, met, reached;
    size_t size;        /* of the last message, */
    uint64_t from, sum; /* and of all of them */
    unsigned first;     /* its first number */
    int met_before;     /* how often somebody had been met when it came */
    char from_address[PEERS_ADDRESS_MAX + 1], noted[ERROR_TEXT_MAX];
    uint64_t met_id; /* who was met last, */
    char about[PEERS_ABOUT_MAX + 1], reached_about[PEERS_ABOUT_MAX + 1];
    int ended; /* connections, */
    uint64_t ended_with;
    bool closed;
    bool refuses;      /* whomever it meets, */
    bool avoids;       /* and whomever it reaches */
    const char *means; /* what node 2 says of itself, if it is the right one; NULL: anything */
    bool talks;        /* as soon as it may */
};

extern uv_loop_t loop;
extern struct side a, b;          /* nodes 1 and 2 */
extern struct peers_tls side_tls; /* of those that are opened from now on */

#define UNTIL(condition)                                       \
    do {                                                       \
        int64_t until_end = clock_boot_ms() + PATIENCE_MS;     \
        while (!(condition)) {                                 \
            uv_run(&loop, UV_RUN_ONCE);                        \
            if (clock_boot_ms() > until_end)                   \
                fail_msg("waited in vain for %s", #condition); \
        }                                                      \
    } while (0)

struct peers_host side_host(struct side *side);
/* about: what it says about itself. */
void open_side(struct side *side, uint64_t id, const char *secret, const char *listen,
               const char *about);
void open_side_of(struct side *side, uint64_t id, const char *secret, const char *listen,
                  const char *about, const char *cluster);
void close_side(struct side *side);

int set_up(void **state);
int tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

void on_done(void *context); /* a bool */
int send_number(struct side *from, const char *address, uint64_t id, unsigned *number);
void dial(const struct side *from, uint64_t id, const char *address);
/* The first one makes the connection, and is lost. */
void connect_sides(void);

#endif
