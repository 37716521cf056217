/* playground.h: a directory in which something is recorded, and another one in which the images of it are opened. */
#ifndef TESTS_POWER_PLAYGROUND_H
#define TESTS_POWER_PLAYGROUND_H

#include "images.h"

#include <limits.h>

struct playground {
    char home[PATH_MAX - 64]; /* on a disk; removed in the end */
    char disk[PATH_MAX - 32]; /* in it: what is recorded is below */
    char trace[PATH_MAX];
    char fast[PATH_MAX - 64];  /* in memory, if that can be */
    char image[PATH_MAX - 32]; /* in it: the image that is to be judged is below */
};

void playground_init(struct playground *playground, const char *name);
/* If a test has failed over an image: says over which. */
void playground_free(struct playground *playground);
void playground_empty(const char *directory);

/* From here on all that is done in `disk` is recorded, */
void playground_record(struct playground *playground);
/* and until here. Fails the test if the trace does not make the files that are there. */
void playground_recorded(struct playground *playground);

/* The same of another process, which has begun with HF_RECORD=trace and HF_RECORD_BELOW=disk: it was told that by this one. */
void playground_mark(const struct playground *playground, uint64_t number);

/* What is in playground->image is one that the disk may have when the power fails: marks have been passed, of which the last said
 * mark. Fails the test if it is not as it must be. */
typedef void judge_fn(void *context, const struct playground *playground, uint64_t marks,
                      uint64_t mark);
/* All images of the trace, one after the other. */
void playground_judge(struct playground *playground, struct images *images, judge_fn *fn,
                      void *context);

/* HF_SOAK=1: in full. */
bool playground_in_full(void);

#endif
