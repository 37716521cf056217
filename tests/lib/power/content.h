/* content.h: the bytes of a file, in blocks that copies share; a block that was never written is zeros and costs nothing. */
#ifndef TESTS_POWER_CONTENT_H
#define TESTS_POWER_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_BLOCK ((size_t)4096)

struct content_block;

struct content {
    uint64_t size;
    struct content_block **blocks; /* NULL: zeros */
    size_t count;
};

/* Begins as {0}. */
void content_free(struct content *content);
struct content content_copy(const struct content *content);
void content_resize(struct content *content, uint64_t size);
/* Makes it longer if need be. */
void content_write(struct content *content, uint64_t offset, const void *bytes, size_t size);
uint64_t content_hash(const struct content *content);
/* Into an empty file. */
void content_put(const struct content *content, int fd);

#endif
