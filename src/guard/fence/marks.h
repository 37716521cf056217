/* marks.h: what the module holdfast-fence.so provides: the map from key to mark, on disk. It is a
 * module so that only those who use a fence need LMDB.
 *
 * All functions but close may be called from several threads at once. They return HF_OK or a
 * negative HF_E... with a line in err; after a failure no mark has changed, unless the disk failed in
 * the very last step (HF_EIO). None may be called in the child of a fork on what was opened before
 * it. */
#ifndef GUARD_FENCE_MARKS_H
#define GUARD_FENCE_MARKS_H

#include "base/error.h"
#include "base/switches.h"

#include <holdfast/guard.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Raised whenever this file changes in a way that the module must be rebuilt for. */
#define MARKS_ABI 1

#define MARKS_PAGE_ROWS 64

struct marks;

/* One token that knocks. */
struct marks_knock {
    const char *key; /* valid, borrowed */
    size_t size;
    uint64_t token;
    uint64_t mark; /* out: what the token was compared with */
    bool stale;    /* out */
};

struct marks_row {
    uint64_t mark;
    char key[HF_KEY_MAX + 1];
};

struct marks_page {
    size_t count;
    struct marks_row rows[MARKS_PAGE_ROWS];
};

/* Called with the mark as it is, before it changes; a failure keeps it as it is. */
typedef int marks_before_fn(void *context, uint64_t was, struct error_text *err);

struct marks_provider {
    uint32_t abi; /* MARKS_ABI; first, so that any two versions can compare it */

    /* The directory exists; its files are there, maybe empty. Opening one again in the same process
     * gives the same map. */
    int (*open)(const char *path, uint64_t bytes_max, struct marks **ret_marks,
                struct error_text *err);
    void (*close)(struct marks *marks);

    /* Only reads. *ret_rises: some token would raise a mark, and the outputs of the knocks mean
     * nothing; else they are the answer. */
    int (*look)(struct marks *marks, struct marks_knock *knocks, size_t count, int mode,
                bool *ret_rises, struct error_text *err);
    /* Compares and raises, all in one transaction, on the disk when it returns. */
    int (*raise)(struct marks *marks, struct marks_knock *knocks, size_t count, int mode,
                 struct error_text *err);
    /* 0: none. */
    int (*read)(struct marks *marks, const char *key, size_t size, uint64_t *ret_mark,
                struct error_text *err);
    /* The rows from the first key behind `after` on (NULL: from the first of all); fewer than
     * MARKS_PAGE_ROWS are the last ones. */
    int (*page)(struct marks *marks, const char *after, struct marks_page *ret_page,
                struct error_text *err);
    /* Sets a mark whatever it was; 0 removes it. */
    int (*set)(struct marks *marks, const char *key, size_t size, uint64_t mark,
               marks_before_fn *before, void *context, struct error_text *err);
};

/* The one symbol of the module: const struct marks_provider *holdfast_fence(void). */
#define MARKS_MODULE_SYMBOL "holdfast_fence"
typedef const struct marks_provider *marks_module_fn(void);

/* The rule of every guard. */
static inline bool marks_accept(uint64_t token, uint64_t mark, int mode)
{
    return token > mark ||
           (token == mark && (mode == HF_NOT_OLDER || SWITCHED(SWITCH_FENCE_EQUAL)));
}

#endif
