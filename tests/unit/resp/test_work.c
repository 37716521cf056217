/* test_work.c: reading costs no more than it must, and mutated bytes do no harm. */
#include "samples.h"

/* ---- work ------------------------------------------------------------------------------------ */

static void announcements_take_no_memory(void **state)
{
    static const char *const headers[] = {
        "*1000000000\r\n", "~1000000000\r\n", "%1000000000\r\n",
        ">1000000000\r\n", "|1000000000\r\n", "$1000000000\r\n",
        "!1000000000\r\n", "=1000000000\r\n", "*1000000000\r\n*1000000000\r\n*1000000000\r\n",
    };
    const struct resp_limits limits[] = {{1000, 1000, 1000}, {SIZE_MAX, SIZE_MAX, SIZE_MAX}};

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(headers); i++) {
        const struct resp_node *value = NULL;
        struct resp_reader *reader;

        count_from_here();
        reader = new_reader(limits[i % 2]);
        feed(reader, headers[i / 2], strlen(headers[i / 2]), 1);
        assert_int_equal(i % 2 ? HF_OK : HF_EREFUSED, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        feed(reader, "", 0, 1);
        assert_in_range(work.allocated, 1, 30000);
        resp_reader_free(reader);
    }
}

static void limits_that_are_none_are_limits(void **state)
{
    struct resp_reader *reader = new_reader((struct resp_limits){SIZE_MAX, SIZE_MAX, SIZE_MAX});
    const struct resp_node *value, untouched;

    (void)state;
    feed(reader, "*4294967295\r\n", 13, 1); /* and itself: more than a span can say */
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
    reader = new_reader((struct resp_limits){SIZE_MAX, SIZE_MAX, SIZE_MAX});
    feed(reader, "$9223372036854775807\r\n", 22, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
    reader = new_reader((struct resp_limits){0, 0, 0});
    value = &untouched;
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_null(value);
    feed(reader, "+", 1, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(reader, &value, NULL));
    resp_reader_free(reader);
}

/* A value of `size` bytes, in pieces: the work must be in proportion to its size. */
static void read_counted(const char *wire, size_t size, size_t piece)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value = NULL;

    count_from_here();
    for (size_t at = 0; at < size; at += piece) {
        assert_null(value);
        feed(reader, wire + at, size - at < piece ? size - at : piece, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        if (work.searched + work.moved + work.allocated > 60 * size + 100000) /* now, not later */
            fail_msg("at %zu of %zu: searched %zu, moved %zu, allocated %zu", at, size,
                     work.searched, work.moved, work.allocated);
    }
    assert_non_null(value);
    assert_in_range(work.searched, 1, 2 * size + 100);
    assert_in_range(work.moved, 0, 2 * size + 20000);
    assert_in_range(work.calls, 1, 64);
    resp_reader_free(reader);
}

static void a_value_in_many_pieces_is_looked_at_once(void **state)
{
    size_t blob_size = 4 * MB, items = 8000, size;
    char *wire = malloc(blob_size + 64);

    (void)state;
    assert_non_null(wire);
    memset(wire, 'x', blob_size + 64);
    size = (size_t)snprintf(wire, 32, "$%zu\r\n", blob_size);
    wire[size] = 'x';
    memcpy(wire + size + blob_size, "\r\n", 2);
    read_counted(wire, size + blob_size + 2, 100);
    memset(wire, 'x', RESP_LINE_MAX + 1);
    wire[0] = '+';
    memcpy(wire + 1 + RESP_LINE_MAX, "\r\n", 2);
    read_counted(wire, RESP_LINE_MAX + 3, 1);
    read_counted(wire, RESP_LINE_MAX + 3, 100);
    size = (size_t)snprintf(wire, 32, "*%zu\r\n", items);
    for (size_t i = 0; i < items; i++)
        size += (size_t)snprintf(wire + size, 32, i % 2 ? "$3\r\nabc\r\n" : ":%zu\r\n", i);
    read_counted(wire, size, 1);
    read_counted(wire, size, 100);
    free(wire);
}

/* Texts must be where they are said to be when the buffer has moved many times in between. */
static void a_large_value_survives_the_moves_of_its_buffer(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);
    const struct resp_node *value = NULL;
    char item[64];

    (void)state;
    feed(reader, "+first\r\n*30000\r\n", 16, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_true(resp_is(value, "first"));
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        snprintf(item, sizeof item, i % 2 ? "$15\r\nblob %010d\r\n" : "+line %010d\r\n", i);
        feed(reader, item, strlen(item), 1);
    }
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_non_null(value);
    for (int i = 0; i < 30000; i++) {
        snprintf(item, sizeof item, i % 2 ? "blob %010d" : "line %010d", i);
        assert_true(resp_is(resp_item(value, (uint32_t)i), item));
    }
    resp_reader_free(reader);
}

