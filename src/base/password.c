#include "base/password.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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

/* What the first `length` bytes of the file say. */
static int take_line(const char *what, const char *path, const char *bytes, size_t length,
                     char ret_password[PASSWORD_MAX + 1], struct error_text *err)
{
    const char *newline = memchr(bytes, '\n', length);

    if (newline)
        length = (size_t)(newline - bytes);
    if (length > 0 && bytes[length - 1] == '\r')
        length--;
    if (length == 0)
        return error_set(err, HF_EINVAL, "%s %s: its first line is empty", what, path);
    if (length > PASSWORD_MAX)
        return error_set(err, HF_EINVAL, "%s %s: its first line is longer than %d bytes", what,
                         path, PASSWORD_MAX);
    if (memchr(bytes, '\0', length))
        return error_set(err, HF_EINVAL, "%s %s: its first line has a NUL byte", what, path);
    memcpy(ret_password, bytes, length);
    ret_password[length] = '\0';
    return HF_OK;
}

int password_read(int fd, const char *what, const char *path, int code,
                  char ret_password[PASSWORD_MAX + 1], struct error_text *err)
{
    char bytes[PASSWORD_MAX + 3] = ""; /* room for CR LF, and to see that there is more */
    size_t length = 0;
    int failure = read_line(fd, bytes, sizeof bytes, &length), result = code;

    if (failure)
        error_set_errno(err, code, failure, "%s %s", what, path);
    else
        result = take_line(what, path, bytes, length, ret_password, err);
    explicit_bzero(bytes, sizeof bytes);
    return result;
}
