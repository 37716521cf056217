#include "server/secret.h"
#include "base/hmac.h"
#include "base/password.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the group may do is the administrator's choice, as long as it cannot change the password:
 * root:holdfast 0640 is usual, and systemd's credentials look like that. */
#define FORBIDDEN_MODE (S_IWGRP | S_IRWXO)

static int check_file(int fd, const char *what, const char *path, struct error_text *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "%s %s", what, path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, HF_EREFUSED, "%s %s is not a regular file", what, path);
    if (st.st_mode & FORBIDDEN_MODE)
        return error_set(err, HF_EREFUSED,
                         "%s %s: others can use it (mode %04o): chmod g-w,o-rwx it, and "
                         "choose a new one if they may have read it",
                         what, path, (unsigned)(st.st_mode & 07777));
    return HF_OK;
}

/* A second line that says the same adds nothing. */
static void keep(const char *first, const char *second, struct secret *ret_secret)
{
    size_t size = strlen(first), other = strlen(second);

    *ret_secret =
        (struct secret){.set = true,
                        .is_short = size < SECRET_MIN || (other > 0 && other < SECRET_MIN),
                        .has_other = other > 0 && strcmp(first, second) != 0};
    sha256(first, size, ret_secret->digest);
    if (ret_secret->has_other)
        sha256(second, other, ret_secret->other);
}

int secret_open(const char *what, const char *path, int *ret_fd, struct error_text *err)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), result;

    if (fd < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "%s %s", what, path);
    result = check_file(fd, what, path, err);
    if (result == HF_OK)
        *ret_fd = fd;
    else
        close(fd);
    return result;
}

int secret_read(const char *what, const char *path, struct secret *ret_secret,
                struct error_text *err)
{
    char first[PASSWORD_MAX + 1] = "", second[PASSWORD_MAX + 1] = "";
    int fd, result = secret_open(what, path, &fd, err);

    if (result != HF_OK)
        return result;
    result = password_read_two(fd, what, path, HF_EREFUSED, first, second, err);
    if (result == HF_OK)
        keep(first, second, ret_secret);
    explicit_bzero(first, sizeof first);
    explicit_bzero(second, sizeof second);
    close(fd);
    return result;
}

/* Both are compared in any case. */
static bool has_digest(const struct secret *secret, const unsigned char digest[SHA256_SIZE])
{
    bool first = digests_match(digest, secret->digest);
    bool second = digests_match(digest, secret->other);

    return secret->set & (first | (second & secret->has_other));
}

bool secret_matches(const struct secret *secret, const void *bytes, size_t length)
{
    unsigned char digest[SHA256_SIZE];
    bool match;

    sha256(bytes, length, digest);
    match = has_digest(secret, digest);
    explicit_bzero(digest, sizeof digest);
    return match;
}

int secret_count(const struct secret *secret)
{
    return secret->set + (secret->set && secret->has_other);
}

int secret_count_new(const struct secret *secret, const struct secret *other)
{
    if (!secret->set)
        return 0;
    return !has_digest(other, secret->digest) +
           (secret->has_other && !has_digest(other, secret->other));
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}
