#include "sim/map.h"

#include "base/error.h"
#include "sim/chance.h"

#include <stdlib.h>

static struct map_slot *slot_of(const struct map *map, uint64_t key)
{
    size_t at = chance_mix(key) & (map->capacity - 1);

    while (map->slots[at].key && map->slots[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

static void grow(struct map *map)
{
    struct map grown = {.capacity = map->capacity ? 2 * map->capacity : 64, .count = map->count};

    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    INVARIANT(grown.slots != NULL);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key)
            *slot_of(&grown, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = grown;
}

uint64_t *map_at(struct map *map, uint64_t key)
{
    struct map_slot *slot;

    INVARIANT(key != 0);
    if (2 * map->count >= map->capacity)
        grow(map);
    slot = slot_of(map, key);
    if (!slot->key) {
        slot->key = key;
        map->count++;
    }
    return &slot->value;
}

uint64_t *map_find(const struct map *map, uint64_t key)
{
    struct map_slot *slot = map->capacity ? slot_of(map, key) : NULL;

    return slot && slot->key ? &slot->value : NULL;
}

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){NULL, 0, 0};
}
