/* user_password.h: a user's password: asked for, read or made, and what is stored in its place. */
#ifndef CLI_USER_PASSWORD_H
#define CLI_USER_PASSWORD_H

#include "base/password.h"
#include "base/users_file.h"

#define PASSWORD_MADE_LENGTH 26 /* of 32 letters: 130 bits */
#define PASSWORD_SHORT 16       /* less than that can be guessed */

/* On the terminal, twice, without showing it. HF_EINVAL: there is none, or the two differ. The caller wipes it. */
int user_password_ask(const char *user, char ret_password[PASSWORD_MAX + 1],
                      struct error_text *err);
/* The first line of the file; "-": of standard input. */
int user_password_file(const char *path, char ret_password[PASSWORD_MAX + 1],
                       struct error_text *err);
void user_password_make(char ret_password[PASSWORD_MAX + 1]);

/* By crypt(3): yescrypt, or where libcrypt has it not, SHA-512. HF_EMODULE: there is no libcrypt. */
int user_password_hash(const char *password, char ret_hash[USERS_HASH_MAX + 1],
                       struct error_text *err);
/* What is wrong with a hash that stands in a file; NULL: nothing that is known here. */
const char *user_password_doubt(const char *hash);

#endif
