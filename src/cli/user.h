/* user.h: holdfast user: what is asked for, between its files. */
#ifndef CLI_USER_H
#define CLI_USER_H

#include "base/password.h"
#include "cli/args.h"
#include "cli/users_text.h"

#define USER_ALLOWS_MAX 64 /* of one command */

struct user_request {
    const char *path;   /* of the file */
    const char *name;   /* the user's */
    bool adds;          /* who is not there yet; else who is */
    const char *rights; /* of allow and deny */
    const char *allows[USER_ALLOWS_MAX];
    size_t allow_count;
    const char *limits[USERS_LIMITS]; /* NULL: none */
    const char *password_file;
    bool generate, keep_old, drop_old;
    bool json;
    char hash[USERS_HASH_MAX + 1]; /* of the new password */
};

/* user_change.c. They return the exit status. */
int user_add(struct user_request *request);
int user_password(struct user_request *request);
int user_allow(struct user_request *request);
int user_deny(struct user_request *request);
int user_remove(struct user_request *request);

/* user_list.c */
int user_list(struct user_request *request);
int user_check(struct user_request *request);

/* Says what is wrong with the file, and returns the exit status. */
int user_say(int result, const struct error_text *err);

#endif
