/* bootclock.h: which boot this is, and a clock that reads the same for all who share the kernel.
 *
 * Times that are written down are read by others, perhaps in a container with a time namespace of its own,
 * where CLOCK_BOOTTIME reads later or earlier by an offset. So what is written is the kernel's own
 * CLOCK_BOOTTIME: ours, less that offset. Waits, which nobody else sees, go by ours. */
#ifndef BASE_BOOTCLOCK_H
#define BASE_BOOTCLOCK_H

#include "base/error.h"

#include <stdint.h>

#define BOOT_ID_SIZE 40

struct bootclock {
    char boot_id[BOOT_ID_SIZE];
    int64_t offset_ns; /* of our time namespace */
};

/* Both: HF_ENOMEM: not enough descriptors or memory to tell. HF_EREFUSED: /proc does not say. */

/* As text, filled up with zeros. Some containers have one of their own, under the same kernel. */
int bootclock_read_id(char ret_id[BOOT_ID_SIZE], struct error_text *err);
int bootclock_read(struct bootclock *ret_clock, struct error_text *err);
/* Milliseconds since the kernel was started. Only to be compared with times of this kernel. */
int64_t bootclock_now_ms(const struct bootclock *clock);

#endif
