/* cmd_connection.c: what is between a client and us, and has nothing to do with locks. */
#include "server/cmd_connection.h"
#include "server/audit.h"
#include "server/connection.h"
#include "server/login.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum verdict ok(struct session *session)
{
    resp_write_simple(&session->out, "OK");
    return VERDICT_DONE;
}

enum verdict command_ping(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    const struct resp_node *text = word_at(value, 1);

    if (value->count > 2)
        return refuse(session, "ERR wrong number of arguments for 'PING': PING [text]");
    if (session->subscriptions && !session->resp3) {
        resp_write_array(out, 2);
        resp_write_text(out, "pong");
        resp_write_blob(out, text ? text->text : "", text ? text->size : 0);
    } else if (text) {
        resp_write_blob(out, text->text, text->size);
    } else {
        resp_write_simple(out, "PONG");
    }
    return VERDICT_DONE;
}

#define NO_PASSWORD "this server has no password (--password-file)"

/* As was said, for those who read of it: "" if that is nothing that could be a user. */
static void copy_user(char ret_text[USER_NAME_MAX + 1], const struct resp_node *user)
{
    if (!user)
        snprintf(ret_text, USER_NAME_MAX + 1, "%s", user_of_all.name);
    else if (user->size > USER_NAME_MAX || memchr(user->text, '\0', user->size))
        ret_text[0] = '\0';
    else
        snprintf(ret_text, USER_NAME_MAX + 1, "%.*s", (int)user->size, user->text);
}

/* holdfast tells by these words whether there are users here (engines/holdfast/open.c). */
static enum verdict refuse_password(struct session *session, const struct resp_node *user)
{
    char said[USER_NAME_MAX + 1];

    copy_user(said, user);
    login_was_wrong(session, said);
    if (user && !word_is(user, user_of_all.name))
        return refuse(session, "WRONGPASS there are no users here, only a password: name no user, "
                               "or 'default'");
    return refuse(session, "WRONGPASS the password is wrong");
}

/* Where there is no users file, the user is "default", as in Redis, and there are no others. */
static enum verdict log_in(struct session *session, const struct resp_node *user,
                           const struct resp_node *password, const struct hello *hello,
                           login_done *done)
{
    struct server *server = server_of(session);
    const struct secret *secret = &server->config->password;

    if (server->users)
        return login_begin(session, user, password, hello, done);
    if (!secret->set)
        return refuse(session, "ERR %s" NO_PASSWORD "%s",
                      hello->is_hello ? "" : "AUTH: ", hello->is_hello ? ": leave it out" : "");
    if (secret_matches(secret, password->text, password->size) &&
        (!user || word_is(user, user_of_all.name))) {
        connection_authenticated(connection_of(session), &user_of_all);
        server->metrics.logins++;
        audit_login(session, user_of_all.name, true);
        return done(session, hello);
    }
    return refuse_password(session, user);
}

static enum verdict auth_done(struct session *session, const struct hello *hello)
{
    (void)hello;
    return ok(session);
}

enum verdict command_auth(struct session *session, const struct resp_node *value)
{
    bool with_user = value->count == 3;

    if (value->count > 3)
        return refuse(session, "ERR wrong number of arguments for 'AUTH': AUTH [user] password");
    return log_in(session, with_user ? word_at(value, 1) : NULL, word_at(value, with_user ? 2 : 1),
                  &(struct hello){.is_hello = false}, auth_done);
}

static bool read_name(struct session *session, const struct resp_node *name,
                      char ret_name[CLIENT_NAME_MAX + 1])
{
    for (size_t i = 0; i < name->size; i++)
        if (name->text[i] < '!' || name->text[i] > '~') {
            refuse(session, "ERR a client's name has no blanks and no special characters");
            return false;
        }
    if (name->size > CLIENT_NAME_MAX) {
        refuse(session, "ERR a client's name has at most %d bytes", CLIENT_NAME_MAX);
        return false;
    }
    memcpy(ret_name, name->text, name->size);
    ret_name[name->size] = '\0';
    return true;
}

static void write_hello(struct session *session)
{
    const struct server *server = server_of(session);
    struct resp_writer *out = &session->out;
    bool leads = server->sessions.role == REPLICA_LEADING;

    resp_write_map(out, 10, session->resp3);
    resp_write_text(out, "server");
    resp_write_text(out, "holdfast");
    resp_write_text(out, "version");
    resp_write_text(out, HOLDFAST_VERSION);
    resp_write_text(out, "proto");
    resp_write_integer(out, session->resp3 ? 3 : 2);
    resp_write_text(out, "id");
    resp_write_integer(out, (int64_t)connection_of(session)->id);
    resp_write_text(out, "mode");
    resp_write_text(out, "standalone");
    resp_write_text(out, "role");
    resp_write_text(out, leads ? "master" : "replica");
    resp_write_text(out, "cluster");
    resp_write_text(out, node_cluster(server->node));
    resp_write_text(out, "node"); /* whichever of its addresses was called */
    resp_write_integer(out, (int64_t)server->config->id);
    resp_write_text(out, "alone"); /* there will never be others */
    resp_write_integer(out, !server->has_links);
    resp_write_text(out, "modules");
    resp_write_array(out, 0);
}

