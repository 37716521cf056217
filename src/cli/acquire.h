/* acquire.h: taking the lock while a person may be watching: says who holds it, and gives up the
 * place in the queue when told to stop. Shared by run, elect and lock. */
#ifndef CLI_ACQUIRE_H
#define CLI_ACQUIRE_H

#include "base/error.h"
#include "cli/signals.h"

struct acquisition {
    hf_store *store; /* borrowed, as all here */
    const char *name;
    hf_options options;
    struct signals *signals;
    bool quiet;
    bool say_busy; /* name the holder when not acquired */
    bool patient;  /* the store is known to exist: sit out an outage from the beginning */
};

/* HF_OK and the lock; HF_ECANCELED and the signal that did it; or an error, in words in *err. */
int acquire(const struct acquisition *wanted, hf_lock **ret_lock, int *ret_signal,
            struct error_text *err);

#endif
