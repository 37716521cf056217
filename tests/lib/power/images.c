#include "images.h"

#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SECTOR 512 /* a disk writes so much whole, or not at all */
#define WORD 8     /* and a processor so much: of a page that is mapped */

enum fate { LOST, KEPT, TORN };

struct choice {
    enum fate fate;
    uint64_t seed; /* of a torn write: which pieces of it are there */
};

struct image {
    const struct disk_state *state;
    const struct choice *choices;
    struct content *contents; /* by object; */
    bool *has_content;        /* those that are reached */
    uint64_t hash;
};

static uint64_t next(uint64_t *seed)
{
    uint64_t mixed = *seed += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

/* ---- one image -------------------------------------------------------------------------------- */

/* Piece by piece, some of them. The file is as long as if all were there, or as long as what is there: then the rest is zeros. */
static void write_torn(struct content *content, const struct trace_record *record, uint64_t seed)
{
    const uint64_t piece = record->kind == TRACE_STORED ? WORD : SECTOR;
    uint64_t at = record->offset, end = at + record->size, begun = next(&seed) % 4;

    if (begun < 3 && content->size < end)
        content_resize(content, end);
    while (at < end) {
        uint64_t stop = (at / piece + 1) * piece;

        if (stop > end)
            stop = end;
        if (begun > 0 && next(&seed) % 2)
            content_write(content, at, trace_bytes(record) + (at - record->offset),
                          (size_t)(stop - at));
        at = stop;
    }
}

static const struct content *content_of(struct image *image, int object)
{
    const struct disk_state *state = image->state;
    struct content *content = &image->contents[object];

    if (image->has_content[object])
        return content;
    image->has_content[object] = true;
    *content = content_copy(&state->objects[object].content);
    for (int i = 0; i < state->pending_count; i++) {
        if (state->pending[i].object != object)
            continue;
        if (image->choices[i].fate == TORN)
            write_torn(content, state->pending[i].record, image->choices[i].seed);
        else if (image->choices[i].fate == KEPT)
            disk_content_apply(content, state->pending[i].record);
    }
    return content;
}

static struct disk_names names_of(const struct image *image, int object)
{
    const struct disk_state *state = image->state;
    struct disk_names names = disk_names_copy(&state->objects[object].names);

    for (int i = 0; i < state->pending_count; i++)
        if (state->pending[i].object == object && image->choices[i].fate != LOST)
            disk_names_apply(&names, &state->pending[i]);
    return names;
}

/* Of a directory and all below it; the order of names does not count. */
static uint64_t hash_of(struct image *image, int object)
{
    struct disk_names names = names_of(image, object);
    uint64_t hash = 17;

    for (size_t i = 0; i < names.count; i++) {
        const struct disk_entry *entry = &names.entries[i];
        uint64_t seed = hash_bytes(entry->name, strlen(entry->name));

        seed ^= image->state->objects[entry->object].is_directory
                    ? hash_of(image, entry->object)
                    : content_hash(content_of(image, entry->object));
        hash += next(&seed);
    }
    disk_names_free(&names);
    return hash;
}

static void put_below(const struct image *image, int object, const char *path)
{
    struct disk_names names = names_of(image, object);

    for (size_t i = 0; i < names.count; i++) {
        int named = names.entries[i].object, fd;
        char below[PATH_MAX];

        snprintf(below, sizeof below, "%s/%s", path, names.entries[i].name);
        if (image->state->objects[named].is_directory) {
            assert_int_equal(mkdir(below, 0700), 0);
            put_below(image, named, below);
            continue;
        }
        fd = open(below, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        content_put(&image->contents[named], fd);
        close(fd);
    }
    disk_names_free(&names);
}

void image_put(const struct image *image, const char *directory)
{
    put_below(image, 0, directory);
}

const char *image_describe(const struct image *image)
{
    static const char *const kinds[] = {
        [TRACE_CREATE] = "create", [TRACE_LINK] = "link",   [TRACE_UNLINK] = "unlink",
        [TRACE_RENAME] = "rename", [TRACE_WRITE] = "write", [TRACE_STORED] = "store",
        [TRACE_SIZE] = "size",     [TRACE_ROOM] = "room"};
    static const char *const fates[] = {"lost", "kept", "torn"};
    static char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text, "cut behind call %ju, mark %ju, image %016jx",
                                   (uintmax_t)image->state->number, (uintmax_t)image->state->mark,
                                   (uintmax_t)image->hash);

    for (int i = 0; i < image->state->pending_count && used < sizeof text - 300; i++) {
        const struct trace_record *record = image->state->pending[i].record;

        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "\n    %s: call %ju, %s %s%s%s at %ju of inode %ju, %u bytes",
                                 fates[image->choices[i].fate], (uintmax_t)record->number,
                                 kinds[record->kind], record->name,
                                 *record->other_name ? " to " : "", record->other_name,
                                 (uintmax_t)record->offset, (uintmax_t)record->inode, record->size);
    }
    return text;
}

/* ---- those that were seen --------------------------------------------------------------------- */

static bool insert(uint64_t *seen, size_t capacity, uint64_t hash)
{
    size_t at = (size_t)hash % capacity;

    while (seen[at] && seen[at] != hash)
        at = (at + 1) % capacity;
    if (seen[at])
        return false;
    seen[at] = hash;
    return true;
}

