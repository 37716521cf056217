/* settings.h: the table of all settings. A new one is a field of struct config, a row in settings.c,
 * and its lines in dist/holdfastd.conf and man/holdfastd.conf.5, which a test asks for. */
#ifndef SERVER_SETTINGS_H
#define SERVER_SETTINGS_H

#include "server/config.h"

#include <stddef.h>

#define SETTING_TEXT_MAX 4608   /* a value as text: a full list of places to listen at */
#define SETTING_VARIABLE_MAX 64 /* "HOLDFASTD_MAX_CLIENTS" */
#define SETTING_PREFIX "HOLDFASTD_"

struct setting;

struct setting_kind {
    const char *value_name;
    int (*parse)(const struct setting *setting, const char *text, void *field,
                 struct error_text *err);
    void (*show)(const struct setting *setting, const void *field, char *ret_text);
};

struct setting {
    const char *name; /* "max-clients": in the file, and as a flag after "--" */
    const struct setting_kind *kind;
    size_t offset;        /* of its field in struct config */
    const char *standard; /* the default, as somebody would write it; "": none */
    uint64_t min, max;    /* of numbers, sizes, durations (ms) and modes */
    const char *const *choices;
    const char *group, *help; /* one line each */
    const char *example;      /* of what has no default */
    bool per_user;            /* `standard` is root's default, config.c finds that of others */
    bool lone;                /* as a flag it may stand alone, and means "yes" */
};

extern const struct setting settings[];
extern const size_t setting_count;

/* What to call the value in the help: "SIZE". */
const char *setting_value_name(const struct setting *setting);
/* Checks the text and puts its value into config. A message says what is wrong with the text, not
 * where it came from. On failure config is as it was. */
int setting_set(const struct setting *setting, const char *text, struct config *config,
                struct error_text *err);
/* The reverse; "" for a path that is not set. */
void setting_get(const struct setting *setting, const struct config *config,
                 char ret_text[SETTING_TEXT_MAX]);
void setting_variable(const struct setting *setting, char ret_name[SETTING_VARIABLE_MAX]);

#endif
