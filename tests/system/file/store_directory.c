#include "store_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char dir[4096], url[4200];

int make_directory(void **state)
{
    (void)state;
    /* Beside the build, which is on a disk; /tmp may not be. */
    snprintf(dir, sizeof dir, "%s/file-store-XXXXXX",
             getenv("HOLDFAST_TEST_DIR") ? getenv("HOLDFAST_TEST_DIR") : ".");
    if (!mkdtemp(dir) || !realpath(dir, url))
        return -1;
    memcpy(dir, url, strlen(url) + 1);
    snprintf(url, sizeof url, "file:%s", dir);
    return 0;
}

int remove_directory(void **state)
{
    char command[9000];

    (void)state;
    snprintf(command, sizeof command, "chmod -R u+rwX '%s' && rm -rf '%s'", dir, dir);
    return system(command) == 0 ? 0 : -1;
}

hf_store *open_store(void)
{
    hf_store *store;

    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s", hf_error());
    return store;
}
