/* once_folder.h: a file store in a directory of its own, twice opened, and its folder of keys. */
#ifndef TESTS_FILE_ONCE_FOLDER_H
#define TESTS_FILE_ONCE_FOLDER_H

#include "driver.h"
#include "store_directory.h"

#include <sys/types.h>

extern struct driver driver, other; /* on the same directory */

int folder_start(void **state);
int folder_stop(void **state);
/* In DIR/once. Until the next call. */
const char *path_of(const char *file);
bool is_there(const char *file);
void overwrite(const char *file, off_t at, const void *bytes, size_t size);
/* Changes this byte, whatever it is. */
void damage(const char *file, off_t at);
/* Of a claim of `driver` that does not wait. */
int outcome_of(const char *key, bool no_heir);

#endif
