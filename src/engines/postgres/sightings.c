/* sightings.c: what was seen of others' claims, and since when.
 *
 * One table for each store, because what one call has seen another one may use: a claim's beat is first seen when an answer that shows it has
 * arrived, or when another process of this host has noted that it saw it, whichever is earlier. Ids are never used again, so what is
 * in here may be forgotten, and never becomes wrong; it is emptied when the server turns out to be another one. */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/postgres/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SIZE \
    4096 /* two who meet in it: the later one stays, and who waits remembers by itself */

struct seen {
    int64_t id, beat, since_ms;
};

struct sightings {
    pthread_mutex_t mutex;
    uint32_t era; /* of the store: what was seen before that does not count */
    struct seen at[TABLE_SIZE];
};

struct sightings *sightings_new(void)
{
    struct sightings *sightings = calloc(1, sizeof *sightings);

    if (sightings)
        pthread_mutex_init(&sightings->mutex, NULL);
    return sightings;
}

void sightings_free(struct sightings *sightings)
{
    if (sightings)
        pthread_mutex_destroy(&sightings->mutex);
    free(sightings);
}

void sightings_clear(struct sightings *sightings, uint32_t era)
{
    pthread_mutex_lock(&sightings->mutex);
    sightings->era = era;
    memset(sightings->at, 0, sizeof sightings->at);
    pthread_mutex_unlock(&sightings->mutex);
}

int64_t store_kernel_ms(const struct engine_store *store, int64_t boot_ms)
{
    return boot_ms - store->bootclock.offset_ns / 1000000;
}

static int64_t from_kernel_ms(const struct engine_store *store, int64_t kernel_ms)
{
    return kernel_ms + store->bootclock.offset_ns / 1000000;
}

void store_host(struct engine_store *store, char ret_host[PG_HOST_MAX])
{
    char text[BOOT_ID_SIZE + 1 + PG_INCARNATION_MAX + 1];
    unsigned char digest[SHA256_SIZE];
    int size;

    pthread_mutex_lock(&store->mutex);
    size = snprintf(text, sizeof text, "%.*s %s", BOOT_ID_SIZE, store->bootclock.boot_id,
                    store->incarnation);
    pthread_mutex_unlock(&store->mutex);
    sha256(text, (size_t)size < sizeof text ? (size_t)size : sizeof text, digest);
    text_hex(digest, (PG_HOST_MAX - 1) / 2, ret_host);
}

void sightings_note(struct engine_store *store, uint32_t era, int64_t arrived_ms,
                    const int64_t shown[SIGHTING_NUMBERS], struct sighting *ret_sighting)
{
    struct sightings *sightings = store->sightings;
    int64_t id = shown[0], beat = shown[1], at_ms = shown[3];
    struct seen *seen = &sightings->at[(uint64_t)id % TABLE_SIZE], other = {id, beat, arrived_ms};
    int64_t noted_ms = at_ms < 0 ? CLOCK_NEVER : from_kernel_ms(store, at_ms);

    pthread_mutex_lock(&sightings->mutex);
    if (sightings->era != era)
        seen = &other;
    if (seen->id != id || seen->beat != beat)
        *seen = (struct seen){id, beat, arrived_ms};
    if (noted_ms < seen->since_ms)
        seen->since_ms = noted_ms;
    *ret_sighting = (struct sighting){.id = id,
                                      .beat = beat,
                                      .span_ms = shown[2],
                                      .since_ms = seen->since_ms,
                                      .noted = at_ms >= 0};
    pthread_mutex_unlock(&sightings->mutex);
}

static bool next_number(const char **text, int64_t *ret_number)
{
    char *end;

    errno = 0;
    *ret_number = strtoll(*text, &end, 10);
    if (end == *text || errno || (*end && *end != ' '))
        return false;
    *text = end + (*end == ' ');
    return true;
}

int sightings_read(struct engine_store *store, uint32_t era, int64_t arrived_ms, const char *text,
                   struct sighting **ret_list)
{
    struct sighting *list = NULL;
    int count = 0, room = 0;

