/* glob.h: names that match a pattern: * any bytes, ? one byte, [a-z] and [^a-z] one of these, \ the
 * next byte as it is. A pattern takes no more time than its length times the name's. */
#ifndef SESSION_GLOB_H
#define SESSION_GLOB_H

#include "core/core.h"

bool glob_matches(struct core_text pattern, struct core_text name);

#endif
