/* commands.c: which commands there are, and what has to be true before one may begin. */
#include "base/suggest.h"
#include "session/inside.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#define SHOWN_MAX 64 /* bytes of a word in an error */
#define MEANT_MIN 5  /* bytes of a word that may be meant for another */
#define MEANT_MAX 32
#define COMMANDS_MAX 64 /* with the owner's */
#define NO_REDIS                                                                                \
    ": this is holdfastd, which keeps locks, and no keys or scripts: take a lock with ACQUIRE " \
    "name "                                                                                     \
    "lease TTL ms, and give it back with RELEASE name lease"

/* The usual ones first: they are looked up in this order. */
static const struct command lock_commands[] = {
    {"ACQUIRE", -3, command_acquire, COMMAND_LOGGED, "Takes a lock, or a place in its queue",
     "name lease [TTL ms] [WAIT ms] [PUSH] [SHARED] [PERMITS n] [DELAY ms] [OWNER text]"},
    {"RELEASE", -3, command_release, COMMAND_LOGGED, "Gives up a lock, or a place in its queue",
     "name lease [TOKEN token]"},
    {"RENEW", -2, command_renew, COMMAND_LOGGED, "Prolongs leases", "lease [lease ...] [TTL ms]"},
    {"END", -2, command_end, COMMAND_LOGGED, "Ends a lease and all it holds", "lease [TTL ms]"},
    {"CHECK", -2, command_check, COMMAND_LOGGED, "Is this hold alive?",
     "name token [MODE] | sequencer"},
    {"SHOW", -2, command_show, COMMAND_LOGGED, "Who holds a name and who waits for it",
     "name [WAITERS n]"},
    {"LOCKS", -1, command_locks, COMMAND_LOGGED, "Pages of names in use",
     "[MATCH glob] [COUNT n] [CURSOR c]"},
    {"OBSERVE", 2, command_observe, COMMAND_LOGGED, "Pushes every change of holder", "name"},
    {"UNOBSERVE", 2, command_unobserve, 0, "Ends that", "name"},
    {"BREAK", -2, command_break, COMMAND_LOGGED, "Ends the holders' leases", "name [NOW]"},
    {"FLOOR", 2, command_floor, COMMAND_LOGGED, "Makes the next tokens greater", "token"},
    {"ONCE", -3, command_once, COMMAND_LOGGED, "Idempotency records",
     "CLAIM key lease [TTL ms] [WAIT ms] [PUSH] [KEEP ms] [NOHEIR] [OWNER text] | "
     "FINISH key lease TOKEN token KEEP ms result | READ key | RELEASE key lease [TOKEN token]"},
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

static enum verdict check_and_run(struct session *session, const struct resp_node *value)
{
    const struct command *command;

    if (!is_command(value))
        return refuse(session, "ERR a command is an array of strings");
    command = find(session, &value[1]);
    if (!command)
        return refuse_unknown(session, &value[1]);
    if (!session->authenticated && !(command->traits & COMMAND_OPEN))
        return refuse(session, "NOAUTH say the password first: AUTH PASSWORD");
    if (command->arity >= 0 ? value->count != (uint32_t)command->arity
                            : value->count < (uint32_t)-command->arity)
        return refuse(session, "ERR wrong number of arguments for '%s': %s %s", command->name,
                      command->name, command->syntax);
    if (session->subscriptions && !session->resp3 && !(command->traits & COMMAND_SUBSCRIBED))
        return refuse(session,
                      "ERR %s: after SUBSCRIBE only SUBSCRIBE, UNSUBSCRIBE, PING and QUIT may be "
                      "said in RESP2 (HELLO 3 has no such limit)",
                      command->name);
    if (!(command->traits & COMMAND_LOGGED) && session->under_way > 0)
        return VERDICT_LATER;
    session->command = command;
    return command->run(session, value);
}

enum verdict command_run(struct session *session, const struct resp_node *value)
{
    struct sessions *sessions = session->sessions;
    enum verdict verdict = check_and_run(session, value);

    if (verdict == VERDICT_REFUSED) {
        if (session->under_way > 0)
            return VERDICT_LATER; /* the answers of those before it come first */
        resp_write_error(&session->out, sessions->refusal.text);
        sessions->wrong_commands++;
        verdict = VERDICT_DONE;
    }
    if (verdict == VERDICT_DONE) {
        sessions->commands++;
        session->commands++;
        session_dirty(session);
    }
    return verdict;
}
