#include "journal/places.h"

#include <stdlib.h>
#include <string.h>

void places_init(struct places *places)
{
    *places = (struct places){0};
    INVARIANT(pthread_mutex_init(&places->mutex, NULL) == 0);
}

void places_free(struct places *places)
{
    pthread_mutex_destroy(&places->mutex);
    free(places->places);
}

/* One because it begins a segment or replaces something, and the last stretch may be full already. */
int places_reserve(struct places *places, size_t bytes, struct error_text *err)
{
    size_t more = bytes / PLACES_STRIDE + 2, capacity;
    struct place *larger;
    int result = HF_OK;

    pthread_mutex_lock(&places->mutex);
    if (places->count + more > places->capacity) {
        capacity = 2 * (places->count + more);
        larger = realloc(places->places, capacity * sizeof *larger);
        if (larger) {
            places->places = larger;
            places->capacity = capacity;
        } else {
            result = error_set(err, HF_ENOMEM, "out of memory");
        }
    }
    pthread_mutex_unlock(&places->mutex);
    return result;
}

/* Does a stretch begin here? */
static bool begins(const struct places *places, const struct place *place)
{
    const struct place *last = &places->places[places->count - 1];

    return last->segment != place->segment || place->at - last->at >= PLACES_STRIDE;
}

void places_add(struct places *places, const struct place *place)
{
    bool cut;

    pthread_mutex_lock(&places->mutex);
    cut = places->count > 0 && place->index < places->next;
    while (places->count > 0 && places->places[places->count - 1].index >= place->index)
        places->count--;
    if (places->count == 0 || cut || begins(places, place)) {
        INVARIANT(places->count < places->capacity);
        places->places[places->count++] = *place;
    }
    places->cuts += cut;
    places->next = place->index + 1;
    pthread_mutex_unlock(&places->mutex);
}

void places_remove(struct places *places, uint64_t segment)
{
    size_t gone = 0;

    pthread_mutex_lock(&places->mutex);
    while (gone < places->count && places->places[gone].segment < segment)
        gone++;
    places->count -= gone;
    if (gone > 0)
        memmove(places->places, places->places + gone, places->count * sizeof *places->places);
    pthread_mutex_unlock(&places->mutex);
}

void places_clear(struct places *places)
{
    pthread_mutex_lock(&places->mutex);
    places->count = 0;
    places->cuts++;
    pthread_mutex_unlock(&places->mutex);
}

/* The last one at or below the index; the first is. */
static size_t search(const struct places *places, uint64_t index)
{
    size_t low = 0, high = places->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (places->places[middle].index <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

enum places_found places_find(struct places *places, uint64_t index, struct stretch *ret_stretch)
{
    enum places_found found = PLACES_FOUND;

    pthread_mutex_lock(&places->mutex);
    if (places->count == 0 || index < places->places[0].index) {
        found = PLACES_BELOW;
    } else if (index >= places->next) {
        found = PLACES_BEHIND;
    } else {
        size_t i = search(places, index);

        *ret_stretch = (struct stretch){.place = places->places[i],
                                        .end = i + 1 < places->count ? places->places[i + 1].index
                                                                     : places->next,
                                        .cuts = places->cuts};
    }
    pthread_mutex_unlock(&places->mutex);
    return found;
}
