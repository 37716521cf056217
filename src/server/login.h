/* login.h: whether somebody is who he says: AUTH, and HELLO with AUTH. */
#ifndef SERVER_LOGIN_H
#define SERVER_LOGIN_H

#include "base/list.h"
#include "base/password.h"
#include "server/connection.h"
#include "server/users.h"
#include "session/commands.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define LOGINS_WAITING_MAX 128 /* beyond that: come again */
#define LOGINS_ASKED_MAX 8     /* of them by login_ask: clients come first */

#define LOGINS_WRONG_MAX 10 /* passwords of one connection: then it is closed */

struct server;

/* What else a HELLO says: it counts when its password is right. */
struct hello {
    bool is_hello; /* else it was AUTH */
    uint64_t protocol;
    bool losses, renames;
    char name[CLIENT_NAME_MAX + 1];
};
/* Writes the answer of a login that came to a good end. VERDICT_REFUSED: nothing else may be said there. */
typedef enum verdict login_done(struct session *session, const struct hello *hello);

/* Those that a thread looks at, one at a time. */
struct logins {
    struct list waiting;
    unsigned count; /* with the one that is looked at */
    unsigned asked; /* of them by login_ask */
    struct login *now;
};

void logins_open(struct server *server);
/* Who waits is told that the server ends. The one that a thread looks at comes to its end in the loop. */
void logins_close(struct server *server);
/* Whose password it is, for somebody who has no session: of the users file. account: NULL: nobody's. */
typedef void login_decided(void *context, struct account *account);
enum login_answer {
    LOGIN_KNOWN, /* ret_account says it; NULL: nobody's */
    LOGIN_LATER, /* `decided` is called, certainly */
    LOGIN_BUSY   /* too many are looked at already */
};
enum login_answer login_ask(struct server *server, const char *user, const char *password,
                            login_decided *decided, void *context, struct account **ret_account);
/* The connection is this user's from now on. False: refused, as there are too many. */
bool login_become(struct connection *connection, struct account *account);
/* Of the users file. user: NULL: the default one. The verdict of the command: the answer may come later. */
enum verdict login_begin(struct session *session, const struct resp_node *user,
                         const struct resp_node *password, const struct hello *hello,
                         login_done *done);
/* It said a wrong password: that is counted and written down, and who goes on guessing is closed behind the answer. user: as it was said. */
void login_was_wrong(struct session *session, const char *user);
/* Its certificate says that it is this user; it may still say that it is another one. */
void login_by_certificate(struct connection *connection, struct account *account);
/* Who has connected is somebody else now, by another reading of the file, or gone from it. Takes the users. */
void login_users_changed(struct server *server, struct users *users);
/* The connection is closed. */
void login_left(struct connection *connection);

#endif
