/* chance.h: all that is random in a simulation, drawn from its seed. */
#ifndef SIM_CHANCE_H
#define SIM_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};

static inline uint64_t chance_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* Each part of the simulator has a stream of its own, so that one that draws more does not change the others. */
static inline struct chance chance_new(uint64_t seed, uint64_t stream)
{
    return (struct chance){chance_mix(seed * 0x9e3779b97f4a7c15u + stream)};
}

static inline uint64_t chance_draw(struct chance *chance)
{
    chance->state += 0x9e3779b97f4a7c15u;
    return chance_mix(chance->state);
}

static inline uint64_t chance_below(struct chance *chance, uint64_t below)
{
    return below ? chance_draw(chance) % below : 0;
}

/* Both ends included. */
static inline int64_t chance_between(struct chance *chance, int64_t from, int64_t to)
{
    return from + (int64_t)chance_below(chance, (uint64_t)(to - from) + 1);
}

static inline bool chance_happens(struct chance *chance, uint32_t of_ten_thousand)
{
    return of_ten_thousand && chance_below(chance, 10000) < of_ten_thousand;
}

#endif
