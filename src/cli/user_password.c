/* user_password.c: see user_password.h. libcrypt is loaded with its first use: no other command needs it, and each would start later. */
#include "cli/user_password.h"
#include "base/random.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* ---- asking ---------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/* By these the user or the system ends or stops us: the terminal must show what is typed again before that. */
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
#define SIGNAL_COUNT (sizeof signals / sizeof *signals)

/* Up to the end of the line. 0, or an errno: EINTR after a signal. Signals come while it waits, and at no other time: one that came just
 * before would not wake it. */
static int read_line(int terminal, const sigset_t *waiting, char *line, size_t size)
{
    struct pollfd ready = {.fd = terminal, .events = POLLIN};
    size_t used = 0;
    char byte = '\0';

    while (byte != '\n') {
        ssize_t n;

        if (ppoll(&ready, 1, NULL, waiting) < 0)
            return errno;
        n = read(terminal, &byte, 1);
        if (n < 0)
            return errno;
        if (n == 0)
            return used > 0 ? 0 : ENODATA;
        if (byte == '\0')
            return EILSEQ;
        if (byte != '\n' && used >= size - 1)
            return EMSGSIZE;
        if (byte != '\n')
            line[used++] = byte;
    }
    line[used] = '\0';
    return 0;
}

static int ask_hidden(int terminal, const sigset_t *waiting, const char *prompt, char *line,
                      size_t size)
{
    struct termios before, hidden;
    int result;

    if (tcgetattr(terminal, &before) != 0)
        return errno;
    hidden = before;
    hidden.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK);
    if (tcsetattr(terminal, TCSAFLUSH, &hidden) != 0)
        return errno;
    dprintf(terminal, "%s", prompt);
    result = read_line(terminal, waiting, line, size);
    tcsetattr(terminal, TCSAFLUSH, &before);
    dprintf(terminal, "\n");
    return result;
}

/* Until it is answered: whoever stops us and goes on is asked again. */
static int ask_once(int terminal, const char *prompt, char *line, size_t size)
{
    struct sigaction before[SIGNAL_COUNT], ours = {.sa_handler = on_signal};
    sigset_t ends, waiting;
    int result;

    sigemptyset(&ends);
    for (size_t i = 0; i < SIGNAL_COUNT; i++)
        sigaddset(&ends, signals[i]);
    do {
        caught = 0;
        sigprocmask(SIG_BLOCK, &ends, &waiting);
        for (size_t i = 0; i < SIGNAL_COUNT; i++)
            sigaction(signals[i], &ours, &before[i]);
        result = ask_hidden(terminal, &waiting, prompt, line, size);
        for (size_t i = 0; i < SIGNAL_COUNT; i++)
            sigaction(signals[i], &before[i], NULL);
        sigprocmask(SIG_SETMASK, &waiting, NULL);
        if (caught)
            raise(caught);
    } while (result == EINTR && caught);
    return result;
}

static int say_unasked(int failure, struct error_text *err)
{
    if (failure == ENODATA)
        return error_set(err, HF_EINVAL, "no password was given: nothing was changed");
    if (failure == EMSGSIZE)
        return error_set(err, HF_EINVAL, "a password has at most %d bytes", PASSWORD_MAX);
    return error_set_errno(err, HF_EINVAL, failure, "cannot ask for the password");
}

static int ask_twice(int terminal, const char *user, char *password, struct error_text *err)
{
    char again[PASSWORD_MAX + 1] = "", prompt[USERS_NAME_MAX + 64];
    int failure, result = HF_OK;

    snprintf(prompt, sizeof prompt, "new password of %s: ", user);
    failure = ask_once(terminal, prompt, password, PASSWORD_MAX + 1);
    if (failure == 0 && password[0])
        failure = ask_once(terminal, "the same again: ", again, sizeof again);
    if (failure != 0)
        result = say_unasked(failure, err);
    else if (!password[0])
        result = error_set(err, HF_EINVAL, "an empty password is none: nothing was changed");
    else if (strcmp(password, again) != 0)
        result = error_set(err, HF_EINVAL, "the two are not the same: nothing was changed");
    explicit_bzero(again, sizeof again);
    return result;
}

int user_password_ask(const char *user, char ret_password[PASSWORD_MAX + 1], struct error_text *err)
{
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY), result;

    if (terminal < 0)
        return error_set(err, HF_EINVAL,
                         "there is no terminal to ask on: give the password with --password-file "
                         "FILE (- is standard input), or have one made with --generate");
    result = ask_twice(terminal, user, ret_password, err);
    close(terminal);
    return result;
}

/* ---- otherwise ------------------------------------------------------------------------------------- */

