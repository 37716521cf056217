/* test_worlds.c: many worlds, each by its seed.
 *
 *     test-raft-worlds [FIRST [COUNT]]
 *
 * A world that goes wrong is printed with its seed: FIRST, and 1, show it again. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3000
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORLDS 300
#else
#define WORLDS 800
#endif
#define WORLDS_IN_FULL 100000
#define WRONG_MAX 5 /* then it has seen enough */

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const char *soak = getenv("HF_SOAK");
    uint64_t count = soak && soak[0] == '1' ? WORLDS_IN_FULL : WORLDS;
    struct world *world = malloc(sizeof *world);
    long elections = 0, changes = 0, crashes = 0, installs = 0, transfers = 0, commands = 0;
    int bad = 0;

    if (argc > 2)
        count = strtoull(argv[2], NULL, 10);
    for (uint64_t seed = first; seed < first + count && bad < WRONG_MAX; seed++) {
        int step = 0;

        world_begin(world, seed);
        while (step < STEPS && world_step(world))
            step++;
        if (!world->wrong[0])
            world_heal(world);
        if (world->wrong[0]) {
            printf("seed %llu, step %d: %s\n", (unsigned long long)seed, step, world->wrong);
            bad++;
            world_print(world);
        }
        elections += world->elections;
        changes += world->changes;
        crashes += world->crashes;
        installs += world->installs;
        transfers += world->transfers;
        commands += world->commands;
        world_end(world);
    }
    printf("%llu worlds: %ld elections, %ld changes of members, %ld crashes, %ld snapshots "
           "installed, %ld transfers, %ld commands committed: %d wrong\n",
           (unsigned long long)count, elections, changes, crashes, installs, transfers, commands,
           bad);
    free(world);
    return bad > 0;
}
