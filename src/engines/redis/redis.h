#ifndef ENGINES_REDIS_REDIS_H
#define ENGINES_REDIS_REDIS_H

#include "engines/engine.h"

extern const struct engine redis_engine, redlock_engine;

#endif
