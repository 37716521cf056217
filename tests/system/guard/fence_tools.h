/* fence_tools.h: what the tests of fences share: one fence, opened anew for each test, and children. */
#ifndef TESTS_GUARD_FENCE_TOOLS_H
#define TESTS_GUARD_FENCE_TOOLS_H

#include <holdfast/guard.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#define PATIENCE_MS 30000 /* for what must happen soon */

extern char dir[4096]; /* the fence's directory */
extern hf_fence *fence;

int fence_setup(void **state);
int fence_teardown(void **state);
#define FENCE_TEST(name) cmocka_unit_test_setup_teardown(name, fence_setup, fence_teardown)

/* A path with all that is below. */
int fence_remove(const char *path);
/* A path in the directory; one of two buffers. */
const char *fence_file(const char *name);
hf_fence *fence_open_with(const hf_fence_options *options);

#define MUST(call)                                                                  \
    do {                                                                            \
        int must_result = (call);                                                   \
        if (must_result != HF_OK)                                                   \
            fail_msg("%s: %s: %s", #call, hf_result_name(must_result), hf_error()); \
    } while (0)

uint64_t mark_of(const char *key);
int admit(const char *key, uint64_t token);
/* Gets in at once. */
hf_fence_entry *enter(const char *key, uint64_t token);
/* Whether somebody is inside, seen by the token that is there already. */
bool is_held(const char *key);
/* Of the last failure. */
void assert_says(const char *words);
/* How many transactions have written so far, by LMDB's own count. */
uint64_t count_writes(void);
/* For hf_fence_each: arg is an int. */
int count_keys(const char *key, uint64_t mark, void *arg);

/* What a child process finds out, as one number. It must not use cmocka. */
typedef uint64_t child_fn(void *arg);
uint64_t in_child(child_fn *fn, void *arg);
/* A child that does its thing, says so, and stays until it is killed. */
pid_t start_child(void (*fn)(void));
void kill_child(pid_t pid);

#endif
