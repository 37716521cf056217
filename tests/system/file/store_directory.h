/* store_directory.h: a directory of its own for each test of the file store, on a disk. */
#ifndef TESTS_FILE_STORE_DIRECTORY_H
#define TESTS_FILE_STORE_DIRECTORY_H

#include <holdfast/holdfast.h>

extern char dir[4096], url[4200];

/* Set-up and tear-down of a test. */
int make_directory(void **state);
int remove_directory(void **state);
/* The store there. Fails the test if it cannot be opened. */
hf_store *open_store(void);

#endif
