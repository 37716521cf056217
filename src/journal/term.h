/* term.h: the term and the vote of this node: file "term". It is written twice, one copy after the other,
 * so that neither a write that was cut short nor one damaged block loses what was promised. */
#ifndef JOURNAL_TERM_H
#define JOURNAL_TERM_H

#include "journal/directory.h"

struct term {
    bool known; /* false: nothing was ever stored */
    uint64_t version, number, vote;
    unsigned older; /* of the two copies: which of them may be lost */
    bool once;      /* only one of them holds this: a write was cut short, or a block is damaged */
};

/* HF_EIO: it is there and cannot be read. */
int term_load(const struct directory *directory, struct term *ret_term, struct error_text *err);
/* Whoever is about to act on what was loaded makes both copies hold it: else one damaged block brings back the term before it,
 * and a vote is forgotten. */
int term_mend(const struct directory *directory, struct term *term, struct error_text *err);
/* Durable when it returns HF_OK. HF_EIO: it may or may not be there, and must be loaded before the next one is stored. */
int term_store(const struct directory *directory, struct term *term, uint64_t number, uint64_t vote,
               struct error_text *err);

#endif
