/* reader.c: a state machine over the bytes of one connection.
 *
 *      buffer   | done with | the value that is being read ..... | not looked at yet | free |
 *               0           begin                         at ... scanned             end    capacity
 *
 * It is always in one of two places: before a line (`at` is its first byte, and up to `scanned`
 * there is no '\n'), or in the body of a string whose length the last line said (`body` is its
 * kind). A line makes a node, opens an aggregate, or announces a body; nothing is read twice.
 *
 * What holds between calls:
 *  1. begin <= at <= scanned <= end <= capacity.
 *  2. node_count <= announced <= nodes_max: `announced` counts the value, the items of every
 *     aggregate from the moment its header came, and what was dropped with attributes. So the limit
 *     is broken by a header, before anything is taken for what it announces.
 *  3. Memory is taken for what has come, never for what a header says will come.
 *  4. While a value is incomplete the buffer may move. Its nodes then have, in `integer`, where
 *     their text begins, counted from `begin`; they get their pointers when it is complete.
 *  5. Buffer and nodes are the reader's or lie in its spare, never both. It leaves them there when
 *     nobody looks at a value (`given` is false) and begin == end; and a buffer also when its bytes
 *     have moved to a larger one. So nothing in what lies there matters. It has the usual sizes. */
#include "resp/resp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a connection keeps between values, or leaves to others; more is given back. */
#define BUFFER_USUAL 16384
#define NODES_USUAL 128
/* A ceiling under everything that is added up, so that no sum overflows. */
#define SIZE_CEILING (SIZE_MAX / 8)

/* Not an error: the rest has not come yet. */
#define WAIT 1

enum shape {
    SHAPE_LINE,     /* all of it is in the line */
    SHAPE_BODY,     /* the line says how many bytes follow */
    SHAPE_ITEMS,    /* the line says how many values follow */
    SHAPE_PAIRS,    /* the line says how many pairs follow */
    SHAPE_ATTRIBUTE /* pairs about the value after them, which nobody here wants to know */
};

struct kind {
    char mark; /* the first byte of its line */
    enum shape shape;
    enum resp_type type;
    bool nil;         /* RESP2: a length of -1 means that there is none */
    const char *name; /* for messages */
};

static const struct kind kinds[] = {
    {'+', SHAPE_LINE, RESP_SIMPLE, false, "a simple string"},
    {'-', SHAPE_LINE, RESP_ERROR, false, "an error"},
    {':', SHAPE_LINE, RESP_INTEGER, false, "an integer"},
    {'_', SHAPE_LINE, RESP_NIL, false, "a nil"},
    {'#', SHAPE_LINE, RESP_BOOL, false, "a boolean"},
    {',', SHAPE_LINE, RESP_DOUBLE, false, "a double"},
    {'(', SHAPE_LINE, RESP_BIG, false, "a big number"},
    {'$', SHAPE_BODY, RESP_BLOB, true, "a string"},
    {'!', SHAPE_BODY, RESP_ERROR, false, "an error"},
    {'=', SHAPE_BODY, RESP_BLOB, false, "a verbatim string"},
    {'*', SHAPE_ITEMS, RESP_ARRAY, true, "an array"},
    {'~', SHAPE_ITEMS, RESP_SET, false, "a set"},
    {'%', SHAPE_PAIRS, RESP_MAP, false, "a map"},
    {'>', SHAPE_ITEMS, RESP_PUSH, false, "a push"},
    {'|', SHAPE_ATTRIBUTE, RESP_MAP, false, "an attribute"},
};

/* An aggregate whose items have not all come. */
struct open {
    uint32_t node; /* its index */
    uint32_t left; /* items */
    bool dropped;  /* an attribute */
};

struct resp_reader {
    struct resp_limits limits;
    struct resp_spare *spare; /* NULL: it shares with nobody */
    char *bytes;
    size_t begin, at, scanned, end, capacity;
    const struct kind *body; /* NULL: before a line */
    size_t body_size;
    struct resp_node *nodes;
    size_t node_count, node_capacity, announced;
    struct open open[RESP_DEPTH_MAX];
    int depth;
    bool complete; /* nothing of the value is missing */
    bool given;    /* the nodes and the bytes before `begin` are a value that somebody looks at */
    int failed;    /* what resp_reader_next said, and says from then on */
};

struct resp_reader *resp_reader_new(const struct resp_limits *limits)
{
    struct resp_reader *reader = calloc(1, sizeof *reader);

