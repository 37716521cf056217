/* glob.c: see glob.h. */
#include "session/glob.h"

/* Does the byte match the one element of the pattern at *at? Moves behind the element. */
static bool element_matches(struct core_text pattern, size_t *at, unsigned char byte)
{
    const unsigned char *text = (const unsigned char *)pattern.bytes;
    size_t i = *at;
    bool inverted, found = false;

    if (text[i] != '[') {
        bool any = text[i] == '?';

        if (text[i] == '\\' && i + 1 < pattern.size)
            i++;
        *at = i + 1;
        return any || text[i] == byte;
    }
    inverted = ++i < pattern.size && text[i] == '^';
    i += inverted;
    while (i < pattern.size && text[i] != ']') {
        unsigned char low = text[i], high = low;

        if (low == '\\' && i + 1 < pattern.size)
            low = high = text[++i];
        if (i + 2 < pattern.size && text[i + 1] == '-' && text[i + 2] != ']') {
            high = text[i + 2];
            i += 2;
        }
        found = found || (low <= byte && byte <= high);
        i++;
    }
    *at = i < pattern.size ? i + 1 : i;
    return found != inverted;
}

/* When nothing fits any more, the last star takes one byte more; earlier ones never have to. */
bool glob_matches(struct core_text pattern, struct core_text name)
{
    size_t at = 0, in_name = 0, star = SIZE_MAX, from = 0;

    while (in_name < name.size) {
        if (at < pattern.size && pattern.bytes[at] == '*') {
            star = ++at;
            from = in_name;
            continue;
        }
        if (at < pattern.size &&
            element_matches(pattern, &at, (unsigned char)name.bytes[in_name])) {
            in_name++;
            continue;
        }
        if (star == SIZE_MAX)
            return false;
        at = star;
        in_name = ++from;
    }
    while (at < pattern.size && pattern.bytes[at] == '*')
        at++;
    return at == pattern.size;
}