/* False: it was there. */
static bool is_new(struct images *images, uint64_t hash)
{
    if (2 * images->seen_count >= images->seen_capacity) {
        size_t capacity = images->seen_capacity ? 2 * images->seen_capacity : 4096;
        uint64_t *larger = calloc(capacity, sizeof *larger);

        assert_non_null(larger);
        for (size_t i = 0; i < images->seen_capacity; i++)
            if (images->seen[i])
                insert(larger, capacity, images->seen[i]);
        free(images->seen);
        images->seen = larger;
        images->seen_capacity = capacity;
    }
    if (!insert(images->seen, images->seen_capacity, hash ? hash : 1))
        return false;
    images->seen_count++;
    return true;
}

void images_free(struct images *images)
{
    free(images->seen);
    images->seen = NULL;
    images->seen_capacity = images->seen_count = 0;
}

/* ---- which there are -------------------------------------------------------------------------- */

static void build(struct images *images, const struct disk_state *state,
                  const struct choice *choices, image_fn *fn, void *context)
{
    size_t count = (size_t)state->object_count;
    struct image image = {.state = state, .choices = choices};
    uint64_t mark = state->marks;

    image.contents = calloc(count, sizeof *image.contents);
    image.has_content = calloc(count, sizeof *image.has_content);
    assert_true(image.contents && image.has_content);
    image.hash = hash_of(&image, 0);
    if (images)
        images->built++;
    if (!images || is_new(images, image.hash ^ next(&mark))) {
        if (images)
            images->judged++;
        fn(context, &image);
    }
    for (size_t i = 0; i < count; i++)
        content_free(&image.contents[i]);
    free(image.contents);
    free(image.has_content);
}

struct builder {
    struct images *images;
    const struct disk_state *state;
    struct choice *choices;
    const int *open; /* the calls that may be lost */
    int open_count;
    image_fn *fn;
    void *context;
};

static void set_all(const struct builder *builder, enum fate fate)
{
    for (int i = 0; i < builder->open_count; i++)
        builder->choices[builder->open[i]].fate = fate;
}

static void build_now(const struct builder *builder)
{
    build(builder->images, builder->state, builder->choices, builder->fn, builder->context);
}

static void build_subsets(const struct builder *builder)
{
    for (uint64_t subset = 0; subset < UINT64_C(1) << builder->open_count; subset++) {
        for (int i = 0; i < builder->open_count; i++)
            builder->choices[builder->open[i]].fate = subset >> i & 1 ? KEPT : LOST;
        build_now(builder);
    }
}

/* None, all; of the last ones, all up to one, all but one, and it alone. */
static void build_some(const struct builder *builder)
{
    int from = builder->open_count - builder->images->options.last;

    if (from < 0)
        from = 0;
    set_all(builder, LOST);
    build_now(builder);
    for (int i = 0; i < from; i++)
        builder->choices[builder->open[i]].fate = KEPT;
    for (int i = from; i < builder->open_count; i++) {
        build_now(builder);
        builder->choices[builder->open[i]].fate = KEPT;
    }
    for (int i = from; i < builder->open_count; i++) {
        set_all(builder, LOST);
        builder->choices[builder->open[i]].fate = KEPT;
        build_now(builder);
        set_all(builder, KEPT);
        builder->choices[builder->open[i]].fate = LOST;
        build_now(builder);
    }
    set_all(builder, KEPT);
    build_now(builder);
}

static bool can_be_torn(const struct disk_pending *pending)
{
    const struct trace_record *record = pending->record;
    uint32_t piece = record->kind == TRACE_STORED ? WORD : SECTOR;

    return (record->kind == TRACE_WRITE || record->kind == TRACE_STORED) && record->size > piece;
}

/* The last calls are more interesting than those long ago: half of the time all those before are there. */
static void build_at_random(const struct builder *builder, uint64_t *seed)
{
    int from = next(seed) % 2 ? builder->open_count - 4 : 0;

    for (int i = 0; i < builder->open_count; i++) {
        const struct disk_pending *pending = &builder->state->pending[builder->open[i]];
        struct choice *choice = &builder->choices[builder->open[i]];

        choice->seed = next(seed);
        choice->fate = i < from || next(seed) % 2 ? KEPT : LOST;
        if (i >= from && can_be_torn(pending) && next(seed) % 2)
            choice->fate = TORN;
    }
    build_now(builder);
}

void images_each(struct images *images, const struct disk_state *state, image_fn *fn, void *context)
{
    size_t count = (size_t)state->pending_count;
    int *open = calloc(count + 1, sizeof *open);
    struct builder builder = {.images = images,
                              .state = state,
                              .choices = calloc(count + 1, sizeof *builder.choices),
                              .open = open,
                              .fn = fn,
                              .context = context};
    uint64_t seed = images->options.seed ^ state->number * UINT64_C(0x2545f4914f6cdd1d);
    bool torn = false;

    assert_true(open && builder.choices);
    for (int i = 0; i < state->pending_count; i++) {
        builder.choices[i].fate = KEPT;
        if (!state->pending[i].must)
            open[builder.open_count++] = i;
        torn = torn || (!state->pending[i].must && can_be_torn(&state->pending[i]));
    }
    images->cuts++;
    if (builder.open_count > images->most_pending)
        images->most_pending = builder.open_count;
    if (builder.open_count <= images->options.all_of)
        build_subsets(&builder);
    else
        build_some(&builder);
    for (int i = 0; i < images->options.at_random; i++)
        if (torn || builder.open_count > images->options.all_of)
            build_at_random(&builder, &seed);
    free(builder.choices);
    free(open);
}

void images_whole(const struct disk_state *state, image_fn *fn, void *context)
{
    struct choice *choices = calloc((size_t)state->pending_count + 1, sizeof *choices);

    assert_non_null(choices);
    for (int i = 0; i < state->pending_count; i++)
        choices[i].fate = KEPT;
    build(NULL, state, choices, fn, context);
    free(choices);
}
