/* fence.c: see guard.h. */
#include "base/failure.h"

#include <holdfast/guard.h>
