/* commands.c: which commands there are, and what has to be true before one may begin. */
#include "base/suggest.h"
#include "server/log.h"
#include "server/server.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SPARE_MAX 4096u /* requests that are kept for the next ones */
#define SHOWN_MAX 64    /* bytes of a word in an error */
#define MEANT_MIN 5     /* bytes of a word that may be meant for another */
#define MEANT_MAX 32
#define NO_REDIS                                                                                \
    ": this is holdfastd, which keeps locks, and no keys or scripts: take a lock with ACQUIRE " \
    "name "                                                                                     \
    "lease TTL ms, and give it back with RELEASE name lease"

/* The usual ones first: they are looked up in this order. */
const struct command commands[] = {
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
    {"PING", -1, command_ping, COMMAND_SUBSCRIBED, "Is anybody there?", "[text]"},
    {"INFO", -1, command_info, 0, "How the server is", "[section ...]"},
    {"COMMAND", -1, command_command, 0, "Which commands there are",
     "[COUNT | LIST | INFO name ... | DOCS name ...]"},
    {"CLUSTER", -2, command_cluster, 0, "The nodes, and who leads them",
     "STATUS | DIGEST | INIT | ADD id host:port | REMOVE id | TRANSFER [id] | SLOTS | MYID"},
    {"HELLO", -1, command_hello, COMMAND_OPEN, "Chooses the protocol",
     "[2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"},
    {"AUTH", -2, command_auth, COMMAND_OPEN, "Says the password", "[user] password"},
    {"CLIENT", -2, command_client, 0, "About this connection",
     "SETNAME name | GETNAME | SETINFO what text | ID | INFO"},
    {"SELECT", 2, command_select, 0, "There is only 0", "index"},
    {"SUBSCRIBE", -2, command_subscribe, COMMAND_LOGGED | COMMAND_SUBSCRIBED,
     "OBSERVE for clients that speak RESP2", "name [name ...]"},
    {"UNSUBSCRIBE", -1, command_unsubscribe, COMMAND_SUBSCRIBED, "Ends that", "[name ...]"},
    {"QUIT", 1, command_quit, COMMAND_OPEN | COMMAND_SUBSCRIBED, "Closes the connection", ""},
};
const size_t command_count = sizeof commands / sizeof *commands;

enum verdict refuse(struct connection *connection, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_write(&connection->server->refusal, "%s", text);
    return VERDICT_REFUSED;
}

