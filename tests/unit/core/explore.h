/* explore.h: every sequence of commands that a few leases can give for a few names, within bounds. explore.c goes through them, breadth
 * first (tests/lib/explore/search.h); explore_runs.c has the runs, explore_steps.c what may happen in a state, explore_canonical.c
 * which states are the same, and book.h what must hold whatever the model says. */
#ifndef TESTS_CORE_EXPLORE_H
#define TESTS_CORE_EXPLORE_H

#include "book.h"
#include "compare.h"

#include "search.h"

#include <stdio.h>

#define STEP_COMMANDS 2        /* in one entry, at most */
#define EXPLORE_STEPS_MAX 2048 /* from one state */
#define EXPLORE_CLAIMS 64      /* of the model's, more are never in use */

enum explore_kind {
    STEP_COMMAND = 1, /* an entry with one command */
    STEP_PAIR,        /* an entry with two, and perhaps time before them */
    STEP_TIME,        /* an entry that only brings time */
    STEP_TERM,        /* the first entry of another leader's term */
    STEP_SNAPSHOT,    /* a snapshot is begun */
    STEP_WRITE, /* one more record of it is written; after the last it is restored, and must catch up */
    STEP_GIVE_UP, /* nobody wants it any more */
    STEP_RESTORE, /* the table goes on as one that was restored from its snapshot */
    STEP_KINDS
};

/* Which command of the run, for which name and lease. */
struct explore_target {
    uint8_t command;
    uint8_t name : 4, who : 4;
};

struct explore_step {
    uint8_t kind;
    uint8_t count; /* of commands */
    uint16_t elapsed_ms;
    struct explore_target targets[STEP_COMMANDS];
};

/* The token of a RELEASE or FINISH, the attachment of a LEAVE, or how far a FLOOR is. */
enum explore_number {
    NUMBER_NONE,  /* 0 */
    NUMBER_RIGHT, /* the claim's, or the record's; a FLOOR above the last token */
    NUMBER_OTHER  /* another one; a FLOOR below it */
};

/* A command that may be given, by any lease and for any name. */
struct explore_command {
    struct core_command base; /* without texts; with CORE_ONCE: for once-records' keys only */
    enum explore_number number;
    bool all; /* RENEW: all leases in one command */
    int user; /* ACQUIRE with QUOTA: of the model */
};

/* How time passes. Only what lies between now and the deadlines matters to the table. */
enum explore_time {
    TIME_GRID, /* in units, of which all spans are multiples: a finite world however long it goes on */
    TIME_EDGES, /* to the millisecond before the next deadline, to it, to the one after it; and the same for the last of all */
};

#define GRID_MS 50
#define EXPLORE_COMMANDS_MAX 16
#define EXPLORE_BEGIN_MAX 6
#define EXPLORE_WAY_MAX (EXPLORE_BEGIN_MAX + SEARCH_DEPTH_MAX + 2)
#define EXPLORE_PACKED_MAX 512u /* bytes of an entry */

struct explore_run {
    const char *name, *bounds;
    int leases, names, once_keys;
    struct explore_command commands[EXPLORE_COMMANDS_MAX]; /* up to the first without an op */
    enum explore_time time;
    uint64_t first_token; /* the table begins with a FLOOR to it; 0: without */
    /* How it begins, up to the first without a kind. */
    struct explore_step begin[EXPLORE_BEGIN_MAX];
    uint8_t most[STEP_KINDS]; /* of each kind, so many in all; EXPLORE_ANY: any number */
    uint64_t states;          /* in the short form */
};

#define EXPLORE_ANY 255

/* All that is known of a state but the table itself. */
struct explore_state {
    struct model *model;
    struct book book;
    uint8_t done[STEP_KINDS]; /* of the kinds that are bounded */
    /* The snapshot that is being written. */
    bool saving;
    int saved_at;        /* steps of the way when it was begun */
    uint64_t saved_hash; /* core_hash at that time */
    uint64_t saving_way; /* the states in which it was begun and went on */
};

extern const struct explore_run explore_runs[];
extern const int explore_run_count;
extern const struct compare_texts explore_texts;

/* One step of the way as the table takes it. */
struct explore_packed {
    struct explore_step step;
    unsigned char bytes[EXPLORE_PACKED_MAX];
    size_t size;
};

struct explorer {
    const struct explore_run *run;
    struct explore_state state, next; /* that is being looked at, and after one more step */
    int depth;
    int begun;                                  /* steps of the way before the first state */
    struct explore_packed way[EXPLORE_WAY_MAX]; /* from 1 on; the FLOOR before it, if any, is 0 */
    void *saved;                                /* the table of `state`, for twins */
    size_t saved_size;
    struct core_packer packer;
    struct events of_lived, of_twin;
    char wrong[WRONG_MAX];
};

/* ---- explore_steps.c ---- */
int explore_steps(const struct explore_run *run, const struct explore_state *state,
                  struct explore_step ret_steps[EXPLORE_STEPS_MAX]);
bool explore_is_entry(const struct explore_step *step);
/* The commands of an entry as the model sees them. What they say depends on the state: on tokens, for example. */
void explore_entry(const struct explore_run *run, const struct explore_state *state,
                   const struct explore_step *step,
                   struct model_command ret_commands[STEP_COMMANDS]);
/* The same as the table sees them. The packer is empty before. */
void explore_pack(const struct explore_step *step,
                  const struct model_command commands[STEP_COMMANDS], struct core_packer *packer);
/* The step in the words of scripts, with its newline; what scripts cannot say is a comment. */
void explore_words(FILE *out, const struct explore_step *step,
                   const struct model_command commands[STEP_COMMANDS]);

/* ---- explore_canonical.c ---- */
/* Equal for all states that have the same future. Not 0. */
uint64_t explore_fingerprint(const struct core *table, const struct explore_state *state);
/* Of the table alone. */
uint64_t explore_canonical(const struct core *table);
/* Is a snapshot of it being written? */
bool explore_is_saving(const struct core *table);

/* ---- explore_take.c ---- */
bool explore_wrong(struct explorer *explorer, const char *words); /* false */
/* The state before the way. The model in it stays, and is filled. */
void explore_new(struct explorer *explorer, struct explore_state *state);
/* A table that has lived through the first so many steps of the way. */
struct core *explore_live(struct explorer *explorer, int depth);
/* The step on such a table; it may be another one afterwards. */
struct core *explore_step_table(struct core *table, const struct explore_packed *packed,
                                const struct core_sink *sink);
/* The step with the model, and with the book if the table's effects are there. */
bool explore_step_state(struct explorer *explorer, struct explore_state *state,
                        const struct explore_step *step, const struct model_command *commands,
                        const struct events *events);
/* Takes a step on a way that was gone before: the state is the one after it. */
struct core *explore_again(struct explorer *explorer, struct core *table,
                           const struct explore_step *step, int depth);
/* After the last of them: this table has lived through the way, and is freed. */
void explore_save(struct explorer *explorer, struct core *table);
/* Takes a step from the state, as the last of the way, and looks at everything. The fingerprint of where it leads; 0: something is wrong. */
uint64_t explore_take(struct explorer *explorer, const struct explore_step *step);
/* All connections are gone, and time passes: does the table become empty? */
bool explore_drains(struct explorer *explorer);

#endif
