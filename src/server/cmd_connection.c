/* cmd_connection.c: what is between a client and us, and has nothing to do with locks. */
#include "server/log.h"
#include "server/server.h"

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

/* The user is "default", as in Redis; there are no others yet. */
static bool log_in(struct session *session, const struct resp_node *user,
                   const struct resp_node *password)
{
    const struct secret *secret = &server_of(session)->config->password;
    bool right = secret_matches(secret, password->text, password->size);

    if (!secret->set) {
        refuse(session, "ERR " NO_PASSWORD ": leave it out");
        return false;
    }
    if (right && (!user || word_is(user, "default"))) {
        connection_authenticated(connection_of(session));
        return true;
    }
    log_limited(LOG_LEVEL_WARNING, 10, "a client said a wrong password",
                log_text("client", connection_of(session)->address));
    refuse(session, "WRONGPASS the user or the password is wrong");
    return false;
}

enum verdict command_auth(struct session *session, const struct resp_node *value)
{
    bool with_user = value->count == 3;

    if (value->count > 3)
        return refuse(session, "ERR wrong number of arguments for 'AUTH': AUTH [user] password");
    if (!server_of(session)->config->password.set)
        return refuse(session, "ERR AUTH: " NO_PASSWORD);
    if (!log_in(session, with_user ? word_at(value, 1) : NULL, word_at(value, with_user ? 2 : 1)))
        return VERDICT_REFUSED;
    return ok(session);
}

static bool set_name(struct session *session, const struct resp_node *name)
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
    memcpy(connection_of(session)->name, name->text, name->size);
    connection_of(session)->name[name->size] = '\0';
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

enum verdict command_hello(struct session *session, const struct resp_node *value)
{
    struct words_left left = {.session = session, .value = value, .at = 1};
    uint64_t protocol = session->resp3 ? 3 : 2;
    bool losses = session->losses;
    int64_t asked;

    if (value->count > 1) {
        if (!resp_to_int64(word_at(value, 1), &asked) || asked < 2 || asked > 3)
            return refuse(session, "NOPROTO unsupported protocol version");
        protocol = (uint64_t)asked;
        left.at = 2;
    }
    while (left.at < value->count) {
        if (option_is(&left, "AUTH", 1) && left.at + 1 < value->count) {
            if (!log_in(session, word_at(value, left.at), word_at(value, left.at + 1)))
                return VERDICT_REFUSED;
            left.at += 2;
        } else if (option_is(&left, "SETNAME", 2) && left.at < value->count) {
            if (!set_name(session, word_at(value, left.at)))
                return VERDICT_REFUSED;
            left.at++;
        } else if (option_is(&left, "LOSSES", 4)) {
            losses = true;
        } else {
            return refuse(session,
                          "ERR wrong words: HELLO [2 | 3] [AUTH user password] [SETNAME name] "
                          "[LOSSES]");
        }
    }
    if (!session->authenticated)
        return refuse(session, "NOAUTH say the password first: HELLO 3 AUTH default PASSWORD");
    if (protocol == 2 && (session->waiting || session->observing > session->subscriptions))
        return refuse(session, "ERR there are pushes to come, which RESP2 has not: UNOBSERVE and "
                               "RELEASE first");
    session->resp3 = protocol == 3;
    session->losses = losses && session->resp3;
    if (!session->losses)
        holders_drop(session);
    write_hello(session);
    return VERDICT_DONE;
}

/* The fields that Redis has, because clients ask for each of them. */
static void write_client(struct session *session, char *text, size_t size)
{
    const struct connection *connection = connection_of(session);
    long long now = (long long)uv_now(server_of(session)->loop);

    snprintf(text, size,
             "id=%llu addr=%s name=%s age=%lld idle=%lld flags=N db=0 sub=%u psub=0 ssub=0 "
             "multi=-1 qbuf=%zu qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%zu oll=0 "
             "omem=%zu tot-mem=0 events=r cmd=client|info user=default redir=-1 resp=%d",
             (unsigned long long)connection->id, connection->address, connection->name,
             (now - connection->came_ms) / 1000, (now - connection->heard_ms) / 1000,
             session->subscriptions, resp_reader_pending(session->reader),
             session->out.size - session->sent, session->out.capacity, session->resp3 ? 3 : 2);
}

enum verdict command_client(struct session *session, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    struct resp_writer *out = &session->out;
    char text[ENDPOINT_TEXT_MAX + CLIENT_NAME_MAX + 512];

    if (word_is(what, "SETNAME") && value->count == 3)
        return set_name(session, word_at(value, 2)) ? ok(session) : VERDICT_REFUSED;
    if (word_is(what, "SETINFO") && value->count == 4)
        return ok(session);
    if (word_is(what, "GETNAME") && value->count == 2) {
        if (connection_of(session)->name[0])
            resp_write_text(out, connection_of(session)->name);
        else
            resp_write_nil(out, session->resp3);
        return VERDICT_DONE;
    }
    if (word_is(what, "ID") && value->count == 2) {
        resp_write_integer(out, (int64_t)connection_of(session)->id);
        return VERDICT_DONE;
    }
    if (word_is(what, "INFO") && value->count == 2) {
        write_client(session, text, sizeof text);
        resp_write_text(out, text);
        return VERDICT_DONE;
    }
    return refuse(session, "ERR CLIENT is followed by SETNAME name, GETNAME, SETINFO what text, "
                           "ID or INFO");
}

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
