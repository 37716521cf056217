#include "client/defaults.h"
#include "base/suggest.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSWD_MAX 4096 /* bytes of one entry of the user database */

enum setting { SETTING_URL, SETTING_TTL, SETTING_PASSWORD_FILE, SETTING_NEED, SETTING_COUNT };

static const char *const names[SETTING_COUNT] = {"url", "ttl", "password-file", "need"};

/* What one file says. */
struct file {
    char values[SETTING_COUNT][HF_URL_MAX + 1];
    unsigned lines[SETTING_COUNT]; /* 0: not set */
};

static int complain(const struct conf_line *line, const char *what, struct error_text *err)
{
    return error_set(err, HF_EINVAL, "%s:%u: %s %s", line->path, line->number, line->name, what);
}

/* "file:locks"; "file:" alone is the default place. */
static bool is_relative_file(const char *url)
{
    const char *path = url + strlen("file:");

    return strncmp(url, "file:", strlen("file:")) == 0 && *path && *path != '/' && *path != '?';
}

static int check_value(enum setting setting, const struct conf_line *line, struct error_text *err)
{
    int64_t ms;

    switch (setting) {
    case SETTING_TTL:
        if (!text_to_ms(line->value, &ms) || ms < HF_TTL_MIN_MS || ms > HF_TTL_MAX_MS)
            return complain(line, "is a duration from 100ms to 24h, such as 30s", err);
        break;
    case SETTING_PASSWORD_FILE:
        if (line->value[0] != '/')
            return complain(line, "is a path that begins with '/'", err);
        break;
    case SETTING_NEED:
        if (strcmp(line->value, "strict") != 0 && strcmp(line->value, "best-effort") != 0)
            return complain(line, "is strict or best-effort", err);
        break;
    case SETTING_URL: /* hf_open looks at the rest */
        if (is_relative_file(line->value))
            return complain(line,
                            "would be another store for each working directory: write "
                            "file:/ and the whole path",
                            err);
        break;
    case SETTING_COUNT:
        break;
    }
    return HF_OK;
}

static int take_line(void *context, const struct conf_line *line, struct error_text *err)
{
    struct file *file = context;
    int setting = 0, result;

    while (setting < SETTING_COUNT && strcmp(names[setting], line->name) != 0)
        setting++;
    if (setting == SETTING_COUNT) {
        const char *near = suggest_nearest(line->name, names, SETTING_COUNT);

        return near
                   ? error_set(err, HF_EINVAL, "%s:%u: unknown setting '%.64s': did you mean '%s'?",
                               line->path, line->number, line->name, near)
                   : error_set(err, HF_EINVAL,
                               "%s:%u: unknown setting '%.64s': there are url, ttl, "
                               "password-file and need",
                               line->path, line->number, line->name);
    }
    if (file->lines[setting])
        return error_set(err, HF_EINVAL, "%s:%u: %s was set on line %u already", line->path,
                         line->number, line->name, file->lines[setting]);
    if (strlen(line->value) > HF_URL_MAX)
        return complain(line, "is too long", err);
    result = check_value((enum setting)setting, line, err);
    if (result != HF_OK)
        return result;
    file->lines[setting] = line->number;
    snprintf(file->values[setting], sizeof file->values[setting], "%s", line->value);
    return HF_OK;
}

/* Adds "?option=value" to the URL of the same file. */
static int add_option(struct file *file, const char *path, enum setting setting,
                      struct error_text *err)
{
    char *url = file->values[SETTING_URL], encoded[3 * HF_URL_MAX + 1];
    size_t used = strlen(url);
    int length;

    if (!file->lines[setting])
        return HF_OK;
    if (!file->lines[SETTING_URL])
        return error_set(err, HF_EINVAL,
                         "%s:%u: %s belongs to the url of the same file, and there is none", path,
                         file->lines[setting], names[setting]);
    text_percent_encode(file->values[setting], strlen(file->values[setting]), "/-._~", encoded,
                        sizeof encoded);
    length = snprintf(url + used, sizeof file->values[SETTING_URL] - used, "%c%s=%s",
                      strchr(url, '?') ? '&' : '?', names[setting], encoded);
    if (length < 0 || used + (size_t)length > HF_URL_MAX)
        return error_set(err, HF_EINVAL, "%s: the url with its %s is longer than %d bytes", path,
                         names[setting], HF_URL_MAX);
    return HF_OK;
}

static bool is_used_up(int failure)
{
    return failure == EMFILE || failure == ENFILE || failure == ENOMEM;
}

static int cannot_read(const char *path, int failure, struct error_text *err)
{
    int code = is_used_up(failure) ? HF_ENOMEM : failure == EIO ? HF_EIO : HF_EREFUSED;

    return error_set_errno(err, code, failure, "cannot read %s", path);
}

