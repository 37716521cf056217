/* config.c: where settings come from, in their order. What a setting is
 * called and how its value is read is settings.c's business, and what may not be together config_rules.c's. */
#include "server/config.h"
#include "base/conf.h"
#include "base/suggest.h"
#include "server/settings.h"
#include "server/tls_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEE_HELP " (see 'holdfastd --help')"
#define WORDS_MAX 64 /* bytes of a name that somebody typed, when it is quoted */

/* Work that is done once, so no setting: in a file or a unit it would be forgotten there. */
#define RESTORE "restore-from"
/* What that was before, and did harm when it was forgotten. */
#define RESTORE_IS_WORK                                         \
    " is no setting: it is done once, by 'holdfastd --" RESTORE \
    " BACKUP --data DIR'; then start the "                      \
    "server without it"
#define RESTORED "restored"
#define RESTORED_IS_GONE                                                                       \
    " is not known any more: restore with 'holdfastd --" RESTORE " BACKUP --data DIR', once, " \
    "then start the server without it"

enum source { FROM_DEFAULT = 0, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG };

/* Flags that are not settings. */
static const struct word {
    const char *name, *value; /* value: what to call it in the help; NULL: takes none */
    enum config_ask ask;
    const char *help;
} words[] = {
    {"config", "FILE", CONFIG_RUN, "reads settings from FILE instead of " CONFIG_FILE},
    {"check-config", NULL, CONFIG_CHECK, "checks all settings, prints those in effect, and ends"},
    {RESTORE, "BACKUP", CONFIG_RESTORE,
     "makes the data directory from a backup, as another store, and ends"},
    {"help", NULL, CONFIG_HELP, "prints this, and ends"},
    {"version", NULL, CONFIG_VERSION, "prints the version, and ends"},
};
#define WORD_COUNT (sizeof words / sizeof *words)

/* ---- names ----------------------------------------------------------------------------------- */

/* setting_count if there is none. */
static size_t find_setting(const char *name, size_t length)
{
    size_t i = 0;

    while (i < setting_count &&
           (strlen(settings[i].name) != length || memcmp(settings[i].name, name, length) != 0))
        i++;
    return i;
}

static const struct word *find_word(const char *name, size_t length)
{
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (strlen(words[i].name) == length && memcmp(words[i].name, name, length) == 0)
            return &words[i];
    return NULL;
}

/* with_words: also the flags that are no settings. */
static const char *nearest_name(const char *typed, bool with_words)
{
    const char *names[CONFIG_SETTINGS_MAX + WORD_COUNT];
    size_t count = 0;

    for (size_t i = 0; i < setting_count; i++)
        names[count++] = settings[i].name;
    for (size_t i = 0; with_words && i < WORD_COUNT; i++)
        names[count++] = words[i].name;
    return suggest_nearest(typed, names, count);
}

/* ---- flags, first pass: what is there -------------------------------------------------------- */

struct flags {
    const char *values[CONFIG_SETTINGS_MAX]; /* by row; NULL: not given */
    const char *file, *restore_from;
    enum config_ask ask;
};

static int unknown_flag(const char *name, size_t length, const char *value, struct error_text *err)
{
    char typed[WORDS_MAX];
    const char *near;

    snprintf(typed, sizeof typed, "%.*s", (int)(length < WORDS_MAX ? length : WORDS_MAX), name);
    if (strcmp(typed, RESTORED) == 0)
        return error_set(err, CONFIG_USAGE, "--" RESTORED RESTORED_IS_GONE);
    if (strcmp(typed, "port") == 0) /* as other servers have it */
        return error_set(err, CONFIG_USAGE,
                         "unknown flag '--port': did you mean '--listen 127.0.0.1:%.8s'?",
                         value && value[0] >= '0' && value[0] <= '9' ? value : "PORT");
    near = nearest_name(typed, true);
    if (near)
        return error_set(err, CONFIG_USAGE, "unknown flag '--%s': did you mean '--%s'?", typed,
                         near);
    return error_set(err, CONFIG_USAGE, "unknown flag '--%s'" SEE_HELP, typed);
}

