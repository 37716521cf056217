/* fuzz_entry.c: bytes in the place of entries of the log. The input is a row of entries, each with
 * its length before it (two bytes); zeros fill it up to a multiple of 8. What is refused changes
 * nothing, what is taken leaves a sound table, and two tables with different seeds agree. */
#include "base/hash.h"
#include "tables.h"

static void sum_up(void *context, const struct core_effect *effect)
{
    uint64_t *sum = context;
    uint64_t parts[] = {*sum,
                        effect->kind,
                        effect->command,
                        effect->answer,
                        effect->why,
                        effect->number,
                        effect->ticket,
                        effect->attachment,
                        hash_bytes(effect->name.bytes, effect->name.size),
                        hash_bytes(effect->lease.bytes, effect->lease.size),
                        hash_bytes(effect->owner.bytes, effect->owner.size),
                        hash_bytes(effect->result.bytes, effect->result.size)};

    *sum = hash_bytes(parts, sizeof parts);
}

static void apply_to_both(struct core *core, struct core *twin, const uint8_t *bytes, size_t size)
{
    uint64_t effects = 0, twin_effects = 0, before = core_hash(core);
    const struct core_sink sink = {&effects, sum_up}, twin_sink = {&twin_effects, sum_up};
    struct error_text err = {""};
    int result = core_apply(core, bytes, size, &sink, &err);

    REQUIRE(result == core_apply(twin, bytes, size, &twin_sink, NULL));
    REQUIRE(result == HF_OK || result == HF_EREFUSED);
    if (result == HF_EREFUSED)
        REQUIRE(before == core_hash(core) && effects == 0 && err.text[0]);
    else
        table_must_be_sound(core);
    REQUIRE(effects == twin_effects);
    REQUIRE(core_hash(core) == core_hash(twin));
}

const int fuzz_rounds = 5000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct core *core = table_new(1), *twin = table_new(2);

    for (size_t at = 0; at + 2 <= size;) {
        size_t length = (size_t)data[at] | (size_t)data[at + 1] << 8, padded;
        uint8_t *exact; /* so that a sanitizer sees a byte too many */

        at += 2;
        if (length > size - at)
            length = size - at;
        padded = (length + 7) / 8 * 8;
        exact = calloc(1, padded ? padded : 1);
        REQUIRE(exact);
        memcpy(exact, data + at, length);
        apply_to_both(core, twin, exact, padded);
        free(exact);
        at += length;
    }
    core_free(core);
    core_free(twin);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    size_t size = 0, length = 0;
    void *entry;

    for (unsigned i = 0; (entry = sample_entry(n, i, &length)); i++) {
        REQUIRE(size + 2 + length <= FUZZ_MAX);
        ret_bytes[size++] = (uint8_t)length;
        ret_bytes[size++] = (uint8_t)(length >> 8);
        memcpy(ret_bytes + size, entry, length);
        size += length;
        free(entry);
    }
    return size;
}
