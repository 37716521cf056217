/* memory.c: the bytes and nodes of a reader: taken when they are needed, left to other readers when they are not. */
#include "resp/inside.h"

#include <stdlib.h>
#include <string.h>

struct resp_reader *resp_reader_new(const struct resp_limits *limits)
{
    struct resp_reader *reader = calloc(1, sizeof *reader);

    if (!reader)
        return NULL;
    resp_reader_limit(reader, limits);
    reader->announced = 1;
    return reader;
}

void resp_reader_limit(struct resp_reader *reader, const struct resp_limits *limits)
{
    reader->limits = *limits;
    if (reader->limits.blob_max > SIZE_CEILING)
        reader->limits.blob_max = SIZE_CEILING;
    if (reader->limits.value_max > SIZE_CEILING)
        reader->limits.value_max = SIZE_CEILING;
    if (reader->limits.nodes_max > UINT32_MAX) /* a span has no more bits */
        reader->limits.nodes_max = UINT32_MAX;
    if (reader->limits.nodes_max == 0) /* the value itself counts */
        reader->limits.nodes_max = 1;
}

void resp_reader_free(struct resp_reader *reader)
{
    if (!reader)
        return;
    free(reader->bytes);
    free(reader->nodes);
    free(reader);
}

/* ---- memory that readers share --------------------------------------------------------------- */

void resp_reader_share(struct resp_reader *reader, struct resp_spare *spare)
{
    reader->spare = spare;
}

void resp_spare_free(struct resp_spare *spare)
{
    free(spare->bytes);
    free(spare->nodes);
    *spare = (struct resp_spare){0};
}

/* NULL: out of memory. */
static char *take_bytes(struct resp_reader *reader, size_t capacity)
{
    char *bytes = NULL;

    if (reader->spare && capacity == BUFFER_USUAL) {
        bytes = reader->spare->bytes;
        reader->spare->bytes = NULL;
    }
    return bytes ? bytes : malloc(capacity);
}

static void leave_bytes(struct resp_reader *reader)
{
    if (reader->spare && !reader->spare->bytes && reader->capacity == BUFFER_USUAL)
        reader->spare->bytes = reader->bytes;
    else
        free(reader->bytes);
    reader->bytes = NULL;
    reader->capacity = 0;
}

/* False: there are none. They may be more than nodes_max: the limit is on what is announced. */
static bool take_nodes(struct resp_reader *reader)
{
    if (!reader->spare || !reader->spare->nodes)
        return false;
    reader->nodes = reader->spare->nodes;
    reader->node_capacity = NODES_USUAL;
    reader->spare->nodes = NULL;
    return true;
}

static void leave_nodes(struct resp_reader *reader)
{
    if (reader->spare && !reader->spare->nodes && reader->node_capacity == NODES_USUAL)
        reader->spare->nodes = reader->nodes;
    else
        free(reader->nodes);
    reader->nodes = NULL;
    reader->node_capacity = 0;
}

/* ---- the buffer ------------------------------------------------------------------------------ */

void reader_forget_value(struct resp_reader *reader)
{
    INVARIANT(!reader->body && reader->depth == 0 && !reader->complete);
    reader->given = false;
    reader->node_count = 0;
    if (reader->node_capacity > NODES_USUAL)
        leave_nodes(reader);
    if (reader->begin < reader->end)
        return;
    reader->begin = reader->at = reader->scanned = reader->end = 0;
    if (reader->capacity > BUFFER_USUAL)
        leave_bytes(reader);
}

void resp_reader_rest(struct resp_reader *reader)
{
    if (reader->given)
        reader_forget_value(reader);
    if (!reader->spare || reader->begin < reader->end)
        return;
    INVARIANT(reader->node_count == 0);
    reader->begin = reader->at = reader->scanned = reader->end = 0;
    leave_bytes(reader);
    leave_nodes(reader);
}

/* Twice what is needed, so that a value in many pieces is copied a bounded number of times; but no
 * more than the largest value and a read beyond it. */
static size_t buffer_size_for(const struct resp_reader *reader, size_t need, size_t least)
{
    size_t size = 2 * need > BUFFER_USUAL ? 2 * need : BUFFER_USUAL;
    size_t ceiling = reader->limits.value_max + (least > BUFFER_USUAL ? least : BUFFER_USUAL);

    return need <= ceiling && size > ceiling ? ceiling : size;
}

/* The bytes from `begin` on now begin at 0 of `bytes`. */
static void rebase(struct resp_reader *reader, char *bytes)
{
    if (reader->end > reader->begin)
        memmove(bytes, reader->bytes + reader->begin, reader->end - reader->begin);
    reader->at -= reader->begin;
    reader->scanned -= reader->begin;
    reader->end -= reader->begin;
    reader->begin = 0;
}

static bool move_buffer(struct resp_reader *reader, size_t capacity)
{
    char *bytes = take_bytes(reader, capacity);

    if (!bytes)
        return false;
    rebase(reader, bytes);
    leave_bytes(reader);
    reader->bytes = bytes;
    reader->capacity = capacity;
    return true;
}

char *resp_reader_room(struct resp_reader *reader, size_t least, size_t *ret_size)
{
    bool after_value = reader->given;
    size_t need;

    if (after_value)
        reader_forget_value(reader);
    if (least == 0)
        least = 1; /* NULL means something else */
    if (least > SIZE_CEILING || reader->end > SIZE_CEILING)
        return NULL;
    need = reader->end - reader->begin + least;
    if (need > reader->capacity) {
        if (!move_buffer(reader, buffer_size_for(reader, need, least)))
            return NULL;
    } else if (after_value && reader->capacity > BUFFER_USUAL && need <= reader->capacity / 4) {
        /* A huge value went, and a part of the next one stays. Without memory for a smaller
         * buffer the large one does as well. */
        if (!move_buffer(reader, buffer_size_for(reader, need, least)))
            rebase(reader, reader->bytes);
    } else if (reader->capacity - reader->end < least) {
        rebase(reader, reader->bytes);
    }
    *ret_size = reader->capacity - reader->end;
    return reader->bytes + reader->end;
}

void resp_reader_filled(struct resp_reader *reader, size_t size)
{
    INVARIANT(size <= reader->capacity - reader->end);
    reader->end += size;
}

size_t resp_reader_pending(const struct resp_reader *reader)
{
    return reader->end - reader->begin;
}

/* ---- the nodes ------------------------------------------------------------------------------- */

bool reader_more_nodes(struct resp_reader *reader)
{
    size_t capacity = reader->node_capacity ? 2 * reader->node_capacity : NODES_USUAL;
    struct resp_node *nodes;

    if (!reader->nodes && take_nodes(reader))
        return true;
    if (capacity > reader->limits.nodes_max)
        capacity = reader->limits.nodes_max;
    nodes = reallocarray(reader->nodes, capacity, sizeof *nodes);
    if (!nodes)
        return false;
    reader->nodes = nodes;
    reader->node_capacity = capacity;
    return true;
}
