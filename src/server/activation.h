/* activation.h: sockets that systemd has opened, and hands on to the server that it starts. Clients who come while the server is
 * restarted wait in them. Which addresses there are remains the business of `listen`: a socket at another one is refused, since
 * the rule about passwords is about `listen`, too. */
#ifndef SERVER_ACTIVATION_H
#define SERVER_ACTIVATION_H

#include "base/error.h"
#include "server/config.h"
#include "server/endpoint.h"

#include <stdbool.h>

struct activation {
    int count;
    struct handed_on {
        int fd;
        bool taken;
    } at[CONFIG_LISTEN_MAX];
};

/* What LISTEN_PID and LISTEN_FDS say, as sd_listen_fds(3) has it. None if they are not there, or meant for another process. */
int activation_read(struct activation *ret_sockets, struct error_text *err);
/* The one that is open at this address; it is the caller's now. -1: none. */
int activation_take(struct activation *sockets, const struct endpoint *endpoint);
/* HF_EINVAL: one is left that nobody took. */
int activation_check_taken(const struct activation *sockets, struct error_text *err);

#endif
