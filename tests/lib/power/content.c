#include "content.h"

#include "base/hash.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct content_block {
    unsigned users;
    uint64_t hash; /* 0: not known */
    unsigned char bytes[CONTENT_BLOCK];
};

static void must(bool done)
{
    if (!done)
        abort();
}

static void let_go(struct content_block *block)
{
    if (block && --block->users == 0)
        free(block);
}

void content_free(struct content *content)
{
    for (size_t i = 0; i < content->count; i++)
        let_go(content->blocks[i]);
    free(content->blocks);
    *content = (struct content){0};
}

struct content content_copy(const struct content *content)
{
    struct content copy = *content;

    copy.blocks = malloc((content->count + 1) * sizeof(struct content_block *));
    must(copy.blocks != NULL);
    for (size_t i = 0; i < content->count; i++) {
        copy.blocks[i] = content->blocks[i];
        if (copy.blocks[i])
            copy.blocks[i]->users++;
    }
    return copy;
}

/* A block of its own, to be written to. */
static unsigned char *own(struct content *content, size_t i)
{
    struct content_block *block = content->blocks[i];

    if (!block || block->users > 1) {
        struct content_block *copy = calloc(1, sizeof *copy);

        must(copy != NULL);
        if (block)
            memcpy(copy->bytes, block->bytes, CONTENT_BLOCK);
        copy->users = 1;
        let_go(block);
        content->blocks[i] = block = copy;
    }
    block->hash = 0;
    return block->bytes;
}

void content_resize(struct content *content, uint64_t size)
{
    size_t count = (size_t)(size + CONTENT_BLOCK - 1) / CONTENT_BLOCK;

    for (size_t i = count; i < content->count; i++)
        let_go(content->blocks[i]);
    if (count != content->count) {
        struct content_block **blocks =
            realloc(content->blocks, (count + 1) * sizeof(struct content_block *));

        must(blocks != NULL);
        content->blocks = blocks;
        for (size_t i = content->count; i < count; i++)
            blocks[i] = NULL;
        content->count = count;
    }
    if (size < content->size && size % CONTENT_BLOCK && content->blocks[count - 1])
        memset(own(content, count - 1) + size % CONTENT_BLOCK, 0,
               CONTENT_BLOCK - (size_t)(size % CONTENT_BLOCK));
    content->size = size;
}

static bool is_zeros(const unsigned char *bytes, size_t size)
{
    return size == 0 || (!bytes[0] && memcmp(bytes, bytes + 1, size - 1) == 0);
}

void content_write(struct content *content, uint64_t offset, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;

    if (size > 0 && offset + size > content->size)
        content_resize(content, offset + size);
    while (size > 0) {
        size_t i = (size_t)(offset / CONTENT_BLOCK), at = (size_t)(offset % CONTENT_BLOCK);
        size_t piece = size < CONTENT_BLOCK - at ? size : CONTENT_BLOCK - at;

        if (content->blocks[i] || !is_zeros(from, piece))
            memcpy(own(content, i) + at, from, piece);
        from += piece;
        offset += piece;
        size -= piece;
    }
}

uint64_t content_hash(const struct content *content)
{
    uint64_t hash = content->size * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (size_t i = 0; i < content->count; i++) {
        struct content_block *block = content->blocks[i];

        if (!block || is_zeros(block->bytes, CONTENT_BLOCK))
            continue;
        if (!block->hash)
            block->hash = hash_bytes(block->bytes, CONTENT_BLOCK);
        hash = (hash ^ (block->hash + i)) * UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 29;
    }
    return hash;
}

void content_put(const struct content *content, int fd)
{
    must(ftruncate(fd, (off_t)content->size) == 0);
    for (size_t i = 0; i < content->count; i++) {
        uint64_t at = i * CONTENT_BLOCK;
        size_t size =
            content->size - at < CONTENT_BLOCK ? (size_t)(content->size - at) : CONTENT_BLOCK;

        if (content->blocks[i])
            must(pwrite(fd, content->blocks[i]->bytes, size, (off_t)at) == (ssize_t)size);
    }
}
