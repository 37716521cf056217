#include "server/notify.h"
#include "base/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* NOTIFY_SOCKET is a path, or '@' and a name in the abstract space, where a NUL takes its place. */
static int find_address(const char *name, struct sockaddr_un *ret_address, socklen_t *ret_size,
                        struct error_text *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    bool abstract = name[0] == '@';

    if ((name[0] != '/' && !abstract) || length < 2 || length >= sizeof address.sun_path)
        return error_set(err, HF_EINVAL,
                         "NOTIFY_SOCKET is neither the path of a socket nor '@' and a name");
    memcpy(address.sun_path, name, length);
    if (abstract)
        address.sun_path[0] = '\0';
    *ret_address = address;
    /* An abstract name ends where the address does; a path ends with its NUL. */
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (abstract ? 0 : 1));
    return HF_OK;
}

static int tell(const char *message, int flags, struct error_text *err)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t size;
    ssize_t sent;
    int fd, result, failure;

    if (!name || !*name)
        return HF_OK;
    result = find_address(name, &address, &size, err);
    if (result != HF_OK)
        return result;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, HF_EIO, errno, "cannot make a socket for NOTIFY_SOCKET");
    do
        sent = sendto(fd, message, strlen(message), flags | MSG_NOSIGNAL,
                      (const struct sockaddr *)&address, size);
    while (sent < 0 && errno == EINTR);
    failure = errno;
    close(fd);
    if (sent < 0)
        return error_set_errno(err, HF_EIO, failure, "cannot tell the service manager %.12s",
                               message);
    return HF_OK;
}

int notify_ready(struct error_text *err)
{
    return tell("READY=1", 0, err);
}

int notify_stopping(struct error_text *err)
{
    return tell("STOPPING=1", 0, err);
}

/* After a cut: half a character would make the manager refuse the whole message. */
static void drop_last_character(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && ((unsigned char)text[length - 1] & 0xc0) == 0x80)
        length--;
    text[length > 0 ? length - 1 : 0] = '\0';
}

int notify_status(const char *text, struct error_text *err)
{
    char message[sizeof "STATUS=" + NOTIFY_STATUS_MAX];

    if (snprintf(message, sizeof message, "STATUS=%s", text) >= (int)sizeof message)
        drop_last_character(message);
    /* Each line of a message is a word to the manager: a status must not have a second one. */
    for (char *at = message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    return tell(message, MSG_DONTWAIT, err);
}

int notify_watchdog(struct error_text *err)
{
    return tell("WATCHDOG=1", MSG_DONTWAIT, err);
}

int64_t notify_watchdog_us(void)
{
    const char *span = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t us, meant;

    if (!span || !text_to_u64(span, INT64_MAX, &us))
        return 0;
    /* Meant for another process, from which we have inherited it. */
    if (pid && *pid && (!text_to_u64(pid, INT32_MAX, &meant) || meant != (uint64_t)getpid()))
        return 0;
    return (int64_t)us;
}
