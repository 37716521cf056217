#include "sim/switches.h"

#include <stddef.h>
#include <string.h>

unsigned switches_on;

static const char *const names[] = {
    [SWITCH_CONFIG_AT_FIRST] = "config-at-first",
    [SWITCH_LONE_OLD_TERM] = "lone-old-term",
    [SWITCH_ACK_BEFORE_DURABLE] = "ack-before-durable",
    [SWITCH_OLDER_TERM_BY_COUNTING] = "older-term-by-counting",
    [SWITCH_LEASE_FROM_ANSWER] = "lease-from-answer",
    [SWITCH_TOKENS_REPEAT] = "tokens-repeat",
    [SWITCH_OLD_COPY_GOES_ON] = "old-copy-goes-on",
    [SWITCH_VERSION_TOO_EARLY] = "version-too-early",
    [SWITCH_TABLE_DIVERGES] = "table-diverges",
    [SWITCH_VOTE_NOT_DURABLE] = "vote-not-durable",
    [SWITCH_UNKNOWN_AS_REFUSED] = "unknown-as-refused",
    [SWITCH_QUEUE_LOST] = "queue-lost",
    [SWITCH_BREAK_NOT_WITHHELD] = "break-not-withheld",
    [SWITCH_LOG_BEHIND_SNAPSHOT] = "log-behind-snapshot",
    [SWITCH_LOCAL_READ] = "local-read",
    [SWITCH_BLOCKED_UNKEPT] = "blocked-unkept",
    [SWITCH_BLOCKED_NEXT_TERM] = "blocked-next-term",
    [SWITCH_TERM_ONCE] = "term-once",
};

bool switch_set(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(name, names[i]) == 0) {
            switches_on |= 1u << i;
            return true;
        }
    return false;
}

const char *switch_names(void)
{
    return "config-at-first, lone-old-term, ack-before-durable, older-term-by-counting, "
           "lease-from-answer, tokens-repeat, old-copy-goes-on, version-too-early, "
           "table-diverges, vote-not-durable, unknown-as-refused, queue-lost, "
           "break-not-withheld, log-behind-snapshot, local-read, blocked-unkept, "
           "blocked-next-term, "
           "term-once";
}
