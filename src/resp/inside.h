/* inside.h: a reader of RESP, for the files of this room.
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
 *     have moved to a larger one. So nothing in what lies there matters. It has the usual sizes.
 *
 *     memory.c   where bytes and nodes are, and whose
 *     reader.c   what the bytes say */
#ifndef RESP_INSIDE_H
#define RESP_INSIDE_H

#include "resp/resp.h"

/* What a connection keeps between values, or leaves to others; more is given back. */
#define BUFFER_USUAL 16384
#define NODES_USUAL 128
/* A ceiling under everything that is added up, so that no sum overflows. */
#define SIZE_CEILING (SIZE_MAX / 8)

struct kind; /* of a line: reader.c */

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

/* memory.c */
/* Ends the life of the value that was handed out. What a huge one took is given back at once: the
 * connection may be idle from now on. */
void reader_forget_value(struct resp_reader *reader);
/* Room for at least one more. False: out of memory. */
bool reader_more_nodes(struct resp_reader *reader);

#endif