    if (!reader)
        return NULL;
    reader->limits = *limits;
    if (reader->limits.blob_max > SIZE_CEILING)
        reader->limits.blob_max = SIZE_CEILING;
    if (reader->limits.value_max > SIZE_CEILING)
        reader->limits.value_max = SIZE_CEILING;
    if (reader->limits.nodes_max > UINT32_MAX) /* a span has no more bits */
        reader->limits.nodes_max = UINT32_MAX;
    if (reader->limits.nodes_max == 0) /* the value itself counts */
        reader->limits.nodes_max = 1;
    reader->announced = 1;
    return reader;
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

/* Ends the life of the value that was handed out. What a huge one took is given back at once: the
 * connection may be idle from now on. */
static void forget_value(struct resp_reader *reader)
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
        forget_value(reader);
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
        forget_value(reader);
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

/* ---- nodes ----------------------------------------------------------------------------------- */

/* False: out of memory. */
static bool more_nodes(struct resp_reader *reader)
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

/* NULL: out of memory. */
static struct resp_node *add_node(struct resp_reader *reader, enum resp_type type)
{
    struct resp_node *node;

    if (reader->node_count == reader->node_capacity && !more_nodes(reader))
        return NULL;
    node = &reader->nodes[reader->node_count++];
    *node = (struct resp_node){.type = type, .span = 1};
    return node;
}

/* Where a text is, for as long as the buffer may move. */
static void set_text(const struct resp_reader *reader, struct resp_node *node, const char *text,
                     size_t size)
{
    node->integer = text - (reader->bytes + reader->begin);
    node->size = size;
}

static bool has_text(enum resp_type type)
{
    return type == RESP_SIMPLE || type == RESP_ERROR || type == RESP_BLOB || type == RESP_DOUBLE ||
           type == RESP_BIG;
}

/* An item is complete, and with it perhaps the aggregates that it is the last one of, and with them
 * perhaps the whole value. */
static int item_done(struct resp_reader *reader)
{
    while (reader->depth > 0) {
        struct open *open = &reader->open[reader->depth - 1];

        if (--open->left > 0)
            return HF_OK;
        reader->depth--;
        if (open->dropped) { /* it was no item of anything: the value that it is about is due */
            reader->node_count = open->node;
            return HF_OK;
        }
        reader->nodes[open->node].span = (uint32_t)reader->node_count - open->node;
    }
    reader->complete = true;
    return HF_OK;
}

/* The value is complete: it gets its pointers, and the next one begins behind it. */
static const struct resp_node *give_value(struct resp_reader *reader)
{
    for (size_t i = 0; i < reader->node_count; i++) {
        struct resp_node *node = &reader->nodes[i];

        if (!has_text(node->type))
            continue;
        node->text = reader->bytes + reader->begin + node->integer;
        node->integer = 0;
    }
    reader->begin = reader->at;
    reader->announced = 1;
    reader->complete = false;
    reader->given = true;
    return reader->nodes;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Counts downwards, because there is one negative number more than there are positive ones. */
static bool read_int64(const char *text, size_t size, int64_t *ret_value)
{
    bool negative = size > 0 && text[0] == '-';
    size_t i = size > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    int64_t value = 0;

    if (i == size)
        return false;
    for (; i < size; i++) {
        if (!is_digit(text[i]) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, text[i] - '0', &value))
            return false;
    }
    if (!negative && value == INT64_MIN)
        return false;
    *ret_value = negative ? value : -value;
    return true;
}

/* Nobody here calculates with them: it is enough that a terminal can show them. */
static bool looks_like(const char *alphabet, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!text[i] || !strchr(alphabet, text[i]))
            return false;
    return size > 0;
}

static int out_of_memory(struct error_text *err)
{
    return error_set(err, HF_ENOMEM, "out of memory for what the other side sent");
}

static int read_scalar(struct resp_reader *reader, const struct kind *kind, const char *text,
                       size_t size, struct error_text *err)
{
    struct resp_node *node = add_node(reader, kind->type);
    bool good = true;

    if (!node)
        return out_of_memory(err);
    switch (kind->type) {
    case RESP_INTEGER:
        good = read_int64(text, size, &node->integer);
        break;
    case RESP_BOOL:
        good = size == 1 && (text[0] == 't' || text[0] == 'f');
        node->integer = good && text[0] == 't';
        break;
    case RESP_NIL:
        good = size == 0;
        break;
    case RESP_DOUBLE:
        good = looks_like("0123456789+-.eEinfa", text, size);
        break;
    case RESP_BIG:
        good = looks_like("0123456789+-", text, size);
        break;
    default:
        break;
    }
    if (!good)
        return error_set(err, HF_EREFUSED, "the other side sent %s that is malformed", kind->name);
    if (has_text(kind->type))
        set_text(reader, node, text, size);
    return item_done(reader);
}