static void the_memory_of_a_huge_value_is_given_back(void **state)
{
    size_t items = 100000, size, before;
    char *wire = malloc(4 * items + 32);

    (void)state;
    assert_non_null(wire);
    size = (size_t)snprintf(wire, 32, "*%zu\r\n", items);
    for (size_t i = 0; i < items; i++, size += 4)
        memcpy(wire + size, ":1\r\n", 4);
    memcpy(wire + size, "$5\r\nhe", 6);
    before = work.live;
    for (size_t rest = 0; rest <= 6; rest += 6) { /* without, and with a part of the next value */
        struct resp_reader *reader = new_reader(GENEROUS);
        const struct resp_node *value;

        feed(reader, wire, size + rest, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_int_equal(items, value->count);
        assert_true(work.live - before > 4 * MB);
        if (rest == 0) {
            assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
            assert_null(value);
            assert_in_range(work.live - before, 1, 50000);
            feed(reader, "$5\r\nhe", 6, 1);
        }
        feed(reader, "llo\r\n", 5, 1);
        assert_in_range(work.live - before, 1, 50000);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_true(resp_is(value, "hello"));
        resp_reader_free(reader);
    }
    assert_true(before == work.live);
    free(wire);
}

/* The buffer ends where the largest value ends, and what was asked for beyond it. */
static void the_buffer_has_a_ceiling(void **state)
{
    struct resp_limits limits = {MB, MB, 10};
    struct resp_reader *reader = new_reader(limits);
    const struct resp_node *value;
    size_t before = work.live, room = 0;

    (void)state;
    assert_non_null(resp_reader_room(reader, 0, &room));
    assert_true(room > 0);
    feed(reader, "$1000000\r\n", 10, 1);
    for (int i = 0; i < 1000; i++) {
        char *to = resp_reader_room(reader, 4096, &room);

        assert_non_null(to);
        memset(to, 'x', 1000);
        resp_reader_filled(reader, 1000);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        assert_in_range(work.live - before, 1, MB + 16384 + 1000);
    }
    assert_null(resp_reader_room(reader, SIZE_MAX, &room));
    assert_null(resp_reader_room(reader, SIZE_MAX / 2, &room));
    feed(reader, "\r\n", 2, 0);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_int_equal(1000000, value->size);
    assert_in_range(work.live - before, 1, MB + 16384 + 1000); /* with the nodes, ten at most */
    resp_reader_free(reader);
}

/* True: all of it was read, although the fail_at-th allocation was to fail. */
static bool read_without_memory(const char *wire, size_t size, size_t fail_at)
{
    const struct resp_limits limits = GENEROUS;
    const struct resp_node *value = NULL;
    struct resp_reader *reader;
    int r = HF_OK;

    count_from_here();
    work.fail_at = fail_at;
    reader = resp_reader_new(&limits);
    for (size_t at = 0; reader && at < size && r == HF_OK; at += 100) {
        size_t piece = size - at < 100 ? size - at : 100, room = 77;
        char *to = resp_reader_room(reader, piece, &room);

        if (!to) {
            assert_int_equal(77, room);
            break;
        }
        memcpy(to, wire + at, piece);
        resp_reader_filled(reader, piece);
        r = resp_reader_next(reader, &value, NULL);
        assert_true(r == HF_OK || r == HF_ENOMEM);
    }
    resp_reader_free(reader);
    work.fail_at = 0;
    return value;
}

static void running_out_of_memory_is_an_answer(void **state)
{
    struct resp_writer writer = {0};
    size_t before = work.live, n = 1, size;

    (void)state;
    resp_write_array(&writer, 1000);
    for (int i = 0; i < 1000; i++)
        resp_write_text(&writer, "a string that takes some room");
    assert_false(writer.failed);
    while (!read_without_memory(writer.bytes, writer.size, n))
        n++;
    assert_in_range(n, 5, 50);
    for (n = 1;; n++) {
        resp_writer_free(&writer);
        count_from_here();
        work.fail_at = n;
        for (int i = 0; i < 1000; i++)
            resp_write_simple(&writer, "OK");
        work.fail_at = 0;
        if (!writer.failed)
            break;
        size = writer.size;
        resp_write_integer(&writer, 1); /* nothing follows a gap */
        assert_true(writer.failed && writer.size == size && size < 5000);
        resp_writer_clear(&writer);
        resp_write_text(&writer, "again");
        assert_true(!writer.failed && writer.size == 11);
    }
    assert_int_equal(5000, writer.size);
    assert_in_range(n, 3, 20);
    resp_writer_free(&writer);
    assert_true(before == work.live);
}

/* ---- memory that readers share --------------------------------------------------------------- */

#define READERS 50
#define USUAL_MAX 30000 /* bytes of a buffer and of nodes, of the usual sizes */

static struct resp_reader *new_sharing(struct resp_spare *spare)
{
    struct resp_reader *reader = new_reader(GENEROUS);

    resp_reader_share(reader, spare);
    return reader;
}

static void next_is(struct resp_reader *reader, const char *text)
{
    const struct resp_node *value = NULL;

    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_true(resp_is(value, text));
}

/* Whoever takes what was left there finds nothing of use in it. */
static void scribble(struct resp_spare *spare)
{
    if (spare->bytes)
        memset(spare->bytes, '\n', malloc_usable_size(spare->bytes));
    if (spare->nodes)
        memset(spare->nodes, 0xee, malloc_usable_size(spare->nodes));
}

static void readers_at_rest_share_their_memory(void **state)
{
    struct resp_reader *readers[READERS];
    struct resp_spare spare = {0};
    size_t before = work.live, idle;

    (void)state;
    for (int i = 0; i < READERS; i++)
        readers[i] = new_sharing(&spare);
    idle = work.live;
    count_from_here();
    for (int i = 0; i < 3 * READERS; i++) {
        feed(readers[i % READERS], "+one\r\n+two\r\n", 12, 1);
        next_is(readers[i % READERS], "one");
        next_is(readers[i % READERS], "two");
        resp_reader_rest(readers[i % READERS]);
        resp_reader_rest(readers[i % READERS]); /* again is fine */
    }
    assert_int_equal(2, work.calls);
    assert_in_range(work.live - idle, 1, USUAL_MAX);
    for (int i = 0; i < READERS; i++)
        resp_reader_free(readers[i]);
    resp_spare_free(&spare);
    assert_true(before == work.live);
}

/* All of them at once: one leaves its memory, the others give theirs back. */
static void one_spare_is_enough(void **state)
{
    struct resp_reader *readers[READERS];
    struct resp_spare spare = {0};
    size_t before = work.live, idle;

    (void)state;
    for (int i = 0; i < READERS; i++)
        readers[i] = new_sharing(&spare);
    idle = work.live;
    for (int i = 0; i < READERS; i++)
        feed(readers[i], "+one\r\n", 6, 1);
    for (int i = 0; i < READERS; i++)
        next_is(readers[i], "one");
    assert_true(work.live - idle > READERS * (USUAL_MAX / 2));
    for (int i = 0; i < READERS; i++)
        resp_reader_rest(readers[i]);
    assert_in_range(work.live - idle, 1, USUAL_MAX);
    for (int i = 0; i < READERS; i++)
        resp_reader_free(readers[i]);
    resp_spare_free(&spare);
    resp_spare_free(&spare);
    assert_true(before == work.live);
}

static void what_is_looked_at_or_incomplete_is_not_left(void **state)
{
    struct resp_spare spare = {0};
    struct resp_reader *reader = new_sharing(&spare), *other = new_sharing(&spare);
    const struct resp_node *value;

    (void)state;
    feed(reader, "*2\r\n+looked\r\n$2\r\nat\r\n", 21, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    feed(other, "+other\r\n", 8, 1);
    next_is(other, "other");
    resp_reader_rest(other);
    scribble(&spare);
    assert_true(resp_is(resp_item(value, 0), "looked") && resp_is(resp_item(value, 1), "at"));
    for (size_t size = 1; size < 15; size++) { /* however much of the next one has come */
        feed(reader, "*1\r\n$5\r\nhello\r\n", size, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_null(value);
        resp_reader_rest(reader);
        assert_int_equal(size, resp_reader_pending(reader));
        feed(other, "+other\r\n", 8, 1);
        next_is(other, "other");
        resp_reader_rest(other);
        scribble(&spare);
        feed(reader, &"*1\r\n$5\r\nhello\r\n"[size], 15 - size, 1);
        assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
        assert_true(resp_is(resp_item(value, 0), "hello"));
        resp_reader_rest(reader);
    }
    resp_reader_free(reader);
    resp_reader_free(other);
    resp_spare_free(&spare);
}

/* Values that are not looked at yet are pending as well. */
static void a_value_that_was_not_handed_out_is_not_left(void **state)
{
    struct resp_spare spare = {0};
    struct resp_reader *reader = new_sharing(&spare);

    (void)state;
    feed(reader, "+one\r\n+two\r\n", 12, 1);
    resp_reader_rest(reader);
    next_is(reader, "one");
    resp_reader_rest(reader);
    assert_null(spare.bytes);
    next_is(reader, "two");
    resp_reader_rest(reader);
    assert_non_null(spare.bytes);
    resp_reader_free(reader);
    resp_spare_free(&spare);
}

static void a_huge_value_is_not_left(void **state)
{
    struct resp_spare spare = {0};
    struct resp_reader *reader = new_sharing(&spare);
    size_t items = 10000, size, before = work.live;
    char *wire = malloc(4 * items + 32);
    const struct resp_node *value;

    (void)state;
    assert_non_null(wire);
    size = (size_t)snprintf(wire, 32, "*%zu\r\n", items);
    for (size_t i = 0; i < items; i++, size += 4)
        memcpy(wire + size, ":1\r\n", 4);
    feed(reader, wire, size, 1);
    free(wire);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, NULL));
    assert_int_equal(items, value->count);
    resp_reader_rest(reader);
    assert_null(spare.bytes);
    assert_null(spare.nodes);
    assert_true(before == work.live);
    feed(reader, "+one\r\n", 6, 1);
    next_is(reader, "one");
    resp_reader_free(reader);
    resp_spare_free(&spare);
}

/* Its limits are its own, whoever left the memory. */
static void limits_are_not_shared(void **state)
{
    struct resp_spare spare = {0};
    struct resp_reader *reader = new_sharing(&spare);
    struct resp_reader *narrow = new_reader((struct resp_limits){10, 20, 3});
    const struct resp_node *value;

    (void)state;
    feed(reader, "+one\r\n", 6, 1);
    next_is(reader, "one");
    resp_reader_rest(reader);
    resp_reader_share(narrow, &spare);
    feed(narrow, "*2\r\n:1\r\n:2\r\n", 12, 1);
    assert_int_equal(HF_OK, resp_reader_next(narrow, &value, NULL));
    assert_int_equal(2, value->count);
    feed(narrow, "*3\r\n", 4, 1);
    assert_int_equal(HF_EREFUSED, resp_reader_next(narrow, &value, NULL));
    resp_reader_rest(narrow);
    resp_reader_free(narrow);
    resp_reader_free(reader);
    resp_spare_free(&spare);
}

static void who_shares_with_nobody_keeps_its_memory(void **state)
{
    struct resp_reader *reader = new_reader(GENEROUS);

    (void)state;
    count_from_here();
    for (int i = 0; i < 10; i++) {
        feed(reader, "+one\r\n", 6, 1);
        next_is(reader, "one");
        resp_reader_rest(reader);
    }
    assert_int_equal(2, work.calls);
    resp_reader_free(reader);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13; /* xorshift64 */
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static size_t mutate(char *wire, size_t size, size_t room, uint64_t *seed)
{
    static const char telling[] = "+-:_#,($!=*~%>|\r\n\r\n0123459?tf";
    size_t at = next_random(seed) % size, n = 1 + next_random(seed) % 4;

    switch (next_random(seed) % 5) {
    case 0:
        wire[at] = (char)next_random(seed);
        break;
    case 1:
        wire[at] = telling[next_random(seed) % (sizeof telling - 1)];
        break;
    case 2:
        wire[at] = (char)(wire[at] + (next_random(seed) % 2 ? 1 : -1));
        break;
    case 3: /* take some away */
        n = n < size - at ? n : size - at - 1;
        memmove(wire + at, wire + at + n, size - at - n);
        size -= n;
        break;
    default: /* repeat some */
        n = n < size - at ? n : size - at;
        n = n < room - size ? n : room - size;
        memmove(wire + at + n, wire + at, size - at);
        size += n;
    }
    return size;
}

enum { VALUES, WAITING, REFUSED, ENDS };

/* What comes of these bytes, in pieces of up to `piece`, as a text; and how it ended. With a spare,
 * the reader rests between them. */
static int outcome(const char *wire, size_t size, size_t piece, struct resp_spare *spare,
                   uint64_t *seed, char *shown, size_t room)
{
    struct resp_reader *reader = new_reader((struct resp_limits){200, 400, 40});
    const struct resp_node *value = NULL;
    int r = HF_OK, end;

    resp_reader_share(reader, spare);
    shown[0] = '\0';
    for (size_t at = 0, n; at < size && r == HF_OK; at += n) {
        n = piece < size ? 1 + next_random(seed) % piece : size;
        n = n < size - at ? n : size - at;
        feed(reader, wire + at, n, next_random(seed) % 64 ? 1 : 20000);
        do {
            r = resp_reader_next(reader, &value, NULL);
            if (r == HF_OK && value)
                show(value, shown, room);
        } while (r == HF_OK && value);
        if (spare) {
            resp_reader_rest(reader);
            scribble(spare);
        }
    }
    assert_true(r == HF_OK || r == HF_EREFUSED);
    end = r != HF_OK ? REFUSED : resp_reader_pending(reader) > 0 ? WAITING : VALUES;
    resp_reader_free(reader);
    return end;
}

/* A sanitizer makes it a hundred times slower, and would find in fewer rounds what it finds. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MUTATIONS 10000
#else
#define MUTATIONS 200000
#endif

static void mutated_bytes_do_no_harm(void **state)
{
    uint64_t seed = 20240229;
    struct resp_spare spare = {0};
    int ends[ENDS] = {0};

    (void)state;
    for (int round = 0; round < MUTATIONS; round++) {
        char wire[512], whole[1024], pieces[1024];
        size_t size = 0;
        int end;

        for (int k = 0; k < 3; k++) {
            const struct good *g = &good[next_random(&seed) % COUNT(good)];

            memcpy(wire + size, g->wire, g->size);
            size += g->size;
        }
        for (uint64_t k = 1 + next_random(&seed) % 2; k > 0; k--)
            size = mutate(wire, size, sizeof wire, &seed);
        end = outcome(wire, size, size, NULL, &seed, whole, sizeof whole);
        assert_int_equal(end, outcome(wire, size, 1 + next_random(&seed) % 32, &spare, &seed,
                                      pieces, sizeof pieces));
        assert_string_equal(whole, pieces);
        ends[end]++;
    }
    for (int end = 0; end < ENDS; end++)
        assert_true(ends[end] > MUTATIONS / 40);
    resp_spare_free(&spare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(announcements_take_no_memory),
        cmocka_unit_test(limits_that_are_none_are_limits),
        cmocka_unit_test(a_value_in_many_pieces_is_looked_at_once),
        cmocka_unit_test(a_large_value_survives_the_moves_of_its_buffer),
        cmocka_unit_test(the_memory_of_a_huge_value_is_given_back),
        cmocka_unit_test(the_buffer_has_a_ceiling),
        cmocka_unit_test(running_out_of_memory_is_an_answer),
        cmocka_unit_test(readers_at_rest_share_their_memory),
        cmocka_unit_test(one_spare_is_enough),
        cmocka_unit_test(what_is_looked_at_or_incomplete_is_not_left),
        cmocka_unit_test(a_value_that_was_not_handed_out_is_not_left),
        cmocka_unit_test(a_huge_value_is_not_left),
        cmocka_unit_test(limits_are_not_shared),
        cmocka_unit_test(who_shares_with_nobody_keeps_its_memory),
        cmocka_unit_test(mutated_bytes_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
