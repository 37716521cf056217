/* hot.h: which names are taken most often just now. A few are counted, however many there are: one that is not among them takes the place of
 * the one with the least, and its count with it ("space saving", Metwally and others 2005), so that whoever is taken often enough is among them,
 * and no count is too low. Each HOT_HALF_S seconds all counts are halved: what was hot an hour ago is not. */
#ifndef SERVER_HOT_H
#define SERVER_HOT_H

#include "core/core.h"

#include <stdint.h>

#define HOT_NAMES 64u  /* that are counted */
#define HOT_HALF_S 10u /* after so long a count is half of what it was */
#define HOT_EACH_MAX \
    1000u /* so many a second are counted one by one; of more, one in so many, for as many */

struct hot_name {
    uint64_t hash; /* 0: nothing is there */
    uint64_t count;
    uint64_t excess; /* so much of it may be another name's */
    uint32_t size;
    char bytes[HF_NAME_MAX];
};

struct hot {
    struct hot_name at[HOT_NAMES];
    uint32_t stride, left; /* one in `stride` is counted: the next one after `left` others */
    uint32_t this_second, seconds;
    unsigned char seed[16];
};

void hot_open(struct hot *hot, const unsigned char seed[16]);
/* A name was taken. */
void hot_count(struct hot *hot, struct core_text name);
/* A second has gone by. */
void hot_second(struct hot *hot);
/* The hottest first. Returns how many there are, at most `most`. */
uint32_t hot_list(const struct hot *hot, const struct hot_name **ret_names, uint32_t most);

#endif
