#include "base/password.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES (PASSWORD_MAX + 2) /* with CR LF */

/* Reads until the end, the buffer is full, or there are so many newlines. Not with stdio, whose buffer would keep
 * the secret. Returns 0 or an errno. */
static int read_lines(int fd, char *bytes, size_t size, int lines, size_t *ret_length)
{
    size_t used = 0;
    int seen = 0;

    while (used < size && seen < lines) {
        ssize_t n = read(fd, bytes + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            seen += bytes[used++] == '\n';
    }
    *ret_length = used;
    return 0;
}

struct lines {
    const char *what, *path; /* for the words */
    const char *at;          /* the next line */
    size_t left;
};

/* Without its end. */
static int take_line(struct lines *lines, const char *which, bool may_be_empty,
                     char ret_password[PASSWORD_MAX + 1], struct error_text *err)
{
    const char *bytes = lines->at;
    const char *newline = lines->left > 0 ? memchr(bytes, '\n', lines->left) : NULL;
    size_t length = newline ? (size_t)(newline - bytes) : lines->left;

    lines->left -= length + (newline != NULL);
    lines->at += length + (newline != NULL);
    if (length > 0 && bytes[length - 1] == '\r')
        length--;
    if (length == 0 && !may_be_empty)
        return error_set(err, HF_EINVAL, "%s %s: its %s line is empty", lines->what, lines->path,
                         which);
    if (length > PASSWORD_MAX)
        return error_set(err, HF_EINVAL, "%s %s: its %s line is longer than %d bytes", lines->what,
                         lines->path, which, PASSWORD_MAX);
    if (memchr(bytes, '\0', length))
        return error_set(err, HF_EINVAL, "%s %s: its %s line has a NUL byte", lines->what,
                         lines->path, which);
    memcpy(ret_password, bytes, length);
    ret_password[length] = '\0';
    return HF_OK;
}

int password_read(int fd, const char *what, const char *path, int code,
                  char ret_password[PASSWORD_MAX + 1], struct error_text *err)
{
    char bytes[LINE_MAX_BYTES + 1] = ""; /* room to see that there is more */
    struct lines lines = {.what = what, .path = path, .at = bytes};
    int failure = read_lines(fd, bytes, sizeof bytes, 1, &lines.left), result = code;

    if (failure)
        error_set_errno(err, code, failure, "%s %s", what, path);
    else
        result = take_line(&lines, "first", false, ret_password, err);
    explicit_bzero(bytes, sizeof bytes);
    return result;
}

/* Empty lines at the end are nobody's password. */
static int check_end(const struct lines *lines, struct error_text *err)
{
    for (size_t i = 0; i < lines->left; i++)
        if (lines->at[i] != '\r' && lines->at[i] != '\n')
            return error_set(err, HF_EINVAL, "%s %s: it has more than two lines", lines->what,
                             lines->path);
    return HF_OK;
}

int password_read_two(int fd, const char *what, const char *path, int code,
                      char ret_first[PASSWORD_MAX + 1], char ret_second[PASSWORD_MAX + 1],
                      struct error_text *err)
{
    char bytes[3 * LINE_MAX_BYTES] = "";
    struct lines lines = {.what = what, .path = path, .at = bytes};
    int failure = read_lines(fd, bytes, sizeof bytes, (int)sizeof bytes, &lines.left);
    int result = code;

    if (failure)
        error_set_errno(err, code, failure, "%s %s", what, path);
    else
        result = take_line(&lines, "first", false, ret_first, err);
    if (result == HF_OK)
        result = take_line(&lines, "second", true, ret_second, err);
    if (result == HF_OK)
        result = check_end(&lines, err);
    explicit_bzero(bytes, sizeof bytes);
    return result;
}