/* The text after '=', or the next argument. */
static int take_value(const struct config_sources *sources, int *at, const char *name,
                      const char *value_name, const char *attached, const char **value,
                      struct error_text *err)
{
    const char *next = *at + 1 < sources->argc ? sources->argv[*at + 1] : NULL;

    if (*value)
        return error_set(err, CONFIG_USAGE, "--%s is there twice: give it once, as --%s %s", name,
                         name, value_name);
    if (!attached && (!next || strncmp(next, "--", 2) == 0))
        return error_set(err, CONFIG_USAGE, "--%s needs a value: --%s %s", name, name, value_name);
    *value = attached ? attached : next;
    *at += attached ? 0 : 1;
    if (!**value)
        return error_set(err, CONFIG_USAGE, "--%s has an empty value: give one, or leave it out",
                         name);
    return CONFIG_DONE;
}

/* One that needs no value. */
static int take_lone(const char *name, const char **value, struct error_text *err)
{
    if (*value)
        return error_set(err, CONFIG_USAGE, "--%s is there twice: give it once", name);
    *value = "yes";
    return CONFIG_DONE;
}

static int take_word(const struct config_sources *sources, int *at, const struct word *word,
                     const char *attached, struct flags *flags, struct error_text *err)
{
    if (word->ask != CONFIG_RUN)
        flags->ask = word->ask;
    if (word->value)
        return take_value(sources, at, word->name, word->value, attached,
                          word->ask == CONFIG_RESTORE ? &flags->restore_from : &flags->file, err);
    if (attached)
        return error_set(err, CONFIG_USAGE, "--%s takes no value" SEE_HELP, word->name);
    return CONFIG_DONE;
}

/* Stops at --help and --version: whoever asks for them is not told of anything else. */
static int scan_flags(const struct config_sources *sources, struct flags *flags,
                      struct error_text *err)
{
    int status = CONFIG_DONE;

    for (int at = 1; at < sources->argc && status == CONFIG_DONE; at++) {
        const char *flag = sources->argv[at], *equals = strchr(flag, '=');
        const char *name = flag + 2, *attached = equals ? equals + 1 : NULL;
        const struct word *word;
        size_t length, row;

        if (strcmp(flag, "-h") == 0)
            name = "help";
        else if (strncmp(flag, "--", 2) != 0)
            return error_set(
                err, CONFIG_USAGE,
                "'%.80s' is one argument too many: settings are given as --name value" SEE_HELP,
                flag);
        length = equals ? (size_t)(equals - name) : strlen(name);
        row = find_setting(name, length);
        word = find_word(name, length);
        if (row < setting_count && settings[row].lone && !attached)
            status = take_lone(settings[row].name, &flags->values[row], err);
        else if (row < setting_count)
            status =
                take_value(sources, &at, settings[row].name, setting_value_name(&settings[row]),
                           attached, &flags->values[row], err);
        else if (word)
            status = take_word(sources, &at, word, attached, flags, err);
        else
            status = unknown_flag(name, length,
                                  attached                 ? attached
                                  : at + 1 < sources->argc ? sources->argv[at + 1]
                                                           : NULL,
                                  err);
        if (flags->ask == CONFIG_HELP || flags->ask == CONFIG_VERSION)
            return status;
    }
    return status;
}

bool config_is_default(const struct config *config, const char *name)
{
    return config->from[find_setting(name, strlen(name))] == FROM_DEFAULT;
}

/* ---- one setting from one source ------------------------------------------------------------- */

/* place: what a message begins with. */
static int apply(struct config *config, size_t row, enum source from, const char *text,
                 const char *place, struct error_text *err)
{
    struct error_text why;

    if (setting_set(&settings[row], text, config, &why) != HF_OK)
        return error_set(err, from == FROM_FLAG ? CONFIG_USAGE : CONFIG_WRONG, "%s: %s", place,
                         why.text);
    config->from[row] = (unsigned char)from;
    return CONFIG_DONE;
}

static void apply_defaults(struct config *config)
{
    for (size_t row = 0; row < setting_count; row++)
        if (!settings[row].per_user && settings[row].standard[0])
            INVARIANT(setting_set(&settings[row], settings[row].standard, config, NULL) == HF_OK);
}

