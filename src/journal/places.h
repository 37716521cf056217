/* places.h: where on disk records are, as far as they are in effect [J4]: an index in memory.
 *
 * A place is the beginning of a stretch: records whose indexes go up by one, one behind the other in one segment, up to the index
 * of the next place. There is one at the beginning of a segment, where records were replaced, and every PLACES_STRIDE bytes. What
 * was replaced has none any more, so nobody comes across it. A group begins a block, so there is at most one place for each block
 * of the log, and usually one for PLACES_STRIDE bytes.
 *
 * Appending and reading may be two threads': each call is safe by itself. */
#ifndef JOURNAL_PLACES_H
#define JOURNAL_PLACES_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACES_STRIDE ((size_t)64 << 10) /* bytes */

struct place {
    uint64_t index; /* of the record there */
    uint64_t segment, salt;
    size_t at;
};

struct places {
    pthread_mutex_t mutex;
    struct place *places; /* indexes and places go up */
    size_t count, capacity;
    uint64_t next; /* index behind the last record */
    uint64_t cuts; /* so often something that was in effect is not any more */
};

struct stretch {
    struct place place;
    uint64_t end; /* index behind its last record */
    uint64_t cuts;
};

void places_init(struct places *places);
void places_free(struct places *places);
/* For so many bytes more, in so many records at most. Then places_add does not fail. */
int places_reserve(struct places *places, size_t bytes, struct error_text *err);
/* A record that is durable: the next one, or one that replaces. */
void places_add(struct places *places, const struct place *place);
/* Those in segments before that one. */
void places_remove(struct places *places, uint64_t segment);
void places_clear(struct places *places);

enum places_found {
    PLACES_FOUND = 1,
    PLACES_BELOW, /* it is below the first, or there is none */
    PLACES_BEHIND /* it is behind the last */
};
/* The stretch that the index is in. */
enum places_found places_find(struct places *places, uint64_t index, struct stretch *ret_stretch);

#endif
