/* cmd_args.c: words of commands, checked against their limits. Whoever is wrong hears what is. */
#include "session/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHOWN_MAX 32 /* bytes of a wrong word in an error */
#define TTL_STANDARD_MS 30000

bool word_is(const struct resp_node *word, const char *text)
{
    return word && word->size == strlen(text) && strncasecmp(word->text, text, word->size) == 0;
}

struct core_text word_text(const struct resp_node *word)
{
    return (struct core_text){word->text, word->size};
}

static int shown(const struct resp_node *word)
{
    return word->size < SHOWN_MAX ? (int)word->size : SHOWN_MAX;
}

static bool within(struct session *session, const struct resp_node *word, const char *what,
                   size_t min, size_t max)
{
    if (word->size < min || word->size > max) {
        refuse(session, "ERR %s has %zu to %zu bytes, this one %zu", what, min, max, word->size);
        return false;
    }
    if (memchr(word->text, '\0', word->size)) {
        refuse(session, "ERR %s has no NUL in it", what);
        return false;
    }
    return true;
}

bool parse_name(struct session *session, const struct resp_node *word, struct core_text *ret_name)
{
    *ret_name = word_text(word);
    return within(session, word, "a name", 1, HF_NAME_MAX);
}

bool parse_lease(struct session *session, const struct resp_node *word, struct core_text *ret_lease)
{
    *ret_lease = word_text(word);
    return within(session, word, "a lease", 1, HF_LEASE_MAX);
}

bool parse_number(struct session *session, const struct resp_node *word, const char *what,
                  uint64_t min, uint64_t max, uint64_t *ret_number)
{
    int64_t number;

    if (resp_to_int64(word, &number) && number >= 0 && (uint64_t)number >= min &&
        (uint64_t)number <= max) {
        *ret_number = (uint64_t)number;
        return true;
    }
    refuse(session, "ERR %s is a number from %" PRIu64 " to %" PRIu64 ", not '%.*s'", what, min,
           max, shown(word), word->text);
    return false;
}

/* The table counts whole milliseconds, and may be up to one behind the time when a command comes: so
 * much would be missing from a span that begins then. SHOW and RENEW take it off again. */
uint64_t span_in_full(uint64_t span_ms)
{
    return span_ms + 1;
}

int64_t span_shown(int64_t left_ms)
{
    return left_ms > 0 ? left_ms - 1 : left_ms;
}

/* ---- options ----------------------------------------------------------------------------------- */

/* An option that is there twice is as unknown as any other word: option_unknown says so. */
bool option_is(struct words_left *left, const char *name, uint32_t bit)
{
    if (left->had & bit || !word_is(word_at(left->value, left->at), name))
        return false;
    left->had |= bit;
    left->at++;
    return true;
}

bool option_number(struct words_left *left, const char *what, uint64_t min, uint64_t max,
                   uint64_t *ret_number)
{
    const struct resp_node *word = word_at(left->value, left->at);

    if (!word) {
        refuse(left->session, "ERR %s has no number behind it", what);
        return false;
    }
    left->at++;
    return parse_number(left->session, word, what, min, max, ret_number);
}

bool option_unknown(struct words_left *left)
{
    const struct resp_node *word = word_at(left->value, left->at);

    refuse(left->session, "ERR '%.*s' is not expected here, or twice", shown(word), word->text);
    return false;
}

/* ---- ACQUIRE ----------------------------------------------------------------------------------- */

enum {
    HAD_TTL = 1,
    HAD_WAIT = 2,
    HAD_PUSH = 4,
    HAD_SHARED = 8,
    HAD_PERMITS = 16,
    HAD_DELAY = 32,
    HAD_OWNER = 64,
    HAD_NO_HEIR = 128
};

static bool parse_owner(struct words_left *left, struct core_text *ret_owner)
{
    const struct resp_node *word = word_at(left->value, left->at);

    if (!word) {
        refuse(left->session, "ERR OWNER has no text behind it");
        return false;
    }
    left->at++;
    *ret_owner = word_text(word);
    return within(left->session, word, "an owner", 0, HF_OWNER_MAX);
}

