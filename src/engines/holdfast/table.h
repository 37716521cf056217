/* table.h: the `holdfast:` store, on a holdfastd. (Not holdfast.h: that is the public one, which the
 * compiler would look for here.) */
#ifndef ENGINES_HOLDFAST_TABLE_H
#define ENGINES_HOLDFAST_TABLE_H

#include "engines/engine.h"

extern const struct engine holdfast_engine;

#endif
