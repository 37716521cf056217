/* images.h: the states in which a disk may be when the power fails at one place of a trace, each once. */
#ifndef TESTS_POWER_IMAGES_H
#define TESTS_POWER_IMAGES_H

#include "disk_state.h"

struct images_options {
    uint64_t seed;
    int all_of; /* up to so many pending calls: every subset of them */
    int last;   /* of more: each of the last ones without the others, and the others without it */
    int at_random; /* so many besides, in which writes are torn as well */
};

struct image;
typedef void image_fn(void *context, const struct image *image);

struct images { /* begins as {.options = …} */
    struct images_options options;
    uint64_t built, judged; /* so many, and of these so many that were not there before */
    uint64_t cuts;
    int most_pending;
    uint64_t *seen;
    size_t seen_capacity, seen_count;
};

/* Calls fn for each that has not been seen with this mark. */
void images_each(struct images *images, const struct disk_state *state, image_fn *fn,
                 void *context);
void images_free(struct images *images);

/* As it is if nothing of what is pending is lost. */
void images_whole(const struct disk_state *state, image_fn *fn, void *context);
/* Into an empty directory. */
void image_put(const struct image *image, const char *directory);
/* Which calls are there, in words for people: for a message. */
const char *image_describe(const struct image *image);

#endif
