/* map.h: from number to number. */
#ifndef SIM_MAP_H
#define SIM_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    uint64_t key, value; /* key 0: free */
};

struct map {
    struct map_slot *slots;
    size_t count, capacity;
};

/* The value of a key other than 0, which is 0 if it is new. Lives until the next call. */
uint64_t *map_at(struct map *map, uint64_t key);
/* NULL: it is not there. */
uint64_t *map_find(const struct map *map, uint64_t key);
void map_free(struct map *map);

#endif