int user_password_file(const char *path, char ret_password[PASSWORD_MAX + 1],
                       struct error_text *err)
{
    bool is_input = strcmp(path, "-") == 0;
    int fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), result;

    if (fd < 0)
        return error_set_errno(err, HF_EINVAL, errno, "password-file %s", path);
    result = password_read(fd, "password-file", is_input ? "(standard input)" : path, HF_EINVAL,
                           ret_password, err);
    if (!is_input)
        close(fd);
    return result;
}

void user_password_make(char ret_password[PASSWORD_MAX + 1])
{
    /* None that is taken for another, and as many as five bits tell apart. */
    static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789";
    unsigned char bytes[PASSWORD_MADE_LENGTH];

    random_fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        ret_password[i] = letters[bytes[i] % (sizeof letters - 1)];
    ret_password[sizeof bytes] = '\0';
    explicit_bzero(bytes, sizeof bytes);
}

/* ---- crypt(3) -------------------------------------------------------------------------------------- */

#define SALT_BYTES 32
#define SALT_LETTERS 16        /* of SHA-512, as crypt(5) has them */
#define DATA_BYTES (256 << 10) /* more than any struct crypt_data */
#define SALT_INVALID 1         /* of crypt_checksalt */
#define SALT_DISABLED 2
#define SALT_LEGACY 3

struct crypt_data;

struct library {
    char *(*crypt)(const char *password, const char *setting, struct crypt_data *data);
    /* These two only where it is libxcrypt. */
    char *(*salt)(const char *prefix, unsigned long cost, const char *bytes, int size,
                  char *ret_setting, int setting_size);
    int (*check)(const char *setting);
};

static void *find(void *handle, const char *name)
{
    return dlsym(handle, name);
}

/* What dlsym gives is of another type than a function. */
#define TAKE(handle, name, ret)                 \
    do {                                        \
        void *found_ = find(handle, name);      \
        memcpy(&(ret), &found_, sizeof found_); \
    } while (0)

static bool load(struct library *ret_library)
{
    void *handle = dlopen("libcrypt.so.2", RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        handle = dlopen("libcrypt.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return false;
    TAKE(handle, "crypt_r", ret_library->crypt);
    TAKE(handle, "crypt_gensalt_rn", ret_library->salt);
    TAKE(handle, "crypt_checksalt", ret_library->check);
    return ret_library->crypt != NULL;
}

static void salt_of_sha512(const unsigned char *bytes, char *ret_setting)
{
    static const char letters[] =
        "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    memcpy(ret_setting, "$6$", 3);
    for (size_t i = 0; i < SALT_LETTERS; i++)
        ret_setting[3 + i] = letters[bytes[i] % (sizeof letters - 1)];
    memcpy(ret_setting + 3 + SALT_LETTERS, "$", 2);
}

static int hash_by(const struct library *library, const char *password,
                   char ret_hash[USERS_HASH_MAX + 1], struct error_text *err)
{
    unsigned char bytes[SALT_BYTES];
    char setting[USERS_HASH_MAX + 1] = "";
    struct crypt_data *data = calloc(1, DATA_BYTES);
    const char *made = NULL;
    int result = HF_OK;

    random_fill(bytes, sizeof bytes);
    if (data && (!library->salt || !library->salt("$y$", 0, (const char *)bytes, sizeof bytes,
                                                  setting, sizeof setting)))
        salt_of_sha512(bytes, setting);
    if (data)
        made = library->crypt(password, setting, data);
    if (!made || strncmp(made, setting, 3) != 0 || users_file_hash(made, NULL) != HF_OK)
        result = error_set(err, HF_EINTERNAL, "libcrypt cannot store this password");
    else
        snprintf(ret_hash, USERS_HASH_MAX + 1, "%s", made);
    if (data)
        explicit_bzero(data, DATA_BYTES);
    free(data);
    return result;
}

int user_password_hash(const char *password, char ret_hash[USERS_HASH_MAX + 1],
                       struct error_text *err)
{
    struct library library = {NULL, NULL, NULL};

    if (!load(&library))
        return error_set(err, HF_EMODULE,
                         "a password is stored by libcrypt, which is not on this machine: install "
                         "it (libcrypt1 on Debian, libxcrypt on Fedora)");
    return hash_by(&library, password, ret_hash, err);
}

const char *user_password_doubt(const char *hash)
{
    struct library library = {NULL, NULL, NULL};

    if (!load(&library) || !library.check)
        return NULL;
    switch (library.check(hash)) {
    case SALT_INVALID:
    case SALT_DISABLED:
        return "is in a form that this machine's libcrypt does not know, so that nothing will ever "
               "match it";
    case SALT_LEGACY:
        return "is in a weak form, that of old systems: who reads it finds the password";
    default:
        return NULL;
    }
}