/* Most say the same thing again and again. */
static const struct command *find(const struct connection *connection, const struct resp_node *word)
{
    if (connection->command && word_is(word, connection->command->name))
        return connection->command;
    for (size_t i = 0; i < command_count; i++)
        if (word_is(word, commands[i].name))
            return &commands[i];
    return NULL;
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
static const char *nearest(const struct resp_node *word)
{
    const char *names[sizeof commands / sizeof *commands];
    char typed[MEANT_MAX + 1];

    if (word->size < MEANT_MIN || word->size > MEANT_MAX)
        return NULL;
    for (size_t i = 0; i < word->size; i++)
        typed[i] = (char)toupper((unsigned char)word->text[i]);
    typed[word->size] = '\0';
    for (size_t i = 0; i < command_count; i++)
        names[i] = commands[i].name;
    return suggest_nearest(typed, names, command_count);
}

static enum verdict refuse_unknown(struct connection *connection, const struct resp_node *word)
{
    int shown = word->size < SHOWN_MAX ? (int)word->size : SHOWN_MAX;
    const char *near = nearest(word);

    if (is_of_redis(word) || !near)
        return refuse(connection, "ERR unknown command '%.*s'%s", shown, word->text,
                      is_of_redis(word) ? NO_REDIS : "");
    return refuse(connection, "ERR unknown command '%.*s': did you mean %s?", shown, word->text,
                  near);
}

static enum verdict check_and_run(struct connection *connection, const struct resp_node *value)
{
    const struct command *command;

    if (!is_command(value))
        return refuse(connection, "ERR a command is an array of strings");
    command = find(connection, &value[1]);
    if (!command)
        return refuse_unknown(connection, &value[1]);
    if (!connection->authenticated && !(command->traits & COMMAND_OPEN))
        return refuse(connection, "NOAUTH say the password first: AUTH PASSWORD");
    if (command->arity >= 0 ? value->count != (uint32_t)command->arity
                            : value->count < (uint32_t)-command->arity)
        return refuse(connection, "ERR wrong number of arguments for '%s': %s %s", command->name,
                      command->name, command->syntax);
    if (connection->subscriptions && !connection->resp3 && !(command->traits & COMMAND_SUBSCRIBED))
        return refuse(connection,
                      "ERR %s: after SUBSCRIBE only SUBSCRIBE, UNSUBSCRIBE, PING and QUIT may be "
                      "said in RESP2 (HELLO 3 has no such limit)",
                      command->name);
    if (!(command->traits & COMMAND_LOGGED) && connection->under_way > 0)
        return VERDICT_LATER;
    connection->command = command;
    return command->run(connection, value);
}

enum verdict command_run(struct connection *connection, const struct resp_node *value)
{
    struct server *server = connection->server;
    enum verdict verdict = check_and_run(connection, value);

    if (verdict == VERDICT_REFUSED) {
        if (connection->under_way > 0)
            return VERDICT_LATER; /* the answers of those before it come first */
        resp_write_error(&connection->out, server->refusal.text);
        server->wrong_commands++;
        verdict = VERDICT_DONE;
    }
    if (verdict == VERDICT_DONE) {
        server->commands++;
        connection->commands++;
        connection_dirty(connection);
    }
    return verdict;
}

/* ---- into the log ------------------------------------------------------------------------------ */

static struct request *request_new(struct server *server)
{
    struct request *request;

    if (!list_empty(&server->spare)) {
        request = LIST_ENTRY(server->spare.next, struct request, node);
        list_remove(&request->node);
        server->spare_count--;
        memset(request, 0, sizeof *request);
    } else {
        request = calloc(1, sizeof *request);
        INVARIANT(request != NULL);
    }
    list_init(&request->node);
    return request;
}

void request_free(struct server *server, struct request *request)
{
    if (request->connection)
        connection_unref(request->connection);
    free(request->words);
    request->words = NULL;
    if (server->spare_count >= SPARE_MAX) {
        free(request);
        return;
    }
    list_append(&server->spare, &request->node);
    server->spare_count++;
}

struct request *request_begin(struct connection *connection)
{
    struct request *request = request_new(connection->server);

    request->connection = connection;
    connection->references++;
    request->command = connection->command;
    request->waits = connection->waits = true;
    connection->under_way++;
    return request;
}

void request_forget(struct request *request)
{
    request->connection->under_way--;
    request->connection->waits = false;
    request_free(request->connection->server, request);
}

static struct words *copy_words(const struct resp_node *value, uint32_t from, uint32_t count)
{
    size_t size = sizeof(struct words) + count * sizeof(struct core_text);
    struct words *words;
    char *at;

    for (uint32_t i = 0; i < count; i++)
        size += value[1 + from + i].size + 1;
    words = malloc(size);
    INVARIANT(words != NULL);
    words->count = count;
    at = (char *)&words->word[count];
    for (uint32_t i = 0; i < count; i++) {
        const struct resp_node *word = &value[1 + from + i];

        memcpy(at, word->text, word->size);
        at[word->size] = '\0';
        words->word[i] = (struct core_text){at, word->size};
        at += word->size + 1;
    }
    return words;
}

enum verdict submit(struct connection *connection, const struct submission *submission)
{
    struct server *server = connection->server;
    struct request *request = request_new(server);
    const struct core_command *command = &submission->command;
    char text[ERROR_TEXT_MAX];
    int result;

    request->connection = connection;
    connection->references++;
    request->command = connection->command;
    request->push = submission->push;
    request->waits = submission->waits;
    request->once = command->flags & CORE_ONCE;
    request->parts = request->total = command->lease_count;
    if (submission->words)
        request->words = copy_words(submission->value, submission->from, submission->words);
    result = replica_submit(server->replica, command, request);
    if (result == HF_OK) {
        connection->under_way++;
        connection->waits = submission->waits;
        return VERDICT_DONE;
    }
    request_free(server, request);
    if (result == HF_EBUSY)
        return VERDICT_FULL;
    if (result == HF_EINVAL)
        return refuse(connection, "ERR this is beyond the limits of the lock table");
    return refuse(connection, "%s", answer_not_leading(server, text, sizeof text));
}
