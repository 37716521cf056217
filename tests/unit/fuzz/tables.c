#include "tables.h"

struct core *table_new(unsigned char seed)
{
    unsigned char bytes[16];

    memset(bytes, seed, sizeof bytes);
    return core_new(bytes);
}

void *table_snapshot(struct core *core, size_t *ret_size)
{
    void *bytes;

    core_snapshot_begin(core);
    REQUIRE(core_snapshot_step(core, SIZE_MAX / 2));
    bytes = core_snapshot_end(core, ret_size);
    REQUIRE(bytes);
    return bytes;
}

void table_must_be_sound(struct core *core)
{
    struct error_text err = {""};
    struct core *copy = table_new(9);
    size_t size = 0;
    void *bytes;

    if (core_check(core, &err) != HF_OK)
        fuzz_failed(__FILE__, __LINE__, "the table is not sound:", err.text);
    bytes = table_snapshot(core, &size);
    if (core_restore(copy, bytes, size, &err) != HF_OK)
        fuzz_failed(__FILE__, __LINE__, "its snapshot is refused:", err.text);
    REQUIRE(core_hash(core) == core_hash(copy));
    free(bytes);
    core_free(copy);
}

void table_do(struct core *core, const struct core_command *command, uint32_t elapsed_ms)
{
    struct core_packer packer = {0};

    if (command)
        core_pack(&packer, command);
    core_packer_finish(&packer, elapsed_ms, false, 0, 0);
    REQUIRE(core_apply(core, packer.bytes, packer.size, NULL, NULL) == HF_OK);
    core_packer_free(&packer);
}

/* ---- samples ---------------------------------------------------------------------------------- */

#define TEXT(words)                \
    {                              \
        (words), sizeof(words) - 1 \
    }

static const struct core_text renewed[] = {TEXT("A"), TEXT("nobody"), TEXT("B")};

static const struct core_command locks[] = {
    {.op = CORE_IDENTITY, .result = TEXT("0123456789abcdef"), .token = 1000},
    {.op = CORE_MEMBER, .token = 2, .result = TEXT("db2:7420")},
    {.op = CORE_ACQUIRE, .name = TEXT("a"), .lease = TEXT("A"), .ttl_ms = 900, .delay_ms = 700},
    {.op = CORE_ACQUIRE,
     .flags = CORE_WAITS | CORE_KEPT,
     .name = TEXT("a"),
     .lease = TEXT("B"),
     .ttl_ms = 30000,
     .wait_ms = CORE_FOREVER,
     .owner = TEXT("somebody")},
    {.op = CORE_ACQUIRE,
     .flags = CORE_WAITS,
     .name = TEXT("a"),
     .lease = TEXT("C"),
     .ttl_ms = 30000,
     .wait_ms = 20000},
    {.op = CORE_RENEW, .leases = renewed, .lease_count = COUNT(renewed), .ttl_ms = 1000},
    {.op = CORE_LEAVE, .name = TEXT("a"), .lease = TEXT("C"), .attachment = 2},
    {.op = CORE_RELEASE, .name = TEXT("a"), .lease = TEXT("A"), .token = 7},
    {.op = CORE_END, .lease = TEXT("D"), .ttl_ms = 5000},
    {.op = CORE_READ},
};

static const struct core_command sharing[] = {
    {.op = CORE_ACQUIRE, .name = TEXT("r"), .lease = TEXT("A"), .mode = HF_SHARED, .ttl_ms = 100},
    {.op = CORE_ACQUIRE, .name = TEXT("r"), .lease = TEXT("B"), .mode = HF_SHARED, .ttl_ms = 5000},
    {.op = CORE_ACQUIRE,
     .flags = CORE_WAITS,
     .name = TEXT("r"),
     .lease = TEXT("C"),
     .ttl_ms = 5000,
     .wait_ms = 100},
    {.op = CORE_ACQUIRE,
     .name = TEXT("p"),
     .lease = TEXT("A"),
     .mode = HF_PERMIT,
     .permits = 2,
     .ttl_ms = 100,
     .delay_ms = 500},
    {.op = CORE_ACQUIRE,
     .name = TEXT("p"),
     .lease = TEXT("B"),
     .mode = HF_PERMIT,
     .permits = 2,
     .ttl_ms = 5000},
    {.op = CORE_BREAK, .name = TEXT("p")},
    {.op = CORE_BREAK, .flags = CORE_NOW, .name = TEXT("r")},
    {.op = CORE_FLOOR, .token = HF_TOKEN_MAX - 3},
};

static const struct core_command once[] = {
    {.op = CORE_ACQUIRE,
     .flags = CORE_ONCE,
     .name = TEXT("k"),
     .lease = TEXT("A"),
     .ttl_ms = 3000,
     .delay_ms = 60000},
    {.op = CORE_ACQUIRE,
     .flags = CORE_ONCE | CORE_WAITS | CORE_NO_HEIR,
     .name = TEXT("k"),
     .lease = TEXT("B"),
     .ttl_ms = 3000,
     .wait_ms = 1000},
    {.op = CORE_FINISH,
     .flags = CORE_ONCE,
     .name = TEXT("k"),
     .lease = TEXT("A"),
     .token = 1,
     .keep_ms = 60000,
     .result = TEXT("result")},
    {.op = CORE_ACQUIRE,
     .flags = CORE_ONCE,
     .name = TEXT("dies"),
     .lease = TEXT("B"),
     .ttl_ms = 100,
     .delay_ms = 60000},
    {.op = CORE_ACQUIRE,
     .flags = CORE_ONCE,
     .name = TEXT("runs"),
     .lease = TEXT("C"),
     .ttl_ms = 5000,
     .delay_ms = 60000},
    {.op = CORE_ACQUIRE,
     .flags = CORE_ONCE | CORE_WAITS | CORE_KEPT,
     .name = TEXT("runs"),
     .lease = TEXT("D"),
     .ttl_ms = 5000,
     .wait_ms = CORE_FOREVER},
    {.op = CORE_IDENTITY, .flags = CORE_FORCE, .result = TEXT("fedcba9876543210")},
};

static const struct {
    const struct core_command *commands;
    unsigned count;
} samples[] = {{locks, COUNT(locks)}, {sharing, COUNT(sharing)}, {once, COUNT(once)}};

struct core *table_sample(unsigned n)
{
    struct core *core;

    if (n >= COUNT(samples))
        return NULL;
    core = table_new(1);
    for (unsigned i = 0; i < samples[n].count; i++)
        table_do(core, &samples[n].commands[i], 50);
    return core;
}

void *sample_entry(unsigned n, unsigned which, size_t *ret_size)
{
    struct core_packer packer = {0};

    if (n >= COUNT(samples) || which >= samples[n].count)
        return NULL;
    core_pack(&packer, &samples[n].commands[which]);
    core_packer_finish(&packer, 50, which % 4 == 3, 0, 0);
    return core_packer_take(&packer, ret_size);
}
