/* commands.c: which commands there are, and what has to be true before one may begin. */
#include "base/sequencer.h"
#include "base/suggest.h"
#include "session/inside.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 64 /* bytes of a word in an error */
#define MEANT_MIN 5  /* bytes of a word that may be meant for another */
#define MEANT_MAX 32
#define COMMANDS_MAX 64 /* with the owner's */
/* Bytes of names times bytes of patterns, in one command of several names: ten milliseconds if they are the worst there are. */
#define COMPARED_MAX (8u << 20)
#define NO_REDIS                                                                                \
    ": this is holdfastd, which keeps locks, and no keys or scripts: take a lock with ACQUIRE " \
    "name "                                                                                     \
    "lease TTL ms, and give it back with RELEASE name lease"

static const struct command once_parts[] = {
    {"CLAIM", -4, command_once_claim, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_SECOND,
     "Runs a key, or waits for its result",
     "key lease [TTL ms] [WAIT ms] [PUSH] [KEEP ms] [NOHEIR] [OWNER text]", NULL},
    {"FINISH", 9, command_once_finish, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_SECOND,
     "Stores the result of a key", "key lease TOKEN token KEEP ms result", NULL},
    {"READ", 3, command_once_read, COMMAND_LOGGED, RIGHT_LOOK, NAMES_SECOND,
     "What is known of a key", "key", NULL},
    {"RELEASE", -4, command_once_release, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE,
     NAMES_SECOND, "Gives up a key, or the wait for it", "key lease [TOKEN token]", NULL},
    {.name = NULL},
};

/* The usual ones first: they are looked up in this order. */
static const struct command lock_commands[] = {
    {"ACQUIRE", -3, command_acquire, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_FIRST,
     "Takes a lock, or a place in its queue",
     "name lease [TTL ms] [WAIT ms] [PUSH] [SHARED] [PERMITS n] [DELAY ms] [OWNER text]", NULL},
    {"RELEASE", -3, command_release, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_FIRST,
     "Gives up a lock, or a place in its queue", "name lease [TOKEN token]", NULL},
    {"RENEW", -2, command_renew, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_LEASES,
     "Prolongs leases", "lease [lease ...] [TTL ms]", NULL},
    {"END", -2, command_end, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_ACQUIRE, NAMES_LEASES,
     "Ends a lease and all it holds", "lease [TTL ms]", NULL},
    {"CHECK", -2, command_check, COMMAND_LOGGED, RIGHT_LOOK_OR_ACQUIRE, NAMES_CHECKED,
     "Is this hold alive?", "name token [MODE] | sequencer", NULL},
    {"SHOW", -2, command_show, COMMAND_LOGGED, RIGHT_LOOK, NAMES_FIRST,
     "Who holds a name and who waits for it", "name [WAITERS n]", NULL},
    {"LOCKS", -1, command_locks, COMMAND_LOGGED, RIGHT_LOOK, NAMES_NONE, "Pages of names in use",
     "[MATCH glob] [COUNT n] [CURSOR c]", NULL},
    {"OBSERVE", 2, command_observe, COMMAND_LOGGED, RIGHT_LOOK, NAMES_FIRST,
     "Pushes every change of holder", "name", NULL},
    {"UNOBSERVE", 2, command_unobserve, 0, RIGHT_NONE, NAMES_FIRST, "Ends that", "name", NULL},
    {"BREAK", -2, command_break, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_BREAK, NAMES_FIRST,
     "Ends the holders' leases", "name [NOW]", NULL},
    {"FLOOR", 2, command_floor, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_FLOOR, NAMES_NONE,
     "Makes the next tokens greater", "token", NULL},
    {"ONCE", -2, NULL, COMMAND_LOGGED | COMMAND_WRITES, RIGHT_NONE, NAMES_NONE,
     "Idempotency records", "CLAIM | FINISH | READ | RELEASE ...", once_parts},
};
#define LOCK_COMMANDS (sizeof lock_commands / sizeof *lock_commands)

const struct command *command_at(const struct sessions *sessions, size_t index)
{
    if (index < LOCK_COMMANDS)
        return &lock_commands[index];
    index -= LOCK_COMMANDS;
    return index < sessions->owner_command_count ? &sessions->owner_commands[index] : NULL;
}

