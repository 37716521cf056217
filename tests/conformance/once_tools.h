/* once_tools.h: what the tests of once-records share. */
#ifndef TESTS_CONFORMANCE_ONCE_TOOLS_H
#define TESTS_CONFORMANCE_ONCE_TOOLS_H

#include "suite.h"

#define KEEP_MS INT64_C(60000)

/* With a wait of PATIENCE_MS, and LONG_TTL_MS where there is a TTL. */
hf_once_options once_options_of(const struct context *context);
hf_once *must_begin(hf_store *store, const char *key, const hf_once_options *options);
/* It is ours to run. */
hf_once *must_run(hf_store *store, const char *key, const hf_once_options *options);
void must_finish(hf_once *once, const char *text);
/* It has been run, by this token (0: any), with that result. Frees it. */
void must_be_done(hf_once *once, uint64_t token, const void *bytes, size_t size);
/* What is known of "one" now. ret_token may be NULL. */
int known(hf_store *store, uint64_t *ret_token);
/* For `eventually`, with a store. */
bool knows_nothing(void *store);
bool knows_death(void *store);

/* An hf_once_begin on a thread of its own; whoever is to run it says so, waits for `go`, and finishes. */
struct caller {
    hf_store *store;
    hf_once_options options;
    struct tally *runs, *go, *begun; /* or NULL */
    int result;
    bool ran;
    uint64_t token;
    char text[64];
    unsigned long thread;
};
void caller_start(struct caller *caller);
void caller_join(struct caller *caller);

#endif
