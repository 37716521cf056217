/* recorder.h: writes down what this process asks of the kernel that changes files below a directory.
 *
 * It stands before the C library's own open, pwrite, fsync, rename and so on: linked into a test, or put before a program with
 * LD_PRELOAD (HF_RECORD=TRACE, HF_RECORD_BELOW=DIR). Stores into memory that is mapped from such files are noticed at the next call
 * that is recorded, word by word. */
#ifndef TESTS_POWER_RECORDER_H
#define TESTS_POWER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

/* What is there already is not recorded: below is to be empty. Both absolute, without links. */
void recorder_begin(const char *trace, const char *below);
void recorder_end(void);
/* Something was acknowledged. */
void recorder_mark(uint64_t number);
/* This process is killed when so many more calls have been recorded; 0: it is not. For a child: what it does is recorded in the same
 * trace while its parent waits. */
void recorder_die_after(uint64_t calls);

/* For opening many images quickly: nothing is synced any more. */
void recorder_skip_syncs(bool skip);
/* From now on this is another boot. NULL: the real one. 36 characters, borrowed. */
void recorder_set_boot_id(const char *boot_id);
/* What the kernel draws at random follows from this from now on. */
void recorder_seed(uint64_t seed);

#endif
