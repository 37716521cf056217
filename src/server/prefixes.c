#include "server/prefixes.h"
#include "base/siphash.h"
#include "base/text.h"

#include <string.h>

enum { HASH_PREFIX = 1 };

static void begin(struct prefix *prefix, const char *words)
{
    prefix->size = (uint32_t)strlen(words);
    memcpy(prefix->bytes, words, prefix->size);
}

void prefixes_open(struct prefixes *prefixes, const unsigned char seed[16])
{
    *prefixes = (struct prefixes){.count = 0};
    memcpy(prefixes->seed, seed, sizeof prefixes->seed);
    begin(&prefixes->none, PREFIX_NONE);
    begin(&prefixes->other, PREFIX_OTHER);
}

/* With its separator; 0: there is none. */
static size_t prefix_size(struct core_text name)
{
    for (size_t i = 0; i < name.size; i++)
        if (name.bytes[i] == ':' || name.bytes[i] == '/')
            return i + 1;
    return 0;
}

/* Whoever reads it reads UTF-8, a line at a time. */
static bool is_readable(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)bytes[i] < ' ' || bytes[i] == 0x7f)
            return false;
    return text_is_utf8(bytes, size);
}

struct prefix *prefixes_of(struct prefixes *prefixes, struct core_text name)
{
    size_t size = prefix_size(name);
    struct prefix *prefix;
    uint64_t hash;

    if (size == 0)
        return &prefixes->none;
    if (size > PREFIX_BYTES_MAX)
        return &prefixes->other;
    hash = siphash(prefixes->seed, HASH_PREFIX, name.bytes, size);
    for (uint32_t i = 0; i < prefixes->count; i++) {
        prefix = &prefixes->at[i];
        if (prefix->hash == hash && prefix->size == size &&
            memcmp(prefix->bytes, name.bytes, size) == 0)
            return prefix;
    }
    if (prefixes->count == PREFIXES_MAX || !is_readable(name.bytes, size))
        return &prefixes->other;
    prefix = &prefixes->at[prefixes->count++];
    *prefix = (struct prefix){.hash = hash, .size = (uint32_t)size};
    memcpy(prefix->bytes, name.bytes, size);
    return prefix;
}
