/* audit.h: what operators do, who was let in or refused, and each break: a line of JSON each, in a file of their own.
 *
 *     {"time":"2026-11-18T23:59:01.123Z","event":"command","id":"5f0c2e91-1","user":"ann","client":"10.0.0.9:51234","command":"BREAK nightly NOW"}
 *     {"time":"2026-11-18T23:59:01.127Z","event":"command_end","id":"5f0c2e91-1","user":"ann","client":"10.0.0.9:51234","outcome":"done",
 *      "command":"BREAK nightly NOW"}
 *
 * Events are login, login_refused, denied (a right was missing), over_quota (a user has as much as it may), command, command_end and left_out:
 * of what is refused only so much is written (audit_budget.h), and then how many lines were left out. An operator's command that cannot be written down
 * does not begin; one that has begun and has no end was under way when the server was killed. All else goes on without the line, and the log
 * says so. */
#ifndef SERVER_AUDIT_H
#define SERVER_AUDIT_H

#include "session/commands.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a command that are shown: of no legal one is anything cut. The longest is a BREAK of a name all of whose bytes have a backslash before
 * them; in JSON that has room in a line of LOG_LINE_MAX, and so has one of bytes that are six there. */
#define AUDIT_COMMAND_MAX (2 * HF_NAME_MAX + 64)
#define AUDIT_NAME_MAX \
    (HF_NAME_MAX + 64) /* of a name that was denied, which may be too long to be one */

/* Appends; makes the file if it is not there, for its owner and group only. Again after it was renamed (SIGHUP). path "": there is none. */
int audit_open(const char *path, struct error_text *err);
/* Says before what was left out so far. */
void audit_close(void);
/* Once a second: says what was left out. */
void audit_second(void);
/* How many lines were, since the start. */
uint64_t audit_left_out(void);

/* By HTTP a password is said with each request: one that was right before is not noted again. */
void audit_http_login(const char *client, const char *user, bool right);
void audit_login(const struct session *session, const char *user, bool right);
/* What sessions call: see struct sessions_host. */
void audit_denied(struct session *session, const struct denied *denied);
bool audit_begin(struct session *session, const struct command *whole,
                 const struct resp_node *value, void **ret_operation);
void audit_end(struct session *session, void *operation, const char *refusal);

#endif
