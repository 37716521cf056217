/* timed.h: records with deadlines for the tests of the timers, and what those deadlines should be. One set of them:
 * a test that begins anew forgets the last. */
#ifndef TESTS_CORE_TIMED_H
#define TESTS_CORE_TIMED_H

#include "core/timers.h"
#include "tools.h"

/* Records are numbered from 0 on. Their slots are spread from 0 to the highest, so that each byte of a slot matters
 * to the order. */
#define STRIDE 455u
#define SLOT_MAX 0xffffffu
#define RECORDS (SLOT_MAX / STRIDE + 1)
#define KINDS 3u
#define SCRATCH_KEPT 65536u

_Static_assert(SLOT_MAX % STRIDE == 0, "the last record has the highest slot");
_Static_assert(2 * RECORDS > SCRATCH_KEPT, "the records of one kind need much scratch");

struct timed {
    struct timer timers[KINDS + 1][RECORDS]; /* by kind */
};

extern struct timed timed;
extern int64_t deadlines[KINDS + 1][RECORDS]; /* what should be so; -1: none */
extern uint32_t open_deadlines;

void timed_begin(struct timers *timers);
void timed_begin_with(struct timers *timers, const unsigned char seed[16]);
/* The timers go to another address, and so do the records, as when a snapshot is restored. */
void timed_move(struct timers *timers, struct timers *ret_timers);
void set(struct timers *timers, enum timer_kind kind, uint32_t number, int64_t deadline_ms);
void clear(struct timers *timers, enum timer_kind kind, uint32_t number);
uint32_t what(enum timer_kind kind, uint32_t number);
/* This one ends next, if it is due by then; and it does. */
void ends(struct timers *timers, int64_t now_ms, enum timer_kind kind, uint32_t number);
/* That the record's deadline is in. */
struct moment *moment_of(const struct timers *timers, enum timer_kind kind, uint32_t number);

/* Are the moments what they should be, and are all deadlines in them? */
void verify(const struct timers *timers);
void finish(struct timers *timers);
/* Nothing is left behind. */
void finish_empty(struct timers *timers);

#endif
