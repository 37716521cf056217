/* reader.c: a state machine over the bytes of one connection. inside.h says what holds between calls. */
#include "resp/inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* Those that come most are found first. */
static const struct kind kinds[] = {
    {'$', SHAPE_BODY, RESP_BLOB, true, "a string"},
    {'*', SHAPE_ITEMS, RESP_ARRAY, true, "an array"},
    {':', SHAPE_LINE, RESP_INTEGER, false, "an integer"},
    {'+', SHAPE_LINE, RESP_SIMPLE, false, "a simple string"},
    {'-', SHAPE_LINE, RESP_ERROR, false, "an error"},
    {'_', SHAPE_LINE, RESP_NIL, false, "a nil"},
    {'#', SHAPE_LINE, RESP_BOOL, false, "a boolean"},
    {',', SHAPE_LINE, RESP_DOUBLE, false, "a double"},
    {'(', SHAPE_LINE, RESP_BIG, false, "a big number"},
    {'!', SHAPE_BODY, RESP_ERROR, false, "an error"},
    {'=', SHAPE_BODY, RESP_BLOB, false, "a verbatim string"},
    {'~', SHAPE_ITEMS, RESP_SET, false, "a set"},
    {'%', SHAPE_PAIRS, RESP_MAP, false, "a map"},
    {'>', SHAPE_ITEMS, RESP_PUSH, false, "a push"},
    {'|', SHAPE_ATTRIBUTE, RESP_MAP, false, "an attribute"},
};

/* ---- nodes ----------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct resp_node *add_node(struct resp_reader *reader, enum resp_type type)
{
    struct resp_node *node;

    if (reader->node_count == reader->node_capacity && !reader_more_nodes(reader))
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
        reader_forget_value(reader);
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
