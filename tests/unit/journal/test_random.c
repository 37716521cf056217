/* test_random.c: random appends, replacements, restarts, removals, resets, torn last writes and damage, against a
 * model of what must be there: the log as it is once every record has replaced what it replaces.
 *
 * Everything follows from the seed that is printed; HOLDFAST_TEST_SEED sets another. */
#include "disk.h"
#include "tools.h"

#define STEPS 2500
#define INDEXES 4096 /* the log is reset before it has more */
#define GROUP_MAX 12

/* What is between first and next. */
struct model {
    struct told told[INDEXES]; /* by index, from base on */
    uint64_t base;             /* the index of told[0] */
    uint64_t first, next;      /* equal: it is empty */
    uint64_t kept;             /* what is below may have been removed */
};

struct world {
    uint64_t start, seed;
    int step;
    struct room room;
    struct model model;
    uint64_t torn, told_of, damaged, resets, removals, replaced;
};

static struct world world;
static struct model heard; /* what the journal told, in the same way */
static struct files before, after;

/* ---- the model -------------------------------------------------------------------------------- */

static void model_clear(struct model *model, uint64_t index)
{
    model->base = model->first = model->next = model->kept = index;
}

static void model_put(struct model *model, const struct told *told)
{
    assert_true(told->index >= model->base && told->index - model->base < INDEXES);
    model->told[told->index - model->base] = *told;
    model->next = told->index + 1;
    if (told->index < model->first)
        model->first = told->index;
}

static bool same(const struct told *a, const struct told *b)
{
    return a->index == b->index && a->term == b->term && a->type == b->type && a->size == b->size;
}

/* What the journal told is what the model holds; only what was removed may be missing at the front. */
static void compare(void)
{
    const struct log *log = &world.room.log;
    const struct model *model = &world.model;

    if (log->count == 0) {
        if (model->first != model->next)
            fail_msg("seed %ju step %d: all is lost", (uintmax_t)world.start, world.step);
        return;
    }
    model_clear(&heard, model->base);
    heard.first = log->told[0].index;
    for (size_t i = 0; i < log->count; i++)
        model_put(&heard, &log->told[i]);
    if (heard.next != model->next || heard.first > model->kept || heard.first < model->first)
        fail_msg("seed %ju step %d: %ju to %ju, and not %ju (%ju) to %ju", (uintmax_t)world.start,
                 world.step, (uintmax_t)heard.first, (uintmax_t)heard.next, (uintmax_t)model->first,
                 (uintmax_t)model->kept, (uintmax_t)model->next);
    for (uint64_t i = heard.first; i < heard.next; i++)
        if (!same(&heard.told[i - heard.base], &model->told[i - model->base]))
            fail_msg("seed %ju step %d: entry %ju differs", (uintmax_t)world.start, world.step,
                     (uintmax_t)i);
}

/* ---- what happens ----------------------------------------------------------------------------- */

static size_t random_size(void)
{
    switch (draw(&world.seed, 8)) {
    case 0:
        return 0;
    case 1:
        return draw(&world.seed, 20000);
    case 2:
        return BLOCK_BYTES - RECORD_HEAD - 8 + draw(&world.seed, 16);
    default:
        return draw(&world.seed, 300);
    }
}

static size_t random_group(struct told group[GROUP_MAX])
{
    struct model *model = &world.model;
    size_t count = 1 + draw(&world.seed, draw(&world.seed, 2) ? 3 : GROUP_MAX);
    uint64_t first = model->next, back = draw(&world.seed, 10);

    if (draw(&world.seed, 5) == 0 && first - model->kept > back && back > 0) {
        first -= back;
        world.replaced++;
    }
    for (size_t i = 0; i < count; i++) {
        group[i].index = first + i;
        group[i].term = 1 + (uint64_t)world.step;
        group[i].type = (uint8_t)draw(&world.seed, 256);
        group[i].size = random_size();
    }
    return count;
}

static void append(void)
{
    struct told group[GROUP_MAX] = {0};
    size_t count = random_group(group);

    room_append_told(&world.room, group, count);
    for (size_t i = 0; i < count; i++)
        model_put(&world.model, &group[i]);
    if (draw(&world.seed, 3) == 0)
        room_make_spare(&world.room);
}

static void reopen(void)
{
    world.room.segment_bytes = (2 + draw(&world.seed, 10)) * BLOCK_BYTES;
    if (draw(&world.seed, 2))
        room_stop(&world.room);
    else
        room_close(&world.room);
    room_must_open(&world.room);
    compare();
}

static void reset(void)
{
    assert_int_equal(journal_reset(world.room.journal, &world.room.err), HF_OK);
    model_clear(&world.model, 1 + draw(&world.seed, 1000000));
    world.resets++;
}

