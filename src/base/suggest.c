#include "base/suggest.h"

#include <string.h>

#define WORD_MAX 32
#define NEAR_ENOUGH 2 /* edits */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap neighbours) from a to b; words here are short. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b), d[WORD_MAX + 1][WORD_MAX + 1];

    if (la > WORD_MAX || lb > WORD_MAX)
        return WORD_MAX;
    for (size_t i = 0; i <= la; i++)
        for (size_t j = 0; j <= lb; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1,
                            d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[la][lb];
}

const char *suggest_nearest(const char *typed, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t best_distance = NEAR_ENOUGH + 1, length = strlen(typed);

    for (size_t i = 0; i < count; i++) {
        size_t edits = distance(typed, candidates[i]);

        /* The beginning of a word is as good as a typing error. */
        if (length >= 3 && strncmp(typed, candidates[i], length) == 0)
            edits = 1;
        /* Two edits of a three-letter word leave nothing of it. */
        if (edits < best_distance && edits * 2 <= strlen(candidates[i])) {
            best = candidates[i];
            best_distance = edits;
        }
    }
    return best;
}
