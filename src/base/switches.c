/* switches.c: in no library and no program that is installed; switches.h says where. */
#include "base/switches.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool switches_on[SWITCH_COUNT];

static const struct {
    const char *name, *room, *what;
} switches[] = {
#define SWITCH(id, name, room, what) {name, room, what},
#include "base/switches.def"
#undef SWITCH
};

bool switch_set(const char *name)
{
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        if (strcmp(name, switches[i].name) == 0) {
            switches_on[i] = true;
            return true;
        }
    return false;
}

/* What is left of a longer piece becomes blanks, of which Lua and SQL make nothing. */
void switch_text(enum switch_name name, char *text, const char *from, const char *to)
{
    size_t size = strlen(from);

    for (char *at = switches_on[name] ? strstr(text, from) : NULL; at; at = strstr(at, from)) {
        memset(at, ' ', size);
        memcpy(at, to, strlen(to));
        at += size;
    }
}

void switches_print(void)
{
    for (size_t i = 0; i < SWITCH_COUNT; i++)
        printf("%s\t%s\t%s\n", switches[i].name, switches[i].room, switches[i].what);
}

/* Before main, so that a program, the processes that it starts and the modules that it loads have the same fault from their first
 * line on: each has a copy of this file. */
__attribute__((constructor)) static void switches_begin(void)
{
    const char *name = getenv("HOLDFAST_MUTANT");

    if (!name || !*name || switch_set(name))
        return;
    fprintf(stderr, "HOLDFAST_MUTANT: there is no fault called %s\n", name);
    abort();
}
