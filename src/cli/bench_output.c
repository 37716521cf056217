/* bench_output.c: the file of --report. */
#include "cli/bench.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int cannot_write(const struct bench_output *output, int errno_value)
{
    say("cannot write %s: %s", printable(output->path), strerror(errno_value));
    return errno_value == ENOSPC || errno_value == EIO || errno_value == EDQUOT ? EXIT_UNAVAILABLE
                                                                                : EXIT_REFUSED;
}

int bench_report_open(struct bench_output *output, const char *path)
{
    output->path = path;
    output->is_new = true;
    output->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output->fd < 0 && errno == EEXIST) {
        output->is_new = false;
        output->fd = open(path, O_WRONLY | O_CLOEXEC);
    }
    return output->fd >= 0 ? 0 : cannot_write(output, errno);
}

static int put_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        bytes += written;
        size -= (size_t)written;
    }
    return 0;
}

int bench_report_write(struct bench_output *output, const struct bench *bench)
{
    struct textbuf page = {0};
    int failed = 0;

    bench_write_page(&page, bench);
    if (page.failed)
        failed = ENOMEM;
    if (!failed && ftruncate(output->fd, 0) != 0 && errno != EINVAL) /* a pipe has no length */
        failed = errno;
    if (!failed)
        failed = put_all(output->fd, page.bytes, page.size);
    if (close(output->fd) != 0 && !failed)
        failed = errno;
    output->fd = -1;
    textbuf_free(&page);
    return failed ? cannot_write(output, failed) : EXIT_DONE;
}

void bench_report_drop(struct bench_output *output)
{
    if (output->fd < 0)
        return;
    close(output->fd);
    output->fd = -1;
    if (output->is_new)
        unlink(output->path);
}
