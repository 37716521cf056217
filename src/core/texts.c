/* texts.c: names, lease ids and owners, in slabs by size. */
#include "core/inside.h"

#include <string.h>

static const uint16_t class_size[TEXT_CLASSES] = {8,  12,  16,  20,  24,  28,  32,  36,
                                                  40, 44,  48,  52,  56,  60,  64,  80,
                                                  96, 112, 128, 192, 256, 320, 384, 512};

_Static_assert(HF_NAME_MAX <= 512 && HF_LEASE_MAX <= 512 && HF_OWNER_MAX <= 512,
               "the largest class holds any text");

static int class_of(size_t size)
{
    int class = size <= 8 ? 0 : size <= 64 ? (int)((size + 3) / 4) - 2 : 15;

    while (class_size[class] < size)
        class ++;
    return class;
}

void texts_init(struct core *core)
{
    for (int i = 0; i < TEXT_CLASSES; i++)
        slab_init(&core->texts[i], class_size[i]);
}

void texts_free(struct core *core)
{
    for (int i = 0; i < TEXT_CLASSES; i++)
        slab_free(&core->texts[i]);
}

uint32_t text_store(struct core *core, struct core_text text)
{
    struct slab *slab;
    uint32_t slot;

    if (text.size == 0)
        return NONE;
    slab = &core->texts[class_of(text.size)];
    slot = slab_take(slab);
    memcpy(slab_at(slab, slot), text.bytes, text.size);
    return slot;
}

void text_drop(struct core *core, uint32_t slot, size_t size)
{
    if (size)
        slab_give(&core->texts[class_of(size)], slot);
}

const char *text_bytes(const struct core *core, uint32_t slot, size_t size)
{
    return size ? slab_at(&core->texts[class_of(size)], slot) : "";
}