size_t command_count(const struct sessions *sessions)
{
    return LOCK_COMMANDS + sessions->owner_command_count;
}

const struct command *command_find(const struct sessions *sessions, const struct resp_node *word)
{
    const struct command *command;

    for (size_t i = 0; (command = command_at(sessions, i)); i++)
        if (word_is(word, command->name))
            return command;
    return NULL;
}

const struct command *command_part(const struct command *command, const struct resp_node *word)
{
    for (const struct command *part = command->parts; part->name; part++)
        if (word_is(word, part->name))
            return part;
    return NULL;
}

enum verdict refuse(struct session *session, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_write(&session->sessions->refusal, "%s", text);
    return VERDICT_REFUSED;
}

/* Most say the same thing again and again. */
static const struct command *find(const struct session *session, const struct resp_node *word)
{
    if (session->command && word_is(word, session->command->name))
        return session->command;
    return command_find(session->sessions, word);
}

/* By these the lock libraries for Redis take, keep and give back their locks: who meets one of them here is told the way. */
static bool is_of_redis(const struct resp_node *word)
{
    static const char *const words[] = {"SET",     "SETNX",  "GET",     "DEL",   "UNLINK",
                                        "EXISTS",  "EXPIRE", "PEXPIRE", "PTTL",  "EVAL",
                                        "EVALSHA", "SCRIPT", "FCALL",   "MULTI", "PUBLISH"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word_is(word, words[i]))
            return true;
    return false;
}

/* Only arrays of strings are commands. */
static bool is_command(const struct resp_node *value)
{
    if (value->type != RESP_ARRAY || value->count == 0)
        return false;
    for (uint32_t i = 0; i < value->count; i++)
        if (value[i + 1].type != RESP_BLOB && value[i + 1].type != RESP_SIMPLE)
            return false;
    return true;
}

/* NULL: nothing that it could be meant for. Short words are near to anything. */
static const char *nearest(const struct sessions *sessions, const struct resp_node *word)
{
    const char *names[COMMANDS_MAX];
    char typed[MEANT_MAX + 1];
    size_t count = command_count(sessions);

    INVARIANT(count <= COMMANDS_MAX);
    if (word->size < MEANT_MIN || word->size > MEANT_MAX)
        return NULL;
    for (size_t i = 0; i < word->size; i++)
        typed[i] = (char)toupper((unsigned char)word->text[i]);
    typed[word->size] = '\0';
    for (size_t i = 0; i < count; i++)
        names[i] = command_at(sessions, i)->name;
    return suggest_nearest(typed, names, count);
}

static enum verdict refuse_unknown(struct session *session, const struct resp_node *word)
{
    int shown = word->size < SHOWN_MAX ? (int)word->size : SHOWN_MAX;
    const char *near = nearest(session->sessions, word);

    if (is_of_redis(word) || !near)
        return refuse(session, "ERR unknown command '%.*s'%s", shown, word->text,
                      is_of_redis(word) ? NO_REDIS : "");
    return refuse(session, "ERR unknown command '%.*s': did you mean %s?", shown, word->text, near);
}

/* "STATUS, ADD or REMOVE" */
static enum verdict refuse_part(struct session *session, const struct command *command)
{
    char text[ERROR_TEXT_MAX];
    size_t size = 0;

    for (const struct command *part = command->parts; part->name && size < sizeof text; part++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s",
                                 part == command->parts ? ""
                                 : part[1].name         ? ", "
                                                        : " or ",
                                 part->name);
    return refuse(session, "ERR %s is followed by %s", command->name, text);
}

static bool has_arity(const struct command *command, const struct resp_node *value)
{
    return command->arity >= 0 ? value->count == (uint32_t)command->arity
                               : value->count >= (uint32_t)-command->arity;
}

/* whole: the command of which this may be a part. */
static enum verdict refuse_arity(struct session *session, const struct command *whole,
                                 const struct command *command)
{
    const char *first = whole == command ? "" : whole->name, *blank = whole == command ? "" : " ";

    return refuse(session, "ERR wrong number of arguments for '%s%s%s': %s%s%s%s%s", first, blank,
                  command->name, first, blank, command->name, command->syntax[0] ? " " : "",
                  command->syntax);
}

/* ---- may it? ------------------------------------------------------------------------------------- */

bool session_may_look(const struct session *session, struct core_text name)
{
    return user_may(session->user, RIGHT_LOOK, &name);
}