static void remove_some(void)
{
    struct model *model = &world.model;
    uint64_t index, needed;

    if (model->next == model->first)
        return;
    index = model->kept + draw(&world.seed, model->next - model->kept);
    needed = journal_needed(world.room.journal, index);
    assert_int_equal(journal_remove(&world.room.directory, needed, &world.room.err), HF_OK);
    journal_removed(world.room.journal, needed);
    model->kept = index;
    world.removals++;
}

/* Of the last write some blocks are missing; from the first one on that is missed its records are gone. */
static size_t lose_blocks(const struct told *group, size_t count)
{
    const struct disk_call *write = &disk.calls[0]; /* then a mark, if it began a segment */
    struct file *old, *new = files_find(&after, write->name);
    size_t from = (size_t)write->offset, to = from + write->size, at, lost = to, whole = 0;

    assert_int_equal(write->kind, DISK_WRITE);
    old = files_find(&before, write->name);
    assert_non_null(old);
    for (at = to; at > from; at -= BLOCK_BYTES)
        if (draw(&world.seed, 3) == 0) {
            lost = at - BLOCK_BYTES;
            memset(new->bytes + lost, 0, BLOCK_BYTES);
            if (lost + BLOCK_BYTES <= old->size) /* else the file has grown with this write */
                memcpy(new->bytes + lost, old->bytes + lost, BLOCK_BYTES);
        }
    assert_memory_equal(old->bytes, new->bytes, old->size < from ? old->size : from); /* [J1] */
    file_put(world.room.path, new->name, new->bytes, new->size);
    file_put(world.room.path, "end", before.mark.bytes,
             before.mark.size); /* it did not come to that */
    if (from == 0 && lost == 0)
        return 0;
    at = from == 0 ? BLOCK_BYTES : from;
    while (whole < count && at + RECORD_HEAD + group[whole].size <= lost)
        at += (RECORD_HEAD + group[whole++].size + 7) / 8 * 8;
    return whole;
}

static void tear(void)
{
    struct told group[GROUP_MAX] = {0};
    size_t count = random_group(group), whole;

    room_make_spare(&world.room);
    files_keep(world.room.path, &before);
    disk_reset();
    room_append_told(&world.room, group, count);
    files_keep(world.room.path, &after);
    room_close(&world.room);
    whole = lose_blocks(group, count);
    for (size_t i = 0; i < whole; i++)
        model_put(&world.model, &group[i]);
    files_free(&before);
    files_free(&after);
    room_must_open(&world.room);
    compare();
    world.told_of += journal_torn(world.room.journal).segment != 0;
    world.torn++;
}

/* A bit of the last append flips after a clean stop [J6]: it is missed, and with the bit put right all is there. */
static void damage(void)
{
    struct told group[GROUP_MAX] = {0};
    size_t count = random_group(group), record = draw(&world.seed, count), at;
    struct disk_call write;

    room_make_spare(&world.room);
    disk_reset();
    room_append_told(&world.room, group, count);
    write = disk.calls[0];
    for (size_t i = 0; i < count; i++)
        model_put(&world.model, &group[i]);
    room_stop(&world.room);
    at = (size_t)write.offset + (write.offset == 0 ? BLOCK_BYTES : 0);
    for (size_t i = 0; i < record; i++)
        at += (RECORD_HEAD + group[i].size + 7) / 8 * 8;
    at += draw(&world.seed, RECORD_HEAD + group[record].size);
    file_flip(world.room.path, write.name, at);
    if (room_open(&world.room) != HF_EIO)
        fail_msg("seed %ju step %d: not missed", (uintmax_t)world.start, world.step);
    file_flip(world.room.path, write.name, at);
    room_must_open(&world.room);
    compare();
    world.damaged++;
}

static void step(void)
{
    uint64_t what = draw(&world.seed, 100);

    if (world.model.next - world.model.base > INDEXES - 100 || what < 2)
        reset();
    else if (what < 7)
        remove_some();
    else if (what < 20)
        tear();
    else if (what < 24)
        damage();
    else if (what < 30)
        reopen();
    else
        append();
    /* A journal that is never shortened is read for ever longer. */
    if (world.room.log.count > 300)
        remove_some();
}

static int set_up(void **state)
{
    const char *seed = getenv("HOLDFAST_TEST_SEED");

    (void)state;
    memset(&world, 0, sizeof world);
    world.start = world.seed = seed ? strtoull(seed, NULL, 10) : 20240607;
    print_message("seed %ju\n", (uintmax_t)world.start);
    room_init(&world.room);
    disk.direct_is_unknown = true;
    room_must_open(&world.room);
    model_clear(&world.model, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&world.room);
    return 0;
}

static void test_random_steps(void **state)
{
    (void)state;
    for (world.step = 0; world.step < STEPS; world.step++)
        step();
    reopen();
    assert_true(world.torn > 100 && world.told_of > 30 && world.damaged > 50 && world.resets > 10 &&
                world.removals > 50 && world.replaced > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_steps, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
