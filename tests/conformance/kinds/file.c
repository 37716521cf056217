/* file.c: the file store. */
#include "suite.h"

const struct store_kind file_kinds[] = {
    {.name = "file", .url = "file:%s/locks", .shows_waiters = true},
    {0},
};
