#include "journal/bytes.h"

#include <stdlib.h>

void *blocks_new(size_t size)
{
    void *memory = aligned_alloc(BLOCK, round_up(size, BLOCK));

    if (memory)
        memset(memory, 0, round_up(size, BLOCK));
    return memory;
}
