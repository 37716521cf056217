/* A fence's module of another version: it must be refused before anything of it is called. */
#include "guard/fence/marks.h"

static const struct marks_provider provider = {.abi = MARKS_ABI + 1};

HF_API marks_module_fn holdfast_fence;

const struct marks_provider *holdfast_fence(void)
{
    return &provider;
}
