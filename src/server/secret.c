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

int secret_read(const char *what, const char *path, struct secret *ret_secret,
                struct error_text *err)
{
    char password[PASSWORD_MAX + 1] = "";
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), result;

    if (fd < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "%s %s", what, path);
    result = check_file(fd, what, path, err);
    if (result == HF_OK)
        result = password_read(fd, what, path, HF_EREFUSED, password, err);
    if (result == HF_OK) {
        sha256(password, strlen(password), ret_secret->digest);
        ret_secret->set = true;
        ret_secret->is_short = strlen(password) < SECRET_MIN;
    }
    explicit_bzero(password, sizeof password);
    close(fd);
    return result;
}

bool secret_matches(const struct secret *secret, const void *bytes, size_t length)
{
    unsigned char digest[SHA256_SIZE];
    bool match;

    sha256(bytes, length, digest);
    match = digests_match(digest, secret->digest);
    explicit_bzero(digest, sizeof digest);
    return secret->set && match;
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}
