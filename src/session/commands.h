/* commands.h: what a command of a client is, for whoever writes one: this room those about locks, its owner others. */
#ifndef SESSION_COMMANDS_H
#define SESSION_COMMANDS_H

#include "session/rights.h"
#include "session/session.h"

enum verdict {
    VERDICT_DONE,    /* answered, or submitted */
    VERDICT_REFUSED, /* `refusal` says why */
    VERDICT_LATER,   /* not while others of this session are under way */
    VERDICT_FULL     /* the batch is full, or as much is being read as may be at once */
};
enum trait {
    COMMAND_LOGGED = 1,     /* goes through the log */
    COMMAND_OPEN = 2,       /* may be said before the password */
    COMMAND_SUBSCRIBED = 4, /* may be said in RESP2 after SUBSCRIBE */
    COMMAND_WRITES = 8      /* changes something */
};
/* Which of its words are names of locks, on which a right may depend. */
enum names {
    NAMES_NONE,
    NAMES_FIRST,   /* the one behind the command */
    NAMES_SECOND,  /* the one behind the two words of the command */
    NAMES_ALL,     /* all behind the command */
    NAMES_CHECKED, /* a name, or a sequencer, in which there is one */
    NAMES_LEASES /* leases, by which nothing can be told: clients of a cluster send it like one with names */
};
struct command {
    const char *name;
    int arity; /* words with the name, or both names; negative: at least so many */
    enum verdict (*run)(struct session *session, const struct resp_node *value);
    int traits;
    enum right right;
    enum names names;
    const char *summary, *syntax;
    const struct command *
        parts; /* by their second word; the last one has no name. Then it is their run, traits, right and names. */
};
/* Of the sessions: first those about locks, then the owner's. NULL: there are no more. */
const struct command *command_at(const struct sessions *sessions, size_t index);
size_t command_count(const struct sessions *sessions);
/* NULL: there is none. */
const struct command *command_find(const struct sessions *sessions, const struct resp_node *word);
/* Of one that has parts. */
const struct command *command_part(const struct command *command, const struct resp_node *word);
enum verdict command_run(struct session *session, const struct resp_node *value);

/* May its user see this name? Whoever has connected may, where there are no users. */
bool session_may_look(const struct session *session, struct core_text name);

/* Is there nothing that it observes, and may not see (any more)? */
bool session_observes_rightly(const struct session *session, const struct user *user);

/* Says why the present command is refused: "ERR …". The answer goes out when it is its turn. */
enum verdict refuse(struct session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- request.c: a command that is under way ------------------------------------------------- */

/* The words of a command, copied. */
struct words {
    uint32_t count;
    struct core_text word[]; /* each with a NUL behind it */
};

/* What it will be answered like. */
struct request {
    struct session *session; /* outlives it */
    bool push;               /* ACQUIRE … PUSH */
    bool waits;              /* ACQUIRE … WAIT: nothing else of the session begins meanwhile */
    bool once;               /* of a once-record */
    uint32_t parts, total;   /* RENEW: answers still to come, of so many; else 0 */
    int64_t began_us;
    uint32_t rows;   /* that its answer may have to go through, of one that may be long */
    uint64_t about;  /* whatever a command of the owner's has to remember */
    void *operation; /* of an operator's command; NULL: it is none */
    /* Of something that is read: writes the answer, when its place in the log is reached. */
    void (*read)(struct session *session, const struct words *words);
    /* A copy of what is needed later: the name and lease of an ACQUIRE that waits, or the words of
     * something that is read. Freed with the request. */
    struct words *words;
    struct list node; /* in the spare ones */
};

/* One that is not for the log: it is under way until request_finish. Nothing else of its session begins. */
struct request *request_begin(struct session *session);
void request_forget(struct request *request); /* it did not begin after all */
/* Its answer is in `out`. */
void request_finish(struct request *request);
/* Its answer is this error: a word in capitals, and then a sentence. */
void request_fail(struct request *request, const char *text);
/* Its answer is what `refuse` was told last. */
void request_refuse(struct request *request);

/* ---- cmd_args.c: words of commands. False: refused. ----------------------------------------- */

struct words_left {
    struct session *session;
    const struct resp_node *value;
    uint32_t at;  /* the next word */
    uint32_t had; /* options seen, as bits */
};
/* A command's words are all strings, so that they lie side by side behind it. NULL: no such word. */
static inline const struct resp_node *word_at(const struct resp_node *value, uint32_t index)
{
    return index < value->count ? &value[1 + index] : NULL;
}
bool word_is(const struct resp_node *word, const char *text); /* whatever the case */
struct core_text word_text(const struct resp_node *word);
bool parse_number(struct session *session, const struct resp_node *word, const char *what,
                  uint64_t min, uint64_t max, uint64_t *ret_number);
/* The next word is this option, and its value (if it has one) follows. */
bool option_is(struct words_left *left, const char *name, uint32_t bit);
bool option_number(struct words_left *left, const char *what, uint64_t min, uint64_t max,
                   uint64_t *ret_number);
bool option_unknown(struct words_left *left); /* always false */

/* ---- for the owner's table, and its HELLO --------------------------------------------------- */

enum verdict command_subscribe(struct session *session, const struct resp_node *value);
enum verdict command_unsubscribe(struct session *session, const struct resp_node *value);
/* It is told of losses no more. */
void holders_drop(struct session *session);

#endif
