/* login.c: see login.h.
 *
 * To compare a password with what is stored takes tens of milliseconds and some megabytes, on purpose: whoever has stolen the file shall not
 * find out many. So the loop does not do it: a thread does, one at a time, so that those who guess get no further and slow nobody down; and
 * one that was right before is known again without it. A name that is not there costs as much time as a wrong password. */
#include "server/login.h"
#include "server/audit.h"
#include "server/log.h"
#include "server/server.h"
#include "server/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For a name that is not there: what is compared takes its time, and is never the same. */
#define STORED_OF_NOBODY "$y$j9T$holdfastholdfastholdf1$7Sl2Jp8RMYbKeBDsXJnGqKkOaqKnMd5WQH1pvnmjGb/"

struct login {
    uv_work_t work;
    struct list node;
    struct server *server;
    struct request *request;
    login_done *done;
    struct hello hello;
    login_decided *decided; /* instead of a request: by login_ask */
    void *context;
    char user[USER_NAME_MAX + 1];
    char password[PASSWORD_MAX + 1];
    char stored[ACCOUNT_PASSWORDS][USERS_HASH_MAX + 1];
    unsigned stored_count;
    int right; /* which of them it is; -1: none */
};

void logins_open(struct server *server)
{
    list_init(&server->logins.waiting);
}

static void free_login(struct login *login)
{
    explicit_bzero(login, sizeof *login);
    free(login);
}

/* ---- who it is ------------------------------------------------------------------------------------ */

void login_left(struct connection *connection)
{
    if (!connection->account)
        return;
    connection->account->connections--;
    connection->account = NULL;
    /* What is under way may look at it after the file was read again. */
    connection->session.user = &user_of_none;
}

bool login_become(struct connection *connection, struct account *account)
{
    if (connection->account == account) {
        connection->by_certificate = false;
        return true;
    }
    if (account->connections_max > 0 && account->connections >= account->connections_max) {
        refuse(&connection->session,
               "LIMIT user '%s' has %u connections already, and may have no more",
               account->user.name, account->connections);
        return false;
    }
    if (!session_observes_rightly(&connection->session, &account->user)) {
        refuse(&connection->session,
               "ERR this connection observes what user '%s' may not look at: UNOBSERVE it first",
               account->user.name);
        return false;
    }
    login_left(connection);
    connection->account = account;
    connection->by_certificate = false;
    account->connections++;
    connection_authenticated(connection, &account->user);
    return true;
}

void login_by_certificate(struct connection *connection, struct account *account)
{
    const struct session *session = &connection->session;

    if (!login_become(connection, account)) {
        connection_end(connection, session->sessions->refusal.text);
        return;
    }
    connection->by_certificate = true;
    audit_login(session, account->user.name, true);
}

static void close_for(struct connection *connection, const char *words, const char *user)
{
    log_info(words, log_text("client", connection->address), log_text("user", user));
    connection_close(connection);
}

/* before: is freed soon. */
static void become_again(struct connection *connection, struct users *users,
                         const struct account *before)
{
    const char *name = before->user.name;
    struct account *now = users ? users_find(users, name, strlen(name)) : NULL;

    connection->account = now;
    connection->session.user = now ? &now->user : &user_of_none;
    if (!now) {
        close_for(connection, "closed a client: its user is not in the users file any more", name);
        return;
    }
    now->connections++;
    if (connection->by_certificate && tls_account(connection, users) != now)
        close_for(connection, "closed a client: its certificate is not one of its user's any more",
                  name);
    else if (!session_observes_rightly(&connection->session, &now->user))
        close_for(connection, "closed a client: it observes what its user may not look at any more",
                  name);
}

void login_users_changed(struct server *server, struct users *users)
{
    struct users *before = server->users;

    users_keep_known(users, before);
    server->users = users;
    LIST_EACH_SAFE(node, &server->sessions.all)
    {
        struct connection *connection = LIST_ENTRY(node, struct connection, session.node);

        if (connection->account)
            become_again(connection, users, connection->account);
    }
    users_free(before);
}

