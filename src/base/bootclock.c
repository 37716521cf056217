#include "base/bootclock.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define OFFSETS_PATH "/proc/self/timens_offsets" /* of the namespace that our children will be in */
#define NAMESPACE_PATH "/proc/self/ns/time"
#define CHILDREN_PATH "/proc/self/ns/time_for_children"
#define BOOTTIME "boottime" /* its line there: seconds, nanoseconds */
#define NS_PER_S INT64_C(1000000000)
#define BOOT_ID_MIN 8 /* characters: less is none */

static int cannot_read(int failure, const char *path, struct error_text *err)
{
    if (failure == EMFILE || failure == ENFILE || failure == ENOMEM)
        return error_set_errno(err, HF_ENOMEM, failure, "cannot read %s", path);
    return error_set_errno(err, HF_EREFUSED, failure, "cannot read %s%s", path,
                           access("/proc/self", F_OK) < 0 ? " (is /proc mounted?)" : "");
}

/* 0, or an errno. ret_text: always a string. */
static int read_text(const char *path, char *ret_text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), failure = fd < 0 ? errno : 0;
    size_t used = 0;
    ssize_t got = fd >= 0 ? 1 : 0;

    while (got != 0 && used < size - 1) {
        got = read(fd, ret_text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            failure = errno;
            break;
        }
        used += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    ret_text[used] = '\0';
    return failure;
}

int bootclock_read_id(char ret_id[BOOT_ID_SIZE], struct error_text *err)
{
    char text[BOOT_ID_SIZE];
    int failure = read_text(BOOT_ID_PATH, text, sizeof text);
    size_t length = strcspn(text, "\n");

    if (failure == 0 && length < BOOT_ID_MIN)
        failure = EINVAL;
    if (failure)
        return cannot_read(failure, BOOT_ID_PATH, err);
    memset(ret_id, 0, BOOT_ID_SIZE);
    memcpy(ret_id, text, length);
    return HF_OK;
}

/* Are we in the namespace that the offsets are told of? Not if this process has made one for its children. */
static int are_ours(struct error_text *err)
{
    char ours[64], children[64];
    ssize_t size = readlink(NAMESPACE_PATH, ours, sizeof ours), other;

    if (size < 0)
        return cannot_read(errno, NAMESPACE_PATH, err);
    other = readlink(CHILDREN_PATH, children, sizeof children);
    if (other < 0)
        return cannot_read(errno, CHILDREN_PATH, err);
    if (other != size || memcmp(ours, children, (size_t)size) != 0)
        return error_set(err, HF_EREFUSED,
                         "cannot tell the time: this process has made a time namespace that it is "
                         "not in itself (start it in a child of whoever made it)");
    return HF_OK;
}

static int read_offset(struct bootclock *clock, struct error_text *err)
{
    char text[256], *line, *seconds_end, *end;
    long long s, ns;
    int failure = read_text(OFFSETS_PATH, text, sizeof text);

    clock->offset_ns = 0;
    if (failure == ENOENT)
        return HF_OK; /* a kernel without time namespaces: /proc is there, it has told the boot id */
    if (failure)
        return cannot_read(failure, OFFSETS_PATH, err);
    line = strstr(text, BOOTTIME);
    if (!line)
        return cannot_read(EINVAL, OFFSETS_PATH, err);
    line += strlen(BOOTTIME);
    s = strtoll(line, &seconds_end, 10);
    ns = strtoll(seconds_end, &end, 10);
    if (seconds_end == line || end == seconds_end || s < INT64_MIN / NS_PER_S ||
        s >= INT64_MAX / NS_PER_S || ns < 0 || ns >= NS_PER_S)
        return cannot_read(EINVAL, OFFSETS_PATH, err);
    clock->offset_ns = s * NS_PER_S + ns;
    return are_ours(err);
}

int bootclock_read(struct bootclock *ret_clock, struct error_text *err)
{
    int result = bootclock_read_id(ret_clock->boot_id, err);

    return result == HF_OK ? read_offset(ret_clock, err) : result;
}

int64_t bootclock_now_ms(const struct bootclock *clock)
{
    return (clock_boot_ns() - clock->offset_ns) / 1000000;
}
