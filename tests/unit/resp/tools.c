#include "tools.h"

/* ---- counting -------------------------------------------------------------------------------- */

struct work work;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__real_memchr(const void *bytes, int byte, size_t size);
void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
void __wrap_free(void *memory);
void *__wrap_memchr(const void *bytes, int byte, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);

static bool may_allocate(size_t size)
{
    work.calls++;
    work.allocated += size;
    return work.fail_at == 0 || work.calls < work.fail_at;
}

void *__wrap_calloc(size_t count, size_t size)
{
    void *memory = may_allocate(count * size) ? __real_calloc(count, size) : NULL;

    work.live += memory ? malloc_usable_size(memory) : 0;
    return memory;
}

void *__wrap_realloc(void *old, size_t size)
{
    size_t old_size = old ? malloc_usable_size(old) : 0;
    void *memory = may_allocate(size) ? __real_realloc(old, size) : NULL;

    if (memory)
        work.live += malloc_usable_size(memory) - old_size;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return __wrap_realloc(NULL, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return __wrap_realloc(old, count * size);
}

void __wrap_free(void *memory)
{
    work.live -= memory ? malloc_usable_size(memory) : 0;
    __real_free(memory);
}

void *__wrap_memchr(const void *bytes, int byte, size_t size)
{
    const char *found = __real_memchr(bytes, byte, size);

    work.searched += found ? (size_t)(found - (const char *)bytes) + 1 : size;
    return (void *)found;
}

void *__wrap_memmove(void *to, const void *from, size_t size)
{
    work.moved += size;
    return __real_memmove(to, from, size);
}

void count_from_here(void)
{
    work.calls = work.allocated = work.searched = work.moved = work.fail_at = 0;
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* Adds a value to a text: what it is, and whether every span in it is right. */
void show(const struct resp_node *value, char *text, size_t room)
{
    static const char marks[] = {
        [RESP_SIMPLE] = '+', [RESP_ERROR] = '-', [RESP_INTEGER] = ':', [RESP_BLOB] = '$',
        [RESP_NIL] = '_',    [RESP_BOOL] = '#',  [RESP_DOUBLE] = ',',  [RESP_BIG] = '(',
        [RESP_ARRAY] = '*',  [RESP_SET] = '~',   [RESP_MAP] = '%',     [RESP_PUSH] = '>'};
    size_t at = strlen(text);

    for (uint32_t i = value->span; i-- > 0;) {
        uint32_t next = i + 1;

        for (uint32_t k = 0; k < value[i].count; k++)
            next += value[next].span;
        assert_int_equal(value[i].span, next - i);
    }
    for (uint32_t i = 0; i < value->span && room - at > 64; i++) {
        const struct resp_node *node = &value[i];

        at += (size_t)snprintf(text + at, room - at, at ? " %c" : "%c", marks[node->type]);
        if (node->type >= RESP_ARRAY)
            at += (size_t)snprintf(text + at, room - at, "%u", node->count);
        else if (node->type == RESP_INTEGER || node->type == RESP_BOOL)
            at += (size_t)snprintf(text + at, room - at, "%lld", (long long)node->integer);
        else
            assert_int_equal(0, node->integer);
        for (size_t k = 0; k < node->size && room - at > 64; k++) {
            unsigned char c = (unsigned char)node->text[k];

            at += (size_t)snprintf(text + at, room - at, c < 0x20 ? "\\%02x" : "%c", c);
        }
    }
}

struct resp_reader *new_reader(struct resp_limits limits)
{
    struct resp_reader *reader = resp_reader_new(&limits);

    assert_non_null(reader);
    return reader;
}

/* With `least` large enough the buffer moves. What is behind the bytes must not matter, so it is
 * made to look like the end of a line. */
void feed(struct resp_reader *reader, const char *bytes, size_t size, size_t least)
{
    size_t room = 0;
    char *to = resp_reader_room(reader, least > size ? least : size, &room);

    assert_non_null(to);
    assert_true(room >= size && room >= least);
    memset(to, '\n', room < size + 64 ? room : size + 64);
    if (size > 0)
        memcpy(to, bytes, size);
    resp_reader_filled(reader, size);
}

/* Feeds a reader that has read something before the bytes up to the first cut, to the second, and
 * the rest, in a buffer that is in another place every time. Gives the first error, or HF_OK and
 * in `shown` the value, which must come with the last byte and not before. */
int read_cut(const char *wire, size_t size, const size_t cuts[2], struct resp_limits limits,
             char shown[256], struct error_text *err)
{
    const size_t ends[] = {cuts[0], cuts[1], size};
    struct resp_reader *reader = new_reader(limits);
    const struct resp_node *value = NULL;
    int r = HF_OK;

    feed(reader, "_\r\n", 3, 1);
    assert_int_equal(HF_OK, resp_reader_next(reader, &value, err));
    assert_non_null(value);
    for (size_t i = 0, at = 0; i < COUNT(ends) && r == HF_OK; at = ends[i++]) {
        feed(reader, wire + at, ends[i] - at, (size_t)20000 << 2 * i);
        r = resp_reader_next(reader, &value, err);
        if (r == HF_OK && ends[i] < size)
            assert_null(value);
    }
    shown[0] = '\0';
    if (r == HF_OK && value) {
        show(value, shown, 256);
        assert_int_equal(0, resp_reader_pending(reader));
    } else if (r != HF_OK) { /* and it stays so */
        assert_int_equal(r, resp_reader_next(reader, &value, NULL));
    }
    resp_reader_free(reader);
    return r;
}
