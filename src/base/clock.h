/* clock.h: the only clock that decisions may use. CLOCK_BOOTTIME counts suspend and never jumps. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

int64_t clock_boot_ms(void);
int64_t clock_boot_ns(void);
/* For people to look at, never for a decision: since 1970. */
int64_t clock_wall_ms(void);
int64_t clock_wall_us(void);
/* The one exception: tokens of a store that is new begin above this, the wall clock's microseconds, so that a store
 * which was lost or exchanged goes on above what guards have seen. 0: the clock is obviously wrong. */
uint64_t clock_first_token(int64_t wall_us);
#define CLOCK_WALL_MIN_US INT64_C(1577836800000000) /* 2020-01-01 */
#define CLOCK_WALL_MAX_US \
    INT64_C(4102444800000000) /* 2100-01-01: not half of all tokens there are */

/* A deadline `span_ms` after `from_ms` that cannot overflow. */
int64_t clock_after(int64_t from_ms, int64_t span_ms);
#define CLOCK_NEVER INT64_MAX

/* span_ms from now, for calls that want a time of CLOCK_MONOTONIC. */
struct timespec clock_monotonic_in(int64_t span_ms);

/* Tests only: makes clock_boot_* read so much later than the kernel says, as a suspend would. */
void clock_test_shift_ms(int64_t shift_ms);

#endif
