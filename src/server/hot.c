#include "server/hot.h"
#include "base/siphash.h"

#include <string.h>

enum { HASH_HOT = 2 };

void hot_open(struct hot *hot, const unsigned char seed[16])
{
    memset(hot, 0, sizeof *hot);
    memcpy(hot->seed, seed, sizeof hot->seed);
    hot->stride = 1;
}

static struct hot_name *find(struct hot *hot, uint64_t hash)
{
    for (uint32_t i = 0; i < HOT_NAMES; i++)
        if (hot->at[i].hash == hash)
            return &hot->at[i];
    return NULL;
}

static struct hot_name *least(struct hot *hot)
{
    struct hot_name *found = &hot->at[0];

    for (uint32_t i = 1; i < HOT_NAMES; i++)
        if (hot->at[i].count < found->count)
            found = &hot->at[i];
    return found;
}

void hot_count(struct hot *hot, struct core_text name)
{
    struct hot_name *at;
    uint64_t hash;

    hot->this_second++;
    if (hot->left > 0) {
        hot->left--;
        return;
    }
    hot->left = hot->stride - 1;
    hash = siphash(hot->seed, HASH_HOT, name.bytes, name.size) | 1;
    at = find(hot, hash);
    if (!at) {
        at = least(hot);
        at->hash = hash;
        at->excess = at->count;
        at->size = (uint32_t)(name.size < sizeof at->bytes ? name.size : sizeof at->bytes);
        memcpy(at->bytes, name.bytes, at->size);
    }
    at->count += hot->stride;
}

/* An odd stride: clients that take two names in turn are both counted. */
void hot_second(struct hot *hot)
{
    hot->stride = hot->this_second / HOT_EACH_MAX | 1;
    hot->this_second = 0;
    if (++hot->seconds % HOT_HALF_S != 0)
        return;
    for (uint32_t i = 0; i < HOT_NAMES; i++) {
        hot->at[i].count /= 2;
        hot->at[i].excess /= 2;
        if (hot->at[i].count == 0)
            hot->at[i] = (struct hot_name){0};
    }
}

/* What is certainly a name's own decides: one that has just taken another's place is not hot yet. */
static uint64_t own(const struct hot_name *name)
{
    return name->count - name->excess;
}

uint32_t hot_list(const struct hot *hot, const struct hot_name **ret_names, uint32_t most)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < HOT_NAMES; i++) {
        const struct hot_name *name = &hot->at[i];
        uint32_t at = count;

        if (name->hash == 0)
            continue;
        while (at > 0 && own(ret_names[at - 1]) < own(name))
            at--;
        if (at == most)
            continue;
        if (count < most)
            count++;
        memmove(&ret_names[at + 1], &ret_names[at], (count - 1 - at) * sizeof *ret_names);
        ret_names[at] = name;
    }
    return count;
}
