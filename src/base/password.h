/* password.h: the first line of a file, as servers and clients read a password. */
#ifndef BASE_PASSWORD_H
#define BASE_PASSWORD_H

#include "base/error.h"

#define PASSWORD_MAX 1024 /* bytes */

/* Without its end (LF or CR LF). fd is open on the path, which is for the words, as is
 * what the file is called ("password-file"); errno values come with
 * `code`. HF_EINVAL: the line is empty, too long, or has a NUL byte. No message quotes what is in the file.
 * The caller wipes it. */
int password_read(int fd, const char *what, const char *path, int code,
                  char ret_password[PASSWORD_MAX + 1], struct error_text *err);

#endif
