/* modules.h: code with a heavy library behind it, loaded with its first use. A module is the file
 * holdfast-NAME.so with one symbol: a function that gives a table which begins with its ABI number.
 * What has been loaded stays loaded: its code may run until the process ends. */
#ifndef BASE_MODULES_H
#define BASE_MODULES_H

#include "base/error.h"

#include <stdbool.h>

struct module {
    const char *name;      /* "tls" is holdfast-tls.so, of the package holdfast-tls */
    const char *needed_by; /* how the message about a missing one begins: "TLS needs" */
    const char *library;   /* what has to be installed for it to be built; NULL: not one of ours */
    const char *symbol;
};

/* For a program of a build tree, before any other thread runs: its modules are beside it, and not where an installed one finds them.
 * own: what the program's path ends with there; of one whose path has another end, and where HOLDFAST_MODULE_DIR says it, nothing changes. */
void modules_find_beside(const char *own);
/* Is there such a file? It may still not be a module. */
bool module_exists(const char *name);
/* HF_EMODULE: not there, cannot be loaded, or without that symbol. May be called again and again,
 * from any thread. */
int module_symbol(const struct module *module, void **ret_symbol, struct error_text *err);
/* The words for HF_EMODULE, for a caller who found another ABI number in the table than its own. */
void module_misfit(const struct module *module, struct error_text *err);

#endif
