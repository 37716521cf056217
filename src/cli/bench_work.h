/* bench_work.h: the load of one round. Clients are state machines over started operations, so that thousands need few threads: each
 * thread has a handle of its own, and drives its part of the clients through hf_fd and hf_dispatch. Or they are threads that call and wait. */
#ifndef CLI_BENCH_WORK_H
#define CLI_BENCH_WORK_H

#include "cli/bench.h"

struct bench_load;

/* Borrows plan and target until bench_load_end. NULL: out of memory or threads, with errno set. */
struct bench_load *bench_load_begin(const struct bench_plan *plan, struct bench_target *target,
                                    enum bench_work work, uint32_t clients);
/* When what happens begins to count, and when it ends: of clock_boot_ns. */
int64_t bench_load_from_ns(const struct bench_load *load);
int64_t bench_load_until_ns(const struct bench_load *load);
/* Nobody begins anything any more, who waits is cancelled, who holds lets go. */
void bench_load_stop(struct bench_load *load);
bool bench_load_is_over(const struct bench_load *load);
/* So far, for the eye. */
uint64_t bench_load_cycles(const struct bench_load *load);
uint64_t bench_load_failures(const struct bench_load *load);
/* Waits until it is over. */
void bench_load_end(struct bench_load *load, struct bench_round *ret_round);

/* CPU time of one cycle of the loop above with a store that answers at once, in ns: the clocks, the checks, the histogram, two looks at
 * a descriptor. */
double bench_loop_cost_ns(void);

#endif
