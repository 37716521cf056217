/* defaults.h: client.conf, which says what a program uses that was not told: a job of cron has no HOLDFAST_URL.
 *
 *     url = holdfast://a,b,c            the store
 *     ttl = 60s                         of that store, unless a lock asks for another
 *     password-file = /etc/holdfast/password
 *     need = strict                     refuse best-effort stores, also those that were named
 *
 * Two files, of which the user's outweighs the system's. What ttl and password-file say is about the url of the same
 * file: a password never goes to a server that somebody else named. */
#ifndef CLIENT_DEFAULTS_H
#define CLIENT_DEFAULTS_H

#include "base/conf.h"

#include <stdbool.h>

#define DEFAULTS_FILE "/etc/holdfast/client.conf"
#define DEFAULTS_USER_FILE "holdfast/client.conf" /* below $XDG_CONFIG_HOME or ~/.config */
#define DEFAULTS_VARIABLE "HOLDFAST_CLIENT_CONF"  /* another file, in place of both */

struct defaults {
    char url[HF_URL_MAX + 1]; /* with the other options of its file; "": none */
    char url_from[CONF_PATH_MAX];
    bool need_strict;
    char need_from[CONF_PATH_MAX];
};

/* named: the caller knows its store, and a file of another user that cannot be read need not be. HF_EINVAL for a file that
 * is wrong, HF_EREFUSED for one that others could have written, or that cannot be read. */
int defaults_read(bool named, struct defaults *ret_defaults, struct error_text *err);

#endif
