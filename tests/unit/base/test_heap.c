/* The heap against a plain array: whatever is put in, changed and taken out, the least is the first. */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define THINGS 300
#define STEPS 60000
#define KEYS 64 /* few, so that many are equal */

struct thing {
    int64_t key;
    bool in;
    struct heap_node node;
};

static struct thing things[THINGS];

static int64_t least(uint32_t *ret_count)
{
    int64_t key = INT64_MAX;

    *ret_count = 0;
    for (int i = 0; i < THINGS; i++) {
        *ret_count += things[i].in;
        if (things[i].in && things[i].key < key)
            key = things[i].key;
    }
    return key;
}

static void check(const struct heap *heap)
{
    uint32_t count;
    int64_t key = least(&count);
    const struct thing *first;

    assert_int_equal(count, heap->count);
    assert_true(heap_first_key(heap) == key);
    if (count == 0) {
        assert_null(heap_first(heap));
        return;
    }
    first = (const struct thing *)(const void *)((const char *)heap_first(heap) -
                                                 offsetof(struct thing, node));
    assert_true(first->in && first->key == key);
}

static void the_least_is_the_first(void **state)
{
    struct heap heap = {0};
    unsigned seed = 7;

    (void)state;
    check(&heap);
    for (int step = 0; step < STEPS; step++) {
        struct thing *thing = &things[rand_r(&seed) % THINGS];
        bool growing = step / 2000 % 2 == 0; /* so that it is full now, and empty then */

        assert_true(heap_has(&thing->node) == thing->in);
        if (rand_r(&seed) % 8 < (growing ? 7 : 1)) {
            assert_true(heap_reserve(&heap, heap.count + 1));
            thing->key = rand_r(&seed) % KEYS;
            thing->in = true;
            heap_set(&heap, &thing->node, thing->key);
        } else {
            thing->in = false;
            heap_remove(&heap, &thing->node);
        }
        check(&heap);
    }
    heap_free(&heap);
}

static void what_is_popped_comes_in_turn_and_can_come_back(void **state)
{
    static struct thing turns[THINGS];
    struct heap heap = {0};

    (void)state;
    assert_true(heap_reserve(&heap, THINGS));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < THINGS; i++) {
            turns[i].key = i * 7 % THINGS;
            heap_set(&heap, &turns[i].node, turns[i].key);
        }
        for (int i = 0; i < THINGS; i++) {
            struct heap_node *node = heap_pop(&heap);

            assert_true(node == &turns[i * 43 % THINGS].node); /* 7 * 43 is 1 more than THINGS */
            heap_popped(node);
            assert_false(heap_has(node));
        }
        assert_null(heap_first(&heap));
    }
    heap_free(&heap);
}

/* As whoever takes what is due does: the first goes to the end, again and again. */
static void all_come_in_turn(void **state)
{
    static struct thing turns[THINGS];
    struct heap heap = {0};

    (void)state;
    assert_true(heap_reserve(&heap, THINGS));
    for (int i = 0; i < THINGS; i++)
        heap_set(&heap, &turns[i].node, i * 7 % THINGS);
    for (int i = 0; i < 3 * THINGS; i++) {
        assert_true(heap_first_key(&heap) == i);
        heap_set(&heap, heap_first(&heap), i + THINGS);
    }
    assert_int_equal(THINGS, heap.count);
    heap_free(&heap);
}

static void what_cannot_be_had_changes_nothing(void **state)
{
    struct heap heap = {0};
    struct heap_node node = {0};

    (void)state;
    assert_true(heap_reserve(&heap, 1));
    heap_set(&heap, &node, 5);
    assert_false(heap_reserve(&heap, UINT32_MAX));
    assert_true(heap_first(&heap) == &node && heap_first_key(&heap) == 5);
    heap_remove(&heap, &node);
    heap_remove(&heap, &node);
    assert_null(heap_first(&heap));
    heap_free(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_is_the_first),
        cmocka_unit_test(all_come_in_turn),
        cmocka_unit_test(what_is_popped_comes_in_turn_and_can_come_back),
        cmocka_unit_test(what_cannot_be_had_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