/* ---- a password ------------------------------------------------------------------------------------ */

void login_was_wrong(struct session *session, const char *user)
{
    struct connection *connection = connection_of(session);

    log_limited(LOG_LEVEL_WARNING, 10, "a client said a wrong password",
                log_text("client", connection->address), log_text("user", user));
    connection->server->metrics.logins_refused++;
    audit_login(session, user, false);
    if (++connection->wrong_passwords >= LOGINS_WRONG_MAX)
        session_end(session);
}

static enum verdict refuse_login(struct session *session, const char *user)
{
    login_was_wrong(session, user);
    return refuse(session, "WRONGPASS the user or the password is wrong");
}

static enum verdict let_in(struct session *session, struct account *account,
                           const struct hello *hello, login_done *done)
{
    bool is_again = connection_of(session)->account == account;

    if (!login_become(connection_of(session), account))
        return VERDICT_REFUSED;
    server_of(session)->metrics.logins++;
    if (!is_again) /* else who says it again and again would fill the disk */
        audit_login(session, account->user.name, true);
    return done(session, hello);
}

static void compare(uv_work_t *work)
{
    struct login *login = work->data;

    login->right = -1;
    for (unsigned i = 0; i < login->stored_count && login->right < 0; i++)
        if (password_is_stored(login->stored[i], login->password))
            login->right = (int)i;
    if (login->stored_count == 0)
        password_is_stored(STORED_OF_NOBODY, login->password);
}

static void begin_next(struct server *server);

/* Whose it is, now that it is known. The file may have been read again meanwhile. */
static struct account *decide(struct login *login)
{
    struct server *server = login->server;
    struct account *account =
        server->users ? users_find(server->users, login->user, strlen(login->user)) : NULL;
    size_t size = strlen(login->password);

    if (account && login->right >= 0)
        account_learn(account, login->stored[login->right], login->password, size);
    return account && account_knows(account, login->password, size) ? account : NULL;
}

static void finish_request(struct login *login, struct account *account)
{
    struct session *session = login->request->session;
    enum verdict verdict;

    if (session_is_closed(session))
        verdict = VERDICT_DONE;
    else if (account)
        verdict = let_in(session, account, &login->hello, login->done);
    else
        verdict = refuse_login(session, login->user);
    if (verdict == VERDICT_REFUSED)
        request_refuse(login->request);
    else
        request_finish(login->request);
}

static void finish(struct login *login)
{
    struct account *account = decide(login);

    if (login->decided)
        login->decided(login->context, account);
    else
        finish_request(login, account);
}

static void on_compared(uv_work_t *work, int status)
{
    struct login *login = work->data;
    struct server *server = login->server;

    (void)status;
    server->logins.now = NULL;
    server->logins.count--;
    server->logins.asked -= login->decided != NULL;
    finish(login);
    free_login(login);
    begin_next(server);
}

/* Many of a user's come at once after a start: when the first has been compared the others are known. And nothing is compared for those who
 * have hung up. */
static bool is_settled(struct server *server, struct login *login)
{
    const struct account *account = users_find(server->users, login->user, strlen(login->user));

    return (login->request && session_is_closed(login->request->session)) ||
           (account && account_knows(account, login->password, strlen(login->password)));
}

static void begin_next(struct server *server)
{
    struct logins *logins = &server->logins;

    LIST_EACH_SAFE(node, &logins->waiting)
    {
        struct login *login = LIST_ENTRY(node, struct login, node);

        if (logins->now)
            return;
        list_remove(&login->node);
        if (is_settled(server, login)) {
            logins->count--;
            logins->asked -= login->decided != NULL;
            login->right = -1;
            finish(login);
            free_login(login);
            continue;
        }
        logins->now = login;
        login->work.data = login;
        INVARIANT(uv_queue_work(server->loop, &login->work, compare, on_compared) == 0);
    }
}

