/* run.h: many seeds, in several processes: a seed that ends its process does not end the others. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_JOBS_MAX 64

struct run {
    uint64_t first, count;
    int jobs;
    bool trace, hash;
    bool again;   /* each seed twice: the traces must be the same */
    bool stop;    /* no further seed once one is wrong */
    bool outside; /* only the checkers judge, not what the nodes say of themselves */
    const char *switch_name, *program;
};

/* True: nothing is wrong with any of them. */
bool run_all(const struct run *run);

#endif
