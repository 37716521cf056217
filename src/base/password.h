/* password.h: a line of a file, or two, as clients and servers read a password. */
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

/* The same of a server's file, which may have two: the second is "" if there is no second line, or an empty one.
 * HF_EINVAL: there is a third line, which somebody might take for valid. */
int password_read_two(int fd, const char *what, const char *path, int code,
                      char ret_first[PASSWORD_MAX + 1], char ret_second[PASSWORD_MAX + 1],
                      struct error_text *err);

#endif
