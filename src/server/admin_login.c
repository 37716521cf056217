/* admin_login.c: who asks by HTTP: the same users as those of clients, by Basic.
 *
 * A browser says the password with each request. One that was right before is known at once; another is looked at by the same thread as those of
 * clients, a few at a time, so that who guesses here keeps no client waiting. */
#include "server/admin.h"
#include "server/audit.h"
#include "server/log.h"
#include "server/login.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BASIC "Basic "
#define WORDS_MAX (USER_NAME_MAX + 1 + PASSWORD_MAX) /* "user:password" */

/* A request whose password is being looked at. */
struct asker {
    struct list node;
    struct server *server;
    struct http_request *request; /* NULL: it is gone */
    char user[USER_NAME_MAX + 1];
};

struct basic {
    char text[WORDS_MAX + 1];
    char *user, *password;
};

void admin_login_open(struct server *server)
{
    list_init(&server->admin.waiting);
}

/* ---- what was said -------------------------------------------------------------------------------- */

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* False: it is not base64, too long, or has a NUL in it. */
static bool decode(const char *text, char *ret_words, size_t size)
{
    size_t length = strlen(text), used = 0;
    uint32_t bits = 0;
    unsigned count = 0;

    while (length > 0 && text[length - 1] == '=' && strlen(text) - length < 2)
        length--;
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);

        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count < 8)
            continue;
        count -= 8;
        if (used + 1 >= size || (bits >> count & 0xff) == 0)
            return false;
        ret_words[used++] = (char)(bits >> count & 0xff);
    }
    ret_words[used] = '\0';
    return true;
}

static bool read_words(const struct server *server, const struct http_request *request,
                       struct basic *ret_words)
{
    const char *header = server->admin.module->header(request, "Authorization");
    char *colon;

    if (!header || strncasecmp(header, BASIC, strlen(BASIC)) != 0 ||
        !decode(header + strlen(BASIC), ret_words->text, sizeof ret_words->text))
        return false;
    colon = strchr(ret_words->text, ':');
    if (!colon)
        return false;
    *colon = '\0';
    ret_words->user = ret_words->text;
    ret_words->password = colon + 1;
    return true;
}

/* ---- whose it is ---------------------------------------------------------------------------------- */

static void note_wrong(struct server *server, const char *client, const char *user)
{
    server->metrics.logins_refused++;
    log_limited(LOG_LEVEL_WARNING, 10, "an operator said a wrong password",
                log_text("client", client), log_text("user", user));
    audit_http_login(client, user, false);
}

static void on_decided(void *context, struct account *account)
{
    struct asker *asker = context;
    struct server *server = asker->server;
    const char *client = asker->request ? server->admin.module->client(asker->request) : "";

    list_remove(&asker->node);
    if (!asker->request) {
        free(asker);
        return;
    }
    if (account) {
        const struct admin_user user = {account, &account->user};

        server->metrics.logins++;
        audit_http_login(client, account->user.name, true);
        admin_serve(server, asker->request, &user);
    } else {
        note_wrong(server, client, asker->user);
        admin_refuse(server, asker->request);
    }
    free(asker);
}

void admin_login_gone(struct server *server, const struct http_request *request)
{
    LIST_EACH(node, &server->admin.waiting)
    {
        struct asker *asker = LIST_ENTRY(node, struct asker, node);

        if (asker->request == request)
            asker->request = NULL;
    }
}

static enum admin_login ask(struct server *server, struct http_request *request,
                            const struct basic *words, struct admin_user *ret_user)
{
    struct asker *asker = calloc(1, sizeof *asker);
    const char *user = words->user[0] ? words->user : USERS_DEFAULT;
    struct account *account;
    enum login_answer answer;

    if (!asker)
        return ADMIN_BUSY;
    asker->server = server;
    asker->request = request;
    snprintf(asker->user, sizeof asker->user, "%.*s", USER_NAME_MAX, user);
    list_init(&asker->node);
    list_append(&server->admin.waiting, &asker->node);
    answer = login_ask(server, user, words->password, on_decided, asker, &account);
    if (answer == LOGIN_LATER)
        return ADMIN_LATER;
    list_remove(&asker->node);
    free(asker);
    if (answer == LOGIN_BUSY)
        return ADMIN_BUSY;
    if (!account) {
        note_wrong(server, server->admin.module->client(request), user);
        return ADMIN_REFUSED;
    }
    *ret_user = (struct admin_user){account, &account->user};
    return ADMIN_LET_IN;
}

/* Where there is no users file, the user is "default", or nobody says one. */
static enum admin_login compare_secret(struct server *server, struct http_request *request,
                                       const struct basic *words, struct admin_user *ret_user)
{
    if (secret_matches(&server->config->password, words->password, strlen(words->password)) &&
        (!words->user[0] || strcmp(words->user, USERS_DEFAULT) == 0)) {
        *ret_user = (struct admin_user){NULL, &user_of_all};
        return ADMIN_LET_IN;
    }
    note_wrong(server, server->admin.module->client(request), words->user);
    return ADMIN_REFUSED;
}

enum admin_login admin_login(struct server *server, struct http_request *request,
                             struct admin_user *ret_user)
{
    struct basic words = {.text = ""};
    enum admin_login result;

    if (!server->users && !server->config->password.set) {
        *ret_user = (struct admin_user){NULL, &user_of_all};
        return ADMIN_LET_IN;
    }
    if (!read_words(server, request, &words))
        result = ADMIN_REFUSED; /* a browser asks like that the first time */
    else if (server->users)
        result = ask(server, request, &words, ret_user);
    else
        result = compare_secret(server, request, &words, ret_user);
    explicit_bzero(&words, sizeof words);
    return result;
}
