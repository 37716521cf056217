/* file.h: locks as files in a directory of one machine. docs/file-store.md tells how and why. */
#ifndef ENGINES_FILE_FILE_H
#define ENGINES_FILE_FILE_H

#include "engines/engine.h"

extern const struct engine file_engine;

#endif