static int read_body_header(struct resp_reader *reader, const struct kind *kind, uint64_t size,
                            struct error_text *err)
{
    if (size > reader->limits.blob_max)
        return error_set(err, HF_EREFUSED,
                         "the other side sent %s of %" PRIu64 " bytes, more than the %zu allowed",
                         kind->name, size, reader->limits.blob_max);
    if (reader->at - reader->begin + size + 2 > reader->limits.value_max)
        return error_set(err, HF_EREFUSED,
                         "the other side sent %s of %" PRIu64
                         " bytes, and with it a value of more than the %zu allowed",
                         kind->name, size, reader->limits.value_max);
    reader->body = kind;
    reader->body_size = (size_t)size;
    return HF_OK;
}

static int read_items_header(struct resp_reader *reader, const struct kind *kind, uint64_t count,
                             struct error_text *err)
{
    bool dropped = kind->shape == SHAPE_ATTRIBUTE;
    struct resp_node *node;
    uint64_t total;

    if (reader->depth == RESP_DEPTH_MAX)
        return error_set(err, HF_EREFUSED, "the other side sent values nested more than %d deep",
                         RESP_DEPTH_MAX);
    if (count > reader->limits.nodes_max)
        return error_set(err, HF_EREFUSED,
                         "the other side sent %s of %" PRIu64 " items, more than the %zu allowed",
                         kind->name, count, reader->limits.nodes_max);
    total = reader->announced + count + (dropped ? 1 : 0);
    if (total > reader->limits.nodes_max)
        return error_set(err, HF_EREFUSED,
                         "the other side sent a value of %" PRIu64
                         " parts, more than the %zu allowed",
                         total, reader->limits.nodes_max);
    reader->announced = (size_t)total;
    if (dropped && count == 0)
        return HF_OK;
    node = add_node(reader, kind->type);
    if (!node)
        return out_of_memory(err);
    node->count = (uint32_t)count;
    if (count == 0)
        return item_done(reader);
    reader->open[reader->depth++] =
        (struct open){(uint32_t)reader->node_count - 1, (uint32_t)count, dropped};
    return HF_OK;
}

/* A line that says how much follows. */
static int read_header(struct resp_reader *reader, const struct kind *kind, const char *text,
                       size_t size, struct error_text *err)
{
    uint64_t length;
    int64_t number;

    if (kind->nil && size == 2 && memcmp(text, "-1", 2) == 0)
        return add_node(reader, RESP_NIL) ? item_done(reader) : out_of_memory(err);
    if (size == 1 && text[0] == '?')
        return error_set(err, HF_EREFUSED,
                         "the other side sent %s in pieces of unknown number, which is not "
                         "supported",
                         kind->name);
    if (size == 0 || !is_digit(text[0]) || !read_int64(text, size, &number))
        return error_set(err, HF_EREFUSED, "the other side sent %s with a malformed length",
                         kind->name);
    length = (uint64_t)number; /* 63 bits: twice that is no overflow */
    if (kind->shape == SHAPE_BODY)
        return read_body_header(reader, kind, length, err);
    return read_items_header(reader, kind, kind->shape == SHAPE_ITEMS ? length : 2 * length, err);
}

/* Looked at before the line has an end: whoever speaks something else may never send one. */
static int find_kind(const struct resp_reader *reader, const struct kind **ret_kind,
                     struct error_text *err)
{
    char mark = reader->bytes[reader->at];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].mark != mark)
            continue;
        if (kinds[i].type == RESP_PUSH && reader->depth > 0)
            return error_set(err, HF_EREFUSED, "the other side sent a push within another value");
        *ret_kind = &kinds[i];
        return HF_OK;
    }
    return error_set(err, HF_EREFUSED,
                     "what the other side sent is not RESP: no value begins with byte 0x%02x",
                     (unsigned)(unsigned char)mark);
}

/* Text and size are of what is between the mark and the CR LF. HF_OK, WAIT, or an error. */
static int find_line(struct resp_reader *reader, const char **ret_text, size_t *ret_size,
                     struct error_text *err)
{
    const char *text = reader->bytes + reader->at + 1;
    const char *newline =
        memchr(reader->bytes + reader->scanned, '\n', reader->end - reader->scanned);
    size_t size; /* with the CR */

