/* note.h: what an operator should know, from a room that has no log of its own: its host writes it down.
 *
 * The words are the same each time; ids, addresses and what other programs said stand beside them, so that a log can be searched by
 * them and nobody's text becomes part of a sentence of ours. */
#ifndef BASE_NOTE_H
#define BASE_NOTE_H

#include <stdint.h>

struct note {
    int level; /* of enum log_level by number: 1 error … 4 debug */
    const char *words;
    uint64_t node;    /* the id of the node that it is about; 0: none */
    const char *peer; /* that node's address; NULL or "": not known */
    const char *why;  /* NULL: the words say all */
};

#endif
