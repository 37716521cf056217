/* environment.h: what the job sees of its lock, and finding out that we are inside one. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "base/error.h"

/* The environment for a job under this lock: HOLDFAST_NAME, _TOKEN, _SEQUENCER, _URL and _HELD;
 * without HOLDFAST_LEASE and HOLDFAST_PASSWORD, which are secrets. Owned by the caller; NULL with
 * *err set. */
char **environment_for(hf_store *store, hf_lock *lock, struct error_text *err);
/* The same for a job that is to be run once. A key has no sequencer. HOLDFAST_ONCE lists the keys around
 * it. */
char **environment_for_once(hf_store *store, hf_lock *lock, struct error_text *err);
void environment_free(char **environment);

/* HF_OK if no lock that we run under has this name in this store; HF_EINVAL if one has, for waiting
 * would be waiting for ourselves; or what kept us from finding out. */
int environment_check_nested(hf_store *store, const char *name, struct error_text *err);
/* Likewise of a key. */
int environment_check_nested_once(hf_store *store, const char *key, struct error_text *err);

#endif
