/* notify.h: telling the service manager how we are (the protocol of sd_notify(3), without its
 * library). Where nobody asked to be told, every call does nothing and answers HF_OK.
 *
 * A failure is worth a line in the log, no more: the server serves all the same. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include "base/error.h"

#include <stdint.h>

#define NOTIFY_STATUS_MAX 256 /* bytes of a status; what is longer is cut */

int notify_ready(struct error_text *err);
int notify_stopping(struct error_text *err);
/* One line for people, shown by `systemctl status`. Does not wait: may be lost. */
int notify_status(const char *text, struct error_text *err);
/* Still alive: to be called at half of notify_watchdog_us or more often. Does not wait either. */
int notify_watchdog(struct error_text *err);

/* How long we may be silent before we are taken for dead, in microseconds; 0: for ever. */
int64_t notify_watchdog_us(void);

#endif
