/* scripts.h: the Lua that runs inside Redis, and the keys it works on. */
#ifndef ENGINES_REDIS_SCRIPTS_H
#define ENGINES_REDIS_SCRIPTS_H

#include "resp/resp.h"

enum script_id {
    SCRIPT_NONE,
    SCRIPT_ACQUIRE,
    SCRIPT_RELEASE,
    SCRIPT_ABANDON,
    SCRIPT_RENEW,
    SCRIPT_SHOW,
    SCRIPT_CHECK,
    SCRIPT_BREAK,
    SCRIPT_FLOOR,
    SCRIPT_VOTE,
    SCRIPT_SEAL,
    SCRIPT_REFILL,
    SCRIPT_ONCE_CLAIM,
    SCRIPT_ONCE_FINISH,
    SCRIPT_ONCE_READ,
    SCRIPT_COUNT
};

/* No key of a lock may begin with this: our other keys do. */
#define SCRIPT_KEY_RESERVED "holdfast."

/* EVALSHA, or EVAL with the whole text when the server does not know the script (any more). Then
 * come `arguments` arguments. name and lease may be "" where the script does not look at them. */
void script_write(struct resp_writer *writer, enum script_id id, bool by_text, const char *prefix,
                  const char *name, const char *lease, size_t arguments);
/* The same for the key of a once-record, whose keys have other names. */
void script_write_once(struct resp_writer *writer, enum script_id id, bool by_text,
                       const char *prefix, const char *key, const char *lease, size_t arguments);

/* For tests and the bench, which calls the same scripts by other means. */
const char *script_text(enum script_id id);
const char *script_sha(enum script_id id); /* 40 hex digits */

#endif