static int apply_flags(struct config *config, const struct flags *flags, struct error_text *err)
{
    int status = CONFIG_DONE;

    for (size_t row = 0; row < setting_count && status == CONFIG_DONE; row++) {
        char place[WORDS_MAX];

        snprintf(place, sizeof place, "--%s", settings[row].name);
        if (flags->values[row])
            status = apply(config, row, FROM_FLAG, flags->values[row], place, err);
    }
    return status;
}

/* ---- the configuration file ------------------------------------------------------------------ */

struct file {
    struct config *config;
    unsigned seen[CONFIG_SETTINGS_MAX]; /* the line of each setting; 0: none yet */
};

static int unknown_name(const struct conf_line *line, struct error_text *err)
{
    const char *near = nearest_name(line->name, false);

    if (strcmp(line->name, RESTORE) == 0)
        return error_set(err, CONFIG_WRONG, "%s:%u: %s" RESTORE_IS_WORK, line->path, line->number,
                         line->name);
    if (strcmp(line->name, RESTORED) == 0)
        return error_set(err, CONFIG_WRONG, "%s:%u: %s" RESTORED_IS_GONE, line->path, line->number,
                         line->name);
    if (near)
        return error_set(err, CONFIG_WRONG, "%s:%u: unknown setting '%.64s': did you mean '%s'?",
                         line->path, line->number, line->name, near);
    return error_set(err, CONFIG_WRONG, "%s:%u: unknown setting '%.64s'" SEE_HELP, line->path,
                     line->number, line->name);
}

static int apply_line(void *context, const struct conf_line *line, struct error_text *err)
{
    struct file *file = context;
    char place[CONFIG_PATH_MAX + WORDS_MAX];
    size_t row = find_setting(line->name, strlen(line->name));

    if (row == setting_count)
        return unknown_name(line, err);
    snprintf(place, sizeof place, "%s:%u: %s", line->path, line->number, line->name);
    if (file->seen[row])
        return error_set(err, CONFIG_WRONG, "%s was set on line %u already", place,
                         file->seen[row]);
    file->seen[row] = line->number;
    return apply(file->config, row, FROM_FILE, line->value, place, err);
}

static int apply_file(struct config *config, const char *path, bool optional,
                      struct error_text *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), status;
    struct file file = {.config = config};

    if (fd < 0 && optional && (errno == ENOENT || errno == ENOTDIR))
        return CONFIG_DONE;
    if (fd < 0)
        return error_set_errno(err, CONFIG_WRONG, errno, "cannot read %s", path);
    status = conf_read(fd, path, CONFIG_WRONG, apply_line, &file, err);
    close(fd);
    return status;
}

/* ---- the environment ------------------------------------------------------------------------- */

