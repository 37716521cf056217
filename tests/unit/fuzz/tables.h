/* tables.h: lock tables for the targets that have to do with them. */
#ifndef TESTS_FUZZ_TABLES_H
#define TESTS_FUZZ_TABLES_H

#include "core/core.h"
#include "fuzz.h"

struct core *table_new(unsigned char seed);
/* The n-th of a few tables with something of everything in it; NULL: there are no more. */
struct core *table_sample(unsigned n);
/* The commands that made it, an entry each, in bytes that the caller frees; NULL after the last. */
void *sample_entry(unsigned n, unsigned which, size_t *ret_size);

/* Aborts unless every invariant holds, and a snapshot of it restores to the same. */
void table_must_be_sound(struct core *core);
void table_do(struct core *core, const struct core_command *command, uint32_t elapsed_ms);
void *table_snapshot(struct core *core, size_t *ret_size);

#endif
