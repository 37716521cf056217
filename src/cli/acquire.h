/* acquire.h: taking the lock while a person may be watching: says who holds it, and gives up the
 * place in the queue when told to stop. Shared by run, elect, lock and once. */
#ifndef CLI_ACQUIRE_H
#define CLI_ACQUIRE_H

#include "base/error.h"
#include "cli/signals.h"

#include <holdfast/once.h>

struct acquisition {
    hf_store *store; /* borrowed, as all here */
    const char *name;
    hf_options options;
    const hf_once_options
        *once; /* or NULL. Then the name is a key, and of `options` only wait_ms counts */
    struct signals *signals;
    bool quiet;
    bool say_busy; /* name the holder when not acquired */
};

/* HF_OK and the lock; HF_ECANCELED and the signal that did it; or an error, in words in *err. */
int acquire(const struct acquisition *wanted, hf_lock **ret_lock, int *ret_signal,
            struct error_text *err);
/* The same with `once`: what is to be run, or has been. */
int acquire_once(const struct acquisition *wanted, hf_once **ret_once, int *ret_signal,
                 struct error_text *err);

#endif
