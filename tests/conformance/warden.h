/* warden.h: a process of its own that has the servers of a kind.
 *
 * Whoever starts a server must live as long as it, and faults come while a test runs. The warden is told of each test by an order of one
 * byte, and answers each; it ends, with its servers, when nobody can tell it anything any more. */
#ifndef TESTS_CONFORMANCE_WARDEN_H
#define TESTS_CONFORMANCE_WARDEN_H

#include <stddef.h>
#include <stdint.h>

enum fault { FAULT_NONE, FAULT_KILL, FAULT_PAUSE };

/* What it does. Whatever of this fails ends it, by _exit, and thereby the run: without its servers no test means anything. */
struct warden {
    /* Starts the servers. What is to be known of them it says by warden_say. */
    void (*begin)(void);
    /* What is due; returns after how many ms it is to be called again, -1: not before the next order. */
    int (*look_after)(void);
    /* Answers by warden_say. */
    void (*obey)(char order);
    void (*end)(void);
};

/* ---- the side of the suite: 0, or -1 with words on stderr */

int warden_start(const struct warden *warden);
/* What it said in begin. */
int warden_hear(void *answer, size_t size);
int warden_tell(char order, void *answer, size_t size);
void warden_stop(void);

/* ---- within the warden */

void warden_say(const void *answer, size_t size);
/* When the first fault of a test is to come, as now_ms: within 1 ms, or 2, 4, ..., so many doublings. Sooner rather than later: many
 * tests are over within some milliseconds. */
int64_t warden_first_fault(unsigned int doublings);
unsigned int warden_draw(unsigned int below);
/* How long until then, for look_after. INT64_MAX: -1. */
int warden_until(int64_t then_ms);

#endif