static enum verdict hello_done(struct session *session, const struct hello *hello)
{
    if (!session->user)
        return refuse(session, "NOAUTH say the password first: HELLO %" PRIu64 " AUTH %s PASSWORD",
                      hello->protocol, server_of(session)->users ? "USER" : user_of_all.name);
    if (hello->renames)
        memcpy(connection_of(session)->name, hello->name, sizeof hello->name);
    session->resp3 = hello->protocol == 3;
    session->losses = hello->losses && session->resp3;
    if (!session->losses)
        holders_drop(session);
    write_hello(session);
    return VERDICT_DONE;
}

enum verdict command_hello(struct session *session, const struct resp_node *value)
{
    struct words_left left = {.session = session, .value = value, .at = 1};
    struct hello hello = {
        .is_hello = true, .protocol = session->resp3 ? 3 : 2, .losses = session->losses};
    const struct resp_node *user = NULL, *password = NULL;
    int64_t asked;

    if (value->count > 1) {
        if (!resp_to_int64(word_at(value, 1), &asked) || asked < 2 || asked > 3)
            return refuse(session, "NOPROTO unsupported protocol version");
        hello.protocol = (uint64_t)asked;
        left.at = 2;
    }
    while (left.at < value->count) {
        if (option_is(&left, "AUTH", 1) && left.at + 1 < value->count) {
            user = word_at(value, left.at);
            password = word_at(value, left.at + 1);
            left.at += 2;
        } else if (option_is(&left, "SETNAME", 2) && left.at < value->count) {
            if (!read_name(session, word_at(value, left.at++), hello.name))
                return VERDICT_REFUSED;
            hello.renames = true;
        } else if (option_is(&left, "LOSSES", 4)) {
            hello.losses = true;
        } else {
            return refuse(session,
                          "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] "
                          "[LOSSES]");
        }
    }
    /* Before the password: what is refused changes nothing. */
    if (hello.protocol == 2 && (session->waiting || session->observing > session->subscriptions))
        return refuse(session, "ERR there are pushes to come, which RESP2 has not: UNOBSERVE and "
                               "RELEASE first");
    return password ? log_in(session, user, password, &hello, hello_done)
                    : hello_done(session, &hello);
}

/* The fields that Redis has, because clients ask for each of them. */
static void write_client(struct session *session, char *text, size_t size)
{
    const struct connection *connection = connection_of(session);
    long long now = (long long)uv_now(server_of(session)->loop);

    snprintf(text, size,
             "id=%llu addr=%s name=%s age=%lld idle=%lld flags=N db=0 sub=%u psub=0 ssub=0 "
             "multi=-1 qbuf=%zu qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%zu oll=0 "
             "omem=%zu tot-mem=0 events=r cmd=client|info user=%s redir=-1 resp=%d",
             (unsigned long long)connection->id, connection->address, connection->name,
             (now - connection->came_ms) / 1000, (now - connection->heard_ms) / 1000,
             session->subscriptions, resp_reader_pending(session->reader),
             session->out.size - session->sent, session->out.capacity, session->user->name,
             session->resp3 ? 3 : 2);
}

static enum verdict client_set_name(struct session *session, const struct resp_node *value)
{
    return read_name(session, word_at(value, 2), connection_of(session)->name) ? ok(session)
                                                                               : VERDICT_REFUSED;
}

static enum verdict client_get_name(struct session *session, const struct resp_node *value)
{
    const char *name = connection_of(session)->name;

    (void)value;
    if (name[0])
        resp_write_text(&session->out, name);
    else
        resp_write_nil(&session->out, session->resp3);
    return VERDICT_DONE;
}

static enum verdict client_set_info(struct session *session, const struct resp_node *value)
{
    (void)value;
    return ok(session);
}

static enum verdict client_id(struct session *session, const struct resp_node *value)
{
    (void)value;
    resp_write_integer(&session->out, (int64_t)connection_of(session)->id);
    return VERDICT_DONE;
}

static enum verdict client_info(struct session *session, const struct resp_node *value)
{
    char text[ENDPOINT_TEXT_MAX + CLIENT_NAME_MAX + USER_NAME_MAX + 512];

    (void)value;
    write_client(session, text, sizeof text);
    resp_write_text(&session->out, text);
    return VERDICT_DONE;
}

const struct command client_parts[] = {
    {"SETNAME", 3, client_set_name, 0, RIGHT_NONE, NAMES_NONE, "Names this connection", "name",
     NULL},
    {"GETNAME", 2, client_get_name, 0, RIGHT_NONE, NAMES_NONE, "That name", "", NULL},
    {"SETINFO", 4, client_set_info, 0, RIGHT_NONE, NAMES_NONE, "What the client is", "what text",
     NULL},
    {"ID", 2, client_id, 0, RIGHT_NONE, NAMES_NONE, "The number of this connection", "", NULL},
    {"INFO", 2, client_info, 0, RIGHT_NONE, NAMES_NONE, "How this connection is", "", NULL},
    {.name = NULL},
};

enum verdict command_select(struct session *session, const struct resp_node *value)
{
    if (!word_is(word_at(value, 1), "0"))
        return refuse(session, "ERR there is only database 0");
    return ok(session);
}

enum verdict command_quit(struct session *session, const struct resp_node *value)
{
    (void)value;
    ok(session);
    session_end(session);
    return VERDICT_DONE;
}
