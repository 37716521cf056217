#include "server/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the group may do is the administrator's choice, as long as it cannot change the password:
 * root:holdfast 0640 is usual, and systemd's credentials look like that. */
#define FORBIDDEN_MODE (S_IWGRP | S_IRWXO)

static int check_file(int fd, const char *path, struct error_text *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "password-file %s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, HF_EREFUSED, "password-file %s is not a regular file", path);
    if (st.st_mode & FORBIDDEN_MODE)
        return error_set(err, HF_EREFUSED,
                         "password-file %s: others can use it (mode %04o): chmod g-w,o-rwx it, and "
                         "choose a new password if they may have read it",
                         path, (unsigned)(st.st_mode & 07777));
    return HF_OK;
}

/* Reads until a newline, the end, or the buffer is full. Not with stdio, whose buffer would keep the
 * secret. Returns 0 or an errno. */
static int read_line(int fd, char *line, size_t size, size_t *ret_length)
{
    size_t used = 0;

    while (used < size && !memchr(line, '\n', used)) {
        ssize_t n = read(fd, line + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    *ret_length = used;
    return 0;
}

/* What the first `length` bytes of the file say; read as the clients read theirs. */
static int take_line(const char *path, const char *bytes, size_t length, struct secret *ret_secret,
                     struct error_text *err)
{
    const char *newline = memchr(bytes, '\n', length);

    if (newline)
        length = (size_t)(newline - bytes);
    if (length > 0 && bytes[length - 1] == '\r')
        length--;
    if (length == 0)
        return error_set(err, HF_EINVAL, "password-file %s: its first line is empty", path);
    if (length > SECRET_MAX)
        return error_set(err, HF_EINVAL, "password-file %s: its first line is longer than %d bytes",
                         path, SECRET_MAX);
    if (memchr(bytes, '\0', length))
        return error_set(err, HF_EINVAL, "password-file %s: its first line has a NUL byte", path);
    sha256(bytes, length, ret_secret->digest);
    ret_secret->set = true;
    return HF_OK;
}

int secret_read(const char *path, struct secret *ret_secret, struct error_text *err)
{
    char bytes[SECRET_MAX + 2] = ""; /* room for CR LF, or to see that there is more */
    size_t length = 0;
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), result, failure;

    if (fd < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "password-file %s", path);
    result = check_file(fd, path, err);
    if (result == HF_OK) {
        failure = read_line(fd, bytes, sizeof bytes, &length);
        result = failure ? error_set_errno(err, HF_EREFUSED, failure, "password-file %s", path)
                         : take_line(path, bytes, length, ret_secret, err);
    }
    explicit_bzero(bytes, sizeof bytes);
    close(fd);
    return result;
}

bool secret_matches(const struct secret *secret, const void *bytes, size_t length)
{
    unsigned char digest[SHA256_SIZE];
    volatile unsigned char differences = 0; /* volatile: no way out before the last byte */

    sha256(bytes, length, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        differences |= (unsigned char)(digest[i] ^ secret->digest[i]);
    explicit_bzero(digest, sizeof digest);
    return secret->set && differences == 0;
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}
