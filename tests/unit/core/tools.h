/* tools.h: what the tests of src/core share: a table, an entry with one command or many, a snapshot
 * in one go. */
#ifndef TESTS_CORE_TOOLS_H
#define TESTS_CORE_TOOLS_H

#include "core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A sanitizer makes it many times slower, and would find in fewer rounds what it finds. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SLOW 1
#else
#define SLOW 0
#endif

uint64_t next_random(uint64_t *seed);
/* 0 to limit-1. */
uint32_t below(uint64_t *seed, uint32_t limit);

struct core_text text(const char *words);
/* Tables with other seeds hash otherwise, and must be the same in all else. */
struct core *table_new(unsigned char seed);
/* All invariants hold, or the test fails with the one that does not. */
void table_check(const struct core *core);

/* What the packer holds becomes an entry and is applied; the packer is empty afterwards. */
void table_apply(struct core *core, struct core_packer *packer, uint32_t elapsed_ms, bool new_term,
                 const struct core_sink *sink);
/* One command, without time. */
void table_do(struct core *core, const struct core_command *command, const struct core_sink *sink);
/* An ACQUIRE that does not wait. */
void table_hold(struct core *core, const char *name, const char *lease, uint32_t ttl_ms);
/* Time passes, in as many entries as that takes. */
void table_pass(struct core *core, uint32_t ms);

/* In one step. The bytes are the caller's. */
void *snapshot_whole(struct core *core, size_t *ret_size);
/* The core_hash of a table that was restored from these bytes. */
uint64_t restored_hash(const void *bytes, size_t size);
/* A table of another seed, restored from a snapshot of this one, which is freed. */
struct core *table_reborn(struct core *core, unsigned char seed);

#endif