void logins_close(struct server *server)
{
    LIST_EACH_SAFE(node, &server->logins.waiting)
    {
        struct login *login = LIST_ENTRY(node, struct login, node);

        server->logins.count--;
        if (login->decided) {
            server->logins.asked--;
            login->decided(login->context, NULL);
        } else {
            refuse(login->request->session, "TRYAGAIN the server is being stopped");
            request_refuse(login->request);
        }
        free_login(login);
    }
    list_init(&server->logins.waiting);
}

/* Without NULs in it, and not too long: what else can be compared. */
static bool copy(char *ret_text, size_t size, const struct resp_node *word)
{
    if (word->size >= size || memchr(word->text, '\0', word->size))
        return false;
    memcpy(ret_text, word->text, word->size);
    ret_text[word->size] = '\0';
    return true;
}

/* NULL: there is no memory. Then begin_next. */
static struct login *add(struct server *server, const struct login *what,
                         const struct account *account)
{
    struct login *login = malloc(sizeof *login);

    if (!login)
        return NULL;
    *login = *what;
    login->server = server;
    if (account) {
        memcpy(login->stored, account->passwords, sizeof login->stored);
        login->stored_count = account->password_count;
    }
    list_init(&login->node);
    list_append(&server->logins.waiting, &login->node);
    server->logins.count++;
    server->logins.asked += what->decided != NULL;
    return login;
}

static enum verdict compare_later(struct session *session, const struct login *what,
                                  const struct account *account)
{
    struct server *server = server_of(session);
    struct login *login;

    if (server->logins.count >= LOGINS_WAITING_MAX)
        return refuse(session, "TRYAGAIN too many clients say a password just now");
    login = add(server, what, account);
    if (!login)
        return refuse(session, "TRYAGAIN there is no memory");
    login->request = request_begin(session);
    begin_next(server);
    return VERDICT_DONE;
}

enum login_answer login_ask(struct server *server, const char *user, const char *password,
                            login_decided *decided, void *context, struct account **ret_account)
{
    struct account *account = users_find(server->users, user, strlen(user));
    struct login login = {.decided = decided, .context = context};
    bool full =
        server->logins.asked >= LOGINS_ASKED_MAX || server->logins.count >= LOGINS_WAITING_MAX;
    size_t size = strlen(password);

    *ret_account = NULL;
    if (strlen(user) > USER_NAME_MAX || size > PASSWORD_MAX)
        return LOGIN_KNOWN;
    if (account && account_knows(account, password, size)) {
        *ret_account = account;
        return LOGIN_KNOWN;
    }
    memcpy(login.user, user, strlen(user) + 1);
    memcpy(login.password, password, size + 1);
    if (!full && !add(server, &login, account))
        full = true;
    explicit_bzero(&login, sizeof login);
    if (full)
        return LOGIN_BUSY;
    begin_next(server);
    return LOGIN_LATER;
}

enum verdict login_begin(struct session *session, const struct resp_node *user,
                         const struct resp_node *password, const struct hello *hello,
                         login_done *done)
{
    struct login login = {.hello = *hello, .done = done};
    struct account *account;
    enum verdict verdict;

    if (!user)
        memcpy(login.user, USERS_DEFAULT, sizeof USERS_DEFAULT);
    else if (!copy(login.user, sizeof login.user, user))
        return refuse_login(session, "");
    if (!copy(login.password, sizeof login.password, password))
        return refuse_login(session, login.user);
    account = users_find(server_of(session)->users, login.user, strlen(login.user));
    if (account && account_knows(account, login.password, password->size))
        verdict = let_in(session, account, hello, done);
    else
        verdict = compare_later(session, &login, account);
    explicit_bzero(&login, sizeof login);
    return verdict;
}
