/* switches.h: known faults, which the simulator puts back into the code to see whether it finds them. */
#ifndef SIM_SWITCHES_H
#define SIM_SWITCHES_H

#include "base/switches.h"

#include <stdbool.h>

extern unsigned switches_on; /* a bit for each */

/* False: there is none of that name. */
bool switch_set(const char *name);
const char *switch_names(void);

static inline bool switch_on(enum switch_name name)
{
    return switches_on & 1u << name;
}

#endif
