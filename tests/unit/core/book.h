/* book.h: what clients may rely on, kept by somebody who sees only commands and effects: who was told that he holds what, who waits in
 * which order, until when a lease may be believed in, which names are withheld, which results are known. It shares nothing with the model.
 * An effect that breaks one of these says so:
 *
 *   [B1] one holder if it is exclusive, never beside shared ones, at most N of N permits; ghosts count until their time is over.
 *   [B2] every token is greater than all that were told before it.
 *   [B3] who holds a name and asks again is told the same token.
 *   [B4] nobody is granted a name before somebody who waits for it longer.
 *   [B5] no lease ends early, and no place while it may wait; none outlives its time.
 *   [B6] a lease that was ended gets nothing for as long as it is remembered.
 *   [B7] a result is told to all who ask, for as long as it is kept. */
#ifndef TESTS_CORE_BOOK_H
#define TESTS_CORE_BOOK_H

#include "compare.h"

#define BOOK_LEASES 4
#define BOOK_GHOSTS 16

enum book_state { BOOK_NOTHING, BOOK_WAITS, BOOK_HOLDS };

struct book_claim {
    enum book_state state;
    int mode;
    bool kept;
    uint32_t permits;
    uint64_t number; /* token, or ticket */
    int64_t delay_ms;
    int64_t wait_until_ms; /* INT64_MAX: for ever */
};

struct book_lease {
    uint32_t ttl_ms;
    int64_t until_ms; /* may be believed in; later, while a place of it is kept */
    int64_t ended_until_ms;
};

struct book_ghost {
    bool used;
    int name, mode;
    uint64_t token;
    int64_t until_ms;
};

struct book_result {
    uint64_t token;
    int64_t until_ms; /* 0: none */
};

struct book {
    int64_t now_ms;
    uint64_t last_token, last_ticket;
    struct book_lease leases[BOOK_LEASES];
    struct book_claim claims[MODEL_NAMES][BOOK_LEASES];
    struct book_ghost ghosts[BOOK_GHOSTS];
    struct book_result results[MODEL_NAMES];
};

/* What an entry brought, and what came out of it. False: it should not have, and ret_wrong says why. */
bool book_entry(struct book *book, const struct model_command *commands, uint32_t count,
                uint32_t elapsed_ms, bool new_term, const struct events *events,
                char ret_wrong[WRONG_MAX]);
bool book_is_kept(const struct book *book, int who);

#endif
