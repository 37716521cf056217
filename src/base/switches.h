/* switches.h: known faults (switches.def) that can be put back into the code one by one, to see that a test finds each of them. They are
 * compiled into two things: the simulator's own build of the rooms that it judges, and the whole of `make mutants`. Everywhere else
 * SWITCHED is 0, and the compiler drops what depends on it. */
#ifndef BASE_SWITCHES_H
#define BASE_SWITCHES_H

enum switch_name {
#define SWITCH(id, name, room, what) SWITCH_##id,
#include "base/switches.def"
#undef SWITCH
    SWITCH_COUNT
};

#ifdef HOLDFAST_SWITCHES

#include <stdbool.h>

/* At the start those are on that the environment variable HOLDFAST_MUTANT names. */
extern bool switches_on[SWITCH_COUNT];
#define SWITCHED(name) (switches_on[name])

/* False: there is none of that name. */
bool switch_set(const char *name);
/* Of a script or SQL that is about to be handed out: each piece like `from` gives way to `to`, which is not longer. */
void switch_text(enum switch_name name, char *text, const char *from, const char *to);
#define SWITCHED_TEXT(name, text, from, to) switch_text(name, text, from, to)
/* The name, the room and what is wrong, one fault on each line. */
void switches_print(void);

#else
#define SWITCHED(name) 0
#define SWITCHED_TEXT(name, text, from, to) ((void)0)
#endif

#endif