    reader->scanned = newline ? (size_t)(newline - reader->bytes) : reader->end;
    size = reader->scanned - reader->at - 1;
    if (size > RESP_LINE_MAX + 1)
        return error_set(err, HF_EREFUSED,
                         "the other side sent a line of more than the %d bytes allowed",
                         RESP_LINE_MAX);
    if (!newline)
        return WAIT;
    if (size == 0 || text[size - 1] != '\r' || memchr(text, '\r', size - 1))
        return error_set(err, HF_EREFUSED,
                         "the other side sent a line that does not end with CR LF, or has a CR "
                         "within");
    *ret_text = text;
    *ret_size = size - 1;
    return HF_OK;
}

static int value_too_large(const struct resp_reader *reader, struct error_text *err)
{
    return error_set(err, HF_EREFUSED,
                     "the other side sent a value of more than the %zu bytes allowed",
                     reader->limits.value_max);
}

/* HF_OK, WAIT, or an error. */
static int read_line(struct resp_reader *reader, struct error_text *err)
{
    const struct kind *kind;
    const char *text;
    size_t size;
    int r;

    if (reader->at == reader->end)
        return WAIT;
    r = find_kind(reader, &kind, err);
    if (r == HF_OK)
        r = find_line(reader, &text, &size, err);
    if (r != HF_OK)
        return r;
    reader->at = ++reader->scanned;
    if (reader->at - reader->begin > reader->limits.value_max)
        return value_too_large(reader, err);
    if (kind->shape == SHAPE_LINE)
        return read_scalar(reader, kind, text, size, err);
    return read_header(reader, kind, text, size, err);
}

/* HF_OK, WAIT, or an error. */
static int read_body(struct resp_reader *reader, struct error_text *err)
{
    const struct kind *kind = reader->body;
    const char *text = reader->bytes + reader->at;
    size_t size = reader->body_size, format = kind->mark == '=' ? 4 : 0;
    struct resp_node *node;

    if (reader->end - reader->at < size + 2)
        return WAIT;
    if (text[size] != '\r' || text[size + 1] != '\n')
        return error_set(err, HF_EREFUSED, "the other side sent %s of another length than it said",
                         kind->name);
    if (size < format || (format && text[3] != ':'))
        return error_set(err, HF_EREFUSED, "the other side sent %s without its format", kind->name);
    node = add_node(reader, kind->type);
    if (!node)
        return out_of_memory(err);
    set_text(reader, node, text + format, size - format);
    reader->body = NULL;
    reader->at = reader->scanned = reader->at + size + 2;
    return item_done(reader);
}

int resp_reader_next(struct resp_reader *reader, const struct resp_node **ret_value,
                     struct error_text *err)
{
    int r = HF_OK;

    if (reader->failed)
        return error_set(err, reader->failed, "what the other side sent was refused before");
    if (reader->given)
        forget_value(reader);
    while (r == HF_OK && !reader->complete)
        r = reader->body ? read_body(reader, err) : read_line(reader, err);
    /* All that has come belongs to a value that wants more. */
    if (r == WAIT && reader->end > reader->begin &&
        reader->end - reader->begin >= reader->limits.value_max)
        r = value_too_large(reader, err);
    if (r < 0) {
        reader->failed = r;
        return r;
    }
    *ret_value = r == WAIT ? NULL : give_value(reader);
    return HF_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

const struct resp_node *resp_item(const struct resp_node *node, uint32_t index)
{
    if (!node || index >= node->count)
        return NULL;
    if (node->span == node->count + 1) /* no item has items: the usual case, and a quick one */
        return node + 1 + index;
    for (node++; index > 0; index--)
        node += node->span;
    return node;
}

bool resp_is(const struct resp_node *node, const char *text)
{
    size_t size = strlen(text);

    return node &&
           (node->type == RESP_SIMPLE || node->type == RESP_BLOB || node->type == RESP_ERROR) &&
           node->size == size && memcmp(node->text, text, size) == 0;
}

bool resp_to_int64(const struct resp_node *node, int64_t *ret_value)
{
    if (!node)
        return false;
    if (node->type == RESP_INTEGER) {
        *ret_value = node->integer;
        return true;
    }
    return (node->type == RESP_SIMPLE || node->type == RESP_BLOB) &&
           read_int64(node->text, node->size, ret_value);
}
