/* user.h: who runs this process, as a label for others to read. */
#ifndef BASE_USER_H
#define BASE_USER_H

#define USER_NAME_SIZE 33 /* longer names are cut */

/* The name of the effective user; "uid1234" where no such user is known. */
void user_name(char ret_name[USER_NAME_SIZE]);

#endif