/* One option. ttl is wider than the command's field. */
static bool acquire_option(struct words_left *left, bool once, struct core_command *command,
                           uint64_t *ttl_ms, bool *push)
{
    uint64_t permits;

    if (option_is(left, "TTL", HAD_TTL))
        return option_number(left, "TTL", HF_TTL_MIN_MS, HF_TTL_MAX_MS, ttl_ms);
    if (option_is(left, "WAIT", HAD_WAIT))
        return option_number(left, "WAIT", 0, HF_DURATION_MAX_MS, &command->wait_ms);
    if (option_is(left, "PUSH", HAD_PUSH))
        return *push = true;
    if (option_is(left, "OWNER", HAD_OWNER))
        return parse_owner(left, &command->owner);
    if (once) {
        if (option_is(left, "KEEP", HAD_DELAY))
            return option_number(left, "KEEP", 0, HF_DURATION_MAX_MS, &command->delay_ms);
        if (option_is(left, "NOHEIR", HAD_NO_HEIR)) {
            command->flags |= CORE_NO_HEIR;
            return true;
        }
        return option_unknown(left);
    }
    if (option_is(left, "DELAY", HAD_DELAY))
        return option_number(left, "DELAY", 0, HF_DURATION_MAX_MS, &command->delay_ms);
    if (option_is(left, "SHARED", HAD_SHARED)) {
        command->mode = HF_SHARED;
        return true;
    }
    if (!option_is(left, "PERMITS", HAD_PERMITS))
        return option_unknown(left);
    if (!option_number(left, "PERMITS", 1, HF_PERMITS_MAX, &permits))
        return false;
    command->mode = HF_PERMIT;
    command->permits = (uint32_t)permits;
    return true;
}

/* Others see who it is, and not only what he says: "alice: job@host". */
static void name_owner(struct session *session, struct core_text *owner)
{
    char *text = session->sessions->owner;
    int size;

    if (session->user == &user_of_all)
        return;
    size = snprintf(text, sizeof session->sessions->owner, "%s%s%.*s", session->user->name,
                    owner->size ? ": " : "", (int)owner->size, owner->bytes);
    *owner = (struct core_text){text, size < HF_OWNER_MAX ? (size_t)size : HF_OWNER_MAX};
}

/* Who has limits is counted: by the table, which all nodes share (core/quota.c). */
static void name_user(const struct session *session, struct core_command *command)
{
    const struct user *user = session->user;

    if (!user_has_quota(user))
        return;
    command->flags |= CORE_QUOTA;
    command->user = (struct core_text){user->name, strlen(user->name)};
    command->quota = user->quota;
}

bool parse_acquire(struct words_left *left, bool once, struct core_command *ret_command,
                   bool *ret_push)
{
    struct session *session = left->session;
    struct core_command *command = ret_command;
    uint64_t ttl_ms = TTL_STANDARD_MS;
    bool push = false;

    *command = (struct core_command){.op = CORE_ACQUIRE, .flags = once ? CORE_ONCE : 0};
    if (!parse_name(session, word_at(left->value, left->at), &command->name) ||
        !parse_lease(session, word_at(left->value, left->at + 1), &command->lease))
        return false;
    left->at += 2;
    while (left->at < left->value->count)
        if (!acquire_option(left, once, command, &ttl_ms, &push))
            return false;
    if (left->had & HAD_SHARED && left->had & HAD_PERMITS) {
        refuse(session, "ERR SHARED and PERMITS do not go together");
        return false;
    }
    if (push && !session->resp3) {
        refuse(session, "ERR PUSH needs RESP3: say HELLO 3 first");
        return false;
    }
    if (push && session->waiting >= WAITERS_MAX) {
        refuse(session, "LIMIT this connection waits for %u locks already", WAITERS_MAX);
        return false;
    }
    name_owner(session, &command->owner);
    name_user(session, command);
    command->ttl_ms = (uint32_t)span_in_full(ttl_ms);
    if (command->delay_ms)
        command->delay_ms = span_in_full(command->delay_ms);
    if (command->wait_ms)
        command->wait_ms = span_in_full(command->wait_ms);
    if (push || command->wait_ms > 0)
        command->flags |= CORE_WAITS | (push ? 0u : CORE_KEPT);
    if (push && !(left->had & HAD_WAIT))
        command->wait_ms = CORE_FOREVER;
    *ret_push = push;
    return true;
}
