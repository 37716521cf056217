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
           "lease-from-answer, tokens-repeat";
}
