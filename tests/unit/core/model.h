/* model.h: the lock table once more, as simply as it can be written: arrays and linear search, no
 * lists, no heap, no hash, no bytes. It is what core.h promises, and knows nothing of src/core but
 * that header. The random test holds the two against each other.
 *
 * It knows names and leases by small numbers. Slots are indices of its arrays, and the lowest free
 * one is taken: core.h says that the slot decides which of two equal deadlines ends first. */
#ifndef TESTS_CORE_MODEL_H
#define TESTS_CORE_MODEL_H

#include "core/core.h"

#define MODEL_NAMES 10 /* of these, the last are keys of once-records */
#define MODEL_ONCE 7   /* the first of them */
#define MODEL_LEASES 40
#define MODEL_CLAIMS 1024
#define MODEL_EVENTS 65536
#define NOBODY (-1)
#define MODEL_USERS 2 /* from 1 on; 0: a user without limits */

struct model_lease {
    bool used, ended;
    int who, user;
    uint32_t ttl_ms;
    int64_t deadline_ms; /* it does not come while one of its places is kept */
};

struct model_claim {
    bool used, kept, no_heir;
    enum core_state state;
    int name, who; /* NOBODY: a ghost */
    int user;      /* of a ghost: whose hold it was */
    int mode;
    uint64_t number; /* token or ticket */
    uint64_t delay_ms;
    int64_t since_ms, deadline_ms; /* INT64_MAX: none */
    uint32_t attachment;
};

struct model_name {
    bool used;
    int name;
    uint32_t permits;
    bool done, died;
    int result;
    uint64_t result_token;
    int64_t deadline_ms; /* of its record */
};

/* One command, with numbers for texts. */
struct model_command {
    struct core_command base; /* all but the texts */
    int name, who, result;
    int user; /* with CORE_QUOTA */
    int renewed[8];
};

/* One effect, with numbers for texts. */
struct model_event {
    enum core_effect_kind kind;
    uint32_t command;
    enum core_answer answer;
    enum core_why why;
    uint64_t number, ticket;
    uint32_t attachment;
    int name, who, result;
};

struct model {
    struct model_lease leases[MODEL_LEASES];
    struct model_claim claims[MODEL_CLAIMS];
    struct model_name names[MODEL_NAMES];
    int64_t now_ms;
    uint64_t last_token, last_ticket;
    uint32_t last_attachment;
    struct model_event events[MODEL_EVENTS]; /* of the last entry */
    int event_count;
    int claims_end; /* no claim from here on is in use */
};

/* What a user has. */
struct core_usage model_usage(const struct model *model, int user);
void model_apply(struct model *model, const struct model_command *commands, uint32_t count,
                 uint32_t elapsed_ms, bool new_term);
/* The claim of this lease on this name, or NULL. */
const struct model_claim *model_find(const struct model *model, int name, int who);
/* The claims of a name in this list, in order: holds and ghosts by token, or places by ticket. */
int model_list(const struct model *model, int name, bool places,
               const struct model_claim **ret_claims);
/* Or -1: a connection keeps it. The lease must be there. */
int64_t model_left_ms(const struct model *model, int who);
/* Until when the holder of a living lease may believe in it. */
int64_t model_end_ms(const struct model *model, int who);
/* The earliest of all, or -1. */
int64_t model_next_deadline(const struct model *model);

#endif
