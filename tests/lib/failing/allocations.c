/* allocations.c: what allocates stands here in front of the C library's. */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const int out_of_memory[] = {ENOMEM, 0};

static bool fails(const char *name)
{
    return failing_strike(FAILING_ALLOCATIONS, name, out_of_memory) != 0;
}

static void *note(void *memory)
{
    failing_allocated(memory);
    return memory;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t border, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size);
void *__wrap_aligned_alloc(size_t border, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    return fails("malloc") ? NULL : note(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails("calloc") ? NULL : note(__real_calloc(count, size));
}

static void *resize(const char *name, void *memory, size_t size)
{
    void *larger;

    if (fails(name))
        return NULL;
    failing_freed(memory); /* first: another thread may be given its place */
    larger = __real_realloc(memory, size);
    failing_allocated(larger ? larger : memory);
    return larger;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return resize("realloc", memory, size);
}

void *__wrap_reallocarray(void *memory, size_t count, size_t size)
{
    size_t all;

    if (__builtin_mul_overflow(count, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return resize("reallocarray", memory, all);
}

void *__wrap_aligned_alloc(size_t border, size_t size)
{
    return fails("aligned_alloc") ? NULL : note(__real_aligned_alloc(border, size));
}

static char *copy_of(const char *name, const char *text, size_t length)
{
    char *copy = fails(name) ? NULL : note(__real_malloc(length + 1));

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return copy_of("strdup", text, strlen(text));
}

char *__wrap_strndup(const char *text, size_t most)
{
    return copy_of("strndup", text, strnlen(text, most));
}

void __wrap_free(void *memory)
{
    failing_freed(memory);
    __real_free(memory);
}