static const char *variable(char **environment, const char *name)
{
    size_t length = strlen(name);

    for (char **at = environment; *at; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* Flags that say what is to be run are no settings: a variable of that name would do nothing, and nobody would notice. */
static const char *flag_of_variable(const char *variable_name)
{
    for (size_t i = 0; i < WORD_COUNT; i++) {
        const struct setting like = {.name = words[i].name};
        char name[SETTING_VARIABLE_MAX];

        setting_variable(&like, name);
        if (words[i].ask == CONFIG_RUN && strcmp(name, variable_name) == 0)
            return words[i].name;
    }
    return NULL;
}

/* A variable that is nearly one of ours is a mistake, which would go unnoticed. Others are left alone:
 * a container's host may put names there that begin with the name of the service. */
static int check_variable(const char *entry, char (*names)[SETTING_VARIABLE_MAX],
                          struct error_text *err)
{
    const char *known[CONFIG_SETTINGS_MAX], *near;
    size_t prefix = strlen(SETTING_PREFIX), length = strcspn(entry, "=");
    char typed[SETTING_VARIABLE_MAX];

    if (length >= sizeof typed || strncmp(entry, SETTING_PREFIX, prefix) != 0)
        return CONFIG_DONE;
    memcpy(typed, entry, length);
    typed[length] = '\0';
    for (size_t row = 0; row < setting_count; row++) {
        if (strcmp(typed, names[row]) == 0)
            return CONFIG_DONE;
        known[row] = names[row] + prefix;
    }
    if (strcmp(typed, SETTING_PREFIX "RESTORE_FROM") == 0)
        return error_set(err, CONFIG_WRONG, "the variable %s" RESTORE_IS_WORK, typed);
    if (strcmp(typed, SETTING_PREFIX "RESTORED") == 0)
        return error_set(err, CONFIG_WRONG, "the variable %s" RESTORED_IS_GONE, typed);
    if (entry[length] && entry[length + 1] && flag_of_variable(typed))
        return error_set(err, CONFIG_WRONG,
                         "%s: this is no setting: say it on the command line, as --%s", typed,
                         flag_of_variable(typed));
    near = suggest_nearest(typed + prefix, known, setting_count);
    if (!near)
        return CONFIG_DONE;
    return error_set(err, CONFIG_WRONG, "unknown variable %s: did you mean " SETTING_PREFIX "%s?",
                     typed, near);
}

/* An empty variable counts as not set. */
static int apply_environment(struct config *config, char **environment, struct error_text *err)
{
    char names[CONFIG_SETTINGS_MAX][SETTING_VARIABLE_MAX];
    int status = CONFIG_DONE;

    for (size_t row = 0; row < setting_count && status == CONFIG_DONE; row++) {
        const char *value;

        setting_variable(&settings[row], names[row]);
        value = variable(environment, names[row]);
        if (value && *value)
            status = apply(config, row, FROM_ENVIRONMENT, value, names[row], err);
    }
    for (char **at = environment; *at && status == CONFIG_DONE; at++)
        status = check_variable(*at, names, err);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* systemd names the directory that it made for us, which is not where we would look for one. */
static int find_data(const struct config_sources *sources, struct config *config,
                     struct error_text *err)
{
    const char *given = variable(sources->environment, "STATE_DIRECTORY");
    const char *state = variable(sources->environment, "XDG_STATE_HOME");
    const char *home = variable(sources->environment, "HOME");
    int length;

    if (config->data[0])
        return CONFIG_DONE;
    config->data_is_default = true;
    if (given && given[0] == '/')
        length =
            snprintf(config->data, sizeof config->data, "%.*s", (int)strcspn(given, ":"), given);
    else if (sources->root)
        length = snprintf(config->data, sizeof config->data, "/var/lib/holdfastd");
    else if (state && state[0] == '/')
        length = snprintf(config->data, sizeof config->data, "%s/holdfastd", state);
    else if (home && home[0] == '/')
        length = snprintf(config->data, sizeof config->data, "%s/.local/state/holdfastd", home);
    else
        return error_set(err, CONFIG_WRONG,
                         "no directory for the data: HOME is not set; name one with --data");
    if (length < 0 || (size_t)length >= sizeof config->data)
        return error_set(err, CONFIG_WRONG,
                         "the path of the default data directory is too long; name another with "
                         "--data");
    return CONFIG_DONE;
}

static int apply_all(const struct config_sources *sources, const struct flags *flags,
                     struct config *config, struct error_text *err)
{
    int status;

    apply_defaults(config);
    status = apply_file(config, flags->file ? flags->file : sources->file, !flags->file, err);
    if (status == CONFIG_DONE)
        status = apply_environment(config, sources->environment, err);
    if (status == CONFIG_DONE)
        status = apply_flags(config, flags, err);
    if (status == CONFIG_DONE)
        status = find_data(sources, config, err);
    if (status == CONFIG_DONE)
        status = config_check_rules(config, err);
    return status;
}

int config_read(const struct config_sources *sources, struct config *ret_config,
                struct error_text *err)
{
    struct config config = {.ask = CONFIG_RUN};
    struct flags flags = {.ask = CONFIG_RUN};
    int status = scan_flags(sources, &flags, err);

    config.ask = flags.ask;
    if (flags.restore_from && strlen(flags.restore_from) > CONFIG_PATH_MAX)
        status = error_set(err, CONFIG_USAGE, "--" RESTORE ": the path is too long");
    else if (flags.restore_from)
        snprintf(config.restore_from, sizeof config.restore_from, "%s", flags.restore_from);
    if (status == CONFIG_DONE && flags.ask != CONFIG_HELP && flags.ask != CONFIG_VERSION)
        status = apply_all(sources, &flags, &config, err);
    if (status == CONFIG_DONE) {
        *ret_config = config;
        config.users = NULL; /* the caller's now */
        config.tls = config.peer_context = NULL;
    }
    config_wipe(&config);
    return status;
}

int config_from(int argc, char **argv, struct config *ret_config, struct error_text *err)
{
    struct config_sources sources = {.argc = argc,
                                     .argv = argv,
                                     .environment = environ,
                                     .file = CONFIG_FILE,
                                     .root = geteuid() == 0};

    return config_read(&sources, ret_config, err);
}

void config_wipe(struct config *config)
{
    secret_wipe(&config->password);
    secret_wipe(&config->cluster_secret);
    users_free(config->users);
    config->users = NULL;
    tls_config_free(config->tls);
    tls_config_free(config->peer_context);
    config->tls = config->peer_context = NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void print_flag(FILE *out, const char *name, const char *value, const char *help,
                       const char *standard)
{
    char left[WORDS_MAX];

    snprintf(left, sizeof left, "--%s%s%s", name, value ? " " : "", value ? value : "");
    fprintf(out, "  %-24s  %s", left, help);
    if (standard[0])
        fprintf(out, " [%s]", standard);
    fputc('\n', out);
}

static void print_help(FILE *out)
{
    const char *group = "";

    fputs("usage: holdfastd [--name value ...]\n\n"
          "The lock server of Holdfast. Every setting is a flag, a line 'name = value' in the\n"
          "configuration file, or a variable: --max-clients is " SETTING_PREFIX
          "MAX_CLIENTS. A flag\n"
          "outweighs a variable, a variable outweighs the file.\n",
          out);
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *setting = &settings[i];

        if (strcmp(group, setting->group) != 0)
            fprintf(out, "\n%s:\n", setting->group);
        group = setting->group;
        print_flag(out, setting->name, setting->lone ? NULL : setting_value_name(setting),
                   setting->help, setting->standard);
    }
    fputs("\nOther:\n", out);
    for (size_t i = 0; i < WORD_COUNT; i++)
        print_flag(out, words[i].name, words[i].value, words[i].help, "");
    fputs("\n"
          "Data of users other than root is in $XDG_STATE_HOME/holdfastd or\n"
          "~/.local/state/holdfastd. Without password-file, users-file or tls-clients only\n"
          "addresses of this machine are listened on. Sizes are written 65536, 64KiB or 1MiB,\n"
          "durations 500ms, 30s or 10m.\n\n"
          "Exit status: 64 for an invalid command line, 78 for invalid settings, 69 if the data\n"
          "directory or an address cannot be used, or a backup was not restored.\n\n"
          "More: man holdfastd, man holdfastd.conf\n",
          out);
}

/* As a configuration file. Of the password only the file's path is shown. */
static void print_settings(const struct config *config, FILE *out)
{
    static const char *const sources[] = {"default", "file", "environment", "flag"};
    char text[SETTING_TEXT_MAX];

    for (size_t row = 0; row < setting_count; row++) {
        setting_get(&settings[row], config, text);
        if (text[0])
            fprintf(out, "%s = %s  # %s\n", settings[row].name, text, sources[config->from[row]]);
        else
            fprintf(out, "# %s is not set\n", settings[row].name);
    }
}

bool config_answer(const struct config *config, FILE *out)
{
    switch (config->ask) {
    case CONFIG_HELP:
        print_help(out);
        return true;
    case CONFIG_VERSION:
        fputs("holdfastd " HOLDFAST_VERSION "\n", out);
        return true;
    case CONFIG_CHECK:
        print_settings(config, out);
        return true;
    case CONFIG_RUN:
    case CONFIG_RESTORE:
        break;
    }
    return false;
}
