/* A module that says it was built for another version of engine.h: the loader must not use it. */
#include "engines/engine.h"

__attribute__((visibility("default"))) const struct engine *holdfast_engine(void);

const struct engine *holdfast_engine(void)
{
    static const struct engine engine = {.abi = ENGINE_ABI + 1};

    return &engine;
}
