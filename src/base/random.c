#include "base/random.h"
#include "base/error.h"

#include <errno.h>
#include <sys/random.h>

void random_fill(void *bytes, size_t size)
{
    unsigned char *at = bytes;

    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        INVARIANT(got > 0);
        at += got;
        size -= (size_t)got;
    }
}

uint64_t random_below(uint64_t limit)
{
    uint64_t value;

    if (limit == 0)
        return 0;
    random_fill(&value, sizeof value);
    return value % limit;
}
