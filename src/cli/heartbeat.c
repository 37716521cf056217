/* heartbeat.c
 *
 *     job ──any bytes──▶ job_end ═══ pipe ═══▶ in ──▶ hf_progress          HOLDFAST_PROGRESS_FD=103
 *     holdfast progress ──▶ the same descriptor, or /proc/PID/fd/OUT        HOLDFAST_PROGRESS_PIPE=PID:OUT:INODE
 *
 * What is written does not matter, that something is does. We keep a writing end, so that a job that closes its own is
 * nothing that we would hear of again and again; it has said that it reports no more by that way, and loses the lock in time.
 *
 * Many programs close what they inherit when they start others (Python does), so `holdfast progress` has a second way. A
 * number of a process or a descriptor may be another one's by now: only a pipe with the inode that we said is written to. */
#include "cli/heartbeat.h"
#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOB_END_MIN 100  /* as of the lock's descriptor: scripts use small ones for themselves */
#define REST_MS_MAX 100  /* the longest pause between two looks at the pipe */
#define REST_PART 4      /* of every_ms: its share of what a report may be late by */
#define TAKE_BYTES 65536 /* a pipe's, unless somebody has made it larger */

/* ---- of whoever listens ---------------------------------------------------------------------- */

int heartbeat_begin(struct heartbeat *heartbeat, int64_t every_ms)
{
    struct stat about;
    int ends[2], failure;

    *heartbeat = HEARTBEAT_NONE;
    if (every_ms == 0)
        return 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    heartbeat->in = ends[0];
    heartbeat->out = ends[1];
    heartbeat->job_end = fcntl(ends[1], F_DUPFD, JOB_END_MIN);
    if (heartbeat->job_end < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ||
        fstat(ends[0], &about) != 0) {
        failure = errno;
        heartbeat_end(heartbeat);
        return failure;
    }
    heartbeat->inode = about.st_ino;
    heartbeat->every_ms = every_ms;
    heartbeat->heard_ms = clock_boot_ms();
    return 0;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void heartbeat_job_has_it(struct heartbeat *heartbeat)
{
    shut(&heartbeat->job_end);
}

void heartbeat_end(struct heartbeat *heartbeat)
{
    shut(&heartbeat->job_end);
    shut(&heartbeat->out);
    shut(&heartbeat->in);
    heartbeat->every_ms = 0;
}

int heartbeat_fd(const struct heartbeat *heartbeat, int64_t now_ms)
{
    return now_ms < heartbeat->rest_ms ? -1 : heartbeat->in;
}

int64_t heartbeat_next_ms(const struct heartbeat *heartbeat, int64_t now_ms)
{
    return now_ms < heartbeat->rest_ms ? heartbeat->rest_ms : CLOCK_NEVER;
}

bool heartbeat_take(struct heartbeat *heartbeat, int64_t now_ms)
{
    int64_t rest_ms = heartbeat->every_ms / REST_PART;
    static char bytes[TAKE_BYTES];

    if (heartbeat->in < 0 || now_ms < heartbeat->rest_ms ||
        read(heartbeat->in, bytes, sizeof bytes) <= 0)
        return false;
    heartbeat->heard_ms = now_ms;
    heartbeat->rest_ms = clock_after(now_ms, rest_ms < REST_MS_MAX ? rest_ms : REST_MS_MAX);
    return true;
}

void heartbeat_describe(const struct heartbeat *heartbeat, char ret_fd[HEARTBEAT_TEXT_MAX],
                        char ret_pipe[HEARTBEAT_TEXT_MAX])
{
    snprintf(ret_fd, HEARTBEAT_TEXT_MAX, "%d", heartbeat->job_end);
    snprintf(ret_pipe, HEARTBEAT_TEXT_MAX, "%ld:%d:%llu", (long)getpid(), heartbeat->out,
             (unsigned long long)heartbeat->inode);
}

/* ---- of whoever reports ---------------------------------------------------------------------- */

struct place {
    uint64_t fd; /* inherited */
    uint64_t pid, pid_fd, inode;
};

/* "PID:FD:INODE" */
static bool read_pipe(const char *text, struct place *ret_place)
{
    uint64_t *const parts[] = {&ret_place->pid, &ret_place->pid_fd, &ret_place->inode};
    static const uint64_t most[] = {INT32_MAX, INT32_MAX, INT64_MAX};

    for (size_t i = 0; i < 3; i++) {
        size_t length = strcspn(text, ":");
        char part[HEARTBEAT_TEXT_MAX];

        if (length == 0 || length >= sizeof part || (text[length] == ':') != (i < 2))
            return false;
        memcpy(part, text, length);
        part[length] = '\0';
        if (!text_to_u64(part, most[i], parts[i]))
            return false;
        text += length + 1;
    }
    return true;
}

static bool is_it(const struct stat *about, const struct place *place)
{
    return S_ISFIFO(about->st_mode) && about->st_ino == place->inode;
}

/* False: nobody reads it. */
static bool write_report(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
    ssize_t written;

    if (poll(&pollfd, 1, 0) < 0 || pollfd.revents & (POLLERR | POLLNVAL))
        return false;
    if (!(pollfd.revents & POLLOUT)) /* full of reports that will be read */
        return true;
    do
        written = write(fd, "\n", 1);
    while (written < 0 && errno == EINTR);
    return written > 0 || errno == EAGAIN;
}

static bool report_elsewhere(const struct place *place)
{
    char path[HEARTBEAT_TEXT_MAX];
    struct stat about;
    bool reported;
    int fd;

    snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)place->pid,
             (unsigned long long)place->pid_fd);
    if (stat(path, &about) != 0 ||
        !is_it(&about, place)) /* opening may do something to what is not ours */
        return false;
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    reported = fstat(fd, &about) == 0 && is_it(&about, place) && write_report(fd);
    close(fd);
    return reported;
}

enum heartbeat_answer heartbeat_report(void)
{
    const char *fd = getenv(HEARTBEAT_FD_NAME), *pipe = getenv(HEARTBEAT_PIPE_NAME);
    struct place place;
    struct stat about;

    if (!fd || !*fd || !pipe || !*pipe)
        return HEARTBEAT_NOBODY;
    if (!text_to_u64(fd, INT32_MAX, &place.fd) || !read_pipe(pipe, &place))
        return HEARTBEAT_INVALID;
    if (fstat((int)place.fd, &about) == 0 && is_it(&about, &place))
        return write_report((int)place.fd) ? HEARTBEAT_REPORTED : HEARTBEAT_GONE;
    return report_elsewhere(&place) ? HEARTBEAT_REPORTED : HEARTBEAT_GONE;
}