/* Whoever can write it chooses where our locks are, and so whether they exclude anybody. */
static int check_owner(int fd, const char *path, struct error_text *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return cannot_read(path, errno, err);
    if (S_ISDIR(st.st_mode))
        return error_set(err, HF_EREFUSED, "cannot read %s: it is a directory", path);
    if (!S_ISREG(st.st_mode)) /* /dev/null */
        return HF_OK;
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return error_set(err, HF_EREFUSED,
                         "%s belongs to another user, who could redirect your locks: chown it",
                         path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(
            err, HF_EREFUSED,
            "others can write to %s (mode %04o), and could redirect your locks: chmod go-w it",
            path, (unsigned)(st.st_mode & 07777));
    return HF_OK;
}

static int read_file(const char *path, bool optional, struct defaults *defaults,
                     struct error_text *err)
{
    struct file *file;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), result;

    if (fd < 0 && errno == ENOENT && lstat(path, &st) == 0)
        return error_set(err, HF_EREFUSED, "%s is a symbolic link to a file that is not there",
                         path);
    if (fd < 0 && optional && (errno == ENOENT || errno == ENOTDIR))
        return HF_OK;
    if (fd < 0)
        return cannot_read(path, errno, err);
    file = calloc(1, sizeof *file);
    result = file ? check_owner(fd, path, err) : error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        result = conf_read(fd, path, HF_EINVAL, take_line, file, err);
    if (result == HF_OK)
        result = add_option(file, path, SETTING_TTL, err);
    if (result == HF_OK)
        result = add_option(file, path, SETTING_PASSWORD_FILE, err);
    if (result == HF_OK && file->lines[SETTING_URL]) {
        memcpy(defaults->url, file->values[SETTING_URL], sizeof defaults->url);
        snprintf(defaults->url_from, sizeof defaults->url_from, "%s", path);
    }
    if (result == HF_OK && file->lines[SETTING_NEED]) {
        defaults->need_strict = strcmp(file->values[SETTING_NEED], "strict") == 0;
        snprintf(defaults->need_from, sizeof defaults->need_from, "%s", path);
    }
    free(file);
    close(fd);
    return result;
}

/* Services of systemd and some cron daemons have no HOME: the user's own directory is meant all the same. "": there is none. If
 * nobody can tell now, a store would be chosen without the file that may name another. */
static int find_home(char *ret_home, size_t size, struct error_text *err)
{
    const char *home = secure_getenv("HOME");
    struct passwd entry, *found = NULL;
    char buffer[PASSWD_MAX];
    bool given = home && home[0] == '/';
    int failure;

    ret_home[0] = '\0';
    if (!given) {
        if (getauxval(AT_SECURE))
            return HF_OK;
        failure = getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found);
        if (is_used_up(failure) || failure == EIO)
            return error_set_errno(err, failure == EIO ? HF_EIO : HF_ENOMEM, failure,
                                   "cannot look up the user's home, where a client.conf may be");
        home = failure == 0 && found && found->pw_dir[0] == '/' ? found->pw_dir : "";
    }
    if (strlen(home) < size)
        memcpy(ret_home, home, strlen(home) + 1);
    else if (given)
        return error_set(err, HF_EINVAL, "HOME: the path of client.conf there is too long");
    return HF_OK;
}

/* Whoever gave up root and kept root's HOME (or XDG_CONFIG_HOME) may not be able to look into it. What is there may name
 * the store, so that files on this machine are no answer to that: whoever does would hold what somebody else holds. */
static bool is_hidden_by_another(const char *path, const char *base)
{
    struct stat st;

    return access(path, R_OK) < 0 && errno == EACCES && stat(base, &st) == 0 &&
           st.st_uid != geteuid();
}

/* In a set-uid program the environment names nothing. */
static int read_user_file(bool named, struct defaults *defaults, struct error_text *err)
{
    char path[CONF_PATH_MAX], of_user[CONF_PATH_MAX];
    const char *config = secure_getenv("XDG_CONFIG_HOME");
    bool by_config = config && config[0] == '/';
    const char *base = by_config ? config : of_user;
    const char *variable = by_config ? "XDG_CONFIG_HOME" : "HOME";
    int result = by_config ? HF_OK : find_home(of_user, sizeof of_user, err), length;

    if (result != HF_OK || base[0] != '/')
        return result;
    length =
        snprintf(path, sizeof path, "%s%s/" DEFAULTS_USER_FILE, base, by_config ? "" : "/.config");
    if (length < 0 || (size_t)length >= sizeof path)
        return error_set(err, HF_EINVAL, "%s: the path of client.conf there is too long", variable);
    if (!is_hidden_by_another(path, base))
        return read_file(path, true, defaults, err);
    if (named)
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "cannot read %s, which may name the store, and %s belongs to another user: "
                     "set %s to your own, or name the store with --on or HOLDFAST_URL",
                     path, base, variable);
}

int defaults_read(bool named, struct defaults *ret_defaults, struct error_text *err)
{
    const char *given = secure_getenv(DEFAULTS_VARIABLE);
    int result;

    memset(ret_defaults, 0, sizeof *ret_defaults);
    if (given && !*given)
        return error_set(err, HF_EINVAL,
                         DEFAULTS_VARIABLE " is set to nothing: name a file, or unset it");
    if (given && strlen(given) >= CONF_PATH_MAX)
        return error_set(err, HF_EINVAL, DEFAULTS_VARIABLE ": the path is too long");
    if (given)
        return read_file(given, false, ret_defaults, err);
    result = read_file(DEFAULTS_FILE, true, ret_defaults, err);
    return result == HF_OK ? read_user_file(named, ret_defaults, err) : result;
}