    while (*text) {
        int64_t shown[SIGHTING_NUMBERS];

        for (int i = 0; i < SIGHTING_NUMBERS; i++)
            if (!next_number(&text, &shown[i])) {
                free(list);
                return -1;
            }
        if (count == room) {
            int more = room ? 2 * room : 8;
            struct sighting *larger = realloc(list, (size_t)more * sizeof *larger);

            if (!larger) {
                free(list);
                return -1;
            }
            list = larger;
            room = more;
        }
        sightings_note(store, era, arrived_ms, shown, &list[count++]);
    }
    *ret_list = list;
    return count;
}

/* Both in the order of their ids, as the server lists them. What a claim that waits saw with one look it knows with the next,
 * whoever meets whom in the table. */
static void carry_over(const struct sighting *before, int before_count, struct sighting *list,
                       int count)
{
    for (int i = 0, j = 0; i < before_count && j < count;) {
        if (before[i].id != list[j].id) {
            if (before[i].id < list[j].id)
                i++;
            else
                j++;
            continue;
        }
        if (before[i].beat == list[j].beat) {
            list[j].handed = before[i].handed;
            if (before[i].since_ms < list[j].since_ms)
                list[j].since_ms = before[i].since_ms;
        }
        i++;
        j++;
    }
}

int sightings_again(struct engine_store *store, uint32_t era, int64_t arrived_ms, const char *text,
                    const struct sighting *before, int before_count, struct sighting **ret_list)
{
    int count = sightings_read(store, era, arrived_ms, text, ret_list);

    if (count > 0)
        carry_over(before, before_count, *ret_list, count);
    return count;
}

int sightings_dead(const struct sighting *list, int count, int64_t now_ms, struct text *ids,
                   struct text *beats, int64_t *ret_next_ms)
{
    int dead = 0;

    *ret_next_ms = CLOCK_NEVER;
    text_add(ids, "{");
    text_add(beats, "{");
    for (int i = 0; i < count; i++) {
        int64_t ends_ms = clock_after(list[i].since_ms, list[i].span_ms);

        if (now_ms < ends_ms) {
            *ret_next_ms = ends_ms < *ret_next_ms ? ends_ms : *ret_next_ms;
        } else if (dead < PG_DEAD_MAX) {
            text_add(ids, "%s%" PRId64, dead ? "," : "", list[i].id);
            text_add(beats, "%s%" PRId64, dead ? "," : "", list[i].beat);
            dead++;
        }
    }
    text_add(ids, "}");
    text_add(beats, "}");
    return dead;
}

static bool is_dead(const struct sighting *sighting, int64_t now_ms)
{
    return now_ms >= clock_after(sighting->since_ms, sighting->span_ms);
}

void sightings_hand_in(struct sighting *list, int count, int64_t now_ms)
{
    for (int i = 0, dead = 0; i < count && dead < PG_DEAD_MAX; i++)
        if (is_dead(&list[i], now_ms)) {
            list[i].handed = true;
            dead++;
        }
}

bool sightings_dead_anew(const struct sighting *list, int count, int64_t now_ms)
{
    for (int i = 0; i < count; i++)
        if (is_dead(&list[i], now_ms) && !list[i].handed)
            return true;
    return false;
}

int sightings_unnoted(struct engine_store *store, const struct sighting *list, int count,
                      struct text *ids, struct text *beats, struct text *times)
{
    int unnoted = 0;

    text_add(ids, "{");
    text_add(beats, "{");
    text_add(times, "{");
    for (int i = 0; i < count && unnoted < PG_DEAD_MAX; i++) {
        if (list[i].noted)
            continue;
        text_add(ids, "%s%" PRId64, unnoted ? "," : "", list[i].id);
        text_add(beats, "%s%" PRId64, unnoted ? "," : "", list[i].beat);
        text_add(times, "%s%" PRId64, unnoted ? "," : "", store_kernel_ms(store, list[i].since_ms));
        unnoted++;
    }
    text_add(ids, "}");
    text_add(beats, "}");
    text_add(times, "}");
    return unnoted;
}
