/* timed.c: see timed.h. */
#include "timed.h"

struct timed timed;
int64_t deadlines[KINDS + 1][RECORDS];
uint32_t open_deadlines;

static struct timer *timer_of(void *context, enum timer_kind kind, uint32_t slot)
{
    assert_in_range(kind, TIMER_LEASE, TIMER_LOCK);
    assert_int_equal(0, slot % STRIDE);
    return &((struct timed *)context)->timers[kind][slot / STRIDE];
}

void timed_begin_with(struct timers *timers, const unsigned char seed[16])
{
    memset(&timed, 0, sizeof timed);
    memset(deadlines, 0xff, sizeof deadlines);
    open_deadlines = 0;
    timers_init(timers, seed);
    timers_moved(timers, &timed);
    timers->of = timer_of;
}

void timed_begin(struct timers *timers)
{
    static const unsigned char seed[16] = "sixteen letters";

    timed_begin_with(timers, seed);
}

void timed_move(struct timers *timers, struct timers *ret_timers)
{
    static struct timed copy;
    struct timed *other = timers->context == &copy ? &timed : &copy;

    memcpy(other, timers->context, sizeof *other);
    memset(timers->context, 0xee, sizeof *other);
    *ret_timers = *timers;
    memset(timers, 0xee, sizeof *timers);
    timers_moved(ret_timers, other);
}

static int64_t deadline_of(const struct timers *timers, enum timer_kind kind, uint32_t number)
{
    return timers_deadline(timers, timer_of(timers->context, kind, number * STRIDE));
}

void set(struct timers *timers, enum timer_kind kind, uint32_t number, int64_t deadline_ms)
{
    open_deadlines += deadlines[kind][number] < 0;
    deadlines[kind][number] = deadline_ms;
    timers_set(timers, kind, number * STRIDE, deadline_ms);
    assert_int_equal(deadline_ms, deadline_of(timers, kind, number));
}

void clear(struct timers *timers, enum timer_kind kind, uint32_t number)
{
    open_deadlines -= deadlines[kind][number] >= 0;
    deadlines[kind][number] = -1;
    timers_clear(timers, kind, number * STRIDE);
    assert_int_equal(TIMER_NONE, timer_of(timers->context, kind, number * STRIDE)->moment);
    assert_int_equal(0, deadline_of(timers, kind, number));
}

uint32_t what(enum timer_kind kind, uint32_t number)
{
    return (uint32_t)kind << 24 | number * STRIDE;
}

void ends(struct timers *timers, int64_t now_ms, enum timer_kind kind, uint32_t number)
{
    assert_int_equal(what(kind, number), timers_due(timers, now_ms));
    clear(timers, kind, number);
}

struct moment *moment_of(const struct timers *timers, enum timer_kind kind, uint32_t number)
{
    uint32_t moment = timer_of(timers->context, kind, number * STRIDE)->moment;

    assert_int_not_equal(TIMER_NONE, moment);
    assert_true(slab_is_used(&timers->moments, moment - 1));
    return slab_at(&timers->moments, moment - 1);
}

/* ---- are the moments what they should be? ----------------------------------------------------- */

static void verify_list(const struct timers *timers, const struct moment *moment, uint32_t slot)
{
    const uint32_t *list = moment_list(moment);
    uint32_t found = 0, before = 0;

    assert_in_range(moment->count, 1, moment->capacity ? moment->capacity : MOMENT_FEW);
    assert_true(moment->first < moment->count);
    for (uint32_t i = 0; i < moment->count; i++) {
        const struct timer *timer;

        if (list[i] == 0)
            continue;
        found++;
        assert_true(i >= moment->first && list[i] <= moment->highest);
        assert_true(moment->unordered || list[i] > before);
        before = list[i];
        timer = timer_of(timers->context, timer_kind(list[i]), timer_slot(list[i]));
        assert_int_equal(slot + 1, timer->moment);
        assert_int_equal(i, timer->at);
        assert_int_equal(moment->deadline_ms,
                         deadlines[timer_kind(list[i])][timer_slot(list[i]) / STRIDE]);
    }
    assert_int_equal(found, moment->open);
    assert_true(found > 0);
}

static bool in_index(const struct timers *timers, uint32_t slot)
{
    const struct moment *moment = slab_at(&timers->moments, slot);
    uint32_t i = index_first(&timers->index, moment->link.hash);

    while (i != SLAB_NONE && i != slot)
        i = index_next(&timers->index, i);
    return i == slot;
}

static int by_deadline(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

    return (a > b) - (a < b);
}

/* Since every open deadline is in one moment, and no two moments are of the same time, all of them are found. */
void verify(const struct timers *timers)
{
    int64_t *times = calloc(timers->count + 1, sizeof *times);
    uint32_t listed = 0;

    assert_int_equal(timers->count, timers->moments.used);
    assert_int_equal(timers->count, timers->index.count);
    assert_true(timers->count < timers->capacity || timers->count == 0);
    assert_true(timers->recent == 0 || slab_is_used(&timers->moments, timers->recent - 1));
    assert_in_range(timers->scratch_capacity, 0, SCRATCH_KEPT);
    for (uint32_t i = 1; i <= timers->count; i++) {
        const struct due *due = &timers->heap[i];
        const struct moment *moment = slab_at(&timers->moments, due->moment);

        assert_true(slab_is_used(&timers->moments, due->moment));
        assert_int_equal(i, moment->at);
        assert_int_equal(due->deadline_ms, moment->deadline_ms);
        assert_true(i == 1 || timers->heap[(i + 2) / 4].deadline_ms < due->deadline_ms);
        assert_true(in_index(timers, due->moment));
        verify_list(timers, moment, due->moment);
        listed += moment->open;
        times[i] = due->deadline_ms;
    }
    assert_int_equal(open_deadlines, listed);
    qsort(times, timers->count + 1, sizeof *times, by_deadline);
    for (uint32_t i = 1; i < timers->count; i++)
        assert_true(times[i] < times[i + 1]);
    free(times);
}

void finish(struct timers *timers)
{
    verify(timers);
    timers_free(timers);
}

void finish_empty(struct timers *timers)
{
    assert_int_equal(0, open_deadlines);
    assert_int_equal(-1, timers_next_ms(timers));
    assert_int_equal(TIMER_NONE, timers_due(timers, INT64_MAX));
    assert_int_equal(0, timers->recent);
    finish(timers);
}
