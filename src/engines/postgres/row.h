/* row.h: what row.c and row_watch.c share. */
#ifndef ENGINES_POSTGRES_ROW_H
#define ENGINES_POSTGRES_ROW_H

#include "engines/postgres/store.h"

#define ROW_BY_FLOOR "the store was declared to be another one (holdfast floor)"

enum row_state { ROW_NONE, ROW_ASKED, ROW_HELD };

/* claim->private */
struct row_claim {
    struct engine_claim *claim;
    struct list
        node; /* of store->rows, while it holds. The mutex's, as all below when it is in there */
    struct connection *conn;
    enum row_state state;
    bool asking;      /* whether it is alive: an answer is awaited */
    int64_t asked_ms; /* or when it was last known to be */
    uint32_t era;     /* in which the row was asked for */
    struct key key;
    unsigned char lease[32];
    char incarnation[PG_INCARNATION_MAX + 1]; /* that gave the token */
    int bell_fd;                              /* an eventfd for `wake`; -1: none */
    bool observed;
};

/* From here on its holder is told when the connection ends. False: there is nobody to watch it. */
bool row_watch(struct engine_store *store, struct row_claim *own);
void row_unwatch(struct engine_store *store, struct row_claim *own);

#endif
