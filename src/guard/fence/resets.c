#include "guard/fence/resets.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <holdfast/guard.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BY_MAX 160
#define LINE_MAX_BYTES (3 * HF_KEY_MAX + BY_MAX + HF_REASON_MAX + 128)

static void describe_self(char ret_text[BY_MAX])
{
    char host[65] = "?", number[24], scratch[1024];
    struct passwd entry, *found = NULL;
    const char *user = number;

    snprintf(number, sizeof number, "%lu", (unsigned long)geteuid());
    if (getpwuid_r(geteuid(), &entry, scratch, sizeof scratch, &found) == 0 && found)
        user = found->pw_name;
    gethostname(host, sizeof host - 1);
    snprintf(ret_text, BY_MAX, "%.32s@%s %.32s[%ld]", user, host, program_invocation_short_name,
             (long)getpid());
}

/* One line, whatever came in. Returns its length. */
static size_t write_line(const struct reset *reset, char ret_line[LINE_MAX_BYTES])
{
    char key[3 * HF_KEY_MAX + 1], by[BY_MAX], when[32];
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm parts;
    size_t length;

    gmtime_r(&now, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    text_percent_encode(reset->key, strlen(reset->key), "-_.~/:@+,=", key, sizeof key);
    describe_self(by);
    length = (size_t)snprintf(ret_line, LINE_MAX_BYTES - 1, "%s %s %llu -> %llu by %s%s%s", when,
                              key, (unsigned long long)reset->was, (unsigned long long)reset->mark,
                              by, reset->why ? ": " : "", reset->why ? reset->why : "");
    INVARIANT(length < LINE_MAX_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)ret_line[i] < 0x20 || ret_line[i] == 0x7f)
            ret_line[i] = '?';
    ret_line[length++] = '\n';
    return length;
}

/* A line that was cut off by a crash must not swallow the next one. 0, or an errno. */
static int mend(int fd, off_t size)
{
    char last = '\n';

    if (size > 0 && pread(fd, &last, 1, size - 1) != 1)
        return EIO;
    if (last != '\n' && write(fd, "\n", 1) != 1)
        return errno;
    return 0;
}

static int append(int fd, const char *line, size_t length)
{
    ssize_t written;

    do
        written = write(fd, line, length);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return errno;
    if ((size_t)written != length)
        return ENOSPC;
    return fdatasync(fd) == 0 ? 0 : errno;
}

int resets_append(const struct reset *reset, struct error_text *err)
{
    const struct fence_directory *directory = reset->directory;
    char line[LINE_MAX_BYTES];
    size_t length = write_line(reset, line);
    struct stat st;
    int fd, failure, result = fence_directory_file(directory, RESETS_FILE, 0, &fd, err);

    if (result != HF_OK)
        return result;
    failure = fstat(fd, &st) == 0 ? 0 : errno;
    if (failure == 0 && st.st_size > RESETS_SIZE_MAX) {
        close(fd);
        return error_set(err, HF_EREFUSED, "%s/%s has grown too long: move it away",
                         directory->path, RESETS_FILE);
    }
    if (failure == 0)
        failure = mend(fd, st.st_size);
    if (failure == 0)
        failure = append(fd, line, length);
    close(fd);
    if (failure)
        return fence_directory_explain(directory, failure, "write to " RESETS_FILE, err);
    return fence_directory_sync(directory, err); /* the file may be new */
}