bool session_observes_rightly(const struct session *session, const struct user *user)
{
    LIST_EACH(node, &session->observers)
    {
        const struct observer *observer = LIST_ENTRY(node, struct observer, of_session);
        struct core_text name = {observer->name, observer->size};

        if (!user_may(user, RIGHT_LOOK, &name))
            return false;
    }
    return true;
}

/* All of them, or else ret_name is the first that it may not. */
static bool may_all(const struct user *user, enum right right, const struct resp_node *value,
                    uint32_t from, uint32_t to, struct core_text *ret_name)
{
    for (uint32_t i = from; i < to; i++) {
        struct core_text name = word_text(word_at(value, i));

        if (!user_may(user, right, &name)) {
            *ret_name = name;
            return false;
        }
    }
    return true;
}

/* Our library says it to hear from a node that leads, with a majority behind it. It tells nothing of anybody. */
static bool is_barrier(const struct resp_node *value)
{
    return value->count == 3 && word_is(word_at(value, 1), "id") && word_is(word_at(value, 2), "1");
}

/* What is no sequencer is refused as that, by the command. */
static bool may_check(const struct user *user, enum right right, const struct resp_node *value,
                      struct core_text *ret_name)
{
    struct core_text name = word_text(word_at(value, 1));
    struct sequencer sequencer;

    if (value->count != 2 && is_barrier(value))
        return true;
    *ret_name = name;
    if (value->count != 2)
        return user_may(user, right, &name);
    if (sequencer_parse(name.bytes, name.size, &sequencer, NULL) != HF_OK)
        return user_may(user, right, NULL);
    name = (struct core_text){sequencer.name, strlen(sequencer.name)};
    return user_may(user, right, &name);
}

/* ret_name: what is denied, if it is about a name. A table that says something else is one that nobody may use. */
static bool is_allowed(const struct user *user, const struct command *command,
                       const struct resp_node *value, struct core_text *ret_name)
{
    *ret_name = (struct core_text){NULL, 0};
    if (user == &user_of_all || command->right == RIGHT_NONE)
        return true;
    switch (command->names) {
    case NAMES_FIRST:
        return may_all(user, command->right, value, 1, 2, ret_name);
    case NAMES_SECOND:
        return may_all(user, command->right, value, 2, 3, ret_name);
    case NAMES_ALL:
        return may_all(user, command->right, value, 1, value->count, ret_name);
    case NAMES_CHECKED:
        return may_check(user, command->right, value, ret_name);
    case NAMES_NONE:
    case NAMES_LEASES:
        return user_may(user, command->right, NULL);
    }
    return false;
}

static enum verdict refuse_right(struct session *session, const struct command *whole,
                                 const struct command *command, struct core_text name)
{
    const char *word = right_word(command->right), *of = "";

    session->sessions->denied =
        (struct denied){.command = whole->name, .right = word, .name = name};
    if (name.bytes)
        of = command->names == NAMES_ALL ? " on each of these names" : " on this name";
    return refuse(session, "NOPERM user '%s' has no right '%s'%s, which %s%s%s needs",
                  session->user->name, word, of, whole->name, whole == command ? "" : " ",
                  whole == command ? "" : command->name);
}

/* The word that a right depends on, of a command that has one such word; NULL: it has several, or none. */
static const struct resp_node *only_name(const struct command *command,
                                         const struct resp_node *value)
{
    if (command->names == NAMES_SECOND)
        return word_at(value, 2);
    if (command->names == NAMES_FIRST || (command->names == NAMES_CHECKED && value->count > 2))
        return word_at(value, 1);
    return NULL;
}

/* No lock has such a name, so that no pattern matches it: the client is told so before any is tried, since each would cost the loop as many
 * steps as the word has bytes. NULL: there is none. */
static const struct resp_node *too_long(const struct command *command,
                                        const struct resp_node *value)
{
    const struct resp_node *name = only_name(command, value);

    if (command->right == RIGHT_NONE)
        return NULL;
    if (name && name->size > HF_NAME_MAX)
        return name;
    for (uint32_t i = 1; command->names == NAMES_ALL && i < value->count; i++)
        if (word_at(value, i)->size > HF_NAME_MAX)
            return word_at(value, i);
    return NULL;
}

