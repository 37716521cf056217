/* environment.h: what the job sees of its lock, and finding out that we are inside one. */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "base/error.h"
#include "cli/heartbeat.h"

/* The environment for a job under this lock: HOLDFAST_NAME, _TOKEN, _SEQUENCER, _URL and _HELD;
 * without HOLDFAST_LEASE and HOLDFAST_PASSWORD, which are secrets. heartbeat: how the job is to report; where it
 * need not, reports are for whoever runs us, if anybody. Owned by the caller, who frees it. HF_ELOST: the lock is. */
int environment_for(hf_store *store, hf_lock *lock, const struct heartbeat *heartbeat,
                    char ***ret_environment, struct error_text *err);
/* The same for a job that is to be run once. A key has no sequencer. HOLDFAST_ONCE lists the keys around
 * it. */
int environment_for_once(hf_store *store, hf_lock *lock, const struct heartbeat *heartbeat,
                         char ***ret_environment, struct error_text *err);
void environment_free(char **environment);

/* HF_OK if no lock that we run under has this name in this store; HF_EINVAL if one has, for waiting
 * would be waiting for ourselves; or what kept us from finding out. */
int environment_check_nested(hf_store *store, const char *name, struct error_text *err);
/* Likewise of a key. */
int environment_check_nested_once(hf_store *store, const char *key, struct error_text *err);

#endif
