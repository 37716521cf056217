/* resp.h: reading and writing RESP2 and RESP3, the protocol of Redis and of holdfastd. Bytes in,
 * values out, and the reverse: no sockets, no clocks.
 *
 * Why our own and not hiredis: one reader has to serve a client (replies and pushes) and a server
 * (commands); hiredis 0.14, which Debian 12 has, refuses RESP3 pushes and knows neither TLS nor a
 * ceiling on what a peer may send. What is left of it would be the formatter.
 *
 * Everything from outside has a limit, named here; what breaks it is an error, never an abort. */
#ifndef RESP_RESP_H
#define RESP_RESP_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESP_DEPTH_MAX 8    /* arrays within arrays, empty ones and attributes too */
#define RESP_LINE_MAX 65536 /* bytes of a line's text: simple strings, errors, numbers */

struct resp_limits {
    size_t blob_max;  /* bytes of one string; of a verbatim one with its "txt:" */
    size_t value_max; /* bytes of one whole value, as it comes over the wire */
    size_t nodes_max; /* values within one value, itself and dropped attributes included */
};

enum resp_type {
    RESP_SIMPLE = 1, /* +OK */
    RESP_ERROR,      /* -ERR words, or RESP3's !21 */
    RESP_INTEGER,    /* :42 */
    RESP_BLOB,       /* $5 hello, or RESP3's verbatim =9 txt:hello, without its "txt:" */
    RESP_NIL,        /* $-1, *-1, or RESP3's _ */
    RESP_BOOL,       /* #t; integer is 0 or 1 */
    RESP_DOUBLE,     /* ,3.14; as text */
    RESP_BIG,        /* (349..; as text */
    RESP_ARRAY,      /* *2 */
    RESP_SET,        /* ~2 */
    RESP_MAP,        /* %2; count is of keys and values together: an even number */
    RESP_PUSH        /* >2; only at the top */
};
/* RESP3 attributes (|) are read and dropped. */

/* One value. A value with items is followed in memory by them, in order, each with its own. */
struct resp_node {
    enum resp_type type;
    uint32_t span;    /* how many nodes it and all within it take */
    uint32_t count;   /* items of an array, set, map or push */
    size_t size;      /* bytes of text */
    const char *text; /* simple, error, blob, double, big: not terminated, may contain anything */
    int64_t integer;  /* integer, bool */
};

/* The item at `index`, or NULL if there is none (also when `node` is NULL or has no items). */
const struct resp_node *resp_item(const struct resp_node *node, uint32_t index);
/* Is it a simple string, blob or error of exactly these bytes? */
bool resp_is(const struct resp_node *node, const char *text);
/* An integer, or a simple string or blob of digits with an optional sign. */
bool resp_to_int64(const struct resp_node *node, int64_t *ret_value);

/* ---- reading --------------------------------------------------------------------------------- */

struct resp_reader; /* one connection's */

/* NULL: out of memory. limits are copied. */
struct resp_reader *resp_reader_new(const struct resp_limits *limits);
void resp_reader_free(struct resp_reader *reader);
/* Other limits, for values that have not begun yet. */
void resp_reader_limit(struct resp_reader *reader, const struct resp_limits *limits);

/* Room for more bytes: at least `least`, and as many as *ret_size says. NULL: out of memory. Ends
 * the life of the last value. After reading into it, say how many came. Meant for when
 * resp_reader_next has nothing more to give: only then the memory stays within value_max and what
 * was asked for here. */
char *resp_reader_room(struct resp_reader *reader, size_t least, size_t *ret_size);
void resp_reader_filled(struct resp_reader *reader, size_t size);

/* HF_OK with *ret_value NULL: more bytes are needed. Else *ret_value is the next value, which lives
 * until the next call of resp_reader_next or resp_reader_room. HF_EREFUSED: broken framing or a
 * limit; HF_ENOMEM. After an error the reader is of no use any more. A value that arrives in many
 * pieces is looked at once, not once per piece. */
int resp_reader_next(struct resp_reader *reader, const struct resp_node **ret_value,
                     struct error_text *err);
/* Bytes that have come and belong to no value yet handed out. */
size_t resp_reader_pending(const struct resp_reader *reader);

/* What readers that have nothing to read leave to each other, so that many of them use the same
 * memory: one that is idle has none, and what is read comes to where the last was read a moment ago.
 * For readers of one thread. Begin with {0}. */
struct resp_spare {
    char *bytes;
    struct resp_node *nodes;
};

void resp_spare_free(struct resp_spare *spare);
/* From now on the reader takes its memory from there, and leaves it there when it rests. Borrowed:
 * it is there for as long as the reader is used, except for resp_reader_free. */
void resp_reader_share(struct resp_reader *reader, struct resp_spare *spare);
/* Nobody looks at the last value any more: ends its life. If no byte is pending either, the reader
 * does without memory until it is asked for room. One that shares with nobody keeps it. */
void resp_reader_rest(struct resp_reader *reader);

/* ---- writing --------------------------------------------------------------------------------- */

/* A growing buffer. Begin with {0}. A failure to grow is remembered in `failed`, so that only the
 * end has to be checked. */
struct resp_writer {
    char *bytes;
    size_t size, capacity;
    bool failed;
};

void resp_writer_free(struct resp_writer *writer);
/* Forgets the content, keeps the memory. */
void resp_writer_clear(struct resp_writer *writer);

/* "*3\r\n": then so many values. A command is an array of blobs. */
void resp_write_array(struct resp_writer *writer, size_t count);
void resp_write_blob(struct resp_writer *writer, const void *bytes, size_t size);
void resp_write_text(struct resp_writer *writer, const char *text); /* a blob */
void resp_write_number(struct resp_writer *writer, int64_t number); /* a blob of digits */
/* Bytes that are RESP already. */
void resp_write_raw(struct resp_writer *writer, const void *bytes, size_t size);
/* For a server's replies. */
void resp_write_simple(struct resp_writer *writer, const char *text); /* in both of these */
void resp_write_error(struct resp_writer *writer, const char *text);  /* CR and LF become blanks */
void resp_write_integer(struct resp_writer *writer, int64_t number);
void resp_write_nil(struct resp_writer *writer, bool resp3);
void resp_write_map(struct resp_writer *writer, size_t pairs, bool resp3); /* RESP2: an array */
void resp_write_push(struct resp_writer *writer, size_t count, bool resp3);

#endif