/* As with the pages of LOCKS, one command does not keep everybody waiting. A single name is bounded by its own length. */
static bool is_too_much(const struct user *user, const struct command *command,
                        const struct resp_node *value)
{
    size_t bytes = 0;

    if (command->names != NAMES_ALL || command->right == RIGHT_NONE || value->count <= 2)
        return false;
    for (uint32_t i = 1; i < value->count; i++)
        bytes += word_at(value, i)->size;
    return bytes * user_pattern_bytes(user, command->right) > COMPARED_MAX;
}

static enum verdict refuse_too_much(struct session *session, const struct command *command)
{
    return refuse(session,
                  "LIMIT so many names cannot be compared at once with all that user '%s' may: say "
                  "fewer in each %s",
                  session->user->name, command->name);
}

/* What operators do is told to whoever keeps book of it, before it begins. One that could not begin at once was told of already. */
static enum verdict run(struct session *session, const struct command *whole,
                        const struct command *command, const struct resp_node *value)
{
    const struct sessions_host *host = session->sessions->host;
    bool operates =
        command->traits & COMMAND_WRITES && (unsigned)command->right & RIGHTS_OF_OPERATORS;

    if (operates && host->operates && !session->operation &&
        !host->operates(session, whole, value, &session->operation))
        return VERDICT_REFUSED;
    return command->run(session, value);
}

/* ---- a command ------------------------------------------------------------------------------------ */

static enum verdict check_and_run(struct session *session, const struct resp_node *value)
{
    const struct command *whole, *command;
    const struct resp_node *name;
    struct core_text denied;

    if (!is_command(value))
        return refuse(session, "ERR a command is an array of strings");
    command = whole = find(session, &value[1]);
    if (!command)
        return refuse_unknown(session, &value[1]);
    if (!session->user && !(command->traits & COMMAND_OPEN))
        return refuse(session, "NOAUTH say the password first: AUTH [USER] PASSWORD");
    if (!has_arity(command, value))
        return refuse_arity(session, whole, command);
    if (whole->parts && !(command = command_part(whole, word_at(value, 1))))
        return refuse_part(session, whole);
    if (!has_arity(command, value))
        return refuse_arity(session, whole, command);
    /* What may not begin yet is looked at again, and is compared with its user's patterns when it may. */
    if (!(command->traits & COMMAND_LOGGED) && session->under_way > 0)
        return VERDICT_LATER;
    if ((name = too_long(command, value)))
        return refuse(session, "ERR a name has 1 to %d bytes, this one %zu", HF_NAME_MAX,
                      (size_t)name->size);
    if (session->user && is_too_much(session->user, command, value))
        return refuse_too_much(session, whole);
    if (session->user && !is_allowed(session->user, command, value, &denied))
        return refuse_right(session, whole, command, denied);
    if (session->subscriptions && !session->resp3 && !(command->traits & COMMAND_SUBSCRIBED))
        return refuse(session,
                      "ERR %s: after SUBSCRIBE only SUBSCRIBE, UNSUBSCRIBE, PING and QUIT may be "
                      "said in RESP2 (HELLO 3 has no such limit)",
                      whole->name);
    session->command = whole;
    return run(session, whole, command, value);
}

/* Once, and not each time that it is looked at whether its turn has come. */
static void tell_denied(struct session *session)
{
    struct sessions *sessions = session->sessions;

    if (!sessions->denied.command)
        return;
    sessions->denied_commands++;
    if (sessions->host->denied)
        sessions->host->denied(session, &sessions->denied);
}

enum verdict command_run(struct session *session, const struct resp_node *value)
{
    struct sessions *sessions = session->sessions;
    enum verdict verdict;

    sessions->denied.command = NULL;
    verdict = check_and_run(session, value);

    if (verdict == VERDICT_REFUSED) {
        if (session->under_way > 0)
            return VERDICT_LATER; /* the answers of those before it come first */
        tell_denied(session);
        session->protocol->fail(session, sessions->refusal.text);
        operation_over(session, sessions->refusal.text);
        sessions->wrong_commands++;
        verdict = VERDICT_DONE;
    }
    if (verdict == VERDICT_DONE) {
        sessions->commands++;
        session->commands++;
        operation_over(session, NULL); /* what is not under way is answered */
        session_dirty(session);
    }
    return verdict;
}
