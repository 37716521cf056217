/* user.c: who runs this process, as a label for others to read. */
#include "base/user.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#define SCRATCH_SIZE 1024

void user_name(char ret_name[USER_NAME_SIZE])
{
    char scratch[SCRATCH_SIZE];
    struct passwd entry, *found = NULL;

    if (getpwuid_r(geteuid(), &entry, scratch, sizeof scratch, &found) == 0 && found &&
        *found->pw_name)
        snprintf(ret_name, USER_NAME_SIZE, "%s", found->pw_name);
    else
        snprintf(ret_name, USER_NAME_SIZE, "uid%lu", (unsigned long)geteuid());
}
