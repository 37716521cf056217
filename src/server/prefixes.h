/* prefixes.h: what happens to names, by how they begin: up to the first ':' or '/' in them, with it. The first that come have a count of their
 * own; there is no end to what clients may call their locks, so all that come later are counted together. */
#ifndef SERVER_PREFIXES_H
#define SERVER_PREFIXES_H

#include "core/core.h"

#include <stdint.h>

#define PREFIXES_MAX 32u /* with a count of their own */
#define PREFIX_BYTES_MAX \
    48u /* of one, with its separator: a longer one is counted with the others */
#define PREFIX_NONE \
    "none" /* names without a separator; no prefix is called so, as it would end with one */
#define PREFIX_OTHER "other" /* all others */

struct prefix {
    uint64_t hash;
    uint64_t granted, expired, broken;
    uint32_t size;
    char bytes[PREFIX_BYTES_MAX];
};

struct prefixes {
    struct prefix at[PREFIXES_MAX];
    uint32_t count;
    struct prefix none, other;
    unsigned char seed[16];
};

/* seed: so that nobody outside can choose names that meet. */
void prefixes_open(struct prefixes *prefixes, const unsigned char seed[16]);
/* Where this name is counted. Never NULL. */
struct prefix *prefixes_of(struct prefixes *prefixes, struct core_text name);

#endif
