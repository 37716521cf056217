/* guard.h: the actions of "holdfast guard", one file each. An action is a command of its own, with
 * its own options and help: "holdfast guard sql --help". */
#ifndef CLI_GUARD_H
#define CLI_GUARD_H

#include "cli/args.h"

#endif
