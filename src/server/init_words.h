/* init_words.h: why a CLUSTER INIT was refused, in words: who is in the way, whole, in one line of limited length. */
#ifndef SERVER_INIT_WORDS_H
#define SERVER_INIT_WORDS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

#define INIT_WORDS_MAX 400 /* a client puts its own words before them, within ERROR_TEXT_MAX */
#define INIT_OR_RESTORE                                                                           \
    "if a majority has lost its data, begin anew with 'holdfastd --restore-from', from a backup " \
    "or the directory of a survivor"

/* Is this member in the way, or does it lack the record? */
bool init_is_in_the_way(const struct server *server, int i, bool founded);
/* "ERR what: node 2 at db2:7431 lists other members, ...", or NOREPLY if all in the way only do not answer; for `to`, the node that was asked. What does not fit is left out in
 * whole pieces: first the lists, then the addresses. */
void init_words(const struct server *server, const char *what, bool founded, uint64_t to,
                char ret_text[ERROR_TEXT_MAX]);

#endif
