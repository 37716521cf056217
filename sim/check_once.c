#include "sim/check.h"

void once_told(struct check_once *once, struct verdict *verdict, int key, uint64_t result,
               int64_t asked_us, int64_t now_us, int64_t until_us)
{
    uint64_t *known = map_at(&once->results, (uint64_t)key + 1);
    uint64_t *told_us = map_at(&once->told_us, (uint64_t)key + 1);
    uint64_t *kept_us = map_at(&once->until_us, (uint64_t)key + 1);
    bool same = *known == result, forever = *kept_us == (uint64_t)CHECK_FOREVER;

    /* While it was certainly kept, all the time from the question to the answer. */
    if (*known && !same &&
        (forever || ((int64_t)*told_us < asked_us && now_us < (int64_t)*kept_us)))
        verdict_wrong(verdict, "key %d has two results: %llu, and now %llu", key,
                      (unsigned long long)*known, (unsigned long long)result);
    if (!same)
        *told_us = *kept_us = 0;
    *known = result;
    if (*told_us == 0)
        *told_us = (uint64_t)now_us;
    if (until_us > (int64_t)*kept_us)
        *kept_us = (uint64_t)until_us;
}

void once_granted(struct check_once *once, struct verdict *verdict, int key, int64_t asked_us,
                  int64_t now_us)
{
    const uint64_t *told_us = map_find(&once->told_us, (uint64_t)key + 1);
    const uint64_t *kept_us = map_find(&once->until_us, (uint64_t)key + 1);

    if (told_us && *told_us && (int64_t)*told_us < asked_us && kept_us &&
        now_us < (int64_t)*kept_us)
        verdict_wrong(verdict,
                      "key %d runs again, though its result was known before that was asked", key);
}

void once_free(struct check_once *once)
{
    map_free(&once->results);
    map_free(&once->told_us);
    map_free(&once->until_us);
}
