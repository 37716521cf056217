#include "tools.h"

uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13; /* xorshift64 */
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

uint32_t below(uint64_t *seed, uint32_t limit)
{
    return (uint32_t)(next_random(seed) % limit);
}

struct core_text text(const char *words)
{
    return (struct core_text){words, strlen(words)};
}

struct core *table_new(unsigned char seed)
{
    unsigned char bytes[16];

    memset(bytes, seed, sizeof bytes);
    return core_new(bytes);
}

void table_check(const struct core *core)
{
    struct error_text err = {""};

    if (core_check(core, &err) != HF_OK)
        fail_msg("%s", err.text);
}

void table_apply(struct core *core, struct core_packer *packer, uint32_t elapsed_ms, bool new_term,
                 const struct core_sink *sink)
{
    struct error_text err = {""};

    core_packer_finish(packer, elapsed_ms, new_term, 7, 9);
    if (core_apply(core, packer->bytes, packer->size, sink, &err) != HF_OK)
        fail_msg("%s", err.text);
    core_packer_clear(packer);
}

void table_do(struct core *core, const struct core_command *command, const struct core_sink *sink)
{
    struct core_packer packer = {0};

    core_pack(&packer, command);
    table_apply(core, &packer, 0, false, sink);
    core_packer_free(&packer);
}

void table_hold(struct core *core, const char *name, const char *lease, uint32_t ttl_ms)
{
    struct core_command command = {
        .op = CORE_ACQUIRE, .name = text(name), .lease = text(lease), .ttl_ms = ttl_ms};

    table_do(core, &command, NULL);
}

void table_pass(struct core *core, uint32_t ms)
{
    struct core_packer packer = {0};

    do {
        uint32_t step = ms < CORE_ELAPSED_MAX_MS ? ms : CORE_ELAPSED_MAX_MS;

        table_apply(core, &packer, step, false, NULL);
        ms -= step;
    } while (ms > 0);
    core_packer_free(&packer);
}

void *snapshot_whole(struct core *core, size_t *ret_size)
{
    void *bytes;

    core_snapshot_begin(core);
    assert_true(core_snapshot_step(core, SIZE_MAX / 2));
    bytes = core_snapshot_end(core, ret_size);
    assert_non_null(bytes);
    return bytes;
}

static struct core *restore(const void *bytes, size_t size, unsigned char seed)
{
    struct core *core = table_new(seed);
    struct error_text err = {""};

    if (core_restore(core, bytes, size, &err) != HF_OK)
        fail_msg("%s", err.text);
    return core;
}

uint64_t restored_hash(const void *bytes, size_t size)
{
    struct core *core = restore(bytes, size, 99);
    uint64_t hash = core_hash(core);

    core_free(core);
    return hash;
}

struct core *table_reborn(struct core *core, unsigned char seed)
{
    size_t size = 0;
    void *bytes = snapshot_whole(core, &size);
    struct core *reborn = restore(bytes, size, seed);

    free(bytes);
    assert_true(core_hash(core) == core_hash(reborn));
    core_free(core);
    return reborn;
}
