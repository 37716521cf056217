/* args.h: options of a command, as one table that serves parsing, --help and "did you mean". */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "cli/cli.h"

struct args;

struct option_spec {
    int id;            /* the letter for those that have one, else from 256 up */
    const char *name;  /* "wait" */
    const char *value; /* what to call its value in the help ("DUR"); NULL: takes none */
    const char *help;  /* NULL: works, but is not shown (names that flock(1) users type) */
};

struct command {
    const char *name, *summary;
    const char *usage;                 /* after "holdfast COMMAND" */
    const char *description;           /* of --help */
    const struct option_spec *options; /* ended by an all-zero row; NULL: none */
    bool takes_json;
    bool for_eval; /* a shell evaluates its output: when it fails, that must fail, too */
    const char *examples, *statuses; /* of --help */
    /* Returns the exit status. */
    int (*run)(struct cli *cli, struct args *args);
};

struct args {
    struct cli *cli;
    const struct command *command;
    char **words;
    int count, at;
    const char *cluster; /* the rest of "-nq" */
    bool literal;        /* after "--" */
    const char *value;   /* of the option or the word just returned */
};

/* What args_next answers besides an option's id. */
enum {
    ARGS_END = -1,
    ARGS_WORD = -2,  /* not an option: in args->value */
    ARGS_USAGE = -3, /* wrong, and already said so: return EXIT_USAGE */
    ARGS_HELPED = -4 /* --help was printed: return EXIT_DONE */
};

/* The next option or word. --on, --json and --help never come up here: they are done inside. */
int args_next(struct args *args);
/* What is left, literally, without a "--" in front. */
char **args_rest(struct args *args);
/* The status to return when args_next gave a negative answer that ends the command. */
int args_status(int answer);

/* Says what is wrong with the command line and points to --help. Returns EXIT_USAGE. */
int args_complain(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Which of these names the word is: what comes first on the command line of a command that does several things. -1: none of them, and that was
 * complained of. At most ARGS_NAMES_MAX. */
#define ARGS_NAMES_MAX 16u
int args_pick(const struct args *args, const char *const *names, size_t count, const char *word);

/* The usual shape of a query: no options of its own, min to max words. Returns 0, or 1 with the
 * exit status in *ret_status. */
int args_words(struct args *args, const char **ret_words, int min, int max, int *ret_count,
               int *ret_status);

/* Strict values; on failure they have said why and return false. */
bool args_duration(const struct args *args, const char *option, int64_t min_ms, int64_t max_ms,
                   int64_t *ret_ms);
bool args_number(const struct args *args, const char *option, uint64_t min, uint64_t max,
                 uint64_t *ret_value);
bool args_name(const struct args *args, const char *name);
bool args_key(const struct args *args, const char *key);

void args_help(const struct command *command);

#endif
