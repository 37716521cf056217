/* fuzz_snapshot.c: bytes that somebody sends as a snapshot. The input is what lies between the magic
 * and the checksum; the target writes those, so that the search gets past them. What is taken must be
 * a sound table, and stay one when it is used. */
#include "core/snapshot.h"
#include "tables.h"

#include <endian.h>

/* Uses every name that it finds. */
static bool use(void *context, const struct core_lock_view *view)
{
    struct core_packer *packer = context;
    struct core_command acquire = {.op = CORE_ACQUIRE,
                                   .flags = CORE_WAITS | (view->once ? CORE_ONCE : 0),
                                   .name = view->name,
                                   .lease = {"a newcomer", 10},
                                   .mode = view->permits ? HF_PERMIT : HF_EXCLUSIVE,
                                   .permits = view->permits,
                                   .ttl_ms = 2000,
                                   .wait_ms = 1500};
    struct core_command stop = {.op = CORE_BREAK,
                                .flags = view->once ? CORE_ONCE | CORE_NOW : CORE_NOW,
                                .name = view->name};

    if (view->once) { /* whatever it says, no permits: entries do not have them for keys */
        acquire.mode = HF_EXCLUSIVE;
        acquire.permits = 0;
    }
    core_pack(packer, &acquire);
    if (packer->count % 4 == 3)
        core_pack(packer, &stop);
    return true;
}

static void go_on_with(struct core *core)
{
    struct core_packer packer = {0};

    core_list(core, 0, 100, use, &packer);
    core_packer_finish(&packer, 10, true, 0, 0);
    REQUIRE(core_apply(core, packer.bytes, packer.size, NULL, NULL) == HF_OK);
    core_packer_free(&packer);
    table_must_be_sound(core);
    for (int i = 0; i < 3; i++)
        table_do(core, NULL, CORE_ELAPSED_MAX_MS);
    table_must_be_sound(core);
}

const int fuzz_rounds = 20000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct core *core = table_new(1);
    size_t inside = SNAPSHOT_MAGIC_SIZE + size;
    unsigned char *bytes = malloc(inside + SNAPSHOT_SUM_SIZE);
    uint64_t sum;

    REQUIRE(bytes);
    memcpy(bytes, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE);
    if (size)
        memcpy(bytes + SNAPSHOT_MAGIC_SIZE, data, size);
    REQUIRE(inside <= SNAPSHOT_BLOCK);
    sum = htole64(snapshot_sum(0, bytes, inside));
    memcpy(bytes + inside, &sum, sizeof sum);
    if (core_restore(core, bytes, inside + SNAPSHOT_SUM_SIZE, NULL) == HF_OK) {
        table_must_be_sound(core);
        go_on_with(core);
    }
    free(bytes);
    core_free(core);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    struct core *core = table_sample(n);
    size_t size = 0;
    unsigned char *bytes;

    if (!core)
        return 0;
    bytes = table_snapshot(core, &size);
    size -= SNAPSHOT_MAGIC_SIZE + SNAPSHOT_SUM_SIZE;
    REQUIRE(size <= FUZZ_MAX);
    memcpy(ret_bytes, bytes + SNAPSHOT_MAGIC_SIZE, size);
    free(bytes);
    core_free(core);
    return size;
}
